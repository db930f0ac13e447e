package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/plain"
)

// Path is the PATH of the controllers' programs. It is fixed and does not depend on gctld's own.
const Path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"

// MaxOutput is how many bytes of a program's output are worth keeping for the log.
const MaxOutput = 16 << 10

// grace is how long the output may stay open when the program has ended or was killed.
const grace = 2 * time.Second

// stuckWait is how long a program that was killed may take to end. One on a file system that hangs takes longer.
const stuckWait = 3 * grace

// maxStuck is how many of those there may be before no other program is started.
const maxStuck = 64

var stuck atomic.Int32 // programs that were killed and have not ended

// ErrLate says that a program was killed at its limit.
var ErrLate = errors.New("its time limit is over")

// As is the user that a program runs as. Its zero value is this process's.
type As struct {
	UID, GID uint32
	Groups   []uint32
	Change   bool // it is another user than this process's
}

// Call is one run of a program.
type Call struct {
	Argv  []string // its path, and its arguments
	Env   []string
	As    As
	Stdin []byte
	Limit time.Duration // 0: only the context ends it

	Whole bool // what is left of its process group when it ends is killed
	Kept  bool // and all else that it has started, in whatever session it is
	Said  Output
	Err   *Output // where its standard error goes; nil: to Said, too
}

// Run runs the program until its end, or until some seconds after it was killed. The error is nil if it has ended well,
// an *exec.ExitError, ErrLate, the context's cause, or why it does not run.
func (c *Call) Run(parent context.Context) error {
	if n := stuck.Load(); n >= maxStuck {
		return fmt.Errorf("%d programs were killed and do not end: is a file system hung?", n)
	}
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	if c.Limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.Limit)
		defer cancel()
	}
	said, errs := &Output{Most: c.Said.Most}, c.Err // a program that does not end goes on writing
	if errs != nil {
		errs = &Output{Most: errs.Most}
	}
	cmd := c.command(ctx, said, errs)
	why, tells, err := os.Pipe() // what keeps the child from becoming the program
	if err != nil {
		return err
	}
	cmd.ExtraFiles = []*os.File{tells} // its number there is whyFD
	done := make(chan error, 1)
	go func() { // ends with the process
		runtime.LockOSThread() // the process is killed with the thread that starts it: no other goroutine may end that one
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = tells.Close() // nothing was written to it here
		if err == nil {
			err = c.wait(cmd, why)
		}
		_ = why.Close() // it was only read
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done:
		case <-time.After(stuckWait):
			stuck.Add(1)
			go func() {
				<-done
				stuck.Add(-1)
			}()
			said, errs = nil, nil
		}
	}
	if said != nil {
		c.Said = *said
	}
	if errs != nil {
		*c.Err = *errs
	}
	switch {
	case parent.Err() != nil:
		return context.Cause(parent)
	case ctx.Err() != nil:
		return ErrLate
	case errors.Is(err, exec.ErrWaitDelay):
		return nil // it has ended well, and something that it started holds its output open
	}
	return err
}

// command is the process that becomes the program: see child.go.
func (c *Call) command(ctx context.Context, said, errs *Output) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	if cmd.Args = childArgs(&c.As, c.Argv); c.Kept {
		cmd.Args[0] = keeperName
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if c.Kept {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	}
	cmd.Env, cmd.Dir = c.Env, "/"
	if c.Stdin != nil {
		cmd.Stdin = bytes.NewReader(c.Stdin)
	}
	cmd.Cancel = func() error {
		if c.Kept {
			return cmd.Process.Signal(syscall.SIGTERM) // it kills the others
		}
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	cmd.WaitDelay = grace
	if cmd.Stdout, cmd.Stderr = said, said; errs != nil {
		cmd.Stderr = errs
	}
	return cmd
}

// wait waits for the process. why has what kept it from becoming the program.
func (c *Call) wait(cmd *exec.Cmd, why *os.File) error {
	if c.Whole {
		ended(cmd.Process.Pid)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it has left behind; mostly there is nothing
	}
	err := cmd.Wait()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == cannotRun {
		if text, _ := io.ReadAll(io.LimitReader(why, maxWhy)); len(text) > 0 { // without it, the program says 127 itself
			return errors.New(plain.Line(string(text)))
		}
	}
	return err
}

// ended waits until a process has ended, and leaves it to be reaped: until then no other process has its number.
func ended(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// Output keeps the beginning of what is written to it: Most bytes, or MaxOutput. It has no method of a buffer: io.Copy
// would use ReadFrom, which knows no bound.
type Output struct {
	Most int
	Data []byte
	Over bool // there was more
}

func (o *Output) Write(p []byte) (int, error) {
	most := o.Most
	if most == 0 {
		most = MaxOutput
	}
	room := max(most-len(o.Data), 0)
	o.Over = o.Over || len(p) > room
	o.Data = append(o.Data, p[:min(room, len(p))]...)
	return len(p), nil
}

// Line gives the output in one line.
func (o *Output) Line() string { return plain.Line(strings.TrimSpace(string(o.Data))) }
