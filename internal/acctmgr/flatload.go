package acctmgr

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gbatch/internal/model"
)

// Limits of a flat file.
const (
	MaxFlatBytes = 64 << 20
	maxFlatLine  = 1 << 20
)

// load reads one flat file.
type load struct {
	f       *Facts // the present facts
	see     *Facts // the facts after loading the file
	clean   bool
	cluster string
	p       *Plan

	parent   string
	accounts order[string, model.Account]
	users    order[string, model.User]
	assocs   order[model.AssocKey, model.Association]
	qos      order[string, model.QOS]
	coords   []coordLine
	wckeys   order[[2]string, model.WCKey] // by user and name

	// lost is told of a line or option that can't be carried over, which is then left out; nil: it is an error.
	lost func(line int, what, why string)
}

// coordLine is a Coordinator= option: its accounts may come later.
type coordLine struct {
	line     int
	user     string
	accounts []string
}

// order is records by name, and the names as they came.
type order[K comparable, T any] struct {
	keys []K
	m    map[K]*T
}

// get gives a record, made by fresh when it is new.
func (o *order[K, T]) get(key K, fresh func() *T) *T {
	if t := o.m[key]; t != nil {
		return t
	}
	if o.m == nil {
		o.m = map[K]*T{}
	}
	t := fresh()
	o.m[key] = t
	o.keys = append(o.keys, key)
	return t
}

// Load plans a flat file (of Dump, or sacctmgr's): it makes or changes the records in the file, and with clean removes
// all others. cluster, if it is not "", replaces the name in the file's Cluster line. Errors name the line.
func Load(f *Facts, text, cluster string, clean bool) (*Plan, error) {
	return (&load{f: f, clean: clean, cluster: cluster}).read(text)
}

// LoadForeign is Load, without clean, for a file that another system wrote: what is not possible here is left out, and
// lost is told of it.
func LoadForeign(f *Facts, text, cluster string, lost func(line int, what, why string)) (*Plan, error) {
	return (&load{f: f, cluster: cluster, lost: lost}).read(text)
}

func (l *load) read(text string) (*Plan, error) {
	f := l.f
	see := *f
	see.QOS, see.Accounts, see.assocs = maps.Clone(f.QOS), maps.Clone(f.Accounts), maps.Clone(f.assocs)
	l.see, l.p = &see, &Plan{Nothing: " Nothing new added."}
	for line := range strings.SplitSeq(text, "\n") { // others may name a QOS before its own line
		if kind, rest, _, ok := flatLine(line); ok && kind == "#QOS" {
			if name := strings.ToLower(unquote(rest)); see.QOS[name] == nil {
				see.QOS[name] = &model.QOS{Name: name}
			}
		}
	}
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		if len(line) > maxFlatLine {
			return nil, fmt.Errorf(" line %d is longer than %d bytes", n, maxFlatLine)
		}
		if err := l.line(n, strings.TrimSpace(line)); err != nil && l.lost != nil {
			l.lost(n, strings.TrimSpace(line), strings.TrimSpace(err.Error()))
		} else if err != nil {
			return nil, fmt.Errorf(" line %d: %s", n, strings.TrimSpace(err.Error()))
		}
	}
	if l.parent == "" && l.cluster == "" && len(l.qos.keys) == 0 {
		return nil, fmt.Errorf(" there is no Cluster line in the file; gacctmgr dump writes one that can be read")
	}
	if err := l.coordinators(); err != nil {
		return nil, err
	}
	return l.p, l.plan()
}

// flatLine splits a line: Type - 'name', then options after colons. No regular expression: all commands are one
// program, and would compile it at every start.
func flatLine(line string) (kind, name, options string, ok bool) {
	end := strings.IndexFunc(strings.TrimPrefix(line, "#"),
		func(r rune) bool { return r < 'A' || r > 'Z' && r < 'a' || r > 'z' })
	if end <= 0 {
		return "", "", "", false
	}
	end += len(line) - len(strings.TrimPrefix(line, "#"))
	kind = line[:end]
	rest, ok := strings.CutPrefix(strings.TrimLeft(line[end:], " \t"), "-")
	if !ok {
		return "", "", "", false
	}
	rest = strings.TrimLeft(rest, " \t")
	cut := strings.IndexByte(rest, ':')
	if rest != "" && (rest[0] == '\'' || rest[0] == '"') {
		if quoted := strings.IndexByte(rest[1:], rest[0]); quoted >= 0 && (quoted+2 == len(rest) || rest[quoted+2] == ':') {
			cut = quoted + 2 // colons between quotes belong to the name
		}
	}
	if cut < 0 || cut >= len(rest) {
		return kind, rest, "", true
	}
	return kind, rest[:cut], rest[cut+1:], true
}

func (l *load) line(n int, text string) error {
	if text == "" || text[0] == '#' && !strings.HasPrefix(text, "#QOS - ") {
		return nil
	}
	kind, rest, options, ok := flatLine(text)
	if !ok {
		return fmt.Errorf("'%.40s' is not Cluster|Parent|Account|User - 'NAME':OPTION=VALUE:...", text)
	}
	name := strings.ToLower(unquote(rest))
	var words []word
	for _, option := range flatOptions(options) {
		words = append(words, read(option))
	}
	if name == "" {
		return fmt.Errorf("%s without a name", kind)
	}
	switch strings.ToLower(kind) {
	case "cluster":
		if l.cluster != "" {
			name = strings.ToLower(l.cluster)
		}
		if err := l.f.checkCluster(name); err != nil {
			return fmt.Errorf("%w; cluster=%s on the command line reads it as this one's", err, l.f.Cluster)
		}
		l.parent, l.cluster = model.RootAccount, name
		return l.limits(n, l.assoc(model.AssocKey{Account: model.RootAccount}), words)
	case "parent":
		if l.accounts.m[name] == nil && (l.clean || l.f.Accounts[name] == nil) && name != model.RootAccount {
			l.parent = "" // what follows is not its former account's
			return fmt.Errorf("the account %s is not there yet: its Account line must come before", name)
		}
		l.parent = name
		return nil
	case "account":
		return l.account(n, name, words)
	case "user":
		return l.user(n, name, words)
	case "#qos":
		q := l.qos.get(name, func() *model.QOS {
			q := model.QOS{Name: name, UsageFactor: model.FactorOne}
			if old := l.f.QOS[name]; old != nil {
				q.ID = old.ID
			}
			return &q
		})
		if err := checkName("QOS", name); err != nil {
			return err
		}
		return applyFlat(l, n, qosAttrs(), q, words)
	}
	return fmt.Errorf("%s is none of Cluster, Parent, Account and User", kind)
}

// flatOptions splits a line at colons, except in quotes and between the name and the type of a resource.
func flatOptions(text string) []string {
	var out []string
	var quote byte
	from, word := 0, 0
	for i := 0; i <= len(text); i++ {
		switch {
		case i == len(text) || text[i] == ':' && quote == 0 && !gresName(text[word:i]):
			if i > from {
				out = append(out, text[from:i])
			}
			from, word = i+1, i+1
		case quote != 0:
			if text[i] == quote {
				quote = 0
			}
		case text[i] == '\'' || text[i] == '"':
			quote = text[i]
		case text[i] == ',' || text[i] == '=':
			word = i + 1
		}
	}
	return out
}

// gresName reports whether a word is the name of a generic resource, behind which its type may stand.
func gresName(word string) bool {
	_, typ, gres := model.TRESGres(word)
	return gres && typ == ""
}

func (l *load) assoc(key model.AssocKey) *model.Association {
	return l.assocs.get(key, func() (fresh *model.Association) {
		defer func() { l.see.assocs[key] = fresh }()
		a := model.Association{Account: key.Account, User: key.User, Partition: key.Partition, Shares: 1}
		if a.OfPool() {
			a.Shares = 0
		}
		if old := l.f.assocs[key]; old != nil {
			if a.ID = old.ID; !l.clean {
				a = *old
			}
		}
		return &a
	})
}

// limits applies an association's options.
func (l *load) limits(n int, a *model.Association, words []word) error {
	return applyFlat(l, n, assocAttrs(), a, words)
}

func applyFlat[T any](l *load, n int, list []attr[T], t *T, words []word) error {
	for _, w := range words {
		if is(w.key, 5, "classification") { // of a cluster: what kind of machine it is
			continue
		}
		before := *t
		if _, err := apply(l.see, list, t, []word{w}); err != nil && l.lost != nil {
			*t = before
			l.lost(n, w.key+"="+w.value, strings.TrimSpace(err.Error()))
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (l *load) account(n int, name string, words []word) error {
	if err := l.below("Account", name); err != nil {
		return err
	}
	if i := slices.IndexFunc(words, func(w word) bool { return is(w.key, 4, "partitions") }); i >= 0 {
		return l.limits(n, l.assoc(model.AssocKey{Account: name, Partition: words[i].value}),
			slices.Delete(slices.Clone(words), i, i+1))
	}
	a := l.accounts.get(name, func() *model.Account {
		if old := l.f.Accounts[name]; old != nil {
			a := *old
			if l.clean {
				a.Coordinators = nil
			}
			return &a
		}
		return &model.Account{Name: name, Description: name, Organization: or(l.parent, name)}
	})
	a.Parent = l.parent
	l.see.Accounts[name] = a
	var rest []word
	for _, w := range words {
		switch {
		case is(w.key, 3, "description"):
			a.Description = w.value
		case is(w.key, 1, "organization"):
			a.Organization = w.value
		default:
			rest = append(rest, w)
		}
	}
	return l.limits(n, l.assoc(model.AssocKey{Account: name}), rest)
}

// below checks that an entry follows a Parent line.
func (l *load) below(what, name string) error {
	if l.parent == "" {
		return fmt.Errorf("%s %s comes before the Cluster line", what, name)
	}
	return checkName(what, name)
}

func (l *load) user(n int, name string, words []word) error {
	if err := l.below("User", name); err != nil {
		return err
	}
	u := l.users.get(name, func() *model.User {
		if old := l.f.Users[name]; old != nil && !l.clean {
			u := *old
			return &u
		}
		return &model.User{Name: name, DefaultAccount: l.parent}
	})
	part := ""
	var rest []word
	for _, w := range words {
		var err error
		switch {
		case is(w.key, 2, "adminlevel"):
			u.Admin, err = adminLevel(w.value)
		case is(w.key, 8, "defaultaccount"):
			u.DefaultAccount = strings.ToLower(w.value)
		case is(w.key, 8, "defaultwckey"):
			if u.DefaultWCKey = strings.ToLower(w.value); u.DefaultWCKey != "" {
				err = l.wckey(n, name, u.DefaultWCKey)
			}
		case is(w.key, 5, "wckeys"):
			for _, key := range names(w.value) {
				err = errors.Join(err, l.wckey(n, name, key))
			}
		case is(w.key, 5, "coordinators"):
			l.coords = append(l.coords, coordLine{n, name, names(w.value)})
		case is(w.key, 4, "partitions"):
			part = w.value
		default:
			rest = append(rest, w)
		}
		if err != nil {
			return err
		}
	}
	return l.limits(n, l.assoc(model.AssocKey{Account: l.parent, User: name, Partition: part}), rest)
}

// coordinators makes users coordinators, now that all accounts are known.
func (l *load) coordinators() error {
	for _, c := range l.coords {
		for _, name := range c.accounts {
			if l.accounts.m[name] == nil && (l.f.Accounts[name] == nil || l.clean) && name != model.RootAccount {
				if l.lost != nil {
					l.lost(c.line, "Coordinator="+name, "there is no such account")
					continue
				}
				return fmt.Errorf(" line %d: Coordinator=%s: there is no such account", c.line, name)
			}
			a := l.accounts.get(name, func() *model.Account { a := *l.f.Accounts[name]; return &a })
			if !slices.Contains(a.Coordinators, c.user) {
				a.Coordinators = append(slices.Clone(a.Coordinators), c.user)
				slices.Sort(a.Coordinators)
			}
		}
	}
	for _, name := range l.users.keys {
		if d := l.users.m[name].DefaultAccount; l.accounts.m[d] == nil && (l.f.Accounts[d] == nil || l.clean) &&
			d != model.RootAccount {
			if l.lost != nil {
				l.users.m[name].DefaultAccount = l.firstAccount(name)
				l.lost(0, "DefaultAccount="+d+" of user "+name, "there is no such account; it is "+
					l.users.m[name].DefaultAccount)
				continue
			}
			return fmt.Errorf(" User %s: DefaultAccount=%s: there is no such account", name, d)
		}
	}
	return nil
}

// firstAccount gives the account of a user's first association in the file.
func (l *load) firstAccount(user string) string {
	for _, key := range l.assocs.keys {
		if key.User == user {
			return key.Account
		}
	}
	return ""
}

// plan makes the edits: records that others refer to first, removals last.
func (l *load) plan() error {
	p, f := l.p, l.f
	var qos, accounts, users, assocs []string
	for _, name := range l.qos.keys {
		if f.QOS[name] == nil && len(l.qos.m[name].Preempt) > 0 { // it may refer to a QOS that is made after it
			first := *l.qos.m[name]
			first.Preempt = nil
			p.edit(model.AcctEdit{Op: model.PutQOS, QOS: &first})
		}
	}
	for _, name := range l.qos.keys {
		if q := l.qos.m[name]; f.QOS[name] == nil || !reflect.DeepEqual(q, f.QOS[name]) {
			p.edit(model.AcctEdit{Op: model.PutQOS, QOS: q})
			qos = append(qos, "  "+name)
		}
	}
	for _, name := range l.accounts.keys {
		if a := l.accounts.m[name]; f.Accounts[name] == nil || !reflect.DeepEqual(a, f.Accounts[name]) {
			p.edit(model.AcctEdit{Op: model.PutAccount, Account: a})
			accounts = append(accounts, "  "+name)
		}
	}
	put := func(ofUsers bool) {
		for _, key := range l.assocs.keys {
			if a := l.assocs.m[key]; (key.User != "") == ofUsers &&
				(f.assocs[key] == nil || !reflect.DeepEqual(a, f.assocs[key])) {
				p.putAssoc(a)
				assocs = append(assocs, f.assocLine(a))
			}
		}
	}
	put(false)
	var keys []string
	for _, k := range l.wckeys.keys {
		if w := l.wckeys.m[k]; !f.hasWCKey(w.User, w.Name) {
			p.edit(model.AcctEdit{Op: model.PutWCKey, WCKey: w})
			keys = append(keys, "  "+w.Name+" of "+w.User)
		}
	}
	for _, name := range l.users.keys {
		if u := l.users.m[name]; f.Users[name] == nil || *u != *f.Users[name] {
			p.edit(model.AcctEdit{Op: model.PutUser, User: u})
			users = append(users, "  "+name)
			if f.Users[name] == nil {
				p.NewUsers = append(p.NewUsers, name)
			}
		}
	}
	put(true)
	p.list(" QOS", qos)
	p.list(" Accounts", accounts)
	p.list(" Users", users)
	p.list(" Associations", assocs)
	p.list(" WCKeys", keys)
	if l.clean {
		l.drop()
	}
	return nil
}

// drop plans the removal of everything that the file does not name. The root account, its user and the QOS stay.
func (l *load) drop() {
	p, f := l.p, l.f
	var gone []*model.Association
	for _, a := range f.tree() {
		roots := a.Account == model.RootAccount && (a.User == "" && !a.OfPool() || a.User == model.RootAccount)
		if l.assocs.m[a.Key()] == nil && !roots {
			gone = append(gone, a)
		}
	}
	var users, accounts []string
	for name := range f.Users {
		if l.users.m[name] == nil && name != model.RootAccount {
			users = append(users, name)
		}
	}
	for name := range f.Accounts {
		if l.accounts.m[name] == nil && name != model.RootAccount {
			accounts = append(accounts, name)
		}
	}
	slices.Sort(users)
	slices.SortFunc(accounts, func(a, b string) int { // children first
		if d := f.depth(b) - f.depth(a); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var lines []string
	for _, a := range gone {
		p.edit(model.AcctEdit{Op: model.DropAssoc,
			Assoc: &model.Association{Account: a.Account, User: a.User, Partition: a.Partition}})
		lines = append(lines, f.whichLine(a))
	}
	p.list(" Deleting associations...", lines)
	f.dropWCKeys(p, slices.DeleteFunc(f.wckeys(nil, nil), func(w *model.WCKey) bool {
		return l.wckeys.m[[2]string{w.User, w.Name}] != nil
	}))
	lines = nil
	for _, name := range users {
		p.edit(model.AcctEdit{Op: model.DropUser, User: &model.User{Name: name}})
		lines = append(lines, "  "+name)
	}
	p.list(" Deleting users...", lines)
	lines = nil
	for _, name := range accounts {
		p.edit(model.AcctEdit{Op: model.DropAccount, Account: &model.Account{Name: name, Parent: f.parent(name)}})
		lines = append(lines, "  "+name)
	}
	p.list(" Deleting accounts...", lines)
}
