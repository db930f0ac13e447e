package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorder is a testing.TB that keeps what would have been printed.
type recorder struct {
	testing.TB
	out    strings.Builder
	failed bool
}

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return "TestX" }
func (r *recorder) Logf(f string, a ...any) {
	fmt.Fprintf(&r.out, f+"\n", a...)
}
func (r *recorder) Errorf(f string, a ...any) {
	r.failed = true
	fmt.Fprintf(&r.out, f+"\n", a...)
}

func TestCompare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "x.txt")
	step := func(got string, write, wantFail bool, wants ...string) {
		t.Helper()
		r := &recorder{TB: t}
		compare(r, path, []byte(got), write)
		if r.failed != wantFail {
			t.Errorf("failed=%v, want %v: %s", r.failed, wantFail, r.out.String())
		}
		for _, w := range wants {
			if !strings.Contains(r.out.String(), w) {
				t.Errorf("no %q in:\n%s", w, r.out.String())
			}
		}
	}
	step("a\nb\nc\n", false, true, "doesn't exist", "-rewrite")
	step("a\nb\nc\n", true, false, "rewrote")
	step("a\nb\nc\n", false, false)
	step("a\nB\nc\n", false, true, "-b\n", "+B\n", "go test -run '^TestX$' -rewrite")
	step("a\x00", false, true, "binary: 6 bytes wanted, 2 got, first difference at byte 1")
	step(strings.Repeat("x\n", 1000), false, true, "more lines")
	if b, err := os.ReadFile(path); err != nil || string(b) != "a\nb\nc\n" {
		t.Errorf("the file changed without -rewrite: %q, %v", b, err)
	}
}

func TestCompareWithCommittedFile(t *testing.T) {
	Compare(t, "testdata/hello.txt", []byte("hello\n"))
}
