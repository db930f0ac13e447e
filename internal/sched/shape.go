package sched

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
)

// shape is shared by all jobs with the same request in a partition: the resolved request, its need on each class of
// nodes, and what was found out about where it does not fit. A long queue has few shapes, so a pass over thousands of
// jobs costs one short look at each.
type shape struct {
	rq     Request
	pool   *pool
	part   string
	tasks  int
	whole  []nodeNeed // by class: the whole job on one node
	least  []nodeNeed // by class: the least that one of several nodes must have
	wholeB bound
	leastB bound
	single bool // it may be on one node
	spread bool // it may be on several
	greedy bool // sets of nodes can only be found by trying: it may fit in less room but not in more

	// These stay true until a node gains free capacity.
	from   int  // no node before it has room for the whole job
	spent  bool // no set of nodes has room for it
	grown  int  // events of the pool that have been processed
	forget bool // remember nothing: other GPUs may become free without the number of free ones growing (or in tests)

	// These depend on this round's reservations.
	round   uint64
	failEnd model.Time // it does not fit up to this end or any later one
	open    closing    // round and failEnd, were there no advance reservations
	fullAt  uint64     // the round in which no block had room for a segment up to fullEnd
	fullEnd model.Time

	uses    *leastUse // for limits
	prefer  *shape    // the shape with the features that the job prefers; nil: it prefers none
	relaxed *shape    // for a job that has waited long enough: without a limit of switches; nil: no limit

	roams map[string]bool // Planner.roams
	turn  uint64          // Planner.windowTurn when the shape was last renewed; only for jobs that ask for a reservation
	next  *shape          // the shape for the next of the job's reservations
	drawn bool            // the next ones are for reservations that attract it, see draw
	costs *costs          // of a start on each node; nil: not computed

	within   bool   // its reservation could hold it, were nothing else in it
	withinAt uint64 // Planner.windowTurn when that was found out; 0: never

	none   model.Reason // why it would not fit even if all other jobs had ended; ReasonNone: it would
	noneAt uint64       // Planner.usable when none was set; 0: never
}

// shapeOf gives the shape of a job in a lane. magnets names the reservations that attract it, with commas between them.
func (p *Planner) shapeOf(l *lane, sp *model.Spec, magnets string) *shape {
	p.key = ask.Key(p.key[:0], sp, p.stock.byUser)
	class := int64(l.part.PriorityTier)
	if !p.cfg.Params.Preempt.ByPartition {
		class = anyClass
	}
	if q := p.v.QOS(sp.QOS); p.stock.qosClass && q != nil && len(q.Preempt) > 0 {
		class = int64(q.Priority)
		p.key = binary.AppendVarint(p.key, class)
	}
	part := l.part
	if p.lifts {
		if flags := liftsOf(p.v, sp.QOS); flags != 0 {
			part = lifted(flags, part)
			p.key = append(binary.AppendVarint(p.key, int64(flags)), 'l')
		}
	}
	most := p.lim.mostNodes(sp, l.part.Name)
	if most > 0 {
		p.key = append(binary.AppendVarint(p.key, most), 'n')
	}
	if magnets != "" {
		p.key = append(append(binary.AppendVarint(p.key, int64(len(magnets))), magnets...), 'm')
	}
	if sh := l.shapes[string(p.key)]; sh != nil {
		return sh
	}
	if most > 0 {
		fewer := *sp
		fewer.MaxNodes = int32(min(most, math.MaxInt32))
		sp = &fewer
	}
	rq := Resolve(sp, part, p.stock.params)
	rq.class, rq.shareAt = class, p.stock.shareAt(rq.sharePart, int32(rq.Share))
	if !p.stock.byUser {
		rq.UID = 0
	}
	sh := p.newShape(l, &rq)
	p.draw(l, sh, magnets)
	if len(l.shapes) >= maxShapes {
		clear(l.shapes) // items keep the shapes that they use
	}
	l.shapes[string(p.key)] = sh
	return sh
}

// shapesOf gives the shapes of a lane. Lanes over the same nodes share them if their partitions resolve requests alike.
func (p *Planner) shapesOf(l *lane) map[string]*shape {
	like := *l.part
	if !p.stock.byPart && like.ShareMax <= 1 {
		like.Name = ""
	}
	like.Nodes, like.Show, like.Billing, like.State, like.QOS = nil, nil, nil, model.PartUp, ""
	like.Default, like.Hidden, like.RootOnly, like.DisableRoot, like.ReqResv = false, false, false, false, false
	like.AllowAccounts, like.DenyAccounts, like.AllowGroups, like.AllowQOS, like.DenyQOS = nil, nil, nil, nil, nil
	like.MaxTimeS, like.DefTimeS, like.GraceTimeS, like.PriorityJobFactor, like.PreemptMode = 0, 0, 0, 0, ""
	like.Headroom, like.Order = 0, model.OrderDefault
	key := fmt.Sprintf("%p %+v", l.pool, like)
	if p.shapes[key] == nil {
		p.shapes[key] = map[string]*shape{}
	}
	return p.shapes[key]
}

// maxShapes bounds the shapes that a planner remembers for partitions that are alike.
const maxShapes = 1 << 14

func (p *Planner) newShape(l *lane, rq *Request) *shape {
	sh := &shape{rq: *rq, pool: l.pool, part: l.part.Name, tasks: rq.TasksOn(1), single: rq.single(),
		spread: rq.MaxNodes > 1, forget: p.forgetful || rq.byUnit(), roams: p.roams}
	for _, g := range rq.Gres {
		sh.greedy = sh.greedy || g.Per == model.PerJob
	}
	sh.greedy = sh.greedy || rq.picky()
	none := bound{math.MaxInt32, math.MaxInt64, math.MaxInt32}
	sh.wholeB, sh.leastB = none, none
	lower := func(b *bound, nd *nodeNeed, d *model.NodeDef) {
		if nd.never {
			return
		}
		gpus := 0
		for _, g := range nd.gres {
			of := false
			for i := range min(64, len(d.Gres)) {
				of = of || g.of&(1<<uint(i)) != 0 && d.Gres[i].Name == gpuName
			}
			if of {
				gpus = max(gpus, g.count)
			}
		}
		b.cpus, b.mem, b.gpus = min(b.cpus, int32(nd.cpus)), min(b.mem, nd.mem), min(b.gpus, int32(gpus))
	}
	if first, rest, several := strings.Cut(rq.Reservation, ","); several {
		other := *rq
		sh.rq.Reservation, other.Reservation = first, rest
		sh.next = p.newShape(l, &other)
		rq = &sh.rq
	}
	if rq.Prefer != nil {
		like := *rq
		like.Prefer = nil
		like.Want = &model.Features{Each: rq.Prefer}
		if rq.Want != nil {
			*like.Want = *rq.Want
			like.Want.Each = rq.Want.Each.And(rq.Prefer)
		}
		sh.prefer = p.newShape(l, &like)
	}
	if rq.Switches > 0 {
		all := *rq
		all.Switches = 0
		sh.relaxed = p.newShape(l, &all)
		if sh.next != nil {
			sh.relaxed.next = sh.next.relaxed
		}
	}
	for _, c := range p.classes {
		l := p.stock.lot(c.def)
		w, some := needOn(c.def, l, rq, sh.tasks, true), needOn(c.def, l, rq, rq.PerNode, false)
		lower(&sh.wholeB, &w, c.def)
		lower(&sh.leastB, &some, c.def)
		sh.whole, sh.least = append(sh.whole, w), append(sh.least, some)
	}
	return sh
}

// named reports whether the job's node lists and reservation permit a node. whole means that it is the job's only node:
// then it must be the only one that the job asks for by name.
func (sh *shape) named(n *node, whole bool) bool {
	rq := &sh.rq
	if rq.Reservation != "" && !sh.roams[rq.Reservation] && !n.reserved(rq.Reservation) {
		return false
	}
	if len(rq.ExcNodes)+len(rq.ReqNodes) == 0 {
		return true
	}
	if !whole {
		return !rq.ExcNodes[n.def.Name] && (!rq.namesAll() || rq.ReqNodes[n.def.Name])
	}
	return rq.allows(&n.room)
}

// mayHave reports whether a job of the shape, or a part of it, would fit on a node if the node were empty.
func (sh *shape) mayHave(n *node) bool {
	return sh.single && !sh.whole[n.class.at].never && sh.named(n, true) || (sh.spread || !sh.single) &&
		!sh.least[n.class.at].never && sh.named(n, false)
}

// onOne reports whether some node of the pool would hold the whole job if it were empty.
func (sh *shape) onOne(pl *pool) bool {
	return slices.ContainsFunc(pl.nodes, func(n *node) bool { return !sh.whole[n.class.at].never && sh.named(n, true) })
}

// has reports whether a node has nd free, and no job on it that the job must not meet.
func (p *Planner) has(sh *shape, n *node, nd *nodeNeed) bool {
	if !n.up() || n.room.shut || !nd.in(&n.free) {
		return false
	}
	if sh.byUnit(n) && !sh.hasUnits(&n.room, nd) {
		return false
	}
	return !p.social || sh.meets(&n.room, nd)
}

// meets reports whether the job may run beside the jobs in a room.
func (sh *shape) meets(r *room, nd *nodeNeed) bool {
	rq := &sh.rq
	if (rq.Private || r.private) && len(r.parts) > 0 && (r.mixed || r.uid != rq.UID) {
		return false
	}
	if rq.MaxCPUs == 0 {
		return true
	}
	cpus := nd.cpus
	if rq.Exclusive {
		cpus = r.round(rq, rq.PerNode, rq.CPUsFor(rq.PerNode, 0))
	}
	return cpus <= rq.MaxCPUs-r.inUse(sh.rq.part)
}

// renew forgets what was found out about a shape in a reservation, if reservations have changed: it may have other
// nodes now.
func (p *Planner) renew(sh *shape) {
	if sh.rq.Reservation != "" && sh.turn != p.windowTurn {
		sh.turn, sh.from, sh.spent, sh.noneAt = p.windowTurn, 0, false, 0
	}
}

// hopeless reports whether a job of the shape fits on no node and no set of nodes now, even without reservations.
func (p *Planner) hopeless(sh *shape) bool {
	if sh.forget {
		return false
	}
	p.renew(sh)
	if sh.grown != sh.pool.lost+len(sh.pool.grown) {
		p.catchUp(sh)
	}
	return (!sh.single || sh.from >= len(sh.pool.nodes)) && (!sh.spread || sh.spent) &&
		(sh.next == nil || p.hopeless(sh.next))
}

// maxCatchUp bounds the nodes that a shape looks at one by one; after more events it starts over.
const maxCatchUp = 64

// catchUp looks at the nodes that have gained free capacity since the shape was last looked at.
func (p *Planner) catchUp(sh *shape) {
	pl := sh.pool
	since := sh.grown - pl.lost
	sh.grown = pl.lost + len(pl.grown)
	if since < 0 || len(pl.grown)-since > maxCatchUp {
		sh.from, sh.spent = 0, false
		return
	}
	for _, at := range pl.grown[since:] {
		n := pl.nodes[at]
		if sh.single && int(at) < sh.from && sh.named(n, true) && p.has(sh, n, &sh.whole[n.class.at]) {
			sh.from = int(at)
		}
		if sh.spent && sh.named(n, false) && p.has(sh, n, &sh.least[n.class.at]) {
			sh.spent = false
		}
	}
}

// fit finds room for a job of the shape from now to end. Nothing is booked.
func (p *Planner) fit(sh *shape, end model.Time) *model.Alloc {
	p.cursor.of(sh)
	return p.fitAs(sh, end)
}

// fitAs is fit for the reservation that the cursor is set to.
func (p *Planner) fitAs(sh *shape, end model.Time) *model.Alloc {
	if sh.forget {
		sh.from, sh.spent, sh.round = 0, false, 0
	}
	if sh.prefer != nil {
		if alloc := p.fit(sh.prefer, end); alloc != nil {
			return alloc
		}
	}
	if p.hopeless(sh) || sh.round == p.round && end >= sh.failEnd {
		return nil
	}
	if alloc := p.fitWarm(sh, end); alloc != nil {
		return alloc
	}
	alloc, taken := p.fitOne(sh, end)
	alloc = p.withRoom(sh, alloc, end)
	if alloc != nil && sh.spread { // several light nodes rather than a heavy one
		if w := p.byName[alloc.Nodes[0].Node].weight(); sh.pool.nodes[0].weight() < w {
			if some, _ := p.fitMany(sh, end, w); some != nil {
				return some
			}
		}
	}
	if alloc == nil && sh.spread && !sh.spent {
		var some bool
		alloc, some = p.fitMany(sh, end, anyWeight)
		taken = taken || some
	}
	if alloc == nil && taken && !(sh.greedy && sh.spread) { // only reservations keep it from fitting
		if sh.round != p.round {
			sh.round, sh.failEnd = p.round, end
		}
		sh.failEnd = min(sh.failEnd, end)
	}
	return alloc
}

// fitOne places a whole job on one node: the first that holds it, or the one that suits it best. taken means that a
// node has room, but it is reserved, or kept for a job of a higher tier.
func (p *Planner) fitOne(sh *shape, end model.Time) (alloc *model.Alloc, taken bool) {
	if !sh.single {
		return nil, false
	}
	switch {
	case sh.rq.LLN:
		return p.fitLoose(sh, end)
	case p.weighs(sh):
		return p.fitBest(sh, end)
	}
	return p.fitFirst(sh, end)
}

// enough gives the nodes that have enough for a whole job by count, in filling order, and notes where they begin.
func (p *Planner) enough(sh *shape) iter.Seq2[*node, *nodeNeed] {
	return func(yield func(*node, *nodeNeed) bool) {
		pl, first := sh.pool, true
		for at := pl.find(sh.from, &sh.wholeB); at < len(pl.nodes); at = pl.find(at+1, &sh.wholeB) {
			n := pl.nodes[at]
			nd := &sh.whole[n.class.at]
			if !sh.named(n, true) || !p.has(sh, n, nd) {
				continue
			}
			if first {
				sh.from, first = at, false
			}
			if !yield(n, nd) {
				return
			}
		}
		if first {
			sh.from = len(pl.nodes)
		}
	}
}

// fitFirst is fitOne for the first node.
func (p *Planner) fitFirst(sh *shape, end model.Time) (alloc *model.Alloc, taken bool) {
	for n, nd := range p.enough(sh) {
		if na := p.placeOn(sh, n, nd, end); na != nil {
			return &model.Alloc{Nodes: []model.NodeAlloc{*na}}, taken
		}
		taken = true // enough by count, but the job does not fit: nothing is concluded from it
	}
	return nil, taken
}

// placeOn places a whole job on a node that has enough for it by count; nil: it is reserved, kept for a job of a higher
// tier, or the job does not fit.
func (p *Planner) placeOn(sh *shape, n *node, nd *nodeNeed, end model.Time) *model.NodeAlloc {
	if sh.rq.tier < n.keep || n.dated() && !p.cursor.lasts(n, nd, p.now, n.until(end)) {
		return nil
	}
	r := p.roomUntil(n, n.until(end)).as(&sh.rq)
	if n.dated() && p.social && !sh.meets(r, nd) {
		return nil
	}
	na, m := r.place(&sh.rq, sh.tasks, wholeJob(&sh.rq))
	if m != missNone {
		return nil
	}
	return &na
}

// anyWeight is more than any node's weight.
const anyWeight = math.MaxInt64

// fitMany places a job on several nodes that are lighter than heavy.
func (p *Planner) fitMany(sh *shape, end model.Time, heavy int64) (alloc *model.Alloc, taken bool) {
	pl := sh.pool
	rooms := p.rooms[:0]
	for at := pl.find(0, &sh.leastB); at < len(pl.nodes); at = pl.find(at+1, &sh.leastB) {
		n := pl.nodes[at]
		if n.weight() >= heavy {
			break
		}
		if !sh.named(n, false) || !p.has(sh, n, &sh.least[n.class.at]) {
			continue
		}
		if sh.rq.tier < n.keep {
			taken = true
			continue
		}
		r := p.roomUntil(n, n.until(end))
		taken = taken || r != &n.room
		rooms = append(rooms, r.as(&sh.rq))
	}
	p.rooms = rooms
	alloc, _ = laySpread(rooms, &sh.rq)
	if alloc == nil && !taken && !sh.greedy && heavy == anyWeight {
		sh.spent = true
	}
	return alloc, taken
}
