package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"gbatch/internal/rpc"
)

func TestMuxConcurrent(t *testing.T) {
	release := make(chan struct{})
	var inside atomic.Int32
	s := startServer(t, func(_ context.Context, r *Request) {
		inside.Add(1)
		<-release
		_ = r.Reply(r.Body)
	}, Options{})
	m := s.dialMux(t)
	var wg sync.WaitGroup
	// More requests than the limit: the Mux makes the others wait, so the server refuses none.
	for i := range rpc.MuxRequests + 50 {
		wg.Go(func() {
			body := fmt.Appendf(nil, "request %d", i)
			if f, err := m.Call(context.Background(), kindEcho, body); err != nil || !bytes.Equal(f.Body, body) {
				t.Errorf("%s: %q, %v", body, f.Body, err)
			}
		})
	}
	eventually(t, "all that may be are under way", func() bool { return inside.Load() == rpc.MuxRequests })
	close(release)
	wg.Wait()
}

func TestMuxOverLimit(t *testing.T) {
	entered, left := make(chan struct{}), make(chan error, 10)
	s := startServer(t, testHandler(entered, left), Options{MuxRequests: 1})
	m := s.dialMux(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := m.Call(ctx, kindWait, nil)
		done <- err
	}()
	<-entered
	var e *rpc.Error
	if _, err := m.Call(context.Background(), kindEcho, nil); !errors.As(err, &e) || e.Code != rpc.CodeBusy {
		t.Errorf("got %v, want CodeBusy", err)
	}
	// Cancelling reaches the handler.
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-left
	eventually(t, "the place is free again", func() bool {
		_, err := m.Call(context.Background(), kindEcho, nil)
		return err == nil
	})
}

// TestMuxSlowStream checks that a caller that doesn't read its answers neither blocks others nor fills memory.
func TestMuxSlowStream(t *testing.T) {
	var sent atomic.Int32
	s := startServer(t, func(_ context.Context, r *Request) {
		if r.Kind == kindEcho {
			_ = r.Reply(r.Body)
			return
		}
		for range 1000 {
			if r.ReplyMore(make([]byte, 1000)) != nil {
				return
			}
			sent.Add(1)
		}
		_ = r.Reply(nil)
	}, Options{})
	m := s.dialMux(t)
	got := 0
	err := m.Stream(context.Background(), kindStream, nil, func(*rpc.Frame) error {
		if got++; got > 1 {
			return nil
		}
		eventually(t, "the window is used", func() bool { return sent.Load() == rpc.StreamWindow })
		for range 100 {
			if _, err := m.Call(context.Background(), kindEcho, nil); err != nil {
				return err
			}
		}
		if n := sent.Load(); n != rpc.StreamWindow {
			t.Errorf("%d answers were sent ahead, want %d", n, rpc.StreamWindow)
		}
		return nil
	})
	if err != nil || got != 1001 {
		t.Errorf("%d answers, %v", got, err)
	}
}

func TestStreamGivenUp(t *testing.T) {
	left := make(chan error, 10)
	s := startServer(t, testHandler(nil, left), Options{})
	m := s.dialMux(t)
	enough := errors.New("enough")
	err := m.Stream(context.Background(), kindStream, nil, func(*rpc.Frame) error { return enough })
	if err != enough {
		t.Errorf("got %v", err)
	}
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler got %v", err)
	}
	if _, err := m.Call(context.Background(), kindStream, nil); !errors.Is(err, rpc.ErrProtocol) {
		t.Errorf("a Call with many answers: %v", err)
	}
	if _, err := m.Call(context.Background(), kindEcho, nil); err != nil {
		t.Errorf("the Mux is of no use afterwards: %v", err)
	}
}

func TestMuxLosesConnection(t *testing.T) {
	entered, left := make(chan struct{}), make(chan error, 10)
	s := startServer(t, testHandler(entered, left), Options{})
	m := s.dialMux(t)
	const n = 5
	done := make(chan error, n)
	for range n {
		go func() {
			_, err := m.Call(context.Background(), kindWait, nil)
			done <- err
		}()
		<-entered
	}
	go s.stop()
	for range n {
		if err := <-done; err == nil {
			t.Error("a call without an answer succeeded")
		}
	}
	<-m.Done()
	if err := m.Err(); !errors.Is(err, rpc.ErrLost) {
		t.Errorf("got %v", err)
	}
	if _, err := m.Call(context.Background(), kindEcho, nil); !errors.Is(err, rpc.ErrLost) {
		t.Errorf("got %v", err)
	}
}

// brokenOneWay is a connection on which nothing can be sent any more. Its reader hears that it is closed when it is
// let.
type brokenOneWay struct {
	net.Conn
	broken atomic.Bool
	once   sync.Once
	closed chan struct{}
	hears  chan struct{}
}

func (b *brokenOneWay) Write(p []byte) (int, error) {
	if b.broken.Load() {
		return 0, unix.EPIPE
	}
	return b.Conn.Write(p)
}

func (b *brokenOneWay) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if err != nil {
		<-b.hears
	}
	return n, err
}

func (b *brokenOneWay) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Conn.Close()
}

// TestMuxThatCannotSend: a connection on which a request can't be sent has ended when the caller hears of it. Callers
// that keep connections look at that, and ask once more on another one.
func TestMuxThatCannotSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer func() { _ = far.Close() }()
		go func() { _, _ = rpc.Accept(far, rpc.ConnOptions{Name: "client"}) }() // it is not asked for more
		b := &brokenOneWay{Conn: near, closed: make(chan struct{}), hears: make(chan struct{})}
		m, err := rpc.NewMux(rpc.Client(b, rpc.ConnOptions{Name: "server"}))
		if err != nil {
			t.Fatal(err)
		}
		b.broken.Store(true)
		done := make(chan error, 1)
		go func() {
			_, err := m.Call(t.Context(), kindEcho, nil)
			done <- err
		}()
		<-b.closed
		synctest.Wait()
		select {
		case err := <-done:
			t.Error("the caller hears of it before the connection has ended")
			done <- err
		default:
		}
		close(b.hears)
		var unsent *rpc.Unsent
		if err := <-done; !errors.As(err, &unsent) || !errors.Is(err, unix.EPIPE) {
			t.Errorf("got %v", err)
		}
		if m.Err() == nil {
			t.Error("the connection is still given to callers")
		}
		_ = m.Close() // it has ended
	})
}
