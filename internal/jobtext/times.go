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
