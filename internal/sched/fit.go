package sched

import (
	"cmp"
	"slices"
	"strings"

	"gbatch/internal/model"
)

// miss is why a job does not fit on a node or on a set of them, in the order in which it is looked at: the furthest one
// over many nodes tells most.
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

// lay places a job on rooms, which come in the order of preference: weight, then configuration. part is the partition
// that it runs in. It gives the allocation and, for a job on one node, the place of that node among rooms: an equal job
// need not look at those before it again (from), since rooms only shrink.
//
// One node is the first that holds everything. Several are as few as hold it (or, with Grow, as many as there are up to
// MaxNodes): lighter nodes first if that is enough, otherwise the roomiest.
func lay(rooms []*room, from int, rq *Request, part string) (*model.Alloc, int, miss) {
	worst := missNodes
	if rq.MinNodes == 1 && !rq.Grow {
		tasks, gres := rq.tasksOn(1), wholeJob(rq)
		for i := from; i < len(rooms); i++ {
			r := rooms[i]
			if len(rq.ExcNodes)+len(rq.ReqNodes) > 0 && !rq.allows(r) {
				continue
			}
			most, m := r.most(rq, part, tasks)
			if most >= tasks {
				var na model.NodeAlloc
				if na, m = r.place(rq, tasks, gres); m == missNone {
					return &model.Alloc{Nodes: []model.NodeAlloc{na}}, i, missNone
				}
			} else if most > 0 {
				m = r.lacks(rq, part, tasks)
			}
			worst = max(worst, m)
		}
	}
	if rq.MaxNodes == 1 {
		return nil, len(rooms), worst
	}
	a, m := laySpread(rooms, rq, part)
	return a, len(rooms), max(worst, m)
}

// allows reports whether a job on one node may have this one by name.
func (rq *Request) allows(r *room) bool {
	return !slices.Contains(rq.ExcNodes, r.def.Name) && (len(rq.ReqNodes) == 0 || slices.Contains(rq.ReqNodes, r.def.Name))
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

// cand is a node that a job on several could have.
type cand struct {
	r    *room
	must bool
	most int   // tasks
	gres []int // free units for each per-job request
}

// laySpread places a job on several nodes.
func laySpread(rooms []*room, rq *Request, part string) (*model.Alloc, miss) {
	cands, missing, worst := candidates(rooms, rq, part)
	if missing || len(cands) == 0 {
		return nil, worst
	}
	if len(cands) < rq.MinNodes {
		return nil, missCount
	}
	want := wholeJob(rq)
	most := min(rq.MaxNodes, len(cands))
	type order struct {
		nodes []cand
		fits  []bool // by number of nodes, from its beginning
	}
	var orders []order
	for _, by := range ordersFor(rq, want) {
		nodes := slices.Clone(cands)
		slices.SortStableFunc(nodes, by)
		orders = append(orders, order{nodes, enough(nodes, rq, want, most)})
	}
	for k := range most - rq.MinNodes + 1 {
		n := rq.MinNodes + k
		if rq.Grow {
			n = most - k
		}
		for _, o := range orders {
			if !o.fits[n] {
				continue
			}
			if a := share(o.nodes[:n], rq, want); a != nil {
				return a, missNone
			}
		}
	}
	return nil, missCount
}

// ordersFor gives the orders in which nodes are tried: light ones first, then those that hold most. Where both tasks
// and per-job resources must come together, finding the best nodes is a knapsack; four orders find them in practice.
func ordersFor(rq *Request, want []int) []func(a, b cand) int {
	must := func(a, b cand) int {
		switch {
		case a.must == b.must:
			return 0
		case a.must:
			return -1
		}
		return 1
	}
	light := func(a, b cand) int { return cmp.Compare(a.r.def.Weight, b.r.def.Weight) }
	tasks := func(a, b cand) int { return b.most - a.most }
	gres := func(a, b cand) int { return slices.Compare(b.gres, a.gres) }
	out := []func(a, b cand) int{
		func(a, b cand) int { return cmp.Or(must(a, b), light(a, b), gres(a, b), tasks(a, b)) },
		func(a, b cand) int { return cmp.Or(must(a, b), gres(a, b), tasks(a, b), light(a, b)) },
	}
	if len(want) > 0 {
		both := func(c cand) int { // each in parts of what the job wants
			return min(c.most, rq.tasksOn(1))*max(want[0], 1) + min(c.gres[0], want[0])*rq.tasksOn(1)
		}
		out = append(out,
			func(a, b cand) int { return cmp.Or(must(a, b), tasks(a, b), gres(a, b), light(a, b)) },
			func(a, b cand) int { return cmp.Or(must(a, b), cmp.Compare(both(b), both(a)), light(a, b)) })
	}
	return out
}

// candidates gives the nodes that hold the least that a node of the job must, and whether one that it names is not
// among them.
func candidates(rooms []*room, rq *Request, part string) (cands []cand, missing bool, worst miss) {
	worst = missNodes
	limit := max(rq.Tasks, rq.PerNode)
	var out map[string]bool
	if len(rq.ExcNodes) > 0 {
		out = make(map[string]bool, len(rq.ExcNodes))
		for _, name := range rq.ExcNodes {
			out[name] = true
		}
	}
	found := 0
	for _, r := range rooms {
		must := slices.Contains(rq.ReqNodes, r.def.Name)
		if out[r.def.Name] {
			continue
		}
		most, m := r.most(rq, part, limit)
		if most == 0 {
			worst = max(worst, m)
			continue
		}
		if must {
			found++
		}
		c := cand{r: r, must: must, most: most}
		for _, g := range rq.Gres {
			if g.Per == model.PerJob {
				c.gres = append(c.gres, r.freeGres(g.Name, g.Type)-fixedGres(rq, g.Name, g.Type))
			}
		}
		cands = append(cands, c)
	}
	return cands, found < len(rq.ReqNodes), worst
}

// fixedGres counts what each node of the job gives of a resource, beside what is counted per job.
func fixedGres(rq *Request, name, typ string) int {
	n := 0
	for _, g := range rq.Gres {
		if g.Per == model.PerNode && g.Name == name && (typ == "" || strings.EqualFold(g.Type, typ)) {
			n += int(g.Count)
		}
	}
	return n
}

// enough tells for every n up to most whether the first n nodes hold the whole job.
func enough(nodes []cand, rq *Request, want []int, most int) []bool {
	ok := make([]bool, most+1)
	tasks, sum, least := 0, make([]int, len(want)), make([]int, len(want))
	for i := range most {
		c := &nodes[i]
		tasks += c.most
		fits := tasks >= rq.tasksOn(i+1)
		for k, w := range want {
			if i == 0 || c.gres[k] < least[k] {
				least[k] = c.gres[k]
			}
			sum[k] += max(c.gres[k], 0)
			fits = fits && sum[k] >= w && (w <= i || least[k] > 0) // each node has its part where there are as many
		}
		ok[i+1] = fits
	}
	return ok
}

// share divides the job between nodes: tasks in blocks, each node at least its least; per-job resources evenly, as far
// as they are free.
func share(chosen []cand, rq *Request, want []int) *model.Alloc {
	nodes := slices.Clone(chosen)
	slices.SortFunc(nodes, func(a, b cand) int {
		return cmp.Or(cmp.Compare(a.r.stock.place(a.r.def.Name), b.r.stock.place(b.r.def.Name)), cmp.Compare(a.r.def.Name, b.r.def.Name))
	})
	n := len(nodes)
	left := rq.tasksOn(n) - n*rq.PerNode
	gres := make([][]int, n)
	for i := range gres {
		gres[i] = make([]int, len(want))
	}
	for k, w := range want {
		for i := range nodes {
			even := w / n
			if i < w%n {
				even++
			}
			gres[i][k] = min(even, max(nodes[i].gres[k], 0))
		}
		rest := w
		for i := range nodes {
			rest -= gres[i][k]
		}
		for i := range nodes {
			more := min(rest, nodes[i].gres[k]-gres[i][k])
			if more > 0 {
				gres[i][k] += more
				rest -= more
			}
		}
	}
	a := &model.Alloc{Nodes: make([]model.NodeAlloc, 0, n)}
	for i, c := range nodes {
		more := min(left, c.most-rq.PerNode)
		left -= more
		na, m := c.r.place(rq, rq.PerNode+more, gres[i])
		if m != missNone {
			return nil
		}
		a.Nodes = append(a.Nodes, na)
	}
	if left > 0 {
		return nil
	}
	return a
}

// most gives how many of the job's tasks the node holds, at most limit, or 0 and why where it doesn't hold the least
// (PerNode). What is counted per job is not looked at.
func (r *room) most(rq *Request, part string, limit int) (int, miss) {
	if r.shut || r.nfree == 0 || rq.tier < r.keep || rq.Exclusive && r.busy {
		return 0, missNodes
	}
	if (rq.Private || r.private) && r.busy && (r.mixed || r.uid != rq.UID) {
		return 0, missNodes
	}
	if !hasFeatures(r.def, rq.Features) || rq.TmpMiB > r.def.TmpMiB {
		return 0, missFeature
	}
	if rq.TasksPerNode > 0 {
		limit = min(limit, rq.TasksPerNode)
	}
	tasks := min(limit, r.byCPUs(rq, part))
	if tasks < rq.PerNode {
		return 0, missCPUs
	}
	if tasks = min(tasks, r.byMemory(rq)); tasks < rq.PerNode {
		return 0, missMemory
	}
	if tasks = min(tasks, r.byGres(rq)); tasks < rq.PerNode {
		return 0, missGres
	}
	return tasks, missNone
}

// lacks tells what a node that holds some of the tasks has not enough of for all.
func (r *room) lacks(rq *Request, part string, tasks int) miss {
	switch {
	case r.byCPUs(rq, part) < tasks:
		return missCPUs
	case r.byMemory(rq) < tasks:
		return missMemory
	case r.byGres(rq) < tasks:
		return missGres
	}
	return missCount // more than may be on one node
}

// noLimit is more tasks than any job has.
const noLimit = 1 << 31

// tasksIn gives how many tasks a number of CPUs is enough for.
func (r *room) tasksIn(rq *Request, cpus int) int {
	if cpus > 0 && r.round(rq, cpus) > cpus {
		cpus -= cpus % int(r.def.ThreadsPerCore) // part of a core is none
	}
	switch {
	case r.round(rq, rq.cpusFor(rq.PerNode)) > cpus:
		return 0
	case rq.Overcommit:
		return noLimit
	}
	return cpus / rq.CPUsPerTask
}

// round gives the CPUs that are really taken: whole cores where the cluster gives those out.
func (r *room) round(rq *Request, cpus int) int {
	if t := int(r.def.ThreadsPerCore); rq.wholeCores && t > 1 {
		return (cpus + t - 1) / t * t
	}
	return cpus
}

func (r *room) byCPUs(rq *Request, part string) int {
	cpus := r.nfree
	if rq.MaxCPUs > 0 {
		cpus = min(cpus, rq.MaxCPUs-r.inUse(part))
	}
	return r.tasksIn(rq, cpus)
}

func (r *room) byMemory(rq *Request) int {
	free := int64(noLimit) << 20
	if rq.memConsumed {
		free = r.mem
	}
	switch {
	case rq.Exclusive:
		if r.memFor(rq, r.nfree) > free {
			return 0
		}
		return noLimit
	case rq.MemPerNode != 0:
		if r.memFor(rq, 0) > free || rq.MaxMem > 0 && rq.MemPerNode > rq.MaxMem {
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
	if r.memFor(rq, r.nfree) <= free {
		return noLimit
	}
	return r.tasksIn(rq, int(((free+1)*int64(r.def.CPUs)-1)/max(1, r.def.MemMiB)))
}

// memFor gives the memory that goes with cpus on the node, MiB. A job that asked for none, in a cluster without a
// default, gets its CPUs' even share: Slurm would give it the whole node, which surprises everybody once.
func (r *room) memFor(rq *Request, cpus int) int64 {
	m := r.def.MemMiB * int64(cpus) / int64(max(1, r.def.CPUs))
	switch {
	case rq.MemPerNode == model.WholeMem:
		m = r.def.MemMiB
	case rq.MemPerNode > 0:
		return rq.MemPerNode
	case rq.MemPerCPU > 0:
		return rq.MemPerCPU * int64(cpus)
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
		tasks = min(tasks, r.tasksWith(rq, g.Name, g.Type))
		if g.Type != "" {
			tasks = min(tasks, r.tasksWith(rq, g.Name, ""))
		}
	}
	return tasks
}

// tasksWith gives how many tasks the free units of one type are enough for, or, with typ "", those of the name for all
// that the job wants of it.
func (r *room) tasksWith(rq *Request, name, typ string) int {
	fixed, each := 0, 0
	for _, g := range rq.Gres {
		if g.Name != name || typ != "" && !strings.EqualFold(g.Type, typ) {
			continue
		}
		switch g.Per {
		case model.PerNode:
			fixed += int(g.Count)
		case model.PerTask:
			each += int(g.Count)
		}
	}
	free := r.freeGres(name, typ) - fixed
	switch {
	case free < 0:
		return 0
	case each > 0:
		return free / each
	}
	return noLimit
}

// place puts tasks of a job onto the node; gres has what the node gives to each per-job request.
func (r *room) place(rq *Request, tasks int, gres []int) (model.NodeAlloc, miss) {
	var none model.NodeAlloc
	cpus := r.cpus
	if !rq.Exclusive {
		cpus = r.cpus.First(r.round(rq, rq.cpusFor(tasks)))
	}
	if cpus.Empty() {
		return none, missCPUs
	}
	na := model.NodeAlloc{Node: r.def.Name, CPUs: cpus, MemMiB: r.memFor(rq, cpus.Count()), Tasks: int32(tasks)}
	k := 0
	for _, g := range rq.Gres {
		count := int(g.Count)
		switch g.Per {
		case model.PerTask:
			count *= tasks
		case model.PerJob:
			count = gres[k]
			k++
		}
		if count > 0 && !r.pick(&na, g, count) {
			return none, missGres
		}
	}
	return na, missNone
}
