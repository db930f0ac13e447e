package loginenv

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	endWait = time.Second          // for what start files left running to end after SIGKILL
	endPace = 5 * time.Millisecond // between two looks
)

// Main asks the shell and becomes the script; it returns only if the script can't be run: the error's number.
func Main(args []string, stderr io.Writer) int {
	o, script, err := parse(args)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "gshim "+Word+":", err) // the exit status says it too
		return 2
	}
	// What the shell leaves running becomes this process's child and not init's.
	sub := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil
	login, err := ask(&o)
	if err != nil {
		host, _ := os.Hostname() // the sentence does without
		_, _ = fmt.Fprintf(stderr, "slurmstepd: error: the login environment of %s could not be read on node %s (%v); "+
			"the job runs with what it was submitted with\n", o.Name, host, err)
	}
	if sub {
		endRest()
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) // it is kept over exec, where the script would reap
	}
	env := merge(os.Environ(), login, &o)
	if err = limitSpace(o.Space); err == nil {
		err = syscall.Exec(script[0], script, env)
	}
	_, _ = fmt.Fprintf(stderr, "slurmstepd: error: could not run %s: %v\n", script[0], err)
	if no, is := err.(syscall.Errno); is { //nolint:errorlint // exec's own
		return int(no & 0xff)
	}
	return 1
}

// limitSpace sets the limit of the address space, as far as this process may.
func limitSpace(want unix.Rlimit) error {
	if want == NoSpace() {
		return nil
	}
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &have); err != nil {
		return err
	}
	want.Max = min(want.Max, have.Max)
	want.Cur = min(want.Cur, want.Max)
	return unix.Setrlimit(unix.RLIMIT_AS, &want)
}

// endRest kills what the start files left running, in whatever session, and waits for it. What survives SIGKILL stays
// in the job's control group.
func endRest() {
	for began := time.Now(); time.Since(began) < endWait; time.Sleep(endPace) {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if err != nil && err != unix.EINTR {
				return // ECHILD: nothing is left
			}
			if pid <= 0 {
				break
			}
		}
		for _, pid := range below(os.Getpid()) {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
	}
}

// below gives the descendants of a process.
func below(top int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, e := range entries {
		var pid, parent int
		if _, err := fmt.Sscanf(e.Name(), "%d", &pid); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		text := string(stat)
		// The name, in parentheses, may have anything in it.
		if _, err := fmt.Sscanf(text[strings.LastIndexByte(text, ')')+1:], " %1s %d", new(string), &parent); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	var out []int
	for todo := []int{top}; len(todo) > 0; {
		next := children[todo[0]]
		out, todo = append(out, next...), append(todo[1:], next...)
	}
	return out
}
