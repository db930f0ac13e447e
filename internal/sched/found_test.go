package sched

import (
	"fmt"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Detected GPU memory counts if the configuration has none, also for a kept planner. Each of several types has its own
// memory.
func TestFoundGPUMemory(t *testing.T) {
	c := newCluster(t)
	c.cfg.Params.GPUMemMarginMiB = 2000
	gres := func(mem int64) []model.GresDef {
		return []model.GresDef{{Name: "gpu", Type: "h100", Count: 1, MemMiB: 8 * mem},
			{Name: "gpu", Type: "1g.10gb", First: 1, Count: 2, MemMiB: mem}}
	}
	c.cfg.Nodes = []*model.NodeDef{{Name: "n1", CPUs: 8, ThreadsPerCore: 1, MemMiB: 8000, Gres: gres(0)}}
	c.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}
	c.up()
	ask := func(mem int64) *model.Spec {
		return &model.Spec{User: "u", Account: "a", Partitions: []string{"p"}, CPUsPerTask: 1, LimitS: 60,
			Gres: []model.GresReq{{Name: "gpu", Count: 1}},
			More: &model.Needs{GPUMemMiB: mem}}
	}
	part := c.st.View().Partition("p")
	if why, _ := Possible(c.st.View(), ask(1000), part); why != NoSuchGres {
		t.Errorf("memory that nobody knows: %s", why)
	}
	for _, mem := range []int64{20000, 8000, 8001, 1000} {
		c.apply(&state.Submit{Spec: ask(mem)})
	}
	c.cycle(Policy{Backfill: Backfill{On: true, Reserve: 1}})
	c.apply(&state.Join{Node: "n1", BootID: "b", Gres: gres(10000)})
	if why, _ := Possible(c.st.View(), ask(78000), part); why != CanRun {
		t.Errorf("78000 of 80000 MiB: %s", why)
	}
	if why, _ := Possible(c.st.View(), ask(78001), part); why != NoSuchGres {
		t.Errorf("78001 of 80000 MiB: %s", why)
	}
	plan := c.cycle(Policy{Backfill: Backfill{On: true, Reserve: 1}})
	got := map[model.JobID]string{}
	for _, s := range plan.Starts {
		got[s.Job] = s.Alloc.Nodes[0].Gres[0].Type
	}
	if len(got) != 3 || got[1] != "h100" || got[2] != "1g.10gb" || got[4] != "1g.10gb" {
		t.Errorf("started %v, not 1 on h100, 2 and 4 on instances", got)
	}
}

// --gpu-mem subtracts what processes outside of jobs hold now from whole GPUs and from shared ones, less the margin. A
// kept planner starts the job as soon as these processes are gone.
func TestHeldGPUMemory(t *testing.T) {
	for _, shared := range []bool{false, true} {
		c := newCluster(t)
		c.cfg.Params.GPUMemMarginMiB = 2000
		n1 := &model.NodeDef{Name: "n1", CPUs: 8, ThreadsPerCore: 1, MemMiB: 8000,
			Gres: []model.GresDef{{Name: "gpu", Type: "a", Count: 2, MemMiB: 80000}}}
		if shared {
			divide(n1, "shard", 4, false)
		}
		c.cfg.Nodes = []*model.NodeDef{n1}
		c.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}
		c.up()
		pol := Policy{Backfill: Backfill{On: true, Reserve: 1}}
		held := func(mib ...int64) {
			u := &state.Units{Node: "n1"}
			for i, m := range mib {
				u.Held = append(u.Held, model.GPUHeld{Index: int32(i), MemMiB: m})
			}
			c.apply(u)
		}
		ask := func(name string, n int32, mem int64) {
			c.apply(&state.Submit{Spec: &model.Spec{User: "u", Account: "a", Partitions: []string{"p"}, CPUsPerTask: 1,
				LimitS: 60,
				Gres:   []model.GresReq{{Name: name, Count: n}}, More: &model.Needs{GPUMemMiB: mem}}})
		}
		starts := func(want string) {
			t.Helper()
			got := ""
			for _, s := range c.cycle(pol).Starts {
				got += fmt.Sprintf("start %d on %s;", s.Job, s.Alloc.Nodes[0].Gres[0].Index)
			}
			if got != want {
				t.Errorf("shared %v: %q, not %q", shared, got, want)
			}
		}
		held(5120)
		ask("gpu", 1, 73000)
		starts("start 1 on 1;")
		ask("gpu", 1, 72881)
		starts("")
		held(5119)
		starts("start 2 on 0;")
		c.clear()
		held(5120, 5120)
		ask("gpu", 2, 72880)
		starts("start 3 on 0-1;")
		c.clear()
		ask("gpu", 2, 73000)
		starts("")
		held(0, 5120)
		starts("")
		held()
		starts("start 4 on 0-1;")
		c.clear()
		if shared {
			held(50000)
			for _, mem := range []int64{30000, 28000, 20000, 28000, 1000} {
				ask("shard", 1, mem)
			}
			starts("start 5 on 4;start 6 on 5;start 7 on 6;start 8 on 0;")
			held()
			starts("start 9 on 1;")
		}
	}
}
