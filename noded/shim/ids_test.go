//go:build linux && (amd64 || arm64)

package shim

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestIdsOfNobody: an order with ids that nobody has, or with root's that isn't root's, is refused on both sides.
func TestIdsOfNobody(t *testing.T) {
	for _, c := range []struct {
		uid, gid uint32
		groups   []uint32
		asRoot   bool
		works    bool
	}{
		{nobody, nobody, []uint32{nobody, 4}, false, true},
		{0, 0, []uint32{0}, true, true},
		{noID, noID, nil, false, false},
		{noID, noID, nil, true, false},
		{noID, nobody, nil, false, false},
		{nobody, noID, nil, false, false},
		{nobody, nobody, []uint32{noID}, false, false},
		{0, 0, nil, true, true},
		{0, noID, nil, true, false},
		{0, 0, nil, false, false},
		{0, nobody, nil, false, false},
		{nobody, 0, nil, false, false},
		{nobody, nobody, []uint32{4, 0}, false, false},
		{nobody, nobody, nil, true, true},
		{nobody, 0, nil, true, false},
	} {
		l := &Launch{Argv: []string{"/bin/true"}, UID: c.uid, GID: c.gid, Groups: c.groups, AsRoot: c.asRoot}
		if err := l.Check(); (err == nil) != c.works {
			t.Errorf("uid %d, gid %d, groups %v, as root %v: %v", c.uid, c.gid, c.groups, c.asRoot, err)
		}
	}
}

// TestChildIsWhoItShouldBe: the child of an order that came through all the same runs nothing when the kernel has not
// made it whom it should be, and says so.
func TestChildIsWhoItShouldBe(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	dir := workDir(t)
	for i, c := range []struct {
		name  string
		spoil func(a *childArgs)
		works bool
	}{
		{"as ordered", func(*childArgs) {}, true},
		{"no user", func(a *childArgs) { a.uid = uintptr(noID) }, false},
		{"no group", func(a *childArgs) { a.gid = uintptr(noID) }, false},
		{"neither", func(a *childArgs) { a.uid, a.gid = uintptr(noID), uintptr(noID) }, false},
		{"another group", func(a *childArgs) { a.groups, a.became = []uint32{5, 3}, make([]uint32, 3) }, false},
		{"more groups than there is room for", func(a *childArgs) { a.became = a.became[:1] }, false},
	} {
		mark := filepath.Join(dir, c.name)
		id := &identity{root: true, clone3: hasClone3(), reasons: errnoTexts(), limits: limitRules{have: ownLimit,
			nrOpen: defaultNrOpen, openFiles: inheritedOpenFiles()}}
		p, fault := id.prepare(&Launch{Key: Key{JobID: uint32(i + 1)}, Argv: []string{"/bin/touch", mark}, UID: nobody,
			GID: nobody, Groups: []uint32{someGroup, 3, nobody}, Env: []string{"PATH=/bin"}})
		if fault != nil {
			t.Fatal(fault)
		}
		c.spoil(p.child)
		pid, errno := spawn(p.child)
		p.close()
		var status unix.WaitStatus
		if pid != 0 {
			if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
				t.Fatal(err)
			}
		}
		_, err := os.Stat(mark)
		switch {
		case c.works && (errno != 0 || err != nil || status.ExitStatus() != 0):
			t.Errorf("%s: %v, %v, %d", c.name, errno, err, status.ExitStatus())
		case !c.works && (Stage(p.child.stage) != StageIdentity || p.child.index != 3 || errno != syscall.EPERM ||
			err == nil):
			t.Errorf("%s: errno %v in stage %d, %d; the program ran: %v", c.name, errno, p.child.stage, p.child.index,
				err == nil)
		}
		if !c.works {
			l := &Launch{UID: 7, GID: 8, Argv: []string{"/x"}}
			if text := p.explain(l, true, errno).text; !strings.Contains(text, "exactly user id 7, group id 8") {
				t.Errorf("%s: %q", c.name, text)
			}
		}
	}
}
