package noded

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// overStep forgets a step, and does what waited for it.
func (l *loop) overStep(s *step) error {
	a := s.job
	if err := l.dropStep(s); err != nil {
		return err
	}
	if a.phase == ending {
		if len(a.steps) == 0 {
			l.clear(a)
		}
		return nil
	}
	return l.placeSteps(a)
}

// dropStep takes a step out of memory and spool.
func (l *loop) dropStep(s *step) error {
	for _, t := range [...]stepTimer{timerKill, timerLimit, timerDrain} {
		s.stopTimer(t)
	}
	if len(s.files) > 0 {
		files := s.files
		s.files = nil
		l.soon(func() { closeFiles(files) })
	}
	if err := l.spool.add(recStepOver, &stepOver{Job: s.rec.Job, Attempt: s.rec.Attempt, ID: s.id, Use: s.used}, false); err != nil {
		return err
	}
	l.n.sampler.stepOver(s.job.key, s.used.Node(l.n.opts.Name))
	for _, key := range s.shimKeys() {
		l.then(func() { l.n.link.ack(key) })
	}
	for _, p := range s.parts {
		l.then(p.forget)
	}
	delete(s.job.steps, s.id)
	if s.conn != nil {
		s.conn.step = nil
	}
	return nil
}

// signalStep sends a signal to everything in a step.
func (l *loop) signalStep(s *step, sig unix.Signal) {
	for _, p := range s.parts {
		p.signal(sig)
	}
	l.signalHere(s, sig)
}

// signalHere sends a signal to everything of a step on this node.
func (l *loop) signalHere(s *step, sig unix.Signal) {
	keys := s.shimKeys()
	if len(keys) == 0 {
		return
	}
	if len(keys) > 1 && l.n.groups.root.Can().Track {
		keys = keys[:1] // its group is the step's
	}
	l.then(func() {
		l.n.stops.do(func(ctx context.Context) {
			for _, key := range keys {
				l.n.signalTask(ctx, key, sig, shim.Tree)
			}
		})
	})
}

func (n *Noded) signalTask(ctx context.Context, key shim.Key, sig unix.Signal, scope shim.Scope) {
	give := n.now().Add(signalTimeout)
	for ctx.Err() == nil && n.now().Before(give) {
		_, err := n.link.signal(ctx, key, sig, scope)
		if err == nil || strings.Contains(err.Error(), "is not known to gshim") {
			return
		}
		if err != shim.ErrGone {
			n.log.Warn("a signal was not delivered", "task", key.String(), "signal", int(sig), "err", err)
			return
		}
		pause(ctx, signalRetry)
	}
}

// hangUp ends the shell at a step's terminal: shells there don't mind SIGTERM, and would be killed only after KillWait.
func (l *loop) hangUp(s *step) {
	if !s.rec.Terminal || s.here < 0 || len(s.tasks) == 0 || s.tasks[0].pid == 0 || s.rec.Nodes[s.here].Ranks[0] != 0 {
		return
	}
	pid, key := s.tasks[0].pid, s.shimKeys()[0]
	l.then(func() {
		l.n.stops.do(func(ctx context.Context) {
			if ignores(pid, unix.SIGTERM) {
				l.n.signalTask(ctx, key, unix.SIGHUP, shim.Leader)
			}
		})
	})
}

// ignores reports whether a process has a signal ignored.
func ignores(pid int, sig unix.Signal) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false // it has ended
	}
	_, rest, _ := strings.Cut(string(status), "\nSigIgn:\t")
	mask, _, _ := strings.Cut(rest, "\n")
	bits, err := strconv.ParseUint(mask, 16, 64)
	return err == nil && bits&(1<<(sig-1)) != 0
}

// stopStep ends a step: SIGCONT and SIGTERM, and SIGKILL after KillWait; or SIGKILL at once.
func (l *loop) stopStep(s *step, cause model.StopCause, uid uint32, now bool, line string) {
	if s.cause == model.NoStop {
		s.cause, s.uid = cause, uid
		if line != "" {
			s.send(l, &proto.StepEvent{Kind: proto.StepLine, Text: line})
		}
	} else if !now {
		return
	}
	switch s.phase {
	case stepCreated:
		s.phase = stepRunning
		l.abandon(s)
	case stepRunning:
		if now {
			l.killStep(s)
			return
		}
		l.signalHere(s, unix.SIGCONT)
		l.signalHere(s, unix.SIGTERM)
		l.hangUp(s)
		for _, p := range s.parts {
			l.endPart(p, false)
		}
		s.setTimer(l, timerKill, l.n.killWait())
	case stepWaiting, stepPreparing, stepEnding, stepOverHere:
	}
}

// killStep kills what is left of a step, and again until its end has been seen.
func (l *loop) killStep(s *step) {
	l.signalHere(s, unix.SIGKILL)
	for _, p := range s.parts {
		l.endPart(p, true)
	}
	s.setTimer(l, timerKill, killAgain)
}

// endSteps ends a job's steps because the job ends. It says whether any are left to wait for.
func (l *loop) endSteps(a *attempt) bool {
	for _, s := range a.queue {
		s.send(l, &proto.StepEvent{Kind: proto.StepRefused, Text: fmt.Sprintf("Unable to create step for job %d: Job/step already completing or completed", a.key.Job)})
		s.conn.step = nil
	}
	a.queue = nil
	now := a.forget || a.rebooted
	for _, s := range a.steps {
		if s.phase == stepOverHere {
			if err := l.dropStep(s); err != nil {
				l.log.Error("the end of a step is not written down", "job", a.key.Job, "step", s.id, "err", err)
			}
			continue
		}
		if a.rebooted && s.phase < stepEnding {
			s.phase = stepRunning
			for _, p := range s.parts {
				p.done = true
			}
			for i := range s.tasks {
				if s.tasks[i].ended == nil {
					s.tasks[i].ended = &shim.Event{Kind: shim.Exited, Unknown: true, Text: "the node went down"}
				}
			}
			l.stepProgress(s)
			continue
		}
		cause := model.StopCancel
		if a.stop != nil && a.stop.Cause != model.NoStop {
			cause = a.stop.Cause
		}
		line := ""
		if a.stop == nil {
			line = l.stepLine(s, "")
		}
		l.stopStep(s, cause, a.rec.UID, now, line)
	}
	return len(a.steps) > 0
}

// onStepTimer does what a timer of a step was set for.
func (l *loop) onStepTimer(m msgStepTimer) {
	s := l.step(m.key, m.id)
	if s == nil {
		return
	}
	switch m.what {
	case timerKill:
		if s.phase == stepRunning {
			l.killStep(s)
		}
	case timerLimit:
		l.stopStep(s, model.StopTimeLimit, 0, false, l.stepLine(s, " DUE TO TIME LIMIT"))
	case timerClear:
		if s.phase == stepEnding {
			l.clearStep(s)
		}
	case timerDrain:
		s.drained = true
		l.stepProgress(s)
	case timerLonely:
		if s.conn == nil && s.phase < stepEnding {
			l.log.Warn("a step's command has not come back; the step is ended", "job", m.key.Job, "step", m.id)
			l.stopStep(s, model.StopCancel, s.job.rec.UID, false, "")
			s.phase = max(s.phase, stepRunning)
			l.abandon(s)
		}
	}
}

func (s *step) setTimer(l *loop, what stepTimer, d time.Duration) {
	s.stopTimer(what)
	key, id := s.job.key, s.id
	*s.timer(what) = time.AfterFunc(d, func() { l.n.inbox.post(msgStepTimer{key, id, what}) })
}

func (s *step) stopTimer(what stepTimer) {
	if t := *s.timer(what); t != nil {
		t.Stop()
	}
}

// timer is where a timer is kept. Most of them are never set at the same time.
func (s *step) timer(what stepTimer) **time.Timer {
	switch what {
	case timerLimit:
		return &s.limit
	case timerDrain:
		return &s.drain
	}
	return &s.kill
}

// terminateSteps tells the steps of a job that is being ended what it ends for. Where the job has a group its signal
// reaches them too.
func (l *loop) terminateSteps(a *attempt) {
	for _, s := range a.steps {
		if s.cause != model.NoStop {
			continue
		}
		s.cause, s.uid = a.stop.Cause, a.rec.UID
		if line := a.stop.Line; line != "" {
			s.send(l, &proto.StepEvent{Kind: proto.StepLine, Text: strings.Replace(line, fmt.Sprintf("JOB %d ", a.key.Job), fmt.Sprintf("STEP %d.%d ", a.key.Job, s.id), 1)})
		}
		for _, p := range s.parts {
			l.endPart(p, false)
		}
		if !l.n.groups.root.Can().Track {
			l.signalHere(s, unix.SIGCONT)
			l.signalHere(s, unix.SIGTERM)
		}
		l.hangUp(s)
	}
}

// killSteps does the same for SIGKILL.
func (l *loop) killSteps(a *attempt) {
	if l.n.groups.root.Can().Track {
		return
	}
	for _, s := range a.steps {
		l.signalHere(s, unix.SIGKILL)
	}
}

// killWait is how long after SIGTERM SIGKILL follows.
func (n *Noded) killWait() time.Duration {
	if r := n.rules.Load(); r != nil && r.KillWaitS > 0 {
		return time.Duration(r.KillWaitS) * time.Second
	}
	if w := n.def.Load(); w != nil && w.killWaitS > 0 {
		return time.Duration(w.killWaitS) * time.Second
	}
	return defaultKillWait
}
