package sched

import (
	"slices"

	"gbatch/internal/model"
)

// CPUs that several jobs of one partition share (OverSubscribe=FORCE:N, or YES:N and --oversubscribe). The calendar
// counts them in slots: each CPU has N slots. When a job starts, it gets the CPUs that the fewest other jobs have. Jobs
// that share CPUs and jobs that don't are never on one node, as in Slurm, and jobs of different partitions share no
// CPUs.

// shareAt gives the place of a partition among those whose jobs share CPUs, from 1; 0 for a job that shares none.
func (s *stock) shareAt(part string, share int32) int {
	if share <= 1 {
		return 0
	}
	if k, ok := s.sharing[part]; ok {
		return k
	}
	return len(s.sharing) + 1 // the partition no longer lets jobs share, or it is gone
}

// shareSlots is the number of places that shareAt gives; 0 if no jobs share CPUs.
func (s *stock) shareSlots() int {
	if !s.shared {
		return 0
	}
	return len(s.sharing) + 1
}

// used counts the slots that jobs in a room have, by partition; nil if no jobs share CPUs.
func (r *room) used() []int {
	if r.stock == nil || !r.stock.shared {
		return nil
	}
	out := make([]int, r.stock.shareSlots())
	for _, sh := range r.shares {
		k := r.stock.shareAt(sh.Part, 2) - 1
		for _, l := range sh.Layers {
			out[k] += l.Count()
		}
	}
	for k, n := range r.extra {
		out[k] += n
	}
	return out
}

// as gives the room that a job can have: its CPUs depend on whether the job shares CPUs and on what its partition gives
// of each socket, its GPUs on the memory that the job wants of each.
func (r *room) as(rq *Request) *room { return r.roomy(rq).slotted(rq).onlySockets(rq) }

// slotted gives the room with the CPUs that a job can have which shares them, or doesn't.
func (r *room) slotted(rq *Request) *room {
	if rq.Share <= 1 {
		if r.sharers == 0 {
			return r
		}
		x := *r
		x.cpus, x.nfree = nil, 0
		return &x
	}
	x := *r
	x.cpus, x.nfree, x.levels = nil, 0, nil
	if r.plain > 0 || r.shut || r.closed {
		return &x
	}
	free := r.def.JobCPUs().Minus(r.theirs)
	if r.limited { // of the unused CPUs, no more than reservations leave
		taken, limit := r.taken.Minus(r.theirs), r.limit
		if !r.inside {
			limit -= r.theirs.Count() + taken.Count()
		}
		if limit < 0 { // it is not known which CPUs jobs have when the reservation begins
			return &x
		}
		unused := free.Minus(taken)
		free = free.Minus(unused).Or(unused.First(min(unused.Count(), limit)))
	}
	var own []model.Bits
	for i := range r.shares {
		if r.shares[i].Part == rq.sharePart {
			own = r.shares[i].Layers
		} else {
			free = free.Minus(r.shares[i].Layers[0])
		}
	}
	slots := 0
	for k := range rq.Share {
		var next model.Bits // CPUs that more than k jobs have
		if k < len(own) {
			next = own[k].Minus(r.theirs)
		}
		level := free.Minus(next)
		if r.stock.params.WholeCores {
			y := room{def: r.def, cpus: level}
			y.wholeCores()
			level = y.cpus
		}
		if !level.Empty() {
			x.levels = append(x.levels, level)
			x.cpus = x.cpus.Or(level)
		}
		slots += level.Count() * (rq.Share - k)
		if free = next; free.Empty() {
			break
		}
	}
	x.nfree = x.cpus.Count()
	most := x.nfree
	mine := r.stock.shareAt(rq.sharePart, int32(rq.Share)) - 1
	for k, n := range r.extra { // slots that other jobs take before this one ends
		if k == mine {
			slots -= n
		} else {
			slots, most = slots-n*rq.Share, most-n
		}
	}
	if most = max(0, min(most, slots)); most < x.nfree {
		x.nfree, x.cpus = most, x.least(most)
		for i := range x.levels {
			x.levels[i] = x.levels[i].And(x.cpus)
		}
	}
	return &x
}

// apartCPUs gives the CPUs of a node that the job to place may not share. If it is in a reservation of a part of the
// node, these are the CPUs of all jobs outside of it; otherwise the CPUs of all jobs in such reservations.
func (p *Planner) apartCPUs(n *node) (out model.Bits) {
	in := func(resv string) bool {
		return resv != "" && slices.ContainsFunc(n.wins, func(w window) bool { return w.name == resv && w.part != nil })
	}
	inside := p.cursor.inside()
	add := func(resv string, a *model.Alloc) {
		if resv == p.cursor.own || !inside && !in(resv) {
			return
		}
		for i := range a.Nodes {
			if a.Nodes[i].Node == n.def.Name {
				out = out.Or(a.Nodes[i].CPUs)
			}
		}
	}
	for _, id := range n.rec.Jobs {
		if j := p.v.Job(id); j != nil && j.Run != nil {
			add(j.Run.Resv, j.Run.Alloc)
		}
	}
	if n.booked {
		for i := range p.plan.Starts {
			add(p.plan.Starts[i].Resv, p.plan.Starts[i].Alloc)
		}
	}
	return out
}

// least gives the n CPUs that the fewest jobs have.
func (r *room) least(n int) model.Bits {
	var out model.Bits
	for _, l := range r.levels {
		if have := out.Count(); have+l.Count() >= n {
			return out.Or(l.First(n - have))
		}
		out = out.Or(l)
	}
	return out
}

// leastAt chooses the CPUs that the fewest jobs have and, among equals, CPUs of near.
func (r *room) leastAt(rq *Request, tasks, cpus int, near model.Bits) model.Bits {
	count := r.round(rq, tasks, cpus)
	whole := *r
	whole.levels = nil
	plain := !r.inCores(rq) && !rq.wholeSockets && (rq.TasksPerSocket == 0 || rq.Overcommit)
	var sure model.Bits
	for _, l := range r.levels {
		have := sure.Count()
		if have+l.Count() < count {
			sure = sure.Or(l)
			continue
		}
		if !plain { // for whole cores and tasks by socket, all CPUs that will do are tried together
			whole.cpus = sure.Or(l)
			whole.nfree = whole.cpus.Count()
			if out := whole.cpusAt(rq, tasks, cpus, near, nil); !out.Empty() {
				return out
			}
			sure = whole.cpus
			continue
		}
		left := count - have
		here := l.And(near)
		if near == nil {
			here = l
		}
		if have > 0 {
			tasks = 0
		}
		if n := here.Count(); n < left {
			return sure.Or(here).Or(r.coresOf(rq, l.Minus(here), 0, left-n))
		}
		return sure.Or(r.coresOf(rq, here, tasks, left))
	}
	if !plain {
		return nil
	}
	return whole.cpusAt(rq, tasks, cpus, near, nil)
}

// slotsIn reports whether c has the slots that the job needs.
func (nd *nodeNeed) slotsIn(c *counts) bool {
	if c.plain > 0 || c.cpus < nd.cpus {
		return false
	}
	others := 0
	for k, n := range c.share {
		if k != nd.place-1 {
			others += n
		}
	}
	cpus := min(nd.all, c.cpus) - others // c.cpus is lower while a reservation of a part of the node holds back CPUs
	return cpus >= nd.cpus && cpus*nd.per-c.share[nd.place-1] >= nd.cpus
}

// whole counts the CPUs of a node that jobs can get.
func (s *stock) whole(d *model.NodeDef) int {
	if t := int(d.ThreadsPerCore); s.params.WholeCores && t > 1 {
		return d.JobCPUCount() - d.JobCPUCount()%t
	}
	return d.JobCPUCount()
}
