package server

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"gbatch/internal/rpc"
)

// silentPeer takes connections on a unix socket, and passes bytes to and from a server until it is told to stop, as a
// process does that gets SIGSTOP: the kernel goes on taking connections and bytes.
type silentPeer struct {
	path string
	stop chan struct{}
}

func newSilentPeer(t *testing.T, to string) *silentPeer {
	t.Helper()
	p := &silentPeer{path: filepath.Join(socketDir(t), "p"), stop: make(chan struct{})}
	ln, err := net.Listen("unix", p.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = near.Close() })
			select {
			case <-p.stop:
				continue
			default:
			}
			far, err := net.Dial("unix", to)
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = far.Close() })
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					buf := make([]byte, 4096)
					for {
						n, err := way[0].Read(buf)
						select {
						case <-p.stop:
							return
						default:
						}
						if _, werr := way[1].Write(buf[:n]); err != nil || werr != nil {
							_ = way[1].Close() // the end is passed on as well
							return
						}
					}
				}()
			}
		}
	}()
	return p
}

// TestSilentPeer: a request to a peer that falls silent ends with ErrSilent soon after SilentAfter, and its Quiet is
// called before. A handler that takes longer than that does not make its server silent.
func TestSilentPeer(t *testing.T) {
	entered, left := make(chan struct{}), make(chan error, 10)
	s := startServer(t, testHandler(entered, left), Options{MuxRequests: 1}) // a beat needs no place
	p := newSilentPeer(t, s.path)
	nc, err := net.Dial("unix", p.path)
	if err != nil {
		t.Fatal(err)
	}
	quiet := make(chan struct{}, 100)
	m, err := rpc.NewMux(rpc.Client(nc, rpc.ConnOptions{Name: "peer", Quiet: func() { quiet <- struct{}{} }}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	done := make(chan error, 1)
	go func() {
		_, err := m.Call(context.Background(), kindWait, nil)
		done <- err
	}()
	<-entered
	select {
	case err := <-done:
		t.Fatalf("a request whose handler takes long ended with %v", err)
	case <-time.After(rpc.SilentAfter + time.Second):
	}
	if len(quiet) > 0 {
		t.Error("a server with a slow handler was taken for quiet")
	}
	close(p.stop)
	begin := time.Now()
	err = <-done
	if !errors.Is(err, rpc.ErrSilent) || !errors.Is(err, rpc.ErrLost) || !errors.Is(m.Err(), rpc.ErrSilent) {
		t.Errorf("got %v, want ErrSilent", err)
	}
	if took := time.Since(begin); took < rpc.SilentAfter-time.Second || took > 2*rpc.SilentAfter {
		t.Errorf("it took %v, want about %v", took, rpc.SilentAfter)
	}
	if len(quiet) == 0 {
		t.Error("Quiet was not called")
	}
	var unsent *rpc.Unsent
	if _, err := m.Call(context.Background(), kindEcho, nil); !errors.As(err, &unsent) {
		t.Errorf("a request after the end got %v, want an Unsent", err)
	}
}

// TestSuspectedPeer: with news that the peer has failed, a silent one is given up at once, and one that answers is
// kept.
func TestSuspectedPeer(t *testing.T) {
	entered, left := make(chan struct{}), make(chan error, 10)
	s := startServer(t, testHandler(entered, left), Options{})
	p := newSilentPeer(t, s.path)
	nc, err := net.Dial("unix", p.path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := rpc.NewMux(rpc.Client(nc, rpc.ConnOptions{Name: "peer"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	done := make(chan error, 1)
	go func() {
		_, err := m.Call(context.Background(), kindWait, nil)
		done <- err
	}()
	<-entered
	m.Suspect()
	select {
	case err := <-done:
		t.Fatalf("a peer that answers was given up: %v", err)
	case <-time.After(time.Second):
	}
	close(p.stop)
	m.Suspect()
	select {
	case err := <-done:
		if !errors.Is(err, rpc.ErrSilent) {
			t.Errorf("got %v, want ErrSilent", err)
		}
	case <-time.After(rpc.SilentAfter / 2):
		t.Error("a suspected peer that is silent has the patience of another one")
	}
}

// TestProbe: a command's request to a daemon that is stopped ends with ErrSilent; one to a daemon that is only slow
// goes on.
func TestProbe(t *testing.T) {
	entered, left := make(chan struct{}), make(chan error, 10)
	s := startServer(t, testHandler(entered, left), Options{})
	p := newSilentPeer(t, s.path)
	c, err := rpc.DialUnix(p.path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	probes := make(chan error, 100)
	c.SetProbe(func() error {
		err := rpc.Alive(p.path, time.Second)
		probes <- err
		return err
	})
	done := make(chan error, 1)
	go func() {
		_, err := c.Call(context.Background(), kindWait, nil)
		done <- err
	}()
	<-entered
	if err := <-probes; err != nil {
		t.Fatalf("a daemon with a slow handler is not found alive: %v", err)
	}
	close(p.stop)
	if err := <-done; !errors.Is(err, rpc.ErrSilent) {
		t.Errorf("got %v, want ErrSilent", err)
	}
	// A daemon that is stopped before the connection opens.
	if c, err = rpc.DialUnix(p.path, time.Second); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	c.SetProbe(func() error { return rpc.Alive(p.path, time.Second) })
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(context.Background(), kindEcho, nil); !errors.Is(err, rpc.ErrSilent) {
		t.Errorf("got %v, want ErrSilent", err)
	}
}
