package sched

import (
	"slices"
	"sort"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Estimate gives the earliest moment at which a job would fit into a partition if no other job were pending: now, or
// when enough running jobs have reached their time limits. A nil allocation means that it fits on no nodes that are up.
//
// Free capacity only grows as jobs end, so bisection finds the number of jobs that must have ended.
func Estimate(v *state.View, now model.Time, sp *model.Spec, part *model.Partition) (model.Time, *model.Alloc) {
	s := newStock(v)
	rq := Resolve(sp, Lifted(v, sp.QOS, part), s.params)
	rq.Switches = 0
	s.byUser = true // running jobs may keep users apart
	if rq.outside(sp, Lifted(v, sp.QOS, part)) != CanRun {
		return 0, nil
	}
	var nodes []*model.Node
	ends := map[model.JobID]*model.Job{}
	for _, name := range part.Nodes {
		n := v.Node(name)
		if n == nil || !n.Usable() {
			continue
		}
		nodes = append(nodes, n)
		for _, id := range n.Jobs {
			if j := v.Job(id); j != nil && j.Run != nil && j.Run.Deadline() != 0 {
				ends[id] = j
			}
		}
	}
	order := make([]*model.Job, 0, len(ends))
	for _, j := range ends {
		order = append(order, j)
	}
	slices.SortFunc(order, func(a, b *model.Job) int {
		if x, y := a.Run.Deadline(), b.Run.Deadline(); x != y {
			return int(min(max(x-y, -1), 1))
		}
		return int(a.ID) - int(b.ID)
	})
	rank := make(map[model.JobID]int, len(order))
	for i, j := range order {
		rank[j.ID] = i
	}
	after := func(ended int) *model.Alloc {
		gone := func(id model.JobID) fate {
			if k, ok := rank[id]; ok && k < ended {
				return leaves
			}
			return stays
		}
		rooms := make([]*room, 0, len(nodes))
		for _, n := range nodes {
			rooms = append(rooms, s.room(n, gone).as(&rq))
		}
		inOrder(rooms)
		a, _, _ := lay(rooms, 0, &rq, part.Name)
		return a
	}
	n := sort.Search(len(order), func(k int) bool { return after(k) != nil })
	a := after(n)
	switch {
	case a == nil:
		return 0, nil
	case n == 0:
		return now, a
	}
	return max(now, order[n-1].Run.Deadline()), a
}
