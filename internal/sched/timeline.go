package sched

import (
	"math"
	"slices"

	"gbatch/internal/model"
)

// A node's calendar has three parts: what is free now (node.free), what its running jobs give back at their expected
// ends (rel), and this pass's own steps: reservations, and the ends of the jobs that the plan starts. The calendar
// counts free capacity and doesn't know which CPUs and GPUs are free: those of a job are chosen when it starts. Without
// reservations free capacity only grows, so a job that fits now fits for any time.

// forever is later than any moment.
const forever model.Time = math.MaxInt64

// counts is free capacity.
type counts struct {
	cpus  int
	mem   int64 // MiB
	users int   // jobs and reservations on the node
	gres  []int // units, by the node's entries

	plain   int   // users with CPUs of their own
	sharers int   // users that share their CPUs
	share   []int // slots of the sharers, by partition (stock.shareAt); their CPUs count as free in cpus
}

// hold is what one job takes of one node.
type hold struct {
	cpus  int
	mem   int64
	gres  []int // by the node's entries; nil: none
	part  string
	uid   uint32
	alone bool   // only jobs of its user may be beside it
	resv  string // the advance reservation that the job is in
	share int    // place of its partition (stock.shareAt), from 1; 0: it shares no CPUs
	off   bool   // it is suspended and has no CPUs
	socks []int  // its CPUs by socket, where a partition limits them; of a reservation they mean nothing
}

func (c *counts) add(h *hold, sign int) {
	c.mem += int64(sign) * h.mem
	switch {
	case h.off:
	case h.share > 0:
		c.users -= sign
		c.sharers -= sign
		c.share[h.share-1] -= sign * h.cpus
	default:
		c.users -= sign
		c.plain -= sign
		c.cpus += sign * h.cpus
	}
	for i, n := range h.gres {
		c.gres[i] += sign * n
	}
}

// holdOf counts what an allocation holds on a node. share is the place of its partition (stock.shareAt).
func (n *node) holdOf(na *model.NodeAlloc, part string, sp *model.Spec, share int) hold {
	h := hold{cpus: na.CPUs.Count(), mem: na.MemMiB, part: part, uid: sp.UID, alone: keepsApart(sp), share: share,
		resv: sp.Reservation}
	if n.room.stock != nil {
		h.socks = n.room.stock.bySockets(n.def, na.CPUs)
	}
	if n.room.lot != nil && len(na.Gres) > 0 {
		h.gres = make([]int, n.slots())
		slots := h.gres[len(n.def.Gres):]
		n.room.lot.note(slots, na.Gres, 1)
		n.room.lot.sums(slots, h.gres)
	}
	for _, g := range na.Gres {
		if n.room.lot != nil && (g.Share != nil || g.Name == gpuName) {
			continue // counted by slots
		}
		if h.gres == nil {
			h.gres = make([]int, n.slots())
		}
		if n.rec != nil && len(n.rec.Out) > 0 {
			g.Index = g.Index.Minus(n.rec.OutOf(g.Name)) // units that are out of service stay out when the job ends
		}
		for i, d := range n.def.Gres {
			if d.Name != g.Name {
				continue
			}
			for k := d.First; k < d.First+d.Count; k++ {
				if g.Index.Has(int(k)) {
					h.gres[i]++
				}
			}
		}
	}
	return h
}

// slots gives the length of the node's gres counts: its entries and the slots of shared GPUs.
func (n *node) slots() int { return len(n.def.Gres) + len(n.room.slots) }

// release is what a running job gives back at its expected end.
type release struct {
	at model.Time
	id model.JobID
	hold

	takes  bool  // a suspended job takes its CPUs again
	asleep bool  // a suspended job's: jobs of a higher class ignore it
	class  int64 // the suspended job's class
}

// insertRelease keeps rel ordered by moment.
func (n *node) insertRelease(r release) {
	k, _ := slices.BinarySearchFunc(n.rel, r.at, func(x release, at model.Time) int {
		if x.at <= at {
			return -1
		}
		return 1
	})
	n.rel = slices.Insert(n.rel, k, r)
}

// dropRelease removes a job's releases and gives the moment of the last one; forever if there was none.
func (n *node) dropRelease(id model.JobID) model.Time {
	at := forever
	for i := 0; i < len(n.rel); i++ {
		if n.rel[i].id == id {
			at = n.rel[i].at
			several := n.rel[i].asleep // a suspended job has several releases
			n.rel = slices.Delete(n.rel, i, i+1)
			if !several {
				return at
			}
			i--
		}
	}
	return at
}

// step is a change of free capacity that this pass has made.
type step struct {
	at   model.Time
	sign int // -1: a reservation begins, 1: it or a started job ends
	hold *hold
	resv bool
}

func (n *node) insertStep(s step) {
	k, _ := slices.BinarySearchFunc(n.steps, s.at, func(x step, at model.Time) int {
		if x.at <= at {
			return -1
		}
		return 1
	})
	n.steps = slices.Insert(n.steps, k, s)
}

// reserve takes h off the calendar from begin to end.
func (n *node) reserve(h *hold, begin, end model.Time) {
	n.insertStep(step{begin, -1, h, true})
	if end != forever {
		n.insertStep(step{end, 1, h, true})
	}
	n.resvs++
}

// unreserve forgets this pass's reservations, but not its starts.
func (n *node) unreserve() {
	if n.resvs > 0 {
		n.steps = slices.DeleteFunc(n.steps, func(s step) bool { return s.resv })
		n.resvs = 0
	}
}

// cursor walks over a node's calendar, from now on. Its counts are what is free at its moment.
type cursor struct {
	counts
	n    *node
	i, k int

	skip   *hold  // a hold whose steps don't count: the promise of the job that asks
	own    string // the advance reservation that the job asks for
	class  int64  // the class of the job that asks: suspended jobs of lower classes don't count
	notice int64  // of the job that asks, see Request.noticeS
	wins   []windowStep
	w      int

	base   counts    // free capacity, as if no part of the node were reserved; used if shares is not empty
	shares []portion // reservations of parts of the node
	index  uint64    // GPUs that the job asks for by number: reservations keep other GPUs if they can
	work   []int     // scratch
}

// of sets the cursor up for jobs of a shape.
func (c *cursor) of(sh *shape) {
	c.own, c.class, c.index, c.notice = sh.rq.Reservation, sh.rq.class, 0, sh.rq.noticeS
	if len(sh.rq.Index) > 0 {
		c.index = sh.rq.Index[0]
	}
}

// begin puts the cursor at now.
func (c *cursor) begin(n *node, now model.Time) {
	c.n, c.i, c.k = n, 0, 0
	buf := append(c.gres[:0], n.free.gres...)
	slots := append(c.share[:0], n.free.share...)
	c.counts = n.free
	c.gres, c.share = buf, slots
	c.open()
	for c.before(now) {
		c.next()
	}
	if len(c.shares) > 0 {
		c.divide()
	}
}

// give adds or subtracts one hold.
func (c *cursor) give(h *hold, sign int) {
	if len(c.shares) == 0 {
		c.add(h, sign)
		return
	}
	c.base.add(h, sign)
	c.use(h, -sign)
}

// before reports whether the calendar has changes up to a moment that the cursor has not processed.
func (c *cursor) before(t model.Time) bool {
	return c.i < len(c.n.rel) && c.n.rel[c.i].at <= t || c.k < len(c.n.steps) && c.n.steps[c.k].at <= t ||
		c.w < len(c.wins) && c.wins[c.w].at <= t
}

// next moves to the next moment at which the calendar changes.
func (c *cursor) next() (model.Time, bool) {
	at := forever
	if c.i < len(c.n.rel) {
		at = c.n.rel[c.i].at
	}
	if c.k < len(c.n.steps) {
		at = min(at, c.n.steps[c.k].at)
	}
	if c.w < len(c.wins) {
		at = min(at, c.wins[c.w].at)
	}
	if at == forever {
		return forever, false
	}
	for c.i < len(c.n.rel) && c.n.rel[c.i].at == at {
		switch r := &c.n.rel[c.i]; {
		case r.asleep && r.class < c.class:
		case r.takes:
			c.give(&r.hold, -1)
		default:
			c.give(&r.hold, 1)
		}
		c.i++
	}
	for c.k < len(c.n.steps) && c.n.steps[c.k].at == at {
		if s := &c.n.steps[c.k]; s.hold != c.skip {
			c.give(s.hold, s.sign)
		}
		c.k++
	}
	c.turn(at)
	if len(c.shares) > 0 {
		c.divide()
	}
	return at, true
}

// lasts reports whether a need that is met now stays met until end.
func (c *cursor) lasts(n *node, nd *nodeNeed, now, end model.Time) bool {
	if nd.lot != nil {
		low := c.least(n, now, now, end)
		return nd.in(&low)
	}
	c.begin(n, now)
	if !nd.in(&c.counts) {
		return false
	}
	for {
		at, ok := c.next()
		if !ok || at >= end {
			return true
		}
		if !nd.in(&c.counts) {
			return false
		}
	}
}

// earliest gives the first moment t, from now on and before limit, at which a need is met until end(t); forever if
// there is none.
func (c *cursor) earliest(n *node, nd *nodeNeed, now, limit model.Time, end func(model.Time) model.Time) model.Time {
	if nd.lot != nil {
		return c.earliestShared(n, nd, now, limit, end)
	}
	if n.firstChange() >= limit && !nd.in(&n.free) { // windows only reduce free capacity
		return forever
	}
	c.begin(n, now)
	t, until := forever, forever
	if nd.in(&c.counts) {
		t, until = now, end(now)
	}
	for {
		at, ok := c.next()
		switch {
		case !ok || at >= until:
			return t
		case !nd.in(&c.counts):
			t, until = forever, forever
			if at >= limit {
				return forever
			}
		case t == forever:
			if at >= limit {
				return forever
			}
			t, until = at, end(at)
		}
	}
}

// firstChange gives the first moment at which the node's free capacity changes; forever: it does not change.
func (n *node) firstChange() model.Time {
	at := forever
	if len(n.rel) > 0 {
		at = n.rel[0].at
	}
	if len(n.steps) > 0 {
		at = min(at, n.steps[0].at)
	}
	return at
}

// least gives the minimum of each count of free capacity from t to end.
func (c *cursor) least(n *node, now, t, end model.Time) counts {
	c.begin(n, now)
	for c.before(t) {
		c.next()
	}
	low := c.counts
	low.gres, low.share = slices.Clone(c.gres), slices.Clone(c.share)
	for {
		at, ok := c.next()
		if !ok || at >= end {
			return low
		}
		low.cpus, low.mem, low.users = min(low.cpus, c.cpus), min(low.mem, c.mem), max(low.users, c.users)
		low.plain, low.sharers = max(low.plain, c.plain), max(low.sharers, c.sharers)
		for i, g := range c.gres {
			low.gres[i] = min(low.gres[i], g)
		}
		for i, n := range c.share {
			low.share[i] = max(low.share[i], n)
		}
	}
}

// occupants records the jobs on the node at any moment from t to end, for partitions whose rules depend on them.
func (n *node) occupants(r *room, s *stock, t, end model.Time) {
	r.mixed, r.private, r.parts = false, false, nil
	add := func(h *hold, at []int) { r.occupy(s, h.part, h.cpus, at, h.uid, h.alone) }
	for i := range n.rel {
		if x := &n.rel[i]; x.takes && x.at < end || !x.asleep && x.at > t {
			add(&x.hold, x.socks)
		}
	}
	for i := range n.steps {
		x := &n.steps[i]
		switch {
		case !x.resv: // a job that this plan starts
			if x.at > t {
				add(x.hold, x.hold.socks)
			}
		case x.sign < 0 && x.at < end:
			over := slices.IndexFunc(n.steps, func(y step) bool { return y.hold == x.hold && y.sign > 0 })
			if over < 0 || n.steps[over].at > t {
				add(x.hold, nil)
			}
		}
	}
}

// roomAt gives the room that a job has on the node from t to end. Only counts are known, so it takes the first CPUs and
// units of each kind as the free ones.
func (p *Planner) roomAt(n *node, t, end model.Time) *room {
	low := p.cursor.least(n, p.now, t, end)
	r := &room{def: n.def, stock: p.stock, cpus: model.UpTo(max(low.cpus, 0)), nfree: max(low.cpus, 0), mem: low.mem,
		busy: low.users > 0, counted: true}
	r.plain, r.sharers, r.extra, r.closed = low.plain, low.sharers, low.share, low.cpus < 0
	r.limited, r.limit, r.inside = low.cpus < p.stock.whole(n.def), low.cpus, p.cursor.inside()
	if len(low.gres) > 0 {
		r.gres = make([]gresRoom, len(n.def.Gres))
		for i, d := range n.def.Gres {
			free := max(low.gres[i], 0)
			if n.room.lot != nil && n.room.lot.shared[i] {
				free = int(d.Count)
			}
			r.gres[i] = gresRoom{d.Name, d.Type, span(int(d.First), free), free}
		}
	}
	if r.lot = n.room.lot; r.lot != nil {
		r.slots = low.gres[len(n.def.Gres):]
		r.derive()
		r.atMost(low.gres)
	}
	if p.social {
		n.occupants(r, p.stock, t, end)
	}
	return r
}

// leave keeps n units, first the ones that the job asks for by number.
func (g *gresRoom) leave(n int, index uint64) {
	if g.nfree = n; g.name == gpuName && index != 0 {
		if first := g.free.And(model.Bits{index}); first.Count() <= n {
			g.free = first.Or(g.free.Minus(first).First(n - first.Count()))
			return
		}
	}
	g.free = g.free.First(n)
}

// roomUntil gives the room that a job has on the node from now to end: the present room, or less.
func (p *Planner) roomUntil(n *node, end model.Time) *room {
	if !n.dated() {
		return &n.room
	}
	low := p.cursor.least(n, p.now, p.now, end)
	r := n.room
	if low.cpus < r.nfree {
		r.nfree, r.uncut = max(low.cpus, 0), r.cpus
		r.cpus = r.cpus.First(r.nfree)
	}
	r.mem = min(r.mem, low.mem)
	r.busy = r.busy || low.users > 0
	r.plain, r.sharers, r.closed = max(r.plain, low.plain), max(r.sharers, low.sharers), low.cpus < 0
	r.limited, r.limit, r.inside = low.cpus < p.stock.whole(n.def), low.cpus, p.cursor.inside()
	if n.parts && r.sharers > 0 {
		r.theirs = p.apartCPUs(n)
	}
	if len(low.share) > 0 {
		r.extra = low.share
		for k, now := range n.free.share {
			r.extra[k] -= now
		}
	}
	r.gres = slices.Clone(r.gres)
	for i := range r.gres {
		if r.lot != nil && r.lot.shared[i] {
			continue
		}
		if g := &r.gres[i]; low.gres[i] < g.nfree {
			g.leave(max(low.gres[i], 0), p.cursor.index)
		}
	}
	if r.lot != nil {
		r.lower(func(i, have int) int { return min(have, low.gres[len(r.gres)+i]) })
		r.atMost(low.gres)
	}
	if p.social {
		n.occupants(&r, p.stock, p.now, end)
	}
	return &r
}
