package sched

import (
	"sort"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Estimate gives the earliest moment at which a job would fit into a partition if nothing else were queued: now, or
// when enough running jobs have reached their time limits. nil means that it fits on no nodes that are up.
func Estimate(v *state.View, now model.Time, sp *model.Spec, part *model.Partition) (model.Time, *model.Alloc) {
	params := &v.Config().Params
	rq := Resolve(sp, part, params)
	rooms := map[string]*room{}
	var order []*room
	running := map[model.JobID]*model.Job{}
	for _, name := range part.Nodes {
		n := v.Node(name)
		if n == nil || !n.Usable() || contains(sp.ExcNodes, name) || len(sp.ReqNodes) > 0 && !contains(sp.ReqNodes, name) {
			continue
		}
		r := roomOf(n, true)
		rooms[name] = &r
		order = append(order, &r)
		for _, id := range n.Jobs {
			if j := v.Job(id); j != nil && j.Run != nil {
				running[id] = j
			}
		}
	}
	if a, _ := lay(order, sp, &rq, params); a != nil {
		return now, a
	}
	ends := make([]*model.Job, 0, len(running))
	for _, j := range running {
		if j.Run.Deadline() != 0 {
			ends = append(ends, j)
		}
	}
	sort.Slice(ends, func(i, k int) bool {
		a, b := ends[i].Run.Deadline(), ends[k].Run.Deadline()
		return a < b || a == b && ends[i].ID < ends[k].ID
	})
	left := map[string]int{}
	for name := range rooms {
		left[name] = len(v.Node(name).Jobs)
	}
	for _, j := range ends {
		for i := range j.Run.Alloc.Nodes {
			if r := rooms[j.Run.Alloc.Nodes[i].Node]; r != nil {
				left[r.def.Name]--
				r.free(&j.Run.Alloc.Nodes[i], left[r.def.Name] == 0)
			}
		}
		if a, _ := lay(order, sp, &rq, params); a != nil {
			return max(now, j.Run.Deadline()), a
		}
	}
	return 0, nil
}

// free puts an allocation back into a room; last says that nobody is left on the node.
func (r *room) free(na *model.NodeAlloc, last bool) {
	r.cpus = r.cpus.Or(na.CPUs)
	r.nfree = r.cpus.Count()
	r.mem += na.MemMiB
	out := make([]model.GresAlloc, 0, len(r.gres))
	for _, u := range r.gres {
		for _, g := range na.Gres {
			if g.Name == u.Name {
				u.Index = u.Index.Minus(g.Index)
			}
		}
		out = append(out, u)
	}
	r.gres = out
	if last {
		r.busy, r.shut = false, false
	}
}
