package sched

import (
	"slices"

	"gbatch/internal/model"
)

// Which nodes suit a request, by their hardware and features.

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
	return r.Want != nil && len(r.Want.Counts) > 0 || r.Switches > 0 || r.Contiguous || r.Segment > 0
}
