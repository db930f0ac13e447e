package sched

import (
	"fmt"
	"math/bits"
	"slices"

	"gbatch/internal/model"
)

// The choice of a job's units of a resource, if gres.conf tells how they are connected (Links) or which cores are near
// them (Cores). Criteria, in this order:
//
//  1. the most links between the job's units;
//  2. the most units that have its model loaded (--prefer=model:NAME);
//  3. the fewest links from them to units that stay free, so that no pair is split when a split is avoidable;
//  4. the shortest ways between the job's units over PCIe, where they are known (Dist);
//  5. free CPUs near them for all CPUs that the job takes; then their cost by GpuSelectPolicy (gpucost.go); then the
//     fewest groups of units (a group is near the same CPUs);
//  6. the tightest fit: groups with the fewest other free units, then long ways to units that stay free;
//  7. the lowest indices.
//
// GpuSelectPolicy=spread prefers the most groups, and groups with the most other free units.
//
// With up to maxExhaustive units every set is tried, and the best sets by 1 to 4 are remembered for each set of free
// units and count. With more, a set is grown from several seeds and improved by exchanges.

const (
	maxExhaustive = 8
	maxUnits      = 64 // beyond, the lowest indices are taken
	maxSeeds      = 16
)

// gpuMap is how the units of one resource of a node are connected.
type gpuMap struct {
	units  int
	links  [maxUnits][]int32  // between units; nil: none are known
	close  *[maxUnits][]int32 // closeness over PCIe: farthest less the distance; nil: not known
	near   []model.Bits       // by unit; nil: all CPUs
	groups []uint64           // units near the same CPUs
	best   map[setKey][]uint64
}

type setKey struct {
	free  uint64
	count int
}

// gpuMaps keeps maps for nodes with equal hardware.
type gpuMaps struct {
	byDef map[defKey]*gpuMap
	alike map[string]*gpuMap
}

type defKey struct {
	def  *model.NodeDef
	name string
}

// of gives the map of a resource of a node, nil if its links and cores are not known.
func (g *gpuMaps) of(d *model.NodeDef, name string) *gpuMap {
	known := false
	for i := range d.Gres {
		known = known || d.Gres[i].Name == name && len(d.Gres[i].Near)+len(d.Gres[i].Links)+len(d.Gres[i].Dist) > 0
	}
	if !known {
		return nil
	}
	m, ok := g.byDef[defKey{d, name}]
	if ok {
		return m
	}
	key := fmt.Sprintf("%d|%v|%s", d.CPUs, d.Gres, name)
	if m, ok = g.alike[key]; !ok {
		m = newGPUMap(d, name)
		if g.alike == nil {
			g.byDef, g.alike = map[defKey]*gpuMap{}, map[string]*gpuMap{}
		}
		g.alike[key] = m
	}
	g.byDef[defKey{d, name}] = m
	return m
}

func newGPUMap(d *model.NodeDef, name string) *gpuMap {
	m := &gpuMap{best: map[setKey][]uint64{}}
	for i := range d.Gres {
		if d.Gres[i].Name == name {
			m.units = max(m.units, int(d.Gres[i].First+d.Gres[i].Count))
		}
	}
	if m.units > maxUnits {
		return nil
	}
	m.near = make([]model.Bits, m.units)
	for i := range m.units {
		m.links[i] = make([]int32, m.units)
	}
	for i := range d.Gres {
		g := &d.Gres[i]
		if g.Name != name {
			continue
		}
		for k := range int(g.Count) {
			u := int(g.First) + k
			if k < len(g.Near) {
				m.near[u] = g.Near[k]
			}
			if k < len(g.Links) {
				for o, n := range g.Links[k] {
					if o < m.units && o != u && n > 0 { // a link has two ends; one or both may name it
						m.links[u][o] = max(m.links[u][o], n)
						m.links[o][u] = max(m.links[o][u], n)
					}
				}
			}
		}
	}
	m.closeness(d, name)
	for u := range m.units {
		k := slices.IndexFunc(m.groups,
			func(g uint64) bool { return slices.Equal(m.near[bits.TrailingZeros64(g)], m.near[u]) })
		if k < 0 {
			m.groups = append(m.groups, 0)
			k = len(m.groups) - 1
		}
		m.groups[k] |= 1 << u
	}
	return m
}

// farthest is above every distance: NVML's levels go to 50.
const farthest = 60

// closeness notes how near units are to each other over PCIe.
func (m *gpuMap) closeness(d *model.NodeDef, name string) {
	for i := range d.Gres {
		g := &d.Gres[i]
		if g.Name != name || len(g.Dist) == 0 {
			continue
		}
		if m.close == nil {
			m.close = new([maxUnits][]int32)
			for u := range m.units {
				m.close[u] = make([]int32, m.units)
			}
		}
		for k := range min(int(g.Count), len(g.Dist)) {
			u := int(g.First) + k
			for o, n := range g.Dist[k] {
				if o < m.units && o != u && n > 0 && n < farthest {
					m.close[u][o], m.close[o][u] = farthest-n, farthest-n
				}
			}
		}
	}
}

// inside counts the links between the units of a set.
func (m *gpuMap) inside(set uint64) int { return among(&m.links, set) }

// nearby counts how close the units of a set are to each other over PCIe.
func (m *gpuMap) nearby(set uint64) int {
	if m.close == nil {
		return 0
	}
	return among(m.close, set)
}

func among(of *[maxUnits][]int32, set uint64) int {
	sum := 0
	for a := set; a != 0; a &= a - 1 {
		row := of[bits.TrailingZeros64(a)]
		for b := a & (a - 1); b != 0; b &= b - 1 {
			sum += int(row[bits.TrailingZeros64(b)])
		}
	}
	return sum
}

// between counts the links from one set to another.
func (m *gpuMap) between(set, other uint64) int { return across(&m.links, set, other) }

func across(of *[maxUnits][]int32, set, other uint64) int {
	sum := 0
	for a := set; a != 0; a &= a - 1 {
		row := of[bits.TrailingZeros64(a)]
		for b := other; b != 0; b &= b - 1 {
			sum += int(row[bits.TrailingZeros64(b)])
		}
	}
	return sum
}

// choice is how good a set is; less is better, field by field.
type choice [9]int

// score rates a set of free units for a job that takes count CPUs.
func (m *gpuMap) score(set, free uint64, cpus model.Bits, count int, by *taste) choice {
	c := choice{-m.inside(set), by.cold(set), m.between(set, free&^set), -m.nearby(set)}
	m.local(&c, set, free, cpus, count, by)
	return c
}

// local fills in what depends on the CPUs that are free.
func (m *gpuMap) local(c *choice, set, free uint64, cpus model.Bits, count int, by *taste) {
	var near model.Bits
	all := false
	for k := range m.groups {
		if m.groups[k]&set == 0 {
			continue
		}
		c[6]++
		c[7] += bits.OnesCount64(m.groups[k] & free &^ set)
		at := m.near[bits.TrailingZeros64(m.groups[k])]
		all = all || at.Empty()
		near = near.Or(at)
	}
	if m.close != nil {
		c[8] = across(m.close, set, free&^set)
	}
	if !all {
		c[4] = max(0, count-cpus.Count()+cpus.Minus(near).Count())
	}
	if by != nil {
		c[5] = by.of(set)
		if by.spread {
			c[6], c[7] = -c[6], -c[7]
		}
	}
}

// better orders sets, at last by the lowest indices.
func better(a choice, x uint64, b choice, y uint64) bool {
	if k := slices.Compare(a[:], b[:]); k != 0 {
		return k < 0
	}
	return bits.Reverse64(x) > bits.Reverse64(y)
}

// choose gives the best count units of from; 0 if there are not enough. free has all free units of the resource, also
// those that the job can't have or doesn't want. cpus are the free CPUs, of which the job takes ncpus.
func (m *gpuMap) choose(from, free uint64, count int, cpus model.Bits, ncpus int, by *taste) uint64 {
	switch n := bits.OnesCount64(from); {
	case n < count:
		return 0
	case n == count:
		return from
	case m.units > maxExhaustive:
		return m.grow(from, free, count, cpus, ncpus, by)
	}
	var best uint64
	var score choice
	for _, set := range m.bestSets(from, free, by.loaded(from), by.evicting(from), count) {
		var c choice
		m.local(&c, set, free, cpus, ncpus, by)
		if best == 0 || better(c, set, score, best) {
			best, score = set, c
		}
	}
	return best
}

// bestSets gives all sets that are equally good by criteria 1 to 4: the most links inside, the most units of warm and
// the fewest of full, the fewest links to units that stay free, the shortest ways.
func (m *gpuMap) bestSets(from, free, warm, full uint64, count int) []uint64 {
	key := setKey{from | free<<maxExhaustive | warm<<(2*maxExhaustive) | full<<(3*maxExhaustive), count}
	sets, ok := m.best[key]
	if ok {
		return sets
	}
	in, cold, out, near := -1, 0, 0, 0
	for set := uint64(1)<<count - 1; set < 1<<m.units; {
		if set&^from == 0 {
			i, w := m.inside(set), coldness(set, warm, full)
			if i > in || i == in && w <= cold {
				o, n := m.between(set, free&^set), m.nearby(set)
				if i > in || w < cold || o < out || o == out && n > near {
					in, cold, out, near, sets = i, w, o, n, sets[:0]
				}
				if o == out && n == near {
					sets = append(sets, set)
				}
			}
		}
		low := set & -set // the next number with as many bits (Gosper)
		up := set + low
		set = up | (set^up)/low>>2
	}
	m.best[key] = sets
	return sets
}

// most gives the most links between count units of a set.
func (m *gpuMap) most(free uint64, count int) int {
	if sets := m.bestSets(free, free, 0, 0, count); len(sets) > 0 {
		return m.inside(sets[0])
	}
	return 0
}

// grow finds a good set if there are too many to try them all.
func (m *gpuMap) grow(from, free uint64, count int, cpus model.Bits, ncpus int, by *taste) uint64 {
	var best uint64
	var score choice
	for _, seed := range m.seeds(from) {
		set := seed
		for n := 1; n < count; n++ {
			set = m.extend(set, from, free, count-n-1, cpus, ncpus, by)
		}
		if c := m.score(set, free, cpus, ncpus, by); best == 0 || better(c, set, score, best) {
			best, score = set, c
		}
	}
	for range count { // exchanges that improve it
		set := best
		for out := set; out != 0; out &= out - 1 {
			x := m.step(set, out&-out, from, free, cpus, ncpus, by)
			if c := m.score(x, free, cpus, ncpus, by); better(c, x, score, best) {
				best, score = x, c
			}
		}
		if best == set {
			break
		}
	}
	return best
}

// extend adds to a set the unit with the most links into the set. Links to units that may be added next count half.
func (m *gpuMap) extend(set, from, free uint64, more int, cpus model.Bits, ncpus int, by *taste) uint64 {
	if more == 0 {
		return m.step(set, 0, from, free, cpus, ncpus, by)
	}
	var best uint64
	var score choice
	var row [maxUnits]int32
	for left := from &^ set; left != 0; left &= left - 1 {
		u := bits.TrailingZeros64(left)
		x := set | 1<<u
		after := mostOf(row[:0], m.links[u], from&^x, more)
		c := choice{-2*m.inside(x) - after, by.cold(x), -after}
		if m.close != nil {
			c[3] = -2*m.nearby(x) - mostOf(row[:0], m.close[u], from&^x, more)
		}
		m.local(&c, x, free, cpus, ncpus, by)
		if best == 0 || better(c, x, score, best) {
			best, score = x, c
		}
	}
	return best
}

// mostOf adds up the `more` largest numbers of links from a unit to members of a set; to is scratch.
func mostOf(to, row []int32, set uint64, more int) int {
	for ; set != 0; set &= set - 1 {
		to = append(to, row[bits.TrailingZeros64(set)])
	}
	slices.Sort(to)
	sum := 0
	for _, n := range to[max(0, len(to)-more):] {
		sum += int(n)
	}
	return sum
}

// step takes drop out of a set and adds the unit that gives the best set.
func (m *gpuMap) step(set, drop, from, free uint64, cpus model.Bits, ncpus int, by *taste) uint64 {
	set &^= drop
	var best uint64
	var score choice
	for left := from &^ set; left != 0; left &= left - 1 {
		x := set | left&-left
		if c := m.score(x, free, cpus, ncpus, by); best == 0 || better(c, x, score, best) {
			best, score = x, c
		}
	}
	return best
}

// seeds gives units to begin with: one of each group, then others.
func (m *gpuMap) seeds(from uint64) []uint64 {
	var out []uint64
	for _, g := range m.groups {
		if g &= from; g != 0 && len(out) < maxSeeds {
			out = append(out, g&-g)
			from &^= g & -g
		}
	}
	for ; from != 0 && len(out) < maxSeeds; from &= from - 1 {
		out = append(out, from&-from)
	}
	return out
}
