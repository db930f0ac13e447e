// Package golden compares what a test produced with a file that a person has reviewed.
//
//	golden.Compare(t, "testdata/matrix.txt", got)
//
// `go test ./the/package -rewrite` writes the files anew; the change is then reviewed with git diff. The package owns
// the -rewrite flag, and is for tests only. unpack.go opens packed files that an earlier version wrote.
package golden

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/diff"
)

var rewrite = flag.Bool("rewrite", false, "write golden files instead of comparing with them")

// maxDiffLines bounds what one mismatch prints.
const maxDiffLines = 200

// Rewriting reports whether the test runs with -rewrite, for tests with a golden form of their own.
func Rewriting() bool { return *rewrite }

// Compare fails the test (and lets it go on) where got differs from the file at path, relative to the test's package,
// and shows the differing lines. With -rewrite it writes the file, and its folder, instead.
func Compare(t testing.TB, path string, got []byte) {
	t.Helper()
	compare(t, path, got, *rewrite)
}

func compare(t testing.TB, path string, got []byte, write bool) {
	t.Helper()
	want, err := os.ReadFile(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		t.Errorf("reading golden file: %v", err)
	case err == nil && bytes.Equal(want, got):
	case write:
		if err := save(path, got); err != nil {
			t.Errorf("rewriting golden file: %v", err)
			return
		}
		t.Logf("rewrote %s", path)
	case err != nil:
		t.Errorf("%s doesn't exist. To write it: go test -run '^%s$' -rewrite", path, t.Name())
	default:
		t.Errorf("%s differs. If the new text is right: go test -run '^%s$' -rewrite\n%s", path, t.Name(),
			show(path, want, got))
	}
}

// show gives a unified diff, cut to maxDiffLines, or the first differing byte where the content isn't text.
func show(path string, want, got []byte) string {
	if bytes.IndexByte(want, 0) >= 0 || bytes.IndexByte(got, 0) >= 0 {
		at := 0
		for at < min(len(want), len(got)) && want[at] == got[at] {
			at++
		}
		return fmt.Sprintf("binary: %d bytes wanted, %d got, first difference at byte %d:\n  want % x\n  got  % x",
			len(want), len(got), at, window(want, at), window(got, at))
	}
	lines := bytes.SplitAfter(diff.Diff(path, want, "got", got), []byte("\n"))
	if len(lines) > maxDiffLines {
		return string(bytes.Join(lines[:maxDiffLines], nil)) + fmt.Sprintf("... and %d more lines\n", len(lines)-maxDiffLines)
	}
	return string(bytes.Join(lines, nil))
}

// window is up to 16 bytes from the differing one on.
func window(b []byte, at int) []byte { return b[min(at, len(b)):min(at+16, len(b))] }

func save(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}
