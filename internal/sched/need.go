package sched

import (
	"fmt"
	"math"
	"slices"

	"gbatch/internal/model"
)

// nodeClass is a group of nodes with equal hardware, so that a job's need is computed once for all of them.
type nodeClass struct {
	at   int
	def  *model.NodeDef // of one of these nodes
	full *counts        // capacity of an empty node; computed when it is first needed
}

// classKey is equal for nodes with equal hardware.
func classKey(d *model.NodeDef) string {
	return fmt.Sprintf("%d|%s|%d|%d|%d|%d|%d|%q|%v|%t", d.CPUs, d.Kept, d.Sockets, d.CoresPerSocket, d.ThreadsPerCore,
		d.JobMemMiB(), d.TmpMiB, d.Features, d.Gres, d.External)
}

// nodeNeed is the least that a node must have free to take the whole job, or its least part of a job on several nodes.
type nodeNeed struct {
	never bool // no node of the class can hold it
	idle  bool // no other job may be on the node
	tasks int  // of the job on the node
	whole bool // these are all of them
	cpus  int
	mem   int64
	gres  []gresNeed

	lot             *lot // how the node's GPUs are shared, if the job needs GPUs of such a node; otherwise nil
	gpus            []gpuNeed
	shares          []shareNeed
	place, per, all int // for shared CPUs: the partition's place, jobs per CPU, the node's CPUs
}

// gresNeed is a number of units from any of several of the node's entries.
type gresNeed struct {
	of    uint64 // entries, as bits
	count int
}

// in reports whether the free capacity c meets the need.
func (nd *nodeNeed) in(c *counts) bool {
	if nd.never || c.cpus < nd.cpus || c.mem < nd.mem || nd.idle && c.users > 0 {
		return false
	}
	if nd.place > 0 {
		if !nd.slotsIn(c) {
			return false
		}
	} else if c.sharers > 0 {
		return false
	}
	for i := range nd.gres {
		left, of := nd.gres[i].count, nd.gres[i].of
		for k := range c.gres {
			if of&(1<<uint(k)) != 0 {
				left -= c.gres[k]
			}
		}
		if left > 0 {
			return false
		}
	}
	return nd.lot == nil || nd.lot.meets(nd, c)
}

// needOn computes what a node of a class must have free for a number of tasks. whole means that these are all tasks of
// the job, so that per-job resources come from this node too. l says how the class's GPUs are shared, nil if they are
// not.
func needOn(d *model.NodeDef, l *lot, rq *Request, tasks int, whole bool) nodeNeed {
	r := &room{def: d}
	gpus := 0
	if whole {
		gpus = rq.JobGPUs()
	}
	nd := nodeNeed{tasks: tasks, whole: whole, cpus: r.round(rq, tasks, rq.CPUsFor(tasks, gpus)),
		idle: rq.Exclusive, mem: math.MinInt64}
	threads := max(1, int(d.ThreadsPerCore))
	all := d.JobCPUCount()
	if rq.wholeCores {
		all -= all % threads
	}
	nd.never = !rq.suits(d) || whole && !rq.alone(d) || nd.cpus > all ||
		rq.MaxCPUs > 0 && nd.cpus > rq.MaxCPUs || rq.perSocket > 0 && nd.cpus > rq.perSocket*r.sockets() ||
		rq.TasksPerNode > 0 && tasks > rq.TasksPerNode
	if rq.MaxMem > 0 && (rq.MemPerNode > rq.MaxMem || rq.MemPerNode == 0 && rq.MemPerCPU > 0 && !rq.Exclusive &&
		rq.MemPerCPU*int64(nd.cpus) > rq.MaxMem) {
		nd.never = true
	}
	if rq.Exclusive || rq.wholeNode {
		nd.cpus = all
	}
	nd.place, nd.per, nd.all = rq.shareAt, rq.Share, all
	if rq.memConsumed {
		nd.mem = r.memFor(rq, nd.cpus, tasks, gpus)
	}
	if rq.byUnit() && !nd.never {
		nd.never = !classRoom(d, l, rq).gives(rq, tasks, whole)
	}
	nd.resources(d, rq, tasks, whole)
	nd.share(l, d, rq)
	return nd
}

// classRoom is all that a node of a class has, with the GPUs that it shares.
func classRoom(d *model.NodeDef, l *lot, rq *Request) *room {
	r := fullRoom(d)
	if l != nil {
		r.lot, r.slots = l, l.slots()
	}
	if rq.wholeCores {
		r.wholeCores()
	}
	return r
}

// resources sets the need of generic resources.
func (nd *nodeNeed) resources(d *model.NodeDef, rq *Request, tasks int, whole bool) {
	count := func(g *model.GresReq) int {
		switch {
		case g.Per == model.PerTask:
			return int(g.Count) * tasks
		case g.Per == model.PerJob && !whole:
			return 0
		}
		return int(g.Count)
	}
	sum := func(name, typ string) {
		x := gresNeed{}
		for i := range rq.Gres {
			if g := &rq.Gres[i]; g.Name == name && model.TypeFits(name, typ, g.Type) {
				x.count += count(g)
			}
		}
		for i := range d.Gres {
			if e := &d.Gres[i]; i < 64 && e.Name == name && model.TypeFits(name, typ, e.Type) && rq.fitsGPU(e) {
				x.of |= 1 << uint(i)
			}
		}
		if x.count > 0 && !slices.Contains(nd.gres, x) {
			nd.gres = append(nd.gres, x)
			nd.never = nd.never || x.of == 0
		}
	}
	for i := range rq.Gres {
		g := &rq.Gres[i]
		if count(g) == 0 || divides(d, g.Name) {
			continue
		}
		sum(g.Name, g.Type)
		if g.Type != "" {
			sum(g.Name, "")
		}
	}
}

// divides reports whether a node's GPUs are shared by a resource.
func divides(d *model.NodeDef, name string) bool {
	for i := range d.Gres {
		if d.Gres[i].Name == name && len(d.Gres[i].Over) > 0 {
			return true
		}
	}
	return false
}

// fitsGPU reports whether units of an entry have the memory that the job wants of each GPU.
func (r *Request) fitsGPU(g *model.GresDef) bool {
	return r.GPUMem == 0 || g.Name != gpuName || r.GPUMem <= g.MemMiB-r.gpuMargin
}

// capacity is what an empty node of a class has.
func (s *stock) capacity(d *model.NodeDef) counts { return countsOf(s.empty(d), 0) }

// countsOf counts what is free in a room.
func countsOf(r *room, users int) counts {
	c := counts{cpus: r.nfree, mem: r.mem, users: users, plain: r.plain, sharers: r.sharers}
	if c.share = r.used(); r.sharers > 0 && r.plain == 0 { // share counts these CPUs
		c.cpus = r.stock.whole(r.def)
	}
	if len(r.gres) > 0 {
		c.gres = make([]int, len(r.gres))
		for i := range r.gres {
			c.gres[i] = r.gres[i].nfree
		}
	}
	if r.lot != nil {
		c.gres = append(c.gres, r.slots...)
		r.lot.sums(r.slots, c.gres)
	}
	return c
}
