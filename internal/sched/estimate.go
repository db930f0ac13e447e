package sched

import (
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Estimate gives the earliest moment at which a job would fit into a partition if nothing else were queued and no
// limit of an account or QOS held it: now, or when enough running jobs have reached their time limits, and beside the
// advance reservations of others or in its own. A running job without a time limit counts as one of a year, as in
// Slurm. nil means that it fits on no nodes that are up.
//
// It asks the planner's calendar, as Explain does, with an empty queue.
func Estimate(v *state.View, now model.Time, sp *model.Spec, part *model.Partition) (model.Time, *model.Alloc) {
	p := NewPlanner()
	p.sync(v, now, Policy{Backfill: Backfill{On: true, Reserve: -1}})
	p.windows()
	one := *sp
	one.Partitions = []string{part.Name}
	p.admit(&model.Job{ID: state.MaxJobID, Task: model.NoTask, Spec: &one, State: model.Pending, Submit: now,
		Eligible: now})
	e := p.jobs[state.MaxJobID]
	p.open()
	l := e.lanes[0].l
	it := p.newItem(e, l)
	if it.sh == nil {
		return 0, nil
	}
	p.waited(&it)
	if g := p.lodge(&it); g.alloc != nil {
		return now, g.alloc
	}
	at, a, _, _ := p.soonestLicensed(it.sh, it.leastS())
	if a == nil {
		return 0, nil
	}
	return max(at, now+1), a
}
