package noded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/taskaround"
)

// stepends_test.go: every step ends with its job, whatever the step does and however far it has come.

// command is a step's command for tests.
type command struct {
	t  *testing.T
	nc net.Conn
}

var stepsAsked atomic.Int32

// askStep asks for a step of one task as grun does.
func (c *cluster) askStep(l *proto.Launch, argv ...string) *command {
	t := c.t.(*testing.T)
	t.Helper()
	nc, err := net.Dial("unix", filepath.Join(c.opts.SocketDir, proto.StepSocket("n1")))
	must(t, err)
	t.Cleanup(func() { _ = nc.Close() }) // the test is over
	cmd := &command{t, nc}
	cmd.put(proto.StepFrameRequest,
		&proto.StepRequest{RequestID: fmt.Sprintf("%d of job %d", stepsAsked.Add(1), l.Job), Job: l.Job,
			Parent: proto.StepNone, Name: "step", Program: argv[0], Argv: argv, Env: []byte("PATH=/usr/bin:/bin\x00"),
			Dir: c.dir, Need: proto.StepNeed{Tasks: 1, MinNodes: 1, Overlap: true}})
	return cmd
}

func (c *command) put(kind uint8, m proto.Message) {
	c.t.Helper()
	b, err := appendFrame(nil, kind, m)
	must(c.t, err)
	_, err = c.nc.Write(b)
	must(c.t, err)
}

// readEvent reads one event.
func readEvent(r io.Reader) (*proto.StepEvent, error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.LittleEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	ev := new(proto.StepEvent)
	return ev, proto.Decode(body, ev)
}

// wait waits for an event of a kind; it fails if the step is refused.
func (c *command) wait(kind proto.StepEventKind) *proto.StepEvent {
	c.t.Helper()
	for {
		ev, err := readEvent(c.nc)
		must(c.t, err)
		if ev.Kind == kind {
			return ev
		}
		if ev.Kind == proto.StepRefused || ev.Kind == proto.StepDone {
			c.t.Fatalf("the step's command got %+v and not kind %d", ev, kind)
		}
	}
}

// files passes the names of the task's files on.
func (c *command) files() {
	c.put(proto.StepFrameFiles,
		&proto.StepFiles{Files: []proto.StepFile{{Mode: proto.FileNull}, {Mode: proto.FileNull}, {Mode: proto.FileNull}}})
}

// pidIn waits for a file with a process number.
func (c *cluster) pidIn(name string) (pid int) {
	c.t.Helper()
	until(c.t, name, func() bool {
		b, err := os.ReadFile(filepath.Join(c.dir, name))
		if err != nil {
			return false
		}
		_, err = fmt.Sscan(string(b), &pid)
		return err == nil
	})
	return pid
}

// reconnect changes what the controller says in its welcome, and has the node register again.
func (c *cluster) reconnect(change func(*fakeCtld)) {
	c.t.Helper()
	n := 0
	c.ctl.set(func(f *fakeCtld) {
		change(f)
		n = len(f.hellos)
		must(c.t, f.conn.Close())
		f.conn = nil
	})
	c.ctl.waitNode(n + 1)
}

const deaf = `trap "" TERM; echo $$ > step; while :; do sleep 1; done`

// TestStepWithoutFilesEnds: a job that is cancelled while its step has a number but no processes ends.
func TestStepWithoutFilesEnds(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, "sleep 1000")
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	c.ctl.waitStarted(l)
	cmd := c.askStep(l, "/bin/sleep", "1000")
	cmd.wait(proto.StepCreated)
	c.ctl.send(&proto.Orders{Stop: []*proto.Stop{{Job: 1, Attempt: 1, Cause: model.StopCancel, KillWaitS: 1}}})
	c.ctl.waitEnded(l)
	cmd.wait(proto.StepDone)
}

// TestDeafStepEnds: a step that ignores SIGTERM is killed after KillWait, whether its job's script ended at SIGTERM or
// before, or ignores it too.
func TestDeafStepEnds(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		stop         bool
	}{
		{"the script ends at SIGTERM", "sleep 1000", true},
		{"the script is deaf", `trap "" TERM; while :; do sleep 1; done`, true},
		{"the script has ended", "until [ -e step ]; do sleep 0.05; done", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t)
			c.reconnect(func(f *fakeCtld) { f.killWait = 1 })
			l := c.job(1, tc.script)
			c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
			c.ctl.waitStarted(l)
			cmd := c.askStep(l, "/bin/sh", "-c", deaf)
			cmd.wait(proto.StepCreated)
			cmd.files()
			pid := c.pidIn("step")
			if tc.stop {
				c.ctl.send(&proto.Orders{Stop: []*proto.Stop{{Job: 1, Attempt: 1, Cause: model.StopCancel, KillWaitS: 1}}})
			}
			c.ctl.waitEnded(l)
			waitGone(t, pid)
		})
	}
}

// TestKillReachesWhatIsLeft: gcancel -s KILL does not wait for KillWait, also when only a step is left.
func TestKillReachesWhatIsLeft(t *testing.T) {
	for _, tc := range []struct{ name, script string }{
		{"the script runs", "sleep 1000"},
		{"the script has ended at SIGTERM", "until [ -e step ]; do sleep 0.05; done; : > ended"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t)
			l := c.job(1, tc.script)
			c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
			c.ctl.waitStarted(l)
			cmd := c.askStep(l, "/bin/sh", "-c", deaf)
			cmd.wait(proto.StepCreated)
			cmd.files()
			pid := c.pidIn("step")
			c.ctl.send(&proto.Orders{Stop: []*proto.Stop{{Job: 1, Attempt: 1, Cause: model.StopCancel, KillWaitS: 1000}}})
			c.ctl.send(&proto.Orders{Stop: []*proto.Stop{{Job: 1, Attempt: 1, Signal: int32(unix.SIGKILL)}}})
			c.ctl.waitEnded(l)
			waitGone(t, pid)
		})
	}
}

// TestSignalDuringLaunch: a step that is ended at the moment of its launch gets SIGTERM, and is not killed only after
// KillWait.
func TestSignalDuringLaunch(t *testing.T) {
	c := newCluster(t)
	c.reconnect(func(f *fakeCtld) { f.killWait = 1000 })
	l := c.job(1, "sleep 1000")
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	c.ctl.waitStarted(l)
	for n := range 100 {
		cmd := c.askStep(l, "/bin/sleep", "1000")
		cmd.wait(proto.StepCreated)
		cmd.files()
		time.Sleep(time.Duration(n) * 200 * time.Microsecond) // each time at another moment of the launch
		cmd.put(proto.StepFrameSignal, &proto.StepSignal{})
		cmd.wait(proto.StepDone)
	}
}

// TestLonelyElsewhere: after a restart of gnoded a step waits only so long for its command, also if none of its tasks
// is on this node.
func TestLonelyElsewhere(t *testing.T) {
	a := &attempt{phase: running, steps: map[int32]*step{}}
	for id, here := range map[int32]int{0: 0, 1: -1} {
		s := &step{job: a, id: id, phase: stepCreated, here: here, rec: &placedStep{ID: id,
			Nodes: []proto.StepNode{{Node: "n1", Ranks: []int32{0}}}}, tasks: make([]stepTask, here+1)}
		a.steps[id] = s
	}
	new(loop).adoptSteps(a, nil)
	for id, s := range a.steps {
		if s.lonely == nil || !s.lonely.Stop() {
			t.Errorf("step %d waits for its command for ever", id)
		}
	}
}

// TestLateLimit: a time limit that is over while the rest of an ended step is being cleared away has not ended it.
func TestLateLimit(t *testing.T) {
	s := &step{job: &attempt{phase: running}, phase: stepEnding, here: -1, rec: &placedStep{LimitS: 1}}
	new(loop).stopStep(s, model.StopTimeLimit, 0, false, "")
	if s.cause != model.NoStop {
		t.Errorf("it has ended by %v", s.cause)
	}
}

// TestLonelyAsleep: a step whose command is away waits for it as long as its job is suspended, and then for its time.
func TestLonelyAsleep(t *testing.T) {
	l := testLoop(t)
	key := proto.Attempt{Job: 1, Attempt: 1}
	a := &attempt{key: key, phase: running, steps: map[int32]*step{}, rec: &launched{}}
	s := &step{job: a, phase: stepRunning, here: -1, rec: &placedStep{Nodes: []proto.StepNode{{Node: "n2"}}}}
	a.steps[0], l.attempts[key] = s, a
	must(t, l.onChilled(msgChilled{key: key, frozen: true}))
	l.adoptSteps(a, nil)
	for range 3 {
		first := s.lonely
		l.onStepTimer(msgStepTimer{key, 0, timerLonely})
		if s.phase != stepRunning || s.lonely == first {
			t.Fatalf("the step of a suspended job is %s", s.phase)
		}
	}
	last := s.lonely
	must(t, l.onChilled(msgChilled{key: key, frozen: false}))
	if s.lonely == last {
		t.Error("the command has no time of its own after its job goes on")
	}
	l.onStepTimer(msgStepTimer{key, 0, timerLonely})
	if s.phase == stepRunning {
		t.Error("the step waits for its command for ever")
	}
}

// TestPartNotReady: a step waits for a node whose prolog takes long, and not for one that is out of reach.
func TestPartNotReady(t *testing.T) {
	l := testLoop(t)
	key := proto.Attempt{Job: 1, Attempt: 1}
	a := &attempt{key: key, phase: running, steps: map[int32]*step{}, rec: &launched{}}
	s := &step{job: a, phase: stepRunning, here: -1, rec: &placedStep{Nodes: []proto.StepNode{{Node: "n2",
		Ranks: []int32{0}}}}}
	a.steps[0], l.attempts[key] = s, a
	s.makeParts("n1")
	p := s.parts[0]
	for range 3 {
		p.phase, p.since = partAsked, l.now().Add(-2*partFirst)
		l.onPartEvent(msgPartEvent{p: p, ev: &proto.StepEvent{Kind: proto.StepRefused, Code: proto.PartNotReady,
			Text: "job 1 has not been prepared there yet"}})
		if p.phase != partAway {
			t.Fatalf("the part of a node that runs its prolog is %s", p.phase)
		}
	}
	p.phase, p.since = partCalling, l.now().Add(-2*partFirst)
	l.onPartLost(msgPartLost{p: p, err: errors.New("no route to host")})
	if p.phase != partOver {
		t.Errorf("the part of a node that is out of reach is %s", p.phase)
	}
}

// TestGraceOfPart: a part whose manager was the first to end it has its job's GraceTime all the same.
func TestGraceOfPart(t *testing.T) {
	l := testLoop(t)
	key := proto.Attempt{Job: 1, Attempt: 1}
	a := &attempt{key: key, phase: running, steps: map[int32]*step{}, rec: &launched{}}
	s := &step{job: a, phase: stepRunning, here: 0, tasks: make([]stepTask, 1), rec: &placedStep{Manager: "n1",
		Nodes: []proto.StepNode{{Node: l.n.opts.Name, Ranks: []int32{0}}}}}
	s.tasks[0].began = true
	a.steps[0], l.attempts[key] = s, a
	l.stopStep(s, model.StopCancel, 0, false, "")
	by := s.deadline.turn
	a.stop = &proto.Stop{Cause: model.StopPreempt, KillWaitS: 3600}
	l.terminateSteps(a)
	if s.deadline.turn == by {
		t.Error("SIGKILL comes after KillWait")
	}
}

// TestEndOfWrappedShell: a shell that ignores SIGTERM is found also inside the process that runs a task's epilogs.
func TestEndOfWrappedShell(t *testing.T) {
	sh, err := os.ReadFile("/bin/sh")
	must(t, err)
	around := filepath.Join(t.TempDir(), taskaround.Word)
	must(t, os.WriteFile(around, sh, 0o700))
	cmd := exec.Command(around, "-c", `(trap "" TERM; exec sleep 98765) & wait`)
	var set, old unix.Sigset_t
	set.Val[0] = 1 << (taskaround.PassOn - 1)
	runtime.LockOSThread()
	must(t, unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old)) // gshim knows such a process by that too
	err = cmd.Start()
	must(t, errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)))
	runtime.UnlockOSThread()
	t.Cleanup(func() {
		for _, pid := range programs(cmd.Process.Pid) {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	until(t, "the shell", func() bool {
		return slices.ContainsFunc(programs(cmd.Process.Pid), func(pid int) bool { return ignores(pid, unix.SIGTERM) })
	})
}
