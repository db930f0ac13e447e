package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTake: a lock that is held is refused after a while, and one whose holder ends meanwhile is taken.
func TestTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() }) // it may be closed already
		return f
	}
	first, second, third := open(), open(), open()
	if err := Take(first); err != nil {
		t.Fatal(err)
	}
	if err := Take(second); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("a lock that another holds: %v", err)
	}
	// A child between fork and exec has the holder's file: it lets go a moment after the holder.
	child, err := unix.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(patience/10, func() { _ = unix.Close(child) }) // as its exec does
	if err := Take(third); err != nil {
		t.Errorf("a lock whose holder has ended: %v", err)
	}
}
