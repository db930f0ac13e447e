package demand

import (
	"cmp"
	"slices"
)

// Kind is what a job asks for on one node.
type Kind struct {
	CPUs   int32
	MemMiB int64  // 0: no particular amount
	GPUs   int32  // whole ones
	Type   string // of the GPUs, in small letters; "": any
	Share  string // shard or mps: a part of one GPU
	Units  int32  // of that part
	Milli  int32  // the same in thousandths of a GPU, whatever the GPU is divided into; 0: Units
}

// Limits of a mix.
const (
	Least    = 32 // requests for GPUs without which there is no mix
	MaxKinds = 64
	MaxGPUs  = 16 // of a node; nodes with more are filled in their order
)

// The waste is computed from kinds by their frequency, in parts of whole, and from trials: random sequences of jobs.
const (
	whole     = 1024
	trials    = 8
	trialJobs = 40
)

// Mix is how often jobs of which kind come.
type Mix struct {
	kinds []Kind
	share []int64 // of the kinds, in parts of whole
	parts int64   // share of the kinds that share a GPU
	trial [trials][trialJobs]uint8
}

// newMix makes a mix of counts of kinds that ask for GPUs; nil where there are too few.
func newMix(counts map[Kind]int64) *Mix {
	type counted struct {
		Kind
		n int64
	}
	var list []counted
	all := int64(0)
	for k, n := range counts {
		if n > 0 && (k.GPUs > 0 || k.Share != "") {
			list = append(list, counted{k, n})
			all += n
		}
	}
	if all < Least {
		return nil
	}
	slices.SortFunc(list, func(a, b counted) int {
		return cmp.Or(cmp.Compare(b.n*int64(max(1, b.GPUs)), a.n*int64(max(1, a.GPUs))), cmp.Compare(a.GPUs, b.GPUs),
			cmp.Compare(a.CPUs, b.CPUs), cmp.Compare(a.MemMiB, b.MemMiB), cmp.Compare(a.Milli, b.Milli),
			cmp.Compare(a.Units, b.Units), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Share, b.Share))
	})
	list = list[:min(len(list), MaxKinds)]
	m := &Mix{}
	var upTo []int64
	sum := int64(0)
	for i := range list {
		sum += list[i].n
		upTo = append(upTo, sum)
		m.kinds = append(m.kinds, list[i].Kind)
	}
	for i := range list {
		m.share = append(m.share, (list[i].n*whole+sum/2)/sum)
		if list[i].Share != "" {
			m.parts += m.share[i]
		}
	}
	for t := range m.trial {
		for k := range m.trial[t] {
			at := int64(scatter(uint64(t*trialJobs+k)) % uint64(sum))
			i, _ := slices.BinarySearch(upTo, at+1)
			m.trial[t][k] = uint8(i)
		}
	}
	return m
}

// scatter gives numbers without a pattern, the same everywhere (splitmix64; Steele, Lea, Flood, OOPSLA 2014).
func scatter(i uint64) uint64 {
	z := (i + 1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Shares reports whether a sixteenth of the requests or more is for parts of GPUs.
func (m *Mix) Shares() bool { return m.parts >= whole/16 }

// Kinds gives the kinds, those that ask for most GPUs first.
func (m *Mix) Kinds() []Kind { return m.kinds }

// Need is what a kind needs of a node of one sort.
type Need struct {
	Never  bool // the node can't hold it, even if it is empty
	CPUs   int32
	MemMiB int64
	GPUs   int32 // whole ones
	Milli  int32 // of one GPU
}

// State is what a node has left. GPUs are in thousandths, in any order.
type State struct {
	CPUs   int32
	MemMiB int64
	GPUs   int8
	Free   [MaxGPUs]int16
}

// gpu is a GPU that nobody uses.
const gpu = 1000

// Table rates the states of nodes of one sort. Not safe for concurrent use.
type Table struct {
	mix   *Mix
	need  []Need // by kind
	known map[State]int64
}

// maxKnown bounds the states that a table remembers.
const maxKnown = 1 << 15

// For gives the table of nodes of one sort; need says what each kind needs of them.
func (m *Mix) For(need func(*Kind) Need) *Table {
	t := &Table{mix: m, known: map[State]int64{}}
	for i := range m.kinds {
		n := need(&m.kinds[i])
		n.Never = n.Never || n.GPUs == 0 && (n.Milli <= 0 || n.Milli > gpu)
		t.need = append(t.need, n)
	}
	return t
}

// estimates is the number of estimates of Waste.
const estimates = 3

// Waste gives how much of what a node has left is expected not to be of use. It is the sum of three estimates, each in
// thousandths of a GPU times whole:
//
//   - what is left after jobs have come in the order of the trials, and each that fits has been placed;
//   - what is left if only jobs of one kind come, the mean over the kinds;
//   - what a kind can't use at all, the mean over the kinds. Source: Weng et al., Beware of Fragmentation, USENIX ATC
//     2023, section 3.
func (t *Table) Waste(s State) int64 {
	free := s.Free[:s.GPUs]
	slices.SortFunc(free, func(a, b int16) int { return int(b) - int(a) })
	if len(free) == 0 || free[0] == 0 {
		return 0
	}
	if w, ok := t.known[s]; ok {
		return w
	}
	if len(t.known) >= maxKnown {
		clear(t.known)
	}
	w := t.tried(s) + t.byKind(&s)
	t.known[s] = w
	return w
}

// Lost is the waste of so many whole GPUs that nobody can use.
func Lost(gpus int) int64 { return int64(gpus) * gpu * whole * estimates }

// Start takes a job off a state: whole GPUs, or a part of the GPU with the least left that is enough. It reports
// whether there is room.
func (s *State) Start(n *Need) bool {
	if s.CPUs < n.CPUs || s.MemMiB < n.MemMiB {
		return false
	}
	free := s.Free[:s.GPUs]
	switch {
	case n.GPUs > 0:
		left := n.GPUs
		for i := 0; i < len(free) && left > 0; i++ {
			if free[i] == gpu {
				left--
			}
		}
		if left > 0 {
			return false
		}
		left = n.GPUs
		for i := 0; left > 0; i++ {
			if free[i] == gpu {
				free[i] = 0
				left--
			}
		}
	case n.Milli > 0:
		best := -1
		for i, f := range free {
			if int32(f) >= n.Milli && (best < 0 || f < free[best]) {
				best = i
			}
		}
		if best < 0 {
			return false
		}
		free[best] -= int16(n.Milli)
	}
	s.CPUs -= n.CPUs
	s.MemMiB -= n.MemMiB
	return true
}

func (s *State) left() (sum int64) {
	for _, f := range s.Free[:s.GPUs] {
		sum += int64(f)
	}
	return sum
}

// tried gives what is left after the trials.
func (t *Table) tried(s State) int64 {
	sum, all := int64(0), s.left()
	for k := range t.mix.trial {
		at, left := s, all
		for _, i := range t.mix.trial[k] {
			n := &t.need[i]
			if n.Never || at.CPUs < n.CPUs || at.MemMiB < n.MemMiB || int64(n.Milli) > left || int64(n.GPUs)*gpu > left {
				continue
			}
			if at.Start(n) {
				if left -= int64(n.GPUs)*gpu + int64(n.Milli); left == 0 {
					break
				}
			}
		}
		sum += left
	}
	return sum * (whole / trials)
}

// byKind gives what is left if only jobs of one kind come, and what a kind can't use at all: the means over the kinds.
func (t *Table) byKind(s *State) int64 {
	sum, all := int64(0), s.left()
	wholes := int64(0)
	for _, f := range s.Free[:s.GPUs] {
		if f == gpu {
			wholes++
		}
	}
	for i := range t.need {
		n := &t.need[i]
		jobs, small := int64(0), int64(0) // small: left on GPUs that can't hold one
		switch {
		case n.Never || s.CPUs < n.CPUs || s.MemMiB < n.MemMiB:
		case n.GPUs > 0:
			jobs, small = wholes/int64(n.GPUs), all-wholes*gpu
		default:
			for _, f := range s.Free[:s.GPUs] {
				if c := int64(int32(f) / n.Milli); c > 0 {
					jobs += c
				} else {
					small += int64(f)
				}
			}
		}
		if jobs == 0 {
			sum += 2 * all * t.mix.share[i]
			continue
		}
		if n.CPUs > 0 {
			jobs = min(jobs, int64(s.CPUs/n.CPUs))
		}
		if n.MemMiB > 0 {
			jobs = min(jobs, s.MemMiB/n.MemMiB)
		}
		sum += (all - jobs*(int64(n.GPUs)*gpu+int64(n.Milli)) + small) * t.mix.share[i]
	}
	return sum
}
