package program

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
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

	Users bool // a user chose its path
	Whole bool // what is left of its process group when it ends is killed
	Said  Output
	Err   *Output // where its standard error goes; nil: to Said, too
}

// Run runs the program until its end. The error is nil if it has ended well, an *exec.ExitError, ErrLate, the context's
// cause, or why it does not run.
func (c *Call) Run(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	if c.Limit > 0 {
		ctx, cancel = context.WithTimeout(parent, c.Limit)
	}
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	switch {
	case c.Users:
		cmd.Path, cmd.Args, cmd.Err = "/proc/self/exe", childArgs(&c.As, c.Argv), nil
	case c.As.Change:
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: c.As.UID, Gid: c.As.GID, Groups: c.As.Groups}
	}
	cmd.Env, cmd.Dir = c.Env, "/"
	if c.Stdin != nil {
		cmd.Stdin = bytes.NewReader(c.Stdin)
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = grace
	if cmd.Stdout, cmd.Stderr = &c.Said, &c.Said; c.Err != nil {
		cmd.Stderr = c.Err
	}
	err := cmd.Start()
	if err == nil {
		if c.Whole {
			ended(cmd.Process.Pid)
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it has left behind; mostly there is nothing
		}
		err = cmd.Wait()
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
