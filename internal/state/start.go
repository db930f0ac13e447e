package state

import (
	"slices"

	"gbatch/internal/model"
)

// applyStarts applies a plan's starts. It checks each against the present facts: the plan was made from a View, and the
// facts may have changed since.
func (s *State) applyStarts(at model.Time, c *Starts) Result {
	res := Result{Each: make([]Refusal, len(c.Plan.Starts))}
	for _, id := range c.Plan.Resume {
		if j, ok := s.jobs.Get(id); ok && j.State == model.Suspended && j.Run.Sleep == model.SleepsForRoom {
			res.Changed = s.resume(j, at) == OK || res.Changed
		}
	}
	begun := map[model.JobID]bool{} // heterogeneous jobs whose starts have been looked at
	for i := range c.Plan.Starts {
		if j, ok := s.jobs.Get(c.Plan.Starts[i].Job); !ok || j.Het == nil {
			res.Each[i] = s.start(at, c.Epoch, &c.Plan.Starts[i])
		} else if !begun[j.Het.ID] {
			begun[j.Het.ID] = true
			s.startSet(at, c.Epoch, c.Plan.Starts, i, res.Each)
		}
		res.Changed = res.Changed || res.Each[i] == OK
	}
	for i := range c.Plan.Preempt {
		s.preempt(at, &c.Plan.Preempt[i])
	}
	for i := range c.Plan.Claims {
		s.claim(&c.Plan.Claims[i])
	}
	for i := range c.Plan.Ask {
		s.askBack(at, &c.Plan.Ask[i])
	}
	for i := range c.Plan.Grow {
		s.growMore(at, &c.Plan.Grow[i])
	}
	for _, r := range c.Plan.Reasons {
		j, ok := s.jobs.Get(r.Job)
		if !ok || !IsReady(j) || j.Reason == r.Reason && j.Why == r.Why {
			continue
		}
		n := *j
		n.Reason, n.Why = r.Reason, r.Why
		s.put(&n)
	}
	s.wakeAll(at)
	s.plan()
	return res
}

// preempt ends or suspends a job for another, a heterogeneous one as a whole.
func (s *State) preempt(at model.Time, p *model.Preemption) {
	j, ok := s.jobs.Get(p.Job)
	if !ok {
		return
	}
	s.preemptOne(at, p, j)
	if j.Het != nil {
		s.others(j, func(o *model.Job) { s.preemptOne(at, p, o) })
	}
}

// preemptOne leaves a job as it is that is already being ended, or has ended.
func (s *State) preemptOne(at model.Time, p *model.Preemption, j *model.Job) {
	if !j.State.HasResources() || j.State == model.Completing {
		return
	}
	s.now.preemptor = p.For
	defer func() { s.now.preemptor = 0 }()
	if p.Sleep {
		if j.State == model.Running || j.Run.Sleep == model.SleepsInTurn {
			s.suspend(j, at, model.SleepsForRoom)
		}
		return
	}
	cause := model.StopPreempt
	if p.Cancel {
		cause = model.StopPreemptCancel
	}
	n, run := *j, *j.Run
	run.GraceS, run.StopFor = p.GraceS, p.For
	n.Run = &run
	begun := j.State == model.Running || s.now.rules < rulesLast // otherwise there is no process to warn
	if p.NoticeS > 0 && begun && !j.Run.Idles() {
		s.yield(&n, &run, cause, p.NoticeS, at)
		return
	}
	s.stopRunning(&n, at, cause, 0)
}

// yield lets a job go on for a notice, at the end of which it is stopped as a preempted job is. If its time limit ends
// before that, nothing changes but that others know that it leaves.
func (s *State) yield(j *model.Job, run *model.Run, cause model.StopCause, noticeS int64, at model.Time) {
	if run.GivesWay != model.NoStop {
		return
	}
	end := s.LatestEnd(j)
	run.GivesWay = model.StopTimeLimit
	if end == 0 || end > at.Add(noticeS) { // its end comes earlier: it has no OverTimeLimit any more
		limit := (int64(at-run.Start)-run.SleepMS)/1000 + noticeS
		if s.now.rules < rulesLast {
			limit = min(limit, run.LimitS)
		}
		run.GivesWay, run.LimitS = cause, max(1, limit)
	}
	s.put(j)
	s.record(j)
}

// claim sets or removes the claim of a pending job.
func (s *State) claim(c *model.ClaimSet) {
	j, ok := s.jobs.Get(c.Job)
	if !ok || !IsReady(j) || j.Claim == nil && c.Claim == nil {
		return
	}
	n := *j
	n.Claim = c.Claim
	s.put(&n)
}

// mayStart checks a start, and gives the job and what it would have; licenses are not checked yet.
func (s *State) mayStart(at model.Time, epoch uint64, st *model.Start) (*model.Job, *model.Run, Refusal) {
	j, ok := s.jobs.Get(st.Job)
	switch {
	case !ok:
		return nil, nil, NoSuchJob
	case !IsReady(j) || st.Alloc == nil || len(st.Alloc.Nodes) == 0:
		return nil, nil, NotPending
	case j.IsArray() != (st.Task != model.NoTask && j.Task == model.NoTask):
		return nil, nil, NotPending
	case j.IsArray() && !j.Tasks.Has(st.Task):
		return nil, nil, NotPending
	case len(st.Alloc.Nodes)%j.Spec.Stride() != 0:
		return nil, nil, NotFits
	}
	if j.ArrayID != 0 && j.Throttle > 0 {
		if a, ok := s.arrays.Get(j.ArrayID); ok && a.Active >= j.Throttle {
			return nil, nil, NotFits
		}
	}
	part, ok := s.parts[st.Partition]
	if !ok || part.State == model.PartDown || part.State == model.PartInactive ||
		!slices.Contains(j.Spec.Partitions, st.Partition) {
		return nil, nil, NotFits // the configuration or the job has changed since the plan was made
	}
	if st.Resv != "" {
		if r, ok := s.resvs.Get(st.Resv); !ok || !r.Takes(j.Spec, j.Het != nil) {
			return nil, nil, NotFits // likewise the reservation
		}
	}
	run := &model.Run{Partition: part.Name, Alloc: st.Alloc, Start: at, LimitS: st.LimitS, Epoch: epoch,
		ResvEnd: s.resvEnd(st.Resv), Priority: st.Priority, Licenses: st.Licenses, Resv: st.Resv,
		Share: part.Shared(j.Spec), Alone: j.Spec.Exclusive || part.Exclusive()}
	if j.Spec.Extra().Reboot && s.busy(run.Alloc) { // a job that is suspended there would not survive it
		return nil, nil, NotFits
	}
	return j, run, s.fits(run)
}

// busy reports whether any job is on one of the nodes.
func (s *State) busy(a *model.Alloc) bool {
	return slices.ContainsFunc(a.Nodes, func(na model.NodeAlloc) bool {
		n, ok := s.nodes.Get(na.Node)
		return ok && len(n.Jobs) > 0
	})
}

// start starts a job. Of a heterogeneous job, all components have been checked together before.
func (s *State) start(at model.Time, epoch uint64, st *model.Start) Refusal {
	j, run, r := s.mayStart(at, epoch, st)
	if r != OK {
		return r
	}
	if !s.licensed(st.Licenses) {
		return NotFits
	}
	var el *model.Job
	if j.IsArray() {
		if j.Claim != nil { // this task has got it
			n := *j
			n.Claim = nil
			s.put(&n)
			j = &n
		}
		el = s.split(j, model.TaskSet{{Lo: st.Task, Hi: st.Task, Step: 1}})
	} else {
		n := *j
		el = &n
	}
	el.State, _ = model.Next(model.Pending, model.EvAllocate)
	el.Reason, el.Why, el.End, el.Rush = model.ReasonNone, "", nil, nil
	el.Run = run
	s.firstSteps(run)
	s.take(el, at)
	s.rebootFor(el, at)
	s.begin(el, at)
	s.put(el)
	s.record(el)
	if s.now.rules < rulesBrief {
		s.mailBegin(el, at)
	}
	s.countArray(el.ArrayID, func(a *Array) {
		a.Waiting--
		a.Active++
		a.Begun = a.Begun || s.now.rules < rulesBrief
		if a.Waiting == 0 {
			s.wake(el) // for --dependency=after the whole array has started
		}
	})
	return OK
}

// fits checks that a job's allocation is free, on usable nodes.
func (s *State) fits(run *model.Run) Refusal {
	a := run.Alloc
	seen := make(map[string]bool, len(a.Nodes))
	for i := range a.Nodes {
		na := &a.Nodes[i]
		n, ok := s.nodes.Get(na.Node)
		switch {
		case !ok:
			return NoSuchNode
		case seen[na.Node], !n.Usable(), !n.CPUsFor(na.CPUs, run.Partition, run.Share, run.Alone):
			return NotFits
		case na.CPUs.Empty(), na.CPUs.Max() >= int(n.Def.CPUs), na.CPUs.Overlaps(n.Def.Kept), na.MemMiB < 0:
			return NotFits
		case s.cfg.Params.MemConsumed && na.MemMiB > n.Def.JobMemMiB()-n.UsedMem:
			return NotFits
		}
		seen[na.Node] = true
		for k, g := range na.Gres {
			if g.Index.Overlaps(n.Used(g.Name)) || g.Index.Overlaps(n.OutOf(g.Name)) || !hasGres(n.Def, g) {
				return NotFits
			}
			for _, other := range na.Gres[:k] {
				if other.Name == g.Name && other.Index.Overlaps(g.Index) {
					return NotFits
				}
			}
		}
		if !s.shareable(n, na) {
			return NotFits
		}
	}
	return OK
}

func hasGres(def *model.NodeDef, g model.GresAlloc) bool {
	var all model.Bits
	for _, d := range def.Gres {
		if d.Name == g.Name && !d.NoConsume && (g.Type == "" || d.Type == g.Type) {
			all = all.Or(model.UpTo(int(d.First + d.Count)).Minus(model.UpTo(int(d.First))).Minus(d.Off))
		}
	}
	return all.Contains(g.Index)
}

// take books j's allocation on its nodes.
func (s *State) take(j *model.Job, at model.Time) {
	for i := range j.Run.Alloc.Nodes {
		s.takeAt(j, &j.Run.Alloc.Nodes[i], at)
	}
}

// takeAt books j's part of one node.
func (s *State) takeAt(j *model.Job, na *model.NodeAlloc, at model.Time) {
	old, ok := s.nodes.Get(na.Node)
	if !ok {
		return // checked by fits
	}
	n := *old
	n.GiveCPUs(j.ID, na.CPUs, j.Run)
	n.UsedMem += na.MemMiB
	n.UsedGres = addUsed(n.UsedGres, na.Gres)
	n.Shared = model.AddShared(n.Shared, na.Gres, 1)
	n.BusyAt = at
	k, _ := slices.BinarySearch(n.Jobs, j.ID)
	n.Jobs = slices.Insert(slices.Clone(n.Jobs), k, j.ID)
	s.putNode(na.Node, &n)
}

// release gives j's allocation back.
func (s *State) release(j *model.Job, at model.Time) {
	for i := range j.Run.Alloc.Nodes {
		s.releaseAt(j, &j.Run.Alloc.Nodes[i], j.State == model.Completing, at)
	}
}

// releaseAt gives j's part of one node back; ending: it was counted as ending there.
func (s *State) releaseAt(j *model.Job, na *model.NodeAlloc, ending bool, at model.Time) {
	old, ok := s.nodes.Get(na.Node)
	if !ok {
		return // the node is gone
	}
	k, found := slices.BinarySearch(old.Jobs, j.ID)
	if !found {
		return
	}
	n := *old
	n.Jobs = without1(n.Jobs, k)
	if k, asleep := slices.BinarySearch(n.Asleep, j.ID); asleep {
		n.Asleep = without1(n.Asleep, k)
	} else {
		n.TakeCPUs(j.ID, na.CPUs, j.Run)
	}
	n.UsedMem -= na.MemMiB
	n.UsedGres = dropUsed(n.UsedGres, na.Gres)
	n.Shared = model.AddShared(n.Shared, na.Gres, -1)
	if name := j.Spec.Model(); name != "" {
		n.Tags = n.LeaveLoaded(name, na.GPUs(), at)
	}
	if r := n.Reboot; r != nil && r.For == j.ID { // nobody waits for it any more
		free := *r
		free.For, n.Reboot = 0, &free
	}
	n.BusyAt = at
	if ending {
		n.Ending--
	}
	s.downOnIdle(&n, j.Run.Partition, at)
	if _, defined := s.defs[na.Node]; !defined && len(n.Jobs) == 0 {
		s.dropNode(na.Node) // it has left the configuration, and this was its last job
		return
	}
	s.putNode(na.Node, &n)
}

// without1 gives a list without the entry at index k, nil if nothing is left.
func without1(list []model.JobID, k int) []model.JobID {
	if len(list) == 1 {
		return nil
	}
	return slices.Delete(slices.Clone(list), k, k+1)
}

func addUsed(used, add []model.GresAlloc) []model.GresAlloc {
	if len(add) == 0 {
		return used
	}
	out := slices.Clone(used)
	for _, g := range add {
		k := slices.IndexFunc(out, func(u model.GresAlloc) bool { return u.Name == g.Name })
		if k < 0 {
			out = append(out, model.GresAlloc{Name: g.Name, Index: g.Index})
			continue
		}
		out[k].Index = out[k].Index.Or(g.Index)
	}
	return out
}

func dropUsed(used, drop []model.GresAlloc) []model.GresAlloc {
	if len(drop) == 0 {
		return used
	}
	out := slices.Clone(used)
	for _, g := range drop {
		if k := slices.IndexFunc(out, func(u model.GresAlloc) bool { return u.Name == g.Name }); k >= 0 {
			out[k].Index = out[k].Index.Minus(g.Index)
			if out[k].Index.Empty() {
				out = slices.Delete(out, k, k+1)
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// countArray changes an array's counters.
func (s *State) countArray(id model.JobID, change func(*Array)) {
	old, ok := s.arrays.Get(id)
	if !ok {
		return
	}
	n := *old
	change(&n)
	s.arrays.Set(id, &n)
}
