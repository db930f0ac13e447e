package noded

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/noded/shim"
)

// exit.go makes the exit and usage of an attempt, and the usage of a step, for its record and for its user.

// signalNoIO is what Slurm reports as the signal of a job whose files could not be opened.
const signalNoIO = 53

// signalOOM is what it reports as the signal of a job or step of which a process was killed for lack of memory.
const signalOOM = 125

// oomExit gives the exit of what ran out of memory Slurm's signal: how the rest of it ended is the kill's effect.
func oomExit(x *model.Exit) {
	if x.OOM && !x.Unknown {
		x.Code, x.Signal = 0, signalOOM
	}
}

// usage is an attempt's usage, as far as its control group gives it.
type usage struct {
	known    bool
	userMS   int64
	sysMS    int64
	peakKB   int64
	oomKills int64
	limitKB  int64 // the memory limit, if processes were killed for it
}

// usedBy combines the kernel's counters at the end with the samples; nil if there are neither.
func usedBy(c *clearing, use usage, x model.Exit, seen *sampled) *model.Usage {
	var u model.NodeUsage
	switch {
	case seen != nil:
		u = seen.use
	case c.rec != nil && c.rec.Use != nil:
		u = *c.rec.Use
	default:
		return nil
	}
	if !use.known && (c.ended == nil || c.ended.Kind != shim.Exited) {
		return nil
	}
	u.UserMS, u.SysMS = max(u.UserMS, x.UserMS), max(u.SysMS, x.SysMS)
	u.PeakKB = max(u.PeakKB, x.MaxRSSKB)
	u.OOMKills = int32(use.oomKills)
	if ev := c.ended; ev != nil && ev.Kind == shim.Exited {
		u.ReadB, u.WriteB, u.Faults = max(u.ReadB, ev.ReadB), max(u.WriteB, ev.WriteB), max(u.Faults, ev.Faults)
	}
	return &model.Usage{Nodes: []model.NodeUsage{u}}
}

// exitOf makes the exit from gshim's event and the control group's counters.
func exitOf(ev *shim.Event, use usage) model.Exit {
	var x model.Exit
	switch {
	case ev == nil: // the caller says whether it ran
	case ev.Kind == shim.LaunchFailed:
		x = failedExit(ev)
	case ev.CutOff():
		x.Unknown, x.CutOff, x.Text = true, true, ev.Text
	case ev.Unknown:
		x.Unknown = true
		x.Text = "exit status unknown: " + orElse(ev.Text, "the launcher was lost while the job ran")
	default:
		x.Code, x.Signal = int32(ev.Code), int32(ev.Signal)
	}
	if ev != nil && ev.Kind == shim.Exited {
		x.UserMS, x.SysMS, x.MaxRSSKB = ev.UserCPU.Milliseconds(), ev.SysCPU.Milliseconds(), ev.MaxRSSKB
	}
	if use.known {
		x.UserMS, x.SysMS = max(x.UserMS, use.userMS), max(x.SysMS, use.sysMS)
		if use.peakKB > 0 {
			x.MaxRSSKB = use.peakKB
		}
		if use.oomKills > 0 {
			x.OOM = true
		}
	}
	return x
}

// withEnd adds a script's end to an exit that was made before that was known.
func withEnd(x model.Exit, ev *shim.Event) model.Exit {
	end := exitOf(ev, usage{})
	end.UserMS, end.SysMS, end.MaxRSSKB = max(end.UserMS, x.UserMS), max(end.SysMS, x.SysMS), max(end.MaxRSSKB, x.MaxRSSKB)
	end.OOM, end.GPUOOM, end.Use, end.Text = x.OOM, x.GPUOOM, x.Use, orElse(end.Text, x.Text)
	return end
}

// failedExit is the exit of a job that can't run anywhere: its files can't be opened, or its interpreter doesn't exist.
// It counts as run, as in Slurm, because another node would fail too.
func failedExit(ev *shim.Event) model.Exit {
	if ev.Stage == shim.StageExec {
		return model.Exit{Code: int32(ev.Errno & 0xff), Text: ev.Text, NoStart: true}
	}
	return model.Exit{Signal: signalNoIO, Text: ev.Text, NoStart: true}
}

// ownFault reports whether a failed launch is the job's fault, not the node's.
func ownFault(ev *shim.Event) bool {
	switch ev.Stage {
	case shim.StageStdin, shim.StageStdout, shim.StageStderr:
		return true
	case shim.StageExec:
		return ev.Errno != unix.EACCES || strings.Contains(ev.Text, "interpreter")
	}
	return false
}

// epitaph gives the last line for the job's standard error, or "". oom is the sentence of a job that ran out of memory.
func (n *Noded) epitaph(c *clearing, use usage, seen *sampled) (line, oom string) {
	switch {
	case c.rec == nil:
	case use.oomKills > 0:
		events := "event"
		if use.oomKills > 1 {
			events = "events"
		}
		told := n.oomSentence(c, use, seen)
		return fmt.Sprintf("slurmstepd: error: Detected %d oom_kill %s in StepId=%d.batch. Some of the step tasks have "+
			"been OOM Killed.\n%s",
			use.oomKills, events, c.key.Job, told), strings.TrimPrefix(told, oomPrefix)
	case c.ended != nil && c.ended.Kind == shim.LaunchFailed && ownFault(c.ended):
		return "slurmstepd: error: " + c.ended.Text, ""
	}
	return "", ""
}

func (s *step) sampleKey() sampleKey { return sampleKey{s.job.key, s.id} }

// stepShape gives a step's resources on this node, and its sampling interval, which is its job's. nil for a step
// without a part here.
func (n *Noded) stepShape(s *step) *model.NodeUsage {
	if s.here < 0 {
		return nil
	}
	part := &s.rec.Nodes[s.here]
	u := n.sampler.held(&model.NodeAlloc{Node: part.Node, CPUs: part.CPUs, MemMiB: part.MemMiB, Gres: part.Gres})
	u.Tasks = int32(len(part.Ranks))
	if rec := s.job.rec; rec != nil && rec.Use != nil {
		u.EveryS = rec.Use.EveryS
		if u.MemMiB == 0 {
			u.MemMiB = rec.Use.MemMiB
		}
	}
	return u
}

// stepUsage is what a step used on this node.
func (n *Noded) stepUsage(s *step, use usage, seen *sampled, x model.Exit) *model.Usage {
	var u model.NodeUsage
	if seen != nil {
		u = seen.use
	} else if shape := n.stepShape(s); shape != nil {
		u = *shape
	} else {
		return nil
	}
	u.UserMS, u.SysMS = max(u.UserMS, x.UserMS), max(u.SysMS, x.SysMS)
	u.PeakKB = max(u.PeakKB, x.MaxRSSKB)
	u.OOMKills = int32(use.oomKills)
	var read, written, faults int64
	for i := range s.tasks {
		if ev := s.tasks[i].ended; ev != nil {
			read, written, faults = read+ev.ReadB, written+ev.WriteB, faults+ev.Faults
		}
	}
	u.ReadB, u.WriteB, u.Faults = max(u.ReadB, read), max(u.WriteB, written), max(u.Faults, faults)
	return &model.Usage{Nodes: []model.NodeUsage{u}}
}
