package state

import (
	"math"
	"math/bits"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Usage decays: usage of a half-life ago counts half (PriorityDecayHalfLife). This needs no walk over records. A meter
// is a value at a moment and the rate at which it grows, and its value at any later moment t has a closed form,
//
//	V(t) = V·d + R·H/ln2·(1-d),  d = 2^(-(t-stamp)/H)
//
// so reading it often, seldom or never gives the same result. All arithmetic is on integers: every replica computes the
// same.

// half is 2^(-1/2^k) for k = 1, 2, ... in units of 2^-63.
var half = [32]uint64{
	0x5a827999fcef3242, 0x6ba27e656b4eb57a, 0x75606373ee921c97, 0x7a92be8a92436616,
	0x7d41d96db915019d, 0x7e9f06067a4360ba, 0x7f4f08ae3dc7c426, 0x7fa765aca88f6453,
	0x7fd3ab290e46d769, 0x7fe9d3a8e07bf086, 0x7ff4e9597bed93ab, 0x7ffa748dff8dc61f,
	0x7ffd3a3f50020332, 0x7ffe9d1dbc0a75aa, 0x7fff4e8e6306ed59, 0x7fffa74712c3cdfd,
	0x7fffd3a381b1fa29, 0x7fffe9d1beed018a, 0x7ffff4e8defb81d7, 0x7ffffa746f5f012f,
	0x7ffffd3a37a7d0a8, 0x7ffffe9d1bd1fc58, 0x7fffff4e8de8832d, 0x7fffffa746f422d7,
	0x7fffffd3a37a09bb, 0x7fffffe9d1bd02f2, 0x7ffffff4e8de80fe, 0x7ffffffa746f4060,
	0x7ffffffd3a37a028, 0x7ffffffe9d1bd012, 0x7fffffff4e8de809, 0x7fffffffa746f404,
}

const (
	one       = 1 << 63            // 1 in units of 2^-63
	ln2Q64    = 0xb17217f7d1cf79ab // ln 2 in units of 2^-64
	invLn2Q62 = 0x5c551d94ae0bf85d // 1/ln 2 in units of 2^-62
)

// exp2 gives 2^(-num/den) in units of 2^-63; num and den are above 0. The error is below 2^-57.
func exp2(num, den uint64) uint64 {
	whole, rest := num/den, num%den
	if whole >= 63 {
		return 0
	}
	frac, _ := bits.Div64(rest, 0, den) // rest/den in units of 2^-64
	d := uint64(one)
	for k := range half {
		if frac&(1<<(63-k)) != 0 {
			d = mul63(d, half[k])
		}
	}
	// The rest of the exponent, below 2^-32, is small enough for 2^-x = 1 - x ln2.
	hi, _ := bits.Mul64(frac&(1<<32-1), ln2Q64)
	d = mul63(d, one-hi>>1)
	return d >> whole
}

// mul63 multiplies two numbers in units of 2^-63, rounded to the nearest.
func mul63(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	lo, carry := bits.Add64(lo, 1<<62, 0)
	return (hi+carry)<<1 | lo>>63
}

// Fade has the parameters of decay.
type Fade struct {
	HalfMS  int64      // half-life in milliseconds; 0: no decay
	ResetAt model.Time // usage before this moment is forgotten; 0: none is
}

// Meter measures usage: Value in milli-unit-seconds at a moment, and Rate, its growth, in micro-units.
type Meter struct {
	Value int64
	Rate  int64
}

func (x *Meter) Wire(c *wire.C) {
	wire.Int(c, &x.Value)
	wire.Int(c, &x.Rate)
}

// At gives, at now, the value of a meter that was taken at stamp. A moment before stamp counts as stamp. A value beyond
// 63 bits becomes the largest number.
func (f Fade) At(m Meter, stamp, now model.Time) int64 {
	if stamp < f.ResetAt && f.ResetAt <= now {
		m.Value, stamp = 0, f.ResetAt
	}
	return addSat(f.keep(m.Value, now-stamp), f.grown(m.Rate, now-stamp))
}

// maxReach bounds how far ahead Reaches looks, milliseconds: ten years.
const maxReach = 10 * 365 * 86400 * 1000

// Reaches gives the first moment, stamp or later, at which a meter taken at stamp reaches most; 0 if it doesn't within
// ten years. With a half-life a meter may never reach it, since it grows towards a bound.
func (f Fade) Reaches(m Meter, stamp model.Time, most int64) model.Time {
	if stamp < f.ResetAt {
		m.Value, stamp = 0, f.ResetAt
	}
	if m.Value >= most {
		return max(stamp, 1)
	}
	if m.Rate <= 0 || f.At(m, stamp, stamp+maxReach) < most {
		return 0
	}
	before, by := model.Time(0), model.Time(maxReach)
	for by-before > 1 {
		if mid := before + (by-before)/2; f.At(m, stamp, stamp+mid) >= most {
			by = mid
		} else {
			before = mid
		}
	}
	return stamp + by
}

// keep gives the rest of a value after a span of decay.
func (f Fade) keep(v int64, ms model.Time) int64 {
	if ms <= 0 || v <= 0 || f.HalfMS <= 0 {
		return v
	}
	hi, lo := bits.Mul64(uint64(v), exp2(uint64(ms), uint64(f.HalfMS)))
	lo, carry := bits.Add64(lo, 1<<62, 0)
	return int64((hi+carry)<<1 | lo>>63)
}

// grown gives what a rate adds in a span, with its decay up to the span's end.
func (f Fade) grown(rate int64, ms model.Time) int64 {
	if ms <= 0 || rate <= 0 {
		return 0
	}
	if f.HalfMS <= 0 {
		return mulDiv(uint64(rate), uint64(ms), 1_000_000)
	}
	// H/ln2·(1-d), milliseconds in units of 2^-16: small enough for spans of a century.
	hi, lo := bits.Mul64(uint64(f.HalfMS), invLn2Q62)
	mean := hi<<18 | lo>>46
	hi, lo = bits.Mul64(mean, one-exp2(uint64(ms), uint64(f.HalfMS)))
	return mulDiv(uint64(rate), hi<<1|lo>>63, 1_000_000<<16)
}

// mulDiv gives a*b/c, or the largest int64.
func mulDiv(a, b, c uint64) int64 {
	hi, lo := bits.Mul64(a, b)
	lo, carry := bits.Add64(lo, c/2, 0)
	hi += carry
	if hi >= c {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, c)
	return int64(min(q, math.MaxInt64))
}

func addSat(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}
