package sched

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
)

// GPUs by socket (--gpus-per-socket with --sockets-per-node): on each node the job gets that many sockets, and of each
// socket that many GPUs and at least one core. The calendar counts them as any GPUs of the node; their sockets are
// checked when the job would start. If gres.conf gives no cores for any GPU, any GPUs will do.

// socketGPUs is what a socket has free.
type socketGPUs struct {
	socket int
	cpus   model.Bits
	gpus   model.Bits
}

// onSockets gives the sockets of a node that have what the job wants of each socket, those with the fewest free GPUs
// first. known is false if the configuration doesn't say which GPU is near which socket.
func (r *room) onSockets(rq *Request) (out []socketGPUs, known bool) {
	each := int(r.def.CPUs) / r.sockets()
	for s := range r.sockets() {
		x := socketGPUs{socket: s, cpus: r.socket(rq, s)}
		here := span(s*each, each)
		all := true
		for i := range rq.OfSocket {
			units := model.Bits(nil)
			for k := range r.gres {
				g, d := &r.gres[k], &r.def.Gres[k]
				if g.name != gpuName || !model.TypeFits(gpuName, rq.OfSocket[i].Type, g.typ) || !rq.fitsGPU(d) {
					continue
				}
				g.free.Each(func(u int) bool {
					at := u - int(d.First)
					near := at < len(d.Near) && !d.Near[at].Empty()
					known = known || near
					if !near || d.Near[at].Overlaps(here) {
						units = units.With(u)
					}
					return true
				})
			}
			all = all && units.Count() >= int(rq.OfSocket[i].Count)
			x.gpus = x.gpus.Or(units)
		}
		if all && !x.cpus.Empty() {
			out = append(out, x)
		}
	}
	slices.SortStableFunc(out, func(a, b socketGPUs) int { return cmp.Compare(a.gpus.Count(), b.gpus.Count()) })
	return out, known
}

// pickBySocket adds the job's GPUs to na and returns the CPUs of their sockets, one set a socket. ok is false if too
// few sockets have enough GPUs.
func (r *room) pickBySocket(na *model.NodeAlloc, rq *Request, cpus int) (near []model.Bits, ok bool) {
	list, known := r.onSockets(rq)
	if r.counted || !known {
		for _, g := range rq.OfSocket {
			if !r.pick(na, rq, g, int(g.Count)*rq.Sockets, cpus) {
				return nil, false
			}
		}
		return nil, true
	}
	for _, x := range list {
		if len(near) == rq.Sockets {
			break
		}
		part := *r // as if the socket were all of the node
		part.gres = slices.Clone(r.gres)
		for k := range part.gres {
			if g := &part.gres[k]; g.name == gpuName {
				g.free = g.free.Minus(g.free.Minus(x.gpus))
				g.nfree = g.free.Count()
			}
		}
		take := model.NodeAlloc{Gres: slices.Clone(na.Gres)}
		all := true
		for _, g := range rq.OfSocket {
			all = all && part.pick(&take, rq, g, int(g.Count), cpus)
		}
		if all { // a GPU near two sockets may have gone to the one before
			na.Gres, near = take.Gres, append(near, x.cpus)
		}
	}
	return near, len(near) == rq.Sockets
}

// cpusBySocket chooses the job's CPUs: evenly from each of its sockets, then from any socket. Of CPUs that jobs share
// it takes those that the fewest have.
func (r *room) cpusBySocket(rq *Request, count int, sockets []model.Bits) model.Bits {
	_, threads := r.usable(rq)
	unit := 1
	if r.inCores(rq) {
		unit = threads
	}
	first := func(free model.Bits, n int) model.Bits {
		if r.levels == nil {
			return free.First(n)
		}
		part := room{levels: slices.Clone(r.levels)}
		for i := range part.levels {
			part.levels[i] = part.levels[i].And(free)
		}
		return part.least(n)
	}
	var out model.Bits
	left := count / unit
	for i, free := range sockets {
		free = free.Minus(out)
		n := min((left+len(sockets)-i-1)/(len(sockets)-i), free.Count()/unit)
		out = out.Or(first(free, n*unit))
		left -= n
	}
	for _, free := range append(slices.Clone(sockets), r.cpus) {
		if out.Count() < count {
			rest := free.Minus(out)
			out = out.Or(first(rest, min(count-out.Count(), rest.Count())))
		}
	}
	if out.Count() < count {
		return nil
	}
	return out
}

// namedFrom gives the first moment from at on at which the node has the GPUs that the job asks for by socket or by
// number. Every job that is expected to have ended by then counts as gone. At at itself the node has enough GPUs by
// count.
func (p *Planner) namedFrom(sh *shape, n *node, nd *nodeNeed, at model.Time,
	end func(model.Time) model.Time) model.Time {
	if !sh.byUnit(n) || at == forever {
		return at
	}
	for _, t := range n.momentsFrom(at) {
		r := p.stock.room(n.rec, func(id model.JobID) fate {
			if k := slices.IndexFunc(n.rel, func(x release) bool { return x.id == id }); k >= 0 && n.rel[k].at <= t {
				return leaves
			}
			return stays
		})
		if t == p.now {
			r = &n.room
		}
		if !sh.hasUnits(r, nd) {
			continue
		}
		if low := p.cursor.least(n, p.now, t, end(t)); nd.in(&low) {
			return t
		}
	}
	return forever
}

// takeRest adds to na everything else that the node has free, because no other job may have it. It adds no units of
// sharing resources: their GPUs are added whole.
func (r *room) takeRest(na *model.NodeAlloc) {
	for i := range r.gres {
		g := &r.gres[i]
		if r.isShare(g.name) || r.def.Gres[i].Explicit {
			continue
		}
		free := g.free
		for _, have := range na.Gres {
			switch {
			case have.Name == g.name:
				free = free.Minus(have.Index)
			case have.Share != nil && g.name == gpuName:
				free = free.Minus(model.Bits(nil).With(int(have.Share.GPU)))
			}
		}
		if !free.Empty() {
			addGres(na, g.name, g.typ, free)
		}
	}
}
