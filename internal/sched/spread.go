package sched

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
)

// cand is a candidate node of a job on several nodes.
type cand struct {
	r    *room
	must bool
	most int   // tasks
	gres []int // free units for each per-job request
}

// laySpread places a job on several nodes.
func laySpread(rooms []*room, rq *Request) (*model.Alloc, miss) {
	cands, missing, worst := candidates(rooms, rq)
	if missing || len(cands) == 0 {
		return nil, worst
	}
	if len(cands) < rq.MinNodes {
		return nil, missCount
	}
	if rq.Want == nil || len(rq.Want.Same) < 2 {
		return layGroup(cands, rq), missCount
	}
	for _, f := range rq.Want.Same { // matching OR: the first feature with which the whole job fits
		if same := those(cands, rq, func(c *cand) bool { return f.Met(c.r.def.Features) }); same != nil {
			if a := layGroup(same, rq); a != nil {
				return a, missNone
			}
		}
	}
	return nil, missCount
}

// those gives the candidates that meet a condition, or nil if they are too few or a node that the job names is not
// among them.
func those(cands []cand, rq *Request, ok func(*cand) bool) []cand {
	var out []cand
	for i := range cands {
		c := &cands[i]
		switch {
		case ok(c):
			out = append(out, *c)
		case c.must:
			return nil
		}
	}
	if len(out) < rq.MinNodes {
		return nil
	}
	return out
}

// tasksOver divides the tasks that are left after each node has its least: in blocks, or evenly with --spread-job.
func tasksOver(nodes []cand, rq *Request, left int) []int {
	out := make([]int, len(nodes))
	for i := range nodes {
		if !rq.Spread {
			out[i] = min(left, nodes[i].most-rq.PerNode)
			left -= out[i]
		}
	}
	room := func(i int) int { return nodes[i].most - rq.PerNode - out[i] }
	for left > 0 && rq.Spread { // at most one round for each node, and one for the rest
		open := 0
		for i := range nodes {
			open += min(1, max(0, room(i)))
		}
		if open == 0 {
			break
		}
		each := max(1, left/open)
		for i := range nodes {
			more := max(0, min(each, room(i), left))
			out[i] += more
			left -= more
		}
	}
	return out
}

// layGroup places a job on the lightest candidates that hold it: heavier nodes are used only if the lighter ones are
// not enough (Weight in slurm.conf).
func layGroup(cands []cand, rq *Request) *model.Alloc {
	alloc := layNetwork(cands, rq)
	if alloc == nil {
		return nil
	}
	if rq.Model != "" {
		warm := those(cands, rq, func(c *cand) bool { return !c.r.warm(rq).Empty() })
		if warm != nil && (!rq.Grow || len(warm) >= rq.MaxNodes) {
			if a := layNetwork(warm, rq); a != nil {
				return a
			}
		}
	}
	var weights []int64
	for i := range cands {
		weights = append(weights, cands[i].r.weight())
	}
	slices.Sort(weights)
	weights = slices.Compact(weights)
	for lo, hi := 0, len(weights)-1; lo < hi; {
		mid := (lo + hi) / 2
		light := those(cands, rq, func(c *cand) bool { return c.must || c.r.weight() <= weights[mid] })
		var a *model.Alloc
		if light != nil && (!rq.Grow || len(light) >= rq.MaxNodes) {
			a = layNetwork(light, rq)
		}
		if a == nil {
			lo = mid + 1
			continue
		}
		alloc, hi = a, mid
	}
	return alloc
}

// layNetwork places a job on some of the candidates, by the network and the job's wishes.
func layNetwork(cands []cand, rq *Request) *model.Alloc {
	switch net := cands[0].r.stock.network(rq.topology); {
	case net.blocks != nil && (rq.Segment > 0 || !net.optional && !rq.Spread && !rq.Contiguous):
		return net.blocks.lay(cands, rq)
	case rq.Contiguous:
		return layRun(cands, rq)
	case net.tree != nil && !rq.Spread && (!net.optional || rq.Switches > 0):
		return net.tree.lay(cands, rq)
	}
	return layAny(cands, rq, nil)
}

// layAny places a job on the best candidates, in several orders; first, if not nil, orders them before everything else.
func layAny(cands []cand, rq *Request, first func(a, b cand) int) *model.Alloc {
	want := wholeJob(rq)
	most := min(rq.MaxNodes, len(cands))
	type order struct {
		nodes []cand
		fits  []bool // by number of nodes: whether the first nodes hold the job
	}
	var orders []order
	ways := ordersFor(rq, want)
	if rq.Model != "" {
		ways = append(warmFirst(ways, cands, rq), ways...)
	}
	for _, by := range ways {
		nodes := slices.Clone(cands)
		slices.SortStableFunc(nodes, func(a, b cand) int {
			if a.must != b.must || first == nil {
				return by(a, b)
			}
			return cmp.Or(first(a, b), by(a, b))
		})
		if rq.Want != nil && len(rq.Want.Counts) > 0 {
			nodes = counted(nodes, rq)
		}
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
				return a
			}
		}
	}
	return nil
}

// warmFirst gives the orders with the nodes in front on which the most GPUs have the job's model loaded; none where no
// node has.
func warmFirst(ways []func(a, b cand) int, cands []cand, rq *Request) []func(a, b cand) int {
	warm := map[*room]int{}
	for i := range cands {
		if k := cands[i].r.warm(rq).Count(); k > 0 {
			warm[cands[i].r] = k
		}
	}
	if len(warm) == 0 {
		return nil
	}
	var out []func(a, b cand) int
	for _, by := range ways {
		out = append(out, func(a, b cand) int {
			if a.must != b.must {
				return by(a, b)
			}
			return cmp.Or(cmp.Compare(warm[b.r], warm[a.r]), by(a, b))
		})
	}
	return out
}

// counted moves the nodes that meet the counts of features to the front, nodes that the job names first. Among nodes
// that would do, it prefers one that no other count can use.
func counted(nodes []cand, rq *Request) []cand {
	counts := rq.Want.Counts
	met := func(c *cand) (n int) {
		for i := range counts {
			if counts[i].Met(c.r.def.Features) {
				n++
			}
		}
		return n
	}
	taken := make([]bool, len(nodes))
	var out []cand
	for i := range nodes {
		if nodes[i].must {
			out, taken[i] = append(out, nodes[i]), true
		}
	}
	for _, shared := range [...]bool{false, true} {
		for i := range counts {
			f := &counts[i]
			left := f.N
			for k := range out {
				if f.Met(out[k].r.def.Features) {
					left--
				}
			}
			for k := range nodes {
				if left > 0 && !taken[k] && f.Met(nodes[k].r.def.Features) && (shared || met(&nodes[k]) == 1) {
					out, taken[k] = append(out, nodes[k]), true
					left--
				}
			}
		}
	}
	for k := range nodes {
		if !taken[k] {
			out = append(out, nodes[k])
		}
	}
	return out
}

// layRun places a job on consecutive nodes of the configuration.
func layRun(cands []cand, rq *Request) *model.Alloc {
	nodes := slices.Clone(cands)
	slices.SortFunc(nodes, func(a, b cand) int {
		return a.r.stock.place(a.r.def.Name) - b.r.stock.place(b.r.def.Name)
	})
	want := wholeJob(rq)
	sums := sumsOf(nodes, rq, len(want))
	most := min(rq.MaxNodes, len(nodes))
	for k := range most - rq.MinNodes + 1 {
		n := rq.MinNodes + k
		if rq.Grow {
			n = most - k
		}
		for i := 0; i+n <= len(nodes); i++ {
			if !sums.together(i, i+n) || !sums.holds(i, i+n, rq, want) {
				continue
			}
			if a := share(nodes[i:i+n], rq, want); a != nil {
				return a
			}
		}
	}
	return nil
}

// sums has, for each count of candidates in the order of the configuration, that of all candidates before each: what
// any run of them has is a difference, so that a job that may have thousands of nodes costs no look at each node of
// each run.
type sums struct {
	place  []int // of each candidate in the configuration
	must   []int
	tasks  []int
	gres   [][]int // by per-job request: free units
	none   [][]int // likewise: candidates without a free unit
	counts [][]int // by count of features: candidates that meet it
}

func sumsOf(nodes []cand, rq *Request, gres int) *sums {
	add := func(of func(c *cand) int) []int {
		out := make([]int, len(nodes)+1)
		for i := range nodes {
			out[i+1] = out[i] + of(&nodes[i])
		}
		return out
	}
	one := func(yes bool) int {
		if yes {
			return 1
		}
		return 0
	}
	s := &sums{must: add(func(c *cand) int { return one(c.must) }), tasks: add(func(c *cand) int { return c.most })}
	for i := range nodes {
		s.place = append(s.place, nodes[i].r.stock.place(nodes[i].r.def.Name))
	}
	for k := range gres {
		s.gres = append(s.gres, add(func(c *cand) int { return max(c.gres[k], 0) }))
		s.none = append(s.none, add(func(c *cand) int { return one(c.gres[k] <= 0) }))
	}
	if rq.Want != nil {
		for i := range rq.Want.Counts {
			f := &rq.Want.Counts[i]
			s.counts = append(s.counts, add(func(c *cand) int { return one(f.Met(c.r.def.Features)) }))
		}
	}
	return s
}

// together reports whether the candidates from i up to j are neighbours, and all that the job names among them.
func (s *sums) together(i, j int) bool {
	return s.place[j-1]-s.place[i] == j-1-i && s.must[j]-s.must[i] == s.must[len(s.must)-1]
}

// holds is enough for the candidates from i up to j.
func (s *sums) holds(i, j int, rq *Request, want []int) bool {
	if s.tasks[j]-s.tasks[i] < rq.TasksOn(j-i) {
		return false
	}
	for k, w := range want {
		if s.gres[k][j]-s.gres[k][i] < w || w >= j-i && s.none[k][j] > s.none[k][i] {
			return false
		}
	}
	for k := range s.counts {
		if s.counts[k][j]-s.counts[k][i] < rq.Want.Counts[k].N {
			return false
		}
	}
	return true
}

// ordersFor gives the orders in which nodes are tried: light nodes first, then nodes that hold most. If both tasks and
// per-job resources must be covered, finding the best nodes is a knapsack problem; in practice four orders find them.
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
	light := func(a, b cand) int {
		if rq.LLN {
			return cmp.Or(cmp.Compare(a.r.weight(), b.r.weight()), b.r.nfree-a.r.nfree)
		}
		return cmp.Compare(a.r.weight(), b.r.weight())
	}
	tasks := func(a, b cand) int { return b.most - a.most }
	gres := func(a, b cand) int { return slices.Compare(b.gres, a.gres) }
	out := []func(a, b cand) int{
		func(a, b cand) int { return cmp.Or(must(a, b), light(a, b), gres(a, b), tasks(a, b)) },
		func(a, b cand) int { return cmp.Or(must(a, b), gres(a, b), tasks(a, b), light(a, b)) },
	}
	if len(want) > 0 {
		both := func(c cand) int { // each as a part of what the job wants
			return min(c.most, rq.TasksOn(1))*max(want[0], 1) + min(c.gres[0], want[0])*rq.TasksOn(1)
		}
		out = append(out,
			func(a, b cand) int { return cmp.Or(must(a, b), tasks(a, b), gres(a, b), light(a, b)) },
			func(a, b cand) int { return cmp.Or(must(a, b), cmp.Compare(both(b), both(a)), light(a, b)) })
	}
	return out
}

// candidates gives the nodes that hold the least part of the job. missing reports that a node that the job names is not
// among them.
func candidates(rooms []*room, rq *Request) (cands []cand, missing bool, worst miss) {
	worst = missNodes
	limit := max(rq.Tasks, rq.PerNode)
	found := 0
	for _, r := range rooms {
		must := rq.ReqNodes[r.def.Name]
		if rq.ExcNodes[r.def.Name] || !must && rq.namesAll() {
			continue
		}
		most, m := r.most(rq, limit)
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
				free := r.freeGres(rq, g.Name, g.Type) - fixedGres(rq, g.Name, g.Type)
				if g.Name == gpuName {
					free = r.gpusWith(rq, free)
				}
				c.gres = append(c.gres, free)
			}
		}
		cands = append(cands, c)
	}
	return cands, found < len(rq.ReqNodes), worst
}

// fixedGres counts the units of a resource that the job takes on each node, without per-job requests.
func fixedGres(rq *Request, name, typ string) int {
	n := 0
	for _, g := range rq.Gres {
		if g.Per == model.PerNode && g.Name == name && model.TypeFits(name, typ, g.Type) {
			n += int(g.Count)
		}
	}
	return n
}

// gpusWith gives how many of n per-job GPUs the node has the CPUs and the memory for.
func (r *room) gpusWith(rq *Request, n int) int {
	if rq.CPUsPerGPU > 0 {
		n = min(n, r.nfree/rq.CPUsPerGPU)
	}
	if rq.GPUMemJob > 0 && rq.memConsumed {
		n = min(n, int(max(0, r.mem-rq.GPUMemNode)/rq.GPUMemJob))
	}
	return n
}

// enough reports for every n up to most whether the first n nodes hold the whole job.
func enough(nodes []cand, rq *Request, want []int, most int) []bool {
	ok := make([]bool, most+1)
	tasks, sum, least := 0, make([]int, len(want)), make([]int, len(want))
	for i := range most {
		c := &nodes[i]
		tasks += c.most
		fits := tasks >= rq.TasksOn(i+1)
		for k, w := range want {
			if i == 0 || c.gres[k] < least[k] {
				least[k] = c.gres[k]
			}
			sum[k] += max(c.gres[k], 0)
			fits = fits && sum[k] >= w && (w <= i || least[k] > 0) // if there are enough units, each node has some
		}
		ok[i+1] = fits && (rq.Want == nil || rq.haveCounts(nodes[:i+1]))
	}
	return ok
}

// haveCounts reports whether nodes together meet the counts of the job's features.
func (r *Request) haveCounts(nodes []cand) bool {
	for i := range r.Want.Counts {
		left := r.Want.Counts[i].N
		for k := range nodes {
			if r.Want.Counts[i].Met(nodes[k].r.def.Features) {
				left--
			}
		}
		if left > 0 {
			return false
		}
	}
	return true
}

// share divides the job between nodes: tasks in blocks, with at least PerNode on each; per-job resources evenly, as far
// as they are free.
func share(chosen []cand, rq *Request, want []int) *model.Alloc {
	nodes := slices.Clone(chosen)
	slices.SortFunc(nodes, func(a, b cand) int {
		return cmp.Or(cmp.Compare(a.r.stock.place(a.r.def.Name), b.r.stock.place(b.r.def.Name)),
			cmp.Compare(a.r.def.Name, b.r.def.Name))
	})
	n := len(nodes)
	left := rq.TasksOn(n) - n*rq.PerNode
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
	extra := tasksOver(nodes, rq, left)
	for i, c := range nodes {
		more := extra[i]
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
