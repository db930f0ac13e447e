package up

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
)

// bounds gives CapBnd of /proc/PID/status, or of a text of its form, and the mode of its filter of system calls.
func bounds(t *testing.T, status string) (capabilities uint64, filter string) {
	t.Helper()
	value := func(key string) string {
		_, rest, _ := strings.Cut(status, key+":")
		rest, _, _ = strings.Cut(rest, "\n")
		return strings.TrimSpace(rest)
	}
	n, err := strconv.ParseUint(value("CapBnd"), 16, 64)
	if err != nil {
		t.Fatalf("no CapBnd in %q", status)
	}
	return n, value("Seccomp")
}

func boundsOf(t *testing.T, pid int) (uint64, string) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	return bounds(t, string(text))
}

// TestConfined: gnoded has given up what it doesn't need, and whatever it starts has all that it was started with: the
// launcher, also one that takes another's place, jobs, prologs and HealthCheckProgram.
func TestConfined(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root's gnoded has anything to give up")
	}
	all, _ := boundsOf(t, os.Getpid())
	const least = 1<<unix.CAP_SYS_TIME | 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_SYS_RAWIO | 1<<unix.CAP_SYSLOG
	if all&least == 0 {
		t.Skip("this process has been confined already")
	}
	at := t.TempDir()
	for _, name := range []string{"health", "prolog"} {
		text := fmt.Sprintf("#!/bin/sh\ncat /proc/self/status >%s/%s.new && mv %[1]s/%[2]s.new %[1]s/%[2]s.said\n", at, name)
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "confined")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, CPUs: 2, MemMiB: 1000, GPUs: "a100:2"})
	f, err := os.OpenFile(c.Conf, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintf(f, "HealthCheckProgram=%s/health\nHealthCheckInterval=1\nProlog=%[1]s/prolog\n", at)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	setConfig(t, c)

	pid := c.Members[2].process.PID
	own, filter := boundsOf(t, pid)
	if own&least != 0 || filter != "2" {
		t.Errorf("gnoded can have %x, its filter is %s", own, filter)
	}
	shim := func() int { return status(t, dir).Daemons[2].Shim }
	whole := func(what string, has uint64, filter string) {
		t.Helper()
		if has != all || filter != "0" {
			t.Errorf("%s can have %x and has filter %s; gnoded was started with %x", what, has, filter, all)
		}
	}
	first := shim()
	has, filter := boundsOf(t, first)
	whole("gshim", has, filter)
	said := func(name string) {
		t.Helper()
		path := filepath.Join(at, name)
		until(t, name+" to be written", func() bool { _, err := os.Stat(path); return err == nil })
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		has, filter := bounds(t, string(text))
		whole(name, has, filter)
	}
	run := func() {
		t.Helper()
		out := filepath.Join(t.TempDir(), "job")
		id := submit(t, c, "cat /proc/self/status\n", func(sp *model.Spec) {
			sp.Gres = []model.GresReq{{Name: "gpu", Count: 1}}
			sp.StdOut = out
		})
		untilState(t, c, id, model.Completed)
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		has, filter := bounds(t, string(text))
		whole("a job", has, filter)
	}
	said("health.said")
	run()
	said("prolog.said")

	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "another gshim", func() bool { n := shim(); return n != 0 && n != first })
	has, filter = boundsOf(t, shim())
	whole("the next gshim", has, filter)
	run()
	if again, _ := boundsOf(t, pid); again != own {
		t.Errorf("gnoded can have %x now", again)
	}
}
