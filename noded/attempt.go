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

// attempt.go has an attempt of a job on this node, and the only function that changes its phase: happens looks up the
// state table (attemptstate.go), enters the next phase with its deadline, and carries out the table's act.

// attempt is one start of a job on this node. Only the loop's goroutine uses it; workers get copies of the data that
// they need.
type attempt struct {
	key    proto.Attempt
	rec    *launched // nil for an attempt that is only reported
	phase  phase
	upTo   phase  // the phase that the leader asks for: ready, or running
	since  uint32 // NodeAlloc.Since of the part that it is
	will   will
	origin origin

	launch *proto.Launch // set until its order is made
	order  *shim.Launch  // set until it runs, to be sent again if gshim's connection breaks
	script string        // its script file, kept until it has ended

	chill   chill         // its suspension, present and ordered
	stop    *proto.Stop   // the leader wants it ended
	signals []*proto.Stop // to be sent when it runs
	again   *proto.Launch // an order with the same number, to be carried out when this attempt is gone
	ended   *shim.Event   // how its script ended; nil if that is not known
	began   model.Time    // when its script started, 0 before
	pid     int           // of its script, 0 before
	fault   model.Exit    // of its last step that could not be run; Text is "" if there was none

	overfull string // why its script was ended: its container has written too much

	deadline  deadline   // of its phase
	leave     func()     // phase preparing, waiting for an image: nobody waits for its order any more
	killed    time.Time  // when it was first sent SIGKILL
	cleared   time.Time  // when the removal of what it left began
	warned    time.Time  // when the log last said that something of it does not end
	forgotten model.Time // when the leader said that it does not know it

	tries   int  // tries to remove what it left
	drained bool // the node was drained for processes that survive SIGKILL

	program program

	steps     map[int32]*step // by number: steps that have resources
	queue     []*step         // steps that wait for resources
	nextStep  int32
	shellMade bool    // it has or had its interactive step
	missed    []*step // steps that ended while their commands had no connection
}

// endedBefore reports whether the script had ended by itself before the leader said that it does not know the attempt.
func (a *attempt) endedBefore() bool {
	return a.will == unwanted && a.origin != beforeBoot && a.ended != nil && !a.ended.Ended.IsZero() &&
		model.Time(a.ended.Ended.UnixMilli()) < a.forgotten
}

// will says whether an attempt is to be reported.
type will uint8

const (
	wanted   will = iota
	unwanted      // the leader does not know it: it is ended, and not reported unless it had ended before
	foreign       // the same, because it belongs to another instance of the cluster
)

// origin is how an attempt has come to this gnoded.
type origin uint8

const (
	fresh      origin = iota // it was ordered, or was there when gnoded started
	beforeBoot               // it is from before the machine's last boot: only an end that gshim saw counts
	beforeKill               // gnoded, gshim and its script were killed under the same boot, as by a container's restart
)

// stepBatch is the step number of batch scripts, as in Slurm.
const stepBatch = -5

func shimKey(k proto.Attempt) shim.Key {
	return shim.Key{JobID: uint32(k.Job), Attempt: k.Attempt, Step: stepBatch}
}

// alive reports whether the attempt has, or may have, processes.
func (a *attempt) alive() bool {
	switch a.phase {
	case prologue, curbed, ready, ordered, recalled, belated, running, stopping, killing, ending, abandoned, epilogue:
		return true
	}
	return false
}

// runs reports whether its script runs.
func (a *attempt) runs() bool { return a.phase == running || a.phase == stopping || a.phase == killing }

func (a *attempt) stopTimers() {
	a.deadline.stop()
	a.program.look.stop()
}

// doomed reports whether the attempt is being ended, or has an order to end.
func (a *attempt) doomed() bool {
	return a.stop != nil || a.will != wanted || a.phase == belated || a.phase >= ending
}

// news is the data of a happening; most have none.
type news struct {
	ev     *shim.Event   // evStarted, evEnded
	launch *proto.Launch // evLaunch, evPrepare
	sig    *proto.Stop   // evKill, evSignal
	text   string        // evNotMade, evFault: why
	own    bool          // evNotMade: it is the job's fault
	taken  bool          // evNotMade: it is given back
	report *proto.Report // evCleared, evEpilog: the end to report
	left   error         // evLeft: what could not be removed
}

// msgDeadline is the timer of an attempt's phase.
type msgDeadline struct {
	key  proto.Attempt
	turn uint64
}

// happens moves an attempt to the next phase of the table, and carries out the table's act.
func (l *loop) happens(a *attempt, e happening, in news) error {
	c := attemptTable[a.phase][e]
	from := a.phase
	a.phase = c.next
	if c.next != from {
		l.setDeadline(a, l.patienceOf(a))
		if from == preparing && a.leave != nil {
			a.leave()
			a.leave = nil
		}
		if !a.runsPrograms() {
			l.serialEnds(a.key)
		}
	}
	return l.act(a, c.do, &in)
}

// act carries out an act of the state table.
func (l *loop) act(a *attempt, do act, in *news) error {
	switch do {
	case doNothing:
		return nil
	case doPrepare:
		l.prepare(a, in.launch)
	case doRepeat:
		return l.repeat(a)
	case doReplace:
		if a.will == wanted {
			return l.repeat(a)
		}
		a.again = in.launch
	case doKeepSignal:
		if len(a.signals) < maxSignals {
			a.signals = append(a.signals, in.sig)
		}
	case doSignal:
		l.signal(a, in.sig)
	case doSignalSteps:
		l.signalSteps(a, unix.Signal(in.sig.Signal))
	case doProlog:
		return l.prologBegins(a)
	case doCut:
		l.cutProlog(a)
	case doProgram:
		if err := l.nextProgram(a); err != nil {
			return err
		}
		l.cutProlog(a)
	case doReady:
		a.order = nil
		return l.report(&proto.Report{Kind: proto.ReportReady, Job: a.key.Job, Attempt: a.key.Attempt})
	case doOrder:
		return l.sendOrder(a)
	case doOrderAgain:
		order := a.order
		l.then(func() { l.n.link.launch(order) })
	case doNotMade:
		return l.notMade(a, in)
	case doFault:
		return l.prologFailed(a, in.text)
	case doBegin:
		return l.begin(a, in.ev)
	case doTerminate:
		if in.ev != nil {
			if err := l.begin(a, in.ev); err != nil {
				return err
			}
		}
		if a.will != wanted {
			return l.happens(a, evForget, news{})
		}
		l.terminate(a)
	case doKill:
		l.kill(a)
	case doKillLate:
		return l.lateStart(a)
	case doKillStray:
		key := a.key
		l.then(func() { l.killStray(key) })
	case doClear:
		l.noteEnd(a, in.ev)
		l.clear(a)
	case doKillSteps:
		l.killSteps(a)
	case doNoteEnd:
		if a.ended == nil {
			l.noteEnd(a, in.ev)
		}
	case doAgain:
		return l.clearLater(a, in.left)
	case doGiveUp:
		return l.giveUp(a)
	case doLeave:
		return l.leave(a)
	case doEpilog:
		return l.epilogBegins(a, in.report)
	case doReport:
		return l.finish(a, in.report)
	case doLast:
		return l.epilogEnded(a)
	case doDrop:
		return l.dropForgotten(a)
	case doAck:
		key := shimKey(a.key)
		l.then(func() { l.n.link.ack(key) })
	default:
		return fmt.Errorf("job %d: %v in phase %v has no action", a.key.Job, do, a.phase)
	}
	return nil
}

// patienceOf gives the time until a phase's deadline; 0 if it has none or sets its own.
func (l *loop) patienceOf(a *attempt) time.Duration {
	switch a.phase {
	case preparing:
		if a.rec != nil && a.rec.Order != nil && wishOfJob(a.rec.Order.Spec) != nil {
			return imageWait
		}
		return makeWait
	case unmaking:
		return l.n.unkillable()
	case curbed:
		return killWait(a.stop) + l.n.unkillable() + 2*killAgain
	case ordered:
		if r := l.n.rules.Load(); r != nil {
			return time.Duration(r.BatchStartS) * time.Second
		}
	case recalled:
		return killWait(a.stop)
	case stopping:
		return killWait(a.stop)
	case belated, killing:
		return killAgain
	case abandoned:
		return abandonWait
	}
	return 0
}

// setDeadline arms the timer of the attempt's phase; 0 stops it.
func (l *loop) setDeadline(a *attempt, d time.Duration) {
	a.deadline.arm(l.n.inbox, d, func(turn uint64) any { return msgDeadline{a.key, turn} })
}

// onDeadline handles a phase's deadline. Processes that survive SIGKILL for too long are given up.
func (l *loop) onDeadline(m msgDeadline) error {
	a := l.attempts[m.key]
	if a == nil || a.deadline.turn != m.turn {
		return nil
	}
	if l.hopeless(a) {
		return l.happens(a, evGiveUp, news{})
	}
	why := fmt.Sprintf("node %s could not make the job's script and control group within %v", l.n.opts.Name, makeWait)
	if a.phase == prologue {
		why = fmt.Sprintf("the programs of Prolog (%s) could not be listed within %v",
			strings.Join(a.rec.Facts.Prolog, ", "), findWait)
	}
	return l.happens(a, evDeadline, news{text: why})
}

// hopeless reports whether something of the attempt has survived SIGKILL for UnkillableStepTimeout.
func (l *loop) hopeless(a *attempt) bool {
	since := a.killed
	if since.IsZero() {
		since = a.cleared // removing kills too
	}
	return !since.IsZero() && l.now().Sub(since) >= l.n.unkillable()
}

// killStray ends processes that should not be there.
func (l *loop) killStray(key proto.Attempt) {
	l.n.stops.Do(func(ctx context.Context) { l.n.sendSignal(ctx, key, unix.SIGKILL, shim.Tree) })
}

// unkillable is how long the node waits for processes that survive SIGKILL.
func (n *Noded) unkillable() time.Duration {
	if r := n.rules.Load(); r != nil && r.UnkillableS > 0 {
		return time.Duration(r.UnkillableS) * time.Second
	}
	return unkillableDefault
}
