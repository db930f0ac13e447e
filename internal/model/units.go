package model

import "gbatch/internal/wire"

// Time is a moment in Unix milliseconds. Zero means "not set".
type Time int64

// Seconds gives t in whole Unix seconds.
func (t Time) Seconds() int64 { return int64(t) / 1000 }

// Add gives the moment s seconds after t.
func (t Time) Add(s int64) Time { return t + Time(s*1000) }

// Limits of time spans, in seconds.
const (
	// Unlimited, as a time limit in seconds: the job may run for ever.
	Unlimited int64 = 1<<31 - 1
	// NotSet, as a time limit: the partition's default.
	NotSet int64 = 0
)

// JobID is a job's number. Each task of an array that has started has its own. Zero is no job.
type JobID uint32

// HiddenJob is in place of the number of a job that the reader may not see (PrivateData).
const HiddenJob JobID = 1<<32 - 1

// NoTask is the task index of a job that is not an element of an array.
const NoTask = -1

// KV is one named setting, in the order in which it is shown.
type KV struct {
	Key   string
	Value string
}

func (x *KV) Wire(c *wire.C) {
	wire.Text(c, &x.Key, MaxName)
	wire.Text(c, &x.Value, MaxText)
	c.Blame(x.Key)
}
