package price

import (
	"slices"

	"gbatch/internal/wire"
)

// Bounds of what is kept for an account.
const (
	MaxMonths     = 13  // of charges, with hours that count together
	maxMonthLines = 512 // different prices in one of them; what is beyond has no discount
	MaxBills      = 512 // lines of one invoice
)

// Wallet is the money of an account. Immutable.
type Wallet struct {
	Account  string
	Prepaid  bool  // it was given credit: it pays for the accounts below it that were not
	Credit   Money // all that was given
	Charged  Money // all that sessions cost which it pays for
	Budget   Money // for a calendar month (UTC); 0: none
	Month    int32 // of Spent
	Spent    Money
	Invoiced int64 // the end of its last invoice, Unix seconds
	Months   []Month
}

func (x *Wallet) Wire(c *wire.C) {
	wire.Text(c, &x.Account, maxName)
	wire.Bool(c, &x.Prepaid)
	wire.Int(c, &x.Credit)
	wire.Int(c, &x.Charged)
	wire.Int(c, &x.Budget)
	wire.Int(c, &x.Month)
	wire.Int(c, &x.Spent)
	wire.Int(c, &x.Invoiced)
	wire.List(c, &x.Months, MaxMonths)
}

// Balance is what is left of the credit; below 0 it is owed.
func (w *Wallet) Balance() Money { return w.Credit.Add(-w.Charged) }

// SpentIn gives what was charged in the month of a moment.
func (w *Wallet) SpentIn(at int64) Money {
	if w.Month != MonthOf(at) {
		return 0
	}
	return w.Spent
}

// Pay gives the wallet after a charge at a moment.
func (w *Wallet) Pay(m Money, at int64) *Wallet {
	n := *w
	n.Charged = n.Charged.Add(m)
	n.Month, n.Spent = MonthOf(at), w.SpentIn(at).Add(m)
	return &n
}

// Near says what is near its end at a moment: the month's budget or the credit; "" nothing.
func (t *Table) Near(w *Wallet, at int64) (what string, used, of Money) {
	pct := int64(t.WarnPct)
	switch spent := w.SpentIn(at); {
	case pct <= 0:
	case w.Budget > 0 && spent.Percent(pct, w.Budget):
		return "budget of this month", spent, w.Budget
	case w.Prepaid && w.Charged > 0 && w.Charged.Percent(pct, w.Credit):
		return "credit", w.Charged, w.Credit
	}
	return "", 0, 0
}

// Spends reports whether the table lets an account with this wallet start jobs that cost something; nil has never had
// credit.
func (t *Table) Spends(w *Wallet) bool {
	switch t.Hold {
	case HoldCredit:
		return w == nil || !w.Prepaid || w.Balance() > 0
	case HoldAll:
		return w != nil && w.Balance() > 0
	case HoldNone:
	}
	return true
}

// Month has what the sessions of an account had that began in a calendar month (UTC), for the discount on all of it.
type Month struct {
	N     int32 // years*12 + months, from 0
	Lines []MonthLine
}

func (x *Month) Wire(c *wire.C) {
	wire.Int(c, &x.N)
	wire.List(c, &x.Lines, maxMonthLines)
}

// MonthLine is the part of it with one price.
type MonthLine struct {
	Rate   Rate
	Pool   string
	Billed int64
	Since  int64 // from when on its discounts hold; 0: always
}

func (x *MonthLine) Wire(c *wire.C) {
	wire.Struct(c, &x.Rate)
	wire.Text(c, &x.Pool, maxName)
	wire.Int(c, &x.Billed)
	wire.Int(c, &x.Since)
}

// MonthOf gives a moment's calendar month (UTC): the algorithm is days_from_civil's inverse of H. Hinnant,
// "chrono-compatible low-level date algorithms".
func MonthOf(unix int64) int32 {
	days := max(unix, 0)/86400 + 719468
	era := days / 146097
	doe := days - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	month := (5*doy + 2) / 153 // from March
	return int32((yoe+era*400)*12 + month + 2)
}

// Change gives what an account owes more when a session of it becomes another one: it has ended (old is nil), or its
// true end becomes known. Where the hours of a month count together, months has the account's sessions so far.
func (t *Table) Change(months []Month, old, now *Session) ([]Month, Money) {
	diff := Money(0)
	if old != nil {
		months, diff = t.move(months, old, -1)
	}
	months, more := t.move(months, now, 1)
	return months, diff.Add(more)
}

func (t *Table) total(s *Session) (sum Money) {
	for _, x := range t.Charge(s, nil) {
		sum = sum.Add(x.Net)
	}
	return sum
}

// move adds a session to its month, or takes it out, and gives the change of what the month costs.
func (t *Table) move(months []Month, s *Session, sign int64) ([]Month, Money) {
	at := t.at(s.began())
	if !at.ByPeriod {
		return months, Money(sign) * t.total(s)
	}
	items := t.Charge(s, nil)
	if len(items) == 0 {
		return months, 0
	}
	n := MonthOf(s.Start)
	i, found := slices.BinarySearchFunc(months, n, func(m Month, n int32) int { return int(m.N - n) })
	months = slices.Clone(months)
	if !found {
		months = slices.Insert(months, i, Month{N: n})
	}
	m := Month{n, slices.Clone(months[i].Lines)}
	before, diff := t.monthly(&m), Money(0)
	for _, it := range items {
		k := slices.IndexFunc(m.Lines, func(l MonthLine) bool {
			return l.Rate == it.Rate && l.Pool == it.Pool && l.Since == at.Since
		})
		switch {
		case k >= 0:
			m.Lines[k].Billed = max(0, m.Lines[k].Billed+sign*it.Billed)
		case len(m.Lines) >= maxMonthLines:
			diff = diff.Add(Money(sign) * it.Net)
		case sign > 0:
			m.Lines = append(m.Lines, MonthLine{it.Rate, it.Pool, it.Billed, at.Since})
		}
	}
	months[i] = m
	diff = diff.Add(t.monthly(&m)).Add(-before)
	if len(months) > MaxMonths {
		months = months[1:]
	}
	return months, diff
}

// monthly gives what a month costs.
func (t *Table) monthly(m *Month) (sum Money) {
	for i := range m.Lines {
		whole := int64(0)
		for k := range m.Lines {
			if m.Lines[k].Rate.TRES == m.Lines[i].Rate.TRES && m.Lines[k].Since == m.Lines[i].Since {
				whole = plus(whole, m.Lines[k].Billed/max(m.Lines[k].Rate.Per, 1))
			}
		}
		at := t.at(m.Lines[i].Since)
		sum = sum.Add(cost(m.Lines[i].Billed, m.Lines[i].Rate, at.keep(whole, 1)))
	}
	return sum
}

// Invoice is what an account is asked to pay for a time. Number is 0 for a draft. Immutable.
type Invoice struct {
	Number     uint64
	Account    string
	Start, End int64 // Unix seconds: sessions that began in [Start, End)
	At         int64 // when it was made
	By         string
	Currency   string
	Bills      []Bill
	Total      Money
}

func (x *Invoice) Wire(c *wire.C) {
	wire.Int(c, &x.Number)
	wire.Text(c, &x.Account, maxName)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.End)
	wire.Int(c, &x.At)
	wire.Text(c, &x.By, maxName)
	wire.Text(c, &x.Currency, maxName)
	wire.List(c, &x.Bills, MaxBills)
	wire.Int(c, &x.Total)
}

// Ledger is one thing that people do with an account's money. The number of the kinds are stored: append only.
type Ledger struct {
	Op      Op
	Account string
	Amount  Money  // of AddCredit: it may be below 0; of SetBudget: 0 for none
	Text    string // what for, for people
}

func (x *Ledger) Wire(c *wire.C) {
	wire.Int(c, &x.Op)
	wire.Text(c, &x.Account, maxName)
	wire.Int(c, &x.Amount)
	wire.Text(c, &x.Text, maxText)
}

// Op is what a Ledger does.
type Op uint8

// The kinds.
const (
	AddCredit Op = iota + 1
	SetBudget
)
