package sched

import (
	"slices"

	"gbatch/internal/model"
)

// Requests that few jobs make, resolved.

// wanted reads a feature expression. Submission refuses one that does not parse; here it fits no node.
func wanted(expr string) *model.Features {
	f, err := model.ParseFeatures(expr)
	if err != nil {
		return &model.Features{Each: &model.Feature{Op: '!', Of: []*model.Feature{{Op: '&'}}}}
	}
	return f
}

// more sets the requests that few jobs make.
func (r *Request) more(m *model.Needs) {
	if f := wanted(m.Prefer); f != nil {
		r.Prefer = f.Each
	}
	r.CoresPerSocket, r.ThreadsPerCore = int(m.CoresPerSocket), int(m.ThreadsPerCore)
	r.TasksPerSocket, r.PerCore = int(m.TasksPerSocket), int(m.ThreadsPerCore)
	if k := int(m.TasksPerCore); k > 0 {
		r.CoreEach = k == 1
		if n := k * r.CPUsPerTask; r.PerCore == 0 || n < r.PerCore {
			r.PerCore = n
		}
	}
	r.OfSocket, r.Index = m.GPUsPerSocket, m.GPUIndex
	r.Switches, r.Contiguous, r.Spread = int(m.Switches), m.Contiguous, m.Spread
	r.Private = r.Private || m.ExclusiveUser
	r.GPUMem = m.GPUMemMiB
}

// suits reports whether a node's hardware and features suit the job, whatever is free.
func (r *Request) suits(d *model.NodeDef) bool {
	if r.TmpMiB > d.TmpMiB {
		return false
	}
	if r.Sockets|r.CoresPerSocket|r.ThreadsPerCore != 0 &&
		(int(d.Sockets) < r.Sockets || int(d.CoresPerSocket) < r.CoresPerSocket ||
			max(1, int(d.ThreadsPerCore)) < r.ThreadsPerCore) {
		return false
	}
	w := r.Want
	if w == nil {
		return true
	}
	if !w.Each.Met(d.Features) {
		return false
	}
	return len(w.Same) == 0 || slices.ContainsFunc(w.Same, func(f *model.Feature) bool { return f.Met(d.Features) })
}

// alone reports whether a node by itself meets all counts of the job's features, so that it can be the job's only node.
func (r *Request) alone(d *model.NodeDef) bool {
	if r.Want == nil {
		return true
	}
	for i := range r.Want.Counts {
		if c := &r.Want.Counts[i]; c.N > 1 || !c.Met(d.Features) {
			return false
		}
	}
	return true
}

// picky reports whether sets of nodes can only be found by trying: such a job may fit in less room but not in more.
func (r *Request) picky() bool {
	return r.Want != nil && len(r.Want.Counts) > 0 || r.Switches > 0 || r.Contiguous
}
