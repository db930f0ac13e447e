package state

import (
	"slices"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Accounts changes accounts, users, associations and QOS: all edits in order, or none of them. Gen is the generation
// that the edits were made from (View.AcctGen); a changed one refuses them. 0 is not checked.
type Accounts struct {
	Gen   uint64
	Edits []model.AcctEdit
}

func (x *Accounts) Wire(c *wire.C) {
	wire.Int(c, &x.Gen)
	wire.List(c, &x.Edits, model.MaxMany)
}

// needIdle are the edits that jobs can stand in the way of.
var needIdle = []model.AcctOp{model.DropAccount, model.DropUser, model.DropAssoc, model.DropQOS, model.RenameUser}

// MaxAcctEdits bounds one command.
const MaxAcctEdits = 100_000

func assocKey(account, user, part string) string { return account + "\x00" + user + "\x00" + part }

func keyOf(a *model.Association) string { return assocKey(a.Account, a.User, a.Partition) }

// applyAccounts applies a batch of edits. Result.Each has an entry for each edit up to the first that is refused; its
// refusal is also Result.Refusal.
func (s *State) applyAccounts(at model.Time, c *Accounts) Result {
	if c.Gen != 0 && c.Gen != s.acctGen {
		return Result{Refusal: Outdated}
	}
	keep := s.facts // trees are copy-on-write: keeping the old ones costs nothing
	keep.accounts, keep.users, keep.assocs, keep.qos = s.accounts.Copy(), s.users.Copy(), s.assocs.Copy(), s.qos.Copy()
	keep.usage, keep.qosUse, keep.wallets, keep.wckeys = s.usage.Copy(), s.qosUse.Copy(), s.wallets.Copy(), s.wckeys.Copy()
	res := Result{Each: make([]Refusal, 0, len(c.Edits))}
	var busy *active
	for i := range c.Edits {
		e := &c.Edits[i]
		if busy == nil && slices.Contains(needIdle, e.Op) {
			busy = s.activeNames()
		}
		r := s.acctEdit(at, e, busy)
		res.Each = append(res.Each, r)
		if r != OK {
			s.accounts, s.users, s.assocs, s.qos, s.usage, s.qosUse = keep.accounts, keep.users, keep.assocs, keep.qos,
				keep.usage, keep.qosUse
			s.wallets, s.wckeys = keep.wallets, keep.wckeys
			s.nextAssoc, s.nextQOS, s.nextWCKey, s.resetAt = keep.nextAssoc, keep.nextQOS, keep.nextWCKey, keep.resetAt
			res.Refusal = r
			return res
		}
	}
	s.acctGen++
	s.renameReserved(c.Edits)
	s.sumAccounts(at)
	s.recount()
	s.plan()
	res.Changed = true
	return res
}

// active has the names that unfinished jobs refer to.
type active struct {
	assocs map[[2]string]bool // account, user
	users  map[string]bool
	qos    map[string]bool
}

// activeNames finds these names by a walk over all jobs: deletions are rare.
func (s *State) activeNames() *active {
	out := &active{map[[2]string]bool{}, map[string]bool{}, map[string]bool{}}
	s.jobs.Scan(func(_ model.JobID, j *model.Job) bool {
		if !j.State.Finished() {
			out.assocs[[2]string{j.Spec.Account, j.Spec.User}] = true
			out.users[j.Spec.User], out.qos[j.Spec.QOS] = true, true
			if j.Run != nil {
				out.qos[j.Run.PartQOS] = true
			}
		}
		return true
	})
	return out
}

func (s *State) acctEdit(at model.Time, e *model.AcctEdit, busy *active) Refusal {
	switch e.Op {
	case model.PutAccount:
		return s.putAccount(e.Account)
	case model.DropAccount:
		return s.dropAccount(e.Account.Name)
	case model.PutUser:
		if e.User.DefaultAccount != "" && !has(s.accounts, e.User.DefaultAccount) {
			return NoSuchAccount
		}
		if e.User.DefaultWCKey != "" && !has(s.wckeys, wckeyKey(e.User.Name, e.User.DefaultWCKey)) {
			return NoSuchWCKey
		}
		s.users.Set(e.User.Name, e.User)
	case model.DropUser:
		if !has(s.users, e.User.Name) {
			return NoSuchUser
		}
		if s.anyAssoc(func(a *model.Association) bool { return a.User == e.User.Name }) {
			return InUse // its associations go first, in the same command
		}
		s.users.Delete(e.User.Name)
		for _, w := range s.wckeysOf(e.User.Name) {
			s.wckeys.Delete(wckeyKey(w.User, w.Name))
		}
	case model.PutAssoc:
		return s.putAssoc(e.Assoc)
	case model.DropAssoc:
		key := keyOf(e.Assoc)
		switch {
		case !has(s.assocs, key):
			return NoSuchAssoc
		case e.Assoc.User != "" && busy.assocs[[2]string{e.Assoc.Account, e.Assoc.User}]:
			return JobsActive
		}
		s.assocs.Delete(key)
		if u, ok := s.usage.Get(usageKey(e.Assoc.Account, e.Assoc.User, e.Assoc.Partition)); ok && e.Assoc.User != "" &&
			u.Bill.Rate == 0 && u.Wall.Rate == 0 {
			s.usage.Delete(usageKey(e.Assoc.Account, e.Assoc.User, e.Assoc.Partition))
		}
	case model.PutQOS:
		for _, name := range e.QOS.Preempt {
			if !has(s.qos, name) && name != e.QOS.Name {
				return NoSuchQOS
			}
		}
		n := *e.QOS
		if old, ok := s.qos.Get(n.Name); ok {
			n.ID = old.ID
			if (old.Flags^n.Flags)&model.QOSNoDecay != 0 { // usage up to now decays by the old flag
				if u, ok := s.qosUse.Get(n.Name); ok {
					s.qosUse.Set(n.Name, s.fadeOf(u).bring(u, at))
				}
			}
		} else {
			n.ID = s.nextQOS
			s.nextQOS++
		}
		s.qos.Set(n.Name, &n)
	case model.DropQOS:
		return s.dropQOS(e.QOS.Name, busy)
	case model.ResetUsage:
		if !has(s.accounts, e.Assoc.Account) {
			return NoSuchAccount
		}
		s.resetUsage(e.Assoc, at)
	case model.PutWCKey:
		s.putWCKey(e.WCKey.User, e.WCKey.Name)
	case model.DropWCKey:
		return s.dropWCKey(e.WCKey)
	case model.RenameUser:
		return s.renameUser(at, e.User.Name, e.NewName, busy)
	}
	return OK
}

// MaxWCKeys is how many wckeys a user gets by naming them in jobs; there may be more by hand.
const MaxWCKeys = 1000

func wckeyKey(user, name string) string { return user + "\x00" + name }

// putWCKey gives a user's wckey, made if it is new.
func (s *State) putWCKey(user, name string) *model.WCKey {
	w, ok := s.wckeys.Get(wckeyKey(user, name))
	if !ok {
		w = &model.WCKey{ID: s.nextWCKey, User: user, Name: name}
		s.nextWCKey++
		s.wckeys.Set(wckeyKey(user, name), w)
	}
	return w
}

// noteWCKey gives the number of a job's wckey: a user who names a new one has it from then on. 0: usage is not kept by
// it.
func (s *State) noteWCKey(sp *model.Spec) uint32 {
	name := model.WCKeyName(sp.WCKey)
	if name == "" || !s.cfg.Params.TrackWCKey ||
		!has(s.wckeys, wckeyKey(sp.User, name)) && len(s.wckeysOf(sp.User)) >= MaxWCKeys {
		return 0
	}
	return s.putWCKey(sp.User, name).ID
}

// dropWCKey removes a wckey. A user whose default it is has none then, as in Slurm.
func (s *State) dropWCKey(w *model.WCKey) Refusal {
	if _, ok := s.wckeys.Delete(wckeyKey(w.User, w.Name)); !ok {
		return NoSuchWCKey
	}
	if u, ok := s.users.Get(w.User); ok && u.DefaultWCKey == w.Name {
		n := *u
		n.DefaultWCKey = ""
		s.users.Set(n.Name, &n)
	}
	return OK
}

// wckeysOf gives a user's wckeys in order of name.
func (f *facts) wckeysOf(user string) (out []*model.WCKey) {
	f.wckeys.Ascend(wckeyKey(user, ""), func(_ string, w *model.WCKey) bool {
		if w.User == user {
			out = append(out, w)
		}
		return w.User == user
	})
	return out
}

// WCKey gives a user's wckey by its name, or nil.
func (v *View) WCKey(user, name string) *model.WCKey {
	w, _ := v.wckeys.Get(wckeyKey(user, name))
	return w
}

// WCKeysOf gives a user's wckeys in order of name.
func (v *View) WCKeysOf(user string) []*model.WCKey { return v.wckeysOf(user) }

// WCKeys calls f for every wckey in order of user and name until it returns false.
func (v *View) WCKeys(f func(*model.WCKey) bool) {
	v.wckeys.Scan(func(_ string, w *model.WCKey) bool { return f(w) })
}

func (s *State) putAccount(a *model.Account) Refusal {
	if a.Name == model.RootAccount {
		if a.Parent != "" {
			return Circular
		}
	} else {
		for up := a.Parent; ; {
			p, ok := s.accounts.Get(up)
			switch {
			case up == a.Name:
				return Circular
			case !ok:
				return NoSuchAccount
			}
			if up = p.Parent; up == "" {
				break
			}
		}
	}
	s.accounts.Set(a.Name, a)
	return OK
}

func (s *State) dropAccount(name string) Refusal {
	switch {
	case !has(s.accounts, name):
		return NoSuchAccount
	case name == model.RootAccount:
		return InUse
	}
	used := s.anyAssoc(func(a *model.Association) bool { return a.Account == name })
	s.accounts.Scan(func(_ string, a *model.Account) bool { used = used || a.Parent == name; return !used })
	s.users.Scan(func(_ string, u *model.User) bool { used = used || u.DefaultAccount == name; return !used })
	if used {
		return InUse
	}
	s.accounts.Delete(name)
	s.wallets.Delete(name)
	s.forgetStrays() // a restored snapshot forgets them too
	return OK
}

func (s *State) putAssoc(a *model.Association) Refusal {
	switch {
	case !has(s.accounts, a.Account):
		return NoSuchAccount
	case a.User != "" && !has(s.users, a.User):
		return NoSuchUser
	case a.DefQOS != "" && !has(s.qos, a.DefQOS):
		return NoSuchQOS
	}
	for _, q := range a.QOS {
		if !has(s.qos, q) {
			return NoSuchQOS
		}
	}
	n := *a
	if old, ok := s.assocs.Get(keyOf(a)); ok {
		n.ID = old.ID
	} else {
		n.ID = s.nextAssoc
		s.nextAssoc++
	}
	s.assocs.Set(keyOf(a), &n)
	return OK
}

func (s *State) dropQOS(name string, busy *active) Refusal {
	switch {
	case !has(s.qos, name):
		return NoSuchQOS
	case busy.qos[name]:
		return JobsActive
	case name == model.DefaultQOS,
		s.anyAssoc(func(a *model.Association) bool { return a.DefQOS == name || slices.Contains(a.QOS, name) }):
		return InUse
	}
	s.qos.Delete(name)
	s.qosUse.Delete(name)
	for _, k := range s.qos.Keys() {
		if q, ok := s.qos.Get(k); ok && slices.Contains(q.Preempt, name) {
			n := *q
			n.Preempt = slices.DeleteFunc(slices.Clone(q.Preempt), func(p string) bool { return p == name })
			s.qos.Set(k, &n)
		}
	}
	return OK
}

func (s *State) anyAssoc(fits func(*model.Association) bool) bool {
	found := false
	s.assocs.Scan(func(_ string, a *model.Association) bool { found = fits(a); return !found })
	return found
}

func has[V any](tree *btree.Map[string, V], key string) bool {
	_, ok := tree.Get(key)
	return ok
}

// seed gives a cluster without accounts the root account with its user, and the shipped QOS.
func (s *State) seed() {
	if s.accounts.Len() > 0 {
		return
	}
	root := model.RootAccount
	s.accounts.Set(root, &model.Account{Name: root, Description: "default root account", Organization: root})
	s.users.Set(root, &model.User{Name: root, DefaultAccount: root, Admin: model.AdminFull})
	s.assocs.Set(assocKey(root, "", ""),
		&model.Association{ID: 1, Account: root, Shares: 1, QOS: []string{model.DefaultQOS}})
	s.assocs.Set(assocKey(root, root, ""), &model.Association{ID: 2, Account: root, User: root, Shares: 1})
	s.nextAssoc, s.acctGen = 3, 1
	for _, q := range model.ShippedQOS() {
		s.qos.Set(q.Name, &q)
		s.nextQOS = max(s.nextQOS, q.ID+1)
	}
}

// AcctGen grows with every change of accounts, users, associations or QOS.
func (v *View) AcctGen() uint64 { return v.acctGen }

// KnownAccount reports whether an account exists: gacctmgr has created it, or the configuration names it, in Accounts
// or as the default account. Jobs of other accounts have no share and no fair-share factor, and their usage is
// forgotten with them.
func (f *facts) KnownAccount(name string) bool {
	return has(f.accounts, name) || slices.Contains(f.cfg.Accounts, name) || name == f.cfg.HomeAccount()
}

// Account gives an account by name, or nil.
func (v *View) Account(name string) *model.Account {
	a, _ := v.accounts.Get(name)
	return a
}

// Accounts calls f for every account in order of name until it returns false. "root" always exists.
func (v *View) Accounts(f func(*model.Account) bool) {
	v.accounts.Scan(func(_ string, a *model.Account) bool { return f(a) })
}

// User gives a user by name, or nil.
func (v *View) User(name string) *model.User {
	u, _ := v.users.Get(name)
	return u
}

// Users calls f for every user in order of name until it returns false.
func (v *View) Users(f func(*model.User) bool) {
	v.users.Scan(func(_ string, u *model.User) bool { return f(u) })
}

// Association gives an association, or nil. User "" is the account's own, part "" the one for all partitions.
func (v *View) Association(account, user, part string) *model.Association {
	a, _ := v.assocs.Get(assocKey(account, user, part))
	return a
}

// AssociationOf gives the association for a user's jobs in a partition: the one for that partition, otherwise the one
// for all partitions; nil if there is none.
func (v *View) AssociationOf(account, user, part string) *model.Association {
	if a := v.Association(account, user, part); a != nil || part == "" {
		return a
	}
	return v.Association(account, user, "")
}

// Associations calls f for every association in order of account, user and partition until it returns false.
func (v *View) Associations(f func(*model.Association) bool) {
	v.assocs.Scan(func(_ string, a *model.Association) bool { return f(a) })
}

// QOS gives a QOS by name, or nil.
func (v *View) QOS(name string) *model.QOS {
	q, _ := v.qos.Get(name)
	return q
}

// AllQOS calls f for every QOS in order of name until it returns false.
func (v *View) AllQOS(f func(*model.QOS) bool) {
	v.qos.Scan(func(_ string, q *model.QOS) bool { return f(q) })
}

// QOSOf gives the QOS that a user's jobs under an account may use, and their default QOS: from the association, or from
// the nearest account above that sets them.
func (v *View) QOSOf(account, user, part string) (allowed []string, preset string) {
	see := func(a *model.Association) {
		if a == nil {
			return
		}
		if allowed == nil {
			allowed = a.QOS
		}
		if preset == "" {
			preset = a.DefQOS
		}
	}
	see(v.AssociationOf(account, user, part)) // an account's association for a partition gives no rights
	for a := v.Account(account); a != nil; a = v.Account(a.Parent) {
		see(v.Association(a.Name, "", ""))
	}
	if v.Account(account) == nil {
		see(v.Association(model.RootAccount, "", ""))
	}
	if allowed == nil {
		allowed = []string{model.DefaultQOS}
	}
	return allowed, preset
}

// UsageAt gives a record of usage at a moment: decayed, and including running jobs.
func (v *View) UsageAt(u *Usage, now model.Time) *Usage { return v.fadeOf(u).bring(u, now) }

// BilledAt gives only the part of a record that counts for fair-share at a moment, in thousandths of a billing unit's
// second.
func (v *View) BilledAt(u *Usage, now model.Time) int64 { return v.fade().At(u.Bill, u.Stamp, now) }

// UsageOf gives what a user has used under an account, or nil; part is the partition of the association, or "".
func (v *View) UsageOf(account, user, part string) *Usage {
	u, _ := v.usage.Get(usageKey(account, user, part))
	return u
}

// QOSUsage gives what all jobs of a QOS have used, or nil.
func (v *View) QOSUsage(qos string) *Usage {
	u, _ := v.qosUse.Get(qos)
	return u
}

// ResetAt gives the moment before which usage is forgotten, or 0.
func (v *View) ResetAt() model.Time { return v.resetAt }
