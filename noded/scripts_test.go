package noded

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/blob"
	"gbatch/internal/model"
)

func scriptBlob(text string) *model.Blob {
	b := blob.Make([]byte(text))
	return &b
}

func files(t testing.TB, s *scripts) int {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	must(t, err)
	return len(entries)
}

func TestScriptsAreShared(t *testing.T) {
	s := newScripts(t.TempDir(), false)
	b := scriptBlob("#!/bin/sh\nexit 0\n")
	me, other := uint32(os.Getuid()), uint32(os.Getuid()+1)
	one, err := s.take(b, me, 0)
	must(t, err)
	two, err := s.take(b, me, 0)
	must(t, err)
	theirs, err := s.take(b, other, 0)
	must(t, err)
	if one != two || one == theirs || files(t, s) != 2 {
		t.Errorf("%q %q %q, %d files", one, two, theirs, files(t, s))
	}
	if st, err := os.Stat(s.path(one)); err != nil || st.Mode().Perm() != 0o500 ||
		filepath.Base(s.path(one)) != "slurm_script" {
		t.Errorf("%v %v", st, err)
	}
	must(t, s.release(one))
	must(t, s.release(two))
	// Nobody has it; the next job finds it all the same.
	again, err := s.take(b, me, 0)
	must(t, err)
	if again != one || files(t, s) != 2 {
		t.Errorf("%q, %d files", again, files(t, s))
	}
}

// A user who changes their script changes it for the jobs that run it, not for the next.
func TestScriptsThatWereChanged(t *testing.T) {
	s := newScripts(t.TempDir(), false)
	b := scriptBlob("#!/bin/sh\nexit 0\n")
	one, err := s.take(b, 0, 0)
	must(t, err)
	must(t, os.Chmod(s.path(one), 0o700))
	must(t, os.WriteFile(s.path(one), []byte("#!/bin/sh\nexit 1\n"), 0o700))
	two, err := s.take(b, 0, 0)
	must(t, err)
	text, err := os.ReadFile(s.path(two))
	must(t, err)
	if one == two || string(text) != "#!/bin/sh\nexit 0\n" {
		t.Errorf("%q %q: %q", one, two, text)
	}
	must(t, s.release(one))
	if isThere(s.path(one)) || !isThere(s.path(two)) {
		t.Error("the changed one should go with its last user, the other stay")
	}
	// One that was removed, too.
	must(t, os.Remove(s.path(two)))
	three, err := s.take(b, 0, 0)
	must(t, err)
	if three == two || !isThere(s.path(three)) {
		t.Errorf("%q after %q", three, two)
	}
}

func TestIdleScriptsAreLimited(t *testing.T) {
	s := newScripts(t.TempDir(), false)
	hold, err := s.take(scriptBlob("#!/bin/sh\n# held\n"), 0, 0)
	must(t, err)
	for i := range idleScripts + 50 {
		name, err := s.take(scriptBlob(fmt.Sprintf("#!/bin/sh\nexit %d\n", i)), 0, 0)
		must(t, err)
		must(t, s.release(name))
	}
	if n := files(t, s); n != idleScripts+1 {
		t.Errorf("%d files", n)
	}
	for i := range 3 {
		name, err := s.take(scriptBlob(fmt.Sprintf("#!/bin/sh\n# %d %s\n", i, strings.Repeat("x", idleScriptBytes/2))), 0, 0)
		must(t, err)
		must(t, s.release(name))
	}
	if s.bytes > idleScriptBytes || !isThere(s.path(hold)) {
		t.Errorf("%d bytes idle", s.bytes)
	}
	// The next gnoded: what its attempts have stays, the rest goes.
	next := newScripts(s.dir, false)
	if !next.adopt(hold) || next.adopt("nonexistent") || next.adopt("../x") {
		t.Error("adopt")
	}
	must(t, next.sweep())
	if files(t, next) != 1 {
		t.Errorf("%d files", files(t, next))
	}
	must(t, next.release(hold))
	if files(t, next) != 0 {
		t.Errorf("%d files", files(t, next))
	}
}
