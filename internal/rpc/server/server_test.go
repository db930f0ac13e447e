package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"gbatch/internal/rpc"
)

const (
	kindEcho uint16 = iota + 1
	kindStream
	kindFail
	kindSecret
	kindPanic
	kindSilent
	kindWait
	kindHuge
	kindPanicLate
)

// testHandler answers one kind each.
func testHandler(entered chan<- struct{}, left chan<- error) Handler {
	return func(ctx context.Context, r *Request) {
		switch r.Kind {
		case kindEcho:
			_ = r.Reply(r.Body)
		case kindStream:
			for i := range 100 {
				if err := r.ReplyMore(fmt.Appendf(nil, "%d", i)); err != nil {
					left <- err
					return
				}
			}
			_ = r.Reply([]byte("end"))
		case kindFail:
			_ = r.Fail(fmt.Errorf("looking: %w", rpc.Errorf(42, "no such job: 7")))
		case kindSecret:
			_ = r.Fail(errors.New("password is 1234"))
		case kindPanic:
			panic("oh")
		case kindPanicLate:
			_ = r.Reply([]byte("answered"))
			panic("too late to matter")
		case kindSilent:
		case kindWait:
			entered <- struct{}{}
			<-ctx.Done()
			left <- ctx.Err()
			_ = r.Fail(ctx.Err())
		case kindHuge:
			_ = r.Reply(make([]byte, rpc.MaxFrame+1))
		}
	}
}

// TestAnswers runs the same requests over a sequential connection and a Mux: both are rpc.Callers.
func TestAnswers(t *testing.T) {
	left := make(chan error, 10)
	s := startServer(t, testHandler(nil, left), Options{})
	for name, c := range map[string]rpc.Caller{"conn": s.dial(t), "mux": s.dialMux(t)} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			for _, n := range []int{0, 1, 5000, 3 << 20} {
				body := bytes.Repeat([]byte("x"), n)
				f, err := c.Call(ctx, kindEcho, body)
				if err != nil || !bytes.Equal(f.Body, body) || f.Kind != kindEcho {
					t.Fatalf("%d bytes: %d came back, %v", n, len(f.Body), err)
				}
			}
			var got []string
			err := c.Stream(ctx, kindStream, nil, func(f *rpc.Frame) error {
				if f.More() != (len(got) < 100) {
					t.Errorf("answer %d: more %v", len(got), f.More())
				}
				got = append(got, string(f.Body))
				return nil
			})
			if err != nil || len(got) != 101 || got[0] != "0" || got[99] != "99" || got[100] != "end" {
				t.Errorf("stream: %d answers, %v", len(got), err)
			}
			errs := []struct {
				kind uint16
				want rpc.Error
			}{
				{kindFail, rpc.Error{Code: 42, Text: "no such job: 7"}},
				{kindSecret, rpc.Error{Code: rpc.CodeInternal, Text: "internal error in the daemon; its log says more"}},
				{kindPanic, rpc.Error{Code: rpc.CodeInternal, Text: "internal error in the daemon; its log says more"}},
				{kindSilent, rpc.Error{Code: rpc.CodeInternal, Text: "internal error in the daemon; its log says more"}},
				{kindHuge, rpc.Error{Code: rpc.CodeTooLarge,
					Text: "a message of 67108865 bytes is over the limit of 67108864 bytes (64 MiB)"}},
			}
			for _, tt := range errs {
				_, err := c.Call(ctx, tt.kind, nil)
				var e *rpc.Error
				if !errors.As(err, &e) || *e != tt.want {
					t.Errorf("kind %d: got %v, want %v", tt.kind, err, tt.want)
				}
			}
			if f, err := c.Call(ctx, kindPanicLate, nil); err != nil || string(f.Body) != "answered" {
				t.Errorf("got %q, %v", f.Body, err)
			}
			if _, err := c.Call(ctx, kindEcho, nil); err != nil {
				t.Errorf("after all that: %v", err)
			}
		})
	}
	for _, says := range []string{"password is 1234", "request handler panicked", "server_test.go",
		"request handler gave no answer", "peer=\"uid"} {
		if !s.log.has(says) {
			t.Errorf("the log doesn't say %q", says)
		}
	}
}

func TestRequestTooLarge(t *testing.T) {
	s := startServer(t, echo, Options{MaxRequest: 1000})
	want := "a message of 20000000 bytes is over the limit of 1000 bytes"
	nc, err := net.Dial("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	c := rpc.Client(nc, rpc.ConnOptions{})
	defer c.Close()
	var e *rpc.Error
	if _, err := c.Call(context.Background(), 1, make([]byte, 20000000)); !errors.As(err, &e) ||
		e.Code != rpc.CodeTooLarge || !strings.Contains(e.Text, want) {
		t.Errorf("got %v, want %q", err, want)
	}
	// A command's own limit says so before anything is sent, and leaves the connection usable.
	u := s.dial(t)
	if _, err := u.Call(context.Background(), 1, make([]byte, rpc.MaxRequest+1)); !errors.As(err, &e) ||
		e.Code != rpc.CodeTooLarge {
		t.Errorf("got %v", err)
	}
	if _, err := u.Call(context.Background(), 1, make([]byte, 1000)); err != nil {
		t.Error(err)
	}
}

func TestHandlerLearnsThatClientLeft(t *testing.T) {
	entered, left := make(chan struct{}), make(chan error, 10)
	s := startServer(t, testHandler(entered, left), Options{})
	c := s.dial(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, kindWait, nil)
		done <- err
	}()
	<-entered
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the client got %v", err)
	}
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler got %v", err)
	}
}

func TestHijack(t *testing.T) {
	s := startServer(t, func(_ context.Context, r *Request) {
		if r.Kind == kindEcho {
			_ = r.Reply(r.Body)
			return
		}
		c, err := r.Hijack()
		if err != nil {
			_ = r.Fail(err)
			return
		}
		if r.Reply(nil) == nil {
			t.Error("an answer after the hijack")
		}
		var f rpc.Frame
		for c.ReadFrame(&f) == nil {
			if err := c.WriteFrame(f.Kind, 0, f.ID, append([]byte("re: "), f.Body...)); err != nil {
				t.Error(err)
			}
		}
	}, Options{})
	for _, ahead := range []int{0, 1, 20} {
		t.Run(fmt.Sprintf("%d frames ahead", ahead), func(t *testing.T) {
			c := s.dial(t)
			if _, err := c.Call(context.Background(), kindEcho, nil); err != nil {
				t.Fatal(err)
			}
			if err := c.QueueFrame(kindWait, 0, 7, nil); err != nil {
				t.Fatal(err)
			}
			for i := range ahead {
				if err := c.QueueFrame(9, 0, uint32(i), []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Flush(); err != nil {
				t.Fatal(err)
			}
			var f rpc.Frame
			for i := range ahead + 3 {
				if i >= ahead {
					if err := c.WriteFrame(9, 0, uint32(i), []byte("x")); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.ReadFrame(&f); err != nil || f.ID != uint32(i) || string(f.Body) != "re: x" {
					t.Fatalf("frame %d: id %d %q, %v", i, f.ID, f.Body, err)
				}
			}
		})
	}
	t.Run("mux", func(t *testing.T) {
		var e *rpc.Error
		if _, err := s.dialMux(t).Call(context.Background(), kindWait, nil); !errors.As(err, &e) ||
			e.Code != rpc.CodeBadRequest {
			t.Errorf("got %v", err)
		}
	})
}

func TestRequestsSentAhead(t *testing.T) {
	s := startServer(t, echo, Options{})
	c := s.dial(t)
	for i := range 50 {
		if err := c.QueueFrame(kindEcho, 0, uint32(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	var f rpc.Frame
	for i := range 50 {
		if err := c.ReadFrame(&f); err != nil || f.ID != uint32(i) {
			t.Fatalf("answer %d has id %d, %v", i, f.ID, err)
		}
	}
}

func TestConnectionLimits(t *testing.T) {
	s := startServer(t, echo, Options{MaxConns: 3})
	var conns []*rpc.Conn
	for range 3 {
		c := s.dial(t)
		if _, err := c.Call(context.Background(), kindEcho, nil); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for _, size := range []int{0, 1 << 20} { // the large one is still being sent when the refusal comes
		var e *rpc.Error
		_, err := s.dial(t).Call(context.Background(), kindEcho, make([]byte, size))
		if !errors.As(err, &e) || e.Code != rpc.CodeBusy || !strings.Contains(e.Text, "all 3 connections are taken") {
			t.Errorf("%d bytes: got %v", size, err)
		}
	}
	if err := conns[0].Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a place is free again", func() bool {
		c := s.dial(t)
		defer c.Close()
		_, err := c.Call(context.Background(), kindEcho, nil)
		return err == nil
	})
}

func TestLimitPerUser(t *testing.T) {
	uid := func(net.Conn) (rpc.Peer, error) { return rpc.LocalPeer(rpc.User{UID: 1000}), nil }
	s := startServer(t, echo, Options{MaxConnsPerUser: 1, Peer: uid})
	c := s.dial(t)
	if _, err := c.Call(context.Background(), kindEcho, nil); err != nil {
		t.Fatal(err)
	}
	var e *rpc.Error
	if _, err := s.dial(t).Call(context.Background(), kindEcho, nil); !errors.As(err, &e) || e.Code != rpc.CodeBusy ||
		!strings.Contains(e.Text, "you have 1 connections") {
		t.Errorf("got %v", err)
	}
}

// TestLimitPerHost: one host can't hold all the connections that strangers may have, nor one for ever.
func TestLimitPerHost(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := serveOn(t, ln, "", echo, Options{MaxConnsPerHost: 2, Life: time.Second,
		Peer: func(net.Conn) (rpc.Peer, error) { return rpc.Peer{}, nil }})
	from := func(host string) *rpc.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
		nc, err := d.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c := rpc.Client(nc, rpc.ConnOptions{Name: "server"})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(host string) error {
		_, err := from(host).Call(context.Background(), kindEcho, nil)
		return err
	}
	var e *rpc.Error
	first := from("127.0.0.1")
	if _, err := first.Call(context.Background(), kindEcho, nil); err != nil || ask("127.0.0.1") != nil {
		t.Fatal("the first two are refused:", err)
	}
	if err := ask("127.0.0.1"); !errors.As(err, &e) || e.Code != rpc.CodeBusy ||
		!strings.Contains(e.Text, "127.0.0.1 has 2 connections") {
		t.Errorf("the third: %v", err)
	}
	if err := ask("127.0.0.2"); err != nil {
		t.Errorf("another host: %v", err)
	}
	eventually(t, "they have ended", func() bool {
		_, err := first.Call(context.Background(), kindEcho, nil)
		return err != nil && ask("127.0.0.1") == nil
	})
	s.stop()
	for addr, want := range map[string]string{"[2001:db8::7]:5": "2001:db8::/64", "[::ffff:10.0.0.1]:5": "10.0.0.1",
		"[::1]:5": "::1", "[fe80::1%eth0]:5": "fe80::/64", "10.0.0.1:5": "10.0.0.1", "@": "", "": ""} {
		if got := Host(addr); got != want {
			t.Errorf("the host of %s is %q, not %q", addr, got, want)
		}
	}
}

// TestLimitPerPeer: whoever has one daemon's certificate takes no more connections than it needs, and no other's.
func TestLimitPerPeer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	names := make(chan string, 1)
	serveOn(t, ln, "", echo, Options{MaxConnsPerPeer: 2,
		Peer: func(net.Conn) (rpc.Peer, error) { return rpc.DaemonPeer("node", <-names), nil }})
	ask := func(name string) (*rpc.Conn, error) {
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		names <- name
		c := rpc.Client(nc, rpc.ConnOptions{Name: "server"})
		t.Cleanup(func() { _ = c.Close() })
		_, err = c.Call(context.Background(), kindEcho, nil)
		return c, err
	}
	first, err := ask("n1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask("n1"); err != nil {
		t.Fatal(err)
	}
	var e *rpc.Error
	if _, err := ask("n1"); !errors.As(err, &e) || e.Code != rpc.CodeBusy ||
		!strings.Contains(e.Text, "node n1 has 2 connections") {
		t.Errorf("the third: %v", err)
	}
	if _, err := ask("n2"); err != nil {
		t.Errorf("another node: %v", err)
	}
	_ = first.Close() // it gives its place back
	eventually(t, "its place is free", func() bool {
		_, err := ask("n1")
		return err == nil
	})

}

func TestIdle(t *testing.T) {
	entered, left := make(chan struct{}), make(chan error, 10)
	s := startServer(t, func(ctx context.Context, r *Request) {
		if r.Kind == kindWait {
			entered <- struct{}{}
			<-left
		}
		_ = r.Reply(nil)
	}, Options{Idle: 5 * time.Millisecond})
	c, waiting := s.dial(t), s.dial(t)
	done := make(chan error, 1)
	go func() {
		_, err := waiting.Call(context.Background(), kindWait, nil)
		done <- err
	}()
	<-entered
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	var f rpc.Frame
	if err := c.ReadFrame(&f); err != io.EOF {
		t.Errorf("an idle connection got %v, want to be closed", err)
	}
	// The connection with a request in progress has been silent as long, and stays open.
	left <- nil
	if err := <-done; err != nil {
		t.Errorf("a waiting request got %v", err)
	}
}

func TestStrangersOnUnix(t *testing.T) {
	s := startServer(t, echo, Options{})
	client := "GBATCH\x00\x01"
	for name, in := range map[string]string{
		"http":          "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"binary":        "\x00\xff\xfe\x80",
		"version":       "GBATCH\x7f\x7f",
		"garbage frame": client + "garbage, garbage, garbage",
		"oversized":     client + "\x7f\xff\xff\xff\x00\x01\x00\x00\x00\x00\x00\x01",
		"answer flags":  client + "\x00\x00\x00\x08\x00\x01\x00\x01\x00\x00\x00\x01",
		"mux id 0":      client + "\x00\x00\x00\x08\x00\x01\x00\x04\x00\x00\x00\x00",
		"bad credit":    client + "\x00\x00\x00\x09\x00\x01\x00\x0c\x00\x00\x00\x01x",
	} {
		t.Run(name, func(t *testing.T) {
			nc, err := net.Dial("unix", s.path)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if err := nc.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(nc, in); err != nil {
				t.Fatal(err)
			}
			// The server closes it: an end, or a reset if it hadn't read everything.
			var n net.Error
			if _, err := io.Copy(io.Discard, nc); errors.As(err, &n) && n.Timeout() {
				t.Error("the connection stays open")
			}
		})
	}
	eventually(t, "a line that names the stranger",
		func() bool { return s.log.has("not the gbatch protocol") && s.log.has("uid ") })
	if _, err := s.dial(t).Call(context.Background(), kindEcho, nil); err != nil {
		t.Errorf("after them: %v", err)
	}
}

func TestShutdown(t *testing.T) {
	entered, left := make(chan struct{}), make(chan error, 10)
	s := startServer(t, testHandler(entered, left), Options{})
	idle, silent := s.dial(t), s.dial(t)
	if _, err := idle.Call(context.Background(), kindEcho, nil); err != nil {
		t.Fatal(err)
	}
	busy, mux := s.dial(t), s.dialMux(t)
	done := make(chan error, 2)
	for _, c := range []rpc.Caller{busy, mux} {
		go func() {
			_, err := c.Call(context.Background(), kindWait, nil)
			done <- err
		}()
		<-entered
	}
	s.stop()
	for range 2 {
		if err := <-done; err == nil {
			t.Error("a call succeeded")
		}
	}
	if len(left) != 2 {
		t.Errorf("%d of 2 handlers had ended when Serve returned", len(left))
	}
	if _, err := rpc.DialUnix(s.path, time.Second); err == nil {
		t.Error("the socket still answers")
	}
	_ = silent.Close()
	_ = idle.Close()
	_ = busy.Close()
	_ = mux.Close()
	noGoroutines(t)
}

func TestServeChecksItsOptions(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := Serve(context.Background(), ln, nil, Options{}); err == nil {
		t.Error("served without handler and log")
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is left open: %v", err)
	}
}
