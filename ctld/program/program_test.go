package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain is for the processes that become a user's program.
func TestMain(m *testing.M) {
	if status, handled := Main(os.Args, os.Stderr); handled {
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

// TestEnds: how a program ends, a user's and the site's, and what is kept of its output.
func TestEnds(t *testing.T) {
	for _, users := range []bool{false, true} {
		t.Run(fmt.Sprint(users), func(t *testing.T) {
			c := Call{Argv: []string{script(t, `cat; echo "$# $2 $X"; echo err >&2`), "a", "b c"}, Env: []string{Path, "X=x"},
				Stdin: []byte("in "), Users: users, Err: &Output{}}
			if err := c.Run(t.Context()); err != nil || c.Said.Line() != "in 2 b c x" || c.Err.Line() != "err" {
				t.Errorf("%v: %q, %q", err, c.Said.Data, c.Err.Data)
			}
			var exit *exec.ExitError
			c = Call{Argv: []string{script(t, "exit 3")}, Users: users}
			if err := c.Run(t.Context()); !errors.As(err, &exit) || exit.ExitCode() != 3 {
				t.Errorf("%v", err)
			}
			c = Call{Argv: []string{"/no/such/program"}, Users: users}
			if err := c.Run(t.Context()); err == nil {
				t.Error("a program that is not there has run")
			} else if users && !strings.Contains(c.Said.Line(), "no such file") {
				t.Errorf("%v, and it said %q", err, c.Said.Line())
			}
			c = Call{Argv: []string{script(t, "echo 123456789; exec sleep 600")}, Env: []string{Path}, Users: users,
				Limit: time.Second, Said: Output{Most: 4}}
			if err := c.Run(t.Context()); !errors.Is(err, ErrLate) || string(c.Said.Data) != "1234" || !c.Said.Over {
				t.Errorf("%v: %q", err, c.Said.Data)
			}
			ctx, cancel := context.WithCancel(t.Context())
			on := script(t, "") + ".on"
			c = Call{Argv: []string{script(t, "trap '' TERM; echo >"+on+"; exec sleep 600")}, Env: []string{Path},
				Users: users}
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
		})
	}
}

// TestAnotherUser: a user's program has the user's ids and groups, and no other ones.
func TestAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to be another user")
	}
	for _, users := range []bool{false, true} {
		c := Call{Argv: []string{script(t, "echo $(id -u) $(id -g) $(id -G)")}, Env: []string{Path},
			As: As{UID: 65534, GID: 4, Groups: []uint32{4, 7}, Change: true}, Users: users}
		if err := c.Run(t.Context()); err != nil || c.Said.Line() != "65534 4 4 7" {
			t.Errorf("users %v: %v, %q", users, err, c.Said.Line())
		}
	}
}

// TestLeftBehind: what a program leaves behind is killed, if it is to.
func TestLeftBehind(t *testing.T) {
	c := Call{Argv: []string{script(t, "sleep 600 >/dev/null 2>&1 & echo $!")}, Env: []string{Path}, Users: true,
		Whole: true}
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
