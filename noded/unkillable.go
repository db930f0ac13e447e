package noded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// unkillable.go handles processes that survive SIGKILL: they hang in the kernel, on a file server or a device. After
// UnkillableStepTimeout the node is drained with a reason that names them, UnkillableStepProgram runs once for the
// attempt, and the attempt ends without them, as in Slurm. The node gets no new job until an administrator resumes it.
// The processes are killed again until they are gone; a restarted gnoded does the same (groups.sweep).

const (
	unkillableTimeout = 60 * time.Second // for UnkillableStepProgram
	maxSurvivors      = 4                // that a node's reason names
	leftoverPace      = 30 * time.Second // between two tries to kill what an abandoned attempt left
	maxLeftovers      = 1024             // abandoned attempts with further tries; more are left to the next start
)

// msgLeftover says that it is time to try again, or a worker's result that nothing is left.
type msgLeftover struct {
	key  proto.Attempt
	gone bool
}

// giveUp drains the node and names the surviving processes, drops the attempt's steps, and tries once more to remove
// the rest.
func (l *loop) giveUp(a *attempt) error {
	if err := l.survives(a, fmt.Sprintf("job %d", a.key.Job), l.n.groups.survivors(a.key)); err != nil {
		return err
	}
	for _, s := range a.steps {
		if err := l.leaveStep(s); err != nil {
			return err
		}
	}
	a.tries++ // workers other than those for launches do the waiting
	l.clear(a)
	return nil
}

// survives reports, once, that processes of an attempt survive SIGKILL.
func (l *loop) survives(a *attempt, what string, pids []int) error {
	text := what + ": processes survive SIGKILL"
	if len(pids) > 0 {
		text += ": " + describeProcesses(pids)
	}
	l.log.Error("processes survive SIGKILL for longer than UnkillableStepTimeout; the node is drained, and the job "+
		"ends without them",
		"job", a.key.Job, "attempt", a.key.Attempt, "what", text)
	if a.drained || a.will != wanted {
		return nil
	}
	a.drained = true
	key := a.key
	if r := l.n.rules.Load(); r != nil && r.UnkillableProgram != "" {
		program := r.UnkillableProgram
		env := []string{fmt.Sprintf("SLURM_JOB_ID=%d", key.Job), fmt.Sprintf("SLURM_JOBID=%d", key.Job),
			"SLURM_STEP_ID=batch",
			"SLURM_SCRIPT_CONTEXT=unkillable", fmt.Sprintf("SLURM_JOB_UID=%d", a.rec.UID)}
		l.then(func() {
			l.n.stops.Do(func(ctx context.Context) {
				out, err := l.n.runLocal(ctx, program, unkillableTimeout, env)
				l.log.Info("UnkillableStepProgram has run", "job", key.Job, "program", program, "err", err, "output", out)
			})
		})
	}
	return l.report(&proto.Report{Kind: proto.ReportUnkillable, Job: key.Job, Attempt: key.Attempt, Text: text})
}

// leave ends an attempt without its remaining processes, which are killed in the background.
func (l *loop) leave(a *attempt) error {
	if len(l.leftovers) < maxLeftovers && !l.leftovers[a.key] {
		l.leftovers[a.key] = true
		l.laterLeftover(a.key)
	}
	var exit model.Exit
	if a.ended != nil {
		exit = exitOf(a.ended, usage{})
	}
	l.n.sampler.end(wholeJob(a.key))
	return l.cleared(a, l.endReport(a, exit))
}

func (l *loop) laterLeftover(key proto.Attempt) {
	time.AfterFunc(leftoverPace, func() { l.n.inbox.post(msgLeftover{key: key}) })
}

// onLeftover makes a worker try again to kill what an abandoned attempt left.
func (l *loop) onLeftover(m msgLeftover) {
	if m.gone {
		delete(l.leftovers, m.key)
		l.log.Info("the last processes of an abandoned job have ended", "job", m.key.Job, "attempt", m.key.Attempt)
		return
	}
	if !l.leftovers[m.key] {
		return
	}
	l.n.stops.Do(func(context.Context) {
		if err := l.n.groups.remove(m.key); err == nil {
			l.n.inbox.post(msgLeftover{m.key, true})
		}
	})
	l.laterLeftover(m.key)
}

// describeProcesses names processes with their state and what they wait for in the kernel.
func describeProcesses(pids []int) string {
	var out []string
	for i, pid := range pids {
		if i == maxSurvivors {
			out = append(out, fmt.Sprintf("and %d more", len(pids)-i))
			break
		}
		dir := filepath.Join("/proc", fmt.Sprint(pid))
		text := fmt.Sprintf("%d", pid)
		// A process that has gone meanwhile has nothing to read.
		stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
		if open, end := strings.IndexByte(string(stat), '('), strings.LastIndexByte(string(stat), ')'); open >= 0 &&
			end > open && end+2 < len(stat) {
			text += fmt.Sprintf(" (%s, %c", stat[open+1:end], stat[end+2])
			if wchan, _ := os.ReadFile(filepath.Join(dir, "wchan")); len(wchan) > 1 {
				text += " in " + string(wchan)
			}
			text += ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}
