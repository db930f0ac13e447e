package sched

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
)

// maxRounds bounds how often a pass begins again because a job that held a reservation in one of its partitions has
// started in another.
const maxRounds = 8

// candidate is a pending job in one of its lanes: one that ShortestFirst has put off until the end of the pass, or one
// that may suspend others.
type candidate struct {
	l  *lane
	it item
}

// walk takes the jobs in turn.
func (p *Planner) walk() {
	p.settle()
	for {
		p.open()
		p.merge()
		if p.later != nil {
			p.shortest()
		}
		if !p.again || p.policy.Backfill.Keep || p.rounds >= maxRounds || len(p.plan.Starts) >= p.policy.MaxStarts {
			break
		}
		p.rounds++
	}
	for _, l := range p.lanes {
		p.explain(l)
	}
	for _, at := range [...]model.Time{p.settled, p.alarm} {
		if at != 0 {
			p.wake = soonerOf(p.wake, at)
		}
	}
}

// open puts every lane at its beginning and the calendar at its start.
func (p *Planner) open() {
	if p.rounds > 0 {
		p.round++
		if p.lic != nil {
			p.lic.unreserve()
		}
		for _, n := range p.used {
			n.unreserve()
		}
		for _, e := range p.said {
			if e.said = false; e.j.Follows() {
				e.resv, e.resvAt = nil, nil
			}
		}
		p.said = p.said[:0]
		for _, l := range p.lanes {
			for i := l.first; i < len(l.items); i++ {
				if e := l.items[i].e; e != nil && e.pass == p.pass {
					e.resv, e.resvAt = nil, nil
				}
			}
		}
	}
	p.again, p.later, p.tested, p.wake = false, nil, 0, 0
	clear(p.byUser)
	clear(p.byAssoc)
	for _, l := range p.lanes {
		l.settle()
		l.next, l.block, l.said, l.away, l.reserved, l.tested, l.stopped = l.first, nil, 0, 0, 0, 0, false
		l.apart, l.shut, l.waits = 0, 0, nil
		switch {
		case l.refuse != model.ReasonNone:
			p.refuseAll(l)
		case l.settles:
			p.holdAll(l)
		}
	}
	if p.rounds > 0 {
		p.reclaim()
	}
}

// backfills reports whether jobs may overtake a job that does not fit.
func (p *Planner) backfills() bool { return p.policy.Backfill.Reserve != 0 }

// merge takes the jobs of all lanes in order.
func (p *Planner) merge() {
	most := p.policy.Backfill.MaxTest
	for len(p.plan.Starts) < p.policy.MaxStarts && (most <= 0 || p.tested < most) {
		l := p.best()
		if l == nil {
			return
		}
		it := l.items[l.next]
		l.next++
		p.waited(&it)
		e := it.e.at(p)
		if e.claims || e.claim != nil && !p.startInTurn(l, &it) {
			continue // it already holds a reservation
		}
		if p.policy.Backfill.Keep && e.resv != nil && e.resvAt == l {
			if !p.due(&it) {
				l.reserved++
				p.behind(l, e)
				p.wake = soonerOf(p.wake, e.resv[0].at)
				continue
			}
			p.off(e)
		}
		if e.last != allStarted && e.resv == nil {
			p.consider(l, &it)
		} else if e.last != allStarted && e.resvAt != l {
			p.elsewhere(l, &it)
		}
	}
}

// soonerOf gives the earlier of two moments; 0 means none.
func soonerOf(a, b model.Time) model.Time {
	if a == 0 || b < a {
		return b
	}
	return a
}

// best gives the lane whose next job comes first of all, or nil if every lane is blocked or empty.
func (p *Planner) best() *lane {
	var heads [model.OrderCapacity + 1]*lane // by policy: priorities of different ones can't be compared
	for _, l := range p.lanes {
		if l.refuse != model.ReasonNone || l.settles || l.stopped || !p.backfills() &&
			(l.block != nil || p.policy.PartDepth > 0 && l.tested >= p.policy.PartDepth) || !p.advance(l) {
			continue
		}
		if h := &heads[l.part.Order]; *h == nil || before(l, *h) {
			*h = l
		}
	}
	var b *lane
	for _, l := range heads {
		if l != nil && (b == nil || beforeAny(l, b)) {
			b = l
		}
	}
	return b
}

// advance moves a lane to its next job that the pass has to look at; it reports whether there is one.
func (p *Planner) advance(l *lane) bool {
	bf := &p.policy.Backfill
	quick := l.block != nil && l.said >= p.policy.Depth && bf.Reserve >= 0 && l.reserved >= bf.Reserve && bf.MaxTest+
		bf.MaxPart+bf.MaxUser+bf.MaxUserPart+bf.MaxAssoc <= 0
	for ; l.next < len(l.items); l.next++ {
		it := &l.items[l.next]
		if it.e == nil || quick && !it.robs && !(it.calls && p.anySpare()) && p.hopeless(it.sh) {
			continue
		}
		return true
	}
	return false
}

// before compares lanes of one policy.
func before(a, b *lane) bool {
	return cmp.Or(laneOrder(a, b), itemOrder(&a.items[a.next], &b.items[b.next])) < 0
}

// beforeAny compares lanes of different policies: the older job goes first.
func beforeAny(a, b *lane) bool {
	return cmp.Or(laneOrder(a, b), cmp.Compare(a.items[a.next].id, b.items[b.next].id)) < 0
}

// laneOrder compares what counts before priorities.
func laneOrder(a, b *lane) int {
	if x, y := a.items[a.next].rushes(), b.items[b.next].rushes(); x != y {
		return map[bool]int{true: -1, false: 1}[x]
	}
	return cmp.Compare(b.part.PriorityTier, a.part.PriorityTier)
}

// consider starts a job, or as many tasks of an array as fit. If it does not fit, the job gets a reservation or blocks
// its lane.
func (p *Planner) consider(l *lane, it *item) {
	e, j := it.e, it.e.j
	p.seen++
	if !p.backfills() {
		l.tested++
	}
	if r, why := p.mayNotRun(it); r != model.ReasonNone {
		p.because(e, r, why) // it does not block other jobs, because more room would not help it
		return
	}
	if r := p.held(l, it); r != model.ReasonNone {
		p.limited(l, e, r) // nor does this one
		return
	}
	if p.backfills() && l.block != nil {
		if !it.counted && !p.within(l, j) {
			p.behind(l, e)
			return
		}
		if p.policy.Backfill.ShortestFirst && l.reserved >= p.policy.Backfill.Reserve && p.policy.Backfill.Reserve > 0 {
			if it.robs || it.calls && p.anySpare() || !p.hopeless(it.sh) {
				p.later = append(p.later, candidate{l, *it})
			}
			p.behind(l, e)
			return
		}
	}
	p.over = model.ReasonNone
	p.renew(it.sh)
	if it.sh.none != model.ReasonNone && it.sh.noneAt == p.usable && !p.forgetful && !p.atThrottle(j) {
		p.blocked(l, it, model.NoTask)
		return
	}
	p.try(l, it)
}

// try starts a job or an array's tasks.
func (p *Planner) try(l *lane, it *item) {
	e, j := it.e, it.e.j
	if !j.IsArray() {
		if !p.throttled(e) && !p.start(l, it, model.NoTask) {
			p.blocked(l, it, model.NoTask)
		}
		return
	}
	full := true
	j.Tasks.Each(func(task int32) bool {
		if e.begun && task <= e.last {
			return true // started through another of its partitions
		}
		if len(p.plan.Starts) >= p.policy.MaxStarts || p.throttled(e) {
			full = false
			return false
		}
		if !p.start(l, it, task) {
			full = false
			p.blocked(l, it, task)
			return false
		}
		e.last, e.begun = task, true
		return true
	})
	if full {
		p.finished(e)
	}
}

// elsewhere tries to start a job now that holds a reservation in another of its partitions. If it does not fit here, it
// keeps waiting for its reservation there.
func (p *Planner) elsewhere(l *lane, it *item) {
	if r, _ := p.mayNotRun(it); r != model.ReasonNone {
		return
	}
	e := it.e
	task := int32(model.NoTask)
	if e.j.IsArray() {
		e.j.Tasks.Each(func(t int32) bool {
			task = t
			return e.begun && t <= e.last
		})
		if e.begun && task <= e.last {
			return
		}
	}
	if p.atThrottle(e.j) || !p.start(l, it, task) {
		p.behind(l, e)
		return
	}
	if e.j.IsArray() {
		e.last, e.begun = task, true
	}
	p.again = true // its reservation is not needed any more: the pass begins again
}

// shortest tries the jobs that ShortestFirst has put off.
func (p *Planner) shortest() {
	slices.SortStableFunc(p.later, func(a, b candidate) int {
		if a.l.part.PriorityTier != b.l.part.PriorityTier {
			return cmp.Compare(b.l.part.PriorityTier, a.l.part.PriorityTier)
		}
		return cmp.Compare(a.it.planS, b.it.planS)
	})
	for i := range p.later {
		if c := &p.later[i]; c.it.e.last != allStarted && len(p.plan.Starts) < p.policy.MaxStarts {
			p.try(c.l, &c.it)
		}
	}
}

// throttled reports whether an array already runs as many tasks as it may.
func (p *Planner) throttled(e *entry) bool {
	if !p.atThrottle(e.j) {
		return false
	}
	p.because(e, model.ReasonJobArrayTaskLimit, "")
	return true
}

func (p *Planner) atThrottle(j *model.Job) bool {
	if j.ArrayID == 0 || j.Throttle <= 0 {
		return false
	}
	a := p.v.Array(j.ArrayID)
	return a != nil && a.Active+p.running[j.ArrayID] >= j.Throttle
}

// start adds a job or a task to the plan, if it fits.
func (p *Planner) start(l *lane, it *item, task int32) bool {
	if it.e.j.Het != nil {
		return p.startSet(l, it)
	}
	if !p.startOne(l, it, task) {
		return false
	}
	if task == model.NoTask {
		p.finished(it.e)
	}
	return true
}

// startOne is start for a job of one component, or for one component.
func (p *Planner) startOne(l *lane, it *item, task int32) bool {
	p.over = model.ReasonNone
	behind := l.block != nil
	if most := p.policy.Backfill.MaxStart; behind && most > 0 && p.ahead >= most {
		return false
	}
	if p.over = p.held(l, it); p.over != model.ReasonNone {
		return false
	}
	g := p.lodge(it)
	if g.alloc == nil || !p.admits(l, it, &g) {
		return false
	}
	if it.e.j.Spec.Stride() > 1 {
		p.stock.network(it.sh.rq.topology).blocks.inSegments(g.alloc, &it.sh.rq)
	}
	end := min(p.after(p.now, g.planS), p.until(g.resv, p.now))
	if behind {
		p.ahead++
	}
	j := it.e.j
	p.book(l, it, &g, end)
	p.bookLicenses(&g, end)
	if j.ArrayID != 0 {
		p.running[j.ArrayID]++
		p.unblock(func(b *model.Job) bool { return b.ArrayID == j.ArrayID && p.atThrottle(b) })
	}
	p.plan.Starts = append(p.plan.Starts,
		model.Start{Job: j.ID, Task: task, Partition: l.part.Name, LimitS: g.limitS, Alloc: g.alloc, Licenses: g.lic,
			Resv: g.resv})
	p.firmly()
	return true
}

// book takes an allocation off its nodes' calendars until its planned end.
func (p *Planner) book(l *lane, it *item, g *lodging, end model.Time) {
	rq := &it.sh.rq
	for i := range g.alloc.Nodes {
		na := &g.alloc.Nodes[i]
		n := p.byName[na.Node]
		h := n.holdOf(na, l.part.Name, it.e.j.Spec, rq.shareAt)
		h.resv = g.resv
		b := booked{n, na, l.part.Name, rq, &h}
		b.apply(p.stock)
		if p.hets > 0 {
			p.bookings = append(p.bookings, b)
		}
		if end != forever && (p.backfills() || n.parts) {
			n.insertStep(step{end, 1, &h, false})
		}
		n.booked = true
		p.used = append(p.used, n)
		n.update()
	}
}

// finished records that a job, or all tasks of an array, have started.
func (p *Planner) finished(e *entry) {
	e.last, e.begun = allStarted, true
	if e.resv != nil {
		p.again = true
	}
	p.unblock(func(b *model.Job) bool { return b == e.j })
}

// unblock unblocks the lanes whose blocking job needs no room there any more: it has started through another partition,
// or may not start.
func (p *Planner) unblock(over func(*model.Job) bool) {
	if p.backfills() {
		return
	}
	for _, l := range p.lanes {
		if l.block != nil && over(l.block.j) {
			l.block = nil
			p.unkeep(l)
		}
	}
}

// unkeep releases the nodes that were kept for a lane's blocked job. Partitions of lower tiers get them, and their
// blocked jobs are looked at again.
func (p *Planner) unkeep(free *lane) {
	if !p.tiers {
		return
	}
	p.round++
	for _, n := range p.nodes {
		n.keep = 0
	}
	for _, l := range p.lanes {
		if l.block != nil {
			p.keep(l)
		}
	}
	for _, l := range p.lanes {
		if l.part.PriorityTier < free.part.PriorityTier && l.block != nil {
			l.block = nil
			l.next-- // a blocked lane has not moved on: look at its blocked job again
		}
	}
}

// letLower releases the nodes that the last pass kept for blocked jobs.
func (p *Planner) letLower() {
	if !p.keeping {
		return
	}
	p.keeping = false
	for _, n := range p.nodes {
		n.keep = 0
	}
}

// keep keeps the lane's nodes for the job that blocks it: jobs of lower tiers don't get them.
func (p *Planner) keep(l *lane) {
	p.keeping = true
	for _, n := range l.pool.nodes {
		n.keep = max(n.keep, int(l.part.PriorityTier))
	}
}

// mayNotRun gives the reason why a job can't start in its partition, whatever is free: limits that have changed since
// it was submitted, or nodes that it names and that are down.
func (p *Planner) mayNotRun(it *item) (model.Reason, string) {
	switch it.refuse {
	case model.ReasonNone:
	case model.ReasonBadConstraints:
		return it.refuse, it.sh.rq.divided(p.stock).String()
	default:
		return it.refuse, ""
	}
	if r := p.outside(it); r != model.ReasonNone {
		return r, ""
	}
	if it.e.j.Leads() {
		if r, why := p.unready(it.e.j); r != model.ReasonNone {
			return r, why
		}
	}
	for _, name := range it.e.j.Spec.ReqNodes {
		if n := p.byName[name]; n == nil || !n.up() {
			return model.ReasonReqNodeNotAvail, model.WhyUnavailable(name)
		}
	}
	return model.ReasonNone, ""
}

// within reports whether the policy's counts allow the pass to look at one more job behind a job that does not fit.
func (p *Planner) within(l *lane, j *model.Job) bool {
	bf := &p.policy.Backfill
	if bf.MaxPart > 0 && l.tested >= bf.MaxPart {
		return false
	}
	if bf.MaxUser > 0 || bf.MaxUserPart > 0 {
		if p.byUser == nil {
			p.byUser = map[uint64]int{}
		}
		user, here := uint64(j.Spec.UID), uint64(j.Spec.UID)|uint64(l.at+1)<<32
		if bf.MaxUser > 0 && p.byUser[user] >= bf.MaxUser || bf.MaxUserPart > 0 && p.byUser[here] >= bf.MaxUserPart {
			return false
		}
		p.byUser[user]++
		p.byUser[here]++
	}
	if bf.MaxAssoc > 0 {
		if p.byAssoc == nil {
			p.byAssoc = map[string]int{}
		}
		key := j.Spec.Account + "\x00" + j.Spec.User
		if p.byAssoc[key] >= bf.MaxAssoc {
			return false
		}
		p.byAssoc[key]++
	}
	l.tested++
	p.tested++
	return true
}
