package crontab

import (
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// mostAtOnce bounds the jobs of one change.
const mostAtOnce = 1000

// Due gives the changes of the jobs that wait for their next time, one for those with the same time. It is after the
// run's own time, too: no entry runs twice for one.
func Due(v *state.View, now model.Time) (out []*state.Edit) {
	of := map[model.Time]*state.Edit{}
	for _, j := range v.Undue() {
		at := Next(j.Spec.Cron, max(now, j.Begin))
		if at == 0 {
			continue
		}
		e := of[at]
		if e == nil || len(e.Targets) == mostAtOnce {
			e = &state.Edit{Set: []state.Field{state.SetBegin}, Begin: at, Undue: true}
			of[at], out = e, append(out, e)
		}
		e.Targets = append(e.Targets, model.JobRef{Job: j.ID, Task: model.NoTask})
	}
	return out
}
