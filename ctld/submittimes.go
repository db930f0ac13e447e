package ctld

import (
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
	"gbatch/internal/state"
	"gbatch/internal/walltime"
)

// fitTimes checks --time, --time-min, --begin and --deadline against each other. A job with a deadline but without a
// time limit gets the limit of its first partition.
func fitTimes(v *state.View, now model.Time, sp *model.Spec) error {
	least := int64(0)
	if sp.More != nil {
		least = sp.More.TimeMinS
	}
	if sp.Deadline == 0 {
		return nil
	}
	if sp.LimitS == model.NotSet {
		limit := int64(model.Unlimited)
		if p := v.Partition(sp.Partitions[0]); p != nil {
			limit = sched.LimitS(sp, p)
		}
		sp.LimitS = limit
	}
	if least == 0 {
		least = sp.LimitS
	}
	if least >= model.Unlimited {
		return refuse(proto.CodeTimeLimit, "a job with --deadline needs a time limit; give --time or --time-min")
	}
	from := max(now, sp.Begin)
	switch {
	case sp.Deadline <= now:
		return refuse(proto.CodeTimeValue, "--deadline is in the past; give a later time")
	case from.Add(least) > sp.Deadline:
		return refuse(proto.CodeTimeValue, "a job of %s can't end before its deadline, even if it starts as soon as it "+
			"may; give a later --deadline, or less with --time or --time-min", limitOf(least))
	}
	return nil
}

func limitOf(s int64) string { return walltime.Limit(s, s >= model.Unlimited) }

// newTimeMin reads TimeMin=: a span, or 0 for none.
func newTimeMin(text string) (int64, error) {
	if text == "0" {
		return 0, nil
	}
	s, unlimited, err := walltime.ParseLimit(text)
	if err == nil && unlimited {
		s = model.Unlimited
	}
	return s, err
}

// withTimeMin sets --time-min in a Spec.
func withTimeMin(sp *model.Spec, s int64) {
	m := sp.Extra()
	m.TimeMinS = s
	sp.More = &m
}

// momentOf reads a moment from gcontrol: @ and Unix milliseconds.
func momentOf(text string) (model.Time, bool) {
	ms, err := strconv.ParseInt(strings.TrimPrefix(text, "@"), 10, 64)
	return model.Time(ms), err == nil && strings.HasPrefix(text, "@")
}
