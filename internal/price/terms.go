package price

import (
	"slices"

	"gbatch/internal/wire"
)

// TermOf says which key of the configuration a Term is about. The numbers are stored: append only.
type TermOf uint8

// The kinds.
const (
	TermMinimum   TermOf = iota + 1 // MinS
	TermDiscounts                   // Discounts
	TermBy                          // ByPeriod
)

// Term is one of the values beside the prices from one moment on, until a later one of its kind. The values in the
// Table itself hold before the first one.
type Term struct {
	Of        TermOf
	From      int64 // Unix seconds, above 0
	MinS      int64
	Discounts []Discount
	ByPeriod  bool
}

func (x *Term) Wire(c *wire.C) {
	wire.Int(c, &x.Of)
	wire.Int(c, &x.From)
	wire.Int(c, &x.MinS)
	wire.List(c, &x.Discounts, MaxDiscounts)
	wire.Bool(c, &x.ByPeriod)
}

// terms are the values beside the prices at one moment.
type terms struct {
	MinS      int64
	Discounts []Discount
	ByPeriod  bool
	Since     int64 // from when on these discounts hold: hours under others don't count with those under them
}

// at gives the values that hold for what starts at a moment: as with prices the latest ones that hold by then, and in
// case of doubt the last one in the file.
func (t *Table) at(start int64) terms {
	x := terms{MinS: t.MinS, Discounts: t.Discounts, ByPeriod: t.ByPeriod}
	var since [TermBy + 1]int64
	for i := range t.Terms {
		l := &t.Terms[i]
		if l.Of < TermMinimum || l.Of > TermBy || l.From > start || l.From < since[l.Of] {
			continue
		}
		since[l.Of] = l.From
		switch l.Of {
		case TermMinimum:
			x.MinS = l.MinS
		case TermDiscounts:
			x.Discounts = l.Discounts
		case TermBy:
			x.ByPeriod = l.ByPeriod
		}
	}
	x.Since = max(since[TermDiscounts], since[TermBy])
	return x
}

// ByMonth reports whether the hours of a session count together with others of their month.
func (t *Table) ByMonth(s *Session) bool {
	x := t.at(s.began())
	return x.ByPeriod
}

// The keys of the configuration that decide what a run costs.
const (
	KeyPrice      = "Price"
	KeyMinimum    = "PriceMinimumTime"
	KeyDiscounts  = "PriceDiscounts"
	KeyDiscountBy = "PriceDiscountBy"
)

// Rewrites gives the keys by which runs that started until a moment would cost something else by n than by t. Without
// prices in t nothing was billed.
func (t *Table) Rewrites(n *Table, until int64) (keys []string) {
	if !t.Priced() {
		return nil
	}
	if !slices.EqualFunc(t.linesUntil(until), n.linesUntil(until), func(a, b Line) bool {
		return a.From == b.From && a.Partition == b.Partition && slices.Equal(a.Rates, b.Rates)
	}) {
		keys = append(keys, KeyPrice)
	}
	moments := []int64{0} // between them nothing changes
	for i := range t.Terms {
		moments = append(moments, t.Terms[i].From)
	}
	for i := range n.Terms {
		moments = append(moments, n.Terms[i].From)
	}
	var minimum, discounts, by bool
	for _, at := range moments {
		if a, b := t.at(at), n.at(at); at <= until {
			minimum = minimum || a.MinS != b.MinS
			discounts = discounts || !slices.Equal(a.Discounts, b.Discounts)
			by = by || a.ByPeriod != b.ByPeriod
		}
	}
	for key, differs := range []bool{minimum, discounts, by} {
		if differs {
			keys = append(keys, [...]string{KeyMinimum, KeyDiscounts, KeyDiscountBy}[key])
		}
	}
	return keys
}

func (t *Table) linesUntil(until int64) (out []Line) {
	for i := range t.Lines {
		if t.Lines[i].From <= until {
			out = append(out, t.Lines[i])
		}
	}
	return out
}
