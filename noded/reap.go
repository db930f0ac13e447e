package noded

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// reap.go ends an attempt: gshim's word that the script is over, what it used, the end of everything that it left
// behind, and the one report that frees its resources. The report is on disk before gshim is told that it may forget
// the exit status, and stays there until the leader has it in its log.

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
		if a.runsPrograms() && (int(a.rec.Index) >= len(a.rec.List) || !programs[programKey(a.key, a.rec)]) {
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
		if err := l.notListed(a, listed[key]); err != nil {
			return err
		}
	}
	l.then(func() { l.n.link.launch(orders...) })
	if !l.swept {
		l.swept = true
		keys := make([]proto.Attempt, 0, len(l.attempts))
		for key, a := range l.attempts {
			if a.phase != over { // what an attempt left that was abandoned is ended like what nobody remembers
				keys = append(keys, key)
			}
		}
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

// notListed does what follows for an attempt when gshim has listed what it has: this attempt, or not.
func (l *loop) notListed(a *attempt, listed bool) error {
	switch {
	case listed && a.phase == belated: // an earlier gnoded gave it up
		l.kill(a)
		return nil
	case listed:
		return nil
	case a.origin == beforeBoot && (a.phase == accepted || a.phase == belated || a.phase == interrupted):
		return l.lostInReboot(a)
	case a.phase == running || a.phase == stopping || a.phase == killing || a.phase == accepted && a.rec != nil &&
		a.rec.Started != 0:
		l.log.Error("gshim knows nothing of a job that was running; its exit status is lost", "job", a.key.Job, "attempt",
			a.key.Attempt)
		return l.happens(a, evLost, news{})
	}
	return l.happens(a, evMissing, news{})
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
	case a.origin == beforeBoot && (a.phase == accepted || a.phase == belated || a.phase == interrupted) &&
		(!ev.Done() || ev.Unknown):
		return l.lostInReboot(a)
	case ev.Done():
		return l.happens(a, evEnded, news{ev: ev})
	}
	return l.happens(a, evStarted, news{ev: ev})
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
// absence from Hello; where an epilog is owed, by a report of an end that nobody saw, when the epilog has run: until
// then the node has no place for others. On nodes other than that of the script the leader knows more than this one
// and waits for no report: there the node doesn't register before its epilogs have run (owed).
func (l *loop) lostInReboot(a *attempt) error {
	if !a.hasScript() || !a.hasEpilog() {
		a.will = max(a.will, unwanted)
	}
	return l.happens(a, evLost, news{})
}

// hasScript reports whether the attempt's script was for this node.
func (a *attempt) hasScript() bool {
	return a.rec != nil && a.rec.Order != nil && a.rec.Order.Node == 0
}

// owed counts the attempts from before a reboot whose epilog has not run and is nobody's but this node's to wait for.
func (l *loop) owed() int {
	n := 0
	for _, a := range l.attempts {
		if a.origin == beforeBoot && a.phase != over && !a.hasScript() && a.hasEpilog() {
			n++
		}
	}
	return n
}

// begin takes note that an attempt runs.
func (l *loop) begin(a *attempt, ev *shim.Event) error {
	first := a.began == 0
	if first {
		l.logNotes(a, ev)
	}
	a.order, a.launch = nil, nil
	a.began = model.Time(ev.Started.UnixMilli())
	if first && a.phase == running {
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
	if k := l.spool.mem.attempts[a.key]; k != nil && k.launched != nil && k.launched.Started != 0 || a.will != wanted {
		return nil // reported before a restart, or of no interest
	}
	return l.report(&proto.Report{Kind: proto.ReportStarted, Job: a.key.Job, Attempt: a.key.Attempt, At: a.began})
}

// logNotes says what gshim could not do as the job asked.
func (l *loop) logNotes(a *attempt, ev *shim.Event) {
	for _, note := range ev.Notes {
		l.log.Warn("a job started with less than it asked for", "job", a.key.Job, "attempt", a.key.Attempt, "note", note)
	}
}

// noteEnd keeps how an attempt's script ended; ev is nil where nobody saw it.
func (l *loop) noteEnd(a *attempt, ev *shim.Event) {
	if ev == nil {
		return
	}
	if ev.Kind == shim.LaunchFailed {
		l.log.Warn("a job could not be started", "job", a.key.Job, "attempt", a.key.Attempt, "why", ev.Text)
	}
	if a.began == 0 { // its start was not told apart
		l.logNotes(a, ev)
	}
	a.ended, a.order, a.launch = ev, nil, nil
	if !ev.Started.IsZero() && !a.startedLate() {
		a.began = model.Time(ev.Started.UnixMilli())
	}
}

// startedLate reports whether the script was given up since it did not start: between fork and exec the end of one
// that was killed looks like that of one that has run.
func (a *attempt) startedLate() bool { return a.rec != nil && a.rec.Late }

// clear has a worker take stock of an attempt and remove what it left. The first try is quick; those after it may have
// to wait for processes that don't die, and don't hold up a worker. With the end of its last step it is called again.
func (l *loop) clear(a *attempt) {
	if l.endSteps(a) {
		return
	}
	if a.cleared.IsZero() {
		a.cleared, a.warned = l.now(), l.now()
	}
	if a.phase == ending {
		l.setDeadline(a, l.n.unkillable()+abandonWait)
	}
	job := clearing{key: a.key, rec: a.rec, ended: a.ended, began: a.began, tries: a.tries}
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
	key   proto.Attempt
	rec   *launched
	ended *shim.Event
	began model.Time
	tries int

	steps *model.Usage // what its ended steps used; nil: it had none
	own   ownUse       // what the spool has of its script's own memory
}

// clearAway kills what is left, reads what was used, and removes the cgroup.
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

// usedBy puts together what the kernel has counted until the end and what samples have found; nil where nothing is
// known.
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

// epitaph is the last line that the user finds in the job's standard error, if there is one to write. oom says the
// same of a job that ran out of memory for its record.
func (n *Noded) epitaph(c *clearing, use usage, seen *sampled) (line, oom string) {
	switch {
	case c.rec == nil:
	case use.oomKills > 0:
		events := "event"
		if use.oomKills > 1 {
			events = "events"
		}
		told := n.oomSentence(c, use, seen)
		return fmt.Sprintf("slurmstepd: error: Detected %d oom_kill %s in StepId=%d.batch. Some of the step tasks have "+
			"been OOM Killed.\n%s",
			use.oomKills, events, c.key.Job, told), strings.TrimPrefix(told, oomPrefix)
	case c.ended != nil && c.ended.Kind == shim.LaunchFailed && ownFault(c.ended):
		return "slurmstepd: error: " + c.ended.Text, ""
	}
	return "", ""
}

// onCleared goes on when a worker has cleared an attempt away, or could not.
func (l *loop) onCleared(m msgCleared) error {
	a := l.attempts[m.key]
	switch {
	case a == nil || a.phase != ending && a.phase != abandoned:
		return nil
	case m.left != nil:
		return l.happens(a, evLeft, news{left: m.left})
	case a.ended != nil && !m.told: // gshim said it while the rest was being cleared away
		m.exit = withEnd(m.exit, a.ended)
	}
	return l.cleared(a, l.endReport(a, m.exit))
}

// cleared goes on to the epilog, or to the end. Whatever survives of the attempt, its script file is given back.
func (l *loop) cleared(a *attempt, r *proto.Report) error {
	if script := a.script; script != "" {
		a.script = ""
		l.soon(func() {
			l.n.workers.do(func(context.Context) {
				if err := l.n.scripts.Release(script); err != nil {
					l.log.Warn("a script was not removed", "err", err)
				}
			})
		})
	}
	if a.hasEpilog() {
		return l.happens(a, evEpilog, news{report: r})
	}
	return l.happens(a, evCleared, news{report: r})
}

// endReport makes the report of an attempt's end.
func (l *loop) endReport(a *attempt, exit model.Exit) *proto.Report {
	r := &proto.Report{Kind: proto.ReportEnded, Exit: exit}
	switch {
	case a.startedLate() && a.began == 0:
		r = &proto.Report{Kind: proto.ReportLaunchFailed,
			Text: "the script did not start within BatchStartTimeout: its directory or its files hang"}
	case a.ended == nil && a.origin == beforeBoot:
		r.Exit.Unknown, r.Exit.Text = true, "exit status unknown: the node was rebooted while the job was on it"
	case a.ended == nil && a.began == 0 && (a.rec == nil || a.rec.Started == 0): // stopped before it ran
	case a.ended == nil && a.phase == abandoned:
		r.Exit.Unknown, r.Exit.Text = true, "exit status unknown: processes of the job survive SIGKILL"
	case a.ended == nil:
		r.Exit.Unknown = true
		r.Exit.Text = "exit status unknown: the launcher lost its records while the job ran"
	case a.ended.Kind == shim.LaunchFailed && !ownFault(a.ended):
		r = &proto.Report{Kind: proto.ReportLaunchFailed, Text: a.ended.Text}
	}
	if a.ended != nil && !a.ended.Ended.IsZero() {
		r.At = model.Time(a.ended.Ended.UnixMilli())
	}
	if a.exit != nil && r.Kind == proto.ReportEnded {
		r.Exit.Code, r.Exit.Signal, r.Exit.Unknown = *a.exit, 0, false
	}
	if x := &r.Exit; x.Text == "" && x.Code != 0 && x.Code == a.fault.Code {
		x.Text = a.fault.Text // as a rule that is what the script ended with
	}
	return r
}

// clearLater tries again to clear an attempt away, and says so from time to time.
func (l *loop) clearLater(a *attempt, left error) error {
	if l.hopeless(a) {
		return l.happens(a, evGiveUp, news{left: left})
	}
	if now := l.now(); now.Sub(a.warned) > warnEvery {
		a.warned = now
		l.log.Error("a job has ended and something of it is still there; its resources stay taken", "job", a.key.Job,
			"attempt", a.key.Attempt,
			"since", a.cleared, "left", left)
	}
	l.setDeadline(a, min(clearAgainMin<<min(a.tries, 10), clearAgainMax))
	a.tries++
	return nil
}

// finish makes the last report of an attempt, or forgets one that nobody wants to hear of. gshim may forget it once the
// report is on disk.
func (l *loop) finish(a *attempt, r *proto.Report) error {
	a.launch, a.order = nil, nil
	if a.will != wanted {
		return l.dropForgotten(a)
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
