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
				g.free = g.free.And(x.gpus)
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

// CPUs by socket: partitions that limit how many CPUs of each socket their jobs have together (MaxCPUsPerSocket), and
// partitions that give out whole sockets (SelectTypeParameters=CR_Socket): a socket has CPUs of one of their jobs only,
// and no job of another partition has any of them before. The calendar counts the CPUs as for any job; on which sockets
// they are is checked when the job would start. A job alone on its nodes has all of their CPUs.

// socketwise reports whether it matters to the job on which sockets CPUs are free.
func (rq *Request) socketwise() bool { return (rq.perSocket > 0 || rq.wholeSockets) && !rq.Exclusive }

// socketCPUs gives the CPUs of a socket; they are numbered socket by socket.
func socketCPUs(d *model.NodeDef, s int) model.Bits {
	each := int(d.CPUs) / max(1, int(d.Sockets))
	return span(s*each, each)
}

// bySockets counts CPUs of a node by socket; nil if no partition limits them.
func (s *stock) bySockets(d *model.NodeDef, cpus model.Bits) []int {
	if !s.bySocket {
		return nil
	}
	out := make([]int, max(1, int(d.Sockets)))
	for k := range out {
		out[k] = cpus.And(socketCPUs(d, k)).Count()
	}
	return out
}

// addBySocket adds counts by socket. It leaves both as they are.
func addBySocket(a, b []int) []int {
	if len(a) < len(b) {
		a, b = b, a
	}
	if len(b) == 0 {
		return a
	}
	a = slices.Clone(a)
	for k, n := range b {
		a[k] += n
	}
	return a
}

// wholes gives the sets of CPUs of which a job gets all or none: sockets, or the node.
func (r *room) wholes(rq *Request) []model.Bits {
	if rq.wholeNode {
		return []model.Bits{span(0, int(r.def.CPUs))}
	}
	out := make([]model.Bits, r.sockets())
	for s := range out {
		out[s] = socketCPUs(r.def, s)
	}
	return out
}

// freeSockets gives the sockets of which all CPUs that jobs can get are in a set, and these CPUs.
func (r *room) freeSockets(rq *Request, set model.Bits) (out []model.Bits, all model.Bits) {
	for _, socket := range r.wholes(rq) {
		mine := room{def: r.def, cpus: r.def.JobCPUs().And(socket)}
		mine.wholeCores()
		if mine.cpus.Empty() || !set.Contains(mine.cpus) {
			continue
		}
		out, all = append(out, mine.cpus), all.Or(mine.cpus)
	}
	return out, all
}

// onlySockets gives the room with what a job can have of each socket. Its CPUs may be more than nfree: these are how
// many the job can have of them.
func (r *room) onlySockets(rq *Request) *room {
	if !rq.socketwise() {
		return r
	}
	x := *r
	if x.uncut != nil && x.levels == nil {
		x.cpus, x.uncut = x.uncut, nil
	}
	if rq.wholeSockets {
		if r.counted && x.levels == nil { // which CPUs they are is not known
			x.cpus = r.def.JobCPUs().First(min(r.nfree, r.def.JobCPUCount()))
		}
		var list []model.Bits
		list, x.cpus = x.freeSockets(rq, x.cpus)
		x.levels = slices.Clone(r.levels)
		for i := range x.levels {
			_, x.levels[i] = x.freeSockets(rq, x.levels[i])
		}
		x.nfree = 0
		most := r.nfree
		if rq.MaxCPUs > 0 { // sockets that would take the partition beyond it are not for the job
			most = min(most, rq.MaxCPUs-r.inUse(rq.part))
		}
		for _, socket := range list {
			if n := x.nfree + socket.Count(); n <= most {
				x.nfree = n
			}
		}
	}
	if rq.perSocket == 0 {
		return &x
	}
	x.nfree = max(0, min(x.nfree, rq.perSocket*r.sockets()-r.inUse(rq.part)))
	if r.counted {
		x.cpus = x.cpus.First(x.nfree)
		return &x
	}
	x.caps = make([]int, r.sockets())
	var at []int
	for i := range r.parts {
		if r.parts[i].part == rq.part {
			at = r.parts[i].at
		}
	}
	for s := range x.caps {
		if x.caps[s] = rq.perSocket; s < len(at) {
			x.caps[s] = max(0, rq.perSocket-at[s])
		}
		if r.inCores(rq) {
			x.caps[s] -= x.caps[s] % int(r.def.ThreadsPerCore)
		}
	}
	x.nfree = min(x.nfree, x.reach(x.cpus))
	return &x
}

// reach counts the CPUs of a set that a job can have together, with what it may have of each socket.
func (r *room) reach(set model.Bits) int {
	if r.caps == nil {
		return set.Count()
	}
	n := 0
	for s, most := range r.caps {
		n += min(most, set.And(socketCPUs(r.def, s)).Count())
	}
	return n
}

// capped gives the room with no more CPUs of each socket than the job may have there: those that the fewest jobs have
// and, among equals, those near its units.
func (r *room) capped(rq *Request, near model.Bits) *room {
	if r.caps == nil || rq.Exclusive {
		return r
	}
	x := *r
	x.caps, x.cpus = nil, nil
	unit := 1
	free := r.cpus
	if r.inCores(rq) {
		unit = int(r.def.ThreadsPerCore)
		if !rq.wholeCores {
			free = r.wholeFree()
		}
	}
	type core struct {
		cpus        model.Bits
		level, away int
	}
	for s, most := range r.caps {
		var list []core
		here := free.And(socketCPUs(r.def, s))
		here.Each(func(cpu int) bool {
			if cpu%unit != 0 {
				return true
			}
			one := core{cpus: span(cpu, unit)}
			if near != nil && !near.Contains(one.cpus) {
				one.away = 1
			}
			for k, l := range r.levels {
				if l.Has(cpu) {
					one.level = k
				}
			}
			list = append(list, one)
			return true
		})
		slices.SortStableFunc(list, func(a, b core) int {
			return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.away, b.away))
		})
		for i := 0; i < len(list) && (i+1)*unit <= most; i++ {
			x.cpus = x.cpus.Or(list[i].cpus)
		}
	}
	x.nfree = min(r.nfree, x.cpus.Count())
	x.levels = slices.Clone(r.levels)
	for i := range x.levels {
		x.levels[i] = x.levels[i].And(x.cpus)
	}
	return &x
}

// socketsAt chooses whole sockets for a number of tasks: one of each of some sets of CPUs, then those that the fewest
// jobs have and, among equals, those near its units. nil if there are not enough.
func (r *room) socketsAt(rq *Request, tasks, cpus int, near model.Bits, sets []model.Bits) model.Bits {
	count := r.round(rq, tasks, cpus)
	type socket struct {
		cpus        model.Bits
		tasks       int
		level, away int
	}
	var list []socket
	for s, whole := range r.wholes(rq) {
		one := socket{cpus: r.cpus.And(whole), tasks: tasks}
		if one.cpus.Empty() {
			continue
		}
		if rq.TasksPerSocket > 0 && !rq.Overcommit && !rq.wholeNode {
			one.tasks = min(rq.TasksPerSocket, r.tasksOfSocket(rq, s))
		}
		if !near.Empty() && !near.Overlaps(one.cpus) {
			one.away = 1
		}
		for k, l := range r.levels {
			if l.Overlaps(one.cpus) {
				one.level = k
			}
		}
		list = append(list, one)
	}
	slices.SortStableFunc(list, func(a, b socket) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.away, b.away))
	})
	var out model.Bits
	left := tasks
	take := func(x *socket) {
		if !out.Overlaps(x.cpus) {
			out = out.Or(x.cpus)
			left -= x.tasks
		}
	}
	for _, set := range sets {
		if i := slices.IndexFunc(list, func(x socket) bool { return x.cpus.Overlaps(set) }); i >= 0 && !out.Overlaps(set) {
			take(&list[i])
		}
	}
	for i := range list {
		if left <= 0 && out.Count() >= count {
			break
		}
		take(&list[i])
	}
	if left > 0 || out.Count() < count || out.Count() > r.nfree {
		return nil
	}
	return out
}

// Cores by socket (SelectTypeParameters=CR_Core, CR_CORE_DEFAULT_DIST_BLOCK, --distribution=*:block), as Slurm's 22.05
// chooses them. In blocks: on the socket that has just enough free, otherwise on those with the most. In turn: tasks of
// one CPU a core of each socket in turn; larger tasks whole on one socket, the first with room, and if there are not
// enough such places, again a core of each in turn.

// coresOf chooses count CPUs of a set for a number of tasks, 0 if it is not known for how many; nil if there are fewer.
func (r *room) coresOf(rq *Request, set model.Bits, tasks, count int) model.Bits {
	if rq.sockets == "" || r.sockets() == 1 || set.Count() <= count {
		return set.First(count)
	}
	free := make([]model.Bits, r.sockets())
	for s := range free {
		free[s] = set.And(socketCPUs(r.def, s))
	}
	if rq.sockets == model.BlockCores {
		return fewest(free, count)
	}
	var out model.Bits
	if rq.CPUsPerTask > 1 && !rq.Overcommit && tasks > 0 {
		out = r.wholeTasks(rq, free, tasks)
		if out.Count() > count { // tasks that share a core are together
			out = nil
		}
	}
	unit := 1
	if r.inCores(rq) {
		unit = max(1, int(r.def.ThreadsPerCore))
	}
	for s := range free {
		free[s] = free[s].Minus(out)
	}
	for left := count - out.Count(); left > 0; {
		before := left
		for s := range free {
			core := free[s].First(min(unit, left))
			out, free[s] = out.Or(core), free[s].Minus(core)
			left -= core.Count()
		}
		if left == before { // sockets that don't end with a core have less than one left
			return out.Or(set.Minus(out).First(left))
		}
	}
	return out
}

// fewest gives count CPUs of as few sockets as possible; the sockets' free CPUs are at least as many.
func fewest(free []model.Bits, count int) (out model.Bits) {
	byRoom := slices.Clone(free)
	slices.SortStableFunc(byRoom, func(a, b model.Bits) int { return cmp.Compare(b.Count(), a.Count()) })
	best := byRoom[0]
	for _, socket := range free {
		if n := socket.Count(); n >= count && n < best.Count() {
			best = socket
		}
	}
	if best.Count() >= count {
		return best.First(count)
	}
	for _, socket := range byRoom {
		out = out.Or(socket.First(min(socket.Count(), count-out.Count())))
	}
	return out
}

// wholeTasks gives CPUs for tasks of several, each task on one socket; nil if there is no room for all of them.
func (r *room) wholeTasks(rq *Request, free []model.Bits, tasks int) (out model.Bits) {
	one := *rq
	one.PerNode, one.MinCPUs = 1, 0
	for _, socket := range free {
		n := min(tasks, r.tasksIn(&one, socket.Count()))
		if n == 0 {
			continue
		}
		cpus := socket.First(r.round(&one, n, n*rq.CPUsPerTask))
		if cpus == nil {
			continue
		}
		out = out.Or(cpus)
		tasks -= n
	}
	if tasks > 0 {
		return nil
	}
	return out
}
