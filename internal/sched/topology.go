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
