package noded

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// reap.go ends an attempt: gshim's word that the script is over, what it used, the end of everything that it left
// behind, and the one report that frees its resources. The report is on disk before gshim is told that it may forget the
// exit status, and stays there until the leader has it in its log.

const (
	clearAgainMin = 20 * time.Millisecond // between two tries to clear an attempt away
	clearAgainMax = 5 * time.Second

	// signalNoIO is what Slurm reports as the signal of a job whose files could not be opened.
	signalNoIO = 53
)

// onLink takes up what gshim lists after a (new) connection: all that it runs, and all ends that were not acknowledged.
// What is missing there and should be running was lost with gshim's journal.
func (l *loop) onLink(events []shim.Event) error {
	listed := make(map[proto.Attempt]bool, len(events))
	programs := map[shim.Key]bool{} // and tasks of steps
	for i := range events {
		if k := events[i].Key; k.Step == stepBatch {
			listed[keyOf(k)] = true
		} else {
			programs[k] = true
		}
	}
	var resume []*attempt
	for _, a := range l.attempts {
		if (a.phase == prologue || a.phase == epilogue) && (int(a.rec.Index) >= len(a.rec.List) || !programs[programKey(a.key, a.rec)]) {
			resume = append(resume, a)
		}
	}
	if err := l.onEvents(events); err != nil {
		return err
	}
	for _, a := range resume {
		if err := l.resumePrograms(a); err != nil {
			return err
		}
	}
	var orders []*shim.Launch
	for key, a := range l.attempts {
		orders = append(orders, l.adoptSteps(a, programs)...)
		switch {
		case listed[key] && a.lateStart && a.phase == accepted: // this gnoded's forerunner gave it up
			a.phase = ordered
			l.onKill(a)
		case listed[key]:
		case a.rebooted && a.phase == accepted:
			l.lostInReboot(a)
		case a.lateStart && (a.phase == accepted || a.phase == ordered && a.order == nil):
			a.phase, a.ended = ending, nil
			l.clear(a)
		case a.phase == ordered:
			orders = append(orders, a.order)
		case a.phase == running, a.phase == accepted && a.rec != nil && a.rec.Started != 0:
			l.log.Error("gshim knows nothing of a job that was running; its exit status is lost", "job", key.Job, "attempt", key.Attempt)
			a.phase, a.ended = ending, nil
			l.clear(a)
		}
	}
	l.then(func() { l.n.link.launch(orders...) })
	if !l.swept {
		l.swept = true
		keys := slices.Collect(maps.Keys(l.attempts))
		l.then(func() {
			l.n.stops.do(func(ctx context.Context) {
				if err := l.n.groups.sweep(ctx, keys); err != nil {
					l.log.Warn("processes or control groups of forgotten jobs are left", "err", err)
				}
			})
		})
	}
	return nil
}

func keyOf(k shim.Key) proto.Attempt {
	return proto.Attempt{Job: model.JobID(k.JobID), Attempt: k.Attempt}
}

// onEvents takes gshim's news.
func (l *loop) onEvents(events []shim.Event) error {
	for i := range events {
		if isProgram(events[i].Key) {
			if err := l.onProgram(&events[i]); err != nil {
				return err
			}
			continue
		}
		take := l.onEvent
		if events[i].Key.Step != stepBatch {
			take = l.onStepEvent
		}
		if err := take(&events[i]); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) onEvent(ev *shim.Event) error {
	key := keyOf(ev.Key)
	a := l.attempts[key]
	if a == nil {
		var err error
		if a, err = l.stray(ev); a == nil || err != nil {
			return err
		}
	}
	switch {
	case a.rebooted && a.phase == accepted && (!ev.Done() || ev.Unknown):
		l.lostInReboot(a)
	case a.phase == over || a.rec == nil:
		if ev.Done() { // the acknowledgement was lost
			l.then(func() { l.n.link.ack(ev.Key) })
		} else { // it was said to be over, and yet it runs: it was killed between the order and its start
			l.then(func() { l.killStray(key) })
		}
	case a.phase == ending:
		if ev.Done() && a.ended == nil {
			a.ended = ev
		}
	case ev.Done():
		l.endedBy(a, ev)
	default:
		return l.started(a, ev)
	}
	return nil
}

// stray is an event of an attempt that is not known here. One that was forgotten is ended. Otherwise the spool was lost
// while gshim kept running: the attempt is taken up again, and the leader says whether it wants it.
func (l *loop) stray(ev *shim.Event) (*attempt, error) {
	key := keyOf(ev.Key)
	if l.gone.has(key) || l.foreign[key] {
		if ev.Done() {
			l.then(func() { l.n.link.ack(ev.Key) })
		} else {
			l.then(func() { l.killStray(key) })
		}
		return nil, nil
	}
	l.log.Warn("gshim has a job that the spool doesn't know; it is taken up", "job", key.Job, "attempt", key.Attempt)
	rec := &launched{Job: key.Job, Attempt: key.Attempt, At: l.stamp()}
	if err := l.spool.add(recLaunch, rec, true); err != nil {
		return nil, err
	}
	a := &attempt{key: key, rec: rec, phase: accepted}
	l.attempts[key] = a
	return a, nil
}

// lostInReboot clears away an attempt that was running when the machine went down. The leader learns of it by its
// absence from Hello; where an epilog is owed, by a report of an end that nobody saw, when the epilog has run: until then the
// node has no place for others. On nodes other than that of the script the leader knows more than this one and waits for no
// report: there the node doesn't register before its epilogs have run (owed).
func (l *loop) lostInReboot(a *attempt) {
	a.forget, a.phase = !a.hasScript() || !a.hasEpilog(), ending
	l.clear(a)
}

// hasScript reports whether the attempt's script was for this node.
func (a *attempt) hasScript() bool {
	return a.rec != nil && a.rec.Order != nil && a.rec.Order.Node == 0
}

// owed counts the attempts from before a reboot whose epilog has not run and is nobody's but this node's to wait for.
func (l *loop) owed() int {
	n := 0
	for _, a := range l.attempts {
		if a.rebooted && a.phase != over && !a.hasScript() && a.hasEpilog() {
			n++
		}
	}
	return n
}

func (l *loop) killStray(key proto.Attempt) {
	l.n.stops.do(func(ctx context.Context) { l.n.sendSignal(ctx, key, unix.SIGKILL, shim.Tree) })
}

// started takes note that an attempt runs, and ends it if that was asked for meanwhile.
func (l *loop) started(a *attempt, ev *shim.Event) error {
	for _, note := range ev.Notes {
		l.log.Warn("a job started with less than it asked for", "job", a.key.Job, "attempt", a.key.Attempt, "note", note)
	}
	if a.lateStart { // it began to run by being killed: between fork and exec the two look the same
		return nil
	}
	first := a.phase != running
	a.phase, a.order, a.launch = running, nil, nil
	a.began = model.Time(ev.Started.UnixMilli())
	switch {
	case a.forget:
		l.onKill(a)
		return nil
	case first && a.stop != nil:
		l.terminate(a)
	case first:
		for _, s := range a.signals {
			l.signal(a, s)
		}
	}
	a.signals = nil
	if rec, note := a.rec, a.note; note != "" {
		a.note = ""
		l.then(func() { l.n.stops.do(func(context.Context) { l.n.tellUser(rec, note) }) })
	}
	l.chill(a)
	if a.rec != nil {
		l.n.sampler.begin(wholeJob(a.key), a.rec.Use, a.began, ev.PID)
		l.n.sampler.restore(a.rec)
	}
	if k := l.spool.mem.attempts[a.key]; k != nil && k.launched != nil && k.launched.Started != 0 {
		return nil // reported before a restart
	}
	return l.report(&proto.Report{Kind: proto.ReportStarted, Job: a.key.Job, Attempt: a.key.Attempt, At: a.began})
}

// endedBy begins to clear an attempt away whose process has ended, or could not be started.
func (l *loop) endedBy(a *attempt, ev *shim.Event) {
	if ev.Kind == shim.LaunchFailed {
		l.log.Warn("a job could not be started", "job", a.key.Job, "attempt", a.key.Attempt, "why", ev.Text)
	}
	a.phase, a.ended, a.order, a.launch = ending, ev, nil, nil
	if !ev.Started.IsZero() && !a.lateStart {
		a.began = model.Time(ev.Started.UnixMilli())
	}
	l.clear(a)
}

// clear has a worker take stock of an attempt and remove what it left. The first try is quick; those after it may have
// to wait for processes that don't die, and don't hold up a worker.
func (l *loop) clear(a *attempt) {
	if a == nil || a.phase != ending || l.endSteps(a) { // with its last step's end it comes again
		return
	}
	job := clearing{key: a.key, rec: a.rec, script: a.script, ended: a.ended, began: a.began, tries: a.tries}
	if k := l.spool.mem.attempts[a.key]; k != nil && k.launched != nil {
		job.steps, job.own = k.launched.Steps, ownUse{k.launched.OwnPeakKB, k.launched.OwnRSSKB}
	}
	l.soon(func() {
		pool := l.n.stops
		if job.tries == 0 {
			pool = l.n.workers
		}
		pool.do(func(ctx context.Context) { l.n.inbox.post(l.n.clearAway(ctx, &job)) })
	})
}

// clearing is what a worker needs to end an attempt.
type clearing struct {
	key    proto.Attempt
	rec    *launched
	script string
	ended  *shim.Event
	began  model.Time
	tries  int

	steps *model.Usage // what its ended steps used; nil: it had none
	own   ownUse       // what the spool has of its script's own memory
}

// clearAway kills what is left, reads what was used, and removes the cgroup and the script.
func (n *Noded) clearAway(ctx context.Context, c *clearing) msgCleared {
	m := msgCleared{key: c.key, told: c.ended != nil}
	use, err := n.groups.finish(ctx, c)
	if err != nil {
		m.left = err
		return m
	}
	if n.groups.root.Can().CountsBelow {
		if here := c.steps.Node(n.opts.Name); here != nil {
			use.oomKills = max(use.oomKills-int64(here.OOMKills), 0)
		}
	}
	if err := n.scripts.release(c.script); err != nil {
		n.log.Warn("a script was not removed", "err", err)
	}
	seen := n.sampler.end(wholeJob(c.key))
	m.exit = exitOf(c.ended, use)
	m.exit.Use = usedBy(c, use, m.exit, seen)
	withSteps(&m.exit, c, use, seen)
	line, oom := n.epitaph(c, use, seen)
	m.exit.Text = orElse(m.exit.Text, oom)
	if line != "" {
		n.tellUser(c.rec, line)
	}
	return m
}

// usage is what an attempt used, as far as its cgroup tells.
type usage struct {
	known    bool
	userMS   int64
	sysMS    int64
	peakKB   int64
	oomKills int64
	limitKB  int64 // the memory limit, where processes were killed for it
}

// usedBy puts together what the kernel has counted until the end and what samples have found; nil where nothing is known.
func usedBy(c *clearing, use usage, x model.Exit, seen *sampled) *model.Usage {
	var u model.NodeUsage
	switch {
	case seen != nil:
		u = seen.use
	case c.rec != nil && c.rec.Use != nil:
		u = *c.rec.Use
	default:
		return nil
	}
	if !use.known && (c.ended == nil || c.ended.Kind != shim.Exited) {
		return nil
	}
	u.UserMS, u.SysMS = max(u.UserMS, x.UserMS), max(u.SysMS, x.SysMS)
	u.PeakKB = max(u.PeakKB, x.MaxRSSKB)
	u.OOMKills = int32(use.oomKills)
	if ev := c.ended; ev != nil && ev.Kind == shim.Exited {
		u.ReadB, u.WriteB, u.Faults = max(u.ReadB, ev.ReadB), max(u.WriteB, ev.WriteB), max(u.Faults, ev.Faults)
	}
	return &model.Usage{Nodes: []model.NodeUsage{u}}
}

// exitOf makes the exit of what gshim saw and what the cgroup counted.
func exitOf(ev *shim.Event, use usage) model.Exit {
	var x model.Exit
	switch {
	case ev == nil: // the caller says whether it ran
	case ev.Kind == shim.LaunchFailed:
		x = failedExit(ev)
	case ev.Unknown:
		x.Unknown = true
		x.Text = "exit status unknown: " + orElse(ev.Text, "the launcher was lost while the job ran")
	default:
		x.Code, x.Signal = int32(ev.Code), int32(ev.Signal)
	}
	if ev != nil && ev.Kind == shim.Exited {
		x.UserMS, x.SysMS, x.MaxRSSKB = ev.UserCPU.Milliseconds(), ev.SysCPU.Milliseconds(), ev.MaxRSSKB
	}
	if use.known {
		x.UserMS, x.SysMS = max(x.UserMS, use.userMS), max(x.SysMS, use.sysMS)
		if use.peakKB > 0 {
			x.MaxRSSKB = use.peakKB
		}
		if use.oomKills > 0 {
			x.OOM = true
		}
	}
	return x
}

// withEnd puts how a job ended into an exit that was made before that was known.
func withEnd(x model.Exit, ev *shim.Event) model.Exit {
	end := exitOf(ev, usage{})
	end.UserMS, end.SysMS, end.MaxRSSKB = max(end.UserMS, x.UserMS), max(end.SysMS, x.SysMS), max(end.MaxRSSKB, x.MaxRSSKB)
	end.OOM, end.Use, end.Text = x.OOM, x.Use, orElse(end.Text, x.Text)
	return end
}

// failedExit is the end of a job that was wrong in itself: its files can't be opened, its interpreter isn't there. It
// counts as run, as in Slurm: another node would not do better.
func failedExit(ev *shim.Event) model.Exit {
	if ev.Stage == shim.StageExec {
		return model.Exit{Code: int32(ev.Errno & 0xff), Text: ev.Text, NoStart: true}
	}
	return model.Exit{Signal: signalNoIO, Text: ev.Text, NoStart: true}
}

// ownFault reports whether a failed launch is the job's fault, not the node's.
func ownFault(ev *shim.Event) bool {
	switch ev.Stage {
	case shim.StageStdin, shim.StageStdout, shim.StageStderr:
		return true
	case shim.StageExec:
		return ev.Errno != unix.EACCES || strings.Contains(ev.Text, "interpreter")
	}
	return false
}

// epitaph is the last line that the user finds in the job's standard error, if there is one to write. oom says the same of a
// job that ran out of memory for its record.
func (n *Noded) epitaph(c *clearing, use usage, seen *sampled) (line, oom string) {
	switch {
	case c.rec == nil:
	case use.oomKills > 0:
		events := "event"
		if use.oomKills > 1 {
			events = "events"
		}
		told := n.oomSentence(c, use, seen)
		return fmt.Sprintf("slurmstepd: error: Detected %d oom_kill %s in StepId=%d.batch. Some of the step tasks have been OOM Killed.\n%s",
			use.oomKills, events, c.key.Job, told), strings.TrimPrefix(told, oomPrefix)
	case c.ended != nil && c.ended.Kind == shim.LaunchFailed && ownFault(c.ended):
		return "slurmstepd: error: " + c.ended.Text, ""
	}
	return "", ""
}

// onCleared reports the end of an attempt of which nothing is left, or tries again.
func (l *loop) onCleared(m msgCleared) error {
	a := l.attempts[m.key]
	if a == nil || a.phase != ending {
		return nil
	}
	if m.left != nil {
		return l.clearLater(a, m.left)
	}
	if a.forget && !a.hasEpilog() {
		return l.dropForgotten(a)
	}
	if a.ended != nil && !m.told { // gshim said it while the rest was being cleared away
		m.exit = withEnd(m.exit, a.ended)
	}
	r := &proto.Report{Kind: proto.ReportEnded, Exit: m.exit}
	switch {
	case a.lateStart && a.began == 0:
		r = &proto.Report{Kind: proto.ReportLaunchFailed, Text: "the script did not start within BatchStartTimeout: its directory or its files hang"}
	case a.ended == nil && a.rebooted:
		r.Exit.Unknown, r.Exit.Text = true, "exit status unknown: the node was rebooted while the job was on it"
	case a.ended == nil && a.began == 0 && (a.rec == nil || a.rec.Started == 0): // stopped before it ran
	case a.ended == nil:
		r.Exit.Unknown = true
		r.Exit.Text = "exit status unknown: the launcher lost its records while the job ran"
	case a.ended.Kind == shim.LaunchFailed && !ownFault(a.ended):
		r = &proto.Report{Kind: proto.ReportLaunchFailed, Text: a.ended.Text}
	}
	if a.ended != nil && !a.ended.Ended.IsZero() {
		r.At = model.Time(a.ended.Ended.UnixMilli())
	}
	if a.released && r.Kind == proto.ReportEnded {
		r.Exit.Code, r.Exit.Signal, r.Exit.Unknown = a.code, 0, false
	}
	if a.hasEpilog() {
		return l.epilogBegins(a, r)
	}
	return l.finish(a, r)
}

// clearLater tries again to clear an attempt away, and says so from time to time.
func (l *loop) clearLater(a *attempt, left error) error {
	now := l.now()
	if a.asked.IsZero() {
		a.asked, a.warned = now, now
	}
	if err := l.survives(a, left); err != nil {
		return err
	}
	if now.Sub(a.warned) > warnEvery {
		a.warned = now
		l.log.Error("a job has ended and something of it is still there; its resources stay taken", "job", a.key.Job, "attempt", a.key.Attempt,
			"since", a.asked, "left", left)
	}
	d := min(clearAgainMin<<min(a.tries, 10), clearAgainMax)
	a.tries++
	key := a.key
	if a.kill != nil {
		a.kill.Stop()
	}
	a.kill = time.AfterFunc(d, func() { l.n.inbox.post(msgClear{key}) })
	return nil
}

// finish makes the last report of an attempt. gshim may forget it once the report is on disk.
func (l *loop) finish(a *attempt, r *proto.Report) error {
	a.phase, a.launch, a.order = over, nil, nil
	if a.kill != nil {
		a.kill.Stop()
	}
	r.Job, r.Attempt = a.key.Job, a.key.Attempt
	key := shimKey(a.key)
	l.then(func() { l.n.link.ack(key) })
	return l.report(r)
}

func orElse(s, other string) string {
	if s != "" {
		return s
	}
	return other
}
