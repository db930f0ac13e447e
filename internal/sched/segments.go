package sched

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
)

// An elastic job with segments (--segment) gets and gives whole ones, each within one block, as those that it begins
// with. Of the blocks with room for a segment it gets the nearest one, then the one with the fewest nodes to spare.
// In its allocation the nodes of a segment are one behind the other (model.Spec.Stride), so that the facts need no
// topology to keep segments whole. How segments lie to each other (--consolidate-segments, --spread-segments) holds for
// all of them together, whatever the size.

// lying is where a job's segments lie: by level, the blocks that have some.
type lying struct {
	level int // of the blocks that hold a segment
	in    []map[int]bool
}

// lyingOf looks where the nodes of a job lie.
func (b *blocks) lyingOf(a *model.Alloc, segment int) *lying {
	x := &lying{level: b.level(segment)}
	for range len(b.sizes) + 1 - x.level {
		x.in = append(x.in, map[int]bool{})
	}
	for i := range a.Nodes {
		x.add(b, a.Nodes[i].Node)
	}
	return x
}

func (x *lying) add(b *blocks, node string) {
	for up := range x.in {
		if u, ok := b.unit(node, x.level+up); ok {
			x.in[up][u] = true
		}
	}
}

// far gives how many levels up a block has the job's segments too; 0: it has some itself.
func (x *lying) far(b *blocks, node string) int {
	for up := range x.in {
		if u, ok := b.unit(node, x.level+up); ok && x.in[up][u] {
			return up
		}
	}
	return len(x.in)
}

// segmentFor finds the nodes of one more segment for a job.
func (p *Planner) segmentFor(g *grower, shut []*pool) ([]*node, []model.NodeAlloc) {
	sh, rq := g.sh, &g.sh.rq
	net := p.stock.network(rq.topology).blocks
	if net == nil || p.fails(g) || sh.fullAt == p.round && g.end >= sh.fullEnd && !sh.forget {
		return nil, nil
	}
	if g.lies == nil {
		g.lies = net.lyingOf(g.alloc, rq.Segment)
	}
	some, own := false, false
	units := map[int][]*node{}
	for n, nd := range p.enough(sh) {
		some = true
		u, ok := net.unit(n.def.Name, g.lies.level)
		switch {
		case !ok:
		case g.has(n):
			own = true
		case p.spareFor(g, n, nd, shut):
			units[u] = append(units[u], n)
		}
	}
	if !some {
		return nil, nil
	}
	var list []int
	for u, nodes := range units {
		if len(nodes) >= rq.Segment {
			list = append(list, u)
		}
	}
	if len(list) == 0 && !own {
		if sh.fullAt != p.round {
			sh.fullAt, sh.fullEnd = p.round, g.end
		}
		sh.fullEnd = min(sh.fullEnd, g.end)
	}
	slices.SortFunc(list, func(x, y int) int {
		return cmp.Or(g.lies.far(net, units[x][0].def.Name)-g.lies.far(net, units[y][0].def.Name),
			len(units[x])-len(units[y]), x-y)
	})
	for _, u := range list {
		nodes, parts := p.segmentIn(g, net, units[u])
		if nodes == nil {
			continue
		}
		all := model.Alloc{Nodes: append(slices.Clip(g.alloc.Nodes), parts...)}
		if !net.whole(&all, rq) {
			continue
		}
		for _, n := range nodes {
			g.lies.add(net, n.def.Name)
		}
		return nodes, parts
	}
	return nil, nil
}

// segmentIn gives a segment among the nodes of one block, of as few base blocks as it can.
func (p *Planner) segmentIn(g *grower, net *blocks, nodes []*node) ([]*node, []model.NodeAlloc) {
	base := map[int]int{}
	for _, n := range nodes {
		base[net.of[n.def.Name]]++
	}
	slices.SortStableFunc(nodes, func(x, y *node) int {
		bx, by := net.of[x.def.Name], net.of[y.def.Name]
		return cmp.Or(base[by]-base[bx], bx-by)
	})
	var those []*node
	var parts []model.NodeAlloc
	for _, n := range nodes {
		if na := p.partOf(g, n, &g.sh.whole[n.class.at]); na != nil {
			those, parts = append(those, n), append(parts, *na)
		}
		if len(parts) == g.sh.rq.Segment {
			return those, parts
		}
	}
	return nil, nil
}
