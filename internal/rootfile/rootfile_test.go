package rootfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadable: regular files of everybody are opened, links to them too; nothing else is, and nothing waits.
func TestReadable(t *testing.T) {
	dir := t.TempDir()
	plain, closed, fifo := filepath.Join(dir, "plain"), filepath.Join(dir, "closed"), filepath.Join(dir, "fifo")
	for path, mode := range map[string]os.FileMode{plain: 0o644, closed: 0o600} {
		if err := os.WriteFile(path, []byte("text"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(plain, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{plain, link} {
		f, err := Readable(path, 65534)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(f); string(text) != "text" || err != nil {
			t.Errorf("%s: %q %v", path, text, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{closed, fifo, dir, os.DevNull, "/dev/zero"} {
		if f, err := Readable(path, 65534); !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: %v %v", path, f, err)
		}
	}
	if f, err := Readable(closed, uint32(os.Getuid())); err != nil {
		t.Errorf("a file of the user's own: %v", err)
	} else if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Readable(filepath.Join(dir, "none"), 0); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestWritable(t *testing.T) {
	dir := t.TempDir()
	before, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := Writable(dir); err != nil {
		t.Error(err)
	}
	if after, err := os.Stat(dir); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("something was made there: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(dir, "none"), "/proc"} {
		if Writable(path) == nil && path != "/proc" {
			t.Errorf("%s is a directory to write to", path)
		}
	}
}
