package sched

import "gbatch/internal/model"

// miss is the reason why a job does not fit on a node or a set of nodes. Reasons stand in the order of the checks: over
// many nodes the highest one tells most.
type miss uint8

const (
	missNone    miss = iota
	missNodes        // not free for it at all
	missFeature      // or temporary space
	missCPUs
	missMemory
	missGres
	missCount // nodes fit, but not enough of them, or not together
)

// lay places a job on rooms, which come in the order of preference: weight, then configuration. part is the job's
// partition. It returns the allocation and, for a job on one node, the index of that node's room: since rooms only
// shrink, an equal job can start its search there (from).
//
// A job on one node gets the first that holds everything. A job on several gets as few as hold it or, with Grow, as
// many as there are up to MaxNodes: lighter nodes first if these are enough, otherwise the nodes with the most room.
func lay(rooms []*room, from int, rq *Request) (*model.Alloc, int, miss) {
	worst := missNodes
	if rq.MinNodes == 1 && !rq.Grow {
		tasks, gres := rq.TasksOn(1), wholeJob(rq)
		for i := from; i < len(rooms); i++ {
			r := rooms[i]
			if len(rq.ExcNodes)+len(rq.ReqNodes) > 0 && !rq.allows(r) {
				continue
			}
			if !rq.alone(r.def) {
				worst = max(worst, missFeature)
				continue
			}
			most, m := r.most(rq, tasks)
			if most >= tasks {
				var na model.NodeAlloc
				if na, m = r.place(rq, tasks, gres); m == missNone {
					if a := layLighter(rooms, r.weight(), rq); a != nil {
						return a, i, missNone
					}
					return &model.Alloc{Nodes: []model.NodeAlloc{na}}, i, missNone
				}
			} else if most > 0 {
				m = r.lacks(rq, tasks)
			}
			worst = max(worst, m)
		}
	}
	if rq.MaxNodes == 1 {
		return nil, len(rooms), worst
	}
	a, m := laySpread(rooms, rq)
	return a, len(rooms), max(worst, m)
}

// layLighter places a job that may have several nodes on nodes that are lighter than the one that would hold all of it.
func layLighter(rooms []*room, heavy int64, rq *Request) *model.Alloc {
	if rq.MaxNodes == 1 {
		return nil
	}
	var light []*room
	for _, r := range rooms {
		if r.weight() < heavy {
			light = append(light, r)
		}
	}
	if len(light) == 0 {
		return nil
	}
	a, _ := laySpread(light, rq)
	return a
}

// allows reports whether the job's node lists permit this node, for a job on one node.
func (rq *Request) allows(r *room) bool {
	return !rq.ExcNodes[r.def.Name] && (len(rq.ReqNodes) == 0 || rq.ReqNodes[r.def.Name])
}

// wholeJob gives the per-job counts of resources, for a job on one node.
func wholeJob(rq *Request) []int {
	var out []int
	for _, g := range rq.Gres {
		if g.Per == model.PerJob {
			out = append(out, int(g.Count))
		}
	}
	return out
}

// most gives how many of the job's tasks the node holds, at most limit; 0 and the reason if it holds fewer than
// PerNode. Per-job resources are not checked.
func (r *room) most(rq *Request, limit int) (int, miss) {
	if r.shut || r.nfree == 0 || rq.tier < r.keep || rq.Exclusive && r.busy || rq.Reboot && r.asleep {
		return 0, missNodes
	}
	if (rq.Private || r.private) && len(r.parts) > 0 && (r.mixed || r.uid != rq.UID) {
		return 0, missNodes
	}
	if !rq.suits(r.def) {
		return 0, missFeature
	}
	if rq.TasksPerNode > 0 {
		limit = min(limit, rq.TasksPerNode)
	}
	tasks := min(limit, r.byCPUs(rq))
	if tasks < rq.PerNode {
		return 0, missCPUs
	}
	if tasks = min(tasks, r.byMemory(rq)); tasks < rq.PerNode {
		return 0, missMemory
	}
	if tasks = min(tasks, r.byGres(rq)); tasks < rq.PerNode {
		return 0, missGres
	}
	for (rq.bound() || rq.socketwise()) && !r.gives(rq, tasks, false) {
		if tasks = min(tasks-1, int(r.def.CPUs)); tasks < rq.PerNode {
			if rq.wholeSockets && rq.MemPerCPU > 0 { // it goes with all CPUs of the sockets
				return 0, missMemory
			}
			return 0, missCPUs
		}
	}
	return tasks, missNone
}

// lacks gives the reason why a node that holds some of the tasks does not hold all of them.
func (r *room) lacks(rq *Request, tasks int) miss {
	switch {
	case r.byCPUs(rq) < tasks:
		return missCPUs
	case r.byMemory(rq) < tasks:
		return missMemory
	case r.byGres(rq) < tasks:
		return missGres
	}
	return missCount // more tasks than one node may have
}

// noLimit is more tasks than any job has.
const noLimit = 1 << 31

func (r *room) byMemory(rq *Request) int {
	free := int64(noLimit) << 20
	if rq.memConsumed {
		free = r.mem
	}
	switch {
	case rq.ByGPU:
		if free -= rq.GPUMemNode; free < 0 {
			return 0
		}
		if rq.GPUMemTask > 0 {
			return int(min(free/rq.GPUMemTask, noLimit))
		}
		return noLimit
	case rq.Exclusive:
		if r.memFor(rq, r.nfree, rq.PerNode, 0) > free {
			return 0
		}
		return noLimit
	case rq.MemPerNode != 0:
		if r.memFor(rq, 0, 0, 0) > free || rq.MaxMem > 0 && rq.MemPerNode > rq.MaxMem {
			return 0
		}
		return noLimit
	case rq.MemPerCPU > 0:
		if rq.MaxMem > 0 {
			free = min(free, rq.MaxMem)
		}
		return r.tasksIn(rq, int(min(free/rq.MemPerCPU, noLimit)))
	}
	// An even share: the most CPUs whose share, rounded down, is free.
	if r.memFor(rq, r.nfree, 0, 0) <= free {
		return noLimit
	}
	return r.tasksIn(rq, int(((free+1)*int64(max(1, rq.Share))*int64(r.def.JobCPUCount())-1)/max(1, r.def.JobMemMiB())))
}

// memFor gives the memory that goes with cpus on the node, MiB. A job that asked for no memory in a cluster without a
// default gets its CPUs' even share. Slurm would give it all memory of the node, which surprises users. Where memory is
// not given out (SelectTypeParameters names none) it gets none, and so has no limit, as in Slurm.
//
// Memory by GPU counts the GPUs of the node's tasks, and gpus, the node's part of the per-job GPUs.
func (r *room) memFor(rq *Request, cpus, tasks, gpus int) int64 {
	if rq.ByGPU {
		return rq.GPUMemNode + rq.GPUMemTask*int64(tasks) + rq.GPUMemJob*int64(gpus)
	}
	// a job that shares its CPUs gets its part of their memory
	m := r.def.JobMemMiB() * int64(cpus) / int64(max(1, r.def.JobCPUCount())) / int64(max(1, rq.Share))
	switch {
	case rq.MemPerNode == model.WholeMem:
		m = r.def.JobMemMiB()
	case rq.MemPerNode > 0:
		return rq.MemPerNode
	case rq.MemPerCPU > 0:
		return rq.MemPerCPU * int64(cpus)
	case !rq.memConsumed:
		return 0
	}
	if rq.MaxMem > 0 {
		m = min(m, rq.MaxMem)
	}
	return m
}

// byGres gives how many tasks the free generic resources are enough for.
func (r *room) byGres(rq *Request) int {
	tasks := noLimit
	for _, g := range rq.Gres {
		if g.Per == model.PerJob || g.Count == 0 {
			continue
		}
		if r.isShare(g.Name) {
			if !r.shareNow(rq, &g) {
				return 0
			}
			continue
		}
		if g.Name == gpuName && rq.named() && !r.counted && !r.hasNamed(rq) {
			return 0
		}
		tasks = min(tasks, r.tasksWith(rq, g.Name, g.Type))
		if g.Type != "" {
			tasks = min(tasks, r.tasksWith(rq, g.Name, ""))
		}
	}
	return tasks
}

// tasksWith gives how many tasks the free units of a resource are enough for: of one type or, with typ "", of all types
// together.
func (r *room) tasksWith(rq *Request, name, typ string) int {
	fixed, each := 0, 0
	for _, g := range rq.Gres {
		if g.Name != name || !model.TypeFits(name, typ, g.Type) {
			continue
		}
		switch g.Per {
		case model.PerNode:
			fixed += int(g.Count)
		case model.PerTask:
			each += int(g.Count)
		}
	}
	free := r.freeGres(rq, name, typ) - fixed
	switch {
	case free < 0:
		return 0
	case each > 0:
		return free / each
	}
	return noLimit
}

// byUnit reports whether it matters to the job which units and CPUs of a node are free, not only how many.
func (rq *Request) byUnit() bool { return rq.named() || rq.bound() || rq.socketwise() }

// gives reports whether a room has the units that the job asks for, with CPUs near them if it is bound to these; tasks
// is how many of the job's tasks are on the node, and whole means that these are all.
func (r *room) gives(rq *Request, tasks int, whole bool) bool {
	if rq.named() && !r.hasNamed(rq) {
		return false
	}
	if !rq.bound() && !rq.socketwise() || r.counted {
		return true
	}
	gres := wholeJob(rq)
	for k := range gres {
		if !whole { // at least one on each node, and an even part of them on the most nodes that it may have
			gres[k] = max(1, gres[k]/max(1, rq.MaxNodes))
		}
	}
	if r.stock != nil {
		r = r.as(rq)
	}
	_, m := r.place(rq, tasks, gres)
	return m == missNone
}

// place puts tasks of a job onto the node; gres has the node's part of each per-job request.
func (r *room) place(rq *Request, tasks int, gres []int) (model.NodeAlloc, miss) {
	r = r.onlySockets(rq)
	na, m := r.put(rq, tasks, gres)
	if !rq.bound() || r.counted || m == missNone && r.isBound(&na) {
		return na, m
	}
	sets := r.nearSets(rq)
	for _, of := range choices(len(sets)) {
		for _, only := range [...]map[string]model.Bits{nil, r.oneOfEach(rq, sets, of, tasks, gres)} {
			x := r.nearOnly(rq, sets, of, only)
			if na, m := x.put(rq, tasks, gres); m == missNone && r.isBound(&na) {
				return na, m
			}
		}
	}
	if m == missNone {
		m = missCPUs
	}
	return na, m
}

// put is place without the condition that CPUs are near units. GPUs are chosen first, then the CPUs near them.
func (r *room) put(rq *Request, tasks int, gres []int) (model.NodeAlloc, miss) {
	na := model.NodeAlloc{Node: r.def.Name, Tasks: int32(tasks)}
	gpus, k := 0, 0
	if rq.CPUsPerGPU > 0 || rq.ByGPU {
		for _, g := range rq.Gres {
			if g.Per == model.PerJob {
				if g.Name == gpuName {
					gpus += gres[k]
				}
				k++
			}
		}
		k = 0
	}
	cpus := rq.CPUsFor(tasks, gpus)
	if !rq.Exclusive {
		need := r.round(rq, tasks, cpus)
		if need > r.nfree || rq.MaxCPUs > 0 && need > rq.MaxCPUs-r.inUse(rq.part) { // CPUs can follow GPUs
			return na, missCPUs
		}
	}
	var sockets []model.Bits
	with := cpus // how many CPUs near its units the job would like
	if rq.GresBind == model.BindDisabled {
		with = 0
	}
	if len(rq.OfSocket) > 0 {
		var ok bool
		if sockets, ok = r.pickBySocket(&na, rq, with); !ok {
			return na, missGres
		}
	}
	for _, g := range rq.Gres {
		count := int(g.Count)
		switch g.Per {
		case model.PerTask:
			count *= tasks
		case model.PerJob:
			count = gres[k]
			k++
		}
		switch {
		case count == 0, len(rq.OfSocket) > 0 && g.Name == gpuName:
			continue
		case r.isShare(g.Name):
			if !r.pickShare(&na, rq, &g, with) {
				return na, missGres
			}
			continue
		}
		if !r.pick(&na, rq, g, count, with) {
			return na, missGres
		}
	}
	if rq.Exclusive {
		r.takeRest(&na)
	}
	near := model.Bits(nil)
	if rq.GresBind != model.BindDisabled {
		near = r.near(&na)
	}
	r = r.capped(rq, near)
	if rq.GresBind != model.BindDisabled {
		na.CPUs = r.cpusByGPUs(rq, &na, tasks, cpus)
	}
	if rq.bound() && sockets == nil {
		sockets = r.nearParts(rq, &na)
	}
	if na.CPUs.Empty() {
		na.CPUs = r.cpusAt(rq, tasks, cpus, near, sockets)
	}
	if na.CPUs.Empty() {
		return na, missCPUs
	}
	na.MemMiB = r.memFor(rq, na.CPUs.Count(), tasks, gpus)
	if rq.Exclusive && rq.ByGPU { // it holds all of the node's GPUs
		na.MemMiB = max(na.MemMiB, min(rq.MemPerGPU*int64(na.Units(gpuName).Count()), r.mem))
	}
	if rq.wholeSockets && rq.MaxMem > 0 {
		na.MemMiB = min(na.MemMiB, rq.MaxMem)
	}
	if (rq.ByGPU || rq.wholeSockets) && rq.memConsumed && na.MemMiB > r.mem {
		return na, missMemory
	}
	return na, missNone
}
