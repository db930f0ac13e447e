package sched

import (
	"slices"

	"gbatch/internal/model"
)

// How CPUs are counted and chosen: alone, in whole cores, with only some threads of a core in use, or with so many
// tasks on a socket.

// usable gives how many CPUs of a core the job uses, and how many a core has.
func (r *room) usable(rq *Request) (used, threads int) {
	threads = max(1, int(r.def.ThreadsPerCore))
	if rq.PerCore > 0 && rq.PerCore < threads {
		return rq.PerCore, threads
	}
	return threads, threads
}

// inCores reports whether the job gets whole cores.
func (r *room) inCores(rq *Request) bool {
	return r.def.ThreadsPerCore > 1 && (rq.wholeCores || rq.PerCore > 0)
}

// round gives the CPUs that tasks with a number of cpus really take: whole cores if the cluster allocates whole cores,
// or if the job uses only some threads of each.
func (r *room) round(rq *Request, tasks, cpus int) int {
	if !r.inCores(rq) {
		return cpus
	}
	used, threads := r.usable(rq)
	cores := (cpus + used - 1) / used
	if rq.CoreEach && !rq.Overcommit {
		cores = max(cores, tasks*((rq.CPUsPerTask+used-1)/used))
	}
	if len(rq.OfSocket) > 0 {
		cores = max(cores, rq.Sockets)
	}
	return cores * threads
}

// tasksIn gives how many tasks a number of CPUs is enough for.
func (r *room) tasksIn(rq *Request, cpus int) int {
	if r.round(rq, rq.PerNode, rq.CPUsFor(rq.PerNode, 0)) > cpus {
		return 0
	}
	if rq.Overcommit {
		return noLimit
	}
	if !r.inCores(rq) {
		return cpus / rq.CPUsPerTask
	}
	used, threads := r.usable(rq)
	if cores := cpus / threads; rq.CoreEach {
		return cores / ((rq.CPUsPerTask + used - 1) / used)
	} else { //nolint:revive // the two cases stand side by side
		return cores * used / rq.CPUsPerTask
	}
}

func (r *room) byCPUs(rq *Request) int {
	cpus := r.nfree
	if rq.PerCore > 0 && !rq.wholeCores {
		cpus = min(cpus, r.wholeFree().Count())
	}
	if rq.perSocket > 0 && rq.Exclusive {
		cpus = min(cpus, rq.perSocket*r.sockets())
	}
	if rq.MaxCPUs > 0 {
		cpus = min(cpus, rq.MaxCPUs-r.inUse(rq.part))
	}
	tasks := r.tasksIn(rq, cpus)
	if rq.TasksPerSocket > 0 && !rq.Overcommit {
		most := 0
		for s := range r.sockets() {
			most += min(rq.TasksPerSocket, r.tasksOfSocket(rq, s))
		}
		tasks = min(tasks, most)
	}
	return tasks
}

// wholeFree gives the CPUs of cores that are entirely free.
func (r *room) wholeFree() model.Bits {
	x := room{def: r.def, cpus: r.cpus, nfree: r.nfree}
	x.wholeCores()
	return x.cpus
}

// sockets counts the node's sockets; CPUs are numbered socket by socket.
func (r *room) sockets() int { return max(1, int(r.def.Sockets)) }

// socket gives the free CPUs of one socket.
func (r *room) socket(rq *Request, s int) model.Bits {
	free := r.cpus
	if rq.PerCore > 0 && !rq.wholeCores {
		free = r.wholeFree()
	}
	free = free.And(socketCPUs(r.def, s))
	if r.caps != nil && free.Count() > r.caps[s] {
		free = free.First(r.caps[s])
	}
	return free
}

func (r *room) tasksOfSocket(rq *Request, s int) int {
	one := *rq
	one.PerNode, one.MinCPUs = 1, 0
	return r.tasksIn(&one, r.socket(rq, s).Count())
}

// cpusAt chooses the CPUs for a number of tasks, as many as possible from near; nil if there are not enough. sockets
// has the sockets of the job's GPUs if the job asks for GPUs by socket.
func (r *room) cpusAt(rq *Request, tasks, cpus int, near model.Bits, sockets []model.Bits) model.Bits {
	if rq.Exclusive {
		return r.cpus
	}
	if rq.wholeSockets {
		return r.socketsAt(rq, tasks, cpus, near, sockets)
	}
	spread := len(sockets) > 0 && (rq.TasksPerSocket == 0 || rq.Overcommit)
	if r.levels != nil && !spread {
		return r.leastAt(rq, tasks, cpus, near)
	}
	free := r.cpus
	if rq.PerCore > 0 && !rq.wholeCores {
		free = r.wholeFree()
	}
	count := r.round(rq, tasks, cpus)
	switch {
	case rq.TasksPerSocket > 0 && !rq.Overcommit:
		return r.bySocket(rq, tasks, count)
	case spread:
		return r.cpusBySocket(rq, count, sockets)
	}
	if near == nil || near.Contains(free) {
		return r.coresOf(rq, free, tasks, count)
	}
	here := free.And(near)
	if r.inCores(rq) { // a core that is near only in part is not
		x := room{def: r.def, cpus: here}
		x.wholeCores()
		here = x.cpus
	}
	n := here.Count()
	if n >= count {
		return r.coresOf(rq, here, tasks, count)
	}
	rest := r.coresOf(rq, free.Minus(here), 0, count-n)
	if rest == nil && count > n {
		return nil
	}
	return here.Or(rest)
}

// cpusByGPUs chooses CPUs for several tasks so that each task can be near a GPU. The GPUs that are near the same CPUs
// are a part, and each part gets as many tasks as its share of the GPUs. nil if all GPUs are near the same CPUs, or if
// a part has too few free CPUs.
func (r *room) cpusByGPUs(rq *Request, na *model.NodeAlloc, tasks, cpus int) model.Bits {
	if tasks < 2 || cpus != tasks*rq.CPUsPerTask || rq.Exclusive || rq.Overcommit || r.levels != nil || rq.PerCore > 0 ||
		rq.wholeSockets ||
		rq.TasksPerSocket > 0 || len(rq.OfSocket) > 0 {
		return nil
	}
	type part struct {
		near model.Bits
		gpus int
	}
	var parts []part
	total := 0
	for _, g := range na.Gres {
		for i := range r.def.Gres {
			d := &r.def.Gres[i]
			if g.Name != gpuName || d.Name != gpuName || g.Share != nil {
				continue
			}
			for k, near := range d.Near {
				if near.Empty() || !g.Index.Has(int(d.First)+k) {
					continue
				}
				total++
				at := slices.IndexFunc(parts, func(x part) bool { return x.near.Contains(near) && near.Contains(x.near) })
				if at < 0 {
					at = len(parts)
					parts = append(parts, part{near: near})
				}
				parts[at].gpus++
			}
		}
	}
	if len(parts) < 2 || tasks < len(parts) {
		return nil
	}
	var out model.Bits
	gpus, given := 0, 0
	for _, x := range parts {
		gpus += x.gpus
		n := tasks*gpus/total - given
		given += n
		if n == 0 {
			continue
		}
		here := r.cpus.And(x.near).Minus(out)
		if r.inCores(rq) {
			whole := room{def: r.def, cpus: here}
			whole.wholeCores()
			here = whole.cpus
		}
		count := r.round(rq, n, n*rq.CPUsPerTask)
		if here.Count() < count {
			return nil
		}
		out = out.Or(r.coresOf(rq, here, n, count))
	}
	if out.Count() != r.round(rq, tasks, cpus) {
		return nil
	}
	return out
}

// bySocket chooses the CPUs of a job with a limit of tasks per socket.
func (r *room) bySocket(rq *Request, tasks, count int) model.Bits {
	var out model.Bits
	for s := 0; s < r.sockets() && tasks > 0; s++ {
		n := min(tasks, rq.TasksPerSocket, r.tasksOfSocket(rq, s))
		if n == 0 {
			continue
		}
		out = out.Or(r.socket(rq, s).First(r.round(rq, n, n*rq.CPUsPerTask)))
		tasks -= n
	}
	if tasks > 0 {
		return nil
	}
	if more := count - out.Count(); more > 0 { // --mincpus and the like
		rest := r.cpus.Minus(out).First(more)
		if rest == nil {
			return nil
		}
		out = out.Or(rest)
	}
	return out
}

// near gives the CPUs near the GPUs of an allocation, nil if they are not known.
func (r *room) near(na *model.NodeAlloc) model.Bits {
	var near model.Bits
	for _, g := range na.Gres {
		name, index := g.Name, g.Index
		if g.Share != nil {
			name, index = gpuName, model.Bits(nil).With(int(g.Share.GPU))
		}
		for i := range r.def.Gres {
			d := &r.def.Gres[i]
			if d.Name != name || len(d.Near) == 0 {
				continue
			}
			for k, bits := range d.Near {
				if index.Has(int(d.First) + k) {
					near = near.Or(bits)
				}
			}
		}
	}
	return near
}

// Binding (--gres-flags=enforce-binding): of each resource that gres.conf gives cores of, all CPUs of the job are near
// its units, and each unit is near some CPU of the job. So two GPUs and one CPU have to be on one socket. The usual
// choice is taken if it is so; otherwise the job is placed with the units and CPUs of some near sets only, one set
// first, then more of them. The calendar counts CPUs and units as for any job; where they lie is checked when the job
// would start.

// bound reports whether the job gets only CPUs near its units. A job on whole nodes has all CPUs and units of them.
func (rq *Request) bound() bool {
	return rq.GresBind == model.BindEnforced && !rq.Exclusive && len(rq.Gres) > 0
}

// nearSet is the CPUs that some units of a node are near to.
type nearSet struct {
	cpus model.Bits
	free int // units
}

// boundName gives the resource whose cores count for one that a job asks for: shares are near what their GPU is.
func (r *room) boundName(name string) string {
	if r.isShare(name) {
		return gpuName
	}
	return name
}

// nearOf gives the CPUs near a unit: all if gres.conf has cores of other units only. known is false if it has cores of
// none.
func (r *room) nearOf(name string, unit int) (near model.Bits, known bool) {
	for i := range r.def.Gres {
		d := &r.def.Gres[i]
		if d.Name != name {
			continue
		}
		for _, cpus := range d.Near {
			known = known || !cpus.Empty()
		}
		if at := unit - int(d.First); at >= 0 && at < len(d.Near) {
			near = d.Near[at]
		}
	}
	if near.Empty() {
		near = r.def.JobCPUs()
	}
	return near, known
}

// eachNear calls f for each unit of the resources that a job asks for and that gres.conf has cores of; i is its entry.
func (r *room) eachNear(rq *Request, f func(i, unit int, near model.Bits)) {
	done := map[string]bool{}
	for k := range rq.Gres {
		name := r.boundName(rq.Gres[k].Name)
		if done[name] {
			continue
		}
		done[name] = true
		for i := range r.def.Gres {
			d := &r.def.Gres[i]
			for u := int(d.First); d.Name == name && u < int(d.First+d.Count); u++ {
				near, known := r.nearOf(name, u)
				if !known {
					break
				}
				f(i, u, near)
			}
		}
	}
}

// nearSets gives the sets of CPUs that the node's units are near to, those with the fewest free units first.
func (r *room) nearSets(rq *Request) (out []nearSet) {
	r.eachNear(rq, func(i, unit int, near model.Bits) {
		k := nearSetOf(out, near)
		if k < 0 {
			k = len(out)
			out = append(out, nearSet{cpus: near})
		}
		if r.gres[i].free.Has(unit) {
			out[k].free++
		}
	})
	if len(out) <= maxExhaustive {
		slices.SortStableFunc(out, func(a, b nearSet) int { return a.free - b.free })
	}
	return out
}

// choices gives the sets of near sets to try, small ones first: all of them if there are few, otherwise those in a row.
func choices(n int) (out [][]bool) {
	if n > maxExhaustive {
		for size := 1; size <= n; size++ {
			for first := 0; first+size <= n; first++ {
				of := make([]bool, n)
				for i := first; i < first+size; i++ {
					of[i] = true
				}
				out = append(out, of)
			}
		}
		return out
	}
	for mask := uint(1); mask < 1<<n; mask++ {
		of := make([]bool, n)
		for i := range of {
			of[i] = mask&(1<<i) != 0
		}
		out = append(out, of)
	}
	size := func(of []bool) (n int) {
		for _, in := range of {
			if in {
				n++
			}
		}
		return n
	}
	slices.SortStableFunc(out, func(a, b []bool) int { return size(a) - size(b) })
	return out
}

// oneOfEach gives as many free units as the job has on the node, by resource: at least one of each of some near sets,
// so that the job can have the CPUs of them all. A job's units may be linked best within one set that has too few CPUs.
func (r *room) oneOfEach(rq *Request, sets []nearSet, of []bool, tasks int, gres []int) map[string]model.Bits {
	left, k := map[string]int{}, 0
	for i := range rq.Gres {
		g := &rq.Gres[i]
		n := int(g.Count)
		switch g.Per {
		case model.PerTask:
			n *= tasks
		case model.PerJob:
			n = gres[k]
			k++
		}
		if !r.isShare(g.Name) {
			left[g.Name] += n
		}
	}
	out := map[string]model.Bits{}
	for _, first := range [...]bool{true, false} {
		done := make([]bool, len(sets))
		r.eachNear(rq, func(i, unit int, near model.Bits) {
			name, s := r.gres[i].name, nearSetOf(sets, near)
			if !of[s] || left[name] < 1 || first && done[s] || out[name].Has(unit) || !r.gres[i].free.Has(unit) ||
				name == gpuName && !rq.wantsType(r.gres[i].typ) {
				return
			}
			out[name] = out[name].With(unit)
			left[name]--
			done[s] = true
		})
	}
	return out
}

// nearSetOf finds a near set.
func nearSetOf(sets []nearSet, near model.Bits) int {
	return slices.IndexFunc(sets, func(s nearSet) bool { return s.cpus.Contains(near) && near.Contains(s.cpus) })
}

// nearOnly gives the room with the units of some near sets only, and the CPUs near these; only, where it names a
// resource, has the units of it that the room keeps.
func (r *room) nearOnly(rq *Request, sets []nearSet, of []bool, only map[string]model.Bits) *room {
	x := *r
	x.gres, x.slots = slices.Clone(r.gres), slices.Clone(r.slots)
	cpus := map[string]model.Bits{}
	r.eachNear(rq, func(i, unit int, near model.Bits) {
		h := &x.gres[i]
		in := of[nearSetOf(sets, near)]
		switch keep, some := only[h.name]; {
		case in:
			cpus[h.name] = cpus[h.name].Or(near)
			if !some || keep.Has(unit) {
				return
			}
		case cpus[h.name] == nil:
			cpus[h.name] = model.Bits{}
		}
		h.free = h.free.Minus(model.Bits(nil).With(unit))
		h.nfree = h.free.Count()
		if x.lot != nil && h.name == gpuName && unit < len(x.lot.gpus) {
			s := &x.slots[unit*x.lot.stride+slotWhole]
			*s = min(*s, 0)
		}
	})
	if x.lot != nil {
		x.derive()
	}
	for _, near := range cpus {
		x.cpus = x.cpus.And(near)
	}
	if r.inCores(rq) { // a core that is near only in part is not
		x.wholeCores()
	}
	x.nfree = min(r.nfree, x.reach(x.cpus))
	x.levels = slices.Clone(r.levels)
	for i := range x.levels {
		x.levels[i] = x.levels[i].And(x.cpus)
	}
	return &x
}

// nearParts gives the free CPUs near each of an allocation's units, a set once; nil if all are near the same ones.
func (r *room) nearParts(rq *Request, na *model.NodeAlloc) (out []model.Bits) {
	free := r.cpus
	if rq.PerCore > 0 && !rq.wholeCores {
		free = r.wholeFree()
	}
	r.eachHeld(na, func(near model.Bits) {
		part := room{def: r.def, cpus: free.And(near)}
		if r.inCores(rq) {
			part.wholeCores()
		}
		same := func(b model.Bits) bool { return b.Contains(part.cpus) && part.cpus.Contains(b) }
		if !slices.ContainsFunc(out, same) {
			out = append(out, part.cpus)
		}
	})
	if len(out) < 2 {
		return nil
	}
	return out
}

// eachHeld calls f for each unit of an allocation that gres.conf has cores of.
func (r *room) eachHeld(na *model.NodeAlloc, f func(near model.Bits)) {
	for i := range na.Gres {
		g := &na.Gres[i]
		name, index := g.Name, g.Index
		if g.Share != nil {
			name, index = gpuName, model.Bits(nil).With(int(g.Share.GPU))
		}
		index.Each(func(u int) bool {
			near, known := r.nearOf(name, u)
			if known {
				f(near)
			}
			return known
		})
	}
}

// isBound reports whether an allocation's CPUs are near its units, and each unit near some of them.
func (r *room) isBound(na *model.NodeAlloc) bool {
	for i := range na.Gres {
		one := model.NodeAlloc{Gres: na.Gres[i : i+1]}
		for k := range na.Gres { // units of all types of a resource together
			if k != i && na.Gres[k].Name == na.Gres[i].Name {
				one.Gres = append(one.Gres[:len(one.Gres):len(one.Gres)], na.Gres[k])
			}
		}
		var all model.Bits
		near := true
		r.eachHeld(&one, func(cpus model.Bits) {
			near = near && cpus.Overlaps(na.CPUs)
			all = all.Or(cpus)
		})
		if !near || !all.Empty() && !all.Contains(na.CPUs) {
			return false
		}
	}
	return true
}
