package ctld

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"gbatch/ctld/jobevents"
	"gbatch/ctld/program"
	"gbatch/internal/hostlist"
	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// slurmctldprog.go runs the controller's own programs, PrologSlurmctld before a job is launched and EpilogSlurmctld
// before its resources are free, on the leader.
//
// Run.Program says that a job waits for one of them, and the result goes into the log as a report. A new leader finds
// the waiting jobs and runs the program again. So a program may run twice for a job, but never at the same time,
// since a controller that stops leading kills the programs that it has started.

const (
	maxProgs = 64 // programs that run at once
	progPace = 50 * time.Millisecond
)

// runSlurmctldProgs runs the programs that jobs wait for until ctx ends, and returns when none runs any more.
func (c *Controller) runSlurmctldProgs(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	var mu sync.Mutex
	running := map[proto.Attempt]bool{}
	pace := pacer{gap: progPace}
	for ctx.Err() == nil {
		pace.wait(ctx)
		changed := c.machine.Changed()
		v := c.machine.View()
		v.Moving(func(j *model.Job) bool {
			if j.Run.Program == model.NoCtldProgram {
				return true
			}
			key := proto.Attempt{Job: j.ID, Attempt: j.Attempt}
			mu.Lock()
			defer mu.Unlock()
			if running[key] || len(running) >= maxProgs {
				return len(running) < maxProgs
			}
			if now := c.machine.View().Job(j.ID); now == nil || now.Run == nil || now.Attempt != j.Attempt ||
				now.Run.Program != j.Run.Program {
				return true // it has run since v
			}
			running[key] = true
			rules, cluster := &v.Config().Params.Rules, v.Config().Cluster
			wg.Go(func() {
				c.runSlurmctldProg(ctx, j, rules, cluster)
				mu.Lock()
				delete(running, key)
				full := len(running) == maxProgs-1
				mu.Unlock()
				if full {
					c.nodes.wakeAll()
				}
			})
			return true
		})
		wake := c.nodes.wake()
		select {
		case <-changed:
		case <-wake:
		case <-ctx.Done():
		}
	}
}

// runSlurmctldProg runs the programs that a job waits for and puts the result into the log.
func (c *Controller) runSlurmctldProg(ctx context.Context, j *model.Job, r *model.NodeRules, cluster string) {
	programs, limit, word := r.CtldProlog, r.PrologTimeoutS, "prolog_slurmctld"
	if j.Run.Program == model.CtldEpilog {
		programs, limit, word = r.CtldEpilog, r.EpilogTimeoutS, "epilog_slurmctld"
	}
	if limit <= 0 {
		limit = model.ProgramLimitS
	}
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // it ends with run
		if c.prologOutlivesJob(run, j) {
			cancel()
		}
	}()
	err := c.runPrograms(run, programs, limit, slurmctldEnv(j, word, cluster), j)
	if ctx.Err() != nil {
		return // the next leader runs it
	}
	report := state.Report{Kind: state.ProgramPassed, Job: j.ID, Attempt: j.Attempt, At: c.now()}
	if err != nil {
		c.log.Error("PrologSlurmctld or EpilogSlurmctld failed", "what", word, "job", j.ID, "err", err)
		report.Kind, report.Text = state.ProgramFailed, err.Error()
	}
	for ctx.Err() == nil {
		if _, err = c.propose(ctx, &state.Reports{Reports: []state.Report{report}}); err == nil {
			return
		}
		pause(ctx, waitPace)
	}
}

// prologOutlivesJob waits until a job whose PrologSlurmctld runs has been COMPLETING for KillWait, and then returns
// true; it returns false if ctx ends first.
func (c *Controller) prologOutlivesJob(ctx context.Context, j *model.Job) bool {
	for ctx.Err() == nil {
		changed := c.machine.Changed()
		v := c.machine.View()
		now := v.Job(j.ID)
		if now == nil || now.Attempt != j.Attempt || now.Run == nil || now.Run.Program != model.CtldProlog {
			return false
		}
		if now.State == model.Completing {
			pause(ctx, time.Duration(v.Config().Params.KillWaitS)*time.Second)
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return false
}

// runPrograms runs all programs that match patterns, one after the other, and stops at the first failure.
func (c *Controller) runPrograms(ctx context.Context, patterns []string, limitS int64, env []string,
	j *model.Job) error {
	for _, pattern := range patterns {
		list, err := filepath.Glob(pattern)
		if err != nil || len(list) == 0 && !strings.ContainsAny(pattern, "*?[") {
			list = []string{pattern}
		}
		sort.Strings(list)
		for _, path := range list {
			if err := c.runProgram(ctx, path, limitS, env, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// runProgram runs one program in a process group of its own, and kills that group at its time limit.
func (c *Controller) runProgram(parent context.Context, path string, limitS int64, env []string, j *model.Job) error {
	p := program.Call{Argv: []string{path}, Env: env, Limit: time.Duration(limitS) * time.Second}
	err := p.Run(parent)
	if text := strings.TrimSpace(string(p.Said.Data)); text != "" {
		c.log.Info("output of PrologSlurmctld or EpilogSlurmctld", "program", path, "job", j.ID, "output", text)
	}
	var exit *exec.ExitError
	switch {
	case errors.Is(err, program.ErrLate):
		return fmt.Errorf("%s was killed after %d s, its time limit", path, limitS)
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return fmt.Errorf("%s exited with %d", path, exit.ExitCode())
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// runJobEvent runs JobEventProgram for one event.
func (c *Controller) runJobEvent(parent context.Context, call *jobevents.Call) error {
	p := program.Call{Argv: []string{call.Program}, Stdin: call.Input, Limit: call.Limit,
		Env: append(programEnv(call.Job, c.machine.View().Config().Cluster), call.Env...)}
	err := p.Run(parent)
	switch text := p.Said.Line(); {
	case errors.Is(err, program.ErrLate):
		return fmt.Errorf("it was killed after %s (JobEventTimeout)", call.Limit)
	case err != nil && text != "":
		return fmt.Errorf("%w; it wrote: %s", err, text)
	}
	return err
}

// leadLimit is how long SlurmctldPrimaryOnProg and OffProg may run. The latter holds up the controller that has ceased
// to lead, and no other.
const leadLimit = 10 * time.Second

// tellLeads runs SlurmctldPrimaryOnProg when this controller begins to lead, and SlurmctldPrimaryOffProg when it ceases
// to, as when it ends.
func (c *Controller) tellLeads(ctx context.Context) {
	run := func(key, path string) {
		if path == "" {
			return
		}
		p := program.Call{Argv: []string{path}, Limit: leadLimit, Env: []string{program.Path,
			"SLURM_CLUSTER_NAME=" + c.machine.View().Config().Cluster, "SLURMCTLD_NAME=" + c.opts.Name}}
		if err := p.Run(context.WithoutCancel(ctx)); err != nil {
			c.log.Warn(key+" failed", "program", path, "err", err, "output", p.Said.Line())
		}
	}
	run("SlurmctldPrimaryOnProg", c.machine.View().Config().Params.LeadOn)
	<-ctx.Done()
	run("SlurmctldPrimaryOffProg", c.machine.View().Config().Params.LeadOff)
}

// tellReservations runs ResvProlog when a reservation begins and ResvEpilog when it ends, those of one reservation in
// order. That a program has run is put into the log: a new leader runs those of which it is not known.
func (c *Controller) tellReservations(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	var mu sync.Mutex
	busy := map[string]bool{} // reservations for which a program runs
	pace := pacer{gap: progPace}
	again := make(chan struct{}, 1)
	for ctx.Err() == nil {
		pace.wait(ctx)
		changed := c.machine.Changed()
		mu.Lock()
		v := c.machine.View() // while no turn is being told: who has been told is not busy any more
		for _, t := range v.ResvTurns() {
			if busy[t.Resv.Name] || len(busy) >= maxProgs {
				continue
			}
			busy[t.Resv.Name] = true
			wg.Go(func() {
				c.tellReservation(ctx, v.Config(), &t)
				mu.Lock()
				delete(busy, t.Resv.Name)
				mu.Unlock()
				select {
				case again <- struct{}{}:
				default:
				}
			})
		}
		mu.Unlock()
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// tellReservation runs the program of one turn and puts into the log that it has run, well or not.
func (c *Controller) tellReservation(ctx context.Context, cfg *model.Config, t *model.ResvTurn) {
	key, path, limit := "ResvProlog", cfg.Params.ResvProlog, cfg.Params.Rules.PrologTimeoutS
	if t.Over {
		key, path, limit = "ResvEpilog", cfg.Params.ResvEpilog, cfg.Params.Rules.EpilogTimeoutS
	}
	if limit <= 0 {
		limit = model.ProgramLimitS
	}
	if path != "" { // it was in the configuration when the turn came
		p := program.Call{Argv: []string{path, t.Resv.Name}, Env: resvEnv(cfg.Cluster, t),
			Limit: time.Duration(limit) * time.Second}
		err := p.Run(ctx)
		if ctx.Err() != nil {
			return // the next leader runs it
		}
		if errors.Is(err, program.ErrLate) {
			err = fmt.Errorf("it was killed after %d s, its time limit", limit)
		}
		if err != nil {
			c.log.Warn(key+" failed", "program", path, "reservation", t.Resv.Name, "err", err, "output", p.Said.Line())
		}
	}
	for ctx.Err() == nil {
		if _, err := c.propose(ctx, &state.ResvTold{Seqs: []uint64{t.Seq}}); err == nil {
			return
		}
		pause(ctx, waitPace)
	}
}

// resvEnv is the environment of ResvProlog and ResvEpilog.
func resvEnv(cluster string, t *model.ResvTurn) []string {
	r, event := t.Resv, "begin"
	if t.Over {
		event = "end"
	}
	return []string{program.Path, "SLURM_CLUSTER_NAME=" + cluster, "GBATCH_RESERVATION=" + r.Name,
		"GBATCH_RESERVATION_EVENT=" + event, "GBATCH_RESERVATION_NODES=" + hostlist.Compress(r.Nodes),
		fmt.Sprintf("GBATCH_RESERVATION_START=%d", r.Start.Seconds()),
		fmt.Sprintf("GBATCH_RESERVATION_END=%d", r.End.Seconds())}
}

// slurmctldEnv is the environment of the controller's programs, as in Slurm.
func slurmctldEnv(j *model.Job, script, cluster string) []string {
	env := append(programEnv(j, cluster), "SLURM_SCRIPT_CONTEXT="+script)
	end := int64(0)
	if over := j.Run.Over; over != nil {
		x := over.Exit
		x.Worst = max(x.Worst, j.Run.Worst)
		env = append(env, exitEnv(x)...)
		end = over.At.Seconds()
	} else if j.Run.LimitS < model.Unlimited {
		end = j.Run.Start.Add(j.Run.LimitS).Seconds()
	}
	if end != 0 {
		env = append(env, "SLURM_JOB_END_TIME="+strconv.FormatInt(end, 10))
	}
	return env
}

// exitEnv gives a job's exit status in Slurm's variables.
func exitEnv(e model.Exit) []string {
	return []string{fmt.Sprintf("SLURM_JOB_EXIT_CODE=%d", int64(e.Code)<<8|int64(e.Signal)),
		fmt.Sprintf("SLURM_JOB_EXIT_CODE2=%d:%d", e.Code, e.Signal),
		fmt.Sprintf("SLURM_JOB_DERIVED_EC=%d", e.Worst)}
}

// programEnv has the job's variables for the controller's programs, for a job that has run or not.
func programEnv(j *model.Job, cluster string) []string {
	var array proto.ArrayShape
	if set := j.Spec.Tasklist; len(set) > 0 {
		array = proto.ArrayShape{Count: int32(set.Count()), Min: set.Min(), Max: set.Max(), Step: set[0].Step}
	}
	v := jobenv.Vars{program.Path, "SLURM_CLUSTER_NAME=" + cluster}
	jobenv.Site(&v, j, array)
	v.Set("SLURM_JOB_OVERSUBSCRIBE", j.OverSubscribe())
	v.Given("SLURM_CONF", os.Getenv("SLURM_CONF"))
	return v
}
