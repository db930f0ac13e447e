package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"gbatch/internal/rpc"
)

// awaitWatcher waits until the request being handled has its watcher, as one that takes long does, or what it found.
func awaitWatcher(t testing.TB, r *Request) {
	t.Helper()
	buf := make([]byte, 1<<20)
	eventually(t, "a watcher", func() bool {
		return len(r.cn.watched) > 0 || bytes.Contains(buf[:runtime.Stack(buf, true)], []byte("watchClient"))
	})
}

func TestSlowRequestsOneAfterTheOther(t *testing.T) {
	s := startServer(t, func(_ context.Context, r *Request) {
		if r.Kind == kindWait {
			awaitWatcher(t, r)
		}
		_ = r.Reply(r.Body)
	}, Options{})
	c := s.dial(t)
	for i, kind := range []uint16{kindWait, kindWait, kindEcho, kindEcho, kindWait, kindEcho} {
		body := fmt.Appendf(nil, "%d", i)
		if f, err := c.Call(context.Background(), kind, body); err != nil || !bytes.Equal(f.Body, body) {
			t.Errorf("request %d: %q, %v", i, f.Body, err)
		}
	}
}

// TestSentAheadOfSlowRequest checks that data sent after a slow request wakes the watcher and is still read afterwards.
func TestSentAheadOfSlowRequest(t *testing.T) {
	s := startServer(t, func(ctx context.Context, r *Request) {
		if r.Kind == kindWait {
			awaitWatcher(t, r)
		}
		if ctx.Err() != nil {
			t.Error("the context has ended")
		}
		_ = r.Reply(nil)
	}, Options{})
	c := s.dial(t)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		kind := kindEcho
		if i%5 == 0 {
			kind = kindWait
		}
		if err := c.WriteFrame(kind, 0, uint32(i), make([]byte, 3000)); err != nil {
			t.Fatal(err)
		}
	}
	var f rpc.Frame
	for i := range 20 {
		if err := c.ReadFrame(&f); err != nil || f.ID != uint32(i) {
			t.Fatalf("answer %d has id %d, %v", i, f.ID, err)
		}
	}
}

// TestGoneAfterMore: the end of a client that has sent more requests than are answered ends the one that is handled,
// and the others are not handled.
func TestGoneAfterMore(t *testing.T) {
	began, ended := make(chan uint16, 20), make(chan error, 20)
	s := startServer(t, func(ctx context.Context, r *Request) {
		began <- r.Kind
		select {
		case <-ctx.Done():
			ended <- nil
		case <-time.After(10 * time.Second):
			ended <- errors.New("a request goes on for a client that has gone")
		}
	}, Options{})
	c, err := rpc.DialUnix(s.path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 16 {
		if err := c.WriteFrame(kindWait, 0, uint32(i+1), make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	<-began
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	s.stop()
	if n := len(began); n > 0 {
		t.Errorf("%d requests of a client that has gone were handled", n)
	}
}

func TestHijackUnderWatch(t *testing.T) {
	s := startServer(t, func(_ context.Context, r *Request) {
		awaitWatcher(t, r)
		c, err := r.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		var f rpc.Frame
		for c.ReadFrame(&f) == nil {
			if err := c.WriteFrame(f.Kind, 0, f.ID, f.Body); err != nil {
				t.Error(err)
			}
		}
	}, Options{Idle: time.Minute})
	for _, ahead := range []int{0, 20} {
		t.Run(fmt.Sprintf("%d frames ahead", ahead), func(t *testing.T) {
			c := s.dial(t)
			if err := c.WriteFrame(kindWait, 0, 1, nil); err != nil {
				t.Fatal(err)
			}
			for i := range ahead {
				if err := c.WriteFrame(9, 0, uint32(i), make([]byte, 3000)); err != nil {
					t.Fatal(err)
				}
			}
			var f rpc.Frame
			for i := range ahead + 3 {
				if i >= ahead {
					if err := c.WriteFrame(9, 0, uint32(i), make([]byte, 3000)); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.ReadFrame(&f); err != nil || f.ID != uint32(i) || len(f.Body) != 3000 {
					t.Fatalf("frame %d: id %d with %d bytes, %v", i, f.ID, len(f.Body), err)
				}
			}
		})
	}
}

// The deadline for idle connections is lifted during a slow request, and back after it.
func TestIdleAfterSlowRequest(t *testing.T) {
	s := startServer(t, func(ctx context.Context, r *Request) {
		awaitWatcher(t, r)
		time.Sleep(40 * time.Millisecond) // longer than a connection may be idle; not a wait for anything
		if ctx.Err() != nil {
			t.Error("the context has ended")
		}
		_ = r.Reply(nil)
	}, Options{Idle: 20 * time.Millisecond})
	c := s.dial(t)
	if _, err := c.Call(context.Background(), kindEcho, nil); err != nil {
		t.Fatal(err)
	}
	var f rpc.Frame
	if err := c.ReadFrame(&f); err != io.EOF {
		t.Errorf("an idle connection got %v, want to be closed", err)
	}
}
