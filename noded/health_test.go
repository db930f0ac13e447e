package noded

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHealthIgnoresUsers: what users put into TmpFS neither breaks the node nor makes it wait, and nothing is made
// there.
func TestHealthIgnoresUsers(t *testing.T) {
	tmp := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(tmp, ".gbatch-"), 0o666); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(tmp)
	if err != nil {
		t.Fatal(err)
	}
	n := &Noded{opts: Options{Spool: t.TempDir(), TmpFS: tmp}, now: time.Now}
	var at atomic.Pointer[string]
	if why := n.ownCheck(&at); why != "" {
		t.Error(why)
	}
	if after, err := os.Stat(tmp); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Error("something was made in TmpFS")
	}
	n.opts.TmpFS = filepath.Join(tmp, "none")
	if why := n.ownCheck(&at); why == "" {
		t.Error("a missing TmpFS is no problem")
	}
}

// TestHealthHangs: a file system that hangs costs no heartbeat more than a look, and is the node's problem after a
// while.
func TestHealthHangs(t *testing.T) {
	now := time.Unix(1e9, 0)
	n := &Noded{now: func() time.Time { return now }}
	hang, began := make(chan struct{}), make(chan struct{}, 9)
	h := &health{n: n, check: func(at *atomic.Pointer[string]) string {
		what := "TmpFS /tmp"
		at.Store(&what)
		began <- struct{}{}
		<-hang
		return ""
	}}
	h.looked = now.Add(-time.Hour) // the first look would wait
	for range 3 {
		if why := h.look(); why != "" {
			t.Errorf("at once: %s", why)
		}
	}
	<-began
	now = now.Add(hungChecks)
	if why := h.look(); why != "TmpFS /tmp does not answer" {
		t.Errorf("after %v: %q", hungChecks, why)
	}
	if len(began) != 0 {
		t.Error("a second check began beside the first")
	}
	h.mu.Lock()
	busy := h.busy
	h.mu.Unlock()
	close(hang)
	<-busy
	if why := h.look(); why != "" {
		t.Errorf("when it answers again: %q", why)
	}
}
