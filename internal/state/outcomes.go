package state

import "gbatch/internal/model"

// Outcomes counts results of jobs since New or Restore. Like the journal it is not one of the facts: replicas may
// differ. Each task counts, also of a record with several tasks of an array.
type Outcomes struct {
	Submitted int64 // submissions; an array is one
	Started   int64
	Completed int64
	Canceled  int64
	Failed    int64 // jobs that ended in any other way
}

// Outcomes gives the counts at the moment of the View.
func (v *View) Outcomes() Outcomes { return v.outcomes }

// note counts the change from one record of a job to the next.
func (t *Outcomes) count(old, j *model.Job) {
	switch {
	case old != nil && old.State == j.State:
	case j.State == model.Configuring:
		t.Started++
	case !j.State.Finished() || old != nil && old.State.Finished():
	case j.State == model.Completed:
		t.Completed++
	case j.State == model.Cancelled:
		t.Canceled += max(1, int64(j.Tasks.Count()))
	default:
		t.Failed++
	}
}
