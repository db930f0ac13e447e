package noded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/shim"
	"gbatch/noded/taskaround"
)

// stepNews is the data of a happening; most have none.
type stepNews struct {
	files   *msgStepFiles    // sevFiles, sevNoFiles
	made    *msgStepPrepared // sevMade
	text    string           // sevNotMade: for the command
	cleared *msgStepCleared  // sevCleared, sevLeft
	told    bool             // sevStop: its processes get the signal with their job's
}

// stepHappens moves a step to the next phase of the table, and carries out the table's act.
func (l *loop) stepHappens(s *step, e stepHappening, in stepNews) {
	c := stepTable[s.phase][e]
	from := s.phase
	s.phase = c.next
	if c.next != from {
		l.setStepDeadline(s, l.stepPatienceOf(s))
		if from == stepPreparing && s.leave != nil {
			s.leave()
			s.leave = nil
		}
	}
	l.fail(l.actStep(s, c.do, &in))
}

// actStep carries out an act of the table of steps.
func (l *loop) actStep(s *step, do stepAct, in *stepNews) error {
	switch do {
	case stepNothing:
	case stepMake:
		l.makeOrders(s, in.files)
	case stepCloseFiles:
		in.files.drop()
	case stepOrder:
		l.orderTasks(s, in.made)
	case stepDiscard:
		s.files = append(s.files, in.made.passed()...)
		l.endTasks(s, 0)
	case stepRefuse:
		s.send(l, &proto.StepEvent{Kind: proto.StepRefused, Step: s.id, Text: orElse(in.text, fmt.Sprintf(
			"Unable to start step: node %s could not make the step's control group within %v", l.n.opts.Name, makeWait))})
		l.endTasks(s, 0)
	case stepNoFiles:
		s.send(l, &proto.StepEvent{Kind: proto.StepLine, Text: fmt.Sprintf(
			"slurmstepd: error: *** STEP %s: its command has not passed its open files within %v ***", s.name(),
			filesWait)})
		l.endTasks(s, 0)
	case stepTerm:
		sig := unix.SIGTERM
		if in.told {
			sig = 0
		}
		l.endTasks(s, sig)
		l.hangUp(s)
	case stepKill:
		if s.killed.IsZero() {
			s.killed = l.now()
		}
		l.setStepDeadline(s, killAgain)
		l.endTasks(s, unix.SIGKILL)
	case stepClear:
		l.clearStep(s)
	case stepAgain:
		l.clearStepLater(s, in.cleared.left)
	case stepGiveUp:
		return l.giveUpStep(s)
	case stepReport:
		return l.stepEnds(s, in.cleared)
	default:
		return fmt.Errorf("step %s: %v in phase %v has no action", s.name(), do, s.phase)
	}
	return nil
}

// endTasks ends a step's tasks: tasks that were not ordered count as not run, the others get the signal (0: they
// already have it), and so do the parts on other nodes.
func (l *loop) endTasks(s *step, sig unix.Signal) {
	for i := range s.tasks {
		if t := &s.tasks[i]; t.waits() {
			t.ended = &shim.Event{Kind: shim.LaunchFailed, Stage: shim.StageOrder, Text: "it was not started"}
		}
	}
	if sig == unix.SIGTERM {
		l.signalHere(s, unix.SIGCONT, shim.Tree, func() {})
	}
	if sig != 0 {
		l.signalHere(s, sig, shim.Tree, func() {})
	}
	for _, p := range s.parts {
		l.endPart(p, sig == unix.SIGKILL)
	}
	l.stepProgress(s)
}

// stepPatienceOf gives the time until a phase's deadline; 0 if it has none or sets its own.
func (l *loop) stepPatienceOf(s *step) time.Duration {
	switch s.phase {
	case stepCreated:
		if s.req != nil && (s.req.Copied != "" || s.req.Parts > 1) { // its program is on the way; others begin with it
			return copyWait
		}
		return filesWait
	case stepPreparing:
		if s.req != nil && s.req.Container != nil {
			return imageWait
		}
		return makeWait
	case stepUnmaking:
		return l.n.unkillable()
	case stepStopping:
		if s.job.stop != nil {
			return killWait(s.job.stop)
		}
		return l.n.killWait()
	case stepKilling:
		return killAgain
	case stepAbandoned:
		return abandonWait
	}
	return 0
}

// setStepDeadline arms the timer of the step's phase; 0 stops it.
func (l *loop) setStepDeadline(s *step, d time.Duration) {
	s.deadline.arm(l.n.inbox, d, func(turn uint64) any { return msgStepDeadline{s.job.key, s.id, turn} })
}

// onStepDeadline is a phase's deadline.
func (l *loop) onStepDeadline(m msgStepDeadline) {
	s := l.step(m.key, m.id)
	if s == nil || s.deadline.turn != m.turn {
		return
	}
	if l.hopelessStep(s) {
		l.stepHappens(s, sevGiveUp, stepNews{})
		return
	}
	l.stepHappens(s, sevDeadline, stepNews{})
}

// hopelessStep reports whether something of the step has survived SIGKILL for UnkillableStepTimeout. Suspended
// processes die when their job resumes.
func (l *loop) hopelessStep(s *step) bool {
	since := s.killed
	if since.IsZero() {
		since = s.cleared
	}
	if since.IsZero() {
		return false
	}
	if s.job.suspended() && !s.job.doomed() {
		s.killed = l.now()
		return false
	}
	return l.now().Sub(since) >= l.n.unkillable()
}

// giveUpStep drains the node and names the surviving processes, marks the tasks as ended, and tries once more to remove
// the rest.
func (l *loop) giveUpStep(s *step) error {
	if err := l.survives(s.job, fmt.Sprintf("job %d step %d", s.rec.Job, s.id),
		l.n.groups.stepSurvivors(s.job.key, s.id)); err != nil {
		return err
	}
	l.loseTasks(s, "processes of the step survive SIGKILL")
	s.tries++
	l.clearStep(s)
	return nil
}

// loseTasks marks all tasks and parts of a step as ended.
func (l *loop) loseTasks(s *step, why string) {
	for i := range s.tasks {
		if t := &s.tasks[i]; t.ended == nil {
			t.ended = &shim.Event{Kind: shim.Exited, Unknown: true, Text: why, Ended: l.now()}
			s.tellTask(l, i)
		}
	}
	for _, p := range s.parts {
		p.phase = partOver
		p.failTasks(l)
	}
}

// leaveStep ends a step whose job is given up.
func (l *loop) leaveStep(s *step) error {
	l.loseTasks(s, "the job was given up: processes of it survive SIGKILL")
	s.phase = stepOverHere
	if err := l.stepEnds(s, &msgStepCleared{}); err != nil {
		return err
	}
	if l.step(s.job.key, s.id) == s {
		return l.dropStep(s)
	}
	return nil
}

// fail keeps an error of the spool for the end of the batch, which ends with it.
func (l *loop) fail(err error) {
	if err = l.unlessItem(err); err != nil && l.failed == nil {
		l.failed = err
	}
}

// overStep forgets a step, and continues everything that waited for its end.
func (l *loop) overStep(s *step) error {
	a := s.job
	if err := l.dropStep(s); err != nil {
		return err
	}
	if len(a.steps) == 0 && a.doomed() {
		return l.happens(a, evStepsOver, news{})
	}
	if a.phase >= ending {
		return nil
	}
	return l.placeSteps(a)
}

// dropStep removes a step from memory and spool.
func (l *loop) dropStep(s *step) error {
	l.setStepDeadline(s, 0)
	for _, t := range [...]stepTimer{timerLimit, timerLonely, timerDrain} {
		s.stopTimer(t)
	}
	l.closeFiles(s)
	over := &stepOver{Job: s.rec.Job, Attempt: s.rec.Attempt, ID: s.id, Use: s.used, Failed: s.failed,
		GPUOOM: s.gpuOOM, Status: s.status}
	err := l.spool.add(recStepOver, over, false)
	if tooLarge(err) {
		over.Use = nil
		err = l.spool.add(recStepOver, over, false)
	}
	if err != nil {
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

// signalSteps sends a signal to everything in an attempt's steps.
func (l *loop) signalSteps(a *attempt, sig unix.Signal) {
	if sig == unix.SIGKILL {
		l.killSteps(a)
		return
	}
	for _, s := range a.steps {
		l.signalStep(s, sig, func() {})
	}
}

// signalStep sends a signal to a step's tasks, and calls over when that is done. As in Slurm, what tasks have started
// does not get it, for example workers of a data loader, which a signal that they don't expect would end. Only signals
// that stop and continue, or come from a keyboard, are for all processes.
func (l *loop) signalStep(s *step, sig unix.Signal, over func()) {
	for _, p := range s.parts {
		p.signal(sig)
	}
	scope := shim.Tree
	if forTasks(sig) {
		scope = shim.Leader
	}
	l.signalHere(s, sig, scope, over)
}

// forTasks reports whether a signal is for tasks alone.
func forTasks(sig unix.Signal) bool {
	return !slices.Contains([]unix.Signal{unix.SIGKILL, unix.SIGSTOP, unix.SIGTSTP, unix.SIGCONT, unix.SIGINT,
		unix.SIGQUIT}, sig)
}

// signalHere sends a signal to a step's tasks on this node, or all its processes, and calls over when that is done. It
// waits for tasks that are just being launched: they get the signal too.
func (l *loop) signalHere(s *step, sig unix.Signal, scope shim.Scope, over func()) {
	keys := s.shimKeys()
	if len(keys) == 0 {
		over()
		return
	}
	launching := s.launching()
	if scope == shim.Tree && len(keys) > 1 && l.n.groups.root.Can().Track {
		keys = keys[:1] // its group is the step's
	}
	l.then(func() {
		l.n.stops.Do(func(ctx context.Context) {
			defer over()
			if sig != unix.SIGKILL { // which is repeated
				give := l.n.now().Add(launchWait)
				for _, key := range launching {
					l.n.untilLaunched(ctx, key, give)
				}
			}
			for _, key := range keys {
				l.n.signalTask(ctx, key, sig, scope)
			}
		})
	})
}

// launching gives the keys of tasks here that were ordered, and have neither begun nor ended as far as is known.
func (s *step) launching() (out []shim.Key) {
	if s.here < 0 {
		return nil
	}
	for i, r := range s.rec.Nodes[s.here].Ranks {
		if t := &s.tasks[i]; t.order != nil && !t.began && t.ended == nil {
			out = append(out, s.shimKey(r))
		}
	}
	return out
}

// untilLaunched waits until gshim has begun a task that was ordered, or has failed to, but not after give.
func (n *Noded) untilLaunched(ctx context.Context, key shim.Key, give time.Time) {
	for ctx.Err() == nil && n.now().Before(give) {
		_, err := n.link.signal(ctx, key, 0, shim.Leader)
		if !errors.Is(err, shim.ErrUnknown) && !errors.Is(err, shim.ErrGone) {
			return // what is wrong is said when the signal follows
		}
		pause(ctx, launchRetry)
	}
}

func (n *Noded) signalTask(ctx context.Context, key shim.Key, sig unix.Signal, scope shim.Scope) {
	give := n.now().Add(signalTimeout)
	for ctx.Err() == nil && n.now().Before(give) {
		_, err := n.link.signal(ctx, key, sig, scope)
		if err == nil || errors.Is(err, shim.ErrUnknown) {
			return
		}
		if !errors.Is(err, shim.ErrGone) {
			n.log.Warn("a signal was not delivered", "task", key.String(), "signal", int(sig), "err", err)
			return
		}
		pause(ctx, signalRetry)
	}
}

// hangUp ends the shell at a step's terminal by SIGHUP: interactive shells ignore SIGTERM, and would only be killed
// after KillWait.
func (l *loop) hangUp(s *step) {
	if !s.rec.Terminal || s.here < 0 || len(s.tasks) == 0 || s.tasks[0].pid == 0 || s.rec.Nodes[s.here].Ranks[0] != 0 {
		return
	}
	pid, key := s.tasks[0].pid, s.shimKeys()[0]
	l.then(func() {
		l.n.stops.Do(func(ctx context.Context) {
			if slices.ContainsFunc(programs(pid), func(p int) bool { return ignores(p, unix.SIGTERM) }) {
				l.n.signalTask(ctx, key, unix.SIGHUP, shim.Leader)
			}
		})
	})
}

// programs gives the processes that may be a task's program, which gshim knows as pid: that process, or, if it is the
// one around a task with epilogs, those that this has started.
func programs(pid int) (out []int) {
	if !taskaround.Is(pid) {
		return []int{pid}
	}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is a right one
	for _, file := range threads {
		list, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for _, word := range strings.Fields(string(list)) {
			if p, err := strconv.Atoi(word); err == nil {
				out = append(out, p)
			}
		}
	}
	return out
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
	if s.cause == model.NoStop && s.phase < stepEnding { // else its tasks have ended by themselves
		s.cause, s.uid = cause, uid
		if line != "" {
			s.send(l, &proto.StepEvent{Kind: proto.StepLine, Text: line})
		}
	}
	if now {
		l.stepHappens(s, sevKill, stepNews{})
		return
	}
	l.stepHappens(s, sevStop, stepNews{})
}

// endSteps ends a job's steps because the job ends. It reports whether there are steps to wait for.
func (l *loop) endSteps(a *attempt) bool {
	l.refuseQueue(a)
	for _, s := range a.steps {
		switch {
		case s.phase == stepOverHere:
			l.fail(l.dropStep(s))
			continue
		case a.origin == beforeBoot && s.phase < stepEnding:
			l.loseTasks(s, "the node went down")
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
		l.stopStep(s, cause, a.rec.UID, a.will != wanted || a.origin == beforeBoot, line)
	}
	return len(a.steps) > 0
}

// refuseQueue tells the commands of waiting steps that their job ends.
func (l *loop) refuseQueue(a *attempt) {
	for _, s := range a.queue {
		s.send(l, &proto.StepEvent{Kind: proto.StepRefused,
			Text: fmt.Sprintf("Unable to create step for job %d: Job/step already completing or completed", a.key.Job)})
		if s.conn != nil {
			s.conn.step = nil
		}
	}
	a.queue = nil
}

// onStepTimer handles a step's timer that has run out.
func (l *loop) onStepTimer(m msgStepTimer) {
	s := l.step(m.key, m.id)
	if s == nil {
		return
	}
	switch m.what {
	case timerLimit:
		if s.drained { // its tasks have ended: what they wrote is passed on
			return
		}
		l.stopStep(s, model.StopTimeLimit, 0, false, l.stepLine(s, " DUE TO TIME LIMIT"))
	case timerDrain:
		s.drained = true
		l.stepProgress(s)
		if s.phase < stepEnding && s.relaying() {
			l.relaysOver(s)
			s.setTimer(l, timerDrain, tellAgain)
		}
	case timerLonely:
		switch {
		case s.conn != nil || s.phase >= stepEnding:
		case l.asleep(s.job): // so is its command, as a rule: both go on together
			s.setTimer(l, timerLonely, lonelyStep)
		default:
			l.log.Warn("a step's command has not connected again; the step is ended", "job", m.key.Job, "step", m.id)
			l.stopStep(s, model.StopCancel, s.job.rec.UID, false, "")
		}
	}
}

func (s *step) setTimer(l *loop, what stepTimer, d time.Duration) {
	s.stopTimer(what)
	key, id := s.job.key, s.id
	*s.timerOf(what) = time.AfterFunc(d, func() { l.n.inbox.post(msgStepTimer{key, id, what}) })
}

func (s *step) stopTimer(what stepTimer) {
	if t := *s.timerOf(what); t != nil {
		t.Stop()
	}
}

// timerOf is where a timer is kept.
func (s *step) timerOf(what stepTimer) **time.Timer {
	switch what {
	case timerLimit:
		return &s.limit
	case timerDrain:
		return &s.drain
	}
	return &s.lonely
}

// terminateSteps ends the steps of a job that is being ended. If the job has a group, the signal to the job reaches
// their processes.
func (l *loop) terminateSteps(a *attempt) {
	l.refuseQueue(a)
	for _, s := range a.steps {
		if s.cause == model.NoStop {
			s.cause, s.uid = a.stop.Cause, a.rec.UID
			if line := a.stop.Line; line != "" {
				s.send(l, &proto.StepEvent{Kind: proto.StepLine,
					Text: strings.Replace(line, fmt.Sprintf("JOB %d ", a.key.Job), "STEP "+s.name()+" ", 1)})
			}
		}
		was := s.phase
		l.stepHappens(s, sevStop, stepNews{told: l.n.groups.root.Can().Track})
		if was == stepStopping && s.phase == was { // its manager was quicker, and doesn't know of a GraceTime
			l.setStepDeadline(s, l.stepPatienceOf(s))
		}
	}
}

// killSteps sends SIGKILL to all steps of a job.
func (l *loop) killSteps(a *attempt) {
	for _, s := range a.steps {
		if s.cause == model.NoStop && a.stop != nil {
			s.cause, s.uid = a.stop.Cause, a.rec.UID
		}
		l.stepHappens(s, sevKill, stepNews{})
	}
}

// killWait is the time between SIGTERM and SIGKILL.
func (n *Noded) killWait() time.Duration {
	if r := n.rules.Load(); r != nil && r.KillWaitS > 0 {
		return time.Duration(r.KillWaitS) * time.Second
	}
	if w := n.def.Load(); w != nil && w.killWaitS > 0 {
		return time.Duration(w.killWaitS) * time.Second
	}
	return defaultKillWait
}
