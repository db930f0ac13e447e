package rpc

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listenRaw binds a unix socket at path, however long, with the given backlog; -1 leaves it not listening.
func listenRaw(t *testing.T, path string, backlog int) int {
	t.Helper()
	addr, release, err := SocketAddr(path)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: addr}); err != nil {
		t.Fatal(err)
	}
	if backlog >= 0 {
		if err := unix.Listen(fd, backlog); err != nil {
			t.Fatal(err)
		}
	}
	return fd
}

func TestDialErrors(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead")
	listenRaw(t, dead, -1)
	long := filepath.Join(dir, strings.Repeat("x", 120))
	tests := []struct {
		path string
		is   error
		says string
	}{
		{filepath.Join(dir, "none"), fs.ErrNotExist, "no gbatch daemon on this host: there is no socket " + dir + "/none"},
		{filepath.Join(dir, "no", strings.Repeat("d", 100), "none"), fs.ErrNotExist, "there is no socket"},
		{dead, unix.ECONNREFUSED, "is not running: nothing listens on " + dead},
		{long, nil, "the name of the socket " + long + " is 120 bytes long"},
		{"", nil, "the path of a socket is empty"},
	}
	for _, tt := range tests {
		_, err := DialUnix(tt.path, time.Second)
		if err == nil || !strings.Contains(err.Error(), tt.says) || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%q: got %v, want %q", tt.path, err, tt.says)
		}
	}
}

func TestDialFullQueue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listenRaw(t, path, 0)
	for {
		c, err := DialUnix(path, 10*time.Millisecond)
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "did not take the connection in 10ms") {
				t.Errorf("got %v", err)
			}
			return
		}
		defer c.Close()
	}
}

func TestDialLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 90), strings.Repeat("e", 90))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "socket")
	listenRaw(t, path, 1)
	c, err := DialUnix(path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestPeerKinds(t *testing.T) {
	var nobody Peer
	if _, ok := nobody.User(); ok {
		t.Error("nobody is a user")
	}
	d := DaemonPeer("node", "n1")
	if _, ok := d.User(); ok {
		t.Error("a daemon is a user")
	}
	if role, name, ok := d.Daemon(); !ok || role != "node" || name != "n1" || d.String() != "node n1" {
		t.Errorf("got %s %s %v", role, name, ok)
	}
	u := LocalPeer(User{UID: 1000, GID: 100, Groups: []uint32{7}, PID: 42})
	if _, _, ok := u.Daemon(); ok {
		t.Error("a user is a daemon")
	}
	if got, ok := u.User(); !ok || !got.InGroup(100) || !got.InGroup(7) || got.InGroup(0) ||
		u.String() != "uid 1000 pid 42" {
		t.Errorf("got %+v %v %q", got, ok, u)
	}
}

// TestImportsAreLight checks the imports, because every user command links this package. Package net alone costs a
// command 80 to 150 µs at its start.
func TestImportsAreLight(t *testing.T) {
	allowed := map[string]bool{"github.com/vmihailenco/msgpack/v5": true, "golang.org/x/sys/unix": true}
	heavy := []string{"net", "crypto", "log", "text", "html", "encoding/json", "encoding/gob", "regexp", "testing"}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			ok := allowed[path] || !strings.Contains(strings.SplitN(path, "/", 2)[0], ".") && !strings.HasPrefix(path, "gbatch/")
			for _, h := range heavy {
				ok = ok && path != h && !strings.HasPrefix(path, h+"/")
			}
			if !ok {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}
