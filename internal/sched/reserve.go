package sched

import (
	"slices"

	"gbatch/internal/model"
)

// booking is a reservation: capacity of some nodes from one moment to another.
type booking struct {
	at, end model.Time
	nodes   []*node
	holds   []hold // of each
	lane    *lane
	spec    *model.Spec
	alloc   *model.Alloc // of a claim

	lic     []model.LicenseCount
	licHold *hold  // of lic on their calendar
	resv    string // the advance reservation that it uses then
}

// reserve gives a job that does not fit a reservation at the earliest moment at which it fits. It reports whether there
// is such a moment.
func (p *Planner) reserve(l *lane, it *item) bool {
	b := p.soonestBooking(l, it)
	if b == nil {
		return false
	}
	e := it.e
	p.onto(b)
	p.reserveLicenses(b)
	if p.policy.Backfill.Keep && len(e.resv) == 0 {
		p.kept[e.j.ID] = b
	}
	p.wake = soonerOf(p.wake, b.at)
	e.resv, e.resvAt = append(e.resv, b), l
	return true
}

// soonestBooking gives the earliest place on the calendar that holds a job, nil if there is none.
func (p *Planner) soonestBooking(l *lane, it *item) *booking {
	least := it.leastS()
	at, alloc, lic, sh := p.soonestLicensed(it.sh, least)
	if alloc == nil {
		return nil
	}
	if _, ok := p.stayIn(it, sh, at); !ok {
		return nil // too late for its deadline
	}
	e := it.e
	b := &booking{at: at, end: p.endIn(sh, at, least), lane: l, spec: e.j.Spec, lic: lic, resv: sh.rq.Reservation}
	for i := range alloc.Nodes {
		na := &alloc.Nodes[i]
		n := p.byName[na.Node]
		b.nodes = append(b.nodes, n)
		h := n.holdOf(na, l.part.Name, e.j.Spec, sh.rq.shareAt)
		h.resv = sh.rq.Reservation
		b.holds = append(b.holds, h)
	}
	return b
}

// soonest finds the earliest moment at which a job of a shape fits for a number of seconds, and where.
func (p *Planner) soonest(sh *shape, planS int64) (model.Time, *model.Alloc) {
	p.cursor.of(sh)
	limit := forever
	if w := p.policy.Backfill.WindowS; w > 0 {
		limit = p.now.Add(w)
	}
	p.hopeless(sh) // its reservation may have other nodes now
	end := func(t model.Time) model.Time { return p.endIn(sh, t, planS) }
	best, one := p.soonestOne(sh, limit, end)
	if sh.spread {
		if at, alloc := p.soonestMany(sh, min(limit, best), end); alloc != nil {
			return at, alloc
		}
	}
	if one == nil {
		return 0, nil
	}
	r := p.roomAt(one, best, end(best)).as(&sh.rq)
	na, m := r.place(&sh.rq, sh.tasks, wholeJob(&sh.rq))
	if m != missNone {
		return 0, nil
	}
	return best, &model.Alloc{Nodes: []model.NodeAlloc{na}}
}

// soonestOne finds the node on which a whole job fits first; of several, the first in filling order.
func (p *Planner) soonestOne(sh *shape, limit model.Time, end func(model.Time) model.Time) (model.Time, *node) {
	best, found := limit, (*node)(nil)
	if !sh.single {
		return forever, nil
	}
	for _, n := range sh.pool.nodes {
		nd := &sh.whole[n.class.at]
		if nd.never || !n.up() || !sh.named(n, true) {
			continue
		}
		end := n.ending(end)
		at := p.cursor.earliest(n, nd, p.now, best, end)
		if p.social {
			at = p.sociable(sh, n, nd, at, end)
		}
		at = p.namedFrom(sh, n, nd, at, end)
		if at < best || at == best && p.policy.Backfill.BusyNodes && found != nil && found.free.users == 0 &&
			n.free.users > 0 {
			best, found = at, n
		}
	}
	if found == nil {
		return forever, nil
	}
	return best, found
}

// momentsFrom gives at and the later moments at which a node's calendar changes, in order.
func (n *node) momentsFrom(at model.Time) []model.Time {
	out := n.moments(nil, at)
	slices.Sort(out)
	return slices.Compact(out)
}

// moments appends at and the later moments at which a node's calendar changes, unsorted.
func (n *node) moments(out []model.Time, at model.Time) []model.Time {
	out = append(out, at)
	for i := range n.rel {
		if n.rel[i].at > at {
			out = append(out, n.rel[i].at)
		}
	}
	for i := range n.steps {
		if n.steps[i].at > at {
			out = append(out, n.steps[i].at)
		}
	}
	for i := range n.wins {
		for _, t := range [...]model.Time{n.wins[i].from, n.wins[i].to} {
			if t > at {
				out = append(out, t)
			}
		}
	}
	return out
}

// sociable gives the first moment, from at on, at which the node has room and no job on it that the job must not meet.
func (p *Planner) sociable(sh *shape, n *node, nd *nodeNeed, at model.Time,
	end func(model.Time) model.Time) model.Time {
	if at == forever {
		return at
	}
	moments := n.moments(nil, at)
	slices.Sort(moments)
	for _, t := range slices.Compact(moments) {
		r := p.roomAt(n, t, end(t))
		low := countsOf(r, 0)
		if r.busy {
			low.users = 1
		}
		if nd.in(&low) && sh.meets(r, nd) {
			return t
		}
	}
	return forever
}

// soonestMany finds the earliest moment before limit at which several nodes together hold a job. From the moment at
// which enough nodes have room for a least part of it, it tries each moment in turn.
func (p *Planner) soonestMany(sh *shape, limit model.Time, end func(model.Time) model.Time) (model.Time, *model.Alloc) {
	moments := p.moments[:0]
	for _, n := range sh.pool.nodes {
		nd := &sh.least[n.class.at]
		n.first = forever
		if nd.never || !n.up() || !sh.named(n, false) {
			continue
		}
		end := n.ending(end)
		at := p.namedFrom(sh, n, nd, p.cursor.earliest(n, nd, p.now, limit, end), end)
		if at < limit {
			n.first = at
			moments = append(moments, at)
		}
	}
	p.moments = moments
	if len(moments) < sh.rq.MinNodes {
		return 0, nil
	}
	slices.Sort(moments)
	from := moments[max(0, sh.rq.MinNodes-1)]
	// If every node takes one part of the same size, more room on a node that can already take a part changes nothing.
	plain := !p.social && !sh.greedy && sh.rq.MinNodes == sh.rq.MaxNodes &&
		(sh.rq.Tasks == 0 || sh.rq.Tasks == sh.rq.MinNodes)
	moments = append(moments[:0], from)
	for _, n := range sh.pool.nodes {
		switch {
		case n.first >= limit:
		case !plain || n.dated():
			moments = n.moments(moments, max(from, n.first))
		case n.first > from:
			moments = append(moments, n.first)
		}
	}
	p.moments = moments
	slices.Sort(moments)
	for _, t := range slices.Compact(moments) {
		if t < from || t >= limit {
			continue
		}
		if a := p.layAt(sh, t, end(t)); a != nil {
			return t, a
		}
	}
	return 0, nil
}

// layAt places a job on several nodes with the capacity that is free from t to end.
func (p *Planner) layAt(sh *shape, t, end model.Time) *model.Alloc {
	rooms := p.rooms[:0]
	for _, n := range sh.pool.nodes {
		if n.first > t {
			continue
		}
		if n.dated() {
			if low := p.cursor.least(n, p.now, t, end); !sh.least[n.class.at].in(&low) {
				continue
			}
		}
		rooms = append(rooms, p.roomAt(n, t, end).as(&sh.rq))
	}
	p.rooms = rooms
	if len(rooms) < sh.rq.MinNodes {
		return nil
	}
	if p.policy.Backfill.BusyNodes {
		slices.SortStableFunc(rooms, func(a,
			b *room) int {
			return p.byName[b.def.Name].free.users - p.byName[a.def.Name].free.users
		})
	}
	a, _ := laySpread(rooms, &sh.rq)
	return a
}
