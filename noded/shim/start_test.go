//go:build linux && (amd64 || arm64)

package shim

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestStartRaces(t *testing.T) {
	dir := newDir(t)
	var wg sync.WaitGroup
	pids := make([]int, 8)
	for i := range pids {
		wg.Go(func() {
			c, _, err := Start(testContext(t), Options{Dir: dir, Binary: filepath.Join(binaries, "gshim")})
			if err != nil {
				t.Error(err)
				return
			}
			pids[i] = c.Info().PID
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, p := range pids {
		if p != pids[0] || p == 0 {
			t.Fatalf("pids %v", pids)
		}
	}
	out, err := exec.Command(filepath.Join(binaries, "gshim"), "-dir", dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "locked by another process") {
		t.Errorf("a second gshim by hand: %v %s", err, out)
	}
}

// TestStartFindsOneThatBegins: who began a gshim has died, and it does not serve yet: it is waited for.
func TestStartFindsOneThatBegins(t *testing.T) {
	dir := newDir(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := takeLock(filepath.Join(dir, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	served := time.AfterFunc(4*servePoll, func() { _ = lock.Close() }) // as it ends here, and as it serves there
	defer served.Stop()
	c, _, err := Start(testContext(t), Options{Dir: dir, Binary: filepath.Join(binaries, "gshim")})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestStartErrors(t *testing.T) {
	for _, c := range []struct{ name, dir, binary, want string }{
		{"relative", "x", "", "not an absolute path"},
		{"no binary", t.TempDir(), "/no/gshim", "no such file"},
		{"not a gshim", t.TempDir(), "/bin/false", "exit status 1"},
		{"not a directory", "/dev/null/x", "/bin/false", "not a directory"},
	} {
		if _, _, err := Start(testContext(t), Options{Dir: c.dir, Binary: c.binary}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Start(testContext(t), Options{Dir: open, Binary: filepath.Join(binaries, "gshim")}); err == nil ||
		!strings.Contains(err.Error(), "can be written by others") {
		t.Errorf("open directory: %v", err)
	}
}

func TestLongDirectory(t *testing.T) {
	dir := filepath.Join(newDir(t), strings.Repeat("long-directory-name/", 8))
	s := startIn(t, dir)
	if e := s.run(newScript(t, "exit 2").Launch); e.Code != 2 {
		t.Errorf("%+v", e)
	}
	if err := s.c.Shutdown(testContext(t)); err != nil {
		t.Error(err)
	}
	until(t, "gshim to end", func() bool { return !alive(s.c.Info().PID) })
}

// TestOtherProtocol: a gshim of another protocol takes no orders but Upgrade, and Start upgrades it.
func TestOtherProtocol(t *testing.T) {
	dir := newDir(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 1)
	go func() {
		for range 2 {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			hello := reply{kind: kindHello, info: Info{Protocol: Protocol + 1, Version: "9", PID: 1}}
			if _, err := nc.Write(frame(nil, hello.encode)); err != nil {
				return
			}
			b, err := readFrame(nc, nil)
			if err != nil {
				nc.Close()
				continue
			}
			o, err := decodeOrder(b)
			if err != nil {
				return
			}
			l.Close() // the upgrade is a new gshim here
			os.Remove(filepath.Join(dir, socketFile))
			if err := launchDaemon(context.Background(), Options{Dir: dir, Binary: o.path}); err != nil {
				fmt.Println(err)
			}
			done := reply{kind: kindDone, seq: o.seq}
			if _, err := nc.Write(frame(nil, done.encode)); err != nil {
				return
			}
			nc.Close()
			asked <- o.path
		}
	}()
	s := startIn(t, dir)
	if got := <-asked; got != filepath.Join(binaries, "gshim") {
		t.Errorf("asked to upgrade to %s", got)
	}
	if s.c.Info().Protocol != Protocol {
		t.Errorf("%+v", s.c.Info())
	}
}
