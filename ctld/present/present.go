// Package present hears of the commands that have allocations (galloc, and grun outside of a job), and knows those that
// have fallen silent for InactiveLimit: their process is stopped, or their host is gone. The end of a command on a host
// that runs is noticed at once by that host's daemon, without any of this.
//
// words.go has what is said to these commands.
//
// What it has heard is the leader's own. A new leader has heard nothing, and waits as long as it takes that every
// command that is there has spoken.
package present

import (
	"sync"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

const (
	// restS is how often commands speak where there is no limit: so they hear of one.
	restS = 30
	// least is the least time between two looks at the jobs.
	least = time.Second
	// grace is what every command gets more when this controller may have missed it: when it begins to lead, and when it
	// was stopped for a while. A command that could not speak tries again within seconds; an election takes up to 10.
	grace = 15 * time.Second
	// late is how much later than twice the usual wait a look comes if the controller was stopped.
	late = 5 * time.Second
)

// EveryS is how often, in seconds, a command says that it is there.
func EveryS(limitS int64) int64 {
	if limitS <= 0 {
		return restS
	}
	return min(restS, max(1, limitS/4))
}

// Roll is the commands that have spoken.
type Roll struct {
	mu    sync.Mutex
	heard map[model.JobID]time.Time
	limit int64     // seconds, at the last look; -1: there was none yet
	first time.Time // silence counts from then on: before, commands may not know the limit, or not have been heard

	looked time.Time     // the last look; zero: there was none yet
	wait   time.Duration // to the next one
}

// Begin forgets everything.
func (r *Roll) Begin(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard, r.limit, r.first = map[model.JobID]time.Time{}, -1, now.Add(grace)
	r.looked, r.wait = time.Time{}, 0
}

// Here notes that a job's command is there.
func (r *Roll) Here(id model.JobID, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.heard != nil {
		r.heard[id] = now
	}
}

// Silent gives the jobs whose command has not spoken for the limit, and how long to wait for the next look.
func (r *Roll) Silent(v *state.View, now time.Time) (out []*model.Job, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.looked, r.wait = now, wait }()
	if !r.looked.IsZero() && now.Sub(r.looked) > 2*r.wait+late {
		r.first = now.Add(grace)
	}
	limit := v.Config().Params.InactiveS
	if limit != r.limit && r.limit >= 0 {
		r.first = now.Add(restS * time.Second)
	}
	r.limit = limit
	if limit <= 0 {
		clear(r.heard)
		return nil, restS * time.Second
	}
	span := time.Duration(limit) * time.Second
	here := make(map[model.JobID]time.Time, len(r.heard))
	v.Jobs(func(j *model.Job) bool {
		if !attended(v, j) {
			return true
		}
		last, known := r.heard[j.ID]
		if !known {
			last = now
		}
		here[j.ID] = last
		if last.Before(r.first) {
			last = r.first
		}
		if now.Sub(last) >= span {
			out = append(out, j)
		}
		return true
	})
	r.heard = here
	return out, min(restS*time.Second, max(least, span/8))
}

// HasCommand reports whether a command waits for a job or its steps. That of a heterogeneous job asks about its first
// component.
func HasCommand(j *model.Job) bool {
	return j.Spec.Extra().Attended && (j.Het == nil || j.Het.Offset == 0)
}

// attended reports whether a job is one that runs and has a command. As in Slurm, those of partitions for root only
// are left alone.
func attended(v *state.View, j *model.Job) bool {
	if j.State != model.Running || !HasCommand(j) {
		return false
	}
	part := v.Partition(j.Run.Partition)
	return part == nil || !part.RootOnly
}
