package sched

import (
	"math"
	"math/bits"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/sched/demand"
	"gbatch/internal/state"
)

// fitLoose places a whole job on the least loaded node that holds it (LLN). Among the lightest nodes with room it takes
// the one with the most free CPUs, and the first of several.
func (p *Planner) fitLoose(sh *shape, end model.Time) (alloc *model.Alloc, taken bool) {
	pl := sh.pool
	var best *room
	for at := pl.find(0, &sh.wholeB); at < len(pl.nodes); at = pl.find(at+1, &sh.wholeB) {
		n := pl.nodes[at]
		nd := &sh.whole[n.class.at]
		if best != nil && n.weight() > best.weight() {
			break
		}
		if !sh.named(n, true) || !p.has(sh, n, nd) {
			continue
		}
		if sh.rq.tier < n.keep || n.dated() && !p.cursor.lasts(n, nd, p.now, n.until(end)) {
			taken = true
			continue
		}
		r := p.roomUntil(n, n.until(end)).as(&sh.rq)
		if n.dated() && p.social && !sh.meets(r, nd) {
			taken = true
			continue
		}
		if best != nil && r.nfree <= best.nfree {
			continue
		}
		na, m := r.place(&sh.rq, sh.tasks, wholeJob(&sh.rq))
		if m != missNone {
			taken = true
			continue
		}
		best, alloc = r, &model.Alloc{Nodes: []model.NodeAlloc{na}}
	}
	return alloc, taken
}

// costs is what it costs to start a job of a shape on each node of its pool: the waste that it adds (package demand).
type costs struct {
	turn uint64   // Planner.mixTurn
	vers []uint32 // pool.vers when cost was computed
	cost []int64
}

const (
	noPlace   = math.MaxInt64 // the node doesn't hold the job
	badPlace  = noPlace - 1   // it does, but not in a way that can be rated
	maxCosted = 1 << 22       // costs that are kept, over all shapes and nodes
	mostRated = 16            // nodes with room that one decision looks at: the first ones
)

// weighs reports whether the node of a job of the shape is chosen by its cost. Where hardly a job shares a GPU, the
// first node is better: jobs then gather on the first nodes, and whole nodes become free at the end.
func (p *Planner) weighs(sh *shape) bool {
	by := &p.stock.params.GPUSelect
	return p.mix != nil && p.mix.Shares() && sh.pool.shares && !sh.rq.Exclusive && !sh.rq.byUnit() && !by.Spread &&
		!by.FirstNode
}

// costsOf gives a shape's costs; those that are out of date have other versions than the pool.
func (p *Planner) costsOf(sh *shape) *costs {
	if sh.costs == nil || p.forgetful {
		if len(p.costed) >= max(1, maxCosted/len(sh.pool.nodes)) {
			p.costed[0].costs = nil
			p.costed = p.costed[1:]
		}
		p.costed = append(p.costed, sh)
		n := len(sh.pool.nodes)
		sh.costs = &costs{turn: p.mixTurn, vers: make([]uint32, n), cost: make([]int64, n)}
	}
	if c := sh.costs; c.turn != p.mixTurn {
		c.turn = p.mixTurn
		clear(c.vers)
	}
	return sh.costs
}

// fitBest is fitOne for the node with the least cost: of the lightest ones with room, the first of several.
func (p *Planner) fitBest(sh *shape, end model.Time) (alloc *model.Alloc, taken bool) {
	pl, c, first := sh.pool, p.costsOf(sh), true
	best, least, last, rated := -1, int64(noPlace), len(pl.nodes), 0
	for at := pl.find(sh.from, &sh.wholeB); at < last && rated < mostRated; at = pl.find(at+1, &sh.wholeB) {
		if c.vers[at] != pl.vers[at] {
			c.vers[at], c.cost[at] = pl.vers[at], p.costOf(sh, pl.nodes[at])
		}
		cost := c.cost[at]
		if cost == noPlace {
			continue
		}
		n := pl.nodes[at]
		nd := &sh.whole[n.class.at]
		if !sh.named(n, true) || !p.has(sh, n, nd) {
			continue
		}
		if first {
			sh.from, first = at, false
		}
		rated++
		switch {
		case cost >= least:
		case sh.rq.tier < n.keep || n.dated() && !p.cursor.lasts(n, nd, p.now, n.until(end)):
			taken = true
		default:
			if best < 0 {
				last = int(pl.group[at])
			}
			best, least = at, cost
		}
	}
	if first {
		sh.from = len(pl.nodes)
	}
	if best < 0 {
		return nil, taken
	}
	n := pl.nodes[best]
	r := p.roomUntil(n, n.until(end)).as(&sh.rq)
	if !n.dated() || !p.social || sh.meets(r, &sh.whole[n.class.at]) {
		if na, m := r.place(&sh.rq, sh.tasks, wholeJob(&sh.rq)); m == missNone {
			return &model.Alloc{Nodes: []model.NodeAlloc{na}}, taken
		}
	}
	alloc, _ = p.fitFirst(sh, end)
	return alloc, true
}

// costOf computes the cost of a start on a node.
func (p *Planner) costOf(sh *shape, n *node) int64 {
	nd := &sh.whole[n.class.at]
	if !n.up() || n.room.shut || !nd.in(&n.free) {
		return noPlace
	}
	t, r := p.tableOf(n), &n.rated
	if r.turn != p.mixTurn || r.vers != n.vers {
		r.turn, r.vers = p.mixTurn, n.vers
		if r.left, r.ok = n.left(p.stock.params.MemConsumed); r.ok {
			r.waste = t.Waste(r.left)
		}
	}
	s, need := r.left, nd.taken(n.def)
	if !r.ok || !s.Start(&need) {
		return badPlace
	}
	return t.Waste(s) - r.waste + p.unlinked(n, int(need.GPUs))
}

// rated is what a node has left, with its waste.
type rated struct {
	turn  uint64 // Planner.mixTurn and node.vers when it was computed
	vers  uint32
	ok    bool // it can be rated
	left  demand.State
	waste int64
}

// unlinked is what it costs a job that its GPUs would have fewer links between them than GPUs of an empty node: as if a
// part of them were wasted, in each of the estimates of demand.Waste.
func (p *Planner) unlinked(n *node, count int) int64 {
	if count < 2 {
		return 0
	}
	m := p.stock.gpus.of(n.def, gpuName)
	if m == nil || m.units > maxExhaustive {
		return 0
	}
	free := uint64(0)
	for i := range n.room.gres {
		if g := &n.room.gres[i]; g.name == gpuName && len(g.free) > 0 {
			free |= g.free[0]
		}
	}
	best := m.most(1<<m.units-1, count)
	if best == 0 || bits.OnesCount64(free) < count {
		return 0
	}
	return demand.Lost(count) * int64(best-m.most(free, count)) / int64(best)
}

// left gives what a node has free, to be rated; ok is false if it has too many GPUs for that.
func (n *node) left(memory bool) (s demand.State, ok bool) {
	s.CPUs = int32(n.free.cpus)
	if memory {
		s.MemMiB = n.free.mem
	}
	if l := n.room.lot; l != nil {
		if len(l.gpus) > demand.MaxGPUs {
			return s, false
		}
		s.GPUs = int8(len(l.gpus))
		for u := range l.gpus {
			s.Free[u] = int16(l.milli(n.free.gres[l.entries:], u))
		}
		return s, true
	}
	all := 0
	for i := range n.def.Gres {
		if g := &n.def.Gres[i]; g.Name == gpuName {
			all += int(g.Count)
		}
	}
	if all > demand.MaxGPUs {
		return s, false
	}
	s.GPUs = int8(all)
	for u := range min(max(0, n.gpus), all) {
		s.Free[u] = 1000
	}
	return s, true
}

// milli gives what a GPU has free, in thousandths.
func (l *lot) milli(slots []int, u int) int {
	s := slots[u*l.stride:]
	if s[slotWhole] < 1 || l.gpus[u].entry < 0 {
		return 0
	}
	out := 1000
	for k := range l.kinds {
		if have, all := s[1+k], int(l.kinds[k].count[u]); have < all {
			out = min(out, max(0, have)*1000/all)
		}
	}
	return out
}

// taken gives what a job with this need takes of a node.
func (nd *nodeNeed) taken(d *model.NodeDef) (n demand.Need) {
	n.CPUs, n.MemMiB = int32(nd.cpus), max(0, nd.mem)
	for _, g := range nd.gres {
		for i := range min(64, len(d.Gres)) {
			if g.of&(1<<uint(i)) != 0 && d.Gres[i].Name == gpuName {
				n.GPUs = max(n.GPUs, int32(g.count))
			}
		}
	}
	if len(nd.shares) > 0 && n.GPUs == 0 {
		s := &nd.shares[0]
		for u, units := range s.units {
			if units > 0 {
				n.Milli = milliOf(units, nd.lot.kinds[s.kind].count[u])
				break
			}
		}
	}
	return n
}

// milliOf gives a part of a GPU in thousandths, rounded up.
func milliOf(units, of int32) int32 { return (units*1000 + of - 1) / max(1, of) }

// tableOf gives the table that rates a node.
func (p *Planner) tableOf(n *node) *demand.Table {
	if p.tables == nil {
		p.tables = make([]*demand.Table, len(p.classes))
	}
	d := n.class.def
	if t := p.tables[n.class.at]; t != nil {
		return t
	}
	l := p.stock.lot(d)
	p.tables[n.class.at] = p.mix.For(func(k *demand.Kind) demand.Need { return p.needOfKind(d, l, k) })
	return p.tables[n.class.at]
}

// needOfKind gives what a kind of job needs of nodes with a hardware.
func (p *Planner) needOfKind(d *model.NodeDef, l *lot, k *demand.Kind) demand.Need {
	n := demand.Need{CPUs: k.CPUs, GPUs: k.GPUs, Never: int(k.CPUs) > d.JobCPUCount()}
	if p.stock.params.MemConsumed {
		n.MemMiB = k.MemMiB
		n.Never = n.Never || k.MemMiB > d.JobMemMiB()
	}
	there := false
	for i := range d.Gres {
		g := &d.Gres[i]
		there = there || g.Name == gpuName && model.TypeFits(gpuName, k.Type, g.Type)
	}
	n.Never = n.Never || !there
	if k.Share == "" {
		return n
	}
	x := -1
	if l != nil {
		x = l.kind(k.Share)
	}
	if x < 0 {
		n.Never = true
		return n
	}
	of := slices.Max(l.kinds[x].count)
	units := k.Units
	if k.Milli > 0 {
		units = model.ShareCount(k.Milli, of)
	}
	n.Milli = milliOf(units, of)
	return n
}

// Wants says what a job asks for on each of so many nodes, for package demand; 0 nodes if its partition is not known.
func Wants(v *state.View, j *model.Job) (k demand.Kind, nodes int) {
	if len(j.Spec.Partitions) == 0 || len(j.Spec.Gres) == 0 {
		return k, 0
	}
	part := v.Partition(j.Spec.Partitions[0])
	if part == nil {
		return k, 0
	}
	rq := Resolve(j.Spec, part, &v.Config().Params)
	tasks := rq.PerNode
	nodes = max(1, rq.MinNodes)
	if rq.single() {
		tasks = rq.TasksOn(1)
	}
	byJob := (rq.JobGPUs() + nodes - 1) / nodes
	for i := range rq.Gres {
		g := &rq.Gres[i]
		switch {
		case model.IsShare(g.Name):
			k.Share, k.Units, k.Milli = g.Name, g.Count, g.Milli
		case g.Name != gpuName:
			continue
		case g.Per == model.PerTask:
			k.GPUs += g.Count * int32(tasks)
		case g.Per == model.PerNode:
			k.GPUs += g.Count
		}
		if g.Type != "" {
			k.Type = strings.ToLower(g.Type)
		}
	}
	k.GPUs += int32(byJob)
	k.CPUs = int32(rq.CPUsFor(tasks, byJob))
	switch {
	case rq.ByGPU:
		k.MemMiB = rq.GPUMemNode + rq.GPUMemTask*int64(tasks) + rq.GPUMemJob*int64(byJob)
	case rq.MemPerNode > 0:
		k.MemMiB = rq.MemPerNode
	case rq.MemPerCPU > 0:
		k.MemMiB = rq.MemPerCPU * int64(k.CPUs)
	}
	return k, nodes
}

// waited updates a job's shape after its waits: a job that has waited long enough for few switches takes any nodes, and
// after AvoidUntil it takes nodes again that could not launch it. The wait for switches begins when the job is
// eligible. Until a wait is over, Wake asks for a new plan at its end.
func (p *Planner) waited(it *item) {
	if it.anywhere != nil {
		if until := it.e.j.AvoidUntil; until <= p.now {
			it.sh, it.anywhere = it.anywhere, nil
		} else {
			p.wake = soonerOf(p.wake, until)
		}
	}
	sh := it.sh
	if sh == nil || sh.relaxed == nil {
		return
	}
	most := p.cfg.Params.SwitchWaitS
	if m := it.e.j.Spec.More; m != nil && m.SwitchWaitS != model.NotSet {
		most = min(most, m.SwitchWaitS)
	}
	if over := it.e.j.Eligible.Add(most); over <= p.now {
		it.sh = sh.relaxed
	} else {
		p.wake = soonerOf(p.wake, over)
	}
}

// keepOff excludes the nodes that could not launch a job, until AvoidUntil (see waited). It excludes no node that the
// job asks for by name, and if every node of the partition has failed to launch the job, it excludes none.
func (p *Planner) keepOff(it *item, l *lane) {
	j := it.e.j
	if len(j.Avoid) == 0 {
		return
	}
	avoid := slices.DeleteFunc(slices.Clone(j.Avoid), func(n string) bool { return slices.Contains(j.Spec.ReqNodes, n) })
	other := slices.ContainsFunc(l.pool.nodes, func(n *node) bool {
		return !slices.Contains(avoid, n.def.Name) && !slices.Contains(j.Spec.ExcNodes, n.def.Name)
	})
	if len(avoid) == 0 || !other {
		return
	}
	sp := new(model.Spec)
	*sp = *j.Spec
	sp.ExcNodes = append(slices.Clone(sp.ExcNodes), avoid...)
	it.anywhere, it.sh = it.sh, p.shapeOf(l, sp, p.attractedTo(j))
}
