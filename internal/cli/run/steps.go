package run

import (
	"cmp"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/env"
	"gbatch/internal/proto"
)

// steps.go is the one loop in which grun hears of all steps of its command.

// steps are the steps of one command: one, or one in each of several components of a heterogeneous job. They begin
// together, their tasks are numbered through, and there is one exit code.
type steps struct {
	*env.Env
	all      []*talk
	news     chan heard
	signals  chan os.Signal
	deadline <-chan time.Time // --wait
	awaiting *talk            // the step whose task has ended first
	fed      bool

	hub     mpiHub // nil: MPI programs are not served
	mpiNews <-chan mpiNews
	mpiPort int
	x11Port int // 0: there is none

	saidAborted bool
}

// heard is an event of a step, or the end of its connection.
type heard struct {
	t   *talk
	ev  *proto.StepEvent
	err error
}

func (s *steps) main() int {
	s.together()
	for _, t := range s.all {
		if err := t.ask(); err != nil {
			t.Errorf("Unable to create step for job %d: %s", t.rq.Job, err.Error())
			s.hangUp()
			return t.Failed(1)
		}
	}
	s.signals = make(chan os.Signal, 16)
	signal.Notify(s.signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGALRM, unix.SIGCONT, unix.SIGPIPE)
	if s.all[0].rq.Terminal != nil {
		signal.Notify(s.signals, unix.SIGWINCH)
	}
	defer signal.Stop(s.signals)
	defer s.all[0].unraw() // only a step that is alone has a terminal
	var flush, hurry <-chan time.Time
	if n := immediateOf(s.all, func(t *talk) int64 { return t.immediate }); n > 0 {
		hurry = time.After(time.Duration(n) * time.Second)
	}
	for s.live() != nil {
		select {
		case <-hurry:
			if t := s.waiting(); t != nil {
				t.Errorf("Unable to create step for job %d: %s", t.rq.Job, cmp.Or(t.waited, "Requested nodes are busy"))
				s.hangUp()
				return t.TooLate()
			}
		case h := <-s.news:
			if s.take(h); len(h.t.exits) > 0 && flush == nil {
				flush = time.After(gatherExits)
			}
		case <-flush:
			s.tellExits()
			flush = nil
		case sig := <-s.signals:
			if s.signal(sig.(unix.Signal)) {
				return s.Failed(1)
			}
		case n := <-s.mpiNews:
			s.hearMPI(n)
		case <-s.deadline:
			s.deadline = nil
			s.tooLate()
		}
	}
	s.tellExits()
	return s.finish()
}

// together tells the nodes that place the steps how many there are, and names the command if all are steps of one job.
func (s *steps) together() {
	if len(s.all) == 1 {
		return
	}
	for _, t := range s.all {
		if t.rq.Parts = int32(len(s.all)); t.part {
			t.rq.Command = s.all[0].rq.RequestID
		}
	}
}

// live gives the first step of which more is to be heard; nil: there is none.
func (s *steps) live() *talk {
	for _, t := range s.all {
		if !t.over {
			return t
		}
	}
	return nil
}

// waiting gives a step that has not begun, one that was told why if there is one: of those that begin together, only
// the one that finds no room is told. nil: all have begun or ended.
func (s *steps) waiting() (some *talk) {
	for _, t := range s.all {
		if !t.over && t.made == nil && (some == nil || some.waited == "") {
			some = t
		}
	}
	return some
}

// left counts the tasks that have not ended.
func (s *steps) left() (n int) {
	for _, t := range s.all {
		if !t.over {
			n += t.left
		}
	}
	return n
}

// take handles what is heard of a step. One that never began takes the others with it.
func (s *steps) take(h heard) {
	t := h.t
	if t.over {
		return
	}
	if h.err != nil {
		if err := t.rejoin(h.err); err != nil {
			t.tellExits()
			t.Errorf("%s", err.Error())
			t.over, t.rc = true, max(t.rc, 1)
		}
	} else if done, rc := t.take(h.ev); done {
		t.over, t.rc = true, rc
	}
	if t.over && t.pl == nil {
		s.giveUp()
	}
}

// giveUp ends the steps that wait for one that will not begin.
func (s *steps) giveUp() {
	for _, t := range s.all {
		switch {
		case t.over:
		case t.id == proto.StepNone:
			t.over = true
			t.conn.Close()
		case !t.aborted:
			t.abort("")
		}
	}
}

// begin gives the tasks their files when all steps have been created.
func (s *steps) begin() error {
	for _, t := range s.all {
		if t.made == nil || t.over {
			return nil
		}
	}
	s.number()
	first := s.all[0]
	if err := first.around(first.prolog, "prolog_srun"); err != nil {
		return fmt.Errorf("%s prolog failed: %w. Aborting step", first.Program, err)
	}
	for _, t := range s.all {
		if err := t.sendProgram(); err != nil {
			return err
		}
	}
	for _, t := range s.all {
		var err error
		if t.pl, err = t.plumb(t.id, len(t.tasks), t.layout, t.made.Direct, valuesOf(t.made, &t.rq), t.het); err != nil {
			return err
		}
	}
	if first.mpi = kindOfMPI(first.mpi); first.mpi != "none" {
		if err := s.serveMPI(); err != nil {
			return err
		}
	}
	if err := s.serveX11(); err != nil {
		return err
	}
	for _, t := range s.all {
		t.warnMasks()
		t.sayLaunch()
		if err := t.sendFiles(); err != nil {
			return err
		}
	}
	return nil
}

// feed passes on the input when all tasks run.
func (s *steps) feed() {
	var read []*plumbing
	for _, t := range s.all {
		if s.fed || t.pl == nil || !t.allStarted() {
			return
		}
		if len(t.pl.inputs) > 0 || t.pl.feeds {
			read = append(read, t.pl)
		}
	}
	if len(read) > 0 {
		s.fed = true
		if s.all[0].send != nil {
			go s.pour(read) // it ends with the steps
			return
		}
		s.all[0].raw()
		go feed(read) // it ends with this process
	}
}

// signal handles a signal to grun. It reports whether grun is to end at once.
func (s *steps) signal(sig unix.Signal) (quit bool) {
	for _, t := range s.all {
		if t.over || t.id != proto.StepNone {
			continue
		}
		switch sig { // a step has not started, so nothing is lost
		case unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP:
			fmt.Fprintf(s.Stderr, "%s: Cancelled pending step for job %d\n", s.Program, t.rq.Job)
			s.hangUp()
			return true
		}
		return false
	}
	for _, t := range s.all {
		if !t.over {
			t.signal(sig)
		}
	}
	return false
}

// hangUp ends all conversations.
func (s *steps) hangUp() {
	for _, t := range s.all {
		if t.conn != nil {
			t.conn.Close()
		}
	}
}

// killRest ends all steps, because a task of t has failed. It says so where no other task is left, too.
func (s *steps) killRest(t *talk) {
	t.tellExits()
	for _, o := range s.all {
		if o.over || o.aborted {
			continue
		}
		o.sayTerminating()
		if s.left() > 0 {
			o.failed = true
			o.abort(o.cancelledLine())
		}
	}
}

// cancelledLine is what the node says of the step that grun ends.
func (t *talk) cancelledLine() string {
	return fmt.Sprintf("slurmstepd: error: *** STEP %s ON %s CANCELLED AT %s ***", t.stepID(), t.layout[0].Node,
		time.Now().Format("2006-01-02T15:04:05"))
}

// wait begins to wait for the other tasks, when the first task has ended.
func (s *steps) wait(t *talk) {
	if t.waitS > 0 && s.deadline == nil && s.awaiting == nil {
		s.awaiting, s.deadline = t, time.After(time.Duration(t.waitS)*time.Second)
	}
}

// tooLate ends the steps that still run when that time is over.
func (s *steps) tooLate() {
	s.tellExits()
	fmt.Fprintf(s.Stderr, "%s: First task exited %ds ago\n", s.Program, s.awaiting.waitS)
	for _, t := range s.all {
		if t.over {
			continue
		}
		t.tellTasks()
		fmt.Fprintf(s.Stderr, "%s: Terminating StepId=%s\n", s.Program, t.stepID())
		t.sayAborted()
		t.aborted = true
		// a broken connection is seen by the reader
		_ = t.conn.Send(proto.StepFrameSignal, &proto.StepSignal{Signal: int32(unix.SIGKILL), Text: t.cancelledLine()}, nil)
	}
}

func (s *steps) tellExits() {
	for _, t := range s.all {
		t.tellExits()
	}
}

// finish waits until all output is written, and gives the exit code: the highest one.
func (s *steps) finish() (rc int) {
	begun := false
	for _, t := range s.all {
		t.finish()
		rc, begun = max(rc, t.rc), begun || t.pl != nil
	}
	if s.hub != nil {
		s.closeMPI()
	}
	if s.x11Port != 0 {
		s.closeX11()
	}
	if first := s.all[0]; begun {
		if err := first.around(first.epilog, "epilog_srun"); err != nil {
			s.Errorf("%s epilog failed: %v", s.Program, err)
		}
	}
	return rc
}
