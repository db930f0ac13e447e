package server

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/rpc"
)

func TestListenReplacesDeadSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run", "gbatch")
	path := filepath.Join(dir, "s")
	ln, err := ListenUnix(path, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	// A killed daemon leaves its socket, but not its lock.
	ul := ln.(*unixListener)
	if err := errors.Join(ul.UnixListener.Close(), ul.lock.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := rpc.DialUnix(path, time.Second); !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatalf("the dead socket says %v", err)
	}
	old := unix.Umask(0o077)
	ln, err = ListenUnix(path, 0o666)
	unix.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != fs.ModeSocket|0o666 {
		t.Errorf("socket: %v, %v", st.Mode(), err)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("directory: %v, %v", st.Mode(), err)
	}
	if ln.Addr().String() != path {
		t.Errorf("its address is %s", ln.Addr())
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if err := ln.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
}

func TestListenRefuses(t *testing.T) {
	dir := t.TempDir()
	ours := filepath.Join(dir, "ours")
	ln, err := ListenUnix(ours, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	foreign := filepath.Join(dir, "foreign") // no lock on it
	fl, err := net.Listen("unix", foreign)
	if err != nil {
		t.Fatal(err)
	}
	defer fl.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		ours:                             "is in use by another daemon",
		foreign:                          "is in use by another daemon",
		file:                             "exists and is no socket",
		filepath.Join(file, "s"):         "not a directory",
		strings.Repeat("x", 120):         "is 124 bytes long",
		filepath.Join(dir, "nul\x00ish"): "invalid argument",
	} {
		if _, err := ListenUnix(path, 0o666); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %q", path, err, says)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("the file is now %q, %v", b, err)
	}
}

func TestListenLongPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("d", 100), strings.Repeat("e", 100), "s")
	ln, err := ListenUnix(path, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	s := serveOn(t, ln, path, echo, Options{})
	if f, err := s.dial(t).Call(context.Background(), 1, []byte("x")); err != nil || string(f.Body) != "x" {
		t.Errorf("got %q, %v", f.Body, err)
	}
}

// TestListenRace checks that of many daemons that start at the same time on a dead socket, exactly one gets and keeps
// it.
func TestListenRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var won []net.Listener
	for range 20 {
		wg.Go(func() {
			ln, err := ListenUnix(path, 0o666)
			if err != nil {
				if !errors.Is(err, unix.EADDRINUSE) {
					t.Error(err)
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			won = append(won, ln)
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d of 20 got the socket", len(won))
	}
	c, err := rpc.DialUnix(path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Close(), won[0].Close()); err != nil {
		t.Error(err)
	}
}
