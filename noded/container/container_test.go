package container

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// testPlace gives a directory for a store and two that containers replace.
func testPlace(t *testing.T) (o Options, host string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	root := t.TempDir()
	host = filepath.Join(root, "tmp")
	for _, d := range []string{host, filepath.Join(root, "vartmp"), filepath.Join(host, "spool", "scripts")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(host, "secret"), "of the node")
	write(t, filepath.Join(host, "spool", "scripts", "a"), "script")
	o = Options{Base: filepath.Join(root, "base"), Dirs: []string{host, filepath.Join(root, "vartmp"), shm},
		Keep: []string{filepath.Join(host, "spool"), "/etc", filepath.Join(host, "none")}}
	return o, host
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Sweep(nil); err != nil {
			t.Error(err)
		}
		if err := s.Clean(context.Background()); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// in runs a shell command in a container.
func in(t *testing.T, ns, command string) string {
	t.Helper()
	out, err := exec.Command("nsenter", "--mount="+ns, "/bin/sh", "-c", command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestContainer: a container has empty directories of its own with the node's rights, which all of its processes share
// and nobody else sees; directories that jobs need are still there; they go with the container.
func TestContainer(t *testing.T) {
	o, host := testPlace(t)
	o.Base = filepath.Join(host, "base") // as of a cluster below /tmp
	s := open(t, o)
	one, err := s.Make("1.0")
	if err != nil {
		t.Fatal(err)
	}
	two, err := s.Make("2.0")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Make("1.0"); err != nil || again != one {
		t.Errorf("made again: %s %v", again, err)
	}
	if got := in(t, one, "cd "+host+"; ls; echo mine > file; stat -c %a:%u . /dev/shm; cat spool/scripts/a"); got !=
		"spool\n1777:0\n1777:0\nscript" {
		t.Errorf("in a new container: %s", got)
	}
	vartmp := filepath.Join(filepath.Dir(host), "vartmp")
	if got := in(t, one, "cat "+host+"/file; echo x > /dev/shm/y; : > "+vartmp+"/z"); got != "mine" {
		t.Errorf("a second process sees %q", got)
	}
	if got := in(t, two, "cat "+host+"/file /dev/shm/y "+vartmp+"/z 2>&1 | grep -c 'No such'"); got != "3" {
		t.Errorf("another container sees %q", got)
	}
	for _, gone := range []string{filepath.Join(host, "file"), "/dev/shm/y", filepath.Join(vartmp, "z")} {
		if _, err := os.Lstat(gone); err == nil {
			t.Errorf("the node sees %s", gone)
		}
	}
	if st, err := os.Stat(o.Base); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("others may enter: %v %v", st.Mode(), err)
	}
	// A store that is opened after gnoded was killed has the same containers.
	later := open(t, o)
	if again, err := later.Make("1.0"); err != nil || again != one || in(t, again, "cat "+host+"/file") != "mine" {
		t.Errorf("after a restart: %s %v", again, err)
	}
	if err := later.Sweep([]string{"2.0"}); err != nil {
		t.Error(err)
	}
	if isNamespace(one) || !isNamespace(two) {
		t.Error("Sweep removed the wrong ones")
	}
	if err := s.Remove("2.0"); err != nil {
		t.Error(err)
	}
	if err := s.Remove("2.0"); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if err := s.Clean(t.Context()); err != nil {
		t.Error(err)
	}
	for _, d := range []string{"jobs", "gone"} {
		if left, err := os.ReadDir(filepath.Join(o.Base, d)); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v %v", d, left, err)
		}
	}
}

// TestManyAtOnce: containers are made and removed by several workers at the same time.
func TestManyAtOnce(t *testing.T) {
	o, _ := testPlace(t)
	s := open(t, o)
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			ns, err := s.Make(fmt.Sprint(i))
			if err != nil {
				t.Error(err)
				return
			}
			if !isNamespace(ns) {
				t.Errorf("%s is no namespace", ns)
			}
			if i%2 == 0 {
				if err := s.Remove(fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	left, err := os.ReadDir(filepath.Join(o.Base, "jobs"))
	if err != nil || len(left) != 6 {
		t.Errorf("%v %v", left, err)
	}
}

// TestHalfMade: what a killed gnoded or a reboot has left of a container is made anew.
func TestHalfMade(t *testing.T) {
	o, host := testPlace(t)
	s := open(t, o)
	if err := os.MkdirAll(filepath.Join(s.dir("1.0"), "dirs", "0"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.dir("1.0"), "dirs", "0", "old"), "")
	write(t, filepath.Join(s.dir("1.0"), "ns"), "")
	ns, err := s.Make("1.0")
	if err != nil {
		t.Fatal(err)
	}
	if got := in(t, ns, "ls "+host); got != "spool" {
		t.Errorf("has %s", got)
	}
}

// TestHostileTrees: a user's tree is removed whatever is in it, and nothing else is.
func TestHostileTrees(t *testing.T) {
	o, _ := testPlace(t)
	s := open(t, o)
	if _, err := s.Make("1.0"); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(filepath.Dir(o.Base), "victim")
	if err := os.Mkdir(victim, 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(victim, "file"), "")
	d := s.source("1.0", 0)
	for link, to := range map[string]string{"a": victim, "b": filepath.Join(victim, "file"), "c": "/etc", "d": "."} {
		if err := os.Symlink(to, filepath.Join(d, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(d, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Deeper than a process may have descriptors, and than a path may be long.
	const deep = 5000
	at, err := unix.Open(d, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range deep {
		if err := unix.Mkdirat(at, "deep", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "deep", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(at) // it was only a step
		at = next
	}
	_ = unix.Close(at) // likewise
	if err := s.Remove("1.0"); err != nil {
		t.Fatal(err)
	}
	var had, few unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &had); err != nil {
		t.Fatal(err)
	}
	few = unix.Rlimit{Cur: 256, Max: had.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err = s.Clean(t.Context())
	if rerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &had); err != nil || rerr != nil {
		t.Fatal(err, rerr)
	}
	if left, err := os.ReadDir(filepath.Join(o.Base, "gone")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(victim, "file")); err != nil {
		t.Error(err)
	}
}

// TestBasePath: a directory that somebody else could write to is refused.
func TestBasePath(t *testing.T) {
	o, _ := testPlace(t)
	if err := os.Mkdir(o.Base, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(o.Base, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "only root can write") {
		t.Errorf("a directory of everybody: %v", err)
	}
	if err := os.Remove(o.Base); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", o.Base); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(o); err == nil {
		t.Error("a link is taken")
	}
	o.Dirs = append(o.Dirs, "/no/such/dir")
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "Dirs") {
		t.Errorf("a directory that is not there: %v", err)
	}
	if s := open(t, Options{Base: o.Base + "2", Dirs: o.Dirs[:1]}); s != nil {
		for _, name := range []string{"", ".", "..", "a/b", ".x"} {
			if _, err := s.Make(name); err == nil {
				t.Errorf("%q is taken for a name", name)
			}
		}
	}
}
