package acctmgr

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gbatch/internal/model"
)

// Modify plans "modify ENTITY where ... set ...".
func Modify(f *Facts, entity string, args []string) (*Plan, error) {
	where, set := split(args)
	if len(set) == 0 {
		return nil, fmt.Errorf(" You didn't give me anything to set: write set KEY=VALUE behind the conditions")
	}
	if err := given(where); err != nil {
		return nil, err
	}
	switch {
	case is(entity, 1, "accounts", "account", "acct"):
		return f.modifyAccounts(where, set)
	case is(entity, 1, "users", "user"):
		return f.modifyUsers(where, set)
	case is(entity, 1, "qos"):
		return f.modifyQOS(where, set)
	case is(entity, 2, "associations"):
		return nil, fmt.Errorf(
			" modify the account or the user: an association is changed by gacctmgr modify user where name=U account=A set ...")
	case is(entity, 1, "clusters", "cluster"):
		return f.modifyCluster(where, set)
	}
	return nil, noEntity("modify", entity)
}

// rawUsage removes RawUsage=0 from settings.
func rawUsage(set []word) (rest []word, reset bool, err error) {
	for _, w := range set {
		if !is(w.key, 4, "rawusage") {
			rest = append(rest, w)
			continue
		}
		if reset = w.value == "0"; !reset {
			return nil, false, fmt.Errorf(" RawUsage can only be set to 0")
		}
	}
	return rest, reset, nil
}

func (f *Facts) modifyCluster(where, set []word) (*Plan, error) {
	for _, w := range where {
		if err := f.checkCluster(w.value); err != nil {
			return nil, err
		}
	}
	p, err := f.modifyAccounts([]word{{op: '=', value: model.RootAccount}}, set)
	if err == nil && len(p.Text) > 0 {
		p.Text = []string{" Modified cluster defaults for associations...", "  " + f.Cluster}
	}
	return p, err
}

func (f *Facts) modifyAccounts(where, set []word) (*Plan, error) {
	p := &Plan{Nothing: " Nothing modified"}
	if slices.ContainsFunc(where, func(w word) bool { return is(w.key, 1, "users") }) {
		return f.modifyAssocsOf(where, set)
	}
	where, parts := splitParts(where)
	sel, err := f.pickAccounts(where)
	if err != nil {
		return nil, err
	}
	if len(parts) > 0 {
		return f.modifyPools(p, sel, parts, set)
	}
	var own, limits []word
	set, reset, err := rawUsage(set)
	if err != nil {
		return nil, err
	}
	for _, w := range set {
		switch {
		case is(w.key, 3, "description") || is(w.key, 1, "organization"):
			own = append(own, w)
		case is(w.key, 3, "parents"):
			w.value = strings.ToLower(w.value)
			if f.Accounts[w.value] == nil {
				return nil, fmt.Errorf(" This account '%s' doesn't exist.\n        Contact your admin to add this account.",
					w.value)
			}
			own = append(own, w)
		default:
			limits = append(limits, w)
		}
	}
	var accts, assocs []string
	for _, name := range sel {
		a, moved := *f.Accounts[name], false
		for _, w := range own {
			switch {
			case is(w.key, 3, "description"):
				a.Description = w.value
			case is(w.key, 3, "parents"):
				moved = moved || a.Parent != w.value
				a.Parent = w.value
			default:
				a.Organization = w.value
			}
		}
		if !reflect.DeepEqual(&a, f.Accounts[name]) {
			p.edit(model.AcctEdit{Op: model.PutAccount, Account: &a})
			if a.Description != f.Accounts[name].Description || a.Organization != f.Accounts[name].Organization {
				accts = append(accts, "  "+name)
			}
		}
		old := f.assoc(name, "", "")
		if old == nil {
			old = &model.Association{Account: name, Shares: 1}
		}
		n := *old
		if _, err := limited(f, &n, limits); err != nil {
			return nil, err
		}
		if reset {
			p.edit(model.AcctEdit{Op: model.ResetUsage, Assoc: &model.Association{Account: name}})
		}
		if !reflect.DeepEqual(&n, old) {
			p.putAssoc(&n)
		}
		if reset || moved || len(limits) > 0 {
			assocs = append(append(assocs, f.whichLine(old)), f.heirs(name, limits)...)
		}
	}
	p.list(" Modified accounts...", accts)
	p.list(" Modified account associations...", assocs)
	return p, nil
}

// heirs gives the lines of the users' associations that get one of the limits from an account: those that neither they
// nor an account in between sets. As in Slurm, what was made last comes first.
func (f *Facts) heirs(account string, limits []word) (lines []string) {
	var attrs []attr[assoc]
	for _, w := range limits {
		if a := find(assocAttrs(), w.key); a != nil && a.label != "Fairshare" && a.label != "GuaranteedTRES" &&
			!strings.HasPrefix(a.label, "Grp") {
			attrs = append(attrs, *a)
		}
	}
	below := map[string][]*model.Association{}
	for key, a := range f.assocs {
		switch {
		case key.User != "":
			below[key.Account] = append(below[key.Account], a)
		case key.Partition == "" && key.Account != model.RootAccount:
			below[f.parent(key.Account)] = append(below[f.parent(key.Account)], a)
		}
	}
	var walk func(account string, attrs []attr[assoc], left int)
	walk = func(account string, attrs []attr[assoc], left int) {
		slices.SortFunc(below[account], func(a, b *model.Association) int { return cmp.Compare(b.ID, a.ID) })
		for _, a := range below[account] {
			open := slices.DeleteFunc(slices.Clone(attrs), func(t attr[assoc]) bool { return t.get(a) != "" })
			switch {
			case len(open) == 0 || left == 0:
			case a.User != "":
				lines = append(lines, f.whichLine(a))
			default:
				walk(a.Account, open, left-1)
			}
		}
	}
	walk(account, attrs, len(f.Accounts))
	return lines
}

// modifyAssocsOf plans "modify account NAME where user=...": the users' associations with these accounts.
func (f *Facts) modifyAssocsOf(where, set []word) (*Plan, error) {
	where = slices.Clone(where)
	for i := range where {
		if k := where[i].key; k == "" || is(k, 1, "names") {
			where[i].key = "accounts"
		}
	}
	p, err := f.modifyUsers(where, set)
	if err != nil {
		return nil, err
	}
	for i, line := range p.Text {
		if line == usersText {
			p.Text[i] = " Modified account associations..."
		}
	}
	return p, nil
}

// modifyPools plans changes of accounts' limits in partitions.
func (f *Facts) modifyPools(p *Plan, accounts, parts []string, set []word) (*Plan, error) {
	var lines []string
	for _, name := range accounts {
		for _, part := range parts {
			old := f.assoc(name, "", part)
			if old == nil {
				p.note(" Account '%s' has no limits of its own in partition '%s'.  Add them with: add account %s partition=%s ...",
					name, part, name, part)
				continue
			}
			n := *old
			if _, err := limited(f, &n, set); err != nil {
				return nil, err
			}
			if !reflect.DeepEqual(&n, old) {
				p.putAssoc(&n)
			}
			lines = append(lines, f.whichLine(old))
		}
	}
	p.list(" Modified account associations...", lines)
	return p, nil
}

func (p *Plan) list(heading string, lines []string) {
	if len(lines) > 0 {
		p.say("%s", heading)
		p.Text = append(p.Text, lines...)
	}
}

func (f *Facts) sortedUsers() []string {
	var out []string
	for name := range f.Users {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

const usersText = " Modified user associations..."

func (f *Facts) modifyUsers(where, set []word) (*Plan, error) {
	p := &Plan{Nothing: " Nothing modified"}
	s, err := f.readPick(where)
	if err != nil {
		return nil, err
	}
	set, reset, err := rawUsage(set)
	if err != nil {
		return nil, err
	}
	var own, limits []word
	newName := ""
	for _, w := range set {
		switch {
		case is(w.key, 2, "adminlevel") || is(w.key, 8, "defaultaccount") || is(w.key, 8, "defaultwckey"):
			own = append(own, w)
		case is(w.key, 4, "newname"):
			if newName, err = f.newUserName(s, w.value); err != nil {
				return nil, err
			}
		default:
			limits = append(limits, w)
		}
	}
	var users, assocs, strange, keyless []string
	for _, name := range f.sortedUsers() {
		old := f.Users[name]
		if !s.user(old) || !s.has(f, old) {
			continue
		}
		u := *old
		for _, w := range own {
			if is(w.key, 2, "adminlevel") {
				if u.Admin, err = adminLevel(w.value); err != nil {
					return nil, err
				}
				continue
			}
			if is(w.key, 8, "defaultwckey") {
				if !f.setDefaultWCKey(&u, w.value) {
					keyless = append(keyless, fmt.Sprintf("\n  U = %s C = %s", name, f.Cluster))
				}
				continue
			}
			account := strings.ToLower(w.value)
			if !f.hasAssoc(account, name) {
				strange = append(strange, fmt.Sprintf("\n  U = %s C = %s", name, f.Cluster))
				continue
			}
			u.DefaultAccount = account
		}
		if u != *old {
			p.edit(model.AcctEdit{Op: model.PutUser, User: &u})
		}
		named := func(w word) bool { return is(w.key, 2, "adminlevel") || is(w.key, 8, "defaultwckey") }
		if u != *old || newName != "" || slices.ContainsFunc(own, named) {
			users = append(users, "  "+name)
		}
	}
	if len(strange) > 0 {
		i := slices.IndexFunc(own, func(w word) bool { return is(w.key, 8, "defaultaccount") })
		return nil, fmt.Errorf(" Can't modify because these users aren't associated with new default account '%s'...%s",
			strings.ToLower(own[i].value), strings.Join(strange, ""))
	}
	if len(keyless) > 0 {
		i := slices.IndexFunc(own, func(w word) bool { return is(w.key, 8, "defaultwckey") })
		return nil, fmt.Errorf(" Can't modify because these users aren't associated with new default wckey '%s'...%s",
			strings.ToLower(own[i].value), strings.Join(keyless, ""))
	}
	if len(limits) > 0 || reset {
		for _, old := range f.tree() {
			u := f.Users[old.User]
			if old.User == "" || !s.assoc(old) || u != nil && !(s.user(u) && s.has(f, u)) {
				continue
			}
			n := *old
			if _, err := limited(f, &n, limits); err != nil {
				return nil, err
			}
			if reset {
				p.edit(model.AcctEdit{Op: model.ResetUsage,
					Assoc: &model.Association{Account: old.Account, User: old.User, Partition: old.Partition}})
			}
			if !reflect.DeepEqual(&n, old) {
				p.putAssoc(&n)
			}
			assocs = append(assocs, f.whichLine(old))
		}
	}
	if newName != "" && len(users) > 0 { // after all edits that name the user by the old name
		p.edit(model.AcctEdit{Op: model.RenameUser, User: &model.User{Name: s.users[0]}, NewName: newName})
	}
	p.list(" Modified users...", users)
	p.list(usersText, assocs)
	return p, nil
}

// newUserName gives the name that NewName= gives to the one user that the conditions name.
func (f *Facts) newUserName(s *pick, value string) (string, error) {
	list := names(value)
	if len(list) != 1 {
		return "", fmt.Errorf(" NewName=%s: give one name", value)
	}
	if err := checkName("User", list[0]); err != nil {
		return "", err
	}
	switch {
	case !s.byUser || len(s.users) != 1:
		return "", fmt.Errorf(" NewName is for one user: name it with where name=")
	case f.Users[list[0]] != nil:
		return "", fmt.Errorf(" NewName=%s: there is a user of that name", list[0])
	case s.users[0] == model.RootAccount:
		return "", fmt.Errorf(" The root user can't be renamed")
	}
	return list[0], nil
}

// hasAssoc reports whether a user has any association with an account.
func (f *Facts) hasAssoc(account, user string) bool {
	for k := range f.assocs {
		if k.Account == account && k.User == user {
			return true
		}
	}
	return false
}

func (f *Facts) modifyQOS(where, set []word) (*Plan, error) {
	p := &Plan{Nothing: " Nothing modified"}
	sel, err := f.pickQOS(where)
	if err != nil {
		return nil, err
	}
	for _, w := range set {
		if is(w.key, 4, "rawusage") {
			return nil, fmt.Errorf(
				" RawUsage of a QOS can't be reset by gbatch yet: give its jobs another QOS, or reset accounts")
		}
	}
	var lines []string
	for _, old := range sel {
		n := *old
		if _, err := apply(f, qosAttrs(), &n, set); err != nil {
			return nil, err
		}
		if !reflect.DeepEqual(&n, old) {
			if f.preemptsItself(&n) {
				return nil, fmt.Errorf(" Error with request: QOS Preemption loop detected: %s would preempt itself by "+
					"Preempt=%s", n.Name, strings.Join(n.Preempt, ","))
			}
			p.edit(model.AcctEdit{Op: model.PutQOS, QOS: &n})
		}
		lines = append(lines, "  "+old.Name)
	}
	p.list(" Modified qos...", lines)
	return p, nil
}

// preemptsItself reports whether a QOS, as it is to become, would preempt itself, also by way of others.
func (f *Facts) preemptsItself(q *model.QOS) bool {
	todo, seen := slices.Clone(q.Preempt), map[string]bool{}
	for len(todo) > 0 {
		name := todo[0]
		if todo = todo[1:]; name == q.Name {
			return true
		}
		if o := f.QOS[name]; o != nil && !seen[name] {
			seen[name] = true
			todo = append(todo, o.Preempt...)
		}
	}
	return false
}
