package server

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"testing"

	"gbatch/internal/rpc"
	"gbatch/internal/rpc/share"
)

// as makes all clients of a server one user.
func as(uid uint32) func(net.Conn) (rpc.Peer, error) {
	return func(net.Conn) (rpc.Peer, error) { return rpc.LocalPeer(rpc.User{UID: uid}), nil }
}

// TestBodiesOfOneUserAreBounded: with 100 connections that send large requests at once, only as many bodies are in the
// daemon as one user may have under way; the others are served one after the other, and all are.
func TestBodiesOfOneUserAreBounded(t *testing.T) {
	const conns, size = 16, 1 << 20
	var now, most, served atomic.Int64
	goOn := make(chan struct{})
	s := startServer(t, func(_ context.Context, r *Request) {
		most.Store(max(most.Load(), now.Add(1)))
		<-goOn
		now.Add(-1)
		served.Add(1)
		_ = r.Reply(nil)
	}, Options{Peer: as(7), UserBytes: 1 << 30})
	errs := make(chan error, conns)
	for range conns {
		c := s.dial(t)
		go func() {
			_, err := c.Call(context.Background(), 1, make([]byte, size))
			errs <- err
		}()
	}
	eventually(t, "as many as may be under way", func() bool { return now.Load() == share.PayerBytes/size })
	for range 1000 {
		runtime.Gosched()
	}
	close(goOn)
	for range conns {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if most.Load() > share.PayerBytes/size {
		t.Errorf("%d requests of %d bytes were under way at once", most.Load(), size)
	}
}

// TestWhoSendsTooMuchIsRefused: a user who has sent far more in large requests than is read in a while gets a refusal
// in place of a long wait, before the body is read; small requests and other users are served.
func TestWhoSendsTooMuchIsRefused(t *testing.T) {
	uid := atomic.Uint32{}
	uid.Store(7)
	peer := func(net.Conn) (rpc.Peer, error) { return rpc.LocalPeer(rpc.User{UID: uid.Load()}), nil }
	s := startServer(t, echo, Options{Peer: peer, UserBytes: 64 << 10})
	large := make([]byte, 4<<20) // more than fifteen seconds' worth, after the burst
	if _, err := s.dial(t).Call(t.Context(), 1, large); err != nil {
		t.Error(err)
	}
	var e *rpc.Error
	if _, err := s.dial(t).Call(t.Context(), 1, large); !errors.As(err, &e) || e.Code != rpc.CodeBusy {
		t.Errorf("the second one: %v", err)
	}
	if _, err := s.dial(t).Call(t.Context(), 1, []byte("small")); err != nil {
		t.Error(err)
	}
	uid.Store(8)
	if _, err := s.dial(t).Call(t.Context(), 1, large); err != nil {
		t.Errorf("another user: %v", err)
	}
}

// TestWhoDialsTooOftenIsRefused: a user whose connections end by that user's fault, again and again, is refused at the
// door for a while; others are not.
func TestWhoDialsTooOftenIsRefused(t *testing.T) {
	uid := atomic.Uint32{}
	uid.Store(7)
	peer := func(net.Conn) (rpc.Peer, error) { return rpc.LocalPeer(rpc.User{UID: uid.Load()}), nil }
	s := startServer(t, echo, Options{Peer: peer, UserConns: 0.1, MaxRequest: 100})
	refused := false
	for i := 0; i < 10 && !refused; i++ {
		_, err := s.dial(t).Call(t.Context(), 1, make([]byte, 1000))
		var e *rpc.Error
		refused = refused || errors.As(err, &e) && e.Code == rpc.CodeBusy
	}
	if !refused {
		t.Error("nobody is refused who has made ten connections fail where one in ten seconds may be opened")
	}
	uid.Store(8)
	if _, err := s.dial(t).Call(t.Context(), 1, []byte("small")); err != nil {
		t.Errorf("another user: %v", err)
	}
}

// TestBusyRefusalLeavesTheConnection: a request over a mux that there is no room for is refused without being read
// into memory, and the connection goes on.
func TestBusyRefusalLeavesTheConnection(t *testing.T) {
	entered, goOn := make(chan struct{}), make(chan struct{})
	s := startServer(t, func(_ context.Context, r *Request) {
		if r.Kind == 1 {
			entered <- struct{}{}
			<-goOn
		}
		_ = r.Reply(nil)
	}, Options{Peer: as(7), Budget: &share.Budget{Bytes: 1 << 20}})
	m := s.dialMux(t)
	first := make(chan error, 1)
	go func() {
		_, err := m.Call(context.Background(), 1, make([]byte, 1<<20))
		first <- err
	}()
	<-entered
	var e *rpc.Error
	if _, err := m.Call(context.Background(), 2, make([]byte, 1<<20)); !errors.As(err, &e) || e.Code != rpc.CodeBusy {
		t.Errorf("got %v", err)
	}
	if _, err := m.Call(context.Background(), 2, []byte("small")); err != nil {
		t.Error(err)
	}
	close(goOn)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if _, err := m.Call(context.Background(), 2, make([]byte, 1<<20)); err != nil {
		t.Error(err)
	}
}

// TestAnswerGivesThePlaceBack: who has the answer over a mux may make the next large request, even before the handler
// of the first one has returned.
func TestAnswerGivesThePlaceBack(t *testing.T) {
	answered := make(chan struct{})
	s := startServer(t, func(_ context.Context, r *Request) {
		_ = r.Reply(nil)
		if r.Kind == 1 {
			<-answered
		}
	}, Options{Peer: as(7), Budget: &share.Budget{Bytes: 1 << 20}})
	m := s.dialMux(t)
	for kind := range uint16(2) {
		if _, err := m.Call(t.Context(), 1+kind, make([]byte, 1<<20)); err != nil {
			t.Error(err)
		}
	}
	close(answered)
}

// TestKindsHaveTheirOwnLimits: a request over its kind's limit is refused, whatever others may have.
func TestKindsHaveTheirOwnLimits(t *testing.T) {
	s := startServer(t, echo, Options{MaxBytes: func(kind uint16) int { return int(kind) * 1000 }})
	// Often: the refusal comes while the client may still be writing.
	for _, mux := range append(make([]bool, 100), true) {
		var c interface {
			Call(context.Context, uint16, []byte) (rpc.Frame, error)
		} = s.dial(t)
		if mux {
			c = s.dialMux(t)
		}
		if _, err := c.Call(context.Background(), 200, make([]byte, 150_000)); err != nil {
			t.Error(err)
		}
		var e *rpc.Error
		if _, err := c.Call(context.Background(), 100, make([]byte, 150_000)); !errors.As(err, &e) ||
			e.Code != rpc.CodeTooLarge {
			t.Errorf("mux %v: got %v", mux, err)
		}
		if mux { // others use it too
			if _, err := c.Call(context.Background(), 200, nil); err != nil {
				t.Error(err)
			}
		}
	}
}
