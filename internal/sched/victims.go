package sched

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
)

// The choice of victims. On one node it is the set whose highest class is the lowest; among equals the smallest set;
// among equals the one with the lowest priorities, then the youngest jobs. With preempt_strict_order, sets are compared
// by their most important jobs, then by the next ones, and so on, and their size doesn't matter. Of all nodes, the one
// with the best set is chosen, and no job is ended needlessly.

// maxSets bounds the sets of victims that are tried on one node. Beyond it, the search starts from all possible victims
// and spares one after the other.
const maxSets = 2000

// outing is a set of victims that makes room on one node.
type outing struct {
	n    *node
	list []*victim // the worst first
}

// compare orders outings, the best first.
func (r *robber) compare(a, b *outing) int {
	if r.p.cfg.Params.Preempt.Strict {
		for i, j := len(a.list)-1, len(b.list)-1; i >= 0 && j >= 0; i, j = i-1, j-1 {
			if c := worse(a.list[i], b.list[j]); c != 0 {
				return c
			}
		}
		return cmp.Compare(len(a.list), len(b.list))
	}
	top := func(c *outing) int64 {
		if len(c.list) == 0 {
			return -1 << 62
		}
		return c.list[len(c.list)-1].class // the list is sorted by class first: the last victim has the highest
	}
	if c := cmp.Or(cmp.Compare(top(a), top(b)), cmp.Compare(len(a.list), len(b.list))); c != 0 {
		return c
	}
	for i := range a.list {
		if c := worse(a.list[i], b.list[i]); c != 0 {
			return c
		}
	}
	return 0
}

// find gives victims, and the job's allocation once they are gone. It gives none if ending jobs does not help, or if
// the job fits once the jobs that are already being ended are gone.
func (r *robber) find() (*model.Alloc, []*victim) {
	sh := r.it.sh
	var best *outing
	if sh.single {
		for _, n := range sh.pool.nodes {
			nd := &sh.whole[n.class.at]
			if nd.never || !r.may(n) || !sh.named(n, true) {
				continue
			}
			c := r.choose(n, func(gone func(model.JobID) bool) bool { return r.place(n, gone) != nil })
			if c != nil && len(c.list) == 0 {
				r.needless = true
				return nil, nil
			}
			if c != nil && (best == nil || r.compare(c, best) < 0) {
				best = c
			}
		}
	}
	if best != nil {
		na := r.place(best.n, without(best.list))
		return &model.Alloc{Nodes: []model.NodeAlloc{*na}}, best.list
	}
	if sh.spread {
		return r.findMany()
	}
	return nil, nil
}

// may reports whether victims may be looked for on a node: the node takes jobs, this plan starts none there, and it is
// not kept for a job of a higher tier.
func (r *robber) may(n *node) bool {
	return n.up() && !n.booked && n.rec != nil && r.it.sh.rq.tier >= n.keep
}

// without gives a function that reports whether a job is in a list of victims.
func without(list []*victim) func(model.JobID) bool {
	return func(id model.JobID) bool {
		return slices.ContainsFunc(list, func(v *victim) bool { return v.j.ID == id })
	}
}

// room gives a node's room once the jobs of gone, and all jobs that are being ended, have left. It subtracts other
// jobs' claims, and what is reserved up to this job's planned end: for jobs that are ahead of it, and by advance
// reservations.
func (r *robber) room(n *node, gone func(model.JobID) bool) *room {
	p := r.p
	what := r.fates(n, gone)
	room := p.stock.room(n.rec, what)
	var claims []claimOn
	if n.resvs > 0 { // they are reservations too
		claims = p.claimsOn(n)
	}
	for _, c := range claims {
		room.lessen(c.hold, p.stock, c.part)
	}
	if len(n.wins) > 0 || n.resvs > len(claims) {
		return r.beside(n, room, claims, what)
	}
	return room
}

// fates gives what becomes of each job on a node if those of gone are ended or suspended.
func (r *robber) fates(n *node, gone func(model.JobID) bool) func(model.JobID) fate {
	p := r.p
	return func(id model.JobID) fate {
		switch {
		case p.ending(id), p.goes(id, n.def.Name), gone(id) && !r.asleep[id]:
			return leaves
		case p.victims[id] == sleeps, gone(id):
			return sleeps
		}
		return stays
	}
}

// preyKey is equal for jobs whose possible victims, or lenders, are the same.
type preyKey struct {
	l         *lane
	qos, resv string
	by        owner
	owed      bool
	prio      int64
	lenders   bool
}

// emptied is what a node would have without all possible victims; room is nil if it takes no jobs.
type emptied struct {
	room *room
	have counts
}

// futile reports whether a job would not fit even if all its possible victims left, and nothing were reserved.
func (r *robber) futile() bool { return r.futileWith(r.on, false) }

// futileWith is futile for those that on gives for a node: victims or lenders. The nodes are emptied once for all jobs
// with the same ones.
func (r *robber) futileWith(on func(n *node) []*victim, lenders bool) bool {
	p, sh := r.p, r.it.sh
	key := preyKey{l: r.l, qos: r.it.e.j.Spec.QOS, resv: sh.rq.Reservation, by: r.by, owed: r.owed, lenders: lenders}
	if p.cfg.Params.Preempt.Within {
		key.prio = int64(r.it.e.j.Priority)
		if p.numbered(r.l.part) {
			return false // the number may be another one for each job
		}
	}
	list := p.emptiest[key]
	if list == nil {
		if len(p.emptiest) >= maxPreempts {
			return false
		}
		list = make([]emptied, len(sh.pool.nodes))
		for i, n := range sh.pool.nodes {
			if n.rec == nil || !n.up() {
				continue
			}
			rm := p.stock.room(n.rec, r.fates(n, without(on(n))))
			users := 0
			if rm.busy {
				users = 1
			}
			list[i] = emptied{rm, countsOf(rm, users)}
		}
		p.emptiest[key] = list
	}
	some := 0
	for i, n := range sh.pool.nodes {
		holds := func(nd *nodeNeed, whole bool) bool {
			return !nd.never && !list[i].room.shut && nd.in(&list[i].have) && sh.named(n, whole) && sh.meets(list[i].room, nd)
		}
		if list[i].room == nil {
			continue
		}
		if sh.single && holds(&sh.whole[n.class.at], true) {
			return false
		}
		if sh.spread && holds(&sh.least[n.class.at], false) {
			if some++; some >= sh.rq.MinNodes {
				return false
			}
		}
	}
	return true
}

// claimOn is what a claim takes of a node.
type claimOn struct {
	job  model.JobID
	part string
	end  model.Time
	hold *hold
}

func (p *Planner) claimsOn(n *node) (out []claimOn) {
	for _, e := range p.claimers {
		for i, at := range e.claim.nodes {
			if at == n {
				out = append(out, claimOn{e.j.ID, e.claim.lane.part.Name, e.claim.end, &e.claim.holds[i]})
			}
		}
	}
	return out
}

// beside subtracts reservations from the room that a node would have without some of its jobs, and with claims.
func (r *robber) beside(n *node, room *room, claims []claimOn, what func(model.JobID) fate) *room {
	p := r.p
	like := &node{def: n.def, class: n.class, rec: n.rec, usable: true, wins: n.wins, parts: n.parts, room: *room}
	users := 0
	if room.busy {
		users = 1
	}
	like.free = countsOf(room, users)
	for i := range n.rel {
		x := n.rel[i]
		switch what(x.id) {
		case leaves:
			continue
		case sleeps:
			x.off = true
		}
		like.rel = append(like.rel, x)
	}
	for _, c := range claims {
		like.insertRelease(release{at: c.end, id: c.job, hold: *c.hold})
	}
	for _, s := range n.steps {
		if s.resv && !slices.ContainsFunc(claims, func(c claimOn) bool { return c.hold == s.hold }) {
			like.steps = append(like.steps, s)
			like.resvs++
		}
	}
	p.cursor.of(r.it.sh)
	out := p.roomUntil(like, p.endIn(r.it.sh, p.now, r.it.leastS()))
	if len(like.free.share) > 0 {
		for k, claimed := range room.extra {
			out.extra[k] += claimed
		}
	}
	return out
}

// lessen subtracts a hold from a room.
func (r *room) lessen(h *hold, s *stock, part string) {
	if h.share > 0 {
		r.sharers++
		r.extra = append(make([]int, 0, s.shareSlots()), r.extra...)
		for len(r.extra) < s.shareSlots() {
			r.extra = append(r.extra, 0)
		}
		r.extra[h.share-1] += h.cpus
	} else {
		r.plain++
		r.nfree = max(0, r.nfree-h.cpus)
		r.cpus = r.cpus.First(r.nfree)
	}
	r.mem -= h.mem
	r.busy = true
	if r.lot != nil && h.gres != nil {
		r.lower(func(i, have int) int { return have - h.gres[len(r.gres)+i] })
	}
	for i, n := range h.gres[:min(len(h.gres), len(r.gres))] {
		if r.lot != nil && r.lot.shared[i] {
			continue
		}
		if g := &r.gres[i]; n > 0 {
			g.nfree = max(0, g.nfree-n)
			g.free = g.free.First(g.nfree)
		}
	}
	r.occupy(s, part, h.cpus, nil, h.uid, h.alone)
}

// place places the whole job on a node from which some jobs are gone.
func (r *robber) place(n *node, gone func(model.JobID) bool) *model.NodeAlloc {
	sh := r.it.sh
	rm := r.room(n, gone)
	if !r.meets(rm, &sh.whole[n.class.at]) {
		return nil
	}
	na, m := rm.as(&sh.rq).place(&sh.rq, sh.tasks, wholeJob(&sh.rq))
	if m != missNone {
		return nil
	}
	return &na
}

// meets reports whether a room meets a need, and has no job in it that the job must not meet.
func (r *robber) meets(rm *room, nd *nodeNeed) bool {
	users := 0
	if rm.busy {
		users = 1
	}
	have := countsOf(rm, users)
	return !rm.shut && nd.in(&have) && r.it.sh.meets(rm, nd)
}

// choose gives the best set of victims on a node, or nil if all possible victims are not enough.
func (r *robber) choose(n *node, fits func(func(model.JobID) bool) bool) *outing {
	all := r.on(n)
	if !fits(without(all)) {
		return nil
	}
	if fits(without(nil)) {
		return &outing{n: n}
	}
	for len(all) > 0 { // first without the higher classes, as long as that is enough
		k := slices.IndexFunc(all, func(v *victim) bool { return v.class == all[len(all)-1].class })
		if !fits(without(all[:k])) {
			break
		}
		all = all[:k]
	}
	if r.p.cfg.Params.Preempt.Strict {
		k := 1
		for !fits(without(all[:k])) {
			k++
		}
		if set := r.spareSome(all[:k], fits); r.within(set) {
			return &outing{n, set}
		}
	}
	tries := 0
	var set []*victim
	var pick func(from, left int) bool
	pick = func(from, left int) bool {
		if left == 0 {
			tries++
			return fits(without(set)) && r.within(set)
		}
		for i := from; i <= len(all)-left && tries < maxSets; i++ {
			set = append(set, all[i])
			if pick(i+1, left-1) {
				return true
			}
			set = set[:len(set)-1]
		}
		return false
	}
	for size := 1; size <= len(all) && tries < maxSets; size++ {
		if !r.enough(n, all, size) {
			continue
		}
		if pick(0, size) {
			return &outing{n, set}
		}
	}
	if set = r.spareSome(all, fits); r.within(set) {
		return &outing{n, set}
	}
	return nil
}

// enough reports whether any `size` victims could make room: it adds up the largest holds of each resource by itself.
func (r *robber) enough(n *node, all []*victim, size int) bool {
	sh := r.it.sh
	nd := &sh.whole[n.class.at]
	if !sh.single || r.p.stock.shared || len(n.wins) > 0 {
		return true
	}
	have := countsOf(r.room(n, without(nil)), 0)
	cpus, mems := make([]int, 0, len(all)), make([]int64, 0, len(all))
	for _, v := range all {
		cpus, mems = append(cpus, v.h.cpus), append(mems, v.h.mem)
	}
	slices.SortFunc(cpus, func(a, b int) int { return b - a })
	slices.SortFunc(mems, func(a, b int64) int { return cmp.Compare(b, a) })
	for i := range size {
		have.cpus += cpus[i]
		have.mem += mems[i]
	}
	have.plain = 0
	for k := range have.gres {
		units := make([]int, 0, len(all))
		for _, v := range all {
			if v.h.gres != nil {
				units = append(units, v.h.gres[k])
			}
		}
		slices.SortFunc(units, func(a, b int) int { return b - a })
		for i := range min(size, len(units)) {
			have.gres[k] += units[i]
		}
	}
	return nd.in(&have)
}

// spareSome takes victims off a list, the most important first, as long as the others are enough.
func (r *robber) spareSome(all []*victim, fits func(func(model.JobID) bool) bool) []*victim {
	set := slices.Clone(all)
	for i := len(set) - 1; i >= 0; i-- {
		if rest := slices.Delete(slices.Clone(set), i, i+1); fits(without(rest)) {
			set = rest
		}
	}
	return set
}

// findMany finds victims for a job on several nodes. It takes nodes in order of the victims that the least part of the
// job costs there, until the job fits. Then it spares each victim that need not go, the most important first.
func (r *robber) findMany() (*model.Alloc, []*victim) {
	sh := r.it.sh
	var nodes []*outing
	for _, n := range sh.pool.nodes {
		if nd := &sh.least[n.class.at]; nd.never || !r.may(n) || !sh.named(n, false) {
			continue
		}
		fits := func(gone func(model.JobID) bool) bool {
			return r.meets(r.room(n, gone), &sh.least[n.class.at])
		}
		all := r.on(n)
		switch {
		case fits(without(nil)):
			nodes = append(nodes, &outing{n: n})
		case fits(without(all)):
			nodes = append(nodes, &outing{n, r.spareSome(all, fits)})
		}
	}
	slices.SortStableFunc(nodes, func(a, b *outing) int { return r.compare(a, b) })
	var gone func(model.JobID) bool
	lay := func(list []*outing) *model.Alloc {
		rooms := make([]*room, 0, len(list))
		for _, c := range list {
			if rm := r.room(c.n, gone); r.meets(rm, &sh.least[c.n.class.at]) {
				rooms = append(rooms, rm.as(&sh.rq))
			}
		}
		if len(rooms) < sh.rq.MinNodes {
			return nil
		}
		a, _ := laySpread(rooms, &sh.rq)
		return a
	}
	idle := func() []*outing {
		k := slices.IndexFunc(nodes, func(c *outing) bool { return len(c.list) > 0 })
		if k < 0 {
			k = len(nodes)
		}
		return nodes[:k]
	}()
	gone = without(nil)
	if r.needless = len(idle) >= sh.rq.MinNodes && lay(idle) != nil; r.needless {
		return nil, nil // jobs that are already being ended make enough room
	}
	cand := map[model.JobID]*victim{}
	every := sh.greedy // also take victims on nodes that already hold a part of the job
	from := func(list []*outing) {
		clear(cand)
		for _, c := range list {
			if len(c.list) == 0 && !every {
				continue
			}
			for _, v := range r.on(c.n) {
				cand[v.j.ID] = v
			}
		}
	}
	gone = func(id model.JobID) bool { return cand[id] != nil }
	var alloc *model.Alloc
	size := min(max(sh.rq.MinNodes, len(idle)+1), len(nodes))
	for ; size > 0; size = min(2*size, len(nodes)) {
		from(nodes[:size])
		if alloc = lay(nodes[:size]); alloc != nil || size == len(nodes) && every {
			break
		}
		every = every || size == len(nodes)
	}
	if alloc == nil {
		return nil, nil
	}
	used := slices.DeleteFunc(slices.Clone(nodes[:size]), func(c *outing) bool {
		return !slices.ContainsFunc(alloc.Nodes, func(na model.NodeAlloc) bool { return na.Node == c.n.def.Name })
	})
	from(used)
	list := make([]*victim, 0, len(cand))
	for _, v := range cand {
		list = append(list, v)
	}
	slices.SortFunc(list, worse)
	gone = func(id model.JobID) bool { return without(list)(id) }
	for i := len(list) - 1; i >= 0; i-- {
		kept := list
		list = slices.Delete(slices.Clone(list), i, i+1)
		if lay(used) == nil {
			list = kept
		}
	}
	if alloc = lay(used); alloc == nil || !r.within(list) {
		return nil, nil
	}
	return alloc, list
}
