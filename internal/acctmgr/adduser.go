package acctmgr

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
)

// userWords are the words of add user.
type userWords struct {
	names, accounts []string
	parts           []string // partitions; "": all of them
	preset          string   // the default account
	admin           model.AdminLevel
	adminSet        bool
	rest            []word // of associations
	keys            []string
	presetKey       string // the default wckey
}

func (f *Facts) readUserWords(words []word) (*userWords, error) {
	u := &userWords{parts: []string{""}, admin: model.AdminNone}
	for _, w := range words {
		var err error
		switch {
		case w.key == "" || is(w.key, 3, "names", "users"):
			u.names = append(u.names, names(w.value)...)
		case is(w.key, 2, "accounts"):
			u.accounts = append(u.accounts, names(w.value)...)
		case is(w.key, 2, "adminlevel"):
			u.admin, err = adminLevel(w.value)
			u.adminSet = true
		case is(w.key, 1, "clusters"):
			err = f.checkCluster(w.value)
		case is(w.key, 8, "defaultaccount") || w.key == "default":
			u.preset = strings.ToLower(w.value)
		case is(w.key, 4, "partitions"):
			u.parts = partNames(w.value)
		case is(w.key, 8, "defaultwckey"):
			u.presetKey = strings.ToLower(w.value)
		case is(w.key, 1, "wckeys"):
			u.keys = append(u.keys, names(w.value)...)
		default:
			u.rest = append(u.rest, w)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(u.names) == 0 {
		return nil, fmt.Errorf(" Need name of user to add.")
	}
	if u.preset != "" && !slices.Contains(u.accounts, u.preset) {
		u.accounts = append(u.accounts, u.preset)
	}
	if u.presetKey != "" && !slices.Contains(u.keys, u.presetKey) {
		u.keys = append(u.keys, u.presetKey)
	}
	for _, name := range u.accounts {
		if f.Accounts[name] == nil {
			return nil, fmt.Errorf(" This account '%s' doesn't exist.\n        Contact your admin to add this account.", name)
		}
	}
	return u, nil
}

// partNames reads a comma list of partitions, which keep their case.
func partNames(v string) []string {
	var out []string
	for n := range strings.SplitSeq(v, ",") {
		out = append(out, strings.TrimSpace(n))
	}
	return out
}

func (f *Facts) addUsers(words []word) (*Plan, error) {
	u, err := f.readUserWords(words)
	if err != nil {
		return nil, err
	}
	p := &Plan{Nothing: " Nothing new added."}
	a := model.Association{Shares: 1}
	a.User = u.names[0]
	said, err := limited(f, &a, u.rest)
	if err != nil {
		return nil, err
	}
	var made, lines, keys []string
	for _, name := range u.names {
		if err := checkName("User", name); err != nil {
			return nil, err
		}
		old := f.Users[name]
		user := model.User{Name: name, Admin: u.admin}
		if old != nil {
			user = *old
		} else if len(u.accounts) == 0 {
			return nil, fmt.Errorf(" Need name of account to add user to: give account=NAME for %s", name)
		}
		user.DefaultWCKey = or(u.presetKey, user.DefaultWCKey)
		more, err := f.addWCKeys(p, &user, u.keys)
		if err != nil {
			return nil, err
		}
		keys = append(keys, more...)
		if user.DefaultAccount == "" && len(u.accounts) > 0 { // it is new, or its last association was deleted
			user.DefaultAccount = or(u.preset, u.accounts[0])
		}
		if old == nil || user != *old {
			p.edit(model.AcctEdit{Op: model.PutUser, User: &user})
		}
		if old == nil {
			p.NewUsers = append(p.NewUsers, name)
			made = append(made, "  "+name)
		} else if u.preset != "" && user.DefaultAccount != u.preset || u.adminSet && old.Admin != u.admin {
			p.note(" The user '%s' exists; change its default account or level with modify user.", name)
		}
		for _, account := range u.accounts {
			for _, part := range u.parts {
				if f.assoc(account, name, part) != nil {
					continue
				}
				n := a
				n.Account, n.User, n.Partition = account, name, part
				p.putAssoc(&n)
				lines = append(lines, f.assocLine(&n))
			}
		}
	}
	if len(p.Edits) == 0 {
		return p, nil
	}
	if len(made) > 0 {
		p.say(" Adding User(s)")
		p.Text = append(p.Text, made...)
		if u.preset != "" || u.presetKey != "" || u.adminSet {
			p.say(" Settings =")
		}
		if u.preset != "" {
			p.say("  Default Account = %s", u.preset)
		}
		if u.presetKey != "" {
			p.say("  Default WCKey   = %s", u.presetKey)
		}
		if u.adminSet {
			p.say("  Admin Level     = %s", u.admin)
		}
	}
	if len(lines) > 0 {
		p.say(" Associations =")
		p.Text = append(p.Text, lines...)
	}
	p.list(" WCKeys =", keys)
	if len(lines)+len(keys) > 0 {
		p.say(" Non Default Settings")
		p.Text = append(p.Text, said...)
	}
	return p, nil
}

func adminLevel(v string) (model.AdminLevel, error) {
	v = strings.ToLower(v)
	switch {
	case v == "" || v == "-1" || is(v, 1, "none"):
		return model.AdminNone, nil
	case is(v, 1, "operator"):
		return model.AdminOperator, nil
	case is(v, 1, "administrator", "superuser"):
		return model.AdminFull, nil
	}
	return 0, fmt.Errorf(" Bad AdminLevel: '%s' is none of None, Operator and Administrator", v)
}
