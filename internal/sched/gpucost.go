package sched

import (
	"cmp"
	"math/bits"
	"slices"

	"gbatch/internal/model"
)

// gpucost.go is which GPUs a job had better get. Those that have its model loaded (--prefer=model:NAME) come first.
// Then GpuSelectPolicy counts: among GPUs that suit a job equally well, it prefers the coolest or the least used, and
// decides whether a node's jobs stay together or apart. Policy.Cost gives the cost of each GPU; nothing is measured
// here.

// taste is how GPUs of a node are preferred.
type taste struct {
	warm   model.Bits // have the job's model loaded
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
	t := &taste{warm: r.warm(rq), spread: how.Spread, alone: how.First}
	if how.ByCost() && r.stock.cost != nil {
		t.cost = r.stock.cost(r.def.Name)
	}
	t.alone = t.alone && t.cost != nil
	if t.cost == nil && !t.spread && t.warm.Empty() {
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

// loaded gives the units of a set that have the job's model loaded.
func (t *taste) loaded(set uint64) uint64 {
	if t == nil || len(t.warm) == 0 {
		return 0
	}
	return set & t.warm[0]
}

// cold counts the units of a set that don't.
func (t *taste) cold(set uint64) int {
	if t == nil || len(t.warm) == 0 {
		return 0
	}
	return bits.OnesCount64(set &^ t.warm[0])
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

// first gives the n best units: those with the job's model, then the cheapest, then those with the lowest numbers; nil
// if there are not enough.
func (t *taste) first(free model.Bits, n int) model.Bits {
	if t == nil || t.cost == nil && t.warm.Empty() || free.Count() <= n {
		return free.First(n)
	}
	var units []int
	free.Each(func(u int) bool { units = append(units, u); return true })
	slices.SortStableFunc(units, func(a, b int) int {
		if w := t.warm.Has(a); w != t.warm.Has(b) {
			if w {
				return -1
			}
			return 1
		}
		return cmp.Compare(t.unit(a), t.unit(b))
	})
	var out model.Bits
	for _, u := range units[:n] {
		out = out.With(u)
	}
	return out
}

// mostWarm bounds the nodes that are tried for a job with a model: the first ones that have it loaded.
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
