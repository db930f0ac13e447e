package crontab

import (
	"context"
	"log/slog"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

const (
	pace  = 100 * time.Millisecond // from one look to the next: jobs that end together are set together
	again = time.Second            // after a proposal that failed
)

// Keeper sets the next time of the jobs of crontabs whose run has ended, while its controller leads.
type Keeper struct {
	View    func() *state.View
	Changed func() <-chan struct{} // is closed when the facts change
	Now     func() model.Time      // the cluster's time
	Propose func(context.Context, state.Body) (state.Result, error)
	Log     *slog.Logger
}

// Run goes on until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for looked := (time.Time{}); ctx.Err() == nil; {
		if rest := pace - time.Since(looked); rest > 0 {
			pause(ctx, rest)
		}
		looked = time.Now()
		changed, failed := k.Changed(), false
		for _, e := range due(k.View(), k.Now()) {
			if _, err := k.Propose(ctx, e); err != nil && ctx.Err() == nil {
				k.Log.Warn("the next time of a crontab's job can't be set; it is tried again", "job", e.Targets[0].Job, "err", err)
				failed = true
				break
			}
		}
		if failed {
			pause(ctx, again)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// due gives the changes of the jobs that wait for their next time. It is after the run's own time, too: no entry runs
// twice for one.
func due(v *state.View, now model.Time) (out []*state.Edit) {
	for _, j := range v.Undue() {
		if at := next(j.Spec.Cron, max(now, j.Begin)); at != 0 {
			out = append(out, &state.Edit{Targets: []state.Target{{Job: j.ID, Task: model.NoTask}},
				Set: []state.Field{state.SetBegin}, Begin: at})
		}
	}
	return out
}
