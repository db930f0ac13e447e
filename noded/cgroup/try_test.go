package cgroup

import (
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTryDevices: a process in the group tries what it may open, and the trial leaves nothing behind.
func TestTryDevices(t *testing.T) {
	forEach(t, func(t *testing.T, r *Root) {
		if !r.Can().Devices {
			t.Skip(r.Why())
		}
		dir := t.TempDir()
		var files []string
		for i := range 3 {
			f := filepath.Join(dir, string(rune('a'+i)))
			if err := unix.Mknod(f, unix.S_IFCHR|0o600, int(unix.Mkdev(195, uint32(i)))); err != nil {
				t.Skip(err)
			}
			files = append(files, f)
		}
		g := create(t, r, "job_1", Limits{Devices: &Devices{Deny: []Device{{Major: 195, Minor: 0}, {Major: 195, Minor: 2}}}})
		for range 2 {
			denied, ok, err := g.TryDevices(t.Context(), files)
			if err != nil || !ok || !slices.Equal(denied, []bool{true, false, true}) {
				t.Errorf("denied %v, ok %v, %v", denied, ok, err)
			}
		}
		if err := g.Remove(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
