package noded

import (
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/cgroup"
)

// ownuse.go computes the usage of a job's batch script without the job's steps: row 17.batch of gacct. The kernel
// counts a job's group with everything in it, so the script's part is the rest after subtracting the steps' groups. For
// CPU time that is exact. Peak memory is exact until the first step begins, and after that as fine as the samples. A
// separate group for the script would be needed for every job, and most jobs have no steps.

// ownUse is the most memory that a job's script had by itself.
type ownUse struct {
	peakKB int64 // page cache included
	rssKB  int64 // of its processes
}

func (o *ownUse) raise(p ownUse) {
	o.peakKB, o.rssKB = max(o.peakKB, p.peakKB), max(o.rssKB, p.rssKB)
}

// stepComes records a job's own peak of memory before its first step is made.
func (s *sampler) stepComes(key proto.Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[wholeJob(key)]
	if j == nil || j.parted {
		return
	}
	j.parted = true
	j.own = ownUse{j.use.PeakKB, j.use.RSSKB}
	if group := s.groupOf(j.key); group != nil {
		if u, err := group.Usage(); err == nil { // else samples have to do
			j.own.peakKB = max(j.own.peakKB, u.MemPeakBytes>>10)
		}
	}
}

// tieStep makes a step known to its job. The job's files are opened anew: its own processes may have been moved.
func (s *sampler) tieStep(j *sampled) {
	if j.key.step == stepBatch {
		return
	}
	job := s.jobs[wholeJob(j.key.job)]
	if job == nil {
		return
	}
	if job.steps == nil {
		job.steps = map[int32]*sampled{}
		s.shut(job)
	}
	job.steps[j.key.step] = j
}

// restore takes up what the spool has of a job that was sampled by an earlier gnoded.
func (s *sampler) restore(rec *launched) {
	if rec.Steps == nil && rec.OwnPeakKB == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[wholeJob(rec.key())]
	if j == nil {
		return
	}
	j.parted = true
	j.own.raise(ownUse{rec.OwnPeakKB, rec.OwnRSSKB})
	if here := rec.Steps.Node(s.node); here != nil {
		j.below = *here
	}
}

// stepOver adds what a step of a job used here.
func (s *sampler) stepOver(key proto.Attempt, use *model.NodeUsage) {
	if use == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[wholeJob(key)]; j != nil {
		j.below.UserMS += use.UserMS
		j.below.SysMS += use.SysMS
	}
}

// sampleOwn subtracts the present memory of a job's steps from the job's.
func (s *sampler) sampleOwn(j *sampled, all *cgroup.Counters) {
	if !j.parted {
		return
	}
	mem, rss := all.MemBytes, all.RSSBytes
	for _, step := range j.steps {
		m := s.meterOf(step)
		if m == nil {
			continue
		}
		var c cgroup.Counters
		if err := m.Read(&c, &s.buf); err == nil { // else it has just ended
			mem, rss = mem-c.MemBytes, rss-c.RSSBytes
		}
		if step.meter == nil {
			_ = m.Close() // only read from
		}
	}
	j.own.raise(ownUse{mem >> 10, rss >> 10})
}

// showOwn turns a job's usage into its script's.
func (s *sampler) showOwn(j *sampled, u *model.NodeUsage) {
	if !j.parted || !s.groups.root.Can().Track {
		return
	}
	u.UserMS, u.SysMS = u.UserMS-j.below.UserMS, u.SysMS-j.below.SysMS
	for _, step := range j.steps {
		s.sample(step)
		u.UserMS, u.SysMS = u.UserMS-step.use.UserMS, u.SysMS-step.use.SysMS
	}
	u.UserMS, u.SysMS = max(u.UserMS, 0), max(u.SysMS, 0)
	u.PeakKB, u.RSSKB = j.own.peakKB, j.own.rssKB
}

// withSteps gives the usage of a job with steps: the whole job's, and its script's part.
func withSteps(x *model.Exit, c *clearing, use usage, seen *sampled) {
	if c.steps == nil || x.Use == nil {
		return
	}
	job := &x.Use.Nodes[0]
	own := *job
	here := c.steps.Node(job.Node)
	if here == nil {
		here = &model.NodeUsage{}
	}
	var least model.NodeUsage // what the launcher saw of the script's processes
	if ev := c.ended; ev != nil {
		least.UserMS, least.SysMS, least.PeakKB = ev.UserCPU.Milliseconds(), ev.SysCPU.Milliseconds(), ev.MaxRSSKB
		least.ReadB, least.WriteB, least.Faults = ev.ReadB, ev.WriteB, ev.Faults
	}
	if use.known {
		mem := c.own
		if seen != nil {
			mem.raise(seen.own)
		}
		own.UserMS, own.SysMS = max(own.UserMS-here.UserMS, least.UserMS), max(own.SysMS-here.SysMS, least.SysMS)
		own.PeakKB, own.RSSKB = max(mem.peakKB, least.PeakKB), mem.rssKB
		own.Faults = max(own.Faults-here.Faults, least.Faults)
	} else {
		job.UserMS, job.SysMS = job.UserMS+here.UserMS, job.SysMS+here.SysMS
		job.PeakKB, job.RSSKB = max(job.PeakKB, here.PeakKB), max(job.RSSKB, here.RSSKB)
		job.Faults += here.Faults
	}
	if seen != nil && seen.hasIO {
		own.ReadB, own.WriteB = max(own.ReadB-here.ReadB, least.ReadB), max(own.WriteB-here.WriteB, least.WriteB)
	} else {
		job.ReadB, job.WriteB = job.ReadB+here.ReadB, job.WriteB+here.WriteB
	}
	job.VMKB, job.Procs = max(job.VMKB, here.VMKB), max(job.Procs, here.Procs)
	x.Use.Batch = &own
	for _, n := range c.steps.Nodes {
		if n.Node == job.Node {
			continue
		}
		if c.rec != nil && c.rec.Order != nil {
			for i := range c.rec.Order.Alloc.Nodes {
				if a := &c.rec.Order.Alloc.Nodes[i]; a.Node == n.Node {
					n.CPUs, n.MemMiB = int32(a.CPUs.Count()), a.MemMiB
				}
			}
		}
		n.Tasks = 1
		x.Use.Nodes = append(x.Use.Nodes, n)
	}
	x.UserMS, x.SysMS = x.Use.CPUms()
	x.MaxRSSKB = x.Use.PeakKB()
}

// usesPace is the least time from one message about what jobs use to the next.
const usesPace = 20 * time.Second

// toldUse is what the leader was told of a job: CPU time by then, and the use since the time before.
type toldUse struct {
	cpuMS int64
	at    time.Time
	centi int64
}

// uses gives what jobs here use now, for the history; nil if that was told a short time ago.
func (s *sampler) uses() (list []proto.JobUse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if now.Sub(s.toldAt) < usesPace || len(s.jobs) == 0 {
		return nil
	}
	type sum struct {
		cpuMS, kb int64
		began, at time.Time
		whole     bool
	}
	all := map[proto.Attempt]*sum{}
	counted := s.groups.root.Can().Track // a job's numbers contain its steps'
	for key, j := range s.jobs {
		x := all[key.job]
		if x == nil {
			x = &sum{began: j.began}
			all[key.job] = x
		}
		whole := key.step == stepBatch
		switch {
		case counted && x.whole && !whole:
			continue
		case counted && whole:
			*x = sum{began: j.began, whole: true}
		}
		x.cpuMS, x.kb = x.cpuMS+j.use.UserMS+j.use.SysMS, x.kb+j.nowKB
		if j.at.After(x.at) {
			x.at = j.at
		}
		if j.began.Before(x.began) {
			x.began = j.began
		}
	}
	for key, x := range all {
		if x.at.IsZero() || len(list) == proto.MaxJobUses {
			continue
		}
		t, known := s.told[key]
		if !known {
			t = toldUse{at: x.began, centi: -1}
		}
		if ms := x.at.Sub(t.at).Milliseconds(); ms > 0 { // else it has not been sampled since
			t = toldUse{cpuMS: x.cpuMS, at: x.at, centi: max(0, x.cpuMS-t.cpuMS) * 100 / ms}
		}
		s.told[key] = t
		list = append(list, proto.JobUse{Job: key.Job, Attempt: key.Attempt, CPUCenti: t.centi, MemMiB: x.kb >> 10})
	}
	if len(list) > 0 {
		s.toldAt = now
	}
	for key := range s.told {
		if all[key] == nil {
			delete(s.told, key)
		}
	}
	return list
}
