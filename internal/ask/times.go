package ask

import (
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// ParseLimit reads a time limit: seconds, or model.Unlimited.
func ParseLimit(v string) (int64, error) {
	s, unlimited, err := walltime.ParseLimit(v)
	if unlimited {
		s = model.Unlimited
	}
	return s, err
}

// ParseTimeMin reads the least time that a job can do with, seconds.
func ParseTimeMin(v string) (int64, error) {
	s, err := ParseLimit(v)
	if err == nil && (s <= 0 || s >= model.Unlimited) {
		err = fmt.Errorf("'%s'; write the least time that the job needs, such as 30:00", v)
	}
	return s, err
}

// MomentText writes a moment for gcontrol's requests: the command reads the user's text, with the user's clock.
func MomentText(t model.Time) string { return "@" + strconv.FormatInt(int64(t), 10) }

// ParseMoment reads what MomentText has written.
func ParseMoment(v string) (t model.Time, ok bool) {
	text, ok := strings.CutPrefix(v, "@")
	ms, err := strconv.ParseInt(text, 10, 64)
	return model.Time(ms), ok && err == nil
}

// CheckTimes checks --time, --time-min, --begin and --deadline against each other, for a job that is asked for now.
// With a deadline its time limit has to be filled in.
func CheckTimes(sp *model.Spec, now model.Time) error {
	if sp.Deadline == 0 {
		return nil
	}
	least := sp.LimitS
	if sp.More != nil && sp.More.TimeMinS != 0 {
		least = sp.More.TimeMinS
	}
	switch {
	case sp.Deadline <= now:
		return refuse(Time, "--deadline is in the past; give a later time")
	case sp.Begin >= sp.Deadline:
		return refuse(Moment, "Incompatible begin and deadline time specification: the job may begin at --begin and has to "+
			"have ended at --deadline; give an earlier --begin or a later --deadline")
	case least >= model.Unlimited:
		return refuse(Time, "a job with --deadline needs a time limit; give --time or --time-min")
	case max(now, sp.Begin).Add(least) > sp.Deadline && sp.More != nil && sp.More.TimeMinS != 0:
		return refuse(Moment, "Invalid time-min specification: even with %s (--time-min) the job can't end before its "+
			"deadline", walltime.Limit(least, false))
	case max(now, sp.Begin).Add(least) > sp.Deadline:
		return refuse(Moment, "a job of %s can't end before its deadline, even if it starts as soon as it "+
			"may; give a later --deadline, or less with --time or --time-min", walltime.Limit(least, false))
	}
	return nil
}
