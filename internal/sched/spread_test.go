package sched

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"gbatch/internal/model"
)

// Tasks are spread one by one over the nodes in turn, and the work does not grow with their number: one by one, the
// last case would not end.
func TestTasksAreSpreadInTurn(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	rq := &Request{Spread: true}
	rq.PerNode = 1
	for range 2000 {
		nodes := make([]cand, 1+rnd.IntN(6))
		for i := range nodes {
			nodes[i].most = 1 + rnd.IntN(9)
		}
		left := rnd.IntN(40)
		want, rest := make([]int, len(nodes)), left
		for was := -1; rest > 0 && rest != was; {
			was = rest
			for i := range nodes {
				if rest > 0 && want[i] < nodes[i].most-1 {
					want[i]++
					rest--
				}
			}
		}
		if got := tasksOver(nodes, rq, left); !slices.Equal(got, want) {
			t.Fatalf("%d tasks over %v: %v, not %v", left, nodes, got, want)
		}
	}
	const many = 1 << 60
	got := tasksOver([]cand{{most: many}, {most: 5}, {most: many}}, rq, many)
	if want := []int{many/2 - 2, 4, many/2 - 2}; !slices.Equal(got, want) {
		t.Errorf("many tasks: %v, not %v", got, want)
	}
}

// A job on consecutive nodes that may have any number of them gets as many as there are, and the work does not grow
// with the number that it names: node by node, the search would not end.
func TestAnyNumberOfNeighbours(t *testing.T) {
	c := newCluster(t)
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("n%d", i))
		c.cfg.Nodes = append(c.cfg.Nodes, &model.NodeDef{Name: names[i], CPUs: 4, ThreadsPerCore: 1, MemMiB: 4000})
	}
	c.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: names}}
	c.up()
	s := newStock(c.st.View())
	var rooms []*room
	for i, def := range c.cfg.Nodes {
		if i != 20 {
			rooms = append(rooms, s.empty(def))
		}
	}
	sp := &model.Spec{Partitions: []string{"p"}, CPUsPerTask: 1, MinNodes: 1, MaxNodes: 4,
		More: &model.Needs{Contiguous: true}}
	for _, grow := range []bool{false, true} {
		rq := Resolve(sp, c.cfg.Partitions[0], s.params)
		rq.MaxNodes, rq.Grow = 1<<60, grow
		want := map[bool]int{false: 1, true: 29}[grow]
		if a, _ := laySpread(rooms, &rq); a == nil || len(a.Nodes) != want {
			t.Errorf("grow %v: %v, not %d nodes", grow, a, want)
		}
		rq.Tasks, rq.MinNodes = 120, 2
		if a, _ := laySpread(rooms, &rq); a != nil {
			t.Errorf("grow %v: 120 tasks in 116 neighbouring CPUs: %v", grow, a)
		}
	}
}
