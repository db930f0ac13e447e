package noded

import (
	"context"
	"errors"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/gpuoom"
	"gbatch/noded/pool"
	"gbatch/noded/shim"
)

// reap.go ends an attempt whose script has ended or never ran: it kills and removes everything that the attempt left,
// and makes the report that frees its resources. The report is on disk before gshim is told that it may forget the exit
// status, and stays there until the leader has it in its log.

const (
	clearAgainMin = 20 * time.Millisecond // between two tries to clear an attempt away
	clearAgainMax = 5 * time.Second
)

// startedLate reports whether the script was given up since it did not start: the end of a script that was killed
// between fork and exec looks like that of one that has run.
func (a *attempt) startedLate() bool { return a.rec != nil && a.rec.Late }

// clear makes a worker read an attempt's usage and remove what it left. The first try is quick; further tries may wait
// for processes that don't die, but don't block a worker. It is called again when the last step has ended.
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
		job.gpuOOM = k.launched.GPUOOM
	}
	l.soon(func() {
		by := l.n.stops
		if job.tries == 0 {
			by = l.n.workers
		}
		by.Do(func(ctx context.Context) {
			defer pool.Or(func(err error) { l.n.inbox.post(msgCleared{key: job.key, left: err}) })
			l.n.inbox.post(l.n.clearAway(ctx, &job))
		})
	})
}

// clearing is what a worker needs to end an attempt.
type clearing struct {
	key   proto.Attempt
	rec   *launched
	ended *shim.Event
	began model.Time
	tries int

	steps  *model.Usage // what its ended steps used; nil: it had none
	own    ownUse       // what the spool has of its script's own memory
	gpuOOM string       // see launched
}

// clearAway kills what is left, reads what was used, and removes the cgroup.
func (n *Noded) clearAway(ctx context.Context, c *clearing) msgCleared {
	m := msgCleared{key: c.key, told: c.ended != nil}
	if n.helperStops(ctx, c.key) {
		m.left = errors.New("the program of GresHelper is told to end")
		return m
	}
	use, err := n.groups.finish(ctx, c)
	if err == nil {
		err = errors.Join(n.endPrograms(ctx, c.key, c.rec, stageProlog), n.dropMounts(c.key),
			n.helpers.Remove(helped(c.key)))
	}
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
	if story := n.gpuOOM(c, &m.exit); story != "" {
		m.exit.GPUOOM, m.exit.Text = true, orElse(m.exit.Text, story)
		line = gpuoom.Mark + " " + story
	}
	if line != "" {
		n.tellUser(c.rec, line)
	}
	return m
}

// onCleared continues when a worker has removed an attempt's remains, or could not.
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

// cleared continues with the epilog, or with the end. The script file is released even if processes survive.
func (l *loop) cleared(a *attempt, r *proto.Report) error {
	if script := a.script; script != "" {
		a.script = ""
		l.soon(func() {
			l.n.workers.Do(func(context.Context) {
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
		r = &proto.Report{Kind: proto.ReportLaunchFailed, Text: a.ended.Text,
			Taken: a.ended.Stage == shim.StageJournal} // see taken
	}
	if a.ended != nil && !a.ended.Ended.IsZero() {
		r.At = model.Time(a.ended.Ended.UnixMilli())
	}
	if s := a.stop; s != nil && s.Cause == model.StopGivenBack { // for the epilog, and for what is said of the end
		r.Exit.Code, r.Exit.Signal = s.Code, 0
	}
	oomExit(&r.Exit)
	r.Exit.Text = orElse(r.Exit.Text, a.overfull)
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
		l.log.Error("a job has ended but its processes or files remain; its resources stay allocated", "job", a.key.Job,
			"attempt", a.key.Attempt,
			"since", a.cleared, "left", left)
	}
	l.setDeadline(a, min(clearAgainMin<<min(a.tries, 10), clearAgainMax))
	a.tries++
	return nil
}

// finish makes the last report of an attempt, or forgets an attempt that is not to be reported. gshim may forget it
// once the report is on disk.
func (l *loop) finish(a *attempt, r *proto.Report) error {
	a.launch, a.order = nil, nil
	if a.will != wanted {
		if !a.endedBefore() || r.Kind != proto.ReportEnded || a.again != nil || l.leftovers[a.key] {
			return l.dropForgotten(a)
		}
		a.will = wanted
		l.then(l.n.beatNow) // the leader may wait for it with new work
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
