package pki

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
)

// testCA is a directory with an authority and a certificate for each role, named after it with a 1.
func testCA(t testing.TB, cluster string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), cluster)
	if err := InitCA(dir, cluster); err != nil {
		t.Fatal(err)
	}
	for _, role := range Roles() {
		if err := Issue(dir, role, role+"1", nil, dir); err != nil {
			t.Fatal(err)
		}
	}
	return dir
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

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// waitFor waits until the log says s.
func (l *logBuffer) waitFor(t testing.TB, s string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if strings.Contains(l.String(), s) {
			return
		}
	}
	t.Errorf("the log never said %q, but:\n%s", s, l)
}

// daemon is a listener with raft for controllers and rpc for all, the latter served with an echo that adds the peer.
type daemon struct {
	*Listener
	log  *logBuffer
	addr string
	stop func()
}

func startDaemon(t testing.TB, dir, role, name string, adjust func(*Listener)) *daemon {
	t.Helper()
	cfg, err := Load(dir, role, name)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{log: &logBuffer{}}
	log := slog.New(slog.NewTextHandler(d.log, nil))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.Listener, err = newListener(ln, cfg, log, []Accept{{Proto: ProtoRaft, Roles: []string{RoleCtld}}, {Proto: ProtoRPC}})
	if err != nil {
		t.Fatal(err)
	}
	if adjust != nil {
		adjust(d.Listener)
	}
	d.wg.Go(d.accept)
	d.addr = d.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- server.Serve(ctx, d.Proto(ProtoRPC), func(_ context.Context, r *server.Request) {
			if r.Kind >= kindSession {
				session(t, r)
				return
			}
			_ = r.Reply(append([]byte(r.Peer.String()+": "), r.Body...))
		}, server.Options{Log: log, Peer: PeerOfConn})
	}()
	d.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	t.Cleanup(d.stop)
	return d
}

// Kinds at or above kindSession take the connection over and echo what comes; kindLateSession only after long enough
// for the server to have a watcher on the connection.
const (
	kindSession uint16 = iota + 100
	kindLateSession
)

func session(t testing.TB, r *server.Request) {
	if r.Kind == kindLateSession {
		time.Sleep(50 * time.Millisecond)
	}
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
}

// call makes one request over a fresh connection as role1 of the authority in dir.
func (d *daemon) call(t testing.TB, dir, role, wantRole string) (string, error) {
	t.Helper()
	cfg, err := Load(dir, role, role+"1")
	if err != nil {
		t.Fatal(err)
	}
	nc, err := Dial(context.Background(), d.addr, ProtoRPC, cfg, wantRole)
	if err != nil {
		return "", err
	}
	m, err := rpc.NewMux(rpc.Client(nc, rpc.ConnOptions{Name: wantRole + " " + d.addr}))
	if err != nil {
		return "", err
	}
	defer m.Close()
	f, err := m.Call(context.Background(), 1, []byte("hello"))
	return string(f.Body), err
}
