package price

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Money is an amount in millionths of the currency's unit.
type Money int64

// One is one unit of the currency.
const One Money = 1_000_000

// MaxMoney bounds what people write: 1e12 units.
const MaxMoney = 1_000_000_000_000 * One

// decimals is the number of digits behind the point of an amount.
const decimals = 6

// Parse reads an amount such as 2, 0.05 or -12.5: at most six digits behind the point.
func Parse(s string) (Money, error) {
	text, minus := strings.CutPrefix(s, "-")
	whole, part, point := strings.Cut(text, ".")
	switch {
	case whole == "" && part == "", point && part == "":
		return 0, fmt.Errorf("%q is no amount; write 2 or 0.05", s)
	case len(part) > decimals:
		return 0, fmt.Errorf("%q has more than %d digits behind the point", s, decimals)
	}
	n, err := number(whole + part + strings.Repeat("0", decimals-len(part)))
	if err != nil {
		return 0, fmt.Errorf("%q is no amount; write 2 or 0.05", s)
	}
	if n > int64(MaxMoney) {
		return 0, fmt.Errorf("%q is more than %d", s, MaxMoney/One)
	}
	if minus {
		n = -n
	}
	return Money(n), nil
}

// number reads digits.
func number(s string) (int64, error) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, strconv.ErrSyntax
		}
	}
	s = strings.TrimLeft(s, "0")
	switch {
	case s == "":
		return 0, nil
	case len(s) > 19, len(s) == 19 && s > "1000000000000000000":
		return int64(MaxMoney) + 1, nil
	}
	return strconv.ParseInt(s, 10, 64)
}

// String gives the amount with two digits behind the point, rounded half away from zero.
func (m Money) String() string {
	cents := muldiv(m.size(), 1, 1, uint64(One)/100)
	return m.sign(cents > 0) + fmt.Sprintf("%d.%02d", cents/100, cents%100)
}

// In is String with the currency before the digits: -$1.60.
func (m Money) In(currency string) string {
	text, minus := strings.CutPrefix(m.String(), "-")
	if minus {
		return "-" + currency + text
	}
	return currency + text
}

// Exact gives the whole amount: two digits behind the point, or as many as it needs.
func (m Money) Exact() string {
	n := m.size()
	part := strings.TrimRight(fmt.Sprintf("%06d", n%uint64(One)), "0")
	for len(part) < 2 {
		part += "0"
	}
	return m.sign(n > 0) + strconv.FormatUint(n/uint64(One), 10) + "." + part
}

func (m Money) sign(some bool) string {
	if m < 0 && some {
		return "-"
	}
	return ""
}

func (m Money) size() uint64 {
	if m < 0 {
		return -uint64(m)
	}
	return uint64(m)
}

// Add adds amounts; a sum that does not fit becomes the largest or the least one.
func (m Money) Add(n Money) Money {
	sum := m + n
	switch {
	case m > 0 && n > 0 && sum < 0:
		return 1<<63 - 1
	case m < 0 && n < 0 && sum >= 0:
		return -(1<<63 - 1)
	}
	return sum
}

// Percent reports whether m is at least pct per cent of whole.
func (m Money) Percent(pct int64, whole Money) bool {
	hi, lo := bits.Mul64(max(m, 0).size(), 100)
	hi2, lo2 := bits.Mul64(max(whole, 0).size(), uint64(max(pct, 0)))
	return hi > hi2 || hi == hi2 && lo >= lo2
}

// muldiv gives a*b*c/den rounded half up; what does not fit becomes the largest int64. den is above 0.
func muldiv(a, b, c, den uint64) int64 {
	const most = 1<<63 - 1
	hi, lo := bits.Mul64(a, b)
	over, high := bits.Mul64(hi, c)
	carry, low := bits.Mul64(lo, c)
	high, more := bits.Add64(high, carry, 0)
	low, carry = bits.Add64(low, den/2, 0)
	high, end := bits.Add64(high, 0, carry)
	if over+more+end > 0 || high >= den {
		return most
	}
	n, _ := bits.Div64(high, low, den)
	return int64(min(n, most))
}
