package trigger

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"gbatch/ctld/program"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

const (
	// Limit is how long a program may run, as in Slurm.
	Limit     = 5 * time.Minute
	maxOutput = 1 << 10  // bytes of a program's output that the log gets
	maxNames  = 64 << 10 // bytes of an argument: the kernel takes twice as much, and the rest is left out
)

// As is the user that a program runs as.
type As struct {
	program.As
	Name string
	Home string
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
	for names = hostlist.Compress(list); len(names) > maxNames; names = hostlist.Compress(list) {
		list = list[:len(list)/2]
	}
	return events, names
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

// run runs a trigger's program in a session of its own. What it has started is killed when it ends, or at the limit: a
// user has no processes on a controller but these programs. It gives the beginning of its output.
func run(ctx context.Context, t *model.Trigger, as As, env []string) (said string, err error) {
	c := program.Call{Argv: append(strings.Fields(t.Program), What(t)), As: as.As, Limit: Limit, Whole: true, Kept: true,
		Env: append(env, "USER="+as.Name, "LOGNAME="+as.Name), Said: program.Output{Most: maxOutput}}
	if as.Home != "" {
		c.Env = append(c.Env, "HOME="+as.Home)
	}
	err = c.Run(ctx)
	var exit *exec.ExitError
	switch {
	case errors.Is(err, program.ErrLate):
		err = fmt.Errorf("it was killed after %s", Limit)
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		err = fmt.Errorf("it exited with %d", exit.ExitCode())
	}
	return c.Said.Line(), err
}
