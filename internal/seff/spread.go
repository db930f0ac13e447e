package seff

import (
	"maps"
	"math/bits"
	"slices"
)

// Spread counts values that are not negative. Its size has a bound however many are added: values from 128 on count as
// up to 1/64 more than they are. The zero value is ready.
type Spread struct {
	counts  map[int64]int64
	n, most int64
}

// exactBits is how many leading bits of a value are kept.
const exactBits = 7

// Add counts a value.
func (s *Spread) Add(v int64) {
	v = max(0, v)
	if s.counts == nil {
		s.counts = map[int64]int64{}
	}
	s.n++
	s.most = max(s.most, v)
	if lost := bits.Len64(uint64(v)) - exactBits; lost > 0 {
		v |= 1<<lost - 1
	}
	s.counts[v]++
}

// Count gives how many values there are.
func (s *Spread) Count() int64 { return s.n }

// Max gives the largest value; 0: there is none.
func (s *Spread) Max() int64 { return s.most }

// Within gives the value that pct percent of all do not exceed; 0: there is none.
func (s *Spread) Within(pct int64) int64 {
	left := (s.n*pct + 99) / 100
	for _, v := range slices.Sorted(maps.Keys(s.counts)) {
		if left -= s.counts[v]; left <= 0 {
			return min(v, s.most)
		}
	}
	return s.most
}
