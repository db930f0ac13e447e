package sched

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
)

// node is one node of the configuration, kept from pass to pass.
type node struct {
	def    *model.NodeDef
	class  *nodeClass
	rec    *model.Node // as last seen; nil: not there
	usable bool        // it takes jobs
	rank   uint8       // rankOf the node
	boot   model.Time  // how long it takes at most until it is up, ms; 0: it is
	rel    []release
	steps  []step
	free   counts // what is free, less this plan's starts
	room   room   // the same, with the units by number
	gpus   int
	first  model.Time // scratch of soonestMany
	resvs  int
	wins   []window
	parts  bool // some of its windows take only a part of the node
	keep   int  // a blocked job of a partition of this tier waits for the node: partitions of lower tiers don't get it
	places []place
	vers   uint32 // grows when its free capacity changes
	rated  rated

	booked  bool          // this plan starts a job here
	dirty   bool          // the record must be read again
	touched []model.JobID // jobs on it that have changed
	judged  uint64        // Planner.pass in which over was computed
	over    bool          // more of it is promised than it will have
}

// place is a node's position in a pool.
type place struct {
	pool *pool
	pos  int
}

// The ranks of nodes. As in Slurm, jobs get nodes that are up first, then those that are on their way up, and those
// that are off last, whatever their weights.
const (
	rankUp uint8 = iota
	rankRises
	rankOff
)

func rankOf(n *model.Node) uint8 {
	switch {
	case n == nil:
		return rankUp
	case n.PowerStep() == model.PoweredDown:
		return rankOff
	case n.PowerStep() == model.PoweringUp:
		return rankRises
	}
	return rankUp
}

// weight is room.weight of the node's room.
func (n *node) weight() int64 { return int64(n.rank)<<32 | int64(n.def.Weight) }

// until gives the end of a job that would end at a moment if the node were up.
func (n *node) until(end model.Time) model.Time { return min(end+n.boot, forever) }

// ending gives the function of the ends of jobs that begin at a moment, until applied.
func (n *node) ending(end func(model.Time) model.Time) func(model.Time) model.Time {
	if n.boot == 0 {
		return end
	}
	return func(at model.Time) model.Time { return n.until(end(at)) }
}

// in reports whether the node belongs to a pool.
func (n *node) in(pl *pool) bool {
	return slices.ContainsFunc(n.places, func(x place) bool { return x.pool == pl })
}

// up reports whether the node takes jobs.
func (n *node) up() bool { return n.rec != nil && n.usable }

// pool has the nodes of one or more partitions, in the order in which they are filled (by rank and weight, then as
// configured), with an index of their free capacity. The index is a tree of maxima: it finds the first node with enough
// room from a position on without looking at full nodes.
type pool struct {
	given  []*node // as configured
	nodes  []*node
	size   int // leaves, a power of two
	cpus   []int32
	mem    []int64
	gpus   []int32
	vers   []uint32 // by position, grows when a node's free capacity changes
	group  []int32  // by position: where the nodes of the same weight end
	shares bool     // some node has GPUs that jobs can share

	grown []int32 // positions of nodes that have gained free capacity, in order of events
	lost  int     // number of events that are forgotten

	empty, all []*room // rooms of the nodes that are up, and of all nodes, as if empty: see whyNot
	emptyAt    uint64  // Planner.usable when they were made
}

// maxGrown bounds what a pool remembers of its nodes' growth, in events.
const maxGrown = 4096

func newPool(nodes []*node) *pool {
	given := nodes
	nodes = slices.Clone(nodes)
	slices.SortStableFunc(nodes, func(a, b *node) int { return cmp.Compare(a.weight(), b.weight()) })
	pl := &pool{given: given, nodes: nodes, size: 1}
	for pl.size < len(nodes) {
		pl.size *= 2
	}
	pl.cpus, pl.mem, pl.gpus = make([]int32, 2*pl.size), make([]int64, 2*pl.size), make([]int32, 2*pl.size)
	for i := range pl.cpus {
		pl.cpus[i], pl.mem[i], pl.gpus[i] = -1, -1<<62, -1
	}
	pl.vers, pl.group = make([]uint32, len(nodes)), make([]int32, len(nodes))
	for pos, n := range nodes {
		n.places = append(n.places, place{pl, pos})
		pl.vers[pos] = 1
		pl.shares = pl.shares || slices.ContainsFunc(n.def.Gres, func(g model.GresDef) bool { return len(g.Over) > 0 })
	}
	end := len(nodes)
	for pos := len(nodes) - 1; pos >= 0; pos-- {
		if pos+1 < len(nodes) && nodes[pos+1].weight() != nodes[pos].weight() {
			end = pos + 1
		}
		pl.group[pos] = int32(end)
	}
	return pl
}

// set notes what the node at pos has free; none where it takes no jobs.
func (pl *pool) set(pos int, n *node) {
	pl.vers[pos]++
	cpus, mem, gpus := int32(-1), int64(-1<<62), int32(-1)
	if n.up() && !n.room.shut {
		cpus, mem, gpus = int32(n.free.cpus), n.free.mem, int32(n.gpus)
	}
	i := pl.size + pos
	pl.cpus[i], pl.mem[i], pl.gpus[i] = cpus, mem, gpus
	for i /= 2; i > 0; i /= 2 {
		c, m, g := max(pl.cpus[2*i], pl.cpus[2*i+1]), max(pl.mem[2*i], pl.mem[2*i+1]), max(pl.gpus[2*i], pl.gpus[2*i+1])
		if c == pl.cpus[i] && m == pl.mem[i] && g == pl.gpus[i] {
			return
		}
		pl.cpus[i], pl.mem[i], pl.gpus[i] = c, m, g
	}
}

// bound is the least free capacity with which a node is looked at.
type bound struct {
	cpus int32
	mem  int64
	gpus int32
}

func (pl *pool) meets(i int, b *bound) bool {
	return pl.cpus[i] >= b.cpus && pl.mem[i] >= b.mem && pl.gpus[i] >= b.gpus
}

// find gives the first position from on that meets a bound, or the number of nodes.
func (pl *pool) find(from int, b *bound) int {
	if from >= len(pl.nodes) {
		return len(pl.nodes)
	}
	i := pl.size + from
	for {
		if pl.meets(i, b) {
			if i >= pl.size {
				return i - pl.size
			}
			i *= 2
			continue
		}
		for i&1 == 1 { // up, until there is a right neighbour
			i /= 2
		}
		if i == 0 {
			return len(pl.nodes)
		}
		i++
	}
}

// update writes a node's free capacity into the pools that it is in.
func (n *node) update() {
	n.gpus = 0
	n.vers++
	for i := range n.room.gres {
		if n.room.gres[i].name == gpuName {
			n.gpus += n.room.gres[i].nfree
		}
	}
	for _, at := range n.places {
		at.pool.set(at.pos, n)
	}
}

// gpuName is the generic resource that pools have an index over.
const gpuName = model.GPUName

// grew tells the pools that a node has gained free capacity.
func (n *node) grew() {
	for _, at := range n.places {
		pl := at.pool
		if len(pl.grown) >= maxGrown {
			pl.lost += len(pl.grown)
			pl.grown = pl.grown[:0]
		}
		pl.grown = append(pl.grown, int32(at.pos))
	}
}
