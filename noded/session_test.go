package noded

// session_test.go is about being registered, and about users' requests on the local socket.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
)

func TestHello(t *testing.T) {
	c := newCluster(t)
	h := c.ctl.waitNode(1)
	if h.Node != "n1" || h.Hw.CPUs < 1 || h.Hw.MemMiB < 1 || h.BootID == "" || h.BootAt == 0 || h.UpSince == 0 ||
		h.Version == "" || h.Hw.OS == "" || h.Hw.Virtual {
		t.Errorf("%+v", h)
	}
	until(t, "heartbeats", func() bool { return c.ctl.is(func(f *fakeCtld) bool { return f.beats >= 2 }) })
}

// Of three controllers one names the leader, one knows no leader, and one is down.
func TestFindsTheLeader(t *testing.T) {
	dir := newPKI(t)
	leader, follower, lost := newFake(t, dir, "c1"), newFake(t, dir, "c2"), newFake(t, dir, "c2")
	follower.set(func(f *fakeCtld) { f.notLeader = leader.addr })
	lost.set(func(f *fakeCtld) { f.notLeader = "-" })
	dead := freePort(t)
	c := &cluster{t: t, ctl: leader, opts: testOptions(t, dir, dead, lost.addr, follower.addr), dir: t.TempDir()}
	c.start()
	t.Cleanup(c.end)
	leader.waitNode(1)

	// It moves: the old one says so at the next connection.
	next := newFake(t, dir, "c2")
	leader.set(func(f *fakeCtld) { f.notLeader = next.addr; _ = f.conn.Close() })
	next.set(func(f *fakeCtld) { f.epoch = 2 })
	next.waitNode(1)
}

// A leader that promised to speak, and says nothing while its connection stays: the node goes to the one that leads.
func TestLeavesASilentLeader(t *testing.T) {
	dir := newPKI(t)
	silent, next := newFake(t, dir, "c1"), newFake(t, dir, "c2")
	silent.set(func(f *fakeCtld) {
		f.welcome = func(_ *proto.Hello, w *proto.Welcome) { w.SpeakMS = 100 }
	})
	next.set(func(f *fakeCtld) { f.notLeader = silent.addr })
	c := &cluster{t: t, ctl: silent, opts: testOptions(t, dir, silent.addr, next.addr), dir: t.TempDir()}
	c.start()
	t.Cleanup(c.end)
	silent.waitNode(1)
	silent.set(func(f *fakeCtld) { f.notLeader = "-" })
	next.set(func(f *fakeCtld) { f.notLeader, f.epoch = "", 2 })
	next.waitNode(1)
}

// A leader that promised to acknowledge heartbeats, and does not: the node registers anew, with whoever leads by now.
func TestLeavesADeafLeader(t *testing.T) {
	c := newCluster(t, func(o *Options) {})
	c.ctl.set(func(f *fakeCtld) {
		f.welcome = func(_ *proto.Hello, w *proto.Welcome) { w.Sure, w.TimeoutS = true, 2 }
		_ = f.conn.Close() // the next session is of this kind
	})
	c.ctl.waitNode(3)
}

func freePort(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	must(t, l.Close())
	return addr
}

func TestRefusedHelloIsRetried(t *testing.T) {
	dir := newPKI(t)
	f := newFake(t, dir, "c1")
	f.set(func(f *fakeCtld) {
		f.refuse = rpc.Errorf(proto.CodeInvalidNode, "node n1 is not in the configuration")
	})
	c := &cluster{t: t, ctl: f, opts: testOptions(t, dir, f.addr), dir: t.TempDir()}
	c.start()
	t.Cleanup(c.end)
	s := &session{n: c.n, ctl: c.n.ctl, log: quiet(), refusedPause: 10 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.run(ctx) })
	defer cancel()
	f.set(func(f *fakeCtld) { f.refuse = nil })
	f.waitNode(1)
}

// dialLocal connects to the node's socket as a command does.
func dialLocal(t testing.TB, c *cluster) *rpc.Conn {
	t.Helper()
	conn, err := rpc.DialUnix(c.n.Socket(), 0)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestForward(t *testing.T) {
	c := newCluster(t)
	c.ctl.set(func(f *fakeCtld) {
		f.forward = func(_ context.Context, fw *proto.Forward, r *server.Request) {
			switch string(fw.Body) {
			case "stream":
				for i := range 100 {
					_ = r.ReplyMore([]byte(fmt.Sprint(i))) // the client has gone if it fails
				}
				_ = r.Reply([]byte("last")) // as above
			case "fail":
				_ = r.Fail(rpc.Errorf(proto.CodeInvalidJob, "Invalid job id specified")) // as above
			default:
				_ = r.Reply(append([]byte("answer to "), fw.Body...)) // as above
			}
		}
	})
	conn := dialLocal(t, c)
	f, err := conn.Call(t.Context(), proto.KindSubmit, []byte("question"))
	must(t, err)
	if string(f.Body) != "answer to question" || f.Kind != proto.KindSubmit {
		t.Errorf("%q kind %d", f.Body, f.Kind)
	}
	var who proto.Caller
	c.ctl.set(func(f *fakeCtld) { who = f.forwards[0].Caller })
	host, _ := os.Hostname()
	if who.UID != uint32(os.Getuid()) || who.GID != uint32(os.Getgid()) || who.User == "" || who.Group == "" ||
		who.Host != host {
		t.Errorf("caller %+v", who)
	}
	parts := 0
	must(t, conn.Stream(t.Context(), proto.KindJobs, []byte("stream"), func(f *rpc.Frame) error {
		if f.More() && string(f.Body) != fmt.Sprint(parts) {
			t.Errorf("part %d is %q", parts, f.Body)
		}
		parts++
		return nil
	}))
	if parts != 101 {
		t.Errorf("%d parts", parts)
	}
	var e *rpc.Error
	if _, err := conn.Call(t.Context(), proto.KindJobs, []byte("fail")); !errors.As(err, &e) ||
		e.Code != proto.CodeInvalidJob {
		t.Errorf("%v", err)
	}
	// Daemons' requests are not for this socket.
	for _, kind := range []uint16{0, proto.KindForward, proto.KindHello, proto.KindPut, 60000} {
		if _, err := conn.Call(t.Context(), kind, nil); !errors.As(err, &e) || e.Code != proto.CodeBadRequest {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
	// One that fits this socket and not, wrapped, the controller's: others' connection stays.
	if _, err := conn.Call(t.Context(), proto.KindSubmit, make([]byte, rpc.MaxRequest)); !errors.As(err, &e) ||
		e.Code != rpc.CodeTooLarge {
		t.Errorf("%v", err)
	}
	if f, err := conn.Call(t.Context(), proto.KindSubmit, []byte("again")); err != nil ||
		string(f.Body) != "answer to again" {
		t.Errorf("%q %v", f.Body, err)
	}
	if st, err := os.Stat(c.n.Socket()); err != nil || st.Mode().Perm() != 0o666 {
		t.Errorf("socket: %v %v", st.Mode(), err)
	}
}

// A request has the name of the user whose command sent it, whoever runs gnoded.
func TestForwardAttestsTheUser(t *testing.T) {
	if os.Getenv("NODED_TEST_CALL") != "" {
		conn, err := rpc.DialUnix(os.Getenv("NODED_TEST_CALL"), 0)
		must(t, err)
		_, err = conn.Call(t.Context(), proto.KindJobs, nil)
		must(t, err)
		must(t, conn.Close())
		return
	}
	c := newCluster(t)
	c.ctl.set(func(f *fakeCtld) {
		// the test sees what came
		f.forward = func(_ context.Context, _ *proto.Forward, r *server.Request) { _ = r.Reply(nil) }
	})
	must(t, os.Chmod(c.opts.SocketDir, 0o755))
	asNobody(t, "TestForwardAttestsTheUser", "NODED_TEST_CALL="+c.n.Socket())
	var who proto.Caller
	c.ctl.set(func(f *fakeCtld) { who = f.forwards[0].Caller })
	if who.UID != 65534 || who.GID != 65534 || fmt.Sprint(who.Groups) != "[100 4242]" || who.User != "nobody" {
		t.Errorf("%+v", who)
	}
}

func TestForwardWithoutController(t *testing.T) {
	dir := newPKI(t)
	c := &cluster{t: t, opts: testOptions(t, dir, freePort(t)), dir: t.TempDir()}
	c.start()
	t.Cleanup(c.end)
	conn := dialLocal(t, c)
	var e *rpc.Error
	if _, err := conn.Call(t.Context(), proto.KindJobs, nil); !errors.As(err, &e) || e.Code != proto.CodeNoController ||
		!strings.HasPrefix(e.Text, "Unable to contact slurm controller (connect failure)") {
		t.Errorf("%v", err)
	}
}

// If the leader changes, or its connection breaks, users get their answers from the next one.
func TestForwardFollowsTheLeader(t *testing.T) {
	dir := newPKI(t)
	a, b := newFake(t, dir, "c1"), newFake(t, dir, "c2")
	answer := func(text string) func(context.Context, *proto.Forward, *server.Request) {
		// the client sees it
		return func(_ context.Context, _ *proto.Forward, r *server.Request) { _ = r.Reply([]byte(text)) }
	}
	a.set(func(f *fakeCtld) { f.forward = answer("a") })
	b.set(func(f *fakeCtld) { f.forward, f.epoch, f.notLeader = answer("b"), 2, a.addr })
	c := &cluster{t: t, ctl: a, opts: testOptions(t, dir, b.addr, a.addr), dir: t.TempDir()}
	c.start()
	t.Cleanup(c.end)
	conn := dialLocal(t, c)
	ask := func(want string) {
		t.Helper()
		f, err := conn.Call(t.Context(), proto.KindJobs, nil)
		if err != nil || string(f.Body) != want {
			t.Fatalf("%q %v", f.Body, err)
		}
	}
	ask("a")
	b.set(func(f *fakeCtld) { f.notLeader = "" })
	a.set(func(f *fakeCtld) { f.notLeader = b.addr })
	ask("b")
	a.close()
	ask("b")
	// b restarts under the same address.
	b.close()
	b.serve("c2", b.addr)
	ask("b")
}

// The leader is killed between the receipt of a request and its answer. A command's request goes to the next leader,
// a change under the same id. A change without an id, of an older command, is made once, and its outcome is unknown.
func TestForwardRepeatsByID(t *testing.T) {
	changes := []uint16{proto.KindUpdateJob, proto.KindReserve, proto.KindMIG, proto.KindEditAccounts, proto.KindSignal}
	kinds := append(slices.Clone(changes), proto.KindJobs, proto.KindSubmit, proto.KindCancel)
	dir := newPKI(t)
	a, b := newFake(t, dir, "c1"), newFake(t, dir, "c2")
	got, dead := make(chan uint16, 2*len(kinds)), make(chan struct{})
	die := sync.OnceFunc(func() { close(dead) })
	t.Cleanup(die)
	a.set(func(f *fakeCtld) {
		f.forward = func(_ context.Context, fw *proto.Forward, _ *server.Request) { got <- fw.Kind; <-dead }
	})
	empty, err := proto.Encode(&proto.Empty{})
	must(t, err)
	b.set(func(f *fakeCtld) {
		f.epoch, f.notLeader = 2, a.addr
		f.forward = func(_ context.Context, _ *proto.Forward, r *server.Request) { _ = r.Reply(empty) } // the client sees it
	})
	c := &cluster{t: t, ctl: a, opts: testOptions(t, dir, a.addr, b.addr), dir: t.TempDir()}
	c.start()
	t.Cleanup(c.end)
	errs, old := make([]error, len(kinds)), make([]error, len(changes))
	var wg sync.WaitGroup
	var failed atomic.Int64 // of the changes without an id
	for i, kind := range kinds {
		wg.Go(func() {
			cl := client.New(c.opts.SocketDir)
			defer cl.Close()
			errs[i] = cl.Call(kind, &proto.Empty{}, &proto.Empty{})
		})
	}
	for i, kind := range changes {
		conn := dialLocal(t, c)
		wg.Go(func() {
			_, old[i] = conn.Call(t.Context(), kind, []byte("without an id"))
			failed.Add(1)
		})
	}
	for range len(kinds) + len(changes) {
		<-got
	}
	b.set(func(f *fakeCtld) { f.notLeader = "" })
	wg.Go(a.close)
	until(t, "the changes without an id have failed", func() bool { return failed.Load() == int64(len(changes)) })
	die()
	wg.Wait()
	// tries counts the requests of a kind that came with and without ids, and the ids.
	tries := func(kind uint16) (with, without int, ids map[string]bool) {
		ids = map[string]bool{}
		for _, f := range []*fakeCtld{a, b} {
			f.set(func(f *fakeCtld) {
				for _, fw := range f.forwards {
					var once proto.Once
					switch {
					case fw.Kind == proto.KindOnce && proto.Decode(fw.Body, &once) == nil && once.Kind == kind:
						with++
						ids[once.ID] = true
					case fw.Kind == kind:
						without++
					}
				}
			})
		}
		return with, without, ids
	}
	for i, kind := range kinds {
		row := proto.RequestOf(kind)
		with, without, ids := tries(kind)
		switch {
		case errs[i] != nil:
			t.Errorf("%s: %v", row.Name, errs[i])
		case row.ByID() && (with != 2 || len(ids) != 1), !row.ByID() && without != 2:
			t.Errorf("%s was made %d times with %d ids, %d times without", row.Name, with, len(ids), without)
		}
	}
	for i, kind := range changes {
		row := proto.RequestOf(kind)
		var e *rpc.Error
		if _, n, _ := tries(kind); n != 1 || !errors.As(old[i], &e) || e.Code != proto.CodeUnknown ||
			!strings.Contains(e.Text, "look at "+row.Look) {
			t.Errorf("%s without an id was made %d times: %v", row.Name, n, old[i])
		}
	}
}

func TestForwardLeavesWithTheUser(t *testing.T) {
	c := newCluster(t)
	gone := make(chan struct{})
	asked := make(chan struct{})
	c.ctl.set(func(f *fakeCtld) {
		f.forward = func(ctx context.Context, _ *proto.Forward, r *server.Request) {
			close(asked)
			<-ctx.Done()
			close(gone)
		}
	})
	conn := dialLocal(t, c)
	go func() { _, _ = conn.Call(context.Background(), proto.KindWait, nil) }() // ends with the connection
	<-asked
	must(t, conn.Close())
	select {
	case <-gone:
	case <-time.After(testWait):
		t.Error("the leader still works on a request whose user has gone")
	}
}

// No bytes from the socket or the controller stop the daemon.
func TestGarbage(t *testing.T) {
	c := newCluster(t)
	for _, text := range []string{"", "GET / HTTP/1.0\r\n\r\n", "GBATCH\x00\x01\xff\xff\xff\xff\x00\x01",
		"GBATCH\x00\x01\x00\x00\x00\x09\x00\x02\x00\x00\x00\x00\x00\x01\xc1", "GBATCH\x00\x09",
		strings.Repeat("\x00", 1<<16)} {
		nc, err := net.Dial("unix", c.n.Socket())
		must(t, err)
		_, _ = nc.Write([]byte(text)) // it may hang up before all is written
		must(t, nc.Close())
	}
	// From the controller: frames that mean nothing end the session, and the node comes back.
	for i, bad := range []struct {
		kind uint16
		body []byte
	}{{proto.KindOrders, []byte("\xc1garbage")}, {proto.KindOrders, nil}, {proto.KindReportAck, []byte{0x91}}, {999, nil},
		{proto.KindWelcome, []byte{0x90}}} {
		h := i + 1
		c.ctl.waitNode(h)
		c.ctl.mu.Lock()
		conn := c.ctl.conn
		c.ctl.conn = nil
		c.ctl.mu.Unlock()
		must(t, conn.WriteFrame(bad.kind, 0, 0, bad.body))
	}
	c.ctl.waitNode(6)
	if r := c.run(c.job(1, "exit 4")); r.Exit.Code != 4 {
		t.Errorf("%+v", r)
	}
}

func TestLoginHost(t *testing.T) {
	dir := newPKI(t)
	f := newFake(t, dir, "c1")
	f.set(func(f *fakeCtld) {
		// the client sees it
		f.forward = func(_ context.Context, _ *proto.Forward, r *server.Request) { _ = r.Reply([]byte("yes")) }
	})
	o := testOptions(t, dir, f.addr)
	o.Name, o.Login, o.Shim = "l1", true, ""
	c := &cluster{t: t, ctl: f, opts: o}
	c.start()
	defer c.stop()
	got, err := dialLocal(t, c).Call(t.Context(), proto.KindJobs, nil)
	if err != nil || string(got.Body) != "yes" {
		t.Errorf("%q %v", got.Body, err)
	}
	if f.is(func(f *fakeCtld) bool { return len(f.hellos) != 0 }) {
		t.Error("a login host registered as a node")
	}
}

func TestOptions(t *testing.T) {
	dir := newPKI(t)
	good := func() Options { return testOptions(t, dir, "127.0.0.1:1") }
	for _, tc := range []struct {
		want   string
		change func(*Options)
	}{
		{"is not a node name", func(o *Options) { o.Name = "a/b" }},
		{"no controller is known", func(o *Options) { o.Controllers = nil }},
		{"'c1' is not HOST:PORT", func(o *Options) { o.Controllers = []string{"c1"} }},
		{"not an absolute path", func(o *Options) { o.Spool = "spool" }},
		{"no directory for the local socket", func(o *Options) { o.SocketDir = "" }},
		{"the launcher /nonexistent/gshim is missing", func(o *Options) { o.Shim = "/nonexistent/gshim" }},
		{"the launcher " + filepath.Dir(binaries) + " is missing or can't be run",
			func(o *Options) { o.Shim = filepath.Dir(binaries) }},
		{"--login or --virtual, not both", func(o *Options) { o.Login, o.Virtual = true, true }},
		{"gbatch cert issue node n9", func(o *Options) { o.Name = "n9" }},
		{"ca.crt", func(o *Options) { o.PKI = "/nonexistent" }},
	} {
		o := good()
		tc.change(&o)
		n, err := New(o)
		if err == nil {
			must(t, n.Close())
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("want %q, got %v", tc.want, err)
		}
	}
	// Two on one spool, two on one socket.
	o := good()
	n, err := New(o)
	must(t, err)
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "another gnoded uses the spool") {
		t.Errorf("%v", err)
	}
	o2 := good()
	o2.SocketDir = o.SocketDir
	if _, err := New(o2); err == nil || !strings.Contains(err.Error(), "in use by another daemon") {
		t.Errorf("%v", err)
	}
	must(t, n.Close())
	must(t, n.Close())
}
