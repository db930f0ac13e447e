package noded

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/cgroup"
	"gbatch/noded/pool"
	"gbatch/noded/shim"
)

// freeze.go freezes and thaws the processes of suspended jobs.
//
// The leader repeats its order for an attempt in every session, so the spool does not have it. A frozen attempt stays
// frozen while gnoded or the leader is away. Suspending begins with SIGTSTP to all processes: processes that don't
// catch it stop at once (gshim makes sure of that), the others get a moment to prepare. Then the control group's
// freezer follows, which no process can catch or escape; without control groups it is SIGSTOP. An attempt that is to
// end is always thawed: a frozen process does not react to SIGTERM and, on v1, not to SIGKILL.

const (
	maxChills  = 64 // attempts that are being suspended or resumed at once
	chillAgain = 5 * time.Second
)

// chill is the leader's order for an attempt's processes, and its progress.
type chill struct {
	want   *proto.Freeze
	known  bool // the next field is known; after gnoded's start it is not
	frozen bool
	doing  *bool              // the state that a worker is establishing
	stop   context.CancelFunc // ends that worker's wait
	begun  model.Time         // when it began
}

// msgChilled is a worker's: the attempt is frozen, or not any more, or err.
type msgChilled struct {
	key    proto.Attempt
	frozen bool
	err    error
}

// msgChill is time to try again.
type msgChill struct{ key proto.Attempt }

// onFreeze records the leader's order.
func (l *loop) onFreeze(f *proto.Freeze) {
	a := l.attempts[proto.Attempt{Job: f.Job, Attempt: f.Attempt}]
	if a == nil || a.chill.want != nil && f.Turn < a.chill.want.Turn {
		return
	}
	a.chill.want = f
	l.chill(a)
}

// suspended reports whether an attempt's processes are frozen, or are to be: no step of it starts then.
func (a *attempt) suspended() bool {
	return a.chill.want != nil && a.chill.want.Frozen || a.chill.frozen
}

// asleep reports whether an attempt's processes can't do anything, also if no leader has said so since gnoded's start.
func (l *loop) asleep(a *attempt) bool {
	if a.doomed() {
		return false
	}
	if a.chill.want != nil || a.chill.known || !l.n.groups.root.Can().Freeze {
		return a.suspended()
	}
	group, err := l.n.groups.of(a.key)
	if err != nil {
		return false
	}
	frozen, err := group.Frozen()
	return err == nil && frozen
}

// waitAnew gives the commands of steps that are away their time once more: until now they slept.
func (l *loop) waitAnew(a *attempt) {
	for _, s := range a.steps {
		if s.lonely != nil && s.conn == nil && s.phase < stepEnding {
			s.setTimer(l, timerLonely, lonelyStep)
		}
	}
}

// chill starts the next action towards the ordered state. An attempt that is being ended is not frozen.
func (l *loop) chill(a *attempt) {
	c := &a.chill
	if !a.runs() && a.phase != ready || c.want == nil {
		return
	}
	frozen := c.want.Frozen && !a.doomed()
	switch {
	case c.doing != nil:
		if *c.doing != frozen {
			c.stop()
		}
		return
	case c.known && c.frozen == frozen:
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.doing, c.stop, c.begun = &frozen, cancel, l.stamp()
	key, grace, steps := a.key, time.Duration(c.want.GraceMS)*time.Millisecond, l.stepsHere(a)
	l.then(func() {
		l.n.chills.Do(func(run context.Context) {
			stop := context.AfterFunc(run, cancel)
			defer stop()
			defer cancel()
			defer pool.Or(func(err error) { l.n.inbox.post(msgChilled{key, frozen, err}) })
			var err error
			if frozen {
				err = l.n.freeze(ctx, key, steps, grace)
			} else {
				err = l.n.thaw(run, key, steps)
			}
			l.n.inbox.post(msgChilled{key, frozen, err})
		})
	})
}

// onChilled records a worker's result, and continues if the order has changed meanwhile.
func (l *loop) onChilled(m msgChilled) error {
	a := l.attempts[m.key]
	if a == nil {
		return nil
	}
	c := &a.chill
	c.doing, c.stop = nil, nil
	c.known, c.frozen = m.err == nil, m.frozen
	if m.err != nil && !errors.Is(m.err, context.Canceled) {
		l.log.Warn("a job's processes could not be suspended or resumed; it is tried again", "job", m.key.Job, "attempt",
			m.key.Attempt, "suspend", m.frozen, "err", m.err)
		key := m.key
		time.AfterFunc(chillAgain, func() { l.n.inbox.post(msgChill{key}) })
		return nil
	}
	if c.known {
		l.holdLimits(a, c.frozen)
		if !c.frozen {
			l.waitAnew(a)
		}
	}
	l.chill(a)
	if len(a.queue) > 0 && !a.suspended() {
		return l.placeSteps(a)
	}
	return nil
}

// stepsHere gives the keys by which gshim reaches all of an attempt's steps on this node.
func (l *loop) stepsHere(a *attempt) (out []shim.Key) {
	for _, s := range a.steps {
		keys := s.shimKeys()
		if len(keys) > 1 && l.n.groups.root.Can().Track {
			keys = keys[:1] // its group is the step's
		}
		out = append(out, keys...)
	}
	return out
}

// signalAll sends a signal to all processes of an attempt on this node. With control groups, the script's group
// includes the steps; on the job's other nodes, and without such groups, each step gets the signal.
func (n *Noded) signalAll(ctx context.Context, key proto.Attempt, steps []shim.Key, sig unix.Signal) {
	if n.sendSignal(ctx, key, sig, shim.Tree) && n.groups.root.Can().Track {
		return
	}
	for _, s := range steps {
		n.signalTask(ctx, s, sig, shim.Tree)
	}
}

// freeze stops all processes of an attempt.
func (n *Noded) freeze(ctx context.Context, key proto.Attempt, steps []shim.Key, grace time.Duration) error {
	group, err := n.groups.freezable(key)
	if err != nil {
		return err
	}
	if group != nil {
		if frozen, err := group.Frozen(); err == nil && frozen {
			return nil
		}
	}
	n.signalAll(ctx, key, steps, unix.SIGTSTP)
	pause(ctx, grace)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if group != nil {
		return group.Freeze(ctx)
	}
	n.signalAll(ctx, key, steps, unix.SIGSTOP)
	return nil
}

// thaw lets all processes of an attempt go on.
func (n *Noded) thaw(ctx context.Context, key proto.Attempt, steps []shim.Key) error {
	group, err := n.groups.freezable(key)
	if err != nil {
		return err
	}
	if group != nil {
		if err := group.Thaw(ctx); err != nil {
			return err
		}
	}
	n.signalAll(ctx, key, steps, unix.SIGCONT)
	return nil
}

// melt thaws a frozen attempt that is being ended, so that signals reach it.
func (n *Noded) melt(ctx context.Context, key proto.Attempt) {
	group, err := n.groups.freezable(key)
	if group == nil || err != nil {
		return // there is nothing to thaw; clearing it away kills what is left
	}
	if frozen, err := group.Frozen(); err != nil || !frozen {
		return
	}
	if err := group.Thaw(ctx); err != nil {
		n.log.Warn("a suspended job could not be resumed for its end", "job", key.Job, "attempt", key.Attempt, "err", err)
	}
}

// freezable gives an attempt's group if it can be frozen, nil where only signals can stop its processes.
func (g *groups) freezable(key proto.Attempt) (*cgroup.Group, error) {
	if !g.root.Can().Freeze {
		return nil, nil
	}
	return g.of(key)
}
