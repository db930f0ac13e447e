package ask

import (
	"testing"

	"gbatch/internal/model"
)

func gpus(n int32, per model.GresPer) []model.GresReq {
	return []model.GresReq{{Name: "gpu", Count: n, Per: per}}
}

func TestSize(t *testing.T) {
	for _, x := range []struct {
		name  string
		sp    model.Spec
		rules model.AskRules
		want  Size
		gpus  int64
	}{
		{"nothing", model.Spec{}, model.AskRules{}, Size{Nodes: 1, Tasks: 1, CPUs: 1}, 0},
		{"-N2 --ntasks-per-node=4", model.Spec{MinNodes: 2, MaxNodes: 2, TasksPerNode: 4}, model.AskRules{},
			Size{Nodes: 2, Tasks: 8, CPUs: 8}, 0},
		{"--mincpus=8", model.Spec{MinCPUs: 8}, model.AskRules{}, Size{Nodes: 1, Tasks: 1, CPUs: 8}, 0},
		{"--gres=gpu:2 --cpus-per-gpu=6", model.Spec{Gres: gpus(2, model.PerNode), More: &model.Needs{CPUsPerGPU: 6}},
			model.AskRules{}, Size{Nodes: 1, Tasks: 1, CPUs: 12}, 2},
		{"--gpus=4 --cpus-per-gpu=6", model.Spec{Gres: gpus(4, model.PerJob), More: &model.Needs{CPUsPerGPU: 6}},
			model.AskRules{}, Size{Nodes: 1, Tasks: 1, CPUs: 24}, 4},
		{"-n3 --gpus-per-task=2 --cpus-per-gpu=3",
			model.Spec{Tasks: 3, Gres: gpus(2, model.PerTask), More: &model.Needs{CPUsPerGPU: 3}}, model.AskRules{},
			Size{Nodes: 1, Tasks: 3, CPUs: 18}, 6},
		{"DefCpuPerGPU", model.Spec{Gres: gpus(2, model.PerNode)}, model.AskRules{DefCPUPerGPU: 4},
			Size{Nodes: 1, Tasks: 1, CPUs: 8}, 2},
		{"DefCpuPerGPU, and CPUs asked for", model.Spec{CPUsPerTask: 1, Gres: gpus(2, model.PerNode)},
			model.AskRules{DefCPUPerGPU: 4}, Size{Nodes: 1, Tasks: 1, CPUs: 1}, 2},
		{"-N4 -n2: no node without a task", model.Spec{MinNodes: 4, MaxNodes: 4, Tasks: 2}, model.AskRules{},
			Size{Nodes: 2, Tasks: 2, CPUs: 2}, 0},
		{"-w n1,n2,n3", model.Spec{ReqNodes: []string{"n1", "n2", "n3"}}, model.AskRules{}, Size{Nodes: 3, Tasks: 3, CPUs: 3},
			0},
		{"-C [a*2&b*1]", model.Spec{Features: "[a*2&b*1]", Gres: gpus(2, model.PerNode)}, model.AskRules{},
			Size{Nodes: 3, Tasks: 3, CPUs: 3}, 6},
		{"MinNodes of the partition", model.Spec{Gres: gpus(1, model.PerNode)}, model.AskRules{MinNodes: 2},
			Size{Nodes: 2, Tasks: 2, CPUs: 2}, 2},
		{"-n8 -O", model.Spec{Tasks: 8, Overcommit: true}, model.AskRules{}, Size{Nodes: 1, Tasks: 8, CPUs: 1}, 0},
		{"-n4 -c2 --mem-per-cpu=100", model.Spec{Tasks: 4, CPUsPerTask: 2, MemPerCPU: 100}, model.AskRules{},
			Size{Nodes: 1, Tasks: 4, CPUs: 8, MemMiB: 800}, 0},
		{"--mem-per-cpu=300 over MaxMemPerCPU=100", model.Spec{Tasks: 2, MemPerCPU: 300}, model.AskRules{MaxMemPerCPU: 100},
			Size{Nodes: 1, Tasks: 2, CPUs: 6, MemMiB: 600}, 0},
		{"--mem=350 over MaxMemPerCPU=100", model.Spec{MemPerNode: 350}, model.AskRules{MaxMemPerCPU: 100},
			Size{Nodes: 1, Tasks: 1, CPUs: 4, MemMiB: 350}, 0},
		{"-N2 --mem=100", model.Spec{MinNodes: 2, MaxNodes: 2, MemPerNode: 100}, model.AskRules{},
			Size{Nodes: 2, Tasks: 2, CPUs: 2, MemMiB: 200}, 0},
		{"DefMemPerCPU", model.Spec{CPUsPerTask: 3}, model.AskRules{DefMemPerCPU: 50},
			Size{Nodes: 1, Tasks: 1, CPUs: 3, MemMiB: 150}, 0},
		{"--mem=0", model.Spec{MemPerNode: model.WholeMem}, model.AskRules{DefMemPerCPU: 50},
			Size{Nodes: 1, Tasks: 1, CPUs: 1}, 0},
		{"--gpus=2 --mem-per-gpu=100", model.Spec{Gres: gpus(2, model.PerJob), More: &model.Needs{MemPerGPU: 100}},
			model.AskRules{}, Size{Nodes: 1, Tasks: 1, CPUs: 1, MemMiB: 200}, 2},
		{"--gpus-per-socket=1 --sockets-per-node=2",
			model.Spec{Gres: gpus(2, model.PerNode), More: &model.Needs{Sockets: 2, GPUsPerSocket: gpus(1, model.PerNode)}},
			model.AskRules{}, Size{Nodes: 1, Tasks: 1, CPUs: 2}, 2},
	} {
		c := Of(&x.sp, &x.rules)
		size := c.Size()
		if n := c.UnitsOf(&size, "gpu", ""); size != x.want || n != x.gpus {
			t.Errorf("%s: %+v with %d GPUs, want %+v with %d", x.name, size, n, x.want, x.gpus)
		}
	}
}

// TestRulesOf: what the partition says goes before what the cluster says.
func TestRulesOf(t *testing.T) {
	params := &model.Params{DefMemPerCPU: 10, MaxMemPerCPU: 20, MaxMemPerNode: 30, DefCPUPerGPU: 4, DefMemPerGPU: 40}
	p := &model.Partition{Name: "p", DefMemPerNode: 11, MaxMemPerCPU: 21, DefCPUPerGPU: 5}
	r := RulesOf(p, params)
	if r.DefMemPerCPU != 0 || r.DefMemPerNode != 11 || r.MaxMemPerCPU != 21 || r.MaxMemPerNode != 0 ||
		r.DefCPUPerGPU != 5 || r.DefMemPerGPU != 40 {
		t.Errorf("%+v", r)
	}
	r = RulesOf(&model.Partition{Name: "p"}, params)
	if r.DefMemPerCPU != 10 || r.DefMemPerNode != 0 || r.MaxMemPerCPU != 20 || r.MaxMemPerNode != 30 ||
		r.DefCPUPerGPU != 4 || r.DefMemPerGPU != 40 {
		t.Errorf("%+v", r)
	}
}
