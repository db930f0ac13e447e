package sched

import (
	"slices"

	"gbatch/internal/model"
)

// A claim is the allocation that a job waits for while its victims are being ended. It goes onto the calendar before
// any other job is looked at, so that no job takes what becomes free: neither a job further ahead in the queue that may
// not preempt, nor a victim that has gone back to the queue. The job starts there before all others; what is free
// elsewhere it may have in its turn. A job that was lost with a node (--requeue=expedite) has a claim to what it had of
// its other nodes.

// noteClaim keeps the set of jobs that have a claim.
func (p *Planner) noteClaim(j *model.Job) {
	if j.Claim != nil {
		p.claimed[j.ID] = true
	} else {
		delete(p.claimed, j.ID)
	}
}

// claims starts the jobs whose claims have become free and puts the other claims onto the calendar.
func (p *Planner) claims() {
	p.victims, p.tries, p.claimers = map[model.JobID]fate{}, 0, p.claimers[:0]
	clear(p.vain)
	clear(p.emptiest)
	p.looks, p.callLooks = 0, 0
	p.calls = 0
	clear(p.vainCalls)
	clear(p.asked)
	for _, id := range p.letGo { // the last plan ended these claims, and no command has removed them yet
		if e := p.jobs[id]; e != nil && e.j.Claim != nil {
			p.claimed[id] = true
		}
	}
	p.letGo = p.letGo[:0]
	if len(p.claimed) == 0 {
		return
	}
	for _, l := range p.lanes {
		l.block = nil
	}
	ids := p.ids[:0]
	for id := range p.claimed {
		if p.jobs[id] == nil {
			delete(p.claimed, id)
			continue
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	p.ids = ids
	for _, id := range slices.Clone(ids) {
		e := p.jobs[id].at(p)
		l := p.laneBy[e.j.Claim.Partition]
		if l == nil || l.refuse != model.ReasonNone || !p.hold(e, l, e.j.Claim.Alloc) {
			p.unclaim(e)
		}
	}
	looked := map[model.JobID]bool{} // heterogeneous jobs, of which several components may have claims
	for _, e := range slices.Clone(p.claimers) {
		switch {
		case e.claim == nil: // its job has started
		case e.j.Het == nil:
			p.take(e)
		case !looked[e.j.Het.ID]:
			looked[e.j.Het.ID] = true
			p.takeSet(e.j.Het.ID)
		}
	}
}

// hold puts a claim onto the calendar; it reports false if one of its nodes takes no jobs.
func (p *Planner) hold(e *entry, l *lane, alloc *model.Alloc) bool {
	it := p.newItem(e, l)
	if it.refuse != model.ReasonNone {
		return false
	}
	b := &booking{at: p.now, end: p.after(p.now, it.leastS()), lane: l, spec: e.j.Spec, alloc: alloc}
	for i := range alloc.Nodes {
		n := p.byName[alloc.Nodes[i].Node]
		if n == nil || !n.up() {
			if e.j.Expediting() {
				continue
			}
			return false
		}
		b.nodes = append(b.nodes, n)
		h := n.holdOf(&alloc.Nodes[i], l.part.Name, e.j.Spec, it.sh.rq.shareAt)
		h.resv = it.sh.resvAt(n)
		b.holds = append(b.holds, h)
	}
	if len(b.nodes) == 0 {
		return false
	}
	e.claim = b
	p.onto(b)
	p.claimers = append(p.claimers, e)
	p.round++
	return true
}

// release takes a claim off the calendar.
func (p *Planner) release(e *entry) {
	b := e.claim
	for i, n := range b.nodes {
		n.steps = slices.DeleteFunc(n.steps, func(s step) bool { return s.hold == &b.holds[i] })
		n.resvs--
	}
	e.claim = nil
	p.claimers = slices.DeleteFunc(p.claimers, func(x *entry) bool { return x == e })
	p.round++
}

// unclaim ends a claim that can't be fulfilled any more.
func (p *Planner) unclaim(e *entry) {
	delete(p.claimed, e.j.ID)
	p.letGo = append(p.letGo, e.j.ID)
	p.plan.Claims = append(p.plan.Claims, model.ClaimSet{Job: e.j.ID})
}

// take starts a job with a claim if there is room for it. The job keeps its claim while a victim still has to end.
func (p *Planner) take(e *entry) {
	b := e.claim
	it := p.newItem(e, b.lane)
	ending := slices.ContainsFunc(b.nodes, func(n *node) bool {
		return slices.ContainsFunc(n.rec.Jobs, func(id model.JobID) bool { return p.ending(id) || p.goes(id, n.def.Name) })
	})
	p.release(e)
	rush := e.j.Expediting() && p.now < e.j.Rush.Until
	if r, why := p.mayNotRun(&it); r != model.ReasonNone || p.held(b.lane, &it) != model.ReasonNone {
		if rush {
			p.claimAgain(e, b)
			p.because(e, r, why)
		} else {
			p.unclaim(e)
		}
		return
	}
	task := firstTask(e.j)
	if !p.atThrottle(e.j) && len(p.plan.Starts) < p.policy.MaxStarts &&
		(p.startOnKept(b, &it, task) || p.startOnClaim(b, &it, task)) {
		p.fulfilled(e, task)
		return
	}
	if !rush && (!ending || p.atThrottle(e.j)) {
		p.unclaim(e)
		return
	}
	p.claimAgain(e, b)
	p.because(e, model.ReasonResources, "")
}

// firstTask gives the first task of an array, NoTask for another job.
func firstTask(j *model.Job) int32 {
	if j.IsArray() {
		return j.Tasks.Min()
	}
	return model.NoTask
}

// fulfilled notes that a job with a claim has started.
func (p *Planner) fulfilled(e *entry, task int32) {
	delete(p.claimed, e.j.ID)
	p.letGo = append(p.letGo, e.j.ID)
	if task == model.NoTask {
		return
	}
	e.last, e.begun = task, true
	if e.j.Tasks.Count() == 1 {
		p.finished(e)
	}
}

// startOnClaim starts a job on the nodes of its claim and on no others. One that was lost with a node goes before all
// other jobs, wherever there is room.
func (p *Planner) startOnClaim(b *booking, it *item, task int32) bool {
	if it.e.j.Expediting() || it.e.j.Het != nil {
		return p.start(b.lane, it, task)
	}
	sp := *it.e.j.Spec
	sp.ReqNodes = nil
	for _, n := range b.nodes {
		sp.ReqNodes = append(sp.ReqNodes, n.def.Name)
	}
	sp.MinNodes, sp.MaxNodes = int32(len(b.nodes)), int32(len(b.nodes))
	there := *it
	there.sh = p.shapeOf(b.lane, &sp, "")
	return p.start(b.lane, &there, task)
}

// startInTurn starts a job that came with a claim on any nodes, beside what is reserved for the jobs ahead of it.
func (p *Planner) startInTurn(l *lane, it *item) bool {
	e, b := it.e, it.e.claim
	if !p.claimed[e.j.ID] || e.j.Expediting() || e.j.Het != nil || p.atThrottle(e.j) || p.hopeless(it.sh) {
		return false
	}
	if r, _ := p.mayNotRun(it); r != model.ReasonNone {
		return false
	}
	if p.backfills() && l.block != nil {
		if !p.within(l, e.j) {
			return false
		}
		it.counted = true
	}
	p.release(e)
	if task := firstTask(e.j); p.start(l, it, task) {
		p.fulfilled(e, task)
		return true
	}
	p.claimAgain(e, b)
	return false
}

// startOnKept starts a job that was lost with a node on the other nodes that it had, beside one that takes the place of
// the lost one.
func (p *Planner) startOnKept(b *booking, it *item, task int32) bool {
	kept := p.onKept(b, it, nil)
	return kept.sh != it.sh && p.start(b.lane, &kept, task)
}

// onKept gives the item of a job that was lost with a node with its other nodes, those of b, as those that it asks for,
// and without nodes that are kept for other components of its job.
func (p *Planner) onKept(b *booking, it *item, others []*booking) item {
	sp := *it.e.j.Spec
	named, without := slices.Clone(sp.ReqNodes), slices.Clone(sp.ExcNodes)
	for _, n := range b.nodes {
		if !slices.Contains(named, n.def.Name) {
			named = append(named, n.def.Name)
		}
	}
	for _, o := range others {
		for _, n := range o.nodes {
			if !slices.Contains(named, n.def.Name) && !slices.Contains(without, n.def.Name) {
				without = append(without, n.def.Name)
			}
		}
	}
	kept := *it
	if it.e.j.Expediting() && len(named)+len(without) > len(sp.ReqNodes)+len(sp.ExcNodes) {
		sp.ReqNodes, sp.ExcNodes = named, without
		kept.sh = p.shapeOf(b.lane, &sp, "")
	}
	return kept
}

// claimAgain puts a claim back onto the calendar. That of a job which was lost with a node lasts until the other nodes
// are not kept any longer.
func (p *Planner) claimAgain(e *entry, b *booking) {
	e.claim = b
	p.onto(b)
	p.claimers = append(p.claimers, e)
	p.round++
	if e.j.Expediting() {
		p.alarm = soonerOf(p.alarm, e.j.Rush.Until)
	}
}

// ending reports whether a job is being ended.
func (p *Planner) ending(id model.JobID) bool {
	j := p.v.Job(id)
	return j != nil && (j.State == model.Completing || j.Run != nil && j.Run.GivesWay != model.NoStop ||
		p.victims[id] == leaves)
}

// reclaim puts the claims back after a new round has taken everything off the calendar.
func (p *Planner) reclaim() {
	for _, e := range p.claimers {
		p.onto(e.claim)
		if e.j.Het != nil {
			e = p.jobs[e.j.Het.ID]
		}
		if e != nil {
			p.because(e, model.ReasonResources, "")
		}
	}
}
