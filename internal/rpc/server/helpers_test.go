package server

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"gbatch/internal/rpc"
)

// testServer is a server on a unix socket that ends with the test.
type testServer struct {
	path string
	log  *logBuffer
	stop func() // ends Serve and waits for it
}

func startServer(t testing.TB, h Handler, o Options) *testServer {
	t.Helper()
	path := filepath.Join(socketDir(t), "s")
	ln, err := ListenUnix(path, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, ln, path, h, o)
}

func serveOn(t testing.TB, ln net.Listener, path string, h Handler, o Options) *testServer {
	t.Helper()
	log := &logBuffer{}
	o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, ln, h, o) }()
	s := &testServer{path: path, log: log, stop: sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})}
	t.Cleanup(s.stop)
	return s
}

// socketDir is a directory that any uid can enter, unlike t.TempDir.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gbatch-rpc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (s *testServer) dial(t testing.TB) *rpc.Conn {
	t.Helper()
	c, err := rpc.DialUnix(s.path, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// dialMux connects through package net, as daemons do.
func (s *testServer) dialMux(t testing.TB) *rpc.Mux {
	t.Helper()
	nc, err := net.Dial("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := rpc.NewMux(rpc.Client(nc, rpc.ConnOptions{Name: "server"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// logBuffer collects a log.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), s)
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if cond() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// noGoroutines waits until no goroutine but the test's own runs this module's code.
func noGoroutines(t testing.TB) {
	t.Helper()
	var left string
	buf := make([]byte, 1<<20)
	ok := func() bool {
		left = ""
		for i, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if i > 0 && strings.Contains(g, "gbatch/internal/rpc") && !strings.Contains(g, "testing.tRunner") {
				left = g
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if ok() {
			return
		}
	}
	t.Errorf("a goroutine is left:\n%s", left)
}

func echo(_ context.Context, r *Request) { _ = r.Reply(r.Body) }
