package trigger

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/plain"
	"gbatch/internal/state"
)

const (
	// Limit is how long a program may run, as in Slurm.
	Limit     = 5 * time.Minute
	maxOutput = 1 << 10     // bytes of a program's output that the log gets
	grace     = time.Second // for its output to end when it has ended
)

// As is the user that a program runs as.
type As struct {
	UID, GID uint32
	Groups   []uint32
	Name     string
	Home     string
	Change   bool // it is another user than this process's
}

// What gives what a trigger's program is told: its job's number, the nodes that have changed, or what has happened.
func What(t *model.Trigger) string {
	events, names := happened(t)
	switch {
	case t.Of == model.TriggerJob:
		return strconv.FormatUint(uint64(t.Job), 10)
	case t.Of == model.TriggerNode && names != "":
		return names
	}
	return events.String()
}

// happened gives what has happened, and to which nodes or controllers: a host list.
func happened(t *model.Trigger) (events model.TriggerEvents, names string) {
	var list []string
	for _, h := range t.Hits {
		events |= h.Events
		if h.Name != "" {
			list = append(list, h.Name)
		}
	}
	return events, hostlist.Compress(list)
}

// environ gives the variables of a trigger's program.
func (k *Keeper) environ(v *state.View, t *model.Trigger) []string {
	events, names := happened(t)
	env := append([]string{}, k.Env...)
	env = append(env, "SLURM_CLUSTER_NAME="+v.Config().Cluster, "GBATCH_TRIGGER_ID="+strconv.FormatUint(uint64(t.ID), 10),
		"GBATCH_TRIGGER_EVENT="+events.String())
	switch {
	case names == "":
	case t.Of == model.TriggerCtld:
		env = append(env, "GBATCH_TRIGGER_CONTROLLERS="+names)
	default:
		env = append(env, "GBATCH_TRIGGER_NODES="+names)
	}
	if t.Job != 0 {
		env = append(env, "SLURM_JOB_ID="+strconv.FormatUint(uint64(t.Job), 10))
	}
	return env
}

// run runs a trigger's program in a session of its own. What is left of its process group when it ends, or at the
// limit, is killed. It gives the beginning of its output.
func run(ctx context.Context, t *model.Trigger, as As, env []string) (said string, err error) {
	words := strings.Fields(t.Program)
	own, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	cmd := exec.CommandContext(own, "/proc/self/exe")
	cmd.Args = childArgs(as, append(words, What(t)))
	cmd.Env, cmd.Dir = append(env, "USER="+as.Name, "LOGNAME="+as.Name), "/"
	if as.Home != "" {
		cmd.Env = append(cmd.Env, "HOME="+as.Home)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = grace
	out := &bounded{}
	cmd.Stdout, cmd.Stderr = out, out
	if err = cmd.Start(); err == nil {
		ended(cmd.Process.Pid)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it has left behind; mostly there is nothing
		err = cmd.Wait()
	}
	said = plain.Line(strings.TrimSpace(string(out.data)))
	var exit *exec.ExitError
	switch {
	case ctx.Err() == nil && own.Err() != nil:
		return said, fmt.Errorf("it was killed after %s", Limit)
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return said, fmt.Errorf("it exited with %d", exit.ExitCode())
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return said, err
	}
	return said, nil
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

// bounded keeps the beginning of what is written to it. It has no method of a buffer: io.Copy would use ReadFrom, which
// knows no bound.
type bounded struct{ data []byte }

func (b *bounded) Write(p []byte) (int, error) {
	b.data = append(b.data, p[:min(max(maxOutput-len(b.data), 0), len(p))]...)
	return len(p), nil
}
