package price

import (
	"cmp"
	"maps"
	"slices"

	"gbatch/internal/wire"
)

// key is what the sessions of one line of an invoice have in common.
type key struct {
	account, user, pool string
	Rate
	month bool  // their hours count together
	since int64 // from when on these discounts hold
}

// cell is the sum of these sessions.
type cell struct {
	used, billed, sessions int64
	net                    Money
}

// Sums adds up sessions. It grows with the number of accounts and prices, not with that of sessions.
type Sums struct {
	t     *Table
	cells map[key]*cell
	items []Item
}

// NewSums begins with nothing.
func NewSums(t *Table) *Sums { return &Sums{t: t, cells: map[key]*cell{}} }

// Add adds a session of an account; with a user's name, that user gets lines of their own.
func (s *Sums) Add(account, user string, x *Session) {
	s.items = s.t.Charge(x, s.items[:0])
	at := s.t.at(x.began())
	for i := range s.items {
		it := &s.items[i]
		k := key{account, user, it.Pool, it.Rate, at.ByPeriod, at.Since}
		c := s.cells[k]
		if c == nil {
			c = &cell{}
			s.cells[k] = c
		}
		c.used, c.billed = plus(c.used, it.Used), plus(c.billed, it.Billed)
		if x.Since == 0 { // later sizes of a run are no further ones
			c.sessions++
		}
		c.net = c.net.Add(it.Net)
	}
}

// Merge adds the sums of other sessions.
func (s *Sums) Merge(o *Sums) {
	for k, x := range o.cells {
		c := s.cells[k]
		if c == nil {
			c = &cell{}
			s.cells[k] = c
		}
		c.used, c.billed, c.sessions = plus(c.used, x.used), plus(c.billed, x.billed), c.sessions+x.sessions
		c.net = c.net.Add(x.net)
	}
}

// Len is the number of lines.
func (s *Sums) Len() int { return len(s.cells) }

// plus adds numbers that are not below 0.
func plus(a, b int64) int64 { return max(a, a+b) }

// Bill is one line of an invoice: what sessions with the same price cost.
type Bill struct {
	Account  string
	User     string // "": all users of the account
	Pool     string // the partition whose price it is; "": the one for everywhere
	Rate     Rate
	Used     int64 // units times seconds
	Billed   int64 // with the minimum time of each session
	Sessions int64
	Gross    Money // without discounts
	Net      Money
}

func (x *Bill) Wire(c *wire.C) {
	wire.Text(c, &x.Account, maxName)
	wire.Text(c, &x.User, maxName)
	wire.Text(c, &x.Pool, maxName)
	wire.Struct(c, &x.Rate)
	wire.Int(c, &x.Used)
	wire.Int(c, &x.Billed)
	wire.Int(c, &x.Sessions)
	wire.Int(c, &x.Gross)
	wire.Int(c, &x.Net)
}

// Bills gives the lines in order of account, user, resource, partition and price.
func (s *Sums) Bills() []Bill {
	type total struct {
		account, tres string
		since         int64
	}
	whole := map[total]int64{} // hours of an account count together, whoever used them
	for k, c := range s.cells {
		if k.month {
			at := total{k.account, k.TRES, k.since}
			whole[at] = plus(whole[at], c.billed/max(k.Per, 1))
		}
	}
	out := make([]Bill, 0, len(s.cells))
	for _, k := range slices.SortedFunc(maps.Keys(s.cells), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.user, b.user), cmp.Compare(a.TRES, b.TRES),
			cmp.Compare(a.pool, b.pool), cmp.Compare(a.Micro, b.Micro), cmp.Compare(a.Per, b.Per),
			cmp.Compare(a.since, b.since))
	}) {
		c := s.cells[k]
		net := c.net
		if k.month {
			at := s.t.at(k.since)
			net = cost(c.billed, k.Rate, at.keep(whole[total{k.account, k.TRES, k.since}], 1))
		}
		if n := len(out) - 1; n >= 0 && out[n].Account == k.account && out[n].User == k.user && out[n].Pool == k.pool &&
			out[n].Rate == k.Rate { // under other discounts
			b := &out[n]
			b.Used, b.Billed, b.Sessions = plus(b.Used, c.used), plus(b.Billed, c.billed), b.Sessions+c.sessions
			b.Gross, b.Net = cost(b.Billed, k.Rate, Whole), b.Net.Add(net)
			continue
		}
		out = append(out, Bill{Account: k.account, User: k.user, Pool: k.pool, Rate: k.Rate, Used: c.used,
			Billed: c.billed, Sessions: c.sessions, Gross: cost(c.billed, k.Rate, Whole), Net: net})
	}
	return out
}

// Total adds up lines.
func Total(bills []Bill) (sum Money) {
	for i := range bills {
		sum = sum.Add(bills[i].Net)
	}
	return sum
}

// Hours gives units times seconds as hours, with six digits behind the point.
func Hours(used, per int64) Money {
	return Money(muldiv(uint64(max(used, 0)), uint64(One), 1, uint64(max(per, 1))*HourS))
}
