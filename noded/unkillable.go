package noded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gbatch/internal/proto"
)

// unkillable.go is about processes that survive SIGKILL: they hang in the kernel, on a file server or a device. Their job
// stays COMPLETING and keeps its memory and GPUs, for they may still use them; after UnkillableStepTimeout the node is
// drained and UnkillableStepProgram run, once for an attempt. If they die after all the job ends as any other.

const (
	unkillableTimeout = 60 * time.Second // for UnkillableStepProgram
	maxSurvivors      = 4                // that a node's reason names
)

// survives reports an attempt whose processes have survived SIGKILL for too long. left is what could not be removed.
func (l *loop) survives(a *attempt, left error) error {
	r := l.n.rules.Load()
	since := a.killed
	if since.IsZero() {
		since = a.asked // it is being cleared away, which kills too
	}
	if r == nil || r.UnkillableS == 0 || a.unkillable || a.forget || l.now().Sub(since) < time.Duration(r.UnkillableS)*time.Second {
		return nil
	}
	a.unkillable = true
	key, program := a.key, r.UnkillableProgram
	text := fmt.Sprintf("job %d: processes survive SIGKILL", key.Job)
	if pids := l.n.groups.survivors(key); len(pids) > 0 {
		text += ": " + describeProcesses(pids)
	}
	l.log.Error("processes survive SIGKILL for longer than UnkillableStepTimeout; the node is drained", "job", key.Job,
		"attempt", key.Attempt, "what", text, "left", left)
	if program != "" {
		env := []string{fmt.Sprintf("SLURM_JOB_ID=%d", key.Job), fmt.Sprintf("SLURM_JOBID=%d", key.Job), "SLURM_STEP_ID=batch",
			"SLURM_SCRIPT_CONTEXT=unkillable", fmt.Sprintf("SLURM_JOB_UID=%d", a.rec.UID)}
		l.then(func() {
			l.n.stops.do(func(ctx context.Context) {
				out, err := l.n.runLocal(ctx, program, unkillableTimeout, env)
				l.log.Info("UnkillableStepProgram has run", "job", key.Job, "program", program, "err", err, "output", out)
			})
		})
	}
	return l.report(&proto.Report{Kind: proto.ReportUnkillable, Job: key.Job, Attempt: key.Attempt, Text: text})
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
		if open, end := strings.IndexByte(string(stat), '('), strings.LastIndexByte(string(stat), ')'); open >= 0 && end > open && end+2 < len(stat) {
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
