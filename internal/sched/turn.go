package sched

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Time slicing (gang scheduling): of the jobs that share the same CPUs one runs at a time, for SchedulerTimeSlice, and
// the others are suspended. See https://slurm.schedmd.com/gang_scheduling.html.

// minSliceS is the shortest turn, seconds.
const minSliceS = 1

// Turn decides which of the jobs that share CPUs are suspended now and which resume. It also gives the moment at which
// to call it again; 0: when something has changed. A running job keeps its CPUs until its turn is over. Then suspended
// jobs resume, the longest waiting first, as many as fit beside each other. So no job waits longer than the turns of
// the jobs that were there before it. Without PreemptMode=GANG all suspended jobs resume at once.
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
	rank  int        // 0: runs in its turn, 1: is suspended, 2: runs, and its turn is over
	since model.Time // when it started, resumed or was suspended
}

// free reports whether no CPU of the job is in busy.
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
