package scripts

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

func files(t testing.TB, s *Store) int {
	t.Helper()
	entries, err := os.ReadDir(s.Dir)
	must(t, err)
	return len(entries)
}

func TestScriptsAreShared(t *testing.T) {
	s := New(t.TempDir(), false)
	b := scriptBlob("#!/bin/sh\nexit 0\n")
	me, other := uint32(os.Getuid()), uint32(os.Getuid()+1)
	one, err := s.Take(b, me, 0)
	must(t, err)
	two, err := s.Take(b, me, 0)
	must(t, err)
	theirs, err := s.Take(b, other, 0)
	must(t, err)
	if one != two || one == theirs || files(t, s) != 2 {
		t.Errorf("%q %q %q, %d files", one, two, theirs, files(t, s))
	}
	if st, err := os.Stat(s.Path(one)); err != nil || st.Mode().Perm() != 0o500 ||
		filepath.Base(s.Path(one)) != "slurm_script" {
		t.Errorf("%v %v", st, err)
	}
	must(t, s.Release(one))
	must(t, s.Release(two))
	// Nobody has it; the next job finds it all the same.
	again, err := s.Take(b, me, 0)
	must(t, err)
	if again != one || files(t, s) != 2 {
		t.Errorf("%q, %d files", again, files(t, s))
	}
}

// If a user changes the file of a script, the running jobs see the change, and later jobs don't.
func TestScriptsThatWereChanged(t *testing.T) {
	s := New(t.TempDir(), false)
	b := scriptBlob("#!/bin/sh\nexit 0\n")
	one, err := s.Take(b, 0, 0)
	must(t, err)
	must(t, os.Chmod(s.Path(one), 0o700))
	must(t, os.WriteFile(s.Path(one), []byte("#!/bin/sh\nexit 1\n"), 0o700))
	two, err := s.Take(b, 0, 0)
	must(t, err)
	text, err := os.ReadFile(s.Path(two))
	must(t, err)
	if one == two || string(text) != "#!/bin/sh\nexit 0\n" {
		t.Errorf("%q %q: %q", one, two, text)
	}
	must(t, s.Release(one))
	if isThere(s.Path(one)) || !isThere(s.Path(two)) {
		t.Error("the changed one should go with its last user, the other stay")
	}
	// One that was removed, too.
	must(t, os.Remove(s.Path(two)))
	three, err := s.Take(b, 0, 0)
	must(t, err)
	if three == two || !isThere(s.Path(three)) {
		t.Errorf("%q after %q", three, two)
	}
}

func TestIdleScriptsAreLimited(t *testing.T) {
	s := New(t.TempDir(), false)
	hold, err := s.Take(scriptBlob("#!/bin/sh\n# held\n"), 0, 0)
	must(t, err)
	for i := range idleFiles + 50 {
		name, err := s.Take(scriptBlob(fmt.Sprintf("#!/bin/sh\nexit %d\n", i)), 0, 0)
		must(t, err)
		must(t, s.Release(name))
	}
	if n := files(t, s); n != idleFiles+1 {
		t.Errorf("%d files", n)
	}
	for i := range 3 {
		name, err := s.Take(scriptBlob(fmt.Sprintf("#!/bin/sh\n# %d %s\n", i, strings.Repeat("x", idleBytes/2))), 0, 0)
		must(t, err)
		must(t, s.Release(name))
	}
	if s.bytes > idleBytes || !isThere(s.Path(hold)) {
		t.Errorf("%d bytes idle", s.bytes)
	}
	// The next gnoded: what its attempts have stays, the rest goes.
	next := New(s.Dir, false)
	if !next.Adopt(hold) || next.Adopt("nonexistent") || next.Adopt("../x") {
		t.Error("adopt")
	}
	must(t, next.Sweep())
	if files(t, next) != 1 {
		t.Errorf("%d files", files(t, next))
	}
	must(t, next.Release(hold))
	if files(t, next) != 0 {
		t.Errorf("%d files", files(t, next))
	}
}
