package stepio

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inNamespace runs f on a thread in its own network namespace, which ends with the thread.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("needs a network namespace of its own: %v", err)
	}
}

// TestBound checks that a connection to a vanished peer ends within the time, with or without data to send, and that a
// shorter interruption does not end it.
func TestBound(t *testing.T) {
	const after = 4 * time.Second
	inNamespace(t, func() {
		ip := func(line string) bool {
			out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
			if err != nil {
				t.Logf("ip %s: %v: %s", line, err, out)
			}
			return err == nil
		}
		if !ip("link set lo up") || !ip("addr add 192.0.2.1/32 dev lo") {
			t.Skip("needs ip(8)")
		}
		ln, err := net.Listen("tcp", "192.0.2.1:0")
		if err != nil {
			t.Error(err)
			return
		}
		defer ln.Close()
		var conns [2]net.Conn
		for i := range conns {
			if conns[i], err = net.Dial("tcp", ln.Addr().String()); err != nil {
				t.Error(err)
				return
			}
			defer conns[i].Close()
			peer, err := ln.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			defer peer.Close()
			raw, err := conns[i].(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Error(err)
				return
			}
			var serr error
			if err := raw.Control(func(fd uintptr) { serr = Bound(int(fd), after) }); err != nil || serr != nil {
				t.Error(err, serr)
				return
			}
		}
		ended := func(c net.Conn, within time.Duration) bool {
			_ = c.SetReadDeadline(time.Now().Add(within))
			_, err := c.Read(make([]byte, 1))
			return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
		}
		ip("link set lo down")
		if _, err := conns[0].Write([]byte("lost")); err != nil {
			t.Error(err)
		}
		if ended(conns[0], after/4) {
			t.Error("a connection was given up at once")
		}
		for i, c := range conns {
			if !ended(c, 3*after) {
				t.Errorf("connection %d outlives its peer", i)
			}
		}
	})
}
