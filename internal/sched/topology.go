package sched

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
)

// tree is topology.conf's tree of switches (TopologyPlugin=topology/tree; https://slurm.schedmd.com/topology.html): a
// job on several nodes goes below the lowest switch that holds it, of several such switches the one with the fewest
// nodes for it, and there to as few leaves as possible. Nodes that have no switch in common are never in one job.
type tree struct {
	leafOf   map[string]int // by node; the leaves below a switch have consecutive numbers
	branches []branch
	leaves   int
	scatter  bool // TopologyParam=Dragonfly: a job on several leaves is spread over as many as there are
}

// branch is a switch above the leaves lo to hi-1.
type branch struct {
	level  int
	lo, hi int
}

// newTree gives the tree of a configuration, nil if it has none.
func newTree(switches []*model.Switch) *tree {
	if len(switches) == 0 {
		return nil
	}
	t := &tree{leafOf: map[string]int{}}
	byName := make(map[string]*model.Switch, len(switches))
	below := map[string]bool{}
	for _, s := range switches {
		byName[s.Name] = s
		for _, c := range s.Children {
			below[c] = true
		}
	}
	seen := map[string]bool{}
	var walk func(s *model.Switch)
	walk = func(s *model.Switch) {
		if s == nil || seen[s.Name] {
			return
		}
		seen[s.Name] = true
		b := branch{level: int(s.Level), lo: t.leaves}
		if len(s.Children) == 0 {
			for _, n := range s.Nodes {
				t.leafOf[n] = t.leaves
			}
			t.leaves++
		}
		for _, c := range s.Children {
			walk(byName[c])
		}
		b.hi = t.leaves
		t.branches = append(t.branches, b)
	}
	for _, s := range switches {
		if !below[s.Name] {
			walk(s)
		}
	}
	return t
}

// lay places a job on candidates below one switch.
func (t *tree) lay(cands []cand, rq *Request) *model.Alloc {
	upTo := make([]int, t.leaves+1) // candidates on all leaves before this one
	for i := range cands {
		if leaf, ok := t.leafOf[cands[i].r.def.Name]; ok {
			upTo[leaf+1]++
		}
	}
	for i := range t.leaves {
		upTo[i+1] += upTo[i]
	}
	count := func(b *branch) int { return upTo[b.hi] - upTo[b.lo] }
	var branches []*branch
	for i := range t.branches {
		if b := &t.branches[i]; count(b) >= rq.MinNodes {
			branches = append(branches, b)
		}
	}
	slices.SortStableFunc(branches, func(a, b *branch) int { return cmp.Or(a.level-b.level, count(a)-count(b)) })
	tried := map[[2]int]bool{}
	for _, b := range branches {
		key := [2]int{upTo[b.lo], upTo[b.hi]}
		if tried[key] { // the same candidates as below a lower switch
			continue
		}
		tried[key] = true
		here := those(cands, rq, func(c *cand) bool {
			leaf, ok := t.leafOf[c.r.def.Name]
			return ok && leaf >= b.lo && leaf < b.hi
		})
		if here == nil {
			continue
		}
		if a := t.layBelow(here, rq); a != nil && (rq.Switches == 0 || t.leavesOf(a) <= rq.Switches) {
			return a
		}
	}
	return nil
}

// layBelow takes as few leaves as it can: the ones with the most nodes for the job first. If a smaller leaf is enough
// instead of the last one, it takes the smallest that is.
func (t *tree) layBelow(cands []cand, rq *Request) *model.Alloc {
	nodes, needed := map[int]int{}, map[int]bool{}
	for i := range cands {
		leaf := t.leafOf[cands[i].r.def.Name]
		nodes[leaf]++
		needed[leaf] = needed[leaf] || cands[i].must
	}
	order := func(a, b int) int {
		if needed[a] != needed[b] {
			if needed[a] {
				return -1
			}
			return 1
		}
		return cmp.Or(nodes[b]-nodes[a], a-b)
	}
	by := func(a, b cand) int { return order(t.leafOf[a.r.def.Name], t.leafOf[b.r.def.Name]) }
	if t.scatter && len(nodes) > 1 && rq.Switches == 0 {
		return layAny(cands, rq, t.scattered(cands))
	}
	a := layAny(cands, rq, by)
	if a == nil || len(nodes) < 3 {
		return a
	}
	used := map[int]int{}
	for i := range a.Nodes {
		used[t.leafOf[a.Nodes[i].Node]]++
	}
	last := -1
	for leaf := range nodes {
		if used[leaf] > 0 && (last < 0 || order(leaf, last) > 0) {
			last = leaf
		}
	}
	if len(used) < 2 || needed[last] {
		return a
	}
	better := last
	for leaf := range nodes {
		if used[leaf] == 0 && nodes[leaf] >= used[last] &&
			(nodes[leaf] < nodes[better] || nodes[leaf] == nodes[better] && leaf < better) {
			better = leaf
		}
	}
	if better == last {
		return a
	}
	only := *rq
	only.MinNodes, only.MaxNodes = len(a.Nodes), len(a.Nodes)
	sub := those(cands, &only, func(c *cand) bool {
		leaf := t.leafOf[c.r.def.Name]
		return leaf == better || used[leaf] > 0 && leaf != last
	})
	if sub == nil {
		return a
	}
	if b := layAny(sub, &only, by); b != nil && t.leavesOf(b) <= len(used) {
		return b
	}
	return a
}

// scattered is the order of nodes that takes one of each leaf, then the second of each, and so on.
func (t *tree) scattered(cands []cand) func(a, b cand) int {
	turn, next := map[*room]int{}, map[int]int{}
	for i := range cands {
		r := cands[i].r
		leaf := t.leafOf[r.def.Name]
		turn[r] = next[leaf]
		next[leaf]++
	}
	return func(a, b cand) int {
		return cmp.Or(turn[a.r]-turn[b.r], t.leafOf[a.r.def.Name]-t.leafOf[b.r.def.Name])
	}
}

// leavesOf counts the leaf switches of an allocation.
func (t *tree) leavesOf(a *model.Alloc) int {
	seen := map[int]bool{}
	for i := range a.Nodes {
		seen[t.leafOf[a.Nodes[i].Node]] = true
	}
	return len(seen)
}

// SwitchPaths gives for each node of topology.conf the names of the switches above it, the highest first, joined by
// dots.
func SwitchPaths(switches []*model.Switch) map[string]string {
	above := map[string]string{} // a switch's parent
	for _, s := range switches {
		for _, c := range s.Children {
			above[c] = s.Name
		}
	}
	out := map[string]string{}
	for _, s := range switches {
		path := s.Name
		for up, n := above[s.Name], 0; up != "" && n < len(switches); up, n = above[up], n+1 {
			path = up + "." + path
		}
		for _, node := range s.Nodes {
			if len(s.Children) == 0 {
				out[node] = path
			}
		}
	}
	return out
}

// blocks is a block topology (TopologyPlugin=topology/block; https://slurm.schedmd.com/topology.html): base blocks of
// nodes with fast links inside, and larger blocks of as many of them, side by side, as BlockSizes says. A job lies in
// one block of the lowest level that is large enough for it. One with segments lies in several: each segment is within
// one block, and is never divided.
type blocks struct {
	of    map[string]int // base block by node
	sizes []int          // nodes of a block, by level
	each  []int          // base blocks of a block, by level
}

func newBlocks(t *model.Blocks) *blocks {
	b := &blocks{of: map[string]int{}}
	least := 0
	for i, x := range t.List {
		for _, n := range x.Nodes {
			b.of[n] = i
		}
		if n := len(x.Nodes); n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	for _, n := range t.Sizes {
		b.sizes = append(b.sizes, max(1, int(n)))
	}
	if b.sizes == nil {
		b.sizes = []int{max(1, least)}
	}
	for _, n := range b.sizes {
		b.each = append(b.each, max(1, n/b.sizes[0]))
	}
	return b
}

// level gives the lowest level whose blocks are large enough for so many nodes, or the number of levels.
func (b *blocks) level(nodes int) int {
	for l, n := range b.sizes {
		if nodes <= n {
			return l
		}
	}
	return len(b.sizes)
}

// unit gives the block of a level that a node is in; all nodes are in one above the highest level. ok is false for
// nodes in no block.
func (b *blocks) unit(node string, level int) (unit int, ok bool) {
	base, ok := b.of[node]
	if !ok || level >= len(b.each) {
		return 0, ok
	}
	return base / b.each[level], ok
}

// lay places a job on candidates.
func (b *blocks) lay(cands []cand, rq *Request) *model.Alloc {
	most := min(rq.MaxNodes, len(cands))
	for k := range most - rq.MinNodes + 1 {
		n := rq.MinNodes + k
		if rq.Grow {
			n = most - k
		}
		if a := b.layNodes(cands, rq, n); a != nil && b.whole(a, rq) {
			return a
		}
	}
	return nil
}

// segmentOf gives the size of the segments of a job on so many nodes; ok is false if they don't divide it.
func segmentOf(rq *Request, nodes int) (size int, ok bool) {
	if rq.Segment <= 0 || nodes <= rq.Segment {
		return nodes, true
	}
	return rq.Segment, nodes%rq.Segment == 0
}

// layNodes places a job on exactly n nodes.
func (b *blocks) layNodes(cands []cand, rq *Request, n int) *model.Alloc {
	size, ok := segmentOf(rq, n)
	if !ok {
		return nil
	}
	inner, outer := b.level(size), len(b.sizes) // the levels of a segment and of the job
	if rq.Segments == model.SegmentsTogether || size == n {
		outer = b.level(n)
	}
	groups := map[int][]cand{}
	var order []int
	musts := 0
	for i := range cands {
		g, ok := b.unit(cands[i].r.def.Name, outer)
		if cands[i].must {
			musts++
		}
		if !ok {
			continue
		}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], cands[i])
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Or(len(groups[x])-len(groups[y]), x-y) })
	only := *rq
	only.MinNodes, only.MaxNodes, only.Grow = n, n, false
	for _, g := range order {
		for _, by := range ordersFor(rq, wholeJob(rq)) {
			set := b.pick(groups[g], inner, size, n/size, rq.Segments == model.SegmentsApart, by)
			here := 0
			for i := range set {
				if set[i].must {
					here++
				}
			}
			if set == nil || here < musts {
				continue
			}
			if a := layAny(set, &only, nil); a != nil {
				return a
			}
		}
	}
	return nil
}

// pick takes the nodes of so many segments: of as few blocks as it can, and where one is enough for the rest, of the
// one with the fewest nodes to spare. Blocks with nodes that the job names come first.
func (b *blocks) pick(cands []cand, level, size, segments int, apart bool, by func(x, y cand) int) []cand {
	units, fixed := map[int][]cand{}, map[int]int{}
	for i := range cands {
		u, _ := b.unit(cands[i].r.def.Name, level)
		units[u] = append(units[u], cands[i])
		if cands[i].must {
			fixed[u]++
		}
	}
	holds := func(u int) int {
		if apart {
			return min(1, len(units[u])/size)
		}
		return len(units[u]) / size
	}
	var list []int
	for u := range units {
		if holds(u) > 0 {
			list = append(list, u)
		}
	}
	var out []cand
	for segments > 0 && len(list) > 0 {
		at := slices.MinFunc(list, func(x, y int) int {
			mx, my := fixed[x] == 0, fixed[y] == 0
			if mx != my {
				return map[bool]int{true: 1, false: -1}[mx]
			}
			hx, hy := min(holds(x), segments), min(holds(y), segments)
			return cmp.Or(hy-hx, len(units[x])-len(units[y]), x-y)
		})
		n := min(holds(at), segments)
		nodes := units[at]
		base := map[int]int{}
		for i := range nodes {
			base[b.of[nodes[i].r.def.Name]]++
		}
		slices.SortStableFunc(nodes, func(x, y cand) int {
			if x.must != y.must {
				return map[bool]int{true: -1, false: 1}[x.must]
			}
			bx, by2 := b.of[x.r.def.Name], b.of[y.r.def.Name]
			return cmp.Or(base[by2]-base[bx], bx-by2, by(x, y))
		})
		out = append(out, nodes[:n*size]...)
		segments -= n
		list = slices.DeleteFunc(list, func(u int) bool { return u == at })
	}
	if segments > 0 {
		return nil
	}
	return out
}

// inSegments puts the nodes of a job in the order of its segments: those of a block behind one another.
func (b *blocks) inSegments(a *model.Alloc, rq *Request) {
	if b == nil { // there were some when it was submitted
		return
	}
	level := b.level(rq.Segment)
	slices.SortStableFunc(a.Nodes, func(x, y model.NodeAlloc) int {
		in, _ := b.unit(x.Node, level)
		too, _ := b.unit(y.Node, level)
		return in - too
	})
}

// whole reports whether no segment of an allocation is divided: the nodes in each block are a whole number of segments.
func (b *blocks) whole(a *model.Alloc, rq *Request) bool {
	n := len(a.Nodes)
	size, ok := segmentOf(rq, n)
	if !ok {
		return false
	}
	level := b.level(size)
	in := map[int]int{}
	for i := range a.Nodes {
		u, ok := b.unit(a.Nodes[i].Node, level)
		if !ok {
			return false
		}
		in[u]++
	}
	for _, k := range in {
		if k%size != 0 || rq.Segments == model.SegmentsApart && k > size && size < n {
			return false
		}
	}
	if rq.Segments != model.SegmentsTogether {
		return true
	}
	all := map[int]bool{}
	for i := range a.Nodes {
		u, _ := b.unit(a.Nodes[i].Node, b.level(n))
		all[u] = true
	}
	return len(all) == 1
}

// BlockPaths gives the block of each node of a topology of blocks.
func BlockPaths(list []*model.Block) map[string]string {
	out := map[string]string{}
	for _, b := range list {
		for _, n := range b.Nodes {
			out[n] = b.Name
		}
	}
	return out
}
