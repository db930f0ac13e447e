package state

import (
	"slices"

	"gbatch/internal/model"
)

// applyStarts takes a plan's starts, each checked against the facts as they are now: a plan is made from a View, and
// the world may have moved on since.
func (s *State) applyStarts(at model.Time, c *Starts) Result {
	res := Result{Each: make([]Refusal, len(c.Plan.Starts))}
	for i := range c.Plan.Starts {
		res.Each[i] = s.start(at, c.Epoch, &c.Plan.Starts[i])
		res.Changed = res.Changed || res.Each[i] == OK
	}
	for _, r := range c.Plan.Reasons {
		j, ok := s.jobs.Get(r.Job)
		if !ok || !isReady(j) || j.Reason == r.Reason && j.Why == r.Why {
			continue
		}
		n := *j
		n.Reason, n.Why = r.Reason, r.Why
		s.put(&n)
	}
	s.plan()
	return res
}

func (s *State) start(at model.Time, epoch uint64, st *model.Start) Refusal {
	j, ok := s.jobs.Get(st.Job)
	switch {
	case !ok:
		return NoSuchJob
	case !isReady(j) || st.Alloc == nil || len(st.Alloc.Nodes) == 0:
		return NotPending
	case j.IsArray() != (st.Task != model.NoTask && j.Task == model.NoTask):
		return NotPending
	case j.IsArray() && !j.Tasks.Has(st.Task):
		return NotPending
	}
	if j.ArrayID != 0 && j.Throttle > 0 {
		if a, ok := s.arrays.Get(j.ArrayID); ok && a.Active >= j.Throttle {
			return NotFits
		}
	}
	if r := s.fits(st.Alloc); r != OK {
		return r
	}
	var el *model.Job
	if j.IsArray() {
		el = s.split(j, model.TaskSet{{Lo: st.Task, Hi: st.Task, Step: 1}})
	} else {
		n := *j
		el = &n
	}
	el.State, _ = model.Next(model.Pending, model.EvAllocate)
	el.Reason, el.Why, el.End = model.ReasonNone, "", nil
	el.Run = &model.Run{Partition: s.intern(st.Partition), Alloc: st.Alloc, Start: at, LimitS: st.LimitS, Epoch: epoch}
	s.take(el, at)
	s.put(el)
	s.record(el)
	s.countArray(el.ArrayID, func(a *Array) { a.Waiting--; a.Active++ })
	return OK
}

// fits checks that an allocation is free on usable nodes.
func (s *State) fits(a *model.Alloc) Refusal {
	for i := range a.Nodes {
		na := &a.Nodes[i]
		n, ok := s.nodes.Get(na.Node)
		if !ok {
			return NoSuchNode
		}
		if !n.Usable() || n.Exclusive != 0 || na.CPUs.Max() >= int(n.Def.CPUs) || na.CPUs.Overlaps(n.UsedCPUs) {
			return NotFits
		}
		if s.cfg.Params.MemConsumed && n.UsedMem+na.MemMiB > n.Def.MemMiB {
			return NotFits
		}
		for _, g := range na.Gres {
			if g.Index.Overlaps(n.Used(g.Name)) || !hasGres(n.Def, g) {
				return NotFits
			}
		}
	}
	return OK
}

func hasGres(def *model.NodeDef, g model.GresAlloc) bool {
	var all model.Bits
	for _, d := range def.Gres {
		if d.Name == g.Name && (g.Type == "" || d.Type == g.Type) {
			all = all.Or(model.UpTo(int(d.First + d.Count)).Minus(model.UpTo(int(d.First))))
		}
	}
	return all.Contains(g.Index)
}

// take books j's allocation on its nodes.
func (s *State) take(j *model.Job, at model.Time) {
	for i := range j.Run.Alloc.Nodes {
		na := &j.Run.Alloc.Nodes[i]
		old, ok := s.nodes.Get(na.Node)
		if !ok {
			continue // checked by fits
		}
		n := *old
		n.UsedCPUs = n.UsedCPUs.Or(na.CPUs)
		n.UsedMem += na.MemMiB
		n.UsedGres = addUsed(n.UsedGres, na.Gres)
		n.BusyAt = at
		k, _ := slices.BinarySearch(n.Jobs, j.ID)
		n.Jobs = slices.Insert(slices.Clone(n.Jobs), k, j.ID)
		if j.Spec.Exclusive {
			n.Exclusive = j.ID
		}
		s.nodes.Set(na.Node, &n)
	}
}

// release gives j's allocation back.
func (s *State) release(j *model.Job, at model.Time) {
	for i := range j.Run.Alloc.Nodes {
		na := &j.Run.Alloc.Nodes[i]
		old, ok := s.nodes.Get(na.Node)
		if !ok {
			continue // the node has left the configuration
		}
		k, found := slices.BinarySearch(old.Jobs, j.ID)
		if !found {
			continue
		}
		n := *old
		n.Jobs = slices.Delete(slices.Clone(n.Jobs), k, k+1)
		if len(n.Jobs) == 0 {
			n.Jobs = nil
		}
		n.UsedCPUs = n.UsedCPUs.Minus(na.CPUs)
		n.UsedMem -= na.MemMiB
		n.UsedGres = dropUsed(n.UsedGres, na.Gres)
		n.BusyAt = at
		if n.Exclusive == j.ID {
			n.Exclusive = 0
		}
		s.nodes.Set(na.Node, &n)
	}
}

func addUsed(used, add []model.GresAlloc) []model.GresAlloc {
	if len(add) == 0 {
		return used
	}
	out := slices.Clone(used)
	for _, g := range add {
		k := slices.IndexFunc(out, func(u model.GresAlloc) bool { return u.Name == g.Name })
		if k < 0 {
			out = append(out, model.GresAlloc{Name: g.Name, Index: g.Index})
			continue
		}
		out[k].Index = out[k].Index.Or(g.Index)
	}
	return out
}

func dropUsed(used, drop []model.GresAlloc) []model.GresAlloc {
	if len(drop) == 0 {
		return used
	}
	out := slices.Clone(used)
	for _, g := range drop {
		if k := slices.IndexFunc(out, func(u model.GresAlloc) bool { return u.Name == g.Name }); k >= 0 {
			out[k].Index = out[k].Index.Minus(g.Index)
			if out[k].Index.Empty() {
				out = slices.Delete(out, k, k+1)
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// countArray changes an array's counters.
func (s *State) countArray(id model.JobID, change func(*Array)) {
	old, ok := s.arrays.Get(id)
	if !ok {
		return
	}
	n := *old
	change(&n)
	s.arrays.Set(id, &n)
}
