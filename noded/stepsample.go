package noded

import (
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// stepsample.go computes a step's usage from its group's counters, samples and its tasks' exits, and explains why
// processes of it were killed for lack of memory.

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

// memoryWanted is the option with which a step, or else its job, asked for memory.
type memoryWanted struct {
	option string
	units  int64
	memMiB int64 // here; 0: no limit
}

func (s *step) memoryWanted() memoryWanted {
	var w memoryWanted
	rec := s.job.rec
	if rec != nil && rec.Use != nil {
		w = memoryWanted{rec.MemOpt, int64(rec.MemUnits), rec.Use.MemMiB}
	}
	if s.here >= 0 {
		if mem := s.rec.Nodes[s.here].MemMiB; mem > 0 && mem != w.memMiB {
			w = memoryWanted{"--mem", 1, mem}
		}
	}
	return w
}

// stepOOM is the sentence about a step that ran out of memory; "" for one that did not.
func (n *Noded) stepOOM(key proto.Attempt, step int32, use usage, seen *sampled, want memoryWanted) string {
	if use.oomKills == 0 {
		return ""
	}
	o := oomStory{step: proto.StepID(key.Job, step), node: n.opts.Name, limitKB: use.limitKB, peakKB: use.peakKB,
		kills: n.oom.of(n.groups.path(key) + "/" + stepName(step)), option: want.option, units: want.units,
		memMiB: want.memMiB}
	o.sawIn(seen)
	return o.sentence()
}
