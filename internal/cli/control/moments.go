package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// moments.go makes of the times that users write what the controller reads: points in time, and time limits, which
// Slurm counts in whole minutes.

// moments turns the values of keys that are points in time into what the controller reads.
func (c *control) moments(set []model.KV, keys ...string) error {
	for i := range set {
		for _, key := range keys {
			if strings.EqualFold(set[i].Key, key) {
				t, err := c.ReadDate(set[i].Value)
				if err != nil {
					return err
				}
				set[i].Value = ask.MomentText(t)
			}
		}
	}
	return nil
}

// limits writes TimeLimit+=30 as TimeLimit=+30, and under a Slurm name rounds seconds of limits up to minutes.
func (c *control) limits(set []model.KV) {
	for i := range set {
		kv := &set[i]
		key, value := kv.Key, kv.Value
		if n := len(key) - 1; n > 0 && (key[n] == '+' || key[n] == '-') {
			key, value = key[:n], key[n:]+value
		}
		switch strings.ToLower(key) {
		case "timelimit", "timemin", "mintime":
		default:
			continue
		}
		sign, text := "", value
		if len(value) > 1 && (value[0] == '+' || value[0] == '-' && value != "-1") {
			sign, text = value[:1], value[1:]
		}
		kv.Key, kv.Value = key, value
		if sec, unlimited, err := walltime.ParseLimit(text); err == nil && !unlimited && c.WholeMinutes(sec) != sec {
			kv.Value = sign + walltime.Elapsed(c.WholeMinutes(sec))
		}
	}
}

// endTime makes of EndTime= of a job that runs the TimeLimit= with which it ends then; without one it gives set as it
// is.
func (c *control) endTime(ref model.JobRef, set []model.KV) ([]model.KV, error) {
	at := slices.IndexFunc(set, func(kv model.KV) bool { return strings.EqualFold(kv.Key, "endtime") })
	if at < 0 {
		return set, nil
	}
	end, ok := ask.ParseMoment(set[at].Value)
	if !ok {
		return nil, fmt.Errorf("EndTime=%s: write a point in time, as in now+1hour or 2026-07-01T12:00", set[at].Value)
	}
	var job *model.Job
	err := c.eachJob(&proto.JobsRequest{Filter: proto.JobFilter{Jobs: []model.JobRef{ref}}}, nil,
		func(j *model.Job, _ model.Time) { job = j })
	switch {
	case err != nil:
		return nil, err
	case job == nil || job.Run == nil || job.State.Finished():
		return nil, errors.New("Job is not running: EndTime is for jobs that run; a job that waits has TimeLimit and " +
			"Deadline")
	case end <= job.Run.Start:
		return nil, errors.New("EndTime is before the job's start")
	}
	set = slices.Clone(set)
	sec := c.WholeMinutes((int64(end-job.Run.Start) + 999) / 1000)
	set[at] = model.KV{Key: "TimeLimit", Value: walltime.Elapsed(sec)}
	return set, nil
}
