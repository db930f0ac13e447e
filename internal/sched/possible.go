package sched

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Impossible is the reason why a job can never run in a partition as it is configured.
type Impossible uint8

// The kinds.
const (
	CanRun Impossible = iota
	TooManyNodes
	TooManyCPUs
	TooMuchMemory
	NoSuchGres
	NoSuchFeature
	NodesNotInPartition
	PartitionNodes // over the partition's MaxNodes, or under its MinNodes
	OverMemLimit   // over MaxMemPerNode
	NoSuchLicense  // or not as many
	NoBlocks       // segments, where the network of the partition has no blocks
	UnevenSegments // no number of nodes that it takes is a multiple of its segment
)

var impossibleNames = [...]string{CanRun: "can run", TooManyNodes: "too many nodes", TooManyCPUs: "too many CPUs",
	TooMuchMemory: "too much memory", NoSuchGres: "no such generic resource", NoSuchFeature: "no such feature",
	NodesNotInPartition: "nodes not in the partition", PartitionNodes: "outside the partition's node limits",
	OverMemLimit: "over the memory limit", NoSuchLicense: "no such license, or not as many",
	NoBlocks:       "the partition's network has no blocks for its segments",
	UnevenSegments: "its number of nodes is no multiple of its segment"}

// String gives the reason in a few words, for logs.
func (i Impossible) String() string {
	if int(i) >= len(impossibleNames) {
		return "unknown"
	}
	return impossibleNames[i]
}

// Possible places the job on the partition's nodes as if they were up and empty: a job that does not fit there can
// never run. On success it gives that allocation. It does not check time limits.
func Possible(v *state.View, sp *model.Spec, part *model.Partition) (Impossible, *model.Alloc) {
	s := newStock(v)
	part = Lifted(v, sp.QOS, part)
	rq := Resolve(sp, part, s.params)
	rq.Switches = 0 // the wish for few switches ends after a time
	if !licensable(v.Config(), &rq) {
		return NoSuchLicense, nil
	}
	for _, name := range sp.ReqNodes {
		if !slices.Contains(part.Nodes, name) {
			return NodesNotInPartition, nil
		}
	}
	if why := rq.outside(sp, part); why != CanRun {
		return why, nil
	}
	if why := rq.divided(s); why != CanRun {
		return why, nil
	}
	defs := make([]*model.NodeDef, 0, len(part.Nodes))
	for _, name := range part.Nodes {
		if def := v.Made(name); def != nil {
			defs = append(defs, def)
		}
	}
	byWeight := func(a, b *model.NodeDef) int { return cmp.Compare(a.Weight, b.Weight) }
	if !slices.IsSortedFunc(defs, byWeight) {
		slices.SortStableFunc(defs, byWeight)
	}
	m := missNodes
	if rq.MaxNodes == 1 { // most jobs: the first node that fits is enough, so no rooms are made for the others
		for _, def := range defs {
			a, _, why := lay([]*room{s.empty(def)}, 0, &rq)
			if a != nil {
				return CanRun, a
			}
			m = max(m, why)
		}
	} else {
		rooms := make([]*room, 0, len(defs))
		for _, def := range defs {
			rooms = append(rooms, s.empty(def))
		}
		var a *model.Alloc
		if a, _, m = lay(rooms, 0, &rq); a != nil {
			return CanRun, a
		}
	}
	switch m {
	case missCPUs:
		return TooManyCPUs, nil
	case missMemory:
		return TooMuchMemory, nil
	case missGres:
		return NoSuchGres, nil
	case missFeature:
		return NoSuchFeature, nil
	}
	return TooManyNodes, nil
}

// Outside gives the limit on nodes or memory of the partition that a job breaks, or CanRun.
func Outside(v *state.View, sp *model.Spec, part *model.Partition) Impossible {
	part = Lifted(v, sp.QOS, part)
	rq := Resolve(sp, part, &v.Config().Params)
	return rq.outside(sp, part)
}

// outside gives the limit of the partition that a request breaks.
func (rq *Request) outside(sp *model.Spec, part *model.Partition) Impossible {
	switch {
	case rq.MaxNodes < rq.MinNodes, sp.MaxNodes > 0 && max(int(sp.MaxNodes), len(sp.ReqNodes)) < int(part.MinNodes):
		return PartitionNodes
	case rq.MaxMem > 0 && rq.MemPerNode > rq.MaxMem:
		return OverMemLimit
	case rq.MaxMem > 0 && rq.MemPerCPU > 0 && rq.MemPerCPU*int64(rq.CPUsFor(rq.PerNode, 0)) > rq.MaxMem:
		return OverMemLimit
	}
	return CanRun
}

// divided says why a request with segments has a place nowhere, whatever is free: none would be whole.
func (rq *Request) divided(s *stock) Impossible {
	switch k := rq.Segment; {
	case k <= 0:
		return CanRun
	case s.network(rq.topology).blocks == nil:
		return NoBlocks
	case rq.MinNodes > k && (rq.MinNodes+k-1)/k*k > rq.MaxNodes:
		return UnevenSegments
	}
	return CanRun
}

// A job that asks for more than its reservation has can't start in it, whatever ends. It is told so when it is
// submitted; where the reservation shrinks later, its reason says it. Nodes are counted, not laid out: what Within lets
// through may still not fit, for the way in which cores or GPUs lie.

// tooLittle is what people read behind the reason Reservation.
const tooLittle = "its reservation has less than the job asks for, even when nothing else is in it"

// Within reports whether one of the reservations that a job asks for could hold it in a partition, were nothing else in
// it.
func Within(v *state.View, sp *model.Spec, part *model.Partition) bool {
	names := sp.ReservationNames()
	if len(names) == 0 {
		return true
	}
	s := newStock(v)
	part = Lifted(v, sp.QOS, part)
	rq := Resolve(sp, part, s.params)
	for _, name := range names {
		r := v.Reservation(name)
		if r == nil || r.Roams() {
			return true
		}
		some := 0
		for i, node := range r.Nodes {
			d := v.Made(node)
			if d == nil || !slices.Contains(part.Nodes, node) {
				continue
			}
			c, l := s.capacity(d), s.lot(d)
			if part := r.Part(i); part != nil {
				c.only(partOf(d, part), l)
			}
			whole, least := needOn(d, l, &rq, rq.TasksOn(1), true), needOn(d, l, &rq, rq.PerNode, false)
			if rq.single() && whole.in(&c) {
				return true
			}
			if least.in(&c) {
				some++
			}
		}
		if rq.MaxNodes > 1 && some >= max(2, rq.MinNodes) {
			return true
		}
	}
	return false
}

// beyond reports whether a shape asks for more than its reservation has, and the next ones for more than theirs.
func (p *Planner) beyond(sh *shape) bool {
	for ; sh != nil; sh = sh.next {
		if sh.rq.Reservation == "" || p.roams[sh.rq.Reservation] || p.v.Reservation(sh.rq.Reservation) == nil {
			return false
		}
		if sh.withinAt != p.windowTurn || p.forgetful {
			sh.within, sh.withinAt = p.holds(sh), p.windowTurn
		}
		if sh.within {
			return false
		}
	}
	return true
}

// holds reports whether a shape's reservation could hold it, were nothing else in it.
func (p *Planner) holds(sh *shape) bool {
	some := 0
	for _, n := range sh.pool.nodes {
		i := slices.IndexFunc(n.wins, func(w window) bool { return w.name == sh.rq.Reservation })
		if i < 0 {
			continue
		}
		c := *p.capacity(n.class)
		if part := n.wins[i].part; part != nil {
			c.gres = slices.Clone(c.gres)
			c.only(part, n.room.lot)
		}
		if sh.single && sh.whole[n.class.at].in(&c) {
			return true
		}
		if sh.least[n.class.at].in(&c) {
			some++
		}
	}
	return sh.spread && some >= max(2, sh.rq.MinNodes) // on one it is all of it
}

// only leaves no more of a node than a reservation has of it, and nobody may have the node alone. Its jobs may have
// memory beside that (divide).
func (c *counts) only(part *hold, l *lot) {
	c.cpus = min(c.cpus, part.cpus)
	for k := range min(len(part.gres), len(c.gres)) {
		if l == nil || !l.shared[k] { // a GPU that is reserved may be had in shares
			c.gres[k] = min(c.gres[k], part.gres[k])
		}
	}
	c.users++
	if l == nil || slices.ContainsFunc(l.kinds, func(k lotKind) bool {
		return slices.ContainsFunc(k.entry, func(e int) bool { return e >= 0 && part.gres[e] > 0 })
	}) { // of which GPUs its shares are is not fixed
		return
	}
	whole, slots := slices.Clone(part.gres), c.gres[l.entries:]
	for u := range l.gpus {
		if e := l.gpus[u].entry; e >= 0 {
			if whole[e]--; whole[e] < 0 {
				slots[u*l.stride+slotWhole] = 0
			}
		}
	}
}

// single reports whether a job may be on one node.
func (rq *Request) single() bool { return rq.MinNodes == 1 && !rq.Grow }

// Estimate gives the earliest moment at which a job would fit into a partition if nothing else were queued and no
// limit of an account or QOS held it: now, or when enough running jobs have reached their time limits, and beside the
// advance reservations of others or in its own. A running job without a time limit counts as one of a year, as in
// Slurm. nil means that it fits on no nodes that are up.
//
// It asks the planner's calendar, as Explain does, with an empty queue.
func Estimate(v *state.View, now model.Time, sp *model.Spec, part *model.Partition) (model.Time, *model.Alloc) {
	p := NewPlanner()
	p.sync(v, now, Policy{Backfill: Backfill{On: true, Reserve: -1}})
	p.windows()
	one := *sp
	one.Partitions = []string{part.Name}
	p.admit(&model.Job{ID: state.MaxJobID, Task: model.NoTask, Spec: &one, State: model.Pending, Submit: now,
		Eligible: now})
	e := p.jobs[state.MaxJobID]
	p.open()
	l := e.lanes[0].l
	it := p.newItem(e, l)
	if it.sh == nil {
		return 0, nil
	}
	p.waited(&it)
	if g := p.lodge(&it); g.alloc != nil {
		return now, g.alloc
	}
	at, a, _, _ := p.soonestLicensed(it.sh, it.leastS())
	if a == nil {
		return 0, nil
	}
	return max(at, now+1), a
}
