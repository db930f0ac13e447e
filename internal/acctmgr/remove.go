package acctmgr

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
)

// Remove plans "delete ENTITY where ...".
func Remove(f *Facts, entity string, args []string) (*Plan, error) {
	where, set := split(args)
	if where = append(where, set...); len(where) == 0 {
		return nil, fmt.Errorf(" No conditions given to remove, not executing.")
	}
	if err := given(where); err != nil {
		return nil, err
	}
	switch {
	case is(entity, 1, "accounts", "account", "acct"):
		return f.removeAccounts(where)
	case is(entity, 1, "users", "user"):
		return f.removeUsers(where)
	case is(entity, 1, "qos"):
		return f.removeQOS(where)
	case is(entity, 3, "coordinators", "coordinator"):
		return f.coordinators(where, false)
	case is(entity, 1, "wckeys"):
		return f.removeKeys(where)
	}
	return nil, noEntity("delete", entity)
}

// dropAssocs plans the removal of associations, and the effects on their users: another default account, or none.
func (f *Facts) dropAssocs(p *Plan, gone []*model.Association) {
	left := map[string][]string{} // user -> accounts that stay
	out := map[model.AssocKey]bool{}
	for _, a := range gone {
		out[a.Key()] = true
	}
	for _, a := range f.tree() {
		if a.User != "" && !out[a.Key()] {
			left[a.User] = append(left[a.User], a.Account)
		}
	}
	seen := map[string]bool{}
	for _, a := range gone {
		p.edit(model.AcctEdit{Op: model.DropAssoc,
			Assoc: &model.Association{Account: a.Account, User: a.User, Partition: a.Partition}})
		u := f.Users[a.User]
		if u == nil || seen[u.Name] {
			continue
		}
		seen[u.Name] = true
		stay := left[u.Name]
		if slices.Contains(stay, u.DefaultAccount) {
			continue
		}
		n := *u
		if n.DefaultAccount = ""; len(stay) > 0 {
			n.DefaultAccount = stay[0]
			p.note(" The default account of '%s' becomes %s.", u.Name, stay[0])
		}
		p.edit(model.AcctEdit{Op: model.PutUser, User: &n})
	}
}

// dropBare plans the removal of users who have no association left, as sacctmgr does, and gives the lines about them.
func (f *Facts) dropBare(p *Plan, gone []*model.Association) (lines []string) {
	stay := map[string]int{}
	for _, a := range f.tree() {
		stay[a.User]++
	}
	for _, a := range gone {
		if stay[a.User]--; stay[a.User] > 0 || f.Users[a.User] == nil || a.User == model.RootAccount {
			continue
		}
		p.edit(model.AcctEdit{Op: model.DropUser, User: &model.User{Name: a.User}})
		lines = append(lines, "  "+a.User)
	}
	return lines
}

func (f *Facts) removeAccounts(where []word) (*Plan, error) {
	p := &Plan{Nothing: " Nothing deleted"}
	where, parts := splitParts(where)
	sel, err := f.pickAccounts(where)
	if err != nil {
		return nil, err
	}
	if len(parts) > 0 {
		return f.removePools(p, sel, parts), nil
	}
	if slices.Contains(sel, model.RootAccount) {
		return nil, fmt.Errorf(" The root account can't be deleted")
	}
	asked := slices.Clone(sel)
	for i := 0; i < len(sel); i++ { // what is below an account goes with it
		for kid, a := range f.Accounts {
			if a.Parent == sel[i] && !slices.Contains(sel, kid) {
				sel = append(sel, kid)
			}
		}
	}
	slices.Sort(sel)
	slices.SortStableFunc(sel, func(a, b string) int { return f.depth(b) - f.depth(a) }) // children first
	var gone []*model.Association
	for _, a := range f.tree() {
		if slices.Contains(sel, a.Account) {
			gone = append(gone, a)
		}
	}
	f.dropAssocs(p, gone)
	var lines []string
	for _, name := range sel {
		p.edit(model.AcctEdit{Op: model.DropAccount, Account: &model.Account{Name: name, Parent: f.parent(name)}})
		if slices.Contains(asked, name) {
			lines = append(lines, "  "+name)
		} else {
			p.note(" The account '%s' was below '%s' and goes with it.", name, f.parent(name))
		}
	}
	slices.Sort(lines)
	p.list(" Deleting accounts...", lines)
	return p, nil
}

// removePools plans the removal of accounts' limits in partitions; the accounts stay.
func (f *Facts) removePools(p *Plan, accounts, parts []string) *Plan {
	var lines []string
	for _, name := range accounts {
		for _, part := range parts {
			if a := f.assoc(name, "", part); a != nil {
				p.edit(model.AcctEdit{Op: model.DropAssoc, Assoc: &model.Association{Account: name, Partition: part}})
				lines = append(lines, f.goneLine(a))
			}
		}
	}
	p.list(" Deleting account associations...", lines)
	return p
}

func (f *Facts) removeUsers(where []word) (*Plan, error) {
	p := &Plan{Nothing: " Nothing deleted"}
	s, err := f.readPick(where)
	if err != nil {
		return nil, err
	}
	if s.keys != nil && s.byAssoc {
		return nil, fmt.Errorf(" Delete wckeys and associations one after the other: wckeys= is not for one account")
	}
	if s.keys != nil { // the users stay
		gone := slices.DeleteFunc(f.wckeys(s.keys, nil), func(w *model.WCKey) bool {
			u := f.Users[w.User]
			return s.byUser && !slices.Contains(s.users, w.User) || u != nil && !s.user(u)
		})
		f.dropWCKeys(p, gone)
		return p, nil
	}
	var gone []*model.Association
	for _, a := range f.tree() {
		if a.User != "" && s.assoc(a) && (f.Users[a.User] == nil || s.user(f.Users[a.User])) {
			gone = append(gone, a)
		}
	}
	if s.byAssoc {
		f.dropAssocs(p, gone)
		var lines []string
		for _, a := range gone {
			lines = append(lines, f.goneLine(a))
		}
		p.list(" Deleting user associations...", lines)
		p.list(" Deleting users (No Associations)...", f.dropBare(p, gone))
		return p, nil
	}
	for _, a := range gone {
		p.edit(model.AcctEdit{Op: model.DropAssoc,
			Assoc: &model.Association{Account: a.Account, User: a.User, Partition: a.Partition}})
	}
	var lines []string
	for _, name := range f.sortedUsers() {
		if !s.user(f.Users[name]) {
			continue
		}
		if name == model.RootAccount {
			return nil, fmt.Errorf(" The user root can't be deleted")
		}
		p.edit(model.AcctEdit{Op: model.DropUser, User: &model.User{Name: name}})
		lines = append(lines, "  "+name)
	}
	p.list(" Deleting users...", lines)
	return p, nil
}

func (f *Facts) removeQOS(where []word) (*Plan, error) {
	p := &Plan{Nothing: " Nothing deleted"}
	sel, err := f.pickQOS(where)
	if err != nil {
		return nil, err
	}
	var lines []string
	f.forgetQOS(p, sel)
	for _, q := range sel {
		if q.Name == model.DefaultQOS {
			return nil, fmt.Errorf(" The QOS %s can't be deleted: jobs without another have it", q.Name)
		}
		p.edit(model.AcctEdit{Op: model.DropQOS, QOS: &model.QOS{Name: q.Name}})
		lines = append(lines, "  "+q.Name)
	}
	p.list(" Deleting QOS(s)...", lines)
	return p, nil
}

// forgetQOS plans to take QOS that go out of the associations that have them in their list or as their default.
func (f *Facts) forgetQOS(p *Plan, gone []*model.QOS) {
	goes := func(name string) bool {
		return slices.ContainsFunc(gone, func(q *model.QOS) bool { return q.Name == name })
	}
	for _, a := range f.tree() {
		if !goes(a.DefQOS) && !slices.ContainsFunc(a.QOS, goes) {
			continue
		}
		n := *a
		if n.QOS = slices.DeleteFunc(slices.Clone(a.QOS), goes); len(n.QOS) == 0 {
			n.QOS = nil
		}
		if goes(a.DefQOS) {
			n.DefQOS = ""
		}
		if n.QOS == nil && a.QOS != nil {
			p.note(" %s had no other QOS: it now has those of the account above.", strings.TrimSpace(f.whichLine(a)))
		}
		p.putAssoc(&n)
	}
}
