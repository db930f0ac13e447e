package noded

// fake_test.go is a controller for tests: real TLS, real frames, and a memory of everything that the node said.

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/blob"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
	"gbatch/internal/userdb"
	"gbatch/noded/cgroup"
)

const testWait = 20 * time.Second

// binaries holds gnoded and gshim, built once.
var binaries string

func TestMain(m *testing.M) {
	// As another user, with what root has built: see asNobody.
	if binaries = os.Getenv("NODED_TEST_BINARIES"); binaries != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "noded-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := 1
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		binaries = dir
		code = m.Run()
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func build(dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"gshim", "gnoded"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), "gbatch/cmd/"+name)
		if name == "gshim" {
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return nil
}

// until waits for a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(testWait)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for: %s", testWait, what)
		}
		time.Sleep(2 * time.Millisecond) // between two looks
	}
}

// fakeCtld is one controller.
type fakeCtld struct {
	t     testing.TB
	addr  string
	dir   string // certificates
	close func()

	mu        sync.Mutex
	epoch     uint64
	instance  uint64
	heartbeat int64
	killWait  int64
	notLeader string // hint; "-" for a follower that knows none; "" leads
	refuse    *rpc.Error
	noAck     bool
	def       *model.NodeDef
	conn      *rpc.Conn
	hellos    []*proto.Hello
	beats     int
	reports   []*proto.Report
	ended     map[proto.Attempt]*proto.Report
	started   map[proto.Attempt]*proto.Report
	forward   func(ctx context.Context, f *proto.Forward, r *server.Request)
	forwards  []*proto.Forward
	hijacked  func(*proto.Hello)
	onReport  func(*proto.Report)
	welcome   func(*proto.Hello, *proto.Welcome)
	beat      proto.Heartbeat // the last
}

// newPKI makes a cluster's certificates for node n1, login host l1 and controllers c1 and c2.
func newPKI(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pki")
	if err := pki.InitCA(dir, "test"); err != nil {
		t.Fatal(err)
	}
	for _, who := range [][2]string{{pki.RoleCtld, "c1"}, {pki.RoleCtld, "c2"}, {pki.RoleNode, "n1"},
		{pki.RoleLogin, "l1"}} {
		if err := pki.Issue(dir, who[0], who[1], nil, dir); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func newFake(t testing.TB, dir, name string) *fakeCtld {
	t.Helper()
	f := &fakeCtld{t: t, dir: dir, epoch: 1, heartbeat: 1, killWait: 30, ended: map[proto.Attempt]*proto.Report{},
		started: map[proto.Attempt]*proto.Report{},
		def:     &model.NodeDef{Name: "n1", CPUs: 2}}
	f.serve(name, "127.0.0.1:0")
	t.Cleanup(func() { f.close() })
	return f
}

func (f *fakeCtld) serve(name, addr string) {
	f.t.Helper()
	cfg, err := pki.Load(f.dir, pki.RoleCtld, name)
	if err != nil {
		f.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	var l *pki.Listener
	until(f.t, "the port "+addr, func() bool { // while nobody listens on it, a connection may use it for itself
		l, err = pki.Listen(addr, cfg, log, pki.Accept{Proto: pki.ProtoRPC})
		return err == nil
	})
	f.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- server.Serve(ctx, l.Proto(pki.ProtoRPC), f.handle,
			server.Options{Log: log, Peer: pki.PeerOfConn, MaxRequest: rpc.MaxFrame})
	}()
	var once sync.Once
	f.close = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				f.t.Error(err)
			}
			if err := l.Close(); err != nil {
				f.t.Error(err)
			}
		})
	}
}

func (f *fakeCtld) handle(ctx context.Context, r *server.Request) {
	f.mu.Lock()
	hint, refuse, forward := f.notLeader, f.refuse, f.forward
	f.mu.Unlock()
	if hint != "" {
		if hint == "-" {
			hint = ""
		}
		_ = r.Fail(rpc.Errorf(proto.CodeNotLeader, "%s", hint)) // the client has gone if it fails
		return
	}
	switch r.Kind {
	case proto.KindPing:
		_ = r.Reply(nil) // as above
	case proto.KindHello:
		if refuse != nil {
			_ = r.Fail(refuse) // as above
			return
		}
		f.session(r)
	case proto.KindForward:
		var fw proto.Forward
		if err := proto.Decode(r.Body, &fw); err != nil {
			_ = r.Fail(err) // as above
			return
		}
		f.mu.Lock()
		f.forwards = append(f.forwards, &fw)
		f.mu.Unlock()
		forward(ctx, &fw, r)
	default:
		_ = r.Fail(rpc.Errorf(proto.CodeBadRequest, "kind %d", r.Kind)) // as above
	}
}

// session is one registered node.
func (f *fakeCtld) session(r *server.Request) {
	h := new(proto.Hello)
	if err := proto.Decode(r.Body, h); err != nil {
		f.t.Error(err)
		return
	}
	conn, err := r.Hijack()
	if err != nil {
		return
	}
	f.mu.Lock()
	w := &proto.Welcome{Cluster: "test", Epoch: f.epoch, Instance: f.instance, HeartbeatS: f.heartbeat,
		KillWaitS: f.killWait, Def: f.def}
	hijacked := f.hijacked
	if f.welcome != nil {
		f.welcome(h, w)
	}
	f.mu.Unlock()
	if !f.write(conn, proto.KindWelcome, w) {
		return
	}
	if hijacked != nil {
		hijacked(h)
	}
	f.mu.Lock()
	f.hellos = append(f.hellos, h)
	f.conn = conn
	f.mu.Unlock()
	var fr rpc.Frame
	for conn.ReadFrame(&fr) == nil {
		switch fr.Kind {
		case proto.KindHeartbeat:
			var hb proto.Heartbeat
			if err := proto.Decode(fr.Body, &hb); err != nil {
				f.t.Error(err)
				return
			}
			f.mu.Lock()
			f.beats, f.beat = f.beats+1, hb
			f.mu.Unlock()
		case proto.KindReports:
			var rs proto.Reports
			if err := proto.Decode(fr.Body, &rs); err != nil {
				f.t.Error(err)
				return
			}
			f.take(conn, rs.Reports)
		default:
			f.t.Errorf("the node sent kind %d", fr.Kind)
		}
	}
	f.mu.Lock()
	if f.conn == conn {
		f.conn = nil
	}
	f.mu.Unlock()
}

func (f *fakeCtld) take(conn *rpc.Conn, reports []*proto.Report) {
	ack := &proto.ReportAck{}
	f.mu.Lock()
	for _, r := range reports {
		f.reports = append(f.reports, r)
		ack.Seqs = append(ack.Seqs, r.Seq)
		if r.Kind == proto.ReportStarted {
			f.started[reportKey(r)] = r
		} else {
			f.ended[reportKey(r)] = r
		}
		if f.onReport != nil {
			f.onReport(r)
		}
	}
	noAck := f.noAck
	f.mu.Unlock()
	if !noAck {
		f.write(conn, proto.KindReportAck, ack)
	}
}

func (f *fakeCtld) write(conn *rpc.Conn, kind uint16, m proto.Message) bool {
	body, err := proto.Encode(m)
	if err != nil {
		f.t.Error(err)
		return false
	}
	return conn.WriteFrame(kind, 0, 0, body) == nil
}

func (f *fakeCtld) set(change func(*fakeCtld)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeCtld) is(cond func(*fakeCtld) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return cond(f)
}

// waitNode waits for the n-th Hello and gives it.
func (f *fakeCtld) waitNode(n int) *proto.Hello {
	f.t.Helper()
	until(f.t, fmt.Sprintf("registration number %d", n), func() bool {
		return f.is(func(f *fakeCtld) bool { return len(f.hellos) >= n && f.conn != nil })
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hellos[n-1]
}

// send sends orders of the present epoch to the node that is registered.
func (f *fakeCtld) send(o *proto.Orders) {
	f.t.Helper()
	f.mu.Lock()
	conn := f.conn
	if o.Epoch == 0 {
		o.Epoch = f.epoch
	}
	f.mu.Unlock()
	if conn == nil || !f.write(conn, proto.KindOrders, o) {
		f.t.Fatal("no node is registered")
	}
}

func (f *fakeCtld) waitStarted(l *proto.Launch) *proto.Report {
	f.t.Helper()
	return f.wait(l, "started", func() map[proto.Attempt]*proto.Report { return f.started })
}

func (f *fakeCtld) waitEnded(l *proto.Launch) *proto.Report {
	f.t.Helper()
	return f.wait(l, "its end", func() map[proto.Attempt]*proto.Report { return f.ended })
}

func (f *fakeCtld) wait(l *proto.Launch, what string, from func() map[proto.Attempt]*proto.Report) (r *proto.Report) {
	f.t.Helper()
	key := proto.Attempt{Job: l.Job, Attempt: l.Attempt}
	until(f.t, fmt.Sprintf("job %d: %s", l.Job, what), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		r = from()[key]
		return r != nil
	})
	return r
}

// count says how many reports of a kind came for an attempt.
func (f *fakeCtld) count(l *proto.Launch, kind proto.ReportKind) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, r := range f.reports {
		if r.Job == l.Job && r.Attempt == l.Attempt && r.Kind == kind {
			n++
		}
	}
	return n
}

// cluster is a fake controller and one node.
type cluster struct {
	t    testing.TB
	ctl  *fakeCtld
	opts Options
	dir  string // where jobs work; every user may write there
	stop func()
	n    *Noded
}

func newCluster(t testing.TB, change ...func(*Options)) *cluster {
	t.Helper()
	dir := newPKI(t)
	c := &cluster{t: t, ctl: newFake(t, dir, "c1")}
	c.opts = testOptions(t, dir, c.ctl.addr)
	for _, f := range change {
		f(&c.opts)
	}
	c.dir = t.TempDir()
	for _, d := range []string{c.dir, filepath.Dir(c.dir)} {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	c.start()
	c.ctl.waitNode(1)
	t.Cleanup(func() { c.end() })
	return c
}

func testOptions(t testing.TB, pkiDir string, controllers ...string) Options {
	root := t.TempDir()
	for _, d := range []string{root, filepath.Dir(root)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return Options{Name: "n1", Controllers: controllers, PKI: pkiDir, Spool: filepath.Join(root, "spool"),
		SocketDir: filepath.Join(root, "run"),
		Shim:      filepath.Join(binaries, "gshim"), ConfigPath: "/etc/gbatch/gbatch.conf",
		People: userdb.NewWith(func(_ context.Context, uid uint32) (userdb.User, error) {
			if uid != 65534 {
				return userdb.User{}, userdb.ErrUnknown
			}
			return userdb.User{UID: uid, GID: uid, Name: "nobody", Groups: []uint32{100, 4242, 65534}}, nil
		}, func(context.Context, uint32) (string, error) { return "", userdb.ErrUnknown }),
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))}
}

// start runs the node in this process.
func (c *cluster) start() {
	c.t.Helper()
	n, err := New(c.opts)
	if err != nil {
		c.t.Fatal(err)
	}
	c.n = n
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	c.stop = func() {
		if !c.opts.Login {
			until(c.t, "gshim is up", func() bool {
				select {
				case <-n.link.up: // else it would come up when nobody looks after it any more
					return true
				default:
					return false
				}
			})
		}
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
		if err := n.Close(); err != nil {
			c.t.Error(err)
		}
		c.stop = func() {}
	}
}

// end stops the node, its jobs and its gshim.
func (c *cluster) end() {
	c.stop()
	c.clean()
}

// clean ends what outlives gnoded.
func (c *cluster) clean() {
	endShim(c.t, filepath.Join(c.opts.Spool, "gshim"))
	root, err := cgroup.Open(cgroup.Place(c.opts.Name, c.opts.Spool))
	must(c.t, err)
	names, err := root.List()
	must(c.t, err)
	for _, name := range names {
		group, err := root.Load(name)
		must(c.t, err)
		must(c.t, group.Kill(context.Background()))
		must(c.t, group.Remove(context.Background()))
	}
	must(c.t, root.Close())
}

// job makes a launch order for a script of the test's own user.
func (c *cluster) job(id int, script string, change ...func(*proto.Launch)) *proto.Launch {
	b := blob.Make([]byte("#!/bin/sh\n" + script + "\n"))
	env := blob.Make([]byte("PATH=/usr/bin:/bin\x00HOME=/\x00USER=u\x00LOGNAME=u\x00SHELL=/bin/sh\x00"))
	l := &proto.Launch{Job: model.JobID(id), Attempt: 1, Task: model.NoTask, Script: b, Env: env, Part: "main",
		LimitS: 600,
		Start:  model.Time(time.Now().UnixMilli()),
		Alloc:  &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1), MemMiB: 64, Tasks: 1}}},
		Spec: &model.Spec{Name: "job", From: model.FromController,
			UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), User: "u", WorkDir: c.dir,
			Umask:  0o022,
			StdOut: filepath.Join(c.dir, "%j.out"), Host: "login1"}}
	for _, f := range change {
		f(l)
	}
	return l
}

// output waits for nothing: it gives what a job has written.
func (c *cluster) output(l *proto.Launch) string {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("%d.out", l.Job)))
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

// run launches a job and waits for its end.
func (c *cluster) run(l *proto.Launch) *proto.Report {
	c.t.Helper()
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	return c.ctl.waitEnded(l)
}

// asNobody runs a test of this binary once more as an ordinary user, and gives what it printed.
func asNobody(t *testing.T, test string, env ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user")
	}
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	must(t, os.Chmod(dir, 0o777))
	exe, err := os.Executable()
	must(t, err)
	text, err := os.ReadFile(exe)
	must(t, err)
	self := filepath.Join(dir, "test")
	must(t, os.WriteFile(self, text, 0o755))
	cmd := exec.Command(self, "-test.run", "^"+test+"$", "-test.v")
	cmd.Dir = dir
	cmd.Env = append([]string{"NODED_TEST_BINARIES=" + binaries, "PATH=" + os.Getenv("PATH"), "HOME=" + dir,
		"TMPDIR=" + dir}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{100, 4242}}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+test) {
		t.Fatalf("as uid 65534: %v\n%s", err, out)
	}
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// waitGone waits for a process that has been killed to be reaped as well.
func waitGone(t testing.TB, pid int) {
	t.Helper()
	until(t, fmt.Sprintf("process %d is gone", pid), func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
}
