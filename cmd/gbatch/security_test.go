package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gbatch/internal/conf"
	"gbatch/internal/rpc/pki"
)

// TestSecurityFindings: what others can read or change is an error, what lasts too long a note, and a host without any
// of it has neither.
func TestSecurityFindings(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(pki.InitCA(dir, "c"))
	must(pki.Issue(dir, pki.RoleNode, "n1", nil, dir))
	alert, key := filepath.Join(dir, "alert"), filepath.Join(dir, "node-n1.key")
	must(os.WriteFile(alert, nil, 0o700))
	sys := filepath.Join(dir, "sys")
	must(os.MkdirAll(filepath.Join(sys, "fs"), 0o755))
	must(os.WriteFile(filepath.Join(sys, "fs", "protected_fifos"), []byte("0\n"), 0o600))
	look := func() (found []string) {
		a := &audit{cfg: &conf.Config{Path: alert, PKIDir: dir, AlertProgram: alert, StateSaveLocation: sys}, sys: sys}
		a.keys()
		a.files()
		a.dirs()
		a.kernel()
		for _, f := range a.list {
			found = append(found, f.Severity+" "+f.About)
			if f.Fix == "" || f.Text == "" {
				t.Errorf("%+v", f)
			}
		}
		return found
	}
	open := []string{"error keys", "error AlertProgram", "warning StateSaveLocation", "note certificates",
		"warning kernel"}
	must(os.Chmod(key, 0o644))
	must(os.Chmod(alert, 0o777))
	found := look()
	for _, want := range open {
		if !slices.Contains(found, want) {
			t.Errorf("%q is not among %q", want, found)
		}
	}
	must(os.Chmod(key, 0o600))
	must(os.Chmod(alert, 0o700))
	must(os.Chmod(sys, 0o700))
	must(os.WriteFile(filepath.Join(sys, "fs", "protected_fifos"), []byte("2\n"), 0o600))
	must(pki.IssueFor(1e9*3600, dir, pki.RoleNode, "n1", nil, dir))
	if found := look(); len(found) > 0 {
		t.Errorf("a host that leaves nothing open has %q", found)
	}
}
