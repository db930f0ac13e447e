package noded

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
	"gbatch/noded/shares"
)

// stepattack_test.go: nothing that a user with a job, or another node's daemon, says about steps ends this daemon or
// takes what others need.

// dialSteps connects to the socket for steps.
func (c *cluster) dialSteps() *net.UnixConn {
	c.t.Helper()
	nc, err := net.Dial("unix", filepath.Join(c.opts.SocketDir, proto.StepSocket("n1")))
	must(c.t, err)
	c.t.Cleanup(func() { _ = nc.Close() }) // the test is over
	must(c.t, nc.SetDeadline(time.Now().Add(testWait)))
	return nc.(*net.UnixConn)
}

// lives fails the test unless the node still runs jobs.
func (c *cluster) lives(id int) {
	c.t.Helper()
	if r := c.run(c.job(id, "true")); r.Kind != proto.ReportEnded || r.Exit.Code != 0 {
		c.t.Fatalf("a job afterwards: %+v", r)
	}
}

// stepRequest is a valid request of a job.
func (c *cluster) stepRequest(job model.JobID) *proto.StepRequest {
	return &proto.StepRequest{RequestID: "r", Job: job, Parent: proto.StepNone, Name: "step", Program: "/bin/true",
		Argv: []string{"/bin/true"}, Env: []byte("PATH=/usr/bin:/bin\x00"), Dir: c.dir,
		Need: proto.StepNeed{Tasks: 1, MinNodes: 1, Overlap: true}}
}

// TestBadStepRequests: values out of range are refused with a sentence where they arrive.
func TestBadStepRequests(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, "sleep 1000")
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	c.ctl.waitStarted(l)
	for name, change := range map[string]func(*proto.StepRequest){
		"memory binding":  func(rq *proto.StepRequest) { rq.Bind.Mem = 100 },
		"CPU binding":     func(rq *proto.StepRequest) { rq.Bind.CPU = 14 },
		"GPU binding":     func(rq *proto.StepRequest) { rq.Bind.GPU = 255 },
		"cores":           func(rq *proto.StepRequest) { rq.Bind.Cores = 6 },
		"distribution":    func(rq *proto.StepRequest) { rq.Need.Dist = 6 },
		"prolog":          func(rq *proto.StepRequest) { rq.Prolog = "/" + strings.Repeat("p", 5000) },
		"epilog":          func(rq *proto.StepRequest) { rq.Epilog = "/" + strings.Repeat("p", 5000) },
		"program":         func(rq *proto.StepRequest) { rq.Program = "/" + strings.Repeat("p", 5000) },
		"parent":          func(rq *proto.StepRequest) { rq.Parent = -2 },
		"tasks":           func(rq *proto.StepRequest) { rq.Need.Tasks = math.MaxInt32 },
		"tasks for a GPU": func(rq *proto.StepRequest) { rq.Need.TasksPerGPU = math.MaxInt32 },
		"memory":          func(rq *proto.StepRequest) { rq.Need.MemPerCPU = math.MaxInt64 },
		"mask": func(rq *proto.StepRequest) {
			rq.Bind.CPU, rq.Bind.CPUList = proto.BindMask, []string{hex(1 << 19)}
		},
		"limit": func(rq *proto.StepRequest) { rq.Limits = []model.RLimit{{Resource: 16}} },
		"arbitrary": func(rq *proto.StepRequest) {
			rq.Need = proto.StepNeed{Dist: proto.DistArbitrary, Ranks: []string{"n1", "n2"}, MaxNodes: 1}
		},
	} {
		rq := c.stepRequest(1)
		change(rq)
		nc := c.dialSteps()
		b, err := appendFrame(nil, proto.StepFrameRequest, rq)
		must(t, err)
		_, err = nc.Write(b)
		must(t, err)
		if ev, err := readEvent(nc); err != nil || ev.Kind != proto.StepRefused || ev.Text == "" {
			t.Errorf("%s: %+v, %v", name, ev, err)
		}
	}
	c.lives(2)
}

func hex(n int) string { return "0x" + strings.Repeat("f", n) }

// TestRefusedStepReadsNothing: after a refusal no message and no open file is taken, and the connection ends soon.
func TestRefusedStepReadsNothing(t *testing.T) {
	c := newCluster(t)
	before := openFiles(t)
	files := make([]int, proto.MaxStepFDs)
	for i := range files {
		files[i] = int(os.Stderr.Fd())
	}
	for range 20 {
		nc := c.dialSteps()
		b, err := appendFrame(nil, proto.StepFrameRequest, c.stepRequest(77)) // no such job
		must(t, err)
		_, err = nc.Write(b)
		must(t, err)
		if ev, err := readEvent(nc); err != nil || ev.Kind != proto.StepRefused {
			t.Fatalf("%+v, %v", ev, err)
		}
		sendFiles(t, nc, files, 4)
	}
	// What 20 connections passed would be 10240.
	if n := openFiles(t) - before; n > 200 {
		t.Errorf("%d files are open for refused steps", n)
	}
	c.lives(2)
}

// sendFiles announces files for each stream, and passes them.
func sendFiles(t *testing.T, nc *net.UnixConn, files []int, times int) {
	t.Helper()
	f := proto.StepFile{Mode: proto.FileEach, FDs: int32(len(files) * times)}
	b, err := appendFrame(nil, proto.StepFrameFiles, &proto.StepFiles{Files: []proto.StepFile{f, {}, {}}})
	must(t, err)
	if _, err = nc.Write(b); err != nil {
		return // it was cut, which is as good
	}
	for range times {
		if _, _, err := nc.WriteMsgUnix([]byte{0}, unix.UnixRights(files...), nil); err != nil {
			return
		}
	}
}

func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(list)
}

// TestFilesOfAStep: a step gets its files once, and no more than it has tasks.
func TestFilesOfAStep(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, "sleep 1000")
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	c.ctl.waitStarted(l)
	before := openFiles(t)
	nc := c.dialSteps()
	b, err := appendFrame(nil, proto.StepFrameRequest, c.stepRequest(1))
	must(t, err)
	_, err = nc.Write(b)
	must(t, err)
	if ev, err := readEvent(nc); err != nil || ev.Kind != proto.StepCreated {
		t.Fatalf("%+v, %v", ev, err)
	}
	files := make([]int, 100)
	for i := range files {
		files[i] = int(os.Stderr.Fd())
	}
	sendFiles(t, nc, files, 5)
	for {
		if _, err := readEvent(nc); err != nil {
			break // the connection was cut
		}
	}
	if n := openFiles(t) - before; n > 100 {
		t.Errorf("%d files are open for a step of one task", n)
	}
	c.lives(2)
}

// TestSlowMessage: a message that has begun, and does not go on, ends its connection; its claimed length takes no
// memory.
func TestSlowMessage(t *testing.T) {
	a, b := net.Pipe()
	own := shares.New(1 << 20)
	c := newStepConn(deadlines{b, func(at time.Time) time.Time {
		if at.IsZero() || time.Until(at) < 0 {
			return at
		}
		return time.Now().Add(time.Until(at) / 100) // a tenth of a second for ten
	}}, own, shares.Owner{UID: 1})
	go func() {
		_, _ = a.Write(binary.LittleEndian.AppendUint32([]byte{proto.StepFrameRequest}, 8<<20)) // the reader is asked
		_, _ = a.Write([]byte("abc"))
	}()
	_, _, _, err := c.frame(requestLimit)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a message that stops: %v", err)
	}
	if mine, _ := own.Memory.Used(shares.Owner{UID: 1}); mine > 64<<10 {
		t.Errorf("three bytes take %d", mine)
	}
	c.close()
	c.settle()
	if mine, all := own.Memory.Used(shares.Owner{UID: 1}); mine != 0 || all != 0 {
		t.Errorf("%d and %d bytes are still paid for", mine, all)
	}
}

// deadlines is a connection whose deadlines are changed.
type deadlines struct {
	net.Conn
	at func(time.Time) time.Time
}

func (d deadlines) SetReadDeadline(t time.Time) error { return d.Conn.SetReadDeadline(d.at(t)) }

// TestBadParts: another node's daemon, of the job's first node, can't end this one by numbers of a part.
func TestBadParts(t *testing.T) {
	c := newCluster(t)
	must(t, pki.Issue(c.opts.PKI, pki.RoleNode, "n0", nil, c.opts.PKI))
	l := c.job(1, "", func(l *proto.Launch) {
		l.Alloc = &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n0", CPUs: model.UpTo(1), Tasks: 1},
			{Node: "n1", CPUs: model.UpTo(1), Tasks: 1}}}
		l.Node, l.Prepare = 1, true
	})
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	until(t, "the job is prepared", func() bool { return c.ctl.count(l, proto.ReportReady) > 0 })
	cfg, err := pki.Load(c.opts.PKI, pki.RoleNode, "n0")
	must(t, err)
	good := func() *proto.StepPart {
		return &proto.StepPart{Job: 1, Attempt: 1, Name: "s", Nodes: []proto.StepNode{{Node: "n1", Index: 1,
			Ranks: []int32{0}}}, Request: c.stepRequest(1)}
	}
	ask := func(p *proto.StepPart) (*proto.StepEvent, error) {
		nc, err := pki.Dial(context.Background(), c.n.peerLn.Addr().String(), protoPeer, cfg, pki.RoleNode)
		must(t, err)
		defer nc.Close()
		must(t, nc.SetDeadline(time.Now().Add(testWait)))
		b, err := appendFrame(nil, proto.StepFramePart, p)
		must(t, err)
		_, err = nc.Write(b)
		must(t, err)
		return readEvent(nc)
	}
	for name, change := range map[string]func(*proto.StepPart){
		"index -1":     func(p *proto.StepPart) { p.Nodes[0].Index = -1 },
		"index 1<<30":  func(p *proto.StepPart) { p.Nodes[0].Index = 1 << 30 },
		"place 5":      func(p *proto.StepPart) { p.Here = 5 },
		"step -1":      func(p *proto.StepPart) { p.Step = -1 },
		"ranks":        func(p *proto.StepPart) { p.Nodes[0].Ranks = []int32{3, 1} },
		"rank -7":      func(p *proto.StepPart) { p.Nodes[0].Ranks = []int32{-7} },
		"mem binding":  func(p *proto.StepPart) { p.Request.Bind.Mem = 99 },
		"memory":       func(p *proto.StepPart) { p.Nodes[0].MemMiB = -1 },
		"distribution": func(p *proto.StepPart) { p.Request.Need.Dist = 77 },
	} {
		p := good()
		change(p)
		if ev, err := ask(p); err != nil || ev.Kind != proto.StepRefused {
			t.Errorf("%s: %+v, %v", name, ev, err)
		}
	}
	p := good()
	p.Request.Bind.CPU = proto.BindRank // and no CPU at all
	if ev, err := ask(p); err != nil || ev.Kind != proto.StepCreated {
		t.Errorf("a valid part: %+v, %v", ev, err)
	}
	c.lives(2)
}

// TestSlowClose: a file of one user that takes long to close, here a socket that nobody reads from and that lingers,
// does not hold up others.
func TestSlowClose(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, "sleep 1000")
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	c.ctl.waitStarted(l)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	tcp, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	must(t, tcp.SetWriteDeadline(time.Now().Add(time.Second)))
	for err = nil; err == nil; {
		_, err = tcp.Write(make([]byte, 1<<20)) // nobody reads
	}
	must(t, tcp.(*net.TCPConn).SetLinger(15))
	f, err := tcp.(*net.TCPConn).File()
	must(t, err)
	cmd := c.askStep(l, "/bin/true")
	cmd.wait(proto.StepCreated)
	begun := time.Now()
	cmd.put(proto.StepFrameSignal, &proto.StepSignal{Signal: int32(unix.SIGKILL)})
	cmd.put(proto.StepFrameFiles, &proto.StepFiles{Files: []proto.StepFile{{Mode: proto.FileShared, FDs: 1},
		{Mode: proto.FileNull}, {Mode: proto.FileNull}}})
	_, _, err = cmd.nc.(*net.UnixConn).WriteMsgUnix([]byte{0}, unix.UnixRights(int(f.Fd())), nil)
	must(t, err)
	closed := make(chan error, 1) // which takes long too, if gnoded has closed its own already
	go func() { closed <- errors.Join(f.Close(), tcp.Close()) }()
	t.Cleanup(func() { must(t, <-closed) })
	cmd.wait(proto.StepDone) // the files come now, or while the next job starts
	c.lives(3)
	if d := time.Since(begun); d > 5*time.Second {
		t.Errorf("a file of one user has held another's job for %v", d)
	}
}
