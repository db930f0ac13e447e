package noded

import (
	"context"
	"errors"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// shimnews.go handles gshim's news about attempts: its list when a connection is made, and each start and end.

// onLink handles gshim's list after a new connection: all processes that it runs, and all ends that were not
// acknowledged. Running attempts that are not in the list were lost with gshim's journal.
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
			l.n.stops.Do(func(ctx context.Context) {
				if err := errors.Join(l.n.groups.sweep(ctx, keys), l.n.sweepMounts(keys)); err != nil {
					l.log.Warn("processes or control groups of unknown jobs could not be removed", "err", err)
				}
			})
		})
	}
	return nil
}

// notListed continues an attempt after gshim's list, which has the attempt or not.
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
		l.log.Error("gshim does not know a job that was running; its exit status is lost", "job", a.key.Job, "attempt",
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
		if isHelper(events[i].Key) {
			l.onHelper(&events[i])
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
	case ev.Unseen() && a.phase == accepted && !l.swept && !l.hailed && a.will == wanted && a.hasScript():
		l.log.Warn("all processes of a job ended with gnoded and gshim; the controller takes it for lost with the node",
			"job", key.Job, "attempt", key.Attempt)
		a.origin, a.will = beforeKill, unwanted
		return l.happens(a, evLost, news{})
	case ev.Done():
		return l.happens(a, evEnded, news{ev: ev})
	}
	return l.happens(a, evStarted, news{ev: ev})
}

// stray handles an event of an unknown attempt. If it was forgotten, it is ended. Otherwise the spool was lost while
// gshim kept running: the attempt is adopted, and the leader decides about it.
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
	l.log.Warn("gshim has a job that is not in the spool; gnoded adds it", "job", key.Job, "attempt", key.Attempt)
	rec := &launched{Job: key.Job, Attempt: key.Attempt, At: l.stamp()}
	if err := l.spool.add(recLaunch, rec, true); err != nil {
		return nil, err
	}
	a := &attempt{key: key, rec: rec, phase: accepted}
	l.attempts[key] = a
	return a, nil
}

// lostInReboot clears away an attempt that was running when the machine went down. The leader learns of it because
// Hello does not list it. If an epilog has to run, it learns of it by a report of an unknown end after the epilog:
// until then its resources are not free. On the job's other nodes the leader waits for no report: such a node doesn't
// register before its epilogs have run (owed).
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

// listWait is how long a new gnoded waits for gshim's list before it registers: only until then it can leave out the
// jobs that were killed with the node.
const listWait = 10 * time.Second

// owed counts the attempts that have to be over before the node registers: those from before a reboot whose epilog has
// not run and for which only this node waits, and those that were killed with all of the node, so that nothing of them
// is left when the leader puts their jobs back.
func (l *loop) owed() int {
	n := 0
	for _, a := range l.attempts {
		switch {
		case a.phase == over:
		case a.origin == beforeKill, a.origin == beforeBoot && !a.hasScript() && a.hasEpilog(),
			!l.swept && a.origin == fresh && a.phase == accepted && a.hasScript() && l.now().Sub(l.began) < listWait:
			n++
		}
	}
	return n
}

// begin records that an attempt runs.
func (l *loop) begin(a *attempt, ev *shim.Event) error {
	first := a.began == 0
	if first {
		l.logNotes(a, ev)
	}
	a.order, a.launch = nil, nil
	a.began, a.pid = model.Time(ev.Started.UnixMilli()), ev.PID
	if first && a.phase == running {
		for _, s := range a.signals {
			l.signal(a, s)
		}
	}
	a.signals = nil
	l.chill(a)
	if a.rec != nil {
		l.n.sampler.begin(wholeJob(a.key), a.rec.Use, a.began, ev.PID, 0, 0)
		l.n.sampler.restore(a.rec)
		if first {
			l.watchScript(a)
		}
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

// noteEnd records the end of an attempt's script; ev is nil if the end is not known.
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
