package sched

import (
	"cmp"
	"math/bits"
	"slices"

	"gbatch/internal/model"
)

// gpucost.go is GpuSelectPolicy: among GPUs that suit a job equally well, it prefers the coolest or the least used, and
// decides whether a node's jobs stay together or apart. Policy.Cost gives the cost of each GPU; nothing is measured
// here.

// taste is how GPUs of a node are preferred.
type taste struct {
	cost   []int32 // by number; 0 beyond its end
	spread bool
	alone  bool // cost counts before connections, which then don't count at all
}

// taste gives the preference among units of a resource here; nil: as without GpuSelectPolicy.
func (r *room) taste(name string) *taste {
	if name != gpuName || r.stock == nil || r.counted {
		return nil
	}
	how := r.stock.params.GPUSelect
	t := &taste{spread: how.Spread, alone: how.First}
	if how.ByCost() && r.stock.cost != nil {
		t.cost = r.stock.cost(r.def.Name)
	}
	if t.cost == nil {
		if t.alone = false; !t.spread {
			return nil
		}
	}
	return t
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

// first gives the n cheapest units, lower numbers first if they cost the same; nil if there are not enough.
func (t *taste) first(free model.Bits, n int) model.Bits {
	if t == nil || t.cost == nil || free.Count() <= n {
		return free.First(n)
	}
	var units []int
	free.Each(func(u int) bool { units = append(units, u); return true })
	slices.SortStableFunc(units, func(a, b int) int { return cmp.Compare(t.unit(a), t.unit(b)) })
	var out model.Bits
	for _, u := range units[:n] {
		out = out.With(u)
	}
	return out
}
