package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/env"
	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// talk.go is grun while its step runs: it handles the daemon's events and signals.

const (
	rejoinSay   = 10 * time.Second       // when grun says that a daemon is away, and how often it asks for the job
	rejoinPace  = 200 * time.Millisecond // between two tries
	againWithin = time.Second            // time for the second Ctrl-C
	gatherExits = 50 * time.Millisecond  // ends of tasks within this time share a line
	drainOutput = 2 * time.Second        // for more output when the step has ended
)

// talk is one step as grun sees it.
type talk struct {
	*run
	steps     *steps
	dir, node string
	conn      *client.Steps
	away      absence
	over      bool             // nothing more is heard of it
	made      *proto.StepEvent // StepCreated
	het       *proto.StepHet   // nil: the command has no other step

	id      int32 // StepNone before it has one
	layout  []proto.StepNode
	tasks   []taskSeen
	left    int // tasks that have not ended
	pl      *plumbing
	rc      int
	exits   []*proto.StepEvent // not told yet
	toldEnd string             // what was told last of how tasks ended
	waited  string
	aborted bool // the end of the step was requested
	intAt   time.Time
	intSent bool

	killWaitS int64 // KillWait of the cluster, seconds; 0: unknown

	signalled bool // a task was ended by SIGTERM or SIGKILL
	failed    bool // a task failed, and so the others are ended
	cancelled bool // and the node has given the reason

	isRaw  bool      // the user's terminal passes keys on
	stderr io.Writer // the stream for messages before isRaw
}

// absence is what grun does while the step's daemon is away.
type absence struct {
	tried time.Time // when it last looked for it
	ask   time.Time // when it asks next whether the job has ended; zero: the daemon is there
	said  bool      // the user has been told
}

type taskSeen struct {
	node           string
	started, ended bool
	bad            bool // ended, by a signal or with an exit code that is not 0
	lost           bool // ended with its node, and the step goes on (--no-kill)
}

// ask sends the request over a new connection.
func (t *talk) ask() error {
	c, err := t.dial(t.dir, t.node)
	if err != nil {
		return err
	}
	if err := c.Send(proto.StepFrameRequest, &t.rq, nil); err != nil {
		return err
	}
	t.conn = c
	go func() {
		for {
			ev, err := c.Read()
			t.steps.news <- heard{t, ev, err}
			if err != nil {
				return
			}
		}
	}()
	return nil
}

// rejoin connects again to a daemon that was away: the step goes on without it, and so grun waits for it as long as it
// takes. The end of the job, or a signal, ends the wait.
func (t *talk) rejoin(why error) error {
	t.conn.Free()
	if t.pl == nil || t.pl.remote != nil && t.pl.remote.silent() {
		t.unraw() // no task gets keys meanwhile: Ctrl-C is for grun
	}
	now := time.Now()
	if t.away.ask.IsZero() {
		t.away.ask = now.Add(rejoinSay)
	}
	for {
		if now.Sub(t.away.tried) >= rejoinPace {
			t.away.tried = now
			if err := t.ask(); err == nil {
				if t.steps.fed {
					t.raw()
				}
				return nil
			}
		}
		select {
		case sig := <-t.steps.signals:
			switch sig {
			case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
				return fmt.Errorf("node %s's daemon is gone (%v), and signal %d came while grun looked for it; what becomes of "+
					"StepId=%s is in accounting", t.node, why, sig, t.stepID())
			}
		case <-time.After(rejoinPace):
		}
		if now = time.Now(); now.Before(t.away.ask) {
			continue
		}
		if t.jobOver() {
			return fmt.Errorf("node %s's daemon is gone (%v), and the job has ended; what became of StepId=%s is in accounting",
				t.node, why, t.stepID())
		}
		if !t.away.said {
			t.away.said = true
			t.Errorf("node %s's daemon is gone (%v); StepId=%s goes on without it, and %s waits until it is back", t.node, why,
				t.stepID(), t.Program)
		}
		t.away.ask = now.Add(rejoinSay)
	}
}

// jobOver asks the controllers whether the step's job has ended. It is false if none answers.
func (t *talk) jobOver() bool {
	found, err := t.jobs(model.JobRef{Job: t.rq.Job, Task: model.NoTask})
	if err != nil {
		return env.Code(err) == uint16(proto.CodeInvalidJob) // it is forgotten
	}
	return !slices.ContainsFunc(found, func(j *model.Job) bool { return j.ID == t.rq.Job && !j.State.Finished() })
}

// take handles an event. If done, rc is the exit code.
func (t *talk) take(ev *proto.StepEvent) (done bool, rc int) {
	t.away = absence{}
	switch ev.Kind {
	case proto.StepWaits:
		if t.rq.Async {
			t.hasNumber(ev.Step)
		}
		if t.waited == "" && !t.quiet && t.immediate == 0 {
			fmt.Fprintf(t.Stderr, "%s: Job %d step creation temporarily disabled, retrying: %s\n", t.Program, t.rq.Job, ev.Text)
		}
		t.waited = ev.Text
	case proto.StepRefused:
		t.Errorf("%s", ev.Text)
		return true, t.Failed(1)
	case proto.StepCreated:
		t.hasNumber(ev.Step)
		if t.waited != "" && !t.quiet && t.id == proto.StepNone {
			fmt.Fprintf(t.Stderr, "%s: Step created for StepId=%s\n", t.Program, proto.StepID(t.rq.Job, ev.Step))
		}
		if err := t.created(ev); err != nil {
			t.Errorf("%s", err.Error())
			t.abort("")
			t.over = true
			t.steps.giveUp()
			return true, t.Failed(1)
		}
	case proto.StepLine:
		if strings.Contains(ev.Text, "error: *** STEP ") {
			if !t.cancelled && !t.aborted {
				t.sayAborted()
			}
			t.cancelled = true
		}
		fmt.Fprintln(t.Stderr, ev.Text)
	case proto.StepAway:
		if t.pl != nil && t.pl.remote != nil {
			t.pl.remote.tell(t.conn)
		}
	case proto.StepJoined:
		t.joined(ev.IO)
	case proto.StepStarted, proto.StepExited:
		t.task(ev)
	case proto.StepDone:
		if ev.OOM {
			t.rc = max(t.rc, 128+int(unix.SIGKILL))
		}
		if t.signalled && (t.failed || !t.aborted && !t.cancelled) && !t.quiet {
			t.tellExits()
			fmt.Fprintf(t.Stderr, "%s: Force Terminated StepId=%s\n", t.Program, t.stepID())
		}
		if ev.Cause == model.StopTimeLimit || t.aborted || t.left > 0 { // tasks that never began have not succeeded
			t.rc = max(t.rc, 1)
		}
		return true, t.rc
	}
	return false, 0
}

// created takes note of the step. When all steps of the command have been created, their tasks get files.
func (t *talk) created(ev *proto.StepEvent) error {
	if t.made == nil {
		n := 0
		for i := range ev.Layout {
			n += len(ev.Layout[i].Ranks)
		}
		t.made, t.id, t.layout, t.tasks, t.left = ev, ev.Step, ev.Layout, make([]taskSeen, n), n
		t.rq.Had = true
		if ev.Job != nil && !t.badSaid {
			t.killBad = ev.Job.KillBad
		}
		if ev.Job != nil && !t.waitSaid {
			t.waitS = ev.Job.WaitS
		}
		if ev.Job != nil {
			t.killWaitS = ev.Job.KillWaitS
		}
		if t.mpi == "" && ev.Job != nil {
			t.mpi = ev.Job.MPI
		}
		for i := range ev.Layout {
			for _, r := range ev.Layout[i].Ranks {
				if int(r) < n {
					t.tasks[r].node = ev.Layout[i].Node
				}
			}
		}
		if err := t.checkMulti(n); err != nil {
			return err
		}
	}
	if t.pl == nil {
		return t.steps.begin()
	}
	if len(t.pl.ends) == 0 && t.allStarted() {
		return nil // all tasks have their files already, and this process has closed its copies
	}
	return t.sendFiles()
}

// sendFiles gives the tasks their files. That the daemon has gone is the reader's to see: it looks for it again, and
// with the daemon's answer they are sent again.
func (t *talk) sendFiles() error {
	err := t.conn.Send(proto.StepFrameFiles, &t.pl.files, t.pl.fds)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}

// checkMulti gives an error if a task has no command.
func (t *talk) checkMulti(tasks int) error {
	if !t.multi {
		return nil
	}
	for rank := range int32(tasks) {
		if !slices.ContainsFunc(t.rq.Multi, func(m proto.StepProgram) bool { return m.Ranks.Has(rank) }) {
			return fmt.Errorf("Configuration file %s invalid, no record for task id %d", t.multiFile, rank)
		}
	}
	return nil
}

// warnMasks says once, with --verbose, that masked GPUs may keep NCCL from direct transfers between them.
func (t *talk) warnMasks() {
	b := &t.rq.Bind
	if t.verbose == 0 || t.quiet || b.GPU == proto.BindAuto || b.GPU == proto.BindNone {
		return
	}
	for i := range t.layout {
		gpus := 0
		for _, g := range t.layout[i].Gres {
			if g.Name == model.GPUName {
				gpus += g.Index.Count()
			}
		}
		if len(t.layout[i].Ranks) > 1 && gpus > 1 {
			fmt.Fprintf(t.Stderr, "%s: note: each task sees only the GPUs that it is bound to, so NCCL may do without direct "+
				"GPU to GPU transfers; --gpu-bind=none shows all of the step's GPUs to every task\n", t.Program)
			return
		}
	}
}

// lost goes on without a task of a node that has failed (--no-kill): it counts neither for the exit code nor for
// --kill-on-bad-exit and --wait.
func (t *talk) lost(s *taskSeen, ev *proto.StepEvent) {
	if !slices.ContainsFunc(t.tasks, func(o taskSeen) bool { return o.lost && o.node == s.node }) {
		t.Errorf("Node failure on %s", s.node)
	}
	s.ended, s.lost = true, true
	t.left--
	if t.steps.hub != nil {
		t.steps.hub.Ended(t.het.First() + ev.Task)
	}
}

func (t *talk) allStarted() bool {
	return !slices.ContainsFunc(t.tasks, func(s taskSeen) bool { return !s.started && !s.ended })
}

// task records a task's start or end.
func (t *talk) task(ev *proto.StepEvent) {
	if int(ev.Task) >= len(t.tasks) || ev.Task < 0 || t.pl == nil {
		return
	}
	s := &t.tasks[ev.Task]
	switch {
	case s.ended:
		return
	case ev.Kind == proto.StepStarted:
		s.started = true
		t.sayStarted(s.node)
	case ev.Lost:
		t.lost(s, ev)
	default:
		s.ended = true
		if t.steps.hub != nil {
			t.steps.hub.Ended(t.het.First() + ev.Task)
		}
		t.left--
		t.exits = append(t.exits, ev)
		rc := int(ev.Code)
		if ev.Signal != 0 {
			rc = 128 + int(ev.Signal)
			t.signalled = t.signalled || ev.Signal == int32(unix.SIGTERM) || ev.Signal == int32(unix.SIGKILL)
		}
		t.rc, s.bad = max(t.rc, rc), rc != 0
		if rc != 0 && t.killBad && !t.aborted {
			t.steps.killRest(t)
		}
		if t.steps.left() > 0 {
			t.steps.wait(t)
		}
	}
	if t.allStarted() {
		t.pl.closeEnds()
		t.steps.feed()
	}
}

// abort asks for the end of the step.
func (t *talk) abort(line string) {
	t.aborted = true
	// A broken connection is seen by the reader.
	_ = t.conn.Send(proto.StepFrameSignal, &proto.StepSignal{Text: line}, nil)
}

// force kills the step.
func (t *talk) force() {
	fmt.Fprintf(t.Stderr, "%s: forcing job termination\n", t.Program)
	t.aborted = true
	_ = t.conn.Send(proto.StepFrameSignal, &proto.StepSignal{Signal: int32(unix.SIGKILL)}, nil) // the reader sees it too
}

// finish waits until the tasks' output is written, however slow its reader is. The step is over, so output that does
// not come within drainOutput has a writer that outlives its task. A signal ends the wait.
func (t *talk) finish() {
	if t.pl == nil {
		return
	}
	t.pl.closeEnds()
	through := make(chan struct{})
	go func() { t.pl.readers.Wait(); close(through) }()
	t.pl.moved(0)
	for waits := true; waits; {
		select {
		case <-through:
			waits = false
		case sig := <-t.steps.signals:
			waits = !slices.Contains([]os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}, sig)
		case <-time.After(t.pl.still()):
			waits = t.pl.still() > 0
		}
	}
	t.pl.endGuests(t.rc)
	t.pl.closeKept()
	if t.pl.remote != nil {
		t.pl.remote.close()
	}
}

// signal handles a signal to grun while the step runs.
func (t *talk) signal(sig unix.Signal) {
	if t.rq.Receive != nil && sig != unix.SIGPIPE && sig != unix.SIGCONT {
		t.abort("")
		return
	}
	switch sig {
	case unix.SIGPIPE, unix.SIGCONT:
	case unix.SIGWINCH:
		t.resize()
	case unix.SIGINT:
		t.interrupted()
	case unix.SIGTERM, unix.SIGQUIT:
		if !t.aborted {
			t.sayAborted()
		}
		t.abort("")
	default:
		if sig == unix.SIGHUP && t.rq.Terminal != nil { // the user's terminal is gone
			t.abort("")
			break
		}
		fmt.Fprintf(t.Stderr, "%s: forwarding signal %d to StepId=%s\n", t.Program, int(sig), t.stepID())
		// a broken connection is seen by the reader
		_ = t.conn.Send(proto.StepFrameSignal, &proto.StepSignal{Signal: int32(sig)}, nil)
	}
}

// interrupted handles Ctrl-C: the first prints the tasks' states, a second within a second sends them SIGINT, a third
// kills them.
func (t *talk) interrupted() {
	now := time.Now()
	switch {
	case t.intSent, t.passInt && now.Sub(t.intAt) < againWithin:
		t.force()
	case t.interrupt || t.passInt || now.Sub(t.intAt) < againWithin:
		if !t.passInt {
			fmt.Fprintf(t.Stderr, "%s: sending Ctrl-C to StepId=%s\n", t.Program, t.stepID())
		}
		t.intSent = !t.passInt
		t.intAt = now
		_ = t.conn.Send(proto.StepFrameSignal, &proto.StepSignal{Signal: int32(unix.SIGINT)}, nil) // as above
		if t.interrupt {                                                                           // at once, as in Slurm
			t.force()
		}
	default:
		t.intAt = now
		if t.steps.live() == t {
			fmt.Fprintf(t.Stderr, "%s: interrupt (one more within 1 sec to abort)\n", t.Program)
		}
		t.tellTasks()
	}
}
