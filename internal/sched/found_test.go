package sched

import (
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// The memory of GPUs that no configuration says and their nodes have found counts, for a kept planner too; of several
// types each has its own.
func TestFoundGPUMemory(t *testing.T) {
	c := newCluster(t)
	c.cfg.Params.GPUMemMarginMiB = 2000
	gres := func(mem int64) []model.GresDef {
		return []model.GresDef{{Name: "gpu", Type: "h100", Count: 1, MemMiB: 8 * mem}, {Name: "gpu", Type: "1g.10gb", First: 1, Count: 2, MemMiB: mem}}
	}
	c.cfg.Nodes = []*model.NodeDef{{Name: "n1", CPUs: 8, ThreadsPerCore: 1, MemMiB: 8000, Gres: gres(0)}}
	c.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}
	c.up()
	ask := func(mem int64) *model.Spec {
		return &model.Spec{User: "u", Account: "a", Partitions: []string{"p"}, CPUsPerTask: 1, LimitS: 60, Gres: []model.GresReq{{Name: "gpu", Count: 1}},
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
