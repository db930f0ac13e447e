package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain is for the processes that become a user's program.
func TestMain(m *testing.M) {
	if status, handled := Main(os.Args); handled {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

func script(t *testing.T, lines string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gbatch-program")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // it is below /tmp
	path := filepath.Join(dir, "program")
	if err := errors.Join(os.WriteFile(path, []byte("#!/bin/sh\n"+lines+"\n"), 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNothingSurvives: what a program has started ends with it, also in sessions of its own, and with another user's
// rights: when it ends, when it is killed and at its limit.
func TestNothingSurvives(t *testing.T) {
	as := As{}
	if os.Geteuid() == 0 {
		as = As{UID: 65534, GID: 65534, Change: true}
	}
	for name, how := range map[string]string{"ends": "exit 3", "killed": "kill -KILL $$", "late": "exec sleep 76543"} {
		dir := t.TempDir()
		for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
			_ = os.Chmod(d, 0o777) // the program's user writes to it
		}
		pids := filepath.Join(dir, "pids")
		c := Call{As: as, Whole: true, Kept: true, Limit: time.Minute, Env: []string{Path}, Argv: []string{script(t,
			"exec </dev/null 2>/dev/null\n"+
				"setsid sh -c 'trap \"\" TERM HUP; echo $$ >>"+pids+"; setsid sleep 76543 & sleep 76543' >/dev/null &\n"+
				"while [ ! -s "+pids+" ]; do sleep 0.01; done; "+how)}}
		if name == "late" {
			c.Limit = 2 * time.Second
		}
		err := c.Run(t.Context())
		var exit *exec.ExitError
		switch {
		case name == "late" && errors.Is(err, ErrLate):
		case name == "ends" && errors.As(err, &exit) && exit.ExitCode() == 3:
		case name == "killed" && errors.As(err, &exit) && exit.ExitCode() == 137:
		default:
			t.Errorf("%s: %v %s", name, err, c.Said.Line())
		}
		text, err := os.ReadFile(pids)
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range strings.Fields(string(text)) {
			if _, err := os.Stat("/proc/" + pid); err == nil {
				t.Errorf("%s: process %s is there", name, pid)
			}
		}
		if out, err := exec.Command("pgrep", "-f", "sleep 76543").Output(); err == nil {
			t.Errorf("%s: there are %s", name, out)
		}
	}
}

// TestEnds: how a program ends, and what is kept of its output.
func TestEnds(t *testing.T) {
	c := Call{Argv: []string{script(t, `cat; echo "$# $2 $X"; echo err >&2`), "a", "b c"}, Env: []string{Path, "X=x"},
		Stdin: []byte("in "), Err: &Output{}}
	if err := c.Run(t.Context()); err != nil || c.Said.Line() != "in 2 b c x" || c.Err.Line() != "err" {
		t.Errorf("%v: %q, %q", err, c.Said.Data, c.Err.Data)
	}
	for _, code := range []int{3, cannotRun} {
		var exit *exec.ExitError
		c = Call{Argv: []string{script(t, fmt.Sprint("exit ", code))}}
		if err := c.Run(t.Context()); !errors.As(err, &exit) || exit.ExitCode() != code {
			t.Errorf("%v, not %d", err, code)
		}
	}
	c = Call{Argv: []string{"/no/such/program"}}
	var exit *exec.ExitError
	if err := c.Run(t.Context()); err == nil || errors.As(err, &exit) ||
		err.Error() != "exec /no/such/program: no such file or directory" || len(c.Said.Data) != 0 {
		t.Errorf("a program that is not there: %v, %q", err, c.Said.Data)
	}
	c = Call{Argv: []string{script(t, "echo 123456789; exec sleep 600")}, Env: []string{Path}, Limit: time.Second,
		Said: Output{Most: 4}}
	if err := c.Run(t.Context()); !errors.Is(err, ErrLate) || string(c.Said.Data) != "1234" || !c.Said.Over {
		t.Errorf("%v: %q", err, c.Said.Data)
	}
	ctx, cancel := context.WithCancel(t.Context())
	on := script(t, "") + ".on"
	c = Call{Argv: []string{script(t, "trap '' TERM; echo >"+on+"; exec sleep 600")}, Env: []string{Path}}
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(on); err == nil {
				cancel()
			}
		}
	}()
	if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestHungFile: a program on a file system that hangs, here one whose file somebody has a lease on, holds up nothing of
// this process. With the plain fork of Go, its next garbage collection waits until the lease is over (45 s).
func TestHungFile(t *testing.T) {
	signal.Ignore(syscall.SIGIO) // says that somebody opens the file
	path := script(t, "true")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // it was not written to
	switch _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		t.Skip("this file system has no leases: ", err)
	case err != nil:
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { done <- (&Call{Argv: []string{path}, Env: []string{Path}}).Run(ctx) }()
	for lease := unix.F_WRLCK; lease == unix.F_WRLCK; { // until somebody wants to open it
		if lease, err = unix.FcntlInt(f.Fd(), unix.F_GETLEASE, 0); err != nil || t.Context().Err() != nil {
			t.Fatal(err, t.Context().Err())
		}
	}
	begin := time.Now()
	runtime.GC()
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("this process stood still for %s", took)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestAnotherUser: a program that runs as a user has the user's ids and groups, and no other ones.
func TestAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to be another user")
	}
	c := Call{Argv: []string{script(t, "echo $(id -u) $(id -g) $(id -G)")}, Env: []string{Path},
		As: As{UID: 65534, GID: 4, Groups: []uint32{4, 7}, Change: true}}
	if err := c.Run(t.Context()); err != nil || c.Said.Line() != "65534 4 4 7" {
		t.Errorf("%v, %q", err, c.Said.Line())
	}
}

// TestLeftBehind: what a program leaves behind is killed, if it is to.
func TestLeftBehind(t *testing.T) {
	c := Call{Argv: []string{script(t, "sleep 600 >/dev/null 2>&1 & echo $!")}, Env: []string{Path}, Whole: true}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(c.Said.Line(), &pid); err != nil {
		t.Fatal(err)
	}
	for alive(pid) { // it was killed, and its new parent has to take note
		if t.Context().Err() != nil {
			t.Fatal("it lives")
		}
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ") && syscall.Kill(pid, 0) == nil
}
