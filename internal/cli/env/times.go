package env

import (
	"strconv"
	"time"

	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// Times reads SLURM_TIME_FORMAT; a wrong value gives a message and counts as the standard form.
func (e *Env) Times(now time.Time) jobtext.Times {
	form := e.Getenv("SLURM_TIME_FORMAT")
	if err := walltime.CheckTimeFormat(form); err != nil {
		e.Errorf("%v", err)
		form = ""
	}
	return jobtext.Times{Now: now, Form: form}
}

// BitLen reads SLURM_BITSTR_LEN.
func (e *Env) BitLen() int {
	if n, err := strconv.Atoi(e.Getenv("SLURM_BITSTR_LEN")); err == nil && n >= 0 {
		return min(n, 4096)
	}
	return jobtext.DefaultBitLen
}

// Stamp gives a moment, or the word for none.
func (e *Env) Stamp(t model.Time, none string) string {
	return e.Clock().Stamp(t, none)
}

// Clock gives the form in which moments are written, with the present time. A wrong form counts as the standard one,
// without a message.
func (e *Env) Clock() *jobtext.Times {
	return &jobtext.Times{Now: time.Now(), Form: e.Getenv("SLURM_TIME_FORMAT")}
}

// ReadDate reads a moment to come. What counts from now, such as now+1hour, counts by the leader's clock, as everything
// that happens then: this host's may be wrong. Without an answer it counts by this host's.
func (e *Env) ReadDate(v string) (model.Time, error) {
	here := time.Now()
	t, err := walltime.ParseDate(v, here)
	if err != nil {
		return 0, err
	}
	if walltime.FromNow(v) {
		t = t.Add(e.clusterTime(here).Sub(here))
	}
	return model.Time(t.UnixMilli()), nil
}

// clusterTime asks the leader for its time; if it does not answer, it gives here.
func (e *Env) clusterTime(here time.Time) time.Time {
	c, err := e.Connect()
	if err != nil {
		return here
	}
	defer c.Close()
	var r proto.PingReply
	if err := c.Call(proto.KindPing, &proto.Empty{}, &r); err != nil || r.Now == 0 {
		return here
	}
	return time.UnixMilli(int64(r.Now))
}
