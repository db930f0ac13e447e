package sim

import "testing"

// TestNumbersGiveAMachine checks --nodes, --cpus-per-node and --gpus-per-node. One-CPU nodes, and a single node, are a
// pool: the choice of node can't matter, and published schedules have no nodes.
func TestNumbersGiveAMachine(t *testing.T) {
	w := &Workload{Name: "log", MaxProcs: 128}
	for _, c := range []struct {
		size  Size
		text  string
		nodes int
	}{
		{Size{}, "one pool of 128 processors", 1},
		{Size{CPUsPerNode: 64}, "one pool of 64 processors", 1},
		{Size{Nodes: 1, CPUsPerNode: 64}, "one pool of 64 processors", 1},
		{Size{Nodes: 100, CPUsPerNode: 1}, "one pool of 100 processors", 1},
		{Size{Nodes: 10, CPUsPerNode: 8}, "10 nodes of 8 CPUs", 10},
		{Size{Nodes: 10, CPUsPerNode: 1, GPUsPerNode: 1}, "10 nodes of 1 CPUs and 1 GPUs", 10},
		{Size{Nodes: 3, GPUsPerNode: 8}, "3 nodes of 8 CPUs and 8 GPUs", 3},
	} {
		m, err := NewMachine(w, c.size)
		if err != nil {
			t.Errorf("%+v: %v", c.size, err)
			continue
		}
		if m.Text != c.text || len(m.Config.Nodes) != c.nodes || m.Pool != (c.nodes == 1) {
			t.Errorf("%+v is %q with %d nodes (pool: %v), want %q with %d", c.size, m.Text, len(m.Config.Nodes), m.Pool, c.text,
				c.nodes)
		}
	}
	for _, bad := range []Size{{Nodes: -1}, {Nodes: 3}, {GPUsPerNode: 4}, {CPUsPerNode: -2}} {
		if m, err := NewMachine(w, bad); err == nil {
			t.Errorf("%+v is taken for %q", bad, m.Text)
		}
	}
	if m, err := NewMachine(&Workload{Name: "log"}, Size{}); err == nil {
		t.Errorf("a log without a size is taken for %q", m.Text)
	}
}
