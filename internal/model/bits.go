package model

import (
	"math/bits"
	"strconv"
)

// Bits is a set of small non-negative integers: CPU, GPU or task indices of one node. The zero value is empty.
// Methods that change a set return a new one; a published Bits is never edited.
type Bits []uint64

// Has reports whether i is in the set.
func (b Bits) Has(i int) bool {
	return i >= 0 && i>>6 < len(b) && b[i>>6]&(1<<(uint(i)&63)) != 0
}

// Count gives the number of members.
func (b Bits) Count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// Empty reports whether the set has no members.
func (b Bits) Empty() bool {
	for _, w := range b {
		if w != 0 {
			return false
		}
	}
	return true
}

// With gives the set with i added.
func (b Bits) With(i int) Bits {
	n := max(len(b), i>>6+1)
	c := make(Bits, n)
	copy(c, b)
	c[i>>6] |= 1 << (uint(i) & 63)
	return c
}

// Or gives the union.
func (b Bits) Or(o Bits) Bits {
	c := make(Bits, max(len(b), len(o)))
	copy(c, b)
	for i, w := range o {
		c[i] |= w
	}
	return c.trim()
}

// Minus gives the members of b that are not in o.
func (b Bits) Minus(o Bits) Bits {
	c := make(Bits, len(b))
	copy(c, b)
	for i := range min(len(b), len(o)) {
		c[i] &^= o[i]
	}
	return c.trim()
}

// And gives the members that b and o have in common.
func (b Bits) And(o Bits) Bits {
	c := make(Bits, min(len(b), len(o)))
	for i := range c {
		c[i] = b[i] & o[i]
	}
	return c.trim()
}

// Overlaps reports whether b and o share a member.
func (b Bits) Overlaps(o Bits) bool {
	for i := range min(len(b), len(o)) {
		if b[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// Contains reports whether every member of o is in b.
func (b Bits) Contains(o Bits) bool {
	for i, w := range o {
		if w == 0 {
			continue
		}
		if i >= len(b) || w&^b[i] != 0 {
			return false
		}
	}
	return true
}

// Max gives the largest member, or -1.
func (b Bits) Max() int {
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != 0 {
			return i<<6 + 63 - bits.LeadingZeros64(b[i])
		}
	}
	return -1
}

// Each calls f for every member in ascending order until f returns false.
func (b Bits) Each(f func(i int) bool) {
	for w, word := range b {
		for word != 0 {
			if !f(w<<6 + bits.TrailingZeros64(word)) {
				return
			}
			word &= word - 1
		}
	}
}

// First gives the n smallest members, or nil if there are fewer.
func (b Bits) First(n int) Bits {
	out := make(Bits, len(b))
	for i, word := range b {
		for word != 0 && n > 0 {
			out[i] |= word & -word
			word &= word - 1
			n--
		}
	}
	if n > 0 {
		return nil
	}
	return out.trim()
}

// UpTo gives the set {0, ..., n-1}.
func UpTo(n int) Bits {
	if n <= 0 {
		return nil
	}
	b := make(Bits, (n+63)>>6)
	for i := range b {
		b[i] = ^uint64(0)
	}
	if r := uint(n) & 63; r != 0 {
		b[len(b)-1] = 1<<r - 1
	}
	return b
}

func (b Bits) trim() Bits {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	if len(b) == 0 {
		return nil
	}
	return b
}

// String gives the set as ranges: "0-3,7". The empty set is "".
func (b Bits) String() string {
	var out []byte
	lo, hi := -1, -2
	flush := func() {
		if lo < 0 {
			return
		}
		if len(out) > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(lo), 10)
		if hi > lo {
			out = append(out, '-')
			out = strconv.AppendInt(out, int64(hi), 10)
		}
	}
	b.Each(func(i int) bool {
		if i == hi+1 {
			hi = i
			return true
		}
		flush()
		lo, hi = i, i
		return true
	})
	flush()
	return string(out)
}
