package receive

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// run takes a text in as a process would, and gives what it says.
func run(t *testing.T, o Order, text string) (rc int, said string) {
	t.Helper()
	var stderr bytes.Buffer
	o.Program, o.Node = "gbcast", "n1"
	rc = Main(o.Argv("gshim")[2:], strings.NewReader(text), &stderr)
	return rc, stderr.String()
}

// TestTake: what is there stays, links lead nowhere, a transfer that is cut off leaves nothing.
func TestTake(t *testing.T) {
	later := time.Now().Add(time.Hour).UnixMilli()
	for _, c := range []struct {
		name  string
		there string // "", file, dir, link, new (by the same transfer), other (by it, with other bytes)
		force bool
		size  int64
		want  string // a part of what is said; "": it works
	}{
		{name: "new", size: 5},
		{name: "there", there: "file", size: 5, want: "file exists"},
		{name: "replaced", there: "file", force: true, size: 5},
		{name: "directory", there: "dir", force: true, size: 5, want: "is a directory"},
		{name: "link", there: "link", size: 5, want: "file exists"},
		{name: "link replaced", there: "link", force: true, size: 5},
		{name: "cut off", size: 6, want: "cut off after 5 of 6 bytes"},
		{name: "grown", size: 4, want: "has grown"},
		{name: "too large", size: 1 << 60, want: "no space left"},
		{name: "from another node of this host", there: "new", size: 5},
		{name: "another file", there: "other", size: 5, want: "file exists"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path, far := filepath.Join(dir, "dest"), filepath.Join(dir, "far")
			began := later
			var err error
			switch c.there {
			case "file":
				err = os.WriteFile(path, []byte("old"), 0o600)
			case "dir":
				err = os.Mkdir(path, 0o700)
			case "link":
				if err = os.WriteFile(far, []byte("far"), 0o600); err == nil {
					err = os.Symlink(far, path)
				}
			case "new":
				began = 0
				err = os.WriteFile(path, []byte("hello"), 0o600)
			case "other":
				began = 0
				err = os.WriteFile(path, []byte("HELLO"), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			rc, said := run(t, Order{Path: path, Began: began, Size: c.size, Mode: 0o750, Force: c.force, Keep: true,
				MTime: 1e18, ATime: 1e18}, "hello")
			if (rc == 0) != (c.want == "") || !strings.Contains(strings.ToLower(said), c.want) {
				t.Fatalf("%d: %q, want %q", rc, said, c.want)
			}
			if left, err := filepath.Glob(filepath.Join(dir, ".gbcast-*")); err != nil || len(left) > 0 {
				t.Errorf("left: %v %v", left, err)
			}
			if b, err := os.ReadFile(far); err == nil && string(b) != "far" {
				t.Errorf("a link led to %q", b)
			}
			if c.want != "" || c.there == "new" {
				return
			}
			st, err := os.Lstat(path)
			if b, rerr := os.ReadFile(path); err != nil || rerr != nil || string(b) != "hello" ||
				st.Mode() != 0o750 || st.ModTime().UnixNano() != 1e18 {
				t.Errorf("%q %v %v %v", b, st, err, rerr)
			}
		})
	}
}
