package sched

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"gbatch/internal/model"
)

// gpuNode gives a node with 8 GPUs: links by n, near halves of its CPUs.
func gpuNode(units int, links func(a, b int) int32) *model.NodeDef {
	d := &model.NodeDef{Name: "g", CPUs: 64, ThreadsPerCore: 1, Gres: []model.GresDef{{Name: "gpu", Count: int32(units)}}}
	g := &d.Gres[0]
	for a := range units {
		row := make([]int32, units)
		for b := range units {
			if a != b {
				row[b] = links(a, b)
			}
		}
		g.Links = append(g.Links, row)
		g.Near = append(g.Near, span(a*2/units*32, 32))
	}
	return d
}

func pairs(a, b int) int32 {
	if a/2 == b/2 {
		return 4
	}
	return 0
}

// cube is the hybrid mesh of eight GPUs with six links each.
func cube(a, b int) int32 {
	switch a ^ b {
	case 4:
		return 2
	case 1, 2:
		return 1
	case 3:
		return 2
	}
	return 0
}

func mesh(int, int) int32 { return 12 }

// TestGPUSetsBest: up to 8 GPUs the choice is the best of all sets by the whole score, whatever is free.
func TestGPUSetsBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	random := func() func(a, b int) int32 {
		var w [8][8]int32
		for a := range 8 {
			for b := range a {
				w[a][b] = int32(rng.IntN(4))
				w[b][a] = w[a][b]
			}
		}
		return func(a, b int) int32 { return w[a][b] }
	}
	for round, links := range []func(a, b int) int32{pairs, cube, mesh, random(), random(), random()} {
		m := newGPUMap(gpuNode(8, links), "gpu")
		for range 3000 {
			free := uint64(rng.IntN(256))
			from := free & uint64(rng.IntN(256)|rng.IntN(256))
			count := 1 + rng.IntN(8)
			cpus := model.Bits{rng.Uint64() & rng.Uint64()}
			ncpus := 1 + rng.IntN(20)
			got := m.choose(from, free, count, cpus, ncpus, nil)
			var best uint64
			var score choice
			for set := uint64(1); set < 256; set++ {
				if set&^from == 0 && bits.OnesCount64(set) == count {
					if c := m.score(set, free, cpus, ncpus, nil); best == 0 || better(c, set, score, best) {
						best, score = set, c
					}
				}
			}
			if got != best {
				t.Fatalf("links %d: %d of %08b (free %08b, cpus %x, %d): %08b %v, best %08b %v", round, count, from, free, cpus,
					ncpus, got,
					m.score(got, free, cpus, ncpus, nil), best, score)
			}
		}
	}
}

// TestNoPairSplit: random jobs come and go on GPUs linked in pairs; a pair of free GPUs is split only if no single GPU
// is left for an odd count.
func TestNoPairSplit(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, units := range []int{8, 16} {
		m := newGPUMap(gpuNode(units, pairs), "gpu")
		free, cpus := uint64(1)<<units-1, model.UpTo(64)
		var jobs []uint64
		for range 2000 {
			if k := rng.IntN(len(jobs) + 1); k < len(jobs) && rng.IntN(2) == 0 {
				free |= jobs[k]
				jobs = append(jobs[:k], jobs[k+1:]...)
				continue
			}
			count := 1 + rng.IntN(4)
			if bits.OnesCount64(free) < count {
				continue
			}
			singles, whole := 0, 0
			for p := 0; p < units; p += 2 {
				switch bits.OnesCount64(free >> p & 3) {
				case 1:
					singles++
				case 2:
					whole++
				}
			}
			set := m.choose(free, free, count, cpus, 1, nil)
			split := 0
			for p := 0; p < units; p += 2 {
				if free>>p&3 == 3 && bits.OnesCount64(set>>p&3) == 1 {
					split++
				}
			}
			least := 1 // an odd count with no single GPU free splits one pair
			if take := min(count/2, whole); count-2*take <= singles {
				least = 0
			}
			if split > least {
				t.Fatalf("%d of %b: took %b, split %d pairs; %d is enough", count, free, set, split, least)
			}
			free &^= set
			jobs = append(jobs, set)
		}
	}
}

// TestGPUSetsGrown: with more than 8 GPUs the chosen set has as many links as the best one, for real networks.
func TestGPUSetsGrown(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 1))
	island := func(n int) func(a, b int) int32 {
		return func(a, b int) int32 {
			if a/n == b/n {
				return 6
			}
			return 0
		}
	}
	for round, links := range []func(a, b int) int32{pairs, island(4), island(8), mesh} {
		m := newGPUMap(gpuNode(12, links), "gpu")
		for range 40 {
			free := uint64(rng.IntN(1<<12) | rng.IntN(1<<12))
			count := 1 + rng.IntN(6)
			if bits.OnesCount64(free) < count {
				continue
			}
			got := m.choose(free, free, count, model.UpTo(64), 4, nil)
			best := 0
			for set := uint64(1); set < 1<<12; set++ {
				if set&^free == 0 && bits.OnesCount64(set) == count {
					best = max(best, m.inside(set))
				}
			}
			if bits.OnesCount64(got) != count || got&^free != 0 || m.inside(got) != best {
				t.Errorf("links %d: %d of %012b: %012b with %d links, the best has %d", round, count, free, got, m.inside(got),
					best)
			}
		}
	}
}

// BenchmarkGPUSet: one choice, with the maps known or not (cold).
func BenchmarkGPUSet(b *testing.B) {
	for _, units := range []int{8, 16} {
		d := gpuNode(units, cube)
		cpus := model.UpTo(64)
		b.Run(fmt.Sprintf("gpus=%d/warm", units), func(b *testing.B) {
			m := newGPUMap(d, "gpu")
			for b.Loop() {
				m.choose(1<<units-1, 1<<units-1, 4, cpus, 8, nil)
			}
		})
		b.Run(fmt.Sprintf("gpus=%d/cold", units), func(b *testing.B) {
			m := newGPUMap(d, "gpu")
			for b.Loop() {
				clear(m.best)
				m.choose(1<<units-1, 1<<units-1, 4, cpus, 8, nil)
			}
		})
	}
}
