package noded

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// stop.go ends attempts and sends them signals, on the leader's order.
//
// Ending means SIGCONT and SIGTERM to all processes of the job, and SIGKILL after KillWait to the remaining ones.
// Processes that survive SIGKILL hang in the kernel (a dead file server, a device). They are killed again and again;
// after UnkillableStepTimeout the node is drained and the job ends without them (unkillable.go).

const (
	defaultKillWait = 30 * time.Second
	killAgain       = 5 * time.Second  // between two SIGKILLs to surviving processes
	warnEvery       = time.Minute      // between two warnings about surviving processes
	signalTimeout   = 10 * time.Second // for gshim's answer
	signalRetry     = 200 * time.Millisecond
	launchWait      = 2 * time.Second // for gshim to get an order that was sent before the signal
	launchRetry     = 5 * time.Millisecond
	maxStops        = 64 // signals and messages under way at once
	maxSignals      = 64 // that wait for one attempt to run
)

// msgSignals are signals and messages that the leader waits for; done is called when they have been sent.
type msgSignals struct {
	list []*proto.Stop
	done func()
}

// sending calls done when nothing is left to send.
type sending struct {
	left atomic.Int32
	done func()
}

func (s *sending) sent() {
	if s != nil && s.left.Add(-1) == 0 {
		s.done()
	}
}

// onSignals sends them. What waits for its attempt to run, and what goes to the tasks of steps on other nodes, counts
// as sent.
func (l *loop) onSignals(m msgSignals) error {
	all := &sending{done: m.done}
	all.left.Store(1)
	l.sending = all
	defer func() { l.sending = nil }()
	for _, s := range m.list {
		if s.Signal == 0 && !s.Tell {
			continue // that would end a job, for which there are orders
		}
		if err := l.onStop(s); err != nil {
			return err
		}
	}
	l.then(func() { l.n.stops.Do(func(context.Context) { all.sent() }) }) // not here: it writes to a connection
	return nil
}

// deliver has a signal or a message sent once the batch is on disk.
func (l *loop) deliver(send func(context.Context)) {
	of := l.sending
	if of != nil {
		of.left.Add(1)
	}
	l.then(func() {
		l.n.stops.Do(func(ctx context.Context) {
			defer of.sent()
			send(ctx)
		})
	})
}

// onStop begins to end an attempt, or signals it.
func (l *loop) onStop(s *proto.Stop) error {
	key := proto.Attempt{Job: s.Job, Attempt: s.Attempt}
	a := l.attempts[key]
	switch {
	case s.Tell && (a == nil || a.rec == nil || s.Line == ""):
		return nil
	case s.Tell:
		rec := a.rec
		if f := rec.Order; f != nil && f.Spec.Extra().Interactive { // the commands of its steps print it
			for _, st := range a.steps {
				st.send(l, &proto.StepEvent{Kind: proto.StepLine, Text: s.Line})
			}
			return nil
		}
		l.deliver(func(context.Context) { l.n.tellUser(rec, s.Line) })
		return nil
	case a == nil && s.Signal != 0:
		return nil // there is no process to signal
	case a != nil && s.Signal == 0 && a.outdated(s.Since):
		return nil // the job has got this node again since
	case a != nil && s.Signal == 0 && a.phase == over && s.Since > a.since:
		if err := l.replaced(a); err != nil {
			return err
		}
		return l.reportOnly(key, &proto.Report{Kind: proto.ReportEnded, Since: s.Since})
	case a == nil && s.Since <= l.gone.set[key] && l.gone.has(key):
		return nil // its end is in the leader's log
	case a == nil:
		// It was ended before it was launched, or the node has lost its records. Either way nothing of it runs here,
		// and the leader waits for that report.
		return l.reportOnly(key, &proto.Report{Kind: proto.ReportEnded, Since: s.Since})
	case s.Signal != 0 && s.Once:
		return l.warn(a, s)
	case s.Signal != 0:
		return l.askSignal(a, s)
	case a.phase == over:
		return l.happens(a, evStop, news{})
	case a.stop != nil:
		return nil // under way
	}
	a.stop = s
	return l.happens(a, evStop, news{})
}

// killWait is the time between SIGTERM and SIGKILL.
func killWait(s *proto.Stop) time.Duration {
	if s == nil || s.KillWaitS <= 0 {
		return defaultKillWait
	}
	return time.Duration(s.KillWaitS) * time.Second
}

// onForget ends an attempt that the leader does not know.
func (l *loop) onForget(key proto.Attempt) error {
	a := l.attempts[key]
	if a == nil {
		l.gone.add(key, 0)
		return nil
	}
	if a.phase == over && a.will == wanted {
		return nil // nothing of it runs, and its end is reported: the leader corrects what it believed meanwhile
	}
	l.log.Warn("a job on this node is unknown to the controller; it is ended", "job", key.Job, "attempt", key.Attempt,
		"phase", a.phase)
	return l.forget(a, unwanted)
}

// forget ends an attempt at once, and reports only an end from before this moment.
func (l *loop) forget(a *attempt, why will) error {
	if a.will != wanted {
		a.will = max(a.will, why)
		return nil
	}
	a.will, a.forgotten = why, l.stamp()
	key := a.key
	l.out.remove(func(r *proto.Report) bool { return reportKey(r) == key })
	return l.happens(a, evForget, news{})
}

// dropForgotten drops an attempt when nothing of it is left.
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
	if c := a.stop.Cause; c == model.StopNodeFail || c == model.StopUnitFault {
		l.log.Warn("a job is ended because of a failure", "job", key.Job, "attempt", key.Attempt, "why", line)
	}
	l.terminateSteps(a)
	l.then(func() {
		l.n.stops.Do(func(ctx context.Context) {
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

// kill sends SIGKILL to everything of an attempt, and arms the timer for the next time.
func (l *loop) kill(a *attempt) {
	now := l.now()
	if a.killed.IsZero() {
		a.killed, a.warned = now, now
	}
	if now.Sub(a.warned) > warnEvery {
		a.warned = now
		l.log.Error("processes survive SIGKILL: they hang in the kernel, on a file server or a device",
			"job", a.key.Job, "attempt", a.key.Attempt, "since", a.killed)
	}
	l.setDeadline(a, killAgain)
	l.killSteps(a)
	key := a.key
	l.then(func() {
		l.n.stops.Do(func(ctx context.Context) {
			l.n.sendSignal(ctx, key, unix.SIGKILL, shim.Tree)
			l.n.melt(ctx, key)
		})
	})
}

// warn sends a signal that an attempt gets only once: it is recorded in the journal first, because the leader repeats
// the order in every session.
func (l *loop) warn(a *attempt, s *proto.Stop) error {
	if a.rec == nil || a.rec.Warned || a.stop != nil {
		return nil
	}
	if err := l.keep(a, recWarned, &warnedOf{Job: a.key.Job, Attempt: a.key.Attempt}, true); err != nil {
		return err
	}
	return l.askSignal(a, s)
}

// askSignal handles a signal by the attempt's phase.
func (l *loop) askSignal(a *attempt, s *proto.Stop) error {
	if syscall.Signal(s.Signal) == unix.SIGKILL && !s.Batch {
		return l.happens(a, evKill, news{sig: s})
	}
	return l.happens(a, evSignal, news{sig: s})
}

// signal sends what `gcancel --signal`, or the job itself with --signal, asked for. Without a flag it is for the job's
// steps, except SIGKILL, which is for everything.
func (l *loop) signal(a *attempt, s *proto.Stop) {
	sig := syscall.Signal(s.Signal)
	scope := shim.Tree
	switch {
	case s.Batch:
		scope = shim.Leader
	case sig == unix.SIGKILL:
		l.killSteps(a)
	case !s.Full:
		l.signalSteps(a, sig)
		return
	case forTasks(sig): // the script and what it has started, and the tasks of its steps
		l.signalUntold(a, sig)
		scope = shim.Group
	}
	key := a.key
	l.deliver(func(ctx context.Context) { l.n.sendSignal(ctx, key, sig, scope) })
}

// signalUntold sends a signal to those of an attempt's steps that don't get it from their grun. A grun in the process
// group of the script gets it with the script and passes it on, and a task must not get it twice.
func (l *loop) signalUntold(a *attempt, sig syscall.Signal) {
	for _, s := range a.steps {
		if a.pid == 0 || s.conn == nil || !slices.Contains(gruns, sig) {
			l.signalStep(s, sig, func() {})
		} else if group, err := unix.Getpgid(int(s.rec.PID)); err != nil || group != a.pid {
			l.signalStep(s, sig, func() {})
		}
	}
}

// gruns are the signals that grun passes on to tasks, or ends its step for.
var gruns = []syscall.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGHUP, unix.SIGTERM}

// sendSignal makes gshim send a signal, and reports whether gshim knows the attempt. While gshim is away it tries
// again, because the processes still exist.
func (n *Noded) sendSignal(ctx context.Context, key proto.Attempt, sig syscall.Signal, scope shim.Scope) bool {
	give := n.now().Add(signalTimeout)
	for ctx.Err() == nil && n.now().Before(give) {
		_, err := n.link.signal(ctx, shimKey(key), sig, scope)
		switch {
		case err == nil:
			return true
		case errors.Is(err, shim.ErrUnknown): // its script is on another node, or has ended
			return false
		case !errors.Is(err, shim.ErrGone):
			n.log.Warn("a signal was not delivered", "job", key.Job, "attempt", key.Attempt, "signal", int(sig), "err", err)
			return true
		}
		pause(ctx, signalRetry)
	}
	return false
}
