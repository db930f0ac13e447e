package alike

import (
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// likeness is what tasks of an array have in common that meet a change in the same way: their state, whether they are
// held, and, if the change is made from what the job has been, that.
type likeness struct {
	unknown bool
	state   model.JobState
	hold    model.HoldKind
	spec    *model.Spec
	limitS  int64
}

// Divide replaces each reference to tasks of an array by references to those that are alike.
func Divide(v *state.View, refs []model.JobRef, action proto.JobAction) []model.JobRef {
	switch action {
	case proto.ActHold, proto.ActUserHold, proto.ActRelease, proto.ActSuspend, proto.ActResume, proto.ActRequeue,
		proto.ActRequeueHold, proto.ActUpdate:
	default:
		return refs
	}
	var out []model.JobRef
	for _, ref := range refs {
		if v.Array(ref.Job) == nil || ref.Task != model.NoTask || ref.Het > 0 {
			out = append(out, ref)
			continue
		}
		out = append(out, divideOne(v, ref, action == proto.ActUpdate)...)
	}
	return out
}

// divideOne divides one reference; exactly says that a change is made from what each job has been.
func divideOne(v *state.View, ref model.JobRef, exactly bool) []model.JobRef {
	var order []likeness
	tasks := map[likeness][]int32{}
	add := func(a likeness, task int32) {
		if tasks[a] == nil {
			order = append(order, a)
		}
		tasks[a] = append(tasks[a], task)
	}
	if len(ref.Tasks) > 0 {
		ref.Tasks.Each(func(task int32) bool {
			add(likenessOf(v.TaskRecord(ref.Job, task), exactly), task)
			return true
		})
	} else {
		record := func(j *model.Job) {
			if a := likenessOf(j, exactly); j.IsArray() {
				j.Tasks.Each(func(task int32) bool {
					add(a, task)
					return true
				})
			} else if j.Task != model.NoTask {
				add(a, j.Task)
			}
		}
		if j := v.Job(ref.Job); j != nil {
			record(j)
		}
		v.Tasks(ref.Job, func(j *model.Job) bool {
			if j.ID != ref.Job {
				record(j)
			}
			return true
		})
	}
	if len(order) < 2 {
		return []model.JobRef{ref}
	}
	out := make([]model.JobRef, 0, len(order))
	for _, a := range order {
		slices.Sort(tasks[a])
		out = append(out, model.JobRef{Job: ref.Job, Task: model.NoTask, Tasks: model.TaskSetOf(tasks[a])})
	}
	slices.SortStableFunc(out, func(a, b model.JobRef) int { return int(a.Tasks.Min() - b.Tasks.Min()) })
	return out
}

func likenessOf(j *model.Job, exactly bool) likeness {
	if j == nil {
		return likeness{unknown: true}
	}
	a := likeness{state: j.State, hold: j.Hold}
	if exactly && !j.State.Finished() {
		a.spec = j.Spec
		if j.Run != nil {
			a.limitS = j.Run.LimitS
		}
	}
	return a
}
