package state

import (
	"fmt"
	"slices"

	"gbatch/internal/model"
)

// checkAccounts: accounts are one tree, every name that a record refers to exists, and usage grows exactly by the rates
// of running jobs.
func (s *State) checkAccounts() (err error) {
	bad := func(format string, a ...any) bool {
		err = fmt.Errorf(format, a...)
		return false
	}
	if !has(s.accounts, model.RootAccount) || !has(s.qos, model.DefaultQOS) {
		return fmt.Errorf("the account %s or the QOS %s is gone", model.RootAccount, model.DefaultQOS)
	}
	s.accounts.Scan(func(name string, a *model.Account) bool {
		steps := 0
		for up := a; up.Name != model.RootAccount; steps++ {
			p, ok := s.accounts.Get(up.Parent)
			if !ok || steps > s.accounts.Len() {
				return bad("account %s does not hang on the tree: its line breaks at %s", name, up.Name)
			}
			up = p
		}
		return a.Name == name || bad("account %s is stored as %s", a.Name, name)
	})
	if err != nil {
		return err
	}
	ids := map[uint32]bool{}
	s.assocs.Scan(func(key string, a *model.Association) bool {
		switch {
		case key != keyOf(a) || a.ID == 0 || a.ID >= s.nextAssoc || ids[a.ID]:
			return bad("association %q has number %d, which another has, or a wrong name", key, a.ID)
		case !has(s.accounts, a.Account) || a.User != "" && !has(s.users, a.User):
			return bad("association %q is of an account or user that does not exist", key)
		case a.DefQOS != "" && !has(s.qos, a.DefQOS) ||
			slices.ContainsFunc(a.QOS, func(q string) bool { return !has(s.qos, q) }):
			return bad("association %q names a QOS that does not exist", key)
		}
		ids[a.ID] = true
		return true
	})
	if err != nil {
		return err
	}
	s.users.Scan(func(name string, u *model.User) bool {
		return u.DefaultAccount == "" || has(s.accounts, u.DefaultAccount) ||
			bad("user %s has default account %s, which does not exist", name, u.DefaultAccount)
	})
	if err != nil {
		return err
	}
	ids = map[uint32]bool{}
	s.wckeys.Scan(func(key string, w *model.WCKey) bool {
		if key != wckeyKey(w.User, w.Name) || w.ID == 0 || w.ID >= s.nextWCKey || ids[w.ID] {
			return bad("wckey %q has number %d, which another has, or a wrong name", key, w.ID)
		}
		ids[w.ID] = true
		return true
	})
	if err != nil {
		return err
	}
	s.users.Scan(func(name string, u *model.User) bool {
		return u.DefaultWCKey == "" || has(s.wckeys, wckeyKey(name, u.DefaultWCKey)) ||
			bad("user %s has default wckey %s, which is none of theirs", name, u.DefaultWCKey)
	})
	if err != nil {
		return err
	}
	return s.checkRates()
}

// chargedOf gives the keys of the usage records in which a job counts, as checkRates writes them.
func (s *State) chargedOf(j *model.Job) []string {
	keys := []string{"a" + usageKey(j.Spec.Account, j.Spec.User, j.Run.AssocPart), "q" + j.Spec.QOS, "q" + j.Run.PartQOS}
	for up := j.Spec.Account; up != ""; up = s.parentOf(up) {
		if has(s.acctUse, up) {
			keys = append(keys, "c"+up)
		}
	}
	return keys
}

// checkRates: every record of usage grows by the sum of its running jobs' rates.
func (s *State) checkRates() error {
	bill, tres := map[string]int64{}, map[string]int64{}
	s.jobs.Scan(func(_ model.JobID, j *model.Job) bool {
		if j.State.HasResources() && !j.Run.Idles() && !j.Run.Uncounted {
			for _, key := range s.chargedOf(j) {
				bill[key] += j.Run.BillRate
				for _, c := range j.Run.Alloc.TRES() {
					tres[key+"\x01"+c.TRES] += rateOf(c.Count, j.Run.Factor)
				}
			}
		}
		return true
	})
	delete(bill, "q") // no QOS
	check := func(key string, u *Usage) error {
		if u.Bill.Rate != bill[key] {
			return fmt.Errorf("usage of %q grows by %d, its jobs by %d", key, u.Bill.Rate, bill[key])
		}
		for _, t := range u.TRES {
			if t.Meter.Rate != tres[key+"\x01"+t.TRES] {
				return fmt.Errorf("usage of %s by %q grows by %d, its jobs by %d", t.TRES, key, t.Meter.Rate,
					tres[key+"\x01"+t.TRES])
			}
		}
		if u.Bill.Value < 0 {
			return fmt.Errorf("usage of %q is %d", key, u.Bill.Value)
		}
		delete(bill, key)
		return nil
	}
	var err error
	s.usage.Scan(func(key string, u *Usage) bool { err = check("a"+key, u); return err == nil })
	if err == nil {
		s.qosUse.Scan(func(key string, u *Usage) bool { err = check("q"+key, u); return err == nil })
	}
	if err == nil {
		s.acctUse.Scan(func(key string, u *Usage) bool { err = check("c"+key, u); return err == nil })
	}
	for key, rate := range bill {
		if err == nil && rate != 0 {
			err = fmt.Errorf("jobs of %q run, and nothing counts their usage", key)
		}
	}
	return err
}
