package sched

import (
	"cmp"
	"math"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// A suspended job keeps its memory and GPUs, but not its CPUs. A job that was suspended for another one resumes as soon
// as its CPUs are free. On the calendar it takes its CPUs back when the last job that uses them now is expected to end.
// A job that may suspend it anyway is planned as if those CPUs were free.

// anyClass is below every class: jobs of this class may suspend no job.
const anyClass = math.MinInt64

// classOf gives a job's class among preemptors and victims: its partition's tier, or its QOS's priority.
func (p *Planner) classOf(sp *model.Spec, part *model.Partition) int64 {
	pr := &p.cfg.Params.Preempt
	switch {
	case pr.ByPartition && part != nil:
		return int64(part.PriorityTier)
	case pr.ByQOS:
		if q := p.v.QOS(sp.QOS); q != nil {
			return int64(q.Priority)
		}
	}
	return anyClass
}

// suspends reports whether the configuration or a QOS lets jobs suspend other jobs.
func suspends(v *state.View) bool {
	cfg := v.Config()
	if cfg.Params.Preempt.Mode == modeSuspend {
		return true
	}
	found := false
	v.AllQOS(func(q *model.QOS) bool {
		found = q.PreemptMode == modeSuspend
		return !found
	})
	if found {
		return true
	}
	return slices.ContainsFunc(cfg.Partitions, func(p *model.Partition) bool { return p.PreemptMode == modeSuspend })
}

// expectAsleep notes what a job without its CPUs gives back to a node, and when it takes its CPUs again.
func (p *Planner) expectAsleep(n *node, j *model.Job, na *model.NodeAlloc) {
	full := n.holdOf(na, j.Run.Partition, j.Spec, p.stock.shareAt(j.Run.Partition, j.Run.Share))
	rest := full
	rest.cpus, rest.off = 0, true
	cpus := hold{cpus: full.cpus, part: full.part, uid: full.uid, alone: full.alone, share: full.share}
	if j.State == model.Completing {
		n.insertRelease(release{at: p.endOf(j), id: j.ID, hold: rest})
		return
	}
	back := model.Time(0)
	if j.Run.Sleep == model.SleepsForRoom {
		back, _ = p.backAt(j)
	}
	if back == 0 {
		n.insertRelease(release{at: j.Run.SleepAt.Add(unlimitedS), id: j.ID, hold: rest})
		return
	}
	left := int64(unlimitedS)
	if j.Run.LimitS < model.Unlimited {
		left = max(1, j.Run.LimitS-j.ElapsedS(j.Run.SleepAt))
	}
	end := p.after(back, left)
	class := p.classOf(j.Spec, p.v.Partition(j.Run.Partition))
	n.insertRelease(release{at: back, id: j.ID, hold: cpus, takes: true, asleep: true, class: class})
	n.insertRelease(release{at: end, id: j.ID, hold: cpus, asleep: true, class: class})
	n.insertRelease(release{at: end, id: j.ID, hold: rest})
}

// backAt gives the jobs that use a suspended job's CPUs, and the moment at which the last of them is expected to end; 0
// if there are none.
func (p *Planner) backAt(j *model.Job) (at model.Time, by []model.JobID) {
	for i := range j.Run.Alloc.Nodes {
		na := &j.Run.Alloc.Nodes[i]
		rec := p.v.Node(na.Node)
		if rec == nil {
			continue
		}
		for _, id := range rec.Jobs {
			k := p.v.Job(id)
			if k == nil || !k.Holds() {
				continue
			}
			apart := k.Run.Alone || j.Run.Alone || (k.Run.Share > 1) != (j.Run.Share > 1)
			for m := range k.Run.Alloc.Nodes {
				if ka := &k.Run.Alloc.Nodes[m]; ka.Node == na.Node && (apart || ka.CPUs.Overlaps(na.CPUs)) {
					at = max(at, p.endOf(k))
					if !slices.Contains(by, id) {
						by = append(by, id)
					}
				}
			}
		}
	}
	return at, by
}

// expectAllAsleep computes anew when suspended jobs get their CPUs back: a job that uses those CPUs has outlived its
// expected end.
func (p *Planner) expectAllAsleep() {
	for _, n := range p.nodes {
		if n.rec == nil {
			continue
		}
		for _, id := range n.rec.Asleep {
			n.dropRelease(id)
			p.expect(n, id)
		}
		if len(n.rel) > 0 {
			p.nextEnd = min(p.nextEnd, n.rel[0].at)
		}
	}
}

// stirAsleep finds the suspended jobs on the nodes that have changed, and marks all nodes of these jobs: their
// calendars are made anew.
func (p *Planner) stirAsleep() {
	for i := 0; i < len(p.soiled); i++ { // it grows
		rec := p.v.Node(p.soiled[i].def.Name)
		if rec == nil {
			continue
		}
		for _, id := range rec.Asleep {
			if j := p.v.Job(id); j != nil && j.Run != nil {
				p.touch(j)
			}
		}
	}
}

// wakeUp resumes jobs that were suspended for others and whose CPUs are free now, the most important first.
func (p *Planner) wakeUp() {
	var list []*model.Job
	p.v.Sharing(func(j *model.Job) bool {
		if j.State == model.Suspended && j.Run.Sleep == model.SleepsForRoom {
			list = append(list, j)
		}
		return true
	})
	slices.SortFunc(list, func(a, b *model.Job) int {
		return cmp.Or(cmp.Compare(p.classOf(b.Spec, p.v.Partition(b.Run.Partition)),
			p.classOf(a.Spec, p.v.Partition(a.Run.Partition))),
			cmp.Compare(b.Run.Priority, a.Run.Priority), cmp.Compare(a.Run.Start, b.Run.Start), cmp.Compare(a.ID, b.ID))
	})
	var robbers []candidate
	ahead, looked := 0, false
	for _, j := range list {
		if !p.mayWake(j) {
			continue
		}
		if !looked {
			robbers, ahead = p.robbers()
			looked = true
		}
		if !p.instead(j, robbers, ahead) {
			p.wake1(j)
		}
	}
}

// mayWake reports whether a job's CPUs are free and no claim is on them.
func (p *Planner) mayWake(j *model.Job) bool {
	run := j.Run
	for i := range run.Alloc.Nodes {
		na := &run.Alloc.Nodes[i]
		n := p.byName[na.Node]
		if n == nil || n.rec == nil || n.rec.Exclusive != 0 || n.room.full || run.Alone && n.room.busy {
			return false
		}
		seen := n.room
		seen.shut = false // what runs on a drained node goes on
		r := seen.as(&Request{Share: int(run.Share), sharePart: run.Partition})
		free := r.cpus
		if run.Share <= 1 && r.sharers == 0 { // of cores that others have in part too
			free = n.def.JobCPUs().Minus(n.room.taken)
		}
		if !free.Contains(na.CPUs) {
			return false
		}
		for _, e := range p.claimers {
			for k := range e.claim.alloc.Nodes {
				if c := &e.claim.alloc.Nodes[k]; c.Node == na.Node && c.CPUs.Overlaps(na.CPUs) {
					return false
				}
			}
		}
	}
	return true
}

// wake1 gives a job its CPUs again.
func (p *Planner) wake1(j *model.Job) {
	run := j.Run
	p.plan.Resume = append(p.plan.Resume, j.ID)
	awake := *run
	awake.Sleep, awake.SleepMS = model.Awake, run.SleptMS(p.now)
	left := *j
	left.Run = &awake
	end := p.endOf(&left)
	for i := range run.Alloc.Nodes {
		na := &run.Alloc.Nodes[i]
		n := p.byName[na.Node]
		h := n.holdOf(na, run.Partition, j.Spec, p.stock.shareAt(run.Partition, run.Share))
		n.dropRelease(j.ID)
		n.insertRelease(release{at: end, id: j.ID, hold: h})
		n.touched = append(n.touched, j.ID)
		p.rejoin(n, run, na)
		n.booked = true
		p.used = append(p.used, n)
		n.update()
	}
}

// rejoin takes the CPUs of a job that resumes off a node's room.
func (p *Planner) rejoin(n *node, run *model.Run, na *model.NodeAlloc) {
	n.room.take(na.CPUs, p.stock.params, 0, nil)
	n.room.join(run.Partition, run.Share, na.CPUs)
	n.room.busy = true
	n.room.full = run.Alone
	n.room.shut = n.room.shut || run.Alone
	n.free = countsOf(&n.room, n.free.users+1)
}
