package sched

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"testing"

	"gbatch/internal/ask"
	"gbatch/internal/model"
)

// machine is a real machine: links and distances between GPUs, CPUs near each.
type machine struct {
	name  string
	gpus  int
	cpus  int
	links func(a, b int) int32
	// NVML's levels: 10 and 20 one or more PCIe switches, 30 a host bridge, 40 a NUMA node, 50 the machine
	dist func(a, b int) int32
	numa func(a int) int // domain of CPUs
	doms int
}

func (m *machine) def() *model.NodeDef {
	d := &model.NodeDef{Name: "g", CPUs: int32(m.cpus), ThreadsPerCore: 1, MemMiB: 1 << 20,
		Gres: []model.GresDef{{Name: "gpu", Count: int32(m.gpus)}}}
	g := &d.Gres[0]
	for a := range m.gpus {
		links, dist := make([]int32, m.gpus), make([]int32, m.gpus)
		for b := range m.gpus {
			if a == b {
				continue
			}
			dist[b] = m.dist(a, b)
			if m.links != nil {
				links[b] = m.links(a, b)
			}
		}
		if m.links != nil {
			g.Links = append(g.Links, links)
		}
		g.Dist = append(g.Dist, dist)
		each := m.cpus / m.doms
		g.Near = append(g.Near, span(m.numa(a)*each, each))
	}
	return d
}

// dgx1 is the hybrid cube mesh of DGX-1 with V100s: two links to some, one to others.
var dgx1 = [8][8]int32{
	{0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0}, {1, 2, 0, 2, 0, 0, 1, 0}, {2, 1, 2, 0, 0, 0, 0, 1},
	{2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1}, {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0}}

func level(same func(a, b int) bool, near, far int32) func(a, b int) int32 {
	return func(a, b int) int32 {
		if same(a, b) {
			return near
		}
		return far
	}
}

func inBlocks(n int) func(a, b int) bool { return func(a, b int) bool { return a/n == b/n } }

func machines() []machine {
	return []machine{
		{name: "DGX A100", gpus: 8, cpus: 128, links: mesh, dist: level(inBlocks(2), 20, 50),
			numa: func(a int) int { return []int{3, 1, 7, 5}[a/2] }, doms: 8},
		{name: "DGX H100", gpus: 8, cpus: 112, links: func(int, int) int32 { return 18 }, dist: level(inBlocks(4), 40, 50),
			numa: func(a int) int { return a / 4 }, doms: 2},
		{name: "PCIe, two switches", gpus: 8, cpus: 64, dist: level(inBlocks(4), 10, 50),
			numa: func(a int) int { return a / 4 }, doms: 2},
		{name: "PCIe, four switches", gpus: 8, cpus: 64, dist: func(a, b int) int32 {
			switch {
			case a/2 == b/2:
				return 10
			case a/4 == b/4:
				return 40
			}
			return 50
		}, numa: func(a int) int { return a / 4 }, doms: 2},
		{name: "NVLink pairs", gpus: 4, cpus: 64, links: pairs, dist: level(inBlocks(2), 30, 50),
			numa: func(a int) int { return a / 2 }, doms: 2},
		{name: "NVLink pairs across sockets", gpus: 4, cpus: 64, links: func(a, b int) int32 {
			if a%2 == b%2 {
				return 4
			}
			return 0
		}, dist: level(inBlocks(2), 30, 50), numa: func(a int) int { return a / 2 }, doms: 2},
		{name: "DGX-1", gpus: 8, cpus: 80, links: func(a, b int) int32 { return dgx1[a][b] },
			dist: level(inBlocks(4), 20, 50), numa: func(a int) int { return a / 4 }, doms: 2},
		{name: "GH200, four", gpus: 4, cpus: 288, links: func(int, int) int32 { return 6 },
			dist: func(int, int) int32 { return 50 }, numa: func(a int) int { return a }, doms: 4},
		{name: "HGX with 16", gpus: 16, cpus: 96, links: func(int, int) int32 { return 6 }, dist: level(inBlocks(4), 20, 50),
			numa: func(a int) int { return a / 8 }, doms: 2},
	}
}

func setOf(text string) (set uint64) {
	for _, r := range text {
		n, _ := strconv.ParseUint(string(r), 16, 64)
		set |= 1 << n
	}
	return set
}

func setText(set uint64) (text string) {
	for ; set != 0; set &= set - 1 {
		text += strconv.FormatInt(int64(bits.TrailingZeros64(set)), 16)
	}
	return text
}

// TestSetsOfRealMachines: the GPUs that a job gets on real machines, for every count, on a free machine and on a partly
// used one.
func TestSetsOfRealMachines(t *testing.T) {
	want := map[string]struct {
		free []string            // by count, from 1
		used map[string][]string // what is in use: the sets by count
	}{
		"DGX A100": {[]string{"0", "01", "012", "0123", "01234", "012345", "0123456", "01234567"},
			map[string][]string{"0": {"1", "23", "123"}, "0123": {"4", "45", "456"}, "027": {"1", "45", "145", "1345"}}},
		"DGX H100": {[]string{"0", "01", "012", "0123", "01234", "012345", "0123456", "01234567"},
			map[string][]string{"0": {"1", "12", "123", "4567"}, "01": {"2", "23", "456", "4567"},
				"04": {"1", "12", "123", "1235"}}},
		"PCIe, two switches": {[]string{"0", "01", "012", "0123", "01234", "012345", "0123456", "01234567"},
			map[string][]string{"0": {"1", "12", "123", "4567"}, "01": {"2", "23", "456", "4567"},
				"45": {"6", "67", "012", "0123"}}},
		"PCIe, four switches": {[]string{"0", "01", "012", "0123", "01234", "012345", "0123456", "01234567"},
			map[string][]string{"0": {"1", "23", "123", "4567"}, "04": {"1", "23", "123"}, "06": {"1", "23"},
				"2467": {"5", "01", "013"}}},
		"NVLink pairs": {[]string{"0", "01", "012", "0123"},
			map[string][]string{"0": {"1", "23", "123"}, "3": {"2", "01"}, "02": {"1", "13"}}},
		"NVLink pairs across sockets": {[]string{"0", "02", "012", "0123"},
			map[string][]string{"0": {"2", "13"}, "3": {"1", "02"}, "02": {"1", "13"}}},
		"DGX-1": {[]string{"0", "03", "023", "0123", "01234", "012345", "0123456", "01234567"},
			map[string][]string{"0123": {"4", "47", "467", "4567"}, "0": {"3", "23", "123", "4567"},
				"47": {"6", "56", "023", "0123"}}},
		"GH200, four": {[]string{"0", "01", "012", "0123"}, map[string][]string{"0": {"1", "12"}, "12": {"0", "03"}}},
		"HGX with 16": {[]string{"0", "01", "012", "0123", "01234", "012345", "0123456", "01234567", "012345678"},
			map[string][]string{"01": {"2", "23", "456", "4567"}, "0": {"1", "12", "123", "4567"}}},
	}
	for _, x := range machines() {
		w, known := want[x.name]
		if !known {
			t.Errorf("%s is not in the table", x.name)
		}
		m := newGPUMap(x.def(), "gpu")
		all := uint64(1)<<x.gpus - 1
		check := func(used uint64, sets []string) {
			for k, text := range sets {
				got := m.choose(all&^used, all&^used, k+1, model.UpTo(x.cpus), 1, nil)
				if got != setOf(text) {
					t.Errorf("%s, %q in use: %d are %s, want %s", x.name, setText(used), k+1, setText(got), text)
				}
			}
		}
		check(0, w.free)
		for used, sets := range w.used {
			check(setOf(used), sets)
		}
	}
}

// TestSetsAgainstExhaustion: on every machine, from any set of free GPUs and with any CPUs free, the chosen set has as
// many links, cuts as few, and has distances as short (up to 8 GPUs) as the best of all sets, and splits no pair
// needlessly.
func TestSetsAgainstExhaustion(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	rounds := 400
	if testing.Short() {
		rounds = 60
	}
	for _, x := range machines() {
		m := newGPUMap(x.def(), "gpu")
		all := uint64(1)<<x.gpus - 1
		if x.gpus > 8 {
			rounds = 6
		}
		for range rounds {
			free := (rng.Uint64() | rng.Uint64()) & all
			if free == 0 {
				continue
			}
			count := 1 + rng.IntN(bits.OnesCount64(free))
			cpus := model.Bits{rng.Uint64() | rng.Uint64()}
			got := m.choose(free, free, count, cpus, 1+rng.IntN(8), nil)
			if bits.OnesCount64(got) != count || got&^free != 0 {
				t.Fatalf("%s: %d of %s: %s", x.name, count, setText(free), setText(got))
			}
			quality := func(set uint64) [3]int { return [3]int{-m.inside(set), m.between(set, free&^set), -m.nearby(set)} }
			best := quality(got)
			for set := free; set != 0; set = (set - 1) & free {
				if bits.OnesCount64(set) != count {
					continue
				}
				q := quality(set)
				if x.gpus > maxExhaustive {
					q[2] = best[2] // a set that was grown is best by links; its ways may be a little longer
				}
				if q[0] < best[0] || q[0] == best[0] && (q[1] < best[1] || q[1] == best[1] && q[2] < best[2]) {
					t.Fatalf("%s: %d of %s: %s %v, %s is better: %v", x.name, count, setText(free), setText(got), quality(got),
						setText(set), q)
				}
			}
		}
	}
}

// TestCoresAreNearTheGPUs: a job's CPUs are on its GPUs' NUMA node while enough are free there.
func TestCoresAreNearTheGPUs(t *testing.T) {
	for _, x := range machines() {
		d := x.def()
		s := &stock{params: &model.Params{}, lots: lots{}}
		r := s.empty(d)
		for u := x.gpus - 1; u >= 0; u -= 3 {
			r.gres[0].free, r.gres[0].nfree = model.Bits{1 << uint(u)}, 1
			rq := Request{Counts: ask.Counts{PerNode: 1, CPUsPerTask: 4, Gres: []model.GresReq{{Name: "gpu", Count: 1}}}}
			na, m := r.place(&rq, 1, nil)
			if m != missNone || !d.Gres[0].Near[u].Contains(na.CPUs) || na.CPUs.Count() != 4 {
				t.Errorf("%s: GPU %d, CPUs %s (%d)", x.name, u, na.CPUs, m)
			}
		}
	}
}

// BenchmarkShapes: the first choice on each machine, and a repeated one.
func BenchmarkShapes(b *testing.B) {
	for _, x := range machines() {
		d := x.def()
		cpus := model.UpTo(x.cpus)
		all := uint64(1)<<x.gpus - 1
		b.Run(fmt.Sprintf("%s/cold", x.name), func(b *testing.B) {
			m := newGPUMap(d, "gpu")
			for b.Loop() {
				clear(m.best)
				m.choose(all, all, x.gpus/2, cpus, 8, nil)
			}
		})
		b.Run(fmt.Sprintf("%s/warm", x.name), func(b *testing.B) {
			m := newGPUMap(d, "gpu")
			for b.Loop() {
				m.choose(all, all, x.gpus/2, cpus, 8, nil)
			}
		})
	}
}
