package acctmgr

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/format"
	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

// wckey.go has the wckeys of users: what add, modify and delete user do with them, and the entity wckey. That one
// sacctmgr only shows; here keys can be added and deleted by it too.

// wckeys gives the wckeys that have one of the names and are of one of the users, in order of name and user. nil: of
// any name, of any user.
func (f *Facts) wckeys(names, users []string) (out []*model.WCKey) {
	if users == nil {
		users = slices.Collect(maps.Keys(f.keys))
	}
	for _, user := range users {
		for _, w := range f.keys[user] {
			if names == nil || slices.Contains(names, w.Name) {
				out = append(out, w)
			}
		}
	}
	slices.SortFunc(out, func(a, b *model.WCKey) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.User, b.User))
	})
	return slices.Compact(out) // a user may be named twice
}

// hasWCKey reports whether a user has one of some wckeys.
func (f *Facts) hasWCKey(user string, names ...string) bool {
	return slices.ContainsFunc(f.keys[user], func(w *model.WCKey) bool { return slices.Contains(names, w.Name) })
}

// wckeyNames gives the names of a user's wckeys, in order.
func (f *Facts) wckeyNames(user string) (out []string) {
	for _, w := range f.keys[user] {
		out = append(out, w.Name)
	}
	return out
}

// addWCKeys plans the wckeys of a user, and gives the lines about those that are new. The first one becomes the user's
// default if there is none, as in Slurm.
func (f *Facts) addWCKeys(p *Plan, u *model.User, keys []string) (lines []string, err error) {
	for _, name := range keys {
		if err := model.CheckWCKey(name); err != nil {
			return nil, fmt.Errorf(" %w", err)
		}
		if !f.hasWCKey(u.Name, name) {
			p.edit(model.AcctEdit{Op: model.PutWCKey, WCKey: &model.WCKey{User: u.Name, Name: name}})
			lines = append(lines, strings.TrimRight(fmt.Sprintf("  U = %-9.9s W = %-10.10s C = %-10.10s", u.Name, name,
				f.Cluster), " "))
		}
		u.DefaultWCKey = or(u.DefaultWCKey, name)
	}
	return lines, nil
}

// setDefaultWCKey makes a key that a user has the default one; "" and -1: there is none.
func (f *Facts) setDefaultWCKey(u *model.User, value string) (known bool) {
	if value = strings.ToLower(value); value == "-1" {
		value = ""
	}
	if value != "" && !f.hasWCKey(u.Name, value) {
		return false
	}
	u.DefaultWCKey = value
	return true
}

// dropWCKeys plans the removal of wckeys.
func (f *Facts) dropWCKeys(p *Plan, gone []*model.WCKey) {
	var lines []string
	for _, w := range gone {
		p.edit(model.AcctEdit{Op: model.DropWCKey, WCKey: &model.WCKey{User: w.User, Name: w.Name}})
		lines = append(lines, strings.TrimRight(fmt.Sprintf("  C = %-10s W = %-20s U = %-9s", f.Cluster, w.Name, w.User),
			" "))
		if u := f.Users[w.User]; u != nil && u.DefaultWCKey == w.Name {
			p.note(" '%s' was the default wckey of '%s', who has none now.", w.Name, w.User)
		}
	}
	p.list(" Deleting user WCKeys...", lines)
}

// keyWords are the words about wckeys: which, and whose.
func (f *Facts) keyWords(words []word) (keys, users, ids []string, err error) {
	for _, w := range words {
		switch {
		case w.key == "" || is(w.key, 1, "names", "wckeys"):
			keys = append(keys, names(w.value)...)
		case is(w.key, 1, "users"):
			users = append(users, names(w.value)...)
		case is(w.key, 1, "ids"):
			ids = append(ids, names(w.value)...)
		case is(w.key, 1, "clusters"):
			err = f.checkCluster(w.value)
		default:
			err = unknownCondition(w)
		}
		if err != nil {
			return nil, nil, nil, err
		}
	}
	return keys, users, ids, nil
}

// addKeys is add wckey NAMES user=NAMES.
func (f *Facts) addKeys(words []word) (*Plan, error) {
	p := &Plan{Nothing: " Nothing new added."}
	keys, users, ids, err := f.keyWords(words)
	switch {
	case err != nil:
		return nil, err
	case len(keys) == 0 || len(users) == 0 || len(ids) > 0:
		return nil, errors.New(" Need names of wckeys and of users: gacctmgr add wckey NAME user=NAME")
	}
	var lines []string
	for _, name := range users {
		old := f.Users[name]
		if old == nil {
			return nil, fmt.Errorf(" This user '%s' doesn't exist; add it first with gacctmgr add user", name)
		}
		u := *old
		more, err := f.addWCKeys(p, &u, keys)
		if err != nil {
			return nil, err
		}
		if lines = append(lines, more...); u != *old {
			p.edit(model.AcctEdit{Op: model.PutUser, User: &u})
		}
	}
	p.list(" WCKeys =", lines)
	return p, nil
}

// removeKeys is delete wckey.
func (f *Facts) removeKeys(words []word) (*Plan, error) {
	p := &Plan{Nothing: " Nothing deleted"}
	keys, users, ids, err := f.keyWords(words)
	if err != nil {
		return nil, err
	}
	f.dropWCKeys(p, f.withIDs(f.wckeys(keys, users), ids))
	return p, nil
}

// withIDs gives those of the keys that have one of the numbers; nil: any.
func (f *Facts) withIDs(list []*model.WCKey, ids []string) []*model.WCKey {
	if ids == nil {
		return list
	}
	return slices.DeleteFunc(list, func(w *model.WCKey) bool {
		return !slices.Contains(ids, strconv.FormatUint(uint64(w.ID), 10))
	})
}

// showKeys gives the rows of show wckey.
func (sh *show) showKeys(words []word) (rows []Row, err error) {
	for _, w := range words { // another cluster has none here
		if is(w.key, 1, "clusters") && !slices.Contains(names(w.value), strings.ToLower(sh.f.Cluster)) {
			return nil, nil
		}
	}
	keys, users, ids, err := sh.f.keyWords(slices.DeleteFunc(slices.Clone(words), func(w word) bool {
		return is(w.key, 1, "clusters")
	}))
	if err != nil {
		return nil, err
	}
	for _, w := range sh.f.withIDs(sh.f.wckeys(keys, users), ids) {
		if u := sh.f.Users[w.User]; sh.onlyDefaults && (u == nil || u.DefaultWCKey != w.Name) {
			continue
		}
		rows = append(rows, Row{f: sh.f, wckey: w})
	}
	return rows, nil
}

func wckeyFields() *format.Language[Row] {
	return &format.Language[Row]{Noun: "wckey", Fields: []field{
		{Name: "WCKey", Width: 10, Get: func(r *Row) string { return r.wckey.Name }},
		{Name: "Name", Title: "WCKey", Width: 10, Get: func(r *Row) string { return r.wckey.Name }},
		{Name: "Cluster", Width: 10, Get: func(r *Row) string { return r.f.Cluster }},
		{Name: "User", Width: 10, Get: func(r *Row) string { return r.wckey.User }},
		{Name: "ID", Width: 6, Get: func(r *Row) string { return strconv.FormatUint(uint64(r.wckey.ID), 10) }}}}
}

func wckeyJSON() []slurmjson.Field[wckeyOf] {
	return []slurmjson.Field[wckeyOf]{
		{Name: "accounting", Type: slurmjson.List},
		{Name: "cluster", Str: func(w *wckeyOf) string { return w.f.Cluster }},
		{Name: "id", Int: func(w *wckeyOf) int64 { return int64(w.is.ID) }},
		text("name", func(w *model.WCKey) string { return w.Name }),
		text("user", func(w *model.WCKey) string { return w.User }),
		{Name: "flags", Type: slurmjson.List},
	}
}

// wckey notes a wckey of a user. Those that stand for a default (*key) are none of their own.
func (l *load) wckey(n int, user, name string) error {
	if strings.HasPrefix(name, model.PresetMark) {
		return nil
	}
	if err := model.CheckWCKey(name); err != nil {
		if l.lost == nil {
			return err
		}
		l.lost(n, "wckey "+name, err.Error())
		if u := l.users.m[user]; u.DefaultWCKey == name {
			u.DefaultWCKey = ""
		}
		return nil
	}
	l.wckeys.get([2]string{user, name}, func() *model.WCKey { return &model.WCKey{User: user, Name: name} })
	return nil
}
