package crontab

import (
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Due gives the changes of the jobs that wait for their next time. It is after the run's own time, too: no entry runs
// twice for one.
func Due(v *state.View, now model.Time) (out []*state.Edit) {
	for _, j := range v.Undue() {
		if at := Next(j.Spec.Cron, max(now, j.Begin)); at != 0 {
			out = append(out, &state.Edit{Targets: []state.Target{{Job: j.ID, Task: model.NoTask}},
				Set: []state.Field{state.SetBegin}, Begin: at})
		}
	}
	return out
}
