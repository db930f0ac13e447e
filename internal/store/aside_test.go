package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAside: damaged files are kept as the disk has room for them, and a full disk has no room.
func TestAside(t *testing.T) {
	real := freeOf
	defer func() { freeOf = real }()
	log := testLogger(t)
	for name, c := range map[string]struct {
		free int64
		kept string // what was in the files
	}{
		"room":    {free: 200, kept: "2 3"},
		"no room": {free: 199, kept: "3"},
	} {
		t.Run(name, func(t *testing.T) {
			freeOf = func(string) int64 { return c.free }
			dir := t.TempDir()
			kept := func() string {
				files, err := filepath.Glob(filepath.Join(dir, "damaged-*", logFileName))
				if err != nil {
					t.Fatal(err)
				}
				var out []string
				for _, f := range files {
					b, err := os.ReadFile(f)
					if err != nil {
						t.Fatal(err)
					}
					out = append(out, string(b[:1]))
				}
				return strings.Join(out, " ")
			}
			for _, n := range "123" {
				file := filepath.Join(dir, logFileName)
				if err := os.WriteFile(file, []byte(strings.Repeat(string(n), 100)), 0o600); err != nil {
					t.Fatal(err)
				}
				aside, err := moveAside(log, dir, logFileName)
				if err != nil {
					t.Fatal(err)
				}
				// Names have milliseconds, and three moves may fall into one.
				if err := os.Rename(aside, filepath.Join(dir, "damaged-2026010"+string(n))); err != nil {
					t.Fatal(err)
				}
			}
			if got := kept(); got != c.kept {
				t.Errorf("kept: %s, want %s", got, c.kept)
			}
			makeRoom(log, dir)
			if got := kept(); got != "" {
				t.Errorf("kept on a full disk: %s", got)
			}
		})
	}
}
