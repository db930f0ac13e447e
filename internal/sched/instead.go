package sched

import (
	"slices"

	"gbatch/internal/model"
)

// A job that was suspended for another one resumes when its CPUs are free, unless a pending job would suspend it again
// at once. That job takes the CPUs instead.

// robbers gives the pending jobs that may suspend others, in order, and how many of them come before the first job that
// may not.
func (p *Planner) robbers() (out []candidate, ahead int) {
	var plain *candidate
	for _, l := range p.lanes {
		if l.refuse != model.ReasonNone {
			continue
		}
		l.settle()
		for i := l.first; i < len(l.items); i++ {
			switch it := &l.items[i]; {
			case it.e == nil:
			case it.robs:
				out = append(out, candidate{l, *it})
			default:
				if c := (candidate{l, *it}); plain == nil || byTurn(c, *plain) < 0 {
					plain = &c
				}
			}
		}
	}
	slices.SortStableFunc(out, byTurn)
	ahead = len(out)
	if plain != nil {
		ahead, _ = slices.BinarySearchFunc(out, *plain, byTurn)
	}
	return out, ahead
}

// byTurn orders jobs of several partitions in the order of a pass.
func byTurn(a, b candidate) int {
	if a.l.part.PriorityTier != b.l.part.PriorityTier {
		return int(b.l.part.PriorityTier) - int(a.l.part.PriorityTier)
	}
	return itemOrder(&a.it, &b.it)
}

// instead starts a pending job that needs the CPUs of a suspended one, or finds victims for it, and reports whether
// there is such a job. The first jobs of robbers, as many as ahead, come before all other pending jobs anyway: they
// start in order, whatever they need. It tries at most maxPreempts jobs in a pass.
func (p *Planner) instead(v *model.Job, robbers []candidate, ahead int) bool {
	awake, run := *v, *v.Run
	run.Sleep = model.Awake
	awake.State, awake.Run = model.Running, &run
	// no victims are looked for on nodes where this plan starts a job: the next pass, which follows at once, does that
	later := false
	for i := range robbers {
		l, it := robbers[i].l, &robbers[i].it
		e := it.e.at(p)
		if p.tries >= maxPreempts || len(p.plan.Starts) >= p.policy.MaxStarts {
			break
		}
		if e.claim != nil || e.last == allStarted || p.atThrottle(e.j) {
			continue
		}
		r := p.robberOf(l, it)
		if how := r.victim(&awake); how == nil || how.mode != modeSuspend {
			continue
		}
		if why, _ := p.mayNotRun(it); why != model.ReasonNone || p.held(l, it) != model.ReasonNone {
			continue
		}
		p.tries++
		g := p.lodge(it)
		if g.alloc == nil {
			if alloc, list := r.find(); len(list) > 0 && overlap(alloc, v.Run.Alloc) && p.preempt(l, it) && e.claim != nil {
				return true
			}
			later = later || p.bookedOn(v)
			continue
		}
		if i >= ahead && (!overlap(g.alloc, v.Run.Alloc) || r.fitsBeside(v)) {
			continue // it comes in its turn
		}
		task := int32(model.NoTask)
		if e.j.IsArray() {
			if task = e.j.Tasks.Min(); e.begun {
				continue // its other tasks come in their turn
			}
		}
		if p.start(l, it, task) {
			if task != model.NoTask {
				e.last, e.begun = task, true
				if e.j.Tasks.Count() == 1 {
					p.finished(e)
				}
			}
			if !p.mayWake(v) {
				return true
			}
		}
	}
	return later
}

// bookedOn reports whether this plan starts or resumes a job on one of a job's nodes.
func (p *Planner) bookedOn(j *model.Job) bool {
	return slices.ContainsFunc(j.Run.Alloc.Nodes, func(na model.NodeAlloc) bool { return p.byName[na.Node].booked })
}

// overlap reports whether two allocations have a CPU in common.
func overlap(a, b *model.Alloc) bool {
	for i := range a.Nodes {
		for k := range b.Nodes {
			if x, y := &a.Nodes[i], &b.Nodes[k]; x.Node == y.Node && x.CPUs.Overlaps(y.CPUs) {
				return true
			}
		}
	}
	return false
}

// fitsBeside reports whether there is room for the whole job even after a suspended one has resumed.
func (r *robber) fitsBeside(v *model.Job) bool {
	sh := r.it.sh
	var rooms []*room
	for _, n := range sh.pool.nodes {
		if !r.may(n) {
			continue
		}
		rm := r.room(n, without(nil))
		for i := range v.Run.Alloc.Nodes {
			if na := &v.Run.Alloc.Nodes[i]; na.Node == n.def.Name {
				rm.take(na.CPUs, r.p.stock.params, 0, nil)
				rm.join(v.Run.Partition, v.Run.Share, na.CPUs)
				rm.busy = true
				rm.full = rm.full || v.Run.Alone
				rm.shut = rm.shut || v.Run.Alone
			}
		}
		if whole := &sh.whole[n.class.at]; sh.single && !whole.never && sh.named(n, true) && r.meets(rm, whole) {
			if _, m := rm.as(&sh.rq).place(&sh.rq, sh.tasks, wholeJob(&sh.rq)); m == missNone {
				return true
			}
		}
		if least := &sh.least[n.class.at]; sh.spread && !least.never && sh.named(n, false) && r.meets(rm, least) {
			rooms = append(rooms, rm.as(&sh.rq))
		}
	}
	if !sh.spread || len(rooms) < sh.rq.MinNodes {
		return false
	}
	alloc, _ := laySpread(rooms, &sh.rq)
	return alloc != nil
}
