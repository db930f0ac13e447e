package noded

import (
	"context"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// stop.go ends attempts and sends them signals, as the leader wants.
//
// Ending is SIGCONT and SIGTERM to everything that the job has, and SIGKILL after KillWait to what is left. What
// survives SIGKILL hangs in the kernel (a dead file server, a device): it is killed again and again, and the job's end
// is not reported before it is gone, since it may still hold memory and GPUs.

const (
	defaultKillWait = 30 * time.Second
	killAgain       = 5 * time.Second  // between two SIGKILLs to what survives
	warnEvery       = time.Minute      // about what survives
	signalTimeout   = 10 * time.Second // for gshim's answer
	signalRetry     = 200 * time.Millisecond
	maxStops        = 64 // signals and messages under way at once
	maxSignals      = 64 // that wait for one attempt to run
)

// onStop begins to end an attempt, or signals it.
func (l *loop) onStop(s *proto.Stop) error {
	key := proto.Attempt{Job: s.Job, Attempt: s.Attempt}
	a := l.attempts[key]
	switch {
	case s.Tell && (a == nil || a.rec == nil || s.Line == ""):
		return nil
	case s.Tell:
		rec := a.rec
		l.then(func() { l.n.stops.do(func(context.Context) { l.n.tellUser(rec, s.Line) }) })
		return nil
	case a == nil && s.Signal != 0:
		return nil // nothing runs that could get it
	case a == nil && l.gone.has(key):
		return nil // its end is in the leader's log
	case a == nil:
		// Ended before it was launched, or the node has lost all trace of it. Either way nothing of it runs here, and
		// the leader waits to hear so.
		return l.reportOnly(key, &proto.Report{Kind: proto.ReportEnded})
	case s.Signal != 0 && s.Once:
		return l.warn(a, s)
	case s.Signal != 0:
		if s.Release {
			a.released, a.code = true, s.Code&0xff
		}
		l.signal(a, s)
		return nil
	case a.phase == over:
		return l.repeat(a)
	case a.stop != nil:
		return nil // under way
	}
	a.stop = s
	switch a.phase {
	case accepted: // gshim has not heard of it, or its answer is still to come; killing is right in both cases
		if a.inProlog() {
			a.phase = prologue
			return l.nextProgram(a)
		}
		a.phase = ending
		l.clear(a)
	case ready:
		a.phase = ending
		l.clear(a)
	case prologue: // it is waited for, so that the epilog doesn't run beside it
		if a.kill != nil && int(a.rec.Index) < len(a.rec.List) {
			a.until = earlier(a.until, l.now().Add(killWait(s)))
			l.lookAt(a, programKey(key, a.rec).Step)
		}
	case ordered: // when gshim answers; a launch that hangs is killed all the same
		l.killAfter(a, killWait(s))
	case running:
		l.terminate(a)
	case preparing, ending, epilogue, over: // it will not run, or has ended by itself
	}
	return nil
}

func killWait(s *proto.Stop) time.Duration {
	if s.KillWaitS <= 0 {
		return defaultKillWait
	}
	return time.Duration(s.KillWaitS) * time.Second
}

// onForget ends an attempt that the leader knows nothing of.
func (l *loop) onForget(key proto.Attempt) error {
	a := l.attempts[key]
	if a == nil {
		l.gone.add(key)
		return nil
	}
	l.log.Warn("the controller knows nothing of a job that is here; it is ended", "job", key.Job, "attempt", key.Attempt, "phase", a.phase)
	return l.forgetAttempt(a)
}

// forgetAttempt ends an attempt at once and reports nothing.
func (l *loop) forgetAttempt(a *attempt) error {
	if a.forget {
		return nil
	}
	a.forget = true
	key := a.key
	l.out.remove(func(r *proto.Report) bool { return reportKey(r) == key })
	switch a.phase {
	case over:
		return l.dropForgotten(a)
	case accepted:
		if a.inProlog() {
			a.phase = prologue
			return l.nextProgram(a)
		}
		a.phase = ending
		l.clear(a)
	case ready:
		a.phase = ending
		l.clear(a)
	case running:
		l.onKill(a)
	case preparing, prologue, ordered, ending, epilogue:
	}
	return nil
}

// dropForgotten forgets an attempt of which nothing is left.
func (l *loop) dropForgotten(a *attempt) error {
	key := a.key
	if err := l.spool.add(recDrop, &key, false); err != nil {
		return err
	}
	l.out.remove(func(r *proto.Report) bool { return reportKey(r) == key })
	l.drop(key)
	l.then(func() { l.n.link.ack(shimKey(key)) })
	if a.again == nil {
		return nil
	}
	return l.onLaunch(a.again)
}

// terminate writes the leader's line for the user and asks all processes to end. SIGKILL follows after KillWait.
func (l *loop) terminate(a *attempt) {
	l.chill(a)
	key, rec, line := a.key, a.rec, a.stop.Line
	a.asked = l.now()
	l.terminateSteps(a)
	l.killAfter(a, killWait(a.stop))
	l.then(func() {
		l.n.stops.do(func(ctx context.Context) {
			if line != "" {
				l.n.tellUser(rec, line)
			}
			for _, sig := range []syscall.Signal{unix.SIGCONT, unix.SIGTERM} {
				l.n.sendSignal(ctx, key, sig, shim.Tree)
			}
			l.n.melt(ctx, key)
		})
	})
}

// killAfter arms the timer after which whatever is left gets SIGKILL.
func (l *loop) killAfter(a *attempt, d time.Duration) {
	if a.kill != nil {
		a.kill.Stop()
	}
	key := a.key
	a.kill = time.AfterFunc(d, func() { l.n.inbox.post(msgKill{key}) })
}

// onKill kills what is left of an attempt, and again until its end has been seen.
func (l *loop) onKill(a *attempt) {
	if a == nil || a.phase != running && a.phase != ordered {
		return // clearing it away kills too
	}
	now := l.now()
	if a.asked.IsZero() {
		a.asked = now
	}
	if a.killed.IsZero() {
		a.killed = now
	}
	if err := l.survives(a, nil); err != nil {
		l.log.Error("what survives SIGKILL was not noted", "job", a.key.Job, "err", err) // the spool has failed: the batch says so
	}
	if now.Sub(a.asked) > warnEvery && now.Sub(a.warned) > warnEvery && !a.warned.IsZero() {
		a.warned = now
		l.log.Error("processes survive SIGKILL: they hang in the kernel, on a file server or a device; their resources stay taken",
			"job", a.key.Job, "attempt", a.key.Attempt, "since", a.asked)
	}
	if a.warned.IsZero() {
		a.warned = now
	}
	l.killAfter(a, killAgain)
	l.killSteps(a)
	key := a.key
	l.then(func() {
		l.n.stops.do(func(ctx context.Context) {
			l.n.sendSignal(ctx, key, unix.SIGKILL, shim.Tree)
			l.n.melt(ctx, key)
		})
	})
}

// warn sends a signal that an attempt gets once: the journal has it before, for the leader says it with every session.
func (l *loop) warn(a *attempt, s *proto.Stop) error {
	if a.rec == nil || a.rec.Warned || a.stop != nil {
		return nil
	}
	if err := l.keep(a, recWarned, &warnedOf{Job: a.key.Job, Attempt: a.key.Attempt}, true); err != nil {
		return err
	}
	l.signal(a, s)
	return nil
}

// signal sends what `gcancel --signal`, or the job itself with --signal, asked for. Without a flag it is for the job's steps, except SIGKILL, which is for
// everything.
func (l *loop) signal(a *attempt, s *proto.Stop) {
	switch a.phase {
	case accepted, preparing, prologue, ready, ordered: // the script may run already, and gshim's word be on its way
		if len(a.signals) < maxSignals {
			a.signals = append(a.signals, s)
		}
		return
	case ending, epilogue, over:
		return
	case running:
	}
	sig := syscall.Signal(s.Signal)
	scope := shim.Tree
	switch {
	case s.Full || sig == unix.SIGKILL:
	case s.Batch:
		scope = shim.Leader
	default:
		for _, st := range a.steps {
			l.signalStep(st, sig)
		}
		return
	}
	key := a.key
	l.then(func() {
		l.n.stops.do(func(ctx context.Context) { l.n.sendSignal(ctx, key, sig, scope) })
	})
}

// sendSignal has gshim send a signal. While gshim is away it tries again: its processes are still there.
func (n *Noded) sendSignal(ctx context.Context, key proto.Attempt, sig syscall.Signal, scope shim.Scope) {
	give := n.now().Add(signalTimeout)
	for ctx.Err() == nil && n.now().Before(give) {
		_, err := n.link.signal(ctx, shimKey(key), sig, scope)
		switch {
		case err == nil:
			return
		case !errors.Is(err, shim.ErrGone):
			n.log.Warn("a signal was not delivered", "job", key.Job, "attempt", key.Attempt, "signal", int(sig), "err", err)
			return
		}
		pause(ctx, signalRetry)
	}
}
