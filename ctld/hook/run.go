package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/plain"
)

const (
	maxAnswer  = 256 << 10       // bytes of an answer
	maxErrors  = 4 << 10         // bytes of what it writes to standard error
	maxWaiting = 1024            // calls that wait for a turn
	turnWait   = 5 * time.Second // for a turn, beside those that run
	grace      = time.Second     // for its output to end when it has ended
)

// ErrBusy is the error of a call that got no turn.
var ErrBusy = errors.New("too many submissions wait for JobSubmitProgram; try again in a moment")

// Runner runs the program. Its zero value is ready.
type Runner struct {
	mu      sync.Mutex
	running int
	of      map[uint32]int // running, by who asked
	waiting int
	freed   chan struct{} // closed when a turn ends
}

// As is the user that the program runs as.
type As struct {
	UID, GID uint32
	Groups   []uint32
	Change   bool // it is another user than this process's
}

// Run asks the program about a call. said is what it wrote to standard error. The error says what is wrong with the
// program, in words that follow its path; ErrBusy is none of the program's.
func (r *Runner) Run(ctx context.Context, rules *model.SubmitHook, as As, c *Call) (a *Answer, said string, err error) {
	if err := r.enter(ctx, rules, c.UID); err != nil {
		return nil, "", err
	}
	defer r.leave(c.UID)
	limit := time.Duration(max(rules.LimitS, 1)) * time.Second
	run, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	in, err := c.input(rules.LimitS)
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(run, rules.Program)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CLUSTER_NAME=" + c.Cluster,
		"GBATCH_HOOK=" + c.Action}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if as.Change {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: as.UID, Gid: as.GID, Groups: as.Groups}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = grace
	out, words := &bounded{most: maxAnswer}, &bounded{most: maxErrors}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), out, words
	if err = cmd.Start(); err == nil {
		ended(cmd.Process.Pid)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it has left behind; mostly there is nothing
		err = cmd.Wait()
	}
	said = plain.Line(string(words.data))
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, said, context.Cause(ctx)
	case run.Err() != nil:
		return nil, said, fmt.Errorf("has not answered within %d s (JobSubmitTimeout)", rules.LimitS)
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return nil, said, fmt.Errorf("exited with %d", exit.ExitCode())
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, said, fmt.Errorf("does not run: %w", err)
	case out.over:
		return nil, said, fmt.Errorf("answered with more than %d bytes", maxAnswer)
	}
	if a, err = read(c.Action, out.data); err != nil {
		return nil, said, fmt.Errorf("is wrong: %w", err)
	}
	return a, said, nil
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

// enter waits for a turn: one user has half of them at most.
func (r *Runner) enter(ctx context.Context, rules *model.SubmitHook, uid uint32) error {
	all := max(int(rules.Parallel), 1)
	late := time.NewTimer(turnWait)
	defer late.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.running >= all || r.of[uid] >= max(all/2, 1) {
		if r.waiting >= maxWaiting {
			return ErrBusy
		}
		if r.freed == nil {
			r.freed = make(chan struct{})
		}
		freed := r.freed
		r.waiting++
		r.mu.Unlock()
		var err error
		select {
		case <-freed:
		case <-late.C:
			err = ErrBusy
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		r.mu.Lock()
		r.waiting--
		if err != nil {
			return err
		}
	}
	if r.of == nil {
		r.of = map[uint32]int{}
	}
	r.running++
	r.of[uid]++
	return nil
}

func (r *Runner) leave(uid uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	if r.of[uid]--; r.of[uid] == 0 {
		delete(r.of, uid)
	}
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}

// bounded keeps the beginning of what is written to it. It has no method of a buffer: io.Copy would use ReadFrom, which
// knows no bound.
type bounded struct {
	data []byte
	most int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.most - len(b.data)
	b.over = b.over || len(p) > room
	b.data = append(b.data, p[:min(max(room, 0), len(p))]...)
	return len(p), nil
}
