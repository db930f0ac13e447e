package sched

import (
	"cmp"
	"math"
	"slices"

	"gbatch/internal/model"
)

// Elastic jobs (--elastic=MIN-MAX) start with MIN nodes, as any job of that size does. What a pass leaves when it has
// started what it can, beside all reservations and claims, goes to them: to those of the highest priority first, each
// up to its MAX, within the limits that hold it. A job that the same pass starts grows at once. One that runs does not
// grow again before ElasticPause is over, so that its size does not flap. giveback.go takes from them what others need.
// The network holds for the nodes that come as for those that a job begins with: it grows into its own leaf switch or
// block first, and never beyond what it could have begun with. A job with segments grows by whole ones (segments.go).

// grower is an elastic job that runs, or that this plan starts.
type grower struct {
	j    *model.Job
	prio uint64
	l    *lane
	sh   *shape    // one more node for it; nil: it can't grow
	set  *limitSet // nil: none
	most int       // nodes
	lies *lying    // where its segments are, once it has been looked; nil: not yet, or it has none

	start *model.Start // of this plan; nil: it runs
	alloc *model.Alloc // with what it has got in this plan
	end   model.Time
	leftS int64 // up to its time limit
}

// noteElastic keeps the elastic jobs that have resources.
func (p *Planner) noteElastic(id model.JobID, j *model.Job) {
	if j != nil && j.Spec.Elastic() != nil && j.State.HasResources() && j.State != model.Completing {
		p.elastic[id] = j
	} else {
		delete(p.elastic, id)
	}
	p.growersOld = true
}

// growing gives the elastic jobs with resources, the one that grows first at the head.
func (p *Planner) growing() []grower {
	if !p.growersOld {
		return p.growers
	}
	p.growersOld = false
	known := map[model.JobID]grower{}
	for _, g := range p.growers {
		known[g.j.ID] = g
	}
	p.growers = p.growers[:0]
	for id, j := range p.elastic {
		g, ok := known[id]
		if !ok || g.j.Spec != j.Spec || g.j.Attempt != j.Attempt {
			g = p.growerOf(j, p.laneOf(j.Run.Partition), j.Run.Resv)
			g.prio = uint64(j.Run.Priority)
			if g.prio == 0 {
				g.prio = uint64(j.Priority)
			}
		}
		g.j = j
		p.growers = append(p.growers, g)
	}
	slices.SortFunc(p.growers, growFirst)
	return p.growers
}

func growFirst(a, b grower) int {
	return cmp.Or(cmp.Compare(b.prio, a.prio), cmp.Compare(a.j.ID, b.j.ID))
}

// growerOf makes a grower. One more node is what a job of one node would get.
func (p *Planner) growerOf(j *model.Job, l *lane, resv string) grower {
	g := grower{j: j, l: l, most: int(j.Spec.Elastic().Max)}
	if l.refuse != model.ReasonNone {
		return g
	}
	part := l.part
	if p.lifts {
		part = Lifted(p.v, j.Spec.QOS, part)
	}
	if part.MaxNodes > 0 {
		g.most = min(g.most, int(part.MaxNodes))
	}
	g.most -= g.most % j.Spec.Stride()
	one := *j.Spec
	more := j.Spec.Extra()
	more.Licenses = nil // they are the job's, however many nodes it has
	one.More, one.MinNodes, one.MaxNodes, one.ReqNodes, one.Reservation = &more, 1, 1, nil, resv
	g.sh = p.shapeOf(l, &one, "")
	if p.lim != nil {
		g.set = p.lim.limitsOf(j.Spec, l.part.Name)
	}
	return g
}

// grow gives elastic jobs what the pass has left.
func (p *Planner) grow() {
	if len(p.plan.Starts) >= p.policy.MaxStarts {
		return // it has not looked at the whole queue
	}
	list := p.startsGrow(p.mayGrow())
	if len(list) == 0 {
		return
	}
	var shut []*pool // without backfill, the nodes of a lane wait for the job at its head
	for _, l := range p.lanes {
		if !p.backfills() && l.block != nil {
			shut = append(shut, l.pool)
		}
	}
	for i := range list {
		g := &list[i]
		had := len(g.alloc.Nodes)
		for len(g.alloc.Nodes) < g.most && p.oneMore(g, shut) {
			continue
		}
		got := g.alloc.Nodes[had:]
		switch {
		case len(got) == 0:
		case g.start != nil:
			all := slices.Clone(g.alloc.Nodes)
			slices.SortStableFunc(all, func(a, b model.NodeAlloc) int {
				return cmp.Compare(p.stock.place(a.Node), p.stock.place(b.Node))
			})
			g.start.Alloc = &model.Alloc{Nodes: all}
			if g.j.Spec.Stride() > 1 {
				p.stock.network(g.sh.rq.topology).blocks.inSegments(g.start.Alloc, &g.sh.rq)
			}
		default:
			p.plan.Grow = append(p.plan.Grow, model.Growth{Job: g.j.ID, Attempt: g.j.Attempt, Parts: slices.Clone(got)})
		}
	}
}

// mayGrow gives the running jobs that may grow now.
func (p *Planner) mayGrow() []grower {
	var list []grower
	pause := p.cfg.Params.Elastic.PauseS
	all := p.growing()
	for i := range all {
		run := all[i].j.Run
		if g := &all[i]; g.sh == nil || g.j.State != model.Running || run.Stop != model.NoStop || run.GiveTo != 0 ||
			run.Recall != nil ||
			len(run.Alloc.Nodes) >= g.most || run.Sizes >= model.MaxSizes/2 || p.victims[g.j.ID] != stays ||
			len(p.asked[g.j.ID]) > 0 || g.j.Het != nil {
			continue
		}
		if again := run.SizedAt().Add(pause); again > p.now {
			p.wake = soonerOf(p.wake, again)
			continue
		}
		if p.hopeless(all[i].sh) {
			continue
		}
		g := all[i]
		g.end, g.leftS, g.alloc = p.endOf(g.j), model.Unlimited, &model.Alloc{Nodes: slices.Clip(run.Alloc.Nodes)}
		if d := run.Deadline(); d != 0 {
			if g.leftS = int64(d-p.now) / 1000; g.leftS <= pause {
				continue // it ends before it would have a use for them
			}
		}
		list = append(list, g)
	}
	return list
}

// startsGrow adds the elastic jobs that this plan starts.
func (p *Planner) startsGrow(list []grower) []grower {
	for i := range p.plan.Starts {
		st := &p.plan.Starts[i]
		e := p.jobs[st.Job]
		if e == nil || e.j.Spec.Elastic() == nil || e.j.Het != nil {
			continue
		}
		l := p.laneOf(st.Partition)
		g := p.growerOf(e.j, l, st.Resv)
		if g.sh == nil || len(st.Alloc.Nodes) >= g.most {
			continue
		}
		g.prio, g.start, g.leftS = min(p.priority(e.j, l), math.MaxUint32), st, st.LimitS
		g.alloc = &model.Alloc{Nodes: slices.Clip(st.Alloc.Nodes)}
		g.end = p.endIn(g.sh, p.now, p.plannedS(e.j, st.LimitS))
		list = append(list, g)
	}
	slices.SortStableFunc(list, growFirst)
	return list
}

// oneMore gives a job one more node or segment, if one is free up to its end and no limit refuses it.
func (p *Planner) oneMore(g *grower, shut []*pool) bool {
	var nodes []*node
	var parts []model.NodeAlloc
	if g.sh.rq.Segment > 0 {
		nodes, parts = p.segmentFor(g, shut)
	} else if n, na := p.nodeFor(g, shut); na != nil {
		nodes, parts = []*node{n}, []model.NodeAlloc{*na}
	}
	if len(parts) == 0 || !p.admitsMore(g, parts) {
		return false
	}
	rq := &g.sh.rq
	for i, n := range nodes {
		h := n.holdOf(&parts[i], g.l.part.Name, g.j.Spec, rq.shareAt)
		h.resv = rq.Reservation
		b := booked{n, &parts[i], g.l.part.Name, rq, &h}
		b.apply(p.stock)
		if g.end != forever && (p.backfills() || n.parts) {
			n.insertStep(step{g.end, 1, &h, false})
		}
		n.booked = true
		p.used = append(p.used, n)
		n.update()
	}
	g.alloc.Nodes = append(g.alloc.Nodes, parts...)
	return true
}

// spareFor reports whether a job may have what is free of a node until its end: nothing that is planned needs it.
func (p *Planner) spareFor(g *grower, n *node, nd *nodeNeed, shut []*pool) bool {
	return n.rank == rankUp && g.sh.rq.tier >= n.keep && (!n.dated() || p.cursor.lasts(n, nd, p.now, g.end)) &&
		!slices.ContainsFunc(n.places, func(at place) bool { return slices.Contains(shut, at.pool) })
}

// partOf gives a job's part of a node that is open for it; nil: it does not fit there.
func (p *Planner) partOf(g *grower, n *node, nd *nodeNeed) *model.NodeAlloc {
	r := p.roomUntil(n, g.end).as(&g.sh.rq)
	if n.dated() && p.social && !g.sh.meets(r, nd) {
		return nil
	}
	if na, m := r.place(&g.sh.rq, g.sh.tasks, wholeJob(&g.sh.rq)); m == missNone {
		return &na
	}
	return nil
}

// fails reports whether it is known that nothing is free for a job. It makes its shape ready to be looked for.
func (p *Planner) fails(g *grower) bool {
	sh := g.sh
	if sh.forget {
		sh.from, sh.spent, sh.round = 0, false, 0
	}
	if p.hopeless(sh) || sh.round == p.round && g.end >= sh.failEnd || !p.begun(sh) {
		return true
	}
	p.cursor.of(sh)
	return false
}

// has reports whether a job has a node, or had it and has not left it.
func (g *grower) has(n *node) bool {
	return g.alloc.Place(n.def.Name) >= 0 || g.j.Run != nil && g.j.Run.LeavingAt(n.def.Name) >= 0
}

// nodeFor finds a node for a job that has others, as fitOne does for one that has none.
func (p *Planner) nodeFor(g *grower, shut []*pool) (*node, *model.NodeAlloc) {
	sh := g.sh
	if p.fails(g) {
		return nil, nil
	}
	own, taken := false, false
	kin := g.kin(p.stock.network(sh.rq.topology))
	var best *node
	var with *model.NodeAlloc
	least := tooFar
	for n, nd := range p.enough(sh) {
		if g.has(n) {
			own = true
			continue
		}
		taken = true
		if !p.spareFor(g, n, nd, shut) {
			continue
		}
		far := kin.to(n.def.Name)
		if far >= least {
			own = own || best == nil // another job may be nearer to it
			continue
		}
		if na := p.partOf(g, n, nd); na != nil {
			if best, with, least = n, na, far; far == 0 {
				break
			}
		}
	}
	if best != nil {
		return best, with
	}
	if taken && !own { // only what is planned keeps jobs of this shape from growing
		if sh.round != p.round {
			sh.round, sh.failEnd = p.round, g.end
		}
		sh.failEnd = min(sh.failEnd, g.end)
	}
	return nil, nil
}

// admitsMore reports whether the limits allow a job these nodes too. If they do, it counts them.
func (p *Planner) admitsMore(g *grower, parts []model.NodeAlloc) bool {
	it := item{e: &entry{j: g.j}, sh: g.sh}
	if p.owing(g.l, &it) {
		return false
	}
	if p.lim == nil || g.set == nil {
		return true
	}
	part := g.l.part.Name
	was, _ := allocTRES(p.v, g.alloc, nil, part)
	more := model.Alloc{Nodes: append(slices.Clip(g.alloc.Nodes), parts...)}
	is, node := allocTRES(p.v, &more, nil, part)
	total := p.lim.vector(is)
	add := slices.Clone(total)
	for t, n := range p.lim.vector(was) {
		add[t] -= n
	}
	spent := make([]int64, len(total))
	if run := g.j.Run; run != nil && g.start == nil {
		for t, n := range p.lim.vector(run.SpentBy(p.now)) {
			spent[t] = n / 60_000
		}
	}
	a := &model.Alloc{Nodes: parts}
	if p.lim.refusesMore(g.set, add, total, p.lim.vector(node), spent, g.leftS, a) {
		return false
	}
	p.lim.countMore(g.set, add, g.leftS, a)
	return true
}

// refusesMore reports whether a job that holds total with more nodes, a, which add add, would break a limit. spent is
// what it has used, in units times minutes.
func (lim *limiter) refusesMore(g *limitSet, add, total, node, spent []int64, leftS int64,
	a *model.Alloc) bool {
	mins := min(leftS, maxMinutesS)
	at := func(list []int64, t int) int64 {
		if t < len(list) {
			return list[t]
		}
		return 0
	}
	for i := range g.rules {
		r := &g.rules[i]
		n, over := at(add, r.t), false
		switch r.kind {
		case byCount:
			h := lim.fresh(r.on)
			over = n > 0 && at(h.use, r.t)+h.more(lim.tres[r.t], n, a) > r.limit
		case byRunMins:
			over = n > 0 && at(lim.fresh(r.on).run, r.t)+g.counted(n*mins/60) > r.limit
		case byMins:
			h := lim.spent(r.on)
			over = n > 0 && (at(h.used, r.t) >= r.limit ||
				lim.safe && at(h.used, r.t)+at(h.run, r.t)+g.counted(n*mins/60) > r.limit)
		case perJob:
			over = at(total, r.t) > r.limit
		case perNode:
			over = at(node, r.t) > r.limit
		case jobMins:
			over = at(spent, r.t)+at(total, r.t)*mins/60 > r.limit
		case byJobs, byWall, atLeast: // it is a job already
		}
		if over {
			return true
		}
	}
	return false
}

// kin is where the nodes of a job that grows lie in the network.
type kin struct {
	net      *network // nil: all nodes are alike
	leaves   map[int]bool
	lo, hi   int // the first and the last leaf
	switches int // most leaves that the job wants; 0: any number
	blocks   map[int]bool
	node     string // one of the job's
	level    int    // of the blocks within which the job stays
	never    bool
}

// tooFar is farther than any node that a job may get.
const tooFar = math.MaxInt

// kin looks where a job's nodes lie. The job is bound to the network as one of its size that starts now (layNetwork).
func (g *grower) kin(net *network) *kin {
	rq := &g.sh.rq
	k := &kin{never: rq.Contiguous} // of these all nodes are chosen together
	switch {
	case net.blocks != nil && !net.optional && !rq.Spread:
		k.net, k.blocks, k.level = net, map[int]bool{}, net.blocks.level(len(g.alloc.Nodes)+1)
		for i := range g.alloc.Nodes {
			k.node = g.alloc.Nodes[i].Node
			if b, ok := net.blocks.of[k.node]; ok {
				k.blocks[b] = true
			}
		}
	case net.tree != nil && !rq.Spread && (!net.optional || rq.Switches > 0):
		k.net, k.leaves, k.switches, k.lo, k.hi = net, map[int]bool{}, rq.Switches, math.MaxInt, -1
		for i := range g.alloc.Nodes {
			if leaf, ok := net.tree.leafOf[g.alloc.Nodes[i].Node]; ok {
				k.leaves[leaf], k.lo, k.hi = true, min(k.lo, leaf), max(k.hi, leaf)
			}
		}
	}
	return k
}

// to gives how far a node is from the job's: 0 on a leaf or in a block that the job has, then by the level of what they
// have in common.
func (k *kin) to(node string) int {
	switch {
	case k.never:
		return tooFar
	case k.net == nil:
		return 0
	case k.leaves != nil:
		leaf, ok := k.net.tree.leafOf[node]
		switch {
		case ok && k.leaves[leaf]:
			return 0
		case !ok || k.switches > 0 && len(k.leaves) >= k.switches:
			return tooFar
		}
		least := tooFar
		for i := range k.net.tree.branches {
			if b := &k.net.tree.branches[i]; min(k.lo, leaf) >= b.lo && max(k.hi, leaf) < b.hi {
				least = min(least, 1+b.level)
			}
		}
		return least
	}
	b, ok := k.net.blocks.of[node]
	switch {
	case !ok:
		return tooFar
	case k.blocks[b]:
		return 0
	}
	for level := range k.level + 1 {
		mine, has := k.net.blocks.unit(k.node, level)
		if other, _ := k.net.blocks.unit(node, level); has && mine == other {
			return 1 + level
		}
	}
	return tooFar
}
