package sched

import (
	"cmp"
	"math/bits"
	"slices"

	"gbatch/internal/model"
)

// gpucost.go is which GPUs a job had better get. Those that have its model loaded (--prefer=model:NAME) come first,
// then those with fewer models than GpuCacheTags, so that none that is loaded makes room while others have some.
// Then GpuSelectPolicy counts: among GPUs that suit a job equally well, it prefers the coolest or the least used, and
// decides whether a node's jobs stay together or apart. Policy.Cost gives the cost of each GPU; nothing is measured
// here.

// taste is how GPUs of a node are preferred.
type taste struct {
	warm   model.Bits // have the job's model loaded
	full   model.Bits // would lose another model for it
	cost   []int32    // by number; 0 beyond its end
	spread bool
	alone  bool // cost counts before connections, which then don't count at all
}

// taste gives a job's preference among units of a resource here; nil: it has none.
func (r *room) taste(rq *Request, name string) *taste {
	if name != gpuName || r.stock == nil || r.counted {
		return nil
	}
	how := r.stock.params.GPUSelect
	warm, full := r.models(rq)
	t := &taste{warm: warm, full: full, spread: how.Spread, alone: how.First}
	if how.ByCost() && r.stock.cost != nil {
		t.cost = r.stock.cost(r.def.Name)
	}
	t.alone = t.alone && t.cost != nil
	if t.cost == nil && !t.spread && t.warm.Empty() && t.full.Empty() {
		return nil
	}
	return t
}

// warm gives the GPUs that have a job's model loaded.
func (r *room) warm(rq *Request) model.Bits {
	if rq.Model == "" || r.stock.now == 0 {
		return nil
	}
	n := r.stock.v.Node(r.def.Name)
	if n == nil {
		return nil
	}
	return n.Warm(rq.Model, r.stock.now, &r.stock.params.Cache)
}

// models gives the GPUs that have a job's model loaded, and those that would lose another one for it.
func (r *room) models(rq *Request) (warm, full model.Bits) {
	if rq.Model == "" || r.stock.now == 0 {
		return nil, nil
	}
	warm = r.warm(rq)
	if n := r.stock.v.Node(r.def.Name); n != nil {
		full = n.FullOfModels(r.stock.now, &r.stock.params.Cache).Minus(warm)
	}
	return warm, full
}

// loaded gives the units of a set that have the job's model loaded.
func (t *taste) loaded(set uint64) uint64 {
	if t == nil || len(t.warm) == 0 {
		return 0
	}
	return set & t.warm[0]
}

// evicting gives the units of a set that would lose another model for it.
func (t *taste) evicting(set uint64) uint64 {
	if t == nil || len(t.full) == 0 {
		return 0
	}
	return set & t.full[0]
}

// cold says how far a set is from having the job's model loaded: the fewest units without it come first, then the
// fewest that would lose another one.
func (t *taste) cold(set uint64) int {
	if t == nil || len(t.warm) == 0 && len(t.full) == 0 {
		return 0
	}
	return coldness(set, t.loaded(set), t.evicting(set))
}

func coldness(set, warm, full uint64) int {
	return (maxUnits+1)*bits.OnesCount64(set&^warm) + bits.OnesCount64(set&full)
}

// class orders units: 0 has the job's model loaded, 1 has room for it, 2 would lose another one.
func (t *taste) class(u int) int {
	switch {
	case t.warm.Has(u):
		return 0
	case t.full.Has(u):
		return 2
	}
	return 1
}

// of gives what a set of units costs.
func (t *taste) of(set uint64) int {
	sum := 0
	for ; set != 0; set &= set - 1 {
		sum += t.unit(bits.TrailingZeros64(set))
	}
	return sum
}

func (t *taste) unit(u int) int {
	if u < len(t.cost) {
		return int(t.cost[u])
	}
	return 0
}

// first gives the n best units: those with the job's model, those with room for it, then the cheapest, then those with
// the lowest numbers; nil if there are not enough.
func (t *taste) first(free model.Bits, n int) model.Bits {
	if t == nil || t.cost == nil && t.warm.Empty() && t.full.Empty() || free.Count() <= n {
		return free.First(n)
	}
	var units []int
	free.Each(func(u int) bool { units = append(units, u); return true })
	slices.SortStableFunc(units, func(a, b int) int {
		return cmp.Or(cmp.Compare(t.class(a), t.class(b)), cmp.Compare(t.unit(a), t.unit(b)))
	})
	var out model.Bits
	for _, u := range units[:n] {
		out = out.With(u)
	}
	return out
}

// mostWarm bounds the nodes that are tried for a job with a model: the first ones that have it loaded, or room for it.
const mostWarm = 64

// fitWarm places a whole job on the node where the most of its GPUs have its model loaded, the lightest and first of
// several; nil if that is nowhere.
func (p *Planner) fitWarm(sh *shape, end model.Time) *model.Alloc {
	if sh.rq.Model == "" || !sh.single {
		return nil
	}
	var best *model.Alloc
	most, tried := 0, 0
	for _, n := range p.haveLoaded(sh.rq.Model) {
		nd := &sh.whole[n.class.at]
		if !n.in(sh.pool) || !sh.named(n, true) || !p.has(sh, n, nd) {
			continue
		}
		if tried++; tried > mostWarm {
			break
		}
		na := p.placeOn(sh, n, nd, end)
		if na == nil {
			continue
		}
		gpus := na.GPUs()
		k := gpus.And(n.room.warm(&sh.rq)).Count()
		if k > most {
			best, most = &model.Alloc{Nodes: []model.NodeAlloc{*na}}, k
		}
		if k == gpus.Count() {
			break
		}
	}
	return best
}

// withRoom gives another place for a whole job whose model would take the room of another one on the node that was
// found: on a node that is no heavier and has room for it. Where there is none, the place stays.
func (p *Planner) withRoom(sh *shape, found *model.Alloc, end model.Time) *model.Alloc {
	if sh.rq.Model == "" || found == nil || len(found.Nodes) != 1 {
		return found
	}
	evicts := func(n *node, na *model.NodeAlloc) bool {
		_, full := n.room.models(&sh.rq)
		return na.GPUs().Overlaps(full)
	}
	at := p.byName[found.Nodes[0].Node]
	if at == nil || !evicts(at, &found.Nodes[0]) {
		return found
	}
	tried := 0
	for _, n := range sh.pool.nodes {
		nd := &sh.whole[n.class.at]
		if n == at || n.weight() > at.weight() || !sh.named(n, true) || !p.has(sh, n, nd) {
			continue
		}
		if tried++; tried > mostWarm {
			break
		}
		if na := p.placeOn(sh, n, nd, end); na != nil && !evicts(n, na) {
			return &model.Alloc{Nodes: []model.NodeAlloc{*na}}
		}
	}
	return found
}

// haveLoaded lists the nodes with a GPU that has a model loaded, the lightest first.
func (p *Planner) haveLoaded(name string) []*node {
	if p.loadedAt != p.pass || p.loaded == nil {
		p.loadedAt, p.loaded = p.pass, map[string][]*node{}
		for _, n := range p.nodes {
			if n.rec == nil {
				continue
			}
			for _, t := range n.rec.Loaded(p.now, &p.cfg.Params.Cache) {
				if l := p.loaded[t.Name]; len(l) == 0 || l[len(l)-1] != n {
					p.loaded[t.Name] = append(l, n)
				}
			}
		}
		for _, l := range p.loaded {
			slices.SortStableFunc(l, func(a, b *node) int { return cmp.Compare(a.weight(), b.weight()) })
		}
	}
	return p.loaded[name]
}
