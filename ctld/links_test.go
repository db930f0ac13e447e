package ctld

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gbatch/ctld/jobevents"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
)

// dbdPort is a gdbd that answers everything, and counts the connections it gets.
type dbdPort struct {
	dir   string
	conns atomic.Int64
	stop  func()
}

func (d *dbdPort) serve(t *testing.T, addr string) string {
	t.Helper()
	cfg, err := pki.Load(d.dir, pki.RoleDBD, "acct")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	var l *pki.Listener
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) { // until the port is free again
		if l, err = pki.Listen(addr, cfg, log, pki.Accept{Proto: pki.ProtoRPC, Roles: []string{pki.RoleCtld}}); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var seen sync.Map
	var wg sync.WaitGroup
	wg.Go(func() {
		handle := func(_ context.Context, r *server.Request) {
			if _, old := seen.LoadOrStore(r.Remote(), true); !old {
				d.conns.Add(1)
			}
			_ = r.Reply([]byte{0x90}) // the test sees it
		}
		if err := server.Serve(ctx, l.Proto(pki.ProtoRPC), handle,
			server.Options{Log: log, Peer: pki.PeerOfConn}); err != nil {
			t.Error(err)
		}
	})
	d.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		_ = l.Close() // the server has closed it
	})
	t.Cleanup(d.stop)
	return l.Addr().String()
}

// gacct's requests share one connection, even many at once, and reach a gdbd that was restarted.
func TestKeptConnectionToGdbd(t *testing.T) {
	d := &dbdPort{dir: filepath.Join(t.TempDir(), "pki")}
	if err := pki.InitCA(d.dir, "c"); err != nil {
		t.Fatal(err)
	}
	for role, name := range map[string]string{pki.RoleDBD: "acct", pki.RoleCtld: "ctl1"} {
		if err := pki.Issue(d.dir, role, name, nil, d.dir); err != nil {
			t.Fatal(err)
		}
	}
	addr := d.serve(t, "127.0.0.1:0")
	cfg, err := pki.Load(d.dir, pki.RoleCtld, "ctl1")
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller{creds: cfg}
	c.opts.DbdAddr = addr
	c.dbds = dbdsOf(&c.opts)
	t.Cleanup(c.dbds[0].link.close)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := c.query(t.Context(), proto.KindQuery, nil, func([]byte) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := d.conns.Load(); n != 1 {
		t.Errorf("%d connections for 20 questions", n)
	}
	d.stop()
	d.serve(t, addr)
	if err := c.query(t.Context(), proto.KindQuery, nil, func([]byte) error { return nil }); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if n := d.conns.Load(); n != 2 {
		t.Errorf("%d connections after a restart", n)
	}
	d.stop()
	err = c.query(t.Context(), proto.KindQuery, nil, func([]byte) error { return nil })
	if codeOf(err) != proto.CodeNoAccounting {
		t.Errorf("without gdbd: %v", err)
	}
}

// While a daemon does not answer, all requests to it wait for one attempt. A request whose context ends stops waiting;
// close ends the attempt.
func TestLinkDialsOnce(t *testing.T) {
	var l link
	dials := make(chan struct{}, 100)
	answer := make(chan struct{})
	silent := errors.New("silent")
	dial := func() (*rpc.Mux, error) { dials <- struct{}{}; <-answer; return nil, silent }
	var wg sync.WaitGroup
	errs := make(chan error, 10)
	for range 10 {
		wg.Go(func() { _, err := l.to(t.Context(), "a", dial); errs <- err })
	}
	<-dials
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.to(gone, "a", dial); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := len(dials); n != 0 {
		t.Errorf("%d further attempts while one is under way", n)
	}
	close(answer)
	wg.Wait()
	for range 10 {
		if err := <-errs; err != silent {
			t.Error(err)
		}
	}
	l.close()
	if _, err := l.to(t.Context(), "a", dial); err != errLinkClosed {
		t.Error(err)
	}
}

// TestPingsAskTogether: pings dial nobody: many of them, at once and one after the other, ask another controller over
// one kept connection, and seldom.
func TestPingsAskTogether(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if err := pki.InitCA(dir, "c"); err != nil {
		t.Fatal(err)
	}
	creds := map[string]*pki.Credentials{}
	for _, name := range []string{"ctl1", "ctl2"} {
		err := pki.Issue(dir, pki.RoleCtld, name, nil, dir)
		if err == nil {
			creds[name], err = pki.Load(dir, pki.RoleCtld, name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	l, err := pki.Listen("127.0.0.1:0", creds["ctl2"], log, pki.Accept{Proto: pki.ProtoRPC})
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	var from sync.Map
	body, err := proto.Encode(&proto.MomentReply{Host: hostTime(), Name: "ctl2"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- server.Serve(ctx, l.Proto(pki.ProtoRPC), func(_ context.Context, r *server.Request) {
			asked.Add(1)
			from.Store(r.Remote(), true)
			_ = r.Reply(body) // the test sees it
		}, server.Options{Log: log, Peer: pki.PeerOfConn})
	}()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, l.Close()); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	c := &Controller{log: log, creds: creds["ctl1"], machine: newMachine(), clocks: newClocks(),
		jobEvents: new(jobevents.Teller), opts: Options{Name: "ctl1"}}
	c.opts.Peers = []Peer{{"ctl1", "127.0.0.1:1"}, {"ctl2", l.Addr().String()}}
	begun := time.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if c.hearAll(t.Context()); !c.answersNow(t.Context(), "ctl2") {
					t.Error("a ping does not know of the other controller")
				}
			}
		})
	}
	all.Wait()
	defer c.clocks.link("ctl2").close()
	conns := 0
	from.Range(func(any, any) bool { conns++; return true })
	if most := int64(2 + time.Since(begun)/maxHearing); asked.Load() > most || conns != 1 {
		t.Errorf("400 pings asked %d times over %d connections, at most %d and one were due", asked.Load(), conns, most)
	}
}
