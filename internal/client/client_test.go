package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
)

// daemon is a socket that counts its requests. first handles the first one; the next ones are answered.
type daemon struct {
	dir   string
	first func(r *server.Request)

	mu    sync.Mutex
	count int
}

func newDaemon(t *testing.T, first func(r *server.Request)) *daemon {
	t.Helper()
	d := &daemon{dir: t.TempDir(), first: first}
	ln, err := server.ListenUnix(filepath.Join(d.dir, "ctld.sock"), 0o600)
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
	return d
}

func (d *daemon) serve(_ context.Context, r *server.Request) {
	d.mu.Lock()
	d.count++
	n := d.count
	d.mu.Unlock()
	if n == 1 {
		d.first(r)
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

// TestLostAnswer checks for all kinds that a request whose answer is lost is made only once, unless its row says that
// it may be repeated.
func TestLostAnswer(t *testing.T) {
	for kind := proto.KindPing; kind < proto.KindForward; kind++ {
		row := proto.RequestOf(kind)
		if row.Name == "REQUEST_OTHER" && kind != proto.KindForward-1 { // the last one stands for those of tomorrow
			continue
		}
		for how, first := range map[string]func(*server.Request){"connection lost": hangUp,
			"outcome unknown": answer(proto.CodeUnknown)} {
			t.Run(fmt.Sprintf("%s %d, %s", row.Name, kind, how), func(t *testing.T) {
				t.Parallel() // a client pauses before it tries again
				n, err := newDaemon(t, first).ask(kind)
				if row.Repeats {
					if err != nil || n != 2 {
						t.Errorf("%v after %d tries, want an answer to the second", err, n)
					}
					return
				}
				var e *rpc.Error
				if n != 1 || !errors.As(err, &e) || e.Code != proto.CodeUnknown {
					t.Fatalf("%v after %d tries, want one and CodeUnknown", err, n)
				}
				if how == "connection lost" && row.Look != "" &&
					!strings.Contains(e.Text, "it is not known whether the change was made: look at "+row.Look) {
					t.Errorf("%q", e.Text)
				}
			})
		}
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
