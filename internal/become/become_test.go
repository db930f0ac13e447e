package become

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestLinkedFilesStayRoots: a file with another name is not given away. Who may write to the directory of locks or logs
// could link to any file of root's on that file system.
func TestLinkedFilesStayRoots(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to give files away")
	}
	dir := t.TempDir()
	secret, lock, plain := filepath.Join(dir, "secret"), filepath.Join(dir, "lock"), filepath.Join(dir, "plain")
	for _, err := range []error{os.WriteFile(secret, nil, 0o600), os.Link(secret, lock), os.WriteFile(plain, nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w := &who{name: "slurm", uid: 65534, gid: 65534}
	for name, give := range map[string]func(string) error{"lock": w.take, "log": w.log} {
		if err := give(lock); err == nil || !strings.Contains(err.Error(), "2 names") {
			t.Errorf("%s: %v", name, err)
		}
	}
	owner := func(path string) uint32 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Uid
	}
	if err := w.take(plain); err != nil || owner(plain) != 65534 || owner(secret) != 0 {
		t.Errorf("%v; the file belongs to %d, root's to %d", err, owner(plain), owner(secret))
	}
}
