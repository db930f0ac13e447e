package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
)

// daemon is a socket that counts its requests. first handles the first one; the next ones are answered.
type daemon struct {
	dir   string
	first func(r *server.Request)
	next  func(r *server.Request) // handles the others; nil: they are answered
	old   bool                    // it knows no ids

	mu    sync.Mutex
	count int
	ids   map[string]bool // of the requests with one
}

func newDaemon(t *testing.T, first func(r *server.Request)) *daemon {
	t.Helper()
	d := &daemon{dir: t.TempDir(), first: first, ids: map[string]bool{}}
	d.listen(t, "ctld.sock")
	return d
}

func (d *daemon) listen(t *testing.T, name string) {
	t.Helper()
	ln, err := server.ListenUnix(filepath.Join(d.dir, name), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- server.Serve(ctx, ln, d.serve, server.Options{Log: slog.New(slog.DiscardHandler)}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (d *daemon) serve(_ context.Context, r *server.Request) {
	d.mu.Lock()
	if d.old && r.Kind == proto.KindOnce {
		d.mu.Unlock()
		_ = r.Fail(rpc.Errorf(proto.CodeBadRequest, "this controller does not know request kind %d; is the command of a "+
			"newer version?", r.Kind)) // the client asks without an id
		return
	}
	d.count++
	n, next := d.count, d.next
	var once proto.Once
	if r.Kind == proto.KindOnce && proto.Decode(r.Body, &once) == nil {
		d.ids[once.ID] = true
	}
	d.mu.Unlock()
	if n == 1 && d.first != nil {
		d.first(r)
		return
	}
	if next != nil {
		next(r)
		return
	}
	body, err := proto.Encode(&proto.Empty{})
	if err == nil {
		_ = r.Reply(body) // the client counts
	}
}

func (d *daemon) ask(kind uint16) (tries int, err error) {
	c := New(d.dir)
	defer c.Close()
	err = c.Call(kind, &proto.Empty{}, &proto.Empty{})
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count, err
}

// hangUp ends the connection instead of answering.
func hangUp(r *server.Request) {
	if c, err := r.Hijack(); err == nil {
		_ = c.Close() // the client sees it
	}
}

func answer(code proto.Code) func(*server.Request) {
	return func(r *server.Request) { _ = r.Fail(rpc.Errorf(code, "what happened")) } // the client sees it
}

// TestLostAnswer checks for all kinds that a request whose answer is lost is made again, a change under the same id.
func TestLostAnswer(t *testing.T) {
	for kind := proto.KindPing; kind < proto.KindForward; kind++ {
		row := proto.RequestOf(kind)
		if row.Name == "REQUEST_OTHER" && kind != proto.KindForward-1 || // the last one stands for those of tomorrow
			row.At == proto.AtHost || kind == proto.KindOnce {
			continue
		}
		for how, first := range map[string]func(*server.Request){"connection lost": hangUp,
			"outcome unknown": answer(proto.CodeUnknown)} {
			t.Run(fmt.Sprintf("%s %d, %s", row.Name, kind, how), func(t *testing.T) {
				t.Parallel() // a client pauses before it tries again
				d := newDaemon(t, first)
				n, err := d.ask(kind)
				if err != nil || n != 2 {
					t.Errorf("%v after %d tries, want an answer to the second", err, n)
				}
				if row.ByID() != (len(d.ids) == 1) || len(d.ids) > 1 {
					t.Errorf("the tries had %d ids", len(d.ids))
				}
			})
		}
	}
}

func (d *daemon) isOld() {
	d.mu.Lock()
	d.old = true
	d.mu.Unlock()
}

// TestOlderController checks that a controller that knows no ids gets a change without one, which is then made once: if
// its answer is lost the outcome is unknown.
func TestOlderController(t *testing.T) {
	d := newDaemon(t, nil)
	d.isOld()
	if n, err := d.ask(proto.KindReserve); err != nil || n != 1 || len(d.ids) != 0 {
		t.Errorf("%v after %d tries, %d of them with an id", err, n, len(d.ids))
	}
	d = newDaemon(t, hangUp)
	d.isOld()
	var e *rpc.Error
	if n, err := d.ask(proto.KindReserve); n != 1 || !errors.As(err, &e) || e.Code != proto.CodeUnknown ||
		!strings.HasSuffix(e.Text, "look at gcontrol show reservation before you repeat the command") {
		t.Errorf("%v after %d tries, want one and CodeUnknown", err, n)
	}
}

// TestUnknownIsSaidWhenItIsSo checks the last word on a change after tries that had no answer: unknown if a try may
// have been made, unreachable if none was.
func TestUnknownIsSaidWhenItIsSo(t *testing.T) {
	for _, c := range []struct {
		first, next func(*server.Request)
		want        proto.Code
	}{
		{hangUp, answer(proto.CodeNoController), proto.CodeUnknown},
		{hangUp, answer(proto.CodeBusy), proto.CodeUnknown},
		{answer(proto.CodeNoController), answer(proto.CodeNotLeader), proto.CodeNoController},
		{answer(proto.CodeNotLeader), answer(proto.CodeInvalidJob), proto.CodeInvalidJob},
		{hangUp, answer(proto.CodeBegun), proto.CodeBegun},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel() // it takes all of Patience
			d := newDaemon(t, c.first)
			d.mu.Lock()
			d.next = c.next
			d.mu.Unlock()
			var e *rpc.Error
			if _, err := d.ask(proto.KindUpdateJob); !errors.As(err, &e) || e.Code != c.want ||
				strings.Count(e.Text, "not known") > 1 {
				t.Errorf("%v, want code %d", err, c.want)
			}
		})
	}
}

// TestNotBegun checks that a request of any kind is repeated if no leader has received it.
func TestNotBegun(t *testing.T) {
	for _, kind := range []uint16{proto.KindUpdateJob, proto.KindReserve, proto.KindMIG, proto.KindSubmit,
		proto.KindJobs} {
		for _, code := range []proto.Code{proto.CodeNoController, proto.CodeNotLeader} {
			if n, err := newDaemon(t, answer(code)).ask(kind); err != nil || n != 2 {
				t.Errorf("kind %d, code %d: %v after %d tries, want an answer to the second", kind, code, err, n)
			}
		}
	}
}

// TestSilentDaemon: the daemon of the first socket is stopped: its kernel takes connections, and nobody answers. The
// request goes to the next one.
func TestSilentDaemon(t *testing.T) {
	for _, kind := range []uint16{proto.KindJobs, proto.KindReserve} {
		t.Run(proto.RequestOf(kind).Name, func(t *testing.T) {
			t.Parallel() // it waits
			d := &daemon{dir: t.TempDir(), ids: map[string]bool{}}
			ln, err := net.Listen("unix", filepath.Join(d.dir, "ctld-1.sock"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = ln.Close() })
			d.listen(t, "ctld-2.sock")
			begin := time.Now()
			if n, err := d.ask(kind); err != nil || n != 1 {
				t.Errorf("%v after %d requests to the daemon that answers", err, n)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestSecondChoice: while a controller's daemon of this host is away, its requests go to a node's daemon. If that one
// may not speak for the user, the controller is waited for.
func TestSecondChoice(t *testing.T) {
	d := &daemon{dir: t.TempDir(), ids: map[string]bool{}}
	back := make(chan struct{})
	d.first = func(r *server.Request) {
		close(back)
		_ = r.Fail(rpc.Errorf(proto.CodeNotHere, "root's commands are taken on controllers only")) // the client sees it
	}
	ln, err := net.Listen("unix", filepath.Join(d.dir, "ctld.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := ln.Close(); err != nil { // its socket stays, as after kill -9
		t.Fatal(err)
	}
	d.listen(t, "node.sock")
	done := make(chan error, 1)
	go func() {
		n, err := d.ask(proto.KindSubmit)
		if err == nil && n != 2 {
			err = fmt.Errorf("%d requests, want 2", n)
		}
		done <- err
	}()
	<-back
	d.listen(t, "ctld.sock")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestDaemonStartsAnew: a request that finds no socket waits a moment where a daemon has just removed its own, and only
// there.
func TestDaemonStartsAnew(t *testing.T) {
	d := newDaemon(t, nil)
	dir := t.TempDir()
	gone := filepath.Join(dir, "noded.sock")
	if err := os.WriteFile(gone, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	back := time.AfterFunc(300*time.Millisecond, func() {
		if err := os.Symlink(filepath.Join(d.dir, "ctld.sock"), filepath.Join(dir, "ctld.sock")); err != nil {
			t.Error(err)
		}
	})
	defer back.Stop()
	cl := New(dir)
	defer cl.Close()
	if err := cl.Call(proto.KindPing, &proto.Empty{}, &proto.Empty{}); err != nil {
		t.Errorf("the daemon is back, and the request failed: %v", err)
	}
	long := time.Now().Add(-time.Minute)
	empty := t.TempDir()
	if err := os.Chtimes(empty, long, long); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	cl = New(empty)
	defer cl.Close()
	if err := cl.Call(proto.KindPing, &proto.Empty{}, &proto.Empty{}); err == nil || time.Since(begin) > leftFor {
		t.Errorf("a host without a daemon answers %v after %v", err, time.Since(begin))
	}
}
