package jobtext

import (
	"time"

	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// Times writes times for one table, with one value of now, of the zone, and of SLURM_TIME_FORMAT.
type Times struct {
	Now  time.Time
	Form string
}

// Append writes t, or none for no time.
func (m *Times) Append(b []byte, t model.Time, none string) []byte {
	switch {
	case t == 0:
		return append(b, none...)
	case m.Form == "" || m.Form == "standard":
		return time.UnixMilli(int64(t)).In(m.Now.Location()).AppendFormat(b, "2006-01-02T15:04:05")
	}
	return append(b, walltime.Timestamp(time.UnixMilli(int64(t)), m.Now, m.Form)...)
}

// Stamp gives a moment as scontrol does, or the word for none.
func (m *Times) Stamp(t model.Time, none string) string {
	if t == 0 {
		return none
	}
	return walltime.Timestamp(time.UnixMilli(int64(t)), m.Now, m.Form)
}

// Likely gives the range in which a job is likely to start, at a moment: 10:05-10:20, with days where one is not today;
// "" if it is not known.
func Likely(from, to, now model.Time) string {
	if from == 0 || to == 0 {
		return ""
	}
	clock := func(t model.Time) string {
		at, today := time.UnixMilli(int64(t)), time.UnixMilli(int64(now))
		switch {
		case t <= now:
			return "now"
		case at.Format(time.DateOnly) == today.Format(time.DateOnly):
			return at.Format("15:04")
		}
		return at.Format("01-02T15:04")
	}
	first, last := clock(from), clock(to)
	if first == last {
		return first
	}
	return first + "-" + last
}
