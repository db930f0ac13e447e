package multifactor

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/sched/fairtree"
	"gbatch/internal/state"
)

// Share is one line of the tree of shares: an account (User ""), or a user in one.
type Share struct {
	Account   string
	Parent    string // the account above; "" for the root
	User      string
	Partition string // of an association for one partition
	UID       uint32 // of a user with usage
	Depth     int
	// nil for a user known only by its usage, or an account only in Accounts= of the configuration
	Assoc     *model.Association
	Shares    int64 // raw
	UseParent bool
	Usage     int64 // of it and all below it, thousandths of a billing unit's second
	NormUsage float64
	fairtree.Level

	up int // index of the account above
}

// Tree has the shares of all accounts and users at one moment.
type Tree struct {
	Rows  []Share                  // depth first: an account, its users, then the accounts below it, each in order of name
	index *finder                  // of the others and of accounts
	parts map[model.AssocKey]int32 // of associations for one partition
	worth []worth                  // of each row

	// The sources of the rows' names. While they don't change, the rows stay and only usage is read anew.
	gen  uint64
	cfg  *model.Config
	used []int32 // the rows of the records of usage, in their order
}

// worth is what a row contributes to the priorities of its jobs.
type worth struct {
	fair float64 // a user's factor; for an account the best of its users, 1 if it has none
	prio float64 // its association's priority, or the nearest one above
}

// NewTree builds the tree of all accounts and associations. Users with usage but without an association get one share.
// Usage under a name that is no account is left out. The cost depends on the size of the tree, not on the number of
// jobs that have run. prev, which may be nil, saves most of it if no account has changed since.
func NewTree(v *state.View, now model.Time, prev *Tree) *Tree {
	if prev != nil && prev.gen == v.AcctGen() && prev.cfg == v.Config() {
		if t := prev.refresh(v, now); t != nil {
			return t
		}
	}
	b := builder{v: v, now: now, kids: map[string][]string{}, users: map[string][]Share{}, accounts: map[string]Share{}}
	b.collect()
	t := &Tree{gen: v.AcctGen(), cfg: v.Config()}
	t.Rows = make([]Share, 0, b.n)
	b.lay(t, model.RootAccount, -1, 0)
	for i := range t.Rows {
		r := &t.Rows[i]
		if r.Partition == "" {
			continue
		}
		if t.parts == nil {
			t.parts = map[model.AssocKey]int32{}
		}
		t.parts[model.AssocKey{Account: r.Account, User: r.User, Partition: r.Partition}] = int32(i)
	}
	t.index = newFinder(t.Rows, func(r *Share) bool { return r.Partition == "" })
	known := knower(v)
	v.Usages(func(u *state.Usage) bool {
		if !known(u.Account) {
			return true
		}
		t.used = append(t.used, t.exactly(u.Account, u.User, u.Partition))
		return true
	})
	t.priorities()
	t.rank()
	return t
}

// refresh gives the tree with the usage of now, or nil if new users have usage.
func (t *Tree) refresh(v *state.View, now model.Time) *Tree {
	n := *t
	n.Rows = slices.Clone(t.Rows)
	for i := range n.Rows {
		n.Rows[i].Usage = 0
	}
	k := 0
	same := true
	known := knower(v)
	v.Usages(func(u *state.Usage) bool {
		if !known(u.Account) {
			return true
		}
		if same = k < len(n.used); !same {
			return false
		}
		r := &n.Rows[n.used[k]]
		k++
		if same = r.User == u.User && r.Account == u.Account && r.Partition == u.Partition; same {
			r.UID, r.Usage = u.UID, v.BilledAt(u, now)
		}
		return same
	})
	if !same || k != len(n.used) {
		return nil
	}
	n.rank()
	return &n
}

// priorities fills in the priority of each row's association, or of the nearest one above.
func (t *Tree) priorities() {
	t.worth = make([]worth, len(t.Rows))
	for i := range t.Rows {
		r := &t.Rows[i]
		set, n := false, int64(0)
		if r.Assoc != nil {
			n, set = r.Assoc.Priority.Value()
		}
		switch {
		case set:
			t.worth[i].prio = float64(n)
		case r.up >= 0:
			t.worth[i].prio = t.worth[r.up].prio
		}
	}
}

// fairest fills in users' factors and the best below each account.
func (t *Tree) fairest() {
	t.worth = slices.Clone(t.worth)
	for i := range t.worth {
		t.worth[i].fair = 0
	}
	for i := range t.Rows {
		r := &t.Rows[i]
		if r.User == "" {
			continue
		}
		t.worth[i].fair = r.Factor
		for up := r.up; up >= 0 && t.worth[up].fair < r.Factor; up = t.Rows[up].up {
			t.worth[up].fair = r.Factor
		}
	}
	for i := range t.Rows {
		if t.worth[i].fair == 0 && t.Rows[i].User == "" {
			t.worth[i].fair = 1
		}
	}
}

type builder struct {
	v        *state.View
	now      model.Time
	accounts map[string]Share
	kids     map[string][]string // account -> accounts below, sorted by lay
	users    map[string][]Share  // account -> users
	n        int
}

func (b *builder) collect() {
	account := func(name, parent string) {
		if _, ok := b.accounts[name]; ok {
			return
		}
		b.accounts[name] = Share{Account: name, Parent: parent, Shares: 1}
		b.n++
		if parent != "" {
			b.kids[parent] = append(b.kids[parent], name)
		}
	}
	b.v.Accounts(func(a *model.Account) bool { account(a.Name, a.Parent); return true })
	for _, name := range b.v.Config().Accounts {
		account(name, model.RootAccount)
	}
	b.v.Associations(func(a *model.Association) bool {
		if a.OfPool() {
			return true // it has limits and no shares
		}
		s := Share{Account: a.Account, User: a.User, Partition: a.Partition, Assoc: a, Shares: a.Shares,
			UseParent: a.Shares == model.ShareOfParent}
		if a.User == "" {
			s.Parent = b.accounts[a.Account].Parent
			b.accounts[a.Account] = s
			return true
		}
		b.users[a.Account] = append(b.users[a.Account], s)
		b.n++
		return true
	})
	known := knower(b.v)
	b.v.Usages(func(u *state.Usage) bool {
		if !known(u.Account) {
			return true
		}
		account(u.Account, model.RootAccount)
		list := b.users[u.Account] // associations and usage both come in order of account, user and partition
		i, found := slices.BinarySearchFunc(list, u, func(s Share, u *state.Usage) int {
			return cmp.Or(strings.Compare(s.User, u.User), strings.Compare(s.Partition, u.Partition))
		})
		if !found {
			list = slices.Insert(list, i, Share{Account: u.Account, User: u.User, Partition: u.Partition, Shares: 1})
			b.users[u.Account] = list
			b.n++
		}
		list[i].UID, list[i].Usage = u.UID, b.v.BilledAt(u, b.now)
		return true
	})
}

// knower gives a function that tells whether an account exists. It keeps the last answer, because usage comes in order
// of account.
func knower(v *state.View) func(string) bool {
	last, yes := "", v.KnownAccount("")
	return func(account string) bool {
		if account != last {
			last, yes = account, v.KnownAccount(account)
		}
		return yes
	}
}

// lay puts an account and everything below it into the rows.
func (b *builder) lay(t *Tree, name string, up, depth int) {
	s := b.accounts[name]
	s.Depth, s.up = depth, up
	at := len(t.Rows)
	t.Rows = append(t.Rows, s)
	for _, u := range b.users[name] {
		u.Parent, u.Depth, u.up = name, depth+1, at
		t.Rows = append(t.Rows, u)
	}
	kids := b.kids[name]
	slices.Sort(kids)
	for _, k := range kids {
		b.lay(t, k, at, depth+1)
	}
}

// rank fills in the results of the fair-share algorithm.
func (t *Tree) rank() {
	p := &t.cfg.Params.Priority
	nodes := make([]fairtree.Node, len(t.Rows))
	for i := range t.Rows {
		r := &t.Rows[i]
		nodes[i] = fairtree.Node{Parent: r.up, User: r.User != "", UseParent: r.UseParent, Shares: max(r.Shares, 0),
			Usage: r.Usage}
	}
	levels, err := fairtree.Rank(nodes, nil)
	if err != nil { // the rows are laid as a tree
		levels = make([]fairtree.Level, len(nodes))
	}
	for i := range t.Rows {
		r := &t.Rows[i]
		r.Level = levels[i]
		r.Usage = levels[i].Usage
		if levels[0].Usage > 0 {
			r.NormUsage = float64(r.Usage) / float64(levels[0].Usage)
		}
	}
	if p.Flags&(model.PrioNoFairTree|model.PrioDepthOblivious) != 0 {
		t.classic(p.Flags&model.PrioDepthOblivious != 0)
	}
	for i := range t.Rows {
		if r := &t.Rows[i]; r.User != "" && r.Assoc == nil && !t.open(r.Account) {
			r.Factor = 0
		}
	}
	t.fairest()
}

// open reports whether an account is everybody's: the one that is charged where nobody names any, or one that the
// configuration names. An account that gacctmgr made is for the users who have an association with it.
func (t *Tree) open(account string) bool {
	return account == t.cfg.HomeAccount() || slices.Contains(t.cfg.Accounts, account)
}

// exactly gives the index of an association's line, or -1.
func (t *Tree) exactly(account, user, part string) int32 {
	if part != "" {
		if i, ok := t.parts[model.AssocKey{Account: account, User: user, Partition: part}]; ok {
			return i
		}
		return -1
	}
	return t.index.row(account, user)
}

// Row gives the index of the line that a user's jobs in a partition belong to, or -1. A line for that partition comes
// first.
func (t *Tree) Row(account, user, part string) int {
	if t.parts != nil && part != "" {
		if i := t.exactly(account, user, part); i >= 0 {
			return int(i)
		}
	}
	return int(t.exactly(account, user, ""))
}

// Up gives the row of the account above a row, or -1.
func (t *Tree) Up(row int) int { return t.Rows[row].up }

// Factor gives the fair-share factor of a user's jobs in a partition, 0 to 1. As in Slurm it is 0 for a user who has no
// association with the account, except in an account that is everybody's (open). There a user without usage gets the
// best factor of the account, which it would also have after its first use. An account that does not exist gives 0.
func (t *Tree) Factor(account, user, part string) float64 {
	if i := t.Row(account, user, part); i >= 0 {
		return t.Rows[i].Factor
	}
	return t.newcomer(account)
}

// newcomer gives the factor of a user with neither usage nor an association.
func (t *Tree) newcomer(account string) float64 {
	if !t.open(account) {
		return 0
	}
	if i := t.index.row(account, ""); i >= 0 {
		return t.worth[i].fair
	}
	if account == t.cfg.HomeAccount() { // no user has used it yet
		return 1
	}
	return 0
}

// RawUsage gives a line's usage in whole billing units' seconds.
func (s *Share) RawUsage() int64 { return s.Usage / 1000 }

// infinite reports whether a level fair-share belongs to a row without usage.
func infinite(lf float64) bool { return math.IsInf(lf, 1) }

// LevelText gives the level fair-share as sshare shows it.
func (s *Share) LevelText(format func(float64) string) string {
	if infinite(s.LF) {
		return "inf"
	}
	return format(s.LF)
}
