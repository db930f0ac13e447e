package peaks

import (
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

func use(own, all, has int64) *model.Usage {
	return &model.Usage{Nodes: []model.NodeUsage{{GPUs: []model.GPUUsage{{OwnMaxMiB: own, MemMaxMiB: all, MemMiB: has}}}}}
}

func TestNeeded(t *testing.T) {
	whole, shard := []model.GresCount{{Name: "gpu", Count: 1}}, []model.GresCount{{Name: "shard", Count: 1}}
	for _, x := range []struct {
		say   string
		exit  model.Exit
		gres  []model.GresCount
		asked int64
		want  int64
	}{
		{"nothing was measured", model.Exit{}, whole, 5000, 0},
		{"its own processes", model.Exit{Use: use(3000, 9000, 40000)}, whole, 5000, 3000},
		{"the driver names no processes", model.Exit{Use: use(0, 9000, 40000)}, whole, 5000, 9000},
		{"others are on the GPU too", model.Exit{Use: use(0, 9000, 40000)}, shard, 5000, 0},
		{"short of memory on a whole GPU", model.Exit{GPUOOM: true, Use: use(3000, 9000, 40000)}, whole, 5000, 40000},
		{"short of memory on a part", model.Exit{GPUOOM: true, Use: use(3000, 9000, 40000)}, shard, 5000, 5000},
		{"short of memory, not measured", model.Exit{GPUOOM: true}, shard, 5000, 5000},
	} {
		if got := needed(&x.exit, x.gres, x.asked); got != x.want {
			t.Errorf("%s: %d, not %d", x.say, got, x.want)
		}
	}
}

func TestLearn(t *testing.T) {
	p := New()
	record := func(job model.JobID, name string, mib int64) Old {
		o, ok := OfRecord(nil, &model.Record{Job: job, UID: 7, Name: name, Exit: model.Exit{Use: use(mib, 0, 0)}})
		if !ok {
			t.Fatal("it tells nothing")
		}
		return o
	}
	p.Recall([]Old{record(1, "a", 9000), record(1, "a", 9000)})
	if n := len(p.jobs[name{7, "a"}]); n != 1 {
		t.Errorf("a job counts %d times", n)
	}
	for i := range model.JobID(lastJobs) {
		p.Recall([]Old{record(2+i, "a", 1000)})
	}
	for _, x := range p.jobs[name{7, "a"}] {
		if x.mib != 1000 {
			t.Errorf("%d is of a job before the last %d", x.mib, lastJobs)
		}
	}
	for i := range maxNames {
		p.Recall([]Old{record(1, string(rune('A'+i%50))+string(rune(0x100+i)), 1)})
	}
	if len(p.jobs) > maxNames || len(p.order) > maxNames {
		t.Errorf("%d names are remembered", len(p.jobs))
	}
}

// TestWholeWithoutSamples: who was short of memory on a whole GPU needed more than it has, also if nothing was
// measured: by the job and by its record.
func TestWholeWithoutSamples(t *testing.T) {
	st, now := state.New(), model.Time(1000)
	apply := func(b state.Body) state.Result { return st.Apply(state.Command{At: now, Body: b}) }
	def := &model.NodeDef{Name: "n1", CPUs: 4, ThreadsPerCore: 1,
		Gres: []model.GresDef{{Name: "gpu", Count: 1, MemMiB: 24000}}}
	apply(&state.SetConfig{Instance: 1, Config: &model.Config{Cluster: "c", Nodes: []*model.NodeDef{def},
		Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}}})
	apply(&state.Join{Node: "n1", BootID: "b"})
	id := apply(&state.Submit{Spec: &model.Spec{Name: "train", User: "ann", UID: 7, Partitions: []string{"p"},
		Gres: []model.GresReq{{Name: "gpu", Count: 1}}, More: &model.Needs{GPUMemMiB: 1000, GPUMemAuto: true}}}).Job
	na := model.NodeAlloc{Node: "n1", CPUs: model.UpTo(1), Tasks: 1,
		Gres: []model.GresAlloc{{Name: "gpu", Index: model.UpTo(1)}}}
	if r := apply(&state.Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p",
		LimitS: 600, Alloc: &model.Alloc{Nodes: []model.NodeAlloc{na}}}}}}); r.Each[0] != state.OK {
		t.Fatal(r.Each[0])
	}
	apply(&state.Reports{Reports: []state.Report{{Kind: state.Started, Job: id, Attempt: 1, At: now}}})
	exit := model.Exit{Code: 1, GPUOOM: true}
	apply(&state.Reports{Reports: []state.Report{{Kind: state.Ended, Job: id, Attempt: 1, At: now, Exit: exit}}})
	want := model.MoreGPUMem(24000)
	if got := New().Of(st.View(), 7, "train"); got != want {
		t.Errorf("the job tells %d, want %d", got, want)
	}
	old, ok := OfRecord(st.View(), &model.Record{Job: id, UID: 7, Name: "train", Nodes: "n1", Exit: exit,
		AllocGres: []model.GresCount{{Name: "gpu", Count: 1}}, Asked: &model.Asked{GPUMemMiB: 1000}})
	p := New()
	p.Recall([]Old{old})
	if got := p.Of(state.New().View(), 7, "train"); !ok || got != want {
		t.Errorf("the record tells %d, want %d", got, want)
	}
}
