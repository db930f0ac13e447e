package ctld

import (
	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/sched"
	"gbatch/internal/state"
)

// fitTimes checks --time, --time-min, --begin and --deadline against each other. A job with a deadline but without a
// time limit gets the limit of its first partition.
func fitTimes(v *state.View, now model.Time, sp *model.Spec) error {
	if sp.Deadline != 0 && sp.LimitS == model.NotSet {
		sp.LimitS = model.Unlimited
		if p := v.Partition(sp.Partitions[0]); p != nil {
			sp.LimitS = sched.LimitS(sp, p)
		}
	}
	return refusedAsk(ask.CheckTimes(sp, now))
}

// withTimeMin sets --time-min in a Spec.
func withTimeMin(sp *model.Spec, s int64) {
	m := sp.Extra()
	m.TimeMinS = s
	sp.More = &m
}
