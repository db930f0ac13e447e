package ctld

import (
	"context"
	"time"

	"gbatch/internal/sched"
	"gbatch/internal/state"
)

// gangPace is the least time between two decisions about turns.
const gangPace = 100 * time.Millisecond

// takeTurns lets jobs that share CPUs take turns (PreemptMode=GANG): package sched decides from the facts alone which
// jobs are suspended and which resume, so a new leader continues where the last one was.
func (c *Controller) takeTurns(ctx context.Context) {
	for ctx.Err() == nil {
		changed := c.machine.Changed()
		turn, next := sched.Turn(c.machine.View(), c.now())
		if len(turn.Sleep)+len(turn.Wake) > 0 {
			if _, err := c.propose(ctx, &state.Suspend{Turn: turn}); err != nil && ctx.Err() == nil {
				c.log.Warn("gang scheduling could not give the next jobs their turn", "err", err)
			}
			pause(ctx, gangPace)
			continue
		}
		rest := time.Hour // no job waits for a turn
		if next != 0 {
			rest = max(0, time.Duration(next-c.now())*time.Millisecond)
		}
		timer := time.NewTimer(rest)
		select {
		case <-changed:
			pause(ctx, gangPace)
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}
