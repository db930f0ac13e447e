package hook

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"gbatch/ctld/program"
	"gbatch/internal/model"
)

const (
	maxAnswer  = 256 << 10       // bytes of an answer
	maxErrors  = 4 << 10         // bytes of what it writes to standard error
	maxWaiting = 1024            // calls that wait for a turn
	turnWait   = 5 * time.Second // for a turn, beside those that run
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

// Run asks the program about a call. said is what it wrote to standard error. The error says what is wrong with the
// program, in words that follow its path; ErrBusy is none of the program's.
func (r *Runner) Run(ctx context.Context, rules *model.SubmitHook, as program.As, c *Call) (a *Answer, said string,
	err error) {
	if err := r.enter(ctx, rules, c.UID); err != nil {
		return nil, "", err
	}
	defer r.leave(c.UID)
	limit := time.Duration(max(rules.LimitS, 1)) * time.Second
	in, err := c.input(rules.LimitS)
	if err != nil {
		return nil, "", err
	}
	p := program.Call{Argv: []string{rules.Program}, As: as, Stdin: in, Limit: limit, Whole: true,
		Env:  []string{program.Path, "SLURM_CLUSTER_NAME=" + c.Cluster, "GBATCH_HOOK=" + c.Action},
		Said: program.Output{Most: maxAnswer}, Err: &program.Output{Most: maxErrors}}
	err = p.Run(ctx)
	said = p.Err.Line()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, said, err
	case errors.Is(err, program.ErrLate):
		return nil, said, fmt.Errorf("has not answered within %d s (JobSubmitTimeout)", rules.LimitS)
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return nil, said, fmt.Errorf("exited with %d", exit.ExitCode())
	case err != nil:
		return nil, said, fmt.Errorf("does not run: %w", err)
	case p.Said.Over:
		return nil, said, fmt.Errorf("answered with more than %d bytes", maxAnswer)
	}
	if a, err = read(c.Action, p.Said.Data); err != nil {
		return nil, said, fmt.Errorf("is wrong: %w", err)
	}
	return a, said, nil
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
