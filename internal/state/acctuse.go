package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
	"gbatch/internal/price"
	"gbatch/internal/wire"
)

// acctuse.go has what accounts have used: the sums below accounts with limits in minutes, and their money.

// sumAccounts adds up, at moment at, the usage below each account that has limits in minutes; meter keeps the sums up
// to date.
func (s *State) sumAccounts(at model.Time) {
	s.acctUse = new(btree.Map[string, *Usage])
	if !s.cfg.Params.HoldLimits {
		return
	}
	s.assocs.Scan(func(_ string, a *model.Association) bool {
		if a.User == "" && !a.OfPool() && (len(a.GrpTRESMins) > 0 || a.GrpWallS != 0) {
			s.acctUse.Set(a.Account, &Usage{Account: a.Account})
		}
		return true
	})
	if s.acctUse.Len() == 0 {
		return
	}
	s.usage.Scan(func(_ string, u *Usage) bool {
		at = max(at, u.Stamp)
		return true
	})
	fade := s.fade()
	s.usage.Scan(func(_ string, u *Usage) bool {
		now := fade.bring(u, at)
		for up := u.Account; up != ""; up = s.parentOf(up) {
			if sum, ok := s.acctUse.Get(up); ok {
				sum.add(now) // no other state shares it yet
			}
		}
		return true
	})
	s.acctUse.Scan(func(_ string, u *Usage) bool {
		u.Stamp = at
		return true
	})
}

// add adds the usage and the rates of v to u; both are of the same moment.
func (u *Usage) add(v *Usage) {
	plus := func(to *Meter, m Meter) { to.Value, to.Rate = addSat(to.Value, m.Value), addSat(to.Rate, m.Rate) }
	plus(&u.Bill, v.Bill)
	plus(&u.Wall, v.Wall)
	for _, t := range v.TRES {
		i, found := slices.BinarySearchFunc(u.TRES, t.TRES,
			func(x TRESUse, name string) int { return strings.Compare(x.TRES, name) })
		if !found {
			u.TRES = slices.Insert(u.TRES, i, TRESUse{TRES: t.TRES})
		}
		plus(&u.TRES[i].Meter, t.Meter)
	}
}

// parentOf gives the account above, or "".
func (f *facts) parentOf(account string) string {
	if a, ok := f.accounts.Get(account); ok {
		return a.Parent
	}
	return ""
}

// AccountUsage gives the usage of all jobs below an account, or nil: it exists only for accounts with limits in
// minutes, while limits are enforced.
func (v *View) AccountUsage(account string) *Usage {
	u, _ := v.acctUse.Get(account)
	return u
}

// Money of accounts. A run is charged when it ends, by the prices of its start, to its account's wallet or to that of
// the nearest account above that was given credit. What people do to wallets, and invoices, are commands; each goes
// through the outbox too, as an entry of the trail. Package price has the arithmetic.

// Bounds of what is kept.
const (
	maxWallets  = 100_000
	maxInvoices = 1000 // the latest ones; gdbd has all
)

// Credit gives an account credit, or sets its budget.
type Credit struct {
	price.Ledger
}

func (*Credit) kind() Kind { return KindCredit }

// Issue makes an invoice. It is refused as Outdated if its number is not the next one, so that numbers have no gaps.
type Issue struct {
	price.Invoice
}

func (*Issue) kind() Kind { return KindIssue }

// applyCredit changes a wallet.
func (s *State) applyCredit(c *Credit) Result {
	old, ok := s.wallets.Get(c.Account)
	switch {
	case !s.KnownAccount(c.Account):
		return Result{Refusal: NoSuchAccount}
	case !ok && s.wallets.Len() >= maxWallets:
		return Result{Refusal: Full}
	case !ok:
		old = &price.Wallet{Account: c.Account}
	}
	n := *old
	switch c.Op {
	case price.AddCredit:
		n.Credit, n.Prepaid = n.Credit.Add(c.Amount), true
	case price.SetBudget:
		n.Budget = max(0, c.Amount)
	}
	s.wallets.Set(c.Account, &n)
	s.plan()
	return Result{Changed: true}
}

// applyIssue keeps an invoice.
func (s *State) applyIssue(c *Issue) Result {
	old, ok := s.wallets.Get(c.Account)
	switch {
	case !s.KnownAccount(c.Account):
		return Result{Refusal: NoSuchAccount}
	case c.Number != s.nextInvoice:
		return Result{Refusal: Outdated}
	case !ok && s.wallets.Len() >= maxWallets:
		return Result{Refusal: Full}
	case !ok:
		old = &price.Wallet{Account: c.Account}
	}
	for up := c.Account; up != ""; up = s.parentOf(up) { // an invoice has the accounts below too
		if w, ok := s.wallets.Get(up); ok && c.Start < w.Invoiced {
			return Result{Refusal: Overlapping}
		}
	}
	n, inv := *old, c.Invoice
	n.Invoiced = c.End
	s.wallets.Set(c.Account, &n)
	s.invoices.Set(inv.Number, &inv)
	s.nextInvoice++
	for s.invoices.Len() > maxInvoices {
		number, _, _ := s.invoices.Min()
		s.invoices.Delete(number)
	}
	return Result{Changed: true}
}

// bill charges a run that has ended; old is the same run with the end that it was thought to have, or nil.
func (s *State) bill(old, j *model.Job, at model.Time) {
	t := &s.cfg.Params.Price
	if !t.Priced() || !s.KnownAccount(j.Spec.Account) {
		return
	}
	now := j.Session()
	if now == nil || s.unbegun(j) {
		return
	}
	var was *price.Session
	if old != nil {
		was = old.Session()
	}
	if s.now.rules < rulesWeighed { // each size had a minimum of its own
		now.Alone()
		if was != nil {
			was.Alone()
		}
	}
	own, ok := s.wallets.Get(j.Spec.Account)
	if !ok {
		if s.wallets.Len() >= maxWallets {
			return
		}
		own = &price.Wallet{Account: j.Spec.Account}
	}
	months, owed := t.Change(own.Months, was, now)
	if owed == 0 && !t.ByMonth(now) {
		return
	}
	n := *own
	n.Months = months
	s.wallets.Set(n.Account, &n)
	payer := s.payer(n.Account)
	if payer == nil {
		payer = &n
	}
	s.wallets.Set(payer.Account, payer.Pay(owed, at.Seconds()))
}

// payer gives the wallet that pays for an account: the nearest one with credit at or above it, else its own or nil.
func (f *facts) payer(account string) *price.Wallet {
	for up := account; up != ""; up = f.parentOf(up) {
		if w, ok := f.wallets.Get(up); ok && w.Prepaid {
			return w
		}
	}
	w, _ := f.wallets.Get(account)
	return w
}

// Payer gives the wallet that pays for an account; nil: it has neither credit nor charges.
func (v *View) Payer(account string) *price.Wallet { return v.payer(account) }

// Wallets calls f for every account's wallet in order of name until it returns false.
func (v *View) Wallets(f func(*price.Wallet) bool) {
	v.wallets.Scan(func(_ string, w *price.Wallet) bool { return f(w) })
}

// Wallet gives an account's own wallet, or nil.
func (v *View) Wallet(account string) *price.Wallet {
	w, _ := v.wallets.Get(account)
	return w
}

// Invoices calls f for the invoices that are kept, by number, until it returns false.
func (v *View) Invoices(f func(*price.Invoice) bool) {
	v.invoices.Scan(func(_ uint64, x *price.Invoice) bool { return f(x) })
}

// NextInvoice is the number of the next invoice.
func (v *View) NextInvoice() uint64 { return v.nextInvoice }

// checkMoney: wallets and invoices stand under their names, and numbers are below the next one.
func (s *State) checkMoney() (err error) {
	s.wallets.Scan(func(name string, w *price.Wallet) bool {
		if w.Account != name {
			err = fmt.Errorf("the wallet of %s is stored as %s", w.Account, name)
		}
		return err == nil
	})
	s.invoices.Scan(func(n uint64, x *price.Invoice) bool {
		if x.Number != n || n == 0 || n >= s.nextInvoice || x.Total != price.Total(x.Bills) {
			err = fmt.Errorf("invoice %d is stored as %d, the next is %d", x.Number, n, s.nextInvoice)
		}
		return err == nil
	})
	return err
}

// snapMoney stands in a snapshot's head.
type snapMoney struct {
	Wallets, Invoices, Next uint64
}

func (x *snapMoney) Wire(c *wire.C) {
	wire.Int(c, &x.Wallets)
	wire.Int(c, &x.Invoices)
	wire.Int(c, &x.Next)
}

func (in *restorer) wallet() error {
	x := new(price.Wallet)
	err := in.d.Read(x)
	in.n.wallets.Set(x.Account, x)
	return err
}

func (in *restorer) invoice() error {
	x := new(price.Invoice)
	err := in.d.Read(x)
	in.n.invoices.Set(x.Number, x)
	return err
}
