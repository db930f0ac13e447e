package sched

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Time slicing (gang scheduling): of the jobs that have the same CPUs one runs at a time, for SchedulerTimeSlice, while
// the others are suspended. See https://slurm.schedmd.com/gang_scheduling.html.

// minSliceS is the shortest turn, seconds.
const minSliceS = 1

// Turn decides who of the jobs that share CPUs stops now and who goes on, and when to ask again; 0: when something has
// changed. Whoever runs keeps its CPUs until its turn is over; then those that wait go on, who has waited longest
// first, as many as have their CPUs together. Nobody waits for longer than the turns of those that were there before
// it. Without PreemptMode=GANG all go on at once.
func Turn(v *state.View, now model.Time) (model.Turn, model.Time) {
	pr := &v.Config().Params.Preempt
	slice := model.Time(max(pr.SliceS, minSliceS) * 1000)
	var list []turner
	v.Sharing(func(j *model.Job) bool {
		waits := j.State == model.Suspended && j.Run.Sleep == model.SleepsInTurn
		if !waits && (j.State != model.Running || j.Run.Share <= 1) {
			return true
		}
		t := turner{j: j, since: max(j.Run.Launched, j.Run.Start, j.Run.SleepAt), waits: waits}
		switch {
		case !waits && t.since+slice > now:
			t.rank = 0
		case waits:
			t.rank = 1
		default:
			t.rank = 2
		}
		list = append(list, t)
		return true
	})
	slices.SortFunc(list, func(a, b turner) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.since, b.since), cmp.Compare(a.j.ID, b.j.ID))
	})
	var out model.Turn
	next, left := model.Time(0), false
	busy := map[string]model.Bits{}
	for i := range list {
		t := &list[i]
		runs := !pr.Gang || t.free(busy)
		switch {
		case !runs:
			left = true
			if !t.waits {
				out.Sleep = append(out.Sleep, t.j.ID)
			}
			continue
		case t.waits:
			out.Wake = append(out.Wake, t.j.ID)
			next = soonerOf(next, now+slice)
		case t.rank == 0:
			next = soonerOf(next, t.since+slice)
		}
		t.take(busy)
	}
	if !left {
		next = 0
	}
	return out, next
}

// turner is a job that takes turns.
type turner struct {
	j     *model.Job
	waits bool
	rank  int        // 0: in its turn, 1: waits, 2: its turn is over
	since model.Time // when it went on or was stopped
}

// free reports whether nobody of busy has a CPU of the job.
func (t *turner) free(busy map[string]model.Bits) bool {
	for i := range t.j.Run.Alloc.Nodes {
		if na := &t.j.Run.Alloc.Nodes[i]; busy[na.Node].Overlaps(na.CPUs) {
			return false
		}
	}
	return true
}

func (t *turner) take(busy map[string]model.Bits) {
	for i := range t.j.Run.Alloc.Nodes {
		na := &t.j.Run.Alloc.Nodes[i]
		busy[na.Node] = busy[na.Node].Or(na.CPUs)
	}
}
