package rest

import (
	"slices"
	"strings"

	"gbatch/internal/acctmgr"
)

// acctwho.go makes and changes accounts, users and associations. Clients send back whole objects that they have read,
// so what only describes an object (ids, lineage) says nothing; what asks for something that is not done is refused.

// badChange refuses a change of accounts.
func badChange(detail string) error {
	return &fault{Number: errUnexpected, Text: "Invalid change of accounts", Detail: detail}
}

// ours refuses what is about another cluster.
func (q *request) ours(clusters ...string) error {
	own := q.facts.Config().Cluster
	for _, c := range clusters {
		if c != "" && c != own {
			return unsupported("cluster " + c + ": this accounting is of cluster " + own + " alone")
		}
	}
	return nil
}

// notDeleted refuses the flag that slurmdb marks removed records with.
func notDeleted(o *object, instead string) error {
	flags, _ := o.list("flags")
	if slices.ContainsFunc(flags, func(f string) bool { return strings.EqualFold(f, "DELETED") }) {
		return unsupported(o.path + "flags: DELETED removes nothing here; use " + instead)
	}
	return nil
}

// flags reads flags of accounts, users and associations: DELETED is refused, and what else is asked for is not done.
func (q *request) flags(o *object, instead string) error {
	list, _ := o.list("flags")
	for _, f := range list {
		if f != "" && f != "NONE" && !strings.EqualFold(f, "DELETED") {
			q.warn(o.path + "flags: " + f + " is not supported here and was ignored")
		}
	}
	return notDeleted(o, instead)
}

// posted reads a body and gives it to those who make its changes.
func (q *request) posted(take ...func(*request, *object) error) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	for _, t := range take {
		if err := t(q, b); err != nil {
			return err
		}
	}
	return q.done(b)
}

func postAccounts(q *request) error     { return q.posted(takeAccounts) }
func postUsers(q *request) error        { return q.posted(takeUsers) }
func postAssociations(q *request) error { return q.posted(takeAssociations) }

// addAccount makes an account, or changes it.
func (q *request) addAccount(name, parent, description, organization string, more settings) error {
	var set settings
	if description != "" {
		set.add("Description", description)
	}
	if organization != "" {
		set.add("Organization", organization)
	}
	set = append(set, more...)
	if parent != "" {
		set.add("Parent", parent)
	}
	return q.change("account", func(f *acctmgr.Facts) bool { return f.Accounts[strings.ToLower(name)] != nil },
		[]string{"name=" + name}, set, nil)
}

func takeAccounts(q *request, b *object) error {
	for _, a := range b.objects("accounts") {
		name := a.str("name")
		if name == "" {
			return badChange("an account needs a name")
		}
		if err := q.flags(a, "DELETE account/"+name); err != nil {
			return err
		}
		about, organization := a.str("description"), a.str("organization")
		coordinators, members := a.objects("coordinators"), a.objects("associations")
		if err := b.top().err; err != nil {
			return err
		}
		if err := q.addAccount(name, "", about, organization, nil); err != nil {
			return err
		}
		for _, c := range coordinators {
			if err := q.coordinator(c, name, ""); err != nil {
				return err
			}
		}
		if err := q.shortAssociations(members, name, ""); err != nil {
			return err
		}
	}
	return nil
}

// coordinator adds one: of an account, or a user as one of the account that the object names.
func (q *request) coordinator(c *object, account, user string) error {
	c.ignore("direct") // it describes
	if account == "" {
		account = c.str("name")
	} else {
		user = c.str("name")
	}
	_, err := q.plan(func(f *acctmgr.Facts) (*acctmgr.Plan, error) {
		return acctmgr.Add(f, "coordinator", []string{"account=" + account, "names=" + user})
	})
	return err
}

// shortAssociations makes the associations that an account or a user is sent with, where they are not there.
func (q *request) shortAssociations(list []*object, account, user string) error {
	for _, s := range list {
		s.ignore("id") // it describes
		a, u, part := s.str("account"), s.str("user"), s.str("partition")
		if err := q.ours(s.str("cluster")); err != nil {
			return err
		}
		if err := s.top().err; err != nil {
			return err
		}
		if a == "" {
			a = account
		}
		if u == "" {
			u = user
		}
		switch {
		case account != "" && !strings.EqualFold(a, account), user != "" && u != user:
			return badChange(s.path + "account and user name another one than the object that it is in")
		case a == "":
			return badChange(s.path + "account: an association needs an account")
		case u == "": // the account's own
		default:
			if err := q.addUser(u, a, part, nil, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func postAccountsAssociation(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	cond := b.object("association_condition")
	if cond == nil {
		return badChange("association_condition says which accounts")
	}
	names, _ := cond.list("accounts")
	clusters, _ := cond.list("clusters")
	if err := q.ours(clusters...); err != nil {
		return err
	}
	rec := cond.object("association")
	set := recordSettings(rec)
	parent := ""
	if rec != nil {
		parent = rec.str("parent")
	}
	var description, organization string
	if a := b.object("account"); a != nil {
		description, organization = a.str("description"), a.str("organization")
	}
	if err := b.top().err; err != nil {
		return err
	}
	for _, name := range names {
		if err := q.addAccount(name, parent, description, organization, set); err != nil {
			return err
		}
	}
	if err := q.done(b); err != nil {
		return err
	}
	q.j.Str("added_accounts", strings.Join(names, ","))
	return nil
}

// hasAssoc reports whether there is an association.
func hasAssoc(f *acctmgr.Facts, account, user, part string) bool {
	for _, a := range f.Associations(account, user) {
		if a.User == user && a.Partition == part {
			return true
		}
	}
	return false
}

// addUser makes a user's association with an account, or changes it.
func (q *request) addUser(user, account, part string, set, ofUser settings) error {
	where := []string{"name=" + user, "account=" + account}
	if part != "" {
		where = append(where, "partition="+part)
	}
	err := q.change("user", func(f *acctmgr.Facts) bool { return hasAssoc(f, strings.ToLower(account), user, part) },
		where, set, ofUser)
	if err != nil || len(ofUser) == 0 {
		return err
	}
	// where the association was there already, what is the user's is still to be set
	return q.change("user", func(f *acctmgr.Facts) bool { return f.Users[user] != nil }, []string{"name=" + user}, ofUser,
		nil)
}

func adminLevel(list []string) string {
	for _, l := range list {
		switch strings.ToLower(l) {
		case "not set", "":
		default:
			return l
		}
	}
	return ""
}

func takeUsers(q *request, b *object) error {
	for _, u := range b.objects("users") {
		name := u.str("name")
		if name == "" {
			return badChange("a user needs a name")
		}
		if err := q.flags(u, "DELETE user/"+name); err != nil {
			return err
		}
		if old := u.str("old_name"); old != "" && old != name {
			return unsupported(u.path + "old_name: users are not renamed; add " + name +
				" with its associations and remove " + old)
		}
		var keys []string
		for _, w := range u.objects("wckeys") {
			if key := w.str("name"); key != "" {
				keys = append(keys, key)
			}
			w.ignore("id", "accounting", "cluster", "user", "flags")
		}
		var set settings
		levels, _ := u.list("administrator_level")
		if l := adminLevel(levels); l != "" {
			set.add("AdminLevel", l)
		}
		if def := u.object("default"); def != nil {
			set.text(def, "account", "DefaultAccount")
			if key := def.str("wckey"); key != "" {
				set.add("DefaultWCKey", key)
				keys = append(keys, key)
			}
			if n := def.number("qos"); n.set && n.v > 0 {
				return unsupported(def.path + "qos: a default QOS is set by its name, with associations/ or users_association/")
			}
		}
		members, coordinators := u.objects("associations"), u.objects("coordinators")
		if err := b.top().err; err != nil {
			return err
		}
		if err := q.shortAssociations(members, "", name); err != nil {
			return err
		}
		f, err := q.accountFacts()
		if err != nil {
			return err
		}
		there := f.Users[name] != nil
		if there { // a default wckey has to be among the user's before
			if err := q.giveWCKeys(name, keys...); err != nil {
				return err
			}
		}
		if err := q.change("user", func(f *acctmgr.Facts) bool { return f.Users[name] != nil },
			[]string{"name=" + name}, set, nil); err != nil {
			return err
		}
		if !there {
			if err := q.giveWCKeys(name, keys...); err != nil {
				return err
			}
		}
		for _, c := range coordinators {
			if err := q.coordinator(c, "", name); err != nil {
				return err
			}
		}
	}
	return nil
}

func postUsersAssociation(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	cond := b.object("association_condition")
	if cond == nil {
		return badChange("association_condition says which users and accounts")
	}
	users, _ := cond.list("users")
	accounts, _ := cond.list("accounts")
	parts, _ := cond.list("partitions")
	clusters, _ := cond.list("clusters")
	if err := q.ours(clusters...); err != nil {
		return err
	}
	keys, _ := cond.list("wckeys")
	rec := cond.object("association")
	set := recordSettings(rec)
	if rec != nil {
		if p := rec.str("parent"); p != "" && !slices.ContainsFunc(accounts, func(a string) bool {
			return strings.EqualFold(a, p)
		}) {
			return unsupported(rec.path + "parent: above a user's association stands its account; " +
				"accounts_association/ sets that of an account")
		}
	}
	ofUser, err := shortUser(b.object("user"), &set)
	if err != nil {
		return err
	}
	if err := b.top().err; err != nil {
		return err
	}
	if len(parts) == 0 {
		parts = []string{""}
	}
	for _, user := range users {
		for _, account := range accounts {
			for _, part := range parts {
				if err := q.addUser(user, account, part, set, ofUser); err != nil {
					return err
				}
			}
		}
		if len(accounts) == 0 {
			if err := q.change("user", func(f *acctmgr.Facts) bool { return f.Users[user] != nil },
				[]string{"name=" + user}, append(ofUser, set...), nil); err != nil {
				return err
			}
		}
	}
	for _, user := range users {
		if err := q.giveWCKeys(user, keys...); err != nil {
			return err
		}
	}
	if err := q.done(b); err != nil {
		return err
	}
	q.j.Str("added_users", strings.Join(users, ","))
	return nil
}

// shortUser reads user_short: what is the user's; a default QOS is the associations'.
func shortUser(u *object, ofAssoc *settings) (ofUser settings, err error) {
	if u == nil {
		return nil, nil
	}
	levels, _ := u.list("adminlevel")
	if l := adminLevel(levels); l != "" {
		ofUser.add("AdminLevel", l)
	}
	ofUser.text(u, "defaultaccount", "DefaultAccount")
	ofAssoc.text(u, "defaultqos", "DefaultQOS")
	if key := u.str("defaultwckey"); key != "" {
		ofUser.add("DefaultWCKey", key)
	}
	return ofUser, nil
}

func takeAssociations(q *request, b *object) error {
	for _, a := range b.objects("associations") {
		account, user, part, parent := a.str("account"), a.str("user"), a.str("partition"), a.str("parent_account")
		set := assocSettings(a)
		if err := b.top().err; err != nil {
			return err
		}
		if account == "" {
			return badChange("an association needs an account")
		}
		if err := q.ours(a.str("cluster")); err != nil {
			return err
		}
		if err := q.flags(a, "DELETE association/"); err != nil {
			return err
		}
		var ofUser settings
		if is, _ := a.boolean("is_default"); is && user != "" {
			ofUser.add("DefaultAccount", account)
		}
		var err error
		switch {
		case user == "":
			err = q.addAccount(account, parent, "", "", set)
		case parent != "" && !strings.EqualFold(parent, account):
			return unsupported(a.path + "parent_account: above a user's association stands its account")
		default:
			err = q.addUser(user, account, part, set, ofUser)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
