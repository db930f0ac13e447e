package sched

import (
	"slices"

	"gbatch/internal/model"
)

// With Backfill.Keep a reservation is a promise: it stays on the calendar from pass to pass and only ever moves to an
// earlier moment. When a job has ended before its time, each pending job in turn is taken off the calendar and put back
// as early as it then fits (compression: Mu'alem and Feitelson 2001). A new Planner begins without promises.

// promises puts the reservations of earlier passes onto the calendar.
func (p *Planner) promises() {
	if !p.policy.Backfill.Keep {
		clear(p.kept)
		return
	}
	ids := p.ids[:0]
	for id, b := range p.kept {
		e := p.jobs[id]
		if e == nil || e.j.Spec != b.spec || b.end <= p.now ||
			slices.ContainsFunc(b.nodes, func(n *node) bool { return !n.up() }) {
			delete(p.kept, id)
			p.early = true
			continue
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	p.ids = ids
	for _, id := range ids {
		b := p.kept[id]
		p.onto(b)
		e := p.jobs[id].at(p)
		e.resv, e.resvAt = append(e.resv, b), b.lane
	}
	some := false
	for _, n := range p.used {
		if n.judged != p.pass {
			n.judged, n.over = p.pass, p.overbooked(n)
			some = some || n.over
		}
	}
	if !some {
		return
	}
	for _, id := range ids {
		b := p.kept[id]
		if !slices.ContainsFunc(b.nodes, func(n *node) bool { return n.over }) {
			continue
		}
		p.off(p.jobs[id]) // it can't be kept: a job ran on past its expected end, or one started that was not planned
		p.early = true
		for _, n := range b.nodes {
			n.over = n.over && p.overbooked(n)
		}
	}
}

// onto puts a reservation onto the calendar.
func (p *Planner) onto(b *booking) {
	for i, n := range b.nodes {
		n.reserve(&b.holds[i], b.at, b.end)
		p.used = append(p.used, n)
	}
}

// off takes a job's reservations off the calendar.
func (p *Planner) off(e *entry) {
	for _, b := range e.resv {
		for i, n := range b.nodes {
			n.steps = slices.DeleteFunc(n.steps, func(s step) bool { return s.hold == &b.holds[i] })
			n.resvs--
		}
	}
	e.resv, e.resvAt = nil, nil
	delete(p.kept, e.j.ID)
	p.round++ // the calendar has more room than before
}

// overbooked reports whether more of a node is promised than it will have.
func (p *Planner) overbooked(n *node) bool {
	c := &p.cursor
	c.own = everybody
	c.begin(n, p.now)
	for {
		if n.room.lot != nil && n.room.lot.broken(c.gres[len(n.def.Gres):]) {
			return true
		}
		if c.cpus < 0 || c.mem < 0 && p.stock.params.MemConsumed ||
			slices.ContainsFunc(c.gres, func(g int) bool { return g < 0 }) {
			return true
		}
		if _, ok := c.next(); !ok {
			return false
		}
	}
}

// due reports whether this pass has to look at a promise.
func (p *Planner) due(it *item) bool {
	return it.e.resv[0].at <= p.now || p.early && !p.stuck(it)
}

// stuck reports whether a promise can't move to an earlier moment. Most promises of a long queue can't, and this check
// costs half of taking them off the calendar and putting them back. It handles only jobs whose partition is one node,
// such as a pool of processors.
func (p *Planner) stuck(it *item) bool {
	sh, b := it.sh, it.e.resv[0]
	if sh == nil || sh.next != nil || it.anywhere != nil || !sh.single || sh.spread || len(sh.pool.nodes) != 1 ||
		len(b.holds) != 1 || len(sh.rq.Licenses) > 0 ||
		p.social || p.windowed || p.forgetful {
		return false
	}
	n := sh.pool.nodes[0]
	nd := &sh.whole[n.class.at]
	if nd.never || nd.lot != nil || !n.up() || n != b.nodes[0] {
		return false
	}
	c := &p.cursor
	c.of(sh)
	c.skip = &b.holds[0]
	least := it.leastS()
	at := c.earliest(n, nd, p.now, b.at, func(t model.Time) model.Time { return p.endIn(sh, t, least) })
	c.skip = nil
	return at >= b.at
}

// Wake gives the next moment at which a job may start only because time has passed: the first reservation of the last
// plan, or the end of a job's wait for better nodes. 0: there is none.
func (p *Planner) Wake() model.Time { return p.wake }
