package sched

import (
	"fmt"
	"slices"

	"gbatch/internal/model"
)

// A heterogeneous job stands in the queue once, as its first component. It starts with all its components or not at
// all: they are placed one after another, each beside those before it, and if one finds no room, what was placed is
// undone. Then the reservation is of all of them, from the first moment at which they fit together.

// maxHetTries bounds the moments at which the components of a job are tried together.
const maxHetTries = 64

// companions gives the components that have to start together with the first one, it, in order: for each the partitions
// in which it may start. ok is false while one of them may not start, or has no partition.
func (p *Planner) companions(l *lane, it *item) (all [][]candidate, ok bool) {
	jobs, ok := p.v.Together(it.e.j)
	if !ok {
		return nil, false
	}
	for _, j := range jobs {
		if j.ID == it.id {
			all = append(all, []candidate{{l, *it}})
			continue
		}
		e := p.jobs[j.ID]
		if e == nil {
			return nil, false
		}
		e.at(p)
		var some []candidate
		for i, name := range j.Spec.Partitions {
			l := p.laneOf(name)
			if slices.Contains(j.Spec.Partitions[:i], name) || l.refuse != model.ReasonNone || l.settles {
				continue
			}
			if it := p.newItem(e, l); it.refuse == model.ReasonNone {
				some = append(some, candidate{l, it})
			}
		}
		if len(some) == 0 {
			return nil, false
		}
		all = append(all, some)
	}
	return all, true
}

// unready gives the reason why a heterogeneous job may not start, whatever is free: one of its components.
func (p *Planner) unready(j *model.Job) (model.Reason, string) {
	for _, o := range p.v.Components(j.Het.ID) {
		switch {
		case o.State.HasResources():
			return model.ReasonResources, "component " + o.Het.Name() + " has not ended yet"
		case o.State != model.Pending:
		case p.jobs[o.ID] == nil:
			return o.Reason, "component " + o.Het.Name() + " may not start"
		case !o.Leads():
			if r, why := p.partUnready(o); r != model.ReasonNone {
				return r, why
			}
		}
	}
	return model.ReasonNone, ""
}

// partUnready is unready for a component that waits: it has a partition that takes it.
func (p *Planner) partUnready(o *model.Job) (first model.Reason, why string) {
	for _, name := range o.Spec.Partitions {
		l := p.laneOf(name)
		r := l.refuse
		if r == model.ReasonNone {
			it := p.newItem(p.jobs[o.ID], l)
			r, _ = p.mayNotRun(&it)
		}
		if r == model.ReasonNone {
			return r, ""
		}
		first = r
	}
	return first, fmt.Sprintf("component %s: %s", o.Het.Name(), first)
}

// mark is how far a plan has come.
type mark struct{ starts, booked, licenses, counted, ahead int }

func (p *Planner) mark() mark {
	return mark{len(p.plan.Starts), len(p.bookings), len(p.licBooked), len(p.counted), p.ahead}
}

// booked is what book has taken off a node, to be put back.
type booked struct {
	n    *node
	na   *model.NodeAlloc
	part string
	rq   *Request
	h    *hold
}

// charged is what admits has counted against limits.
type charged struct {
	g      *limitSet
	need   []int64
	limitS int64
	alloc  *model.Alloc
}

// apply takes an allocation off the node's room.
func (b *booked) apply(s *stock) {
	n := b.n
	n.room.take(b.na.CPUs, s.params, b.na.MemMiB, b.na.Gres)
	n.room.join(b.part, int32(b.rq.Share), b.na.CPUs)
	n.room.occupy(s, b.part, b.h.cpus, b.h.socks, b.h.uid, b.h.alone)
	n.room.busy, n.room.full = true, n.room.full || b.rq.Exclusive
	n.room.shut = n.room.shut || b.rq.Exclusive
	n.free = countsOf(&n.room, n.free.users+1)
}

// undo takes back what the plan has got since a mark: its nodes have the room again that they had.
func (p *Planner) undo(m mark) {
	var nodes []*node
	for _, b := range p.bookings[m.booked:] {
		b.n.steps = slices.DeleteFunc(b.n.steps, func(s step) bool { return s.hold == b.h })
		if !slices.Contains(nodes, b.n) {
			nodes = append(nodes, b.n)
		}
	}
	p.bookings = p.bookings[:m.booked]
	for _, n := range nodes {
		n.room = *p.stock.room(n.rec, nil)
		n.free = countsOf(&n.room, n.rec.AwakeJobs())
	}
	for _, id := range p.plan.Resume { // the record has them asleep
		run := p.v.Job(id).Run
		for i := range run.Alloc.Nodes {
			if n := p.byName[run.Alloc.Nodes[i].Node]; slices.Contains(nodes, n) {
				p.rejoin(n, run, &run.Alloc.Nodes[i])
			}
		}
	}
	for i := range p.bookings {
		if b := &p.bookings[i]; slices.Contains(nodes, b.n) {
			b.apply(p.stock)
		}
	}
	for _, n := range nodes {
		n.update()
		n.grew()
	}
	for _, h := range p.licBooked[m.licenses:] {
		p.lic.free.add(h, 1)
		p.lic.steps = slices.DeleteFunc(p.lic.steps, func(s step) bool { return s.hold == h })
	}
	p.licBooked = p.licBooked[:m.licenses]
	for _, c := range p.counted[m.counted:] {
		p.lim.uncount(c.g, c.need, c.limitS, c.alloc)
	}
	p.counted = p.counted[:m.counted]
	p.plan.Starts, p.ahead = p.plan.Starts[:m.starts], m.ahead
	for _, l := range p.lanes {
		l.roomAt = 0
	}
	p.round++
}

// startSet adds a heterogeneous job to the plan if all its components fit together.
func (p *Planner) startSet(l *lane, it *item) bool {
	all, ok := p.companions(l, it)
	return ok && p.startAll(all)
}

// startAll adds all components of a job to the plan if they fit together.
func (p *Planner) startAll(all [][]candidate) bool {
	if !p.bookAll(all) {
		return false
	}
	for _, some := range all {
		p.finished(some[0].it.e)
	}
	return true
}

// bookAll is startAll but for what follows from a start.
func (p *Planner) bookAll(all [][]candidate) bool {
	for _, some := range all { // most jobs that don't fit fail here, before anything is placed
		if !slices.ContainsFunc(some, func(c candidate) bool { return p.room(&c) }) {
			return false
		}
	}
	m := p.mark()
	for _, some := range all {
		if !slices.ContainsFunc(some, func(c candidate) bool { return p.startOne(c.l, &c.it, model.NoTask) }) {
			over := p.over
			p.undo(m)
			p.over = over
			return false
		}
	}
	return true
}

// takeSet is take for the components that have claims, of a job that was lost with a node. The job keeps the claims
// until all its components have ended, and there is room for them together.
func (p *Planner) takeSet(id model.JobID) {
	var mine []*entry
	var claims []*booking
	for _, e := range slices.Clone(p.claimers) {
		if e.j.Het != nil && e.j.Het.ID == id {
			mine, claims = append(mine, e), append(claims, e.claim)
			p.release(e)
		}
	}
	lead := p.jobs[id]
	r, why := model.ReasonResources, ""
	if lead != nil {
		lead.at(p)
		if r, why = p.unready(lead.j); r == model.ReasonNone {
			if r = model.ReasonResources; p.startClaimed(lead, mine, claims) {
				for _, e := range mine {
					delete(p.claimed, e.j.ID)
					p.letGo = append(p.letGo, e.j.ID)
				}
				return
			}
		}
	}
	keep := false
	for i, e := range mine {
		if e.j.Expediting() && p.now < e.j.Rush.Until {
			keep = true
			p.claimAgain(e, claims[i])
		} else {
			p.unclaim(e)
		}
	}
	if keep && lead != nil {
		lead.claims = true
		p.because(lead, r, why)
	}
}

// startClaimed starts a job on the nodes that its components have claims to, beside others that take the place of lost
// ones; or wherever there is room.
func (p *Planner) startClaimed(lead *entry, mine []*entry, claims []*booking) bool {
	if len(p.plan.Starts)+int(lead.j.Het.Size) > p.policy.MaxStarts {
		return false
	}
	for _, name := range lead.j.Spec.Partitions {
		l := p.laneOf(name)
		it := p.newItem(lead, l)
		if r, _ := p.mayNotRun(&it); r != model.ReasonNone || l.refuse != model.ReasonNone {
			continue
		}
		all, ok := p.companions(l, &it)
		if !ok {
			return false
		}
		kept := make([][]candidate, 0, len(all))
		for _, some := range all {
			if i := slices.Index(mine, some[0].it.e); i >= 0 {
				it := p.newItem(mine[i], claims[i].lane)
				some = []candidate{{claims[i].lane, p.onKept(claims[i], &it, claims)}}
			} else {
				some = slices.Clone(some)
				for k := range some {
					some[k].it = p.onKept(&booking{lane: some[k].l}, &some[k].it, claims)
				}
			}
			kept = append(kept, some)
		}
		if p.startAll(kept) || p.startAll(all) {
			return true
		}
	}
	return false
}

// room reports whether a component would fit alone, and no limit holds it.
func (p *Planner) room(c *candidate) bool {
	if p.over = p.held(c.l, &c.it); p.over != model.ReasonNone {
		return false
	}
	p.renew(c.it.sh)
	g := p.lodge(&c.it)
	return g.alloc != nil
}

// reserveSet gives a heterogeneous job a reservation at the first moment at which all its components fit together. It
// reports whether there is one, also where jobs get no reservations.
func (p *Planner) reserveSet(l *lane, it *item) bool {
	all, ok := p.companions(l, it)
	if !ok {
		return false
	}
	made := p.together(all)
	switch {
	case made == nil:
		return false
	case !p.backfills():
		for _, b := range made {
			p.lift(b)
		}
		return true
	}
	for i, b := range made {
		e := all[i][0].it.e
		e.resv, e.resvAt = []*booking{b}, b.lane
	}
	p.wake = soonerOf(p.wake, made[0].at)
	return true
}

// together puts reservations for all components onto the calendar, at the first moment at which they fit together; nil:
// there is none.
func (p *Planner) together(all [][]candidate) []*booking {
	now := p.now
	defer func() { p.now = now }()
	for range maxHetTries {
		made, later, ok := p.placeAll(all, now)
		switch {
		case !ok:
			return nil
		case later == 0:
			return made
		}
		p.now = later
	}
	return nil
}

// placeAll reserves room for each component from p.now on. later is the moment from which to try again if one fits only
// then; nothing is reserved in that case. ok is false if one never fits.
func (p *Planner) placeAll(all [][]candidate, now model.Time) (made []*booking, later model.Time, ok bool) {
	for _, some := range all {
		var best *booking
		for i := range some {
			if b := p.soonestBooking(some[i].l, &some[i].it); b != nil && (best == nil || b.at < best.at) {
				best = b
			}
		}
		if best != nil && best.at <= p.now {
			best.at = max(best.at, now)
			p.onto(best)
			p.reserveLicenses(best)
			made = append(made, best)
			continue
		}
		for _, b := range made {
			p.lift(b)
		}
		if best == nil {
			return nil, 0, false
		}
		return nil, best.at, true
	}
	return made, 0, true
}

// lift takes one reservation off the calendar.
func (p *Planner) lift(b *booking) {
	for i, n := range b.nodes {
		n.steps = slices.DeleteFunc(n.steps, func(s step) bool { return s.hold == &b.holds[i] })
		n.resvs--
	}
	if b.licHold != nil {
		p.lic.steps = slices.DeleteFunc(p.lic.steps, func(s step) bool { return s.hold == b.licHold })
		p.lic.resvs--
	}
	p.round++
}

// partAway says why a component would not fit even if the lane's nodes that are up were empty.
func (p *Planner) partAway(l *lane, it *item) (model.Reason, string) {
	all, ok := p.companions(l, it)
	if !ok {
		return model.ReasonNone, ""
	}
	for _, some := range all {
		reason, text := model.ReasonNone, ""
		for i := range some {
			if text = p.waitsForNodes(some[i].l, &some[i].it); text == "" {
				break
			}
			reason = some[i].it.sh.none
		}
		if text != "" {
			return reason, text
		}
	}
	return model.ReasonNone, ""
}

// sayTogether gives the other components of a heterogeneous job the reason of the first one.
func (p *Planner) sayTogether() {
	for _, e := range p.said {
		if e.last == allStarted || !e.j.Leads() {
			continue
		}
		for _, o := range p.v.Components(e.j.Het.ID)[1:] {
			if part := p.jobs[o.ID]; part != nil {
				part.at(p)
				part.said, part.why = true, e.why
				p.said = append(p.said, part)
			}
		}
	}
}
