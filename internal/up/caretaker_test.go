package up

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// caretaker_test.go undoes what outlives a process: network namespaces, mounts, loop devices, frozen file systems. A
// shell in a session of its own reads what has to be done, and does it, the last first, when its input ends: at the
// test's end, when it fails, and when its process is killed.

type caretaker struct {
	t   *testing.T
	in  io.WriteCloser
	out bytes.Buffer
	cmd *exec.Cmd
}

func newCaretaker(t *testing.T) *caretaker {
	t.Helper()
	k := &caretaker{t: t, cmd: exec.Command("/bin/sh", "-c", "tac | /bin/sh")}
	k.cmd.Stdout, k.cmd.Stderr = &k.out, &k.out
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var err error
	if k.in, err = k.cmd.StdinPipe(); err == nil { // no other child inherits it
		err = k.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = k.in.Close() // the shell sees the end in any case
		if err := k.cmd.Wait(); err != nil || k.out.Len() > 0 {
			t.Errorf("cleaning up: %v\n%s", err, &k.out)
		}
	})
	return k
}

// do runs a command after it has noted what undoes it, a line for a shell.
func (k *caretaker) do(undo string, argv ...string) {
	k.t.Helper()
	if undo != "" {
		if _, err := fmt.Fprintln(k.in, undo); err != nil {
			k.t.Fatal(err)
		}
	}
	mustRun(k.t, argv...)
}

func mustRun(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

// disk makes a file system of its own at dir, which can be frozen and filled.
func (k *caretaker) disk(dir string, mib int) {
	k.t.Helper()
	image := dir + ".image"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		k.t.Fatal(err)
	}
	if err := os.Truncate(image, int64(mib)<<20); err != nil {
		k.t.Fatal(err)
	}
	mustRun(k.t, "mkfs.ext4", "-q", "-m", "0", image)
	undo := fmt.Sprintf("if mountpoint -q '%s'; then fsfreeze -u '%[1]s' 2>/dev/null; "+
		"umount '%[1]s' || umount -l '%[1]s'; fi", dir)
	k.do(undo, "mount", "-o", "loop", image, dir) // the loop device goes with the mount
}

// network makes a network namespace.
func (k *caretaker) network(name string) {
	k.t.Helper()
	undo := fmt.Sprintf("if [ -e /run/netns/%s ]; then ip netns pids %[1]s | xargs -r kill -9; "+
		"ip netns del %[1]s; fi", name)
	k.do(undo, "ip", "netns", "add", name)
	mustRun(k.t, "ip", "-n", name, "link", "set", "lo", "up")
}

// rootTools skips a test that needs namespaces and loop devices where they can't be had.
func rootTools(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: it makes network namespaces and loop devices, which only root may; run it as root")
	}
	for _, tool := range []string{"ip", "nsenter", "mkfs.ext4", "mount", "mountpoint", "fsfreeze", "tac"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: it makes network namespaces and loop devices with a program that is missing: %v", err)
		}
	}
	name := fmt.Sprintf("gb%d-try", os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Skipf("skipped: this kernel or container gives no network namespaces: %s", out)
	}
	mustRun(t, "ip", "netns", "del", name)
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("skipped: this kernel or container gives no loop devices: %v", err)
	}
}

const envKilled = "GBATCH_TEST_KILLED" // for the process that TestCaretaker kills: where it works

// TestCaretaker: a test that is killed while it has a namespace and a frozen file system leaves neither.
func TestCaretaker(t *testing.T) {
	rootTools(t)
	if dir := os.Getenv(envKilled); dir != "" {
		k := newCaretaker(t)
		disk := filepath.Join(dir, "disk")
		k.disk(disk, 16)
		k.network(filepath.Base(dir))
		mustRun(t, "fsfreeze", "-f", disk)
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), fmt.Sprintf("gb%d-killed", os.Getpid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCaretaker$")
	cmd.Env = append(os.Environ(), envKilled+"="+dir)
	out, err := cmd.CombinedOutput() // ends with the last that holds its output: the caretaker
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the process was not killed: %v\n%s", err, out)
	}
	until(t, "nothing is left", func() bool {
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil {
			t.Fatal(err)
		}
		loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range loops {
			if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(dir)) {
				return false
			}
		}
		return !bytes.Contains(mounts, []byte(dir)) && !exists("/run/netns/"+filepath.Base(dir))
	})
}
