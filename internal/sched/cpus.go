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

func (r *room) byCPUs(rq *Request, part string) int {
	cpus := r.nfree
	if rq.PerCore > 0 && !rq.wholeCores {
		cpus = r.wholeFree().Count()
	}
	if rq.MaxCPUs > 0 {
		cpus = min(cpus, rq.MaxCPUs-r.inUse(part))
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
	each := int(r.def.CPUs) / r.sockets()
	return free.Minus(free.Minus(span(s*each, each)))
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
		return free.First(count)
	}
	here := free.Minus(free.Minus(near))
	if r.inCores(rq) { // a core that is near only in part is not
		x := room{def: r.def, cpus: here}
		x.wholeCores()
		here = x.cpus
	}
	n := here.Count()
	if n >= count {
		return here.First(count)
	}
	rest := free.Minus(here).First(count - n)
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
		out = out.Or(here.First(count))
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
