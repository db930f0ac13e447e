package state

import (
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
)

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
