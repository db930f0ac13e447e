package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"gbatch/internal/proto"
)

// async.go is grun --async: a process of its own runs the step, and the command ends as soon as the step has its
// number.

// asyncVar tells that process that it is the one: the value is the file for output that the command's own can't take,
// or none. asyncFD is the pipe on which it says what became of the request: messages, and after a NUL the step.
const (
	asyncVar = "GBATCH_GRUN_ASYNC"
	asyncFD  = 3
	// asyncOutput is the file for output where the command's own is no file: nobody may read it any more.
	asyncOutput = "slurm-%j.%s.out"
	// maxAsyncSaid bounds what the process may say before the step has its number, bytes.
	maxAsyncSaid = 1 << 20
)

// settleAsync refuses what --async can't do.
func (r *run) settleAsync() error {
	switch {
	case r.parsable && !r.async:
		return errors.New("--parsable requires --async")
	case !r.async:
		return nil
	case r.pty:
		return errors.New("--async and --pty exclude each other")
	case r.job == "":
		return errors.New("--async is for steps of a job that runs: use it in a batch script, under galloc, or with " +
			"--jobid; gsubmit --wrap submits a job")
	}
	r.rq.Async = true
	return nil
}

// inBackground reports whether this process runs a step for a command that ends before, and forgets how it knows.
func (r *run) inBackground() bool {
	file := r.Getenv(asyncVar)
	if file == "" {
		return false
	}
	r.Environ = slices.DeleteFunc(slices.Clone(r.Environ), func(kv string) bool {
		return strings.HasPrefix(kv, asyncVar+"=")
	})
	return true
}

// keeps reports whether a file may be written to when the command has ended.
func keeps(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG || isNull(fd)
}

// detach starts the process that runs the step, and tells the step's number.
func (r *run) detach() int {
	said, says, err := os.Pipe()
	if err != nil {
		r.Errorf("%v", err)
		return r.Failed(1)
	}
	cmd := exec.Command("/proc/self/exe", r.Args...)
	cmd.Args[0], cmd.Dir, cmd.ExtraFiles = r.Program, r.Dir, []*os.File{says}
	var files []string
	if keeps(1) {
		cmd.Stdout = os.Stdout
	} else {
		files = append(files, "1")
	}
	if keeps(2) {
		cmd.Stderr = os.Stderr
	} else {
		files = append(files, "2")
	}
	cmd.Env = append(slices.Clone(r.Environ), asyncVar+"=files"+strings.Join(files, ""))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		r.Errorf("%v", err)
		return r.Failed(1)
	}
	_ = says.Close() // the process has its own
	text, err := io.ReadAll(io.LimitReader(said, maxAsyncSaid))
	words, step, made := strings.Cut(string(text), "\x00")
	fmt.Fprint(r.Stderr, words)
	switch {
	case made && r.parsable:
		fmt.Fprintln(r.Stdout, step)
		return 0
	case made:
		fmt.Fprintf(r.Stdout, "Submitted step %s\n", step)
		return 0
	case err != nil:
		r.Errorf("%v", err)
	}
	_ = cmd.Wait() // its exit code says it
	return max(cmd.ProcessState.ExitCode(), 1)
}

// goOn makes this process the one that runs the step. Until the step has its number it speaks for the command.
func (r *run) goOn() {
	said := os.NewFile(asyncFD, "the command")
	unix.CloseOnExec(asyncFD)
	files := strings.TrimPrefix(r.Getenv(asyncVar), "files")
	if strings.Contains(files, "1") && r.out == "" {
		r.out = asyncOutput
	}
	if strings.Contains(files, "2") && r.err == "" {
		r.err = asyncOutput
	}
	if r.in == "" {
		r.in = "none"
	}
	r.quiet = true // nobody waits for it
	rest := r.Stderr
	r.Stderr = said
	r.numbered = func(step int32) {
		_, _ = fmt.Fprintf(said, "\x00%d.%d", r.rq.Job, step) // the command may be gone: its step runs on
		_ = said.Close()
		r.Stderr, r.numbered = rest, nil
	}
}

// hasNumber tells the command that has started this process its step's number.
func (t *talk) hasNumber(step int32) {
	if t.numbered != nil && step != proto.StepNone {
		t.numbered(step)
	}
}
