package price

import (
	"cmp"
	"strings"

	"gbatch/internal/wire"
)

// Limits of what a table of prices has.
const (
	MaxLines     = 4096
	MaxRates     = 256
	MaxDiscounts = 64
	maxName      = 256
	maxText      = 4096
)

// HourS is the time that a price is for, seconds.
const HourS = 3600

// Whole is a discount's Keep that takes nothing off.
const Whole = 1_000_000

// Rate is what one resource costs: Micro millionths for an hour of Per units (mem in MiB).
type Rate struct {
	TRES  string
	Micro int64
	Per   int64
}

func (x *Rate) Wire(c *wire.C) {
	wire.Text(c, &x.TRES, maxName)
	wire.Int(c, &x.Micro)
	wire.Int(c, &x.Per)
}

// Line has prices from one moment on, until a later line names the same resource.
type Line struct {
	From      int64  // Unix seconds; 0: always
	Partition string // only for jobs that run there; "": everywhere else
	Rates     []Rate
}

func (x *Line) Wire(c *wire.C) {
	wire.Int(c, &x.From)
	wire.Text(c, &x.Partition, maxName)
	wire.List(c, &x.Rates, MaxRates)
}

// Discount takes something off an amount of so many hours times units, or more.
type Discount struct {
	Hours int64
	Keep  int64 // millionths of the amount that remain
}

func (x *Discount) Wire(c *wire.C) {
	wire.Int(c, &x.Hours)
	wire.Int(c, &x.Keep)
}

// Hold says which accounts' jobs wait while their account has no balance.
type Hold uint8

// The kinds. The numbers are stored: append only.
const (
	HoldNone   Hold = iota
	HoldCredit      // of accounts that were given credit
	HoldAll         // of every account
)

// Table is everything that decides what jobs cost. The zero value has no prices: everything is free.
type Table struct {
	Lines     []Line // in the order of the file
	MinS      int64  // a session costs as much as one of so many seconds
	Discounts []Discount
	ByPeriod  bool   // the hours of a month count together, not those of each session
	Currency  string // before amounts, for people
	Hold      Hold
	WarnPct   int32  // of a budget or of all credit: from there on an alert is given; 0: never
	Terms     []Term // what MinS, Discounts and ByPeriod are later on
}

func (x *Table) Wire(c *wire.C) {
	wire.List(c, &x.Lines, MaxLines)
	wire.Int(c, &x.MinS)
	wire.List(c, &x.Discounts, MaxDiscounts)
	wire.Bool(c, &x.ByPeriod)
	wire.Text(c, &x.Currency, maxName)
	wire.Int(c, &x.Hold)
	wire.Int(c, &x.WarnPct)
	wire.List(c, &x.Terms, MaxLines)
}

// Priced reports whether anything has a price at any time.
func (t *Table) Priced() bool { return len(t.Lines) > 0 }

// Amount is how much of a resource a session had: CPUs, MiB, nodes, units.
type Amount struct {
	TRES  string
	Count int64
}

// Session is one run of a job that has ended, or a size of it: what it had until it got other resources. All sizes of a
// run together have one minimum, one price and the discounts of their sum. Typed units of a generic resource
// (gres/gpu:h100) are not counted again in its plain name.
type Session struct {
	Start     int64 // Unix seconds
	Seconds   int64 // how long it ran
	Partition string
	Has       []Amount

	Since   int64    // when its run began; 0: at Start
	Before  int64    // seconds of the run's sizes before this one
	Earlier []Amount // what they had, units times seconds
	Open    bool     // no minimum: another size follows
}

// began is when the run began whose session it is: its prices and terms are those of then.
func (s *Session) began() int64 { return cmp.Or(s.Since, s.Start) }

// Alone makes a size a session of its own.
func (s *Session) Alone() { s.Since, s.Before, s.Earlier, s.Open = 0, 0, nil, false }

// earlier gives how much of a resource the run's earlier sizes had.
func (s *Session) earlier(tres string) (n int64) {
	for i := range s.Earlier {
		if strings.EqualFold(s.Earlier[i].TRES, tres) {
			n = plus(n, s.Earlier[i].Count)
		}
	}
	return n
}

// Find gives the price of a resource for what starts in a partition at a moment, and of which partition it is: a
// partition's price is taken before the one for everywhere, the latest one of those that hold by then, and in case of
// doubt the last one in the file. It reports false if there is none.
func (t *Table) Find(tres, partition string, start int64) (rate Rate, pool string, found bool) {
	since := int64(-1)
	for i := range t.Lines {
		l := &t.Lines[i]
		if l.From > start || l.Partition != "" && l.Partition != partition {
			continue
		}
		closer := l.Partition != "" && pool == ""
		if found && !closer && (pool != "" && l.Partition == "" || l.From < since) {
			continue
		}
		for k := range l.Rates {
			if strings.EqualFold(l.Rates[k].TRES, tres) {
				rate, pool, since, found = l.Rates[k], l.Partition, l.From, true
			}
		}
	}
	return rate, pool, found
}

// find is Find for a resource that may be a typed one: it has the price of its type, or that of its plain name.
func (t *Table) find(tres, partition string, start int64) (Rate, string, bool) {
	rate, pool, found := t.Find(tres, partition, start)
	if plain, typ, typed := strings.Cut(tres, ":"); typed && typ != "" {
		if general, where, has := t.Find(plain, partition, start); has && (!found || pool == "" && where != "") {
			return general, where, true
		}
	}
	return rate, pool, found
}

// Item is one priced resource of a session.
type Item struct {
	Rate
	Pool   string // the partition whose price it is; "": the one for everywhere
	Used   int64  // units times seconds
	Billed int64  // the same with the minimum time
	Net    Money  // what it costs; without the discount if the hours of a month count together
}

// Charge appends the priced resources of a session to out.
func (t *Table) Charge(s *Session, out []Item) []Item {
	seconds := max(s.Seconds, 0)
	since := s.began()
	at := t.at(since)
	billed := seconds
	if !s.Open {
		billed = max(seconds, at.MinS-max(s.Before, 0))
	}
	for _, a := range s.Has {
		rate, pool, found := t.find(a.TRES, s.Partition, since)
		if !found || a.Count <= 0 {
			continue
		}
		x := Item{Rate: rate, Pool: pool, Used: times(a.Count, seconds), Billed: times(a.Count, billed)}
		if was := s.earlier(a.TRES); was > 0 && !at.ByPeriod { // what all of it costs, less what that did
			all := plus(was, x.Billed)
			x.Net = cost(all, rate, at.keep(all, rate.Per)).Add(-cost(was, rate, at.keep(was, rate.Per)))
		} else {
			keep := int64(Whole)
			if !at.ByPeriod {
				keep = at.keep(x.Billed, rate.Per)
			}
			x.Net = cost(x.Billed, rate, keep)
		}
		out = append(out, x)
	}
	return out
}

// Costs reports whether an hour of a session costs something, whatever is taken off.
func (t *Table) Costs(s *Session) bool {
	for _, a := range s.Has {
		if a.Count <= 0 {
			continue
		}
		if rate, _, found := t.find(a.TRES, s.Partition, s.began()); found && rate.Micro > 0 {
			return true
		}
		for i := range t.Lines { // of units of any type, those of a type may cost something
			l := &t.Lines[i]
			for k := range l.Rates {
				plain, _, typed := strings.Cut(l.Rates[k].TRES, ":")
				if typed && strings.EqualFold(plain, a.TRES) && l.From <= s.began() && l.Rates[k].Micro > 0 &&
					(l.Partition == "" || l.Partition == s.Partition) {
					return true
				}
			}
		}
	}
	return false
}

// keep gives what remains of an amount: the largest threshold that is reached counts, for all of it.
func (x *terms) keep(billed, per int64) int64 {
	keep, most := int64(Whole), int64(-1)
	for _, d := range x.Discounts {
		if d.Hours > most && billed >= times(times(d.Hours, HourS), max(per, 1)) {
			keep, most = d.Keep, d.Hours
		}
	}
	return keep
}

// cost gives the price of units times seconds, rounded once.
func cost(billed int64, r Rate, keep int64) Money {
	return Money(muldiv(uint64(max(billed, 0)), uint64(max(r.Micro, 0)), uint64(max(keep, 0)),
		uint64(max(r.Per, 1))*HourS*Whole))
}

// times multiplies numbers that are not below 0; what does not fit becomes the largest.
func times(a, b int64) int64 { return muldiv(uint64(max(a, 0)), uint64(max(b, 0)), 1, 1) }
