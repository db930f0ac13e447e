package acctmgr

import (
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// Facts are the cluster's accounts as they were at one moment.
type Facts struct {
	Gen      uint64
	Cluster  string
	Addr     string // host:port of the controller
	Nodes    string // of the cluster, as a host list
	Accounts map[string]*model.Account
	Users    map[string]*model.User
	QOS      map[string]*model.QOS
	TRES     []string
	Has      []model.TRESCount // what all nodes have
	assocs   map[model.AssocKey]*model.Association
	keys     map[string][]*model.WCKey // of each user, in order of name
	Tracks   bool                      // TrackWCKey
}

// Asked makes a request of a kind, and passes each part of the answer to each.
type Asked func(kind uint16, rq proto.Message, each func(part []byte) error) error

// Ask asks the cluster for all accounts, users, associations and QOS. Answers are read by decode.
func Ask(ask Asked, decode func(part []byte, x proto.Message) error) (*Facts, error) {
	var chunks []*proto.AccountsChunk
	err := ask(proto.KindAccounts, &proto.AccountsRequest{}, func(part []byte) error {
		chunk := new(proto.AccountsChunk)
		chunks = append(chunks, chunk)
		return decode(part, chunk)
	})
	if err != nil {
		return nil, err
	}
	return Read(chunks), nil
}

// Read makes Facts from the cluster's answer.
func Read(chunks []*proto.AccountsChunk) *Facts {
	f := &Facts{Accounts: map[string]*model.Account{}, Users: map[string]*model.User{}, QOS: map[string]*model.QOS{},
		assocs: map[model.AssocKey]*model.Association{}, keys: map[string][]*model.WCKey{}}
	for _, c := range chunks {
		if c.Gen == 0 {
			continue
		}
		f.Gen, f.Cluster, f.Addr, f.TRES, f.Has = c.Gen, c.Cluster, c.Addr, c.TRES, c.Has
		f.Nodes += c.Nodes
		for _, a := range c.Accounts {
			f.Accounts[a.Name] = a
		}
		for _, u := range c.Users {
			f.Users[u.Name] = u
		}
		for _, a := range c.Assocs {
			f.assocs[a.Key()] = a
		}
		for _, q := range c.QOS {
			f.QOS[q.Name] = q
		}
		for _, w := range c.WCKeys {
			f.keys[w.User] = append(f.keys[w.User], w)
		}
		f.Tracks = c.TrackWCKey
	}
	return f
}

// assoc gives an association, or nil.
func (f *Facts) assoc(account, user, part string) *model.Association {
	return f.assocs[model.AssocKey{Account: account, User: user, Partition: part}]
}

// depth gives the number of levels between the root and an account.
func (f *Facts) depth(account string) int {
	n := 0
	for a := f.Accounts[account]; a != nil && a.Name != model.RootAccount &&
		n < len(f.Accounts); a = f.Accounts[a.Parent] {
		n++
	}
	return n
}

// within reports whether an account is the same as another one, or below it.
func (f *Facts) within(account, above string) bool {
	return f.Within(account, func(name string) bool { return name == above })
}

// Within reports whether an account, or one above it, is one of those.
func (f *Facts) Within(account string, is func(name string) bool) bool {
	for n := 0; account != "" && n <= len(f.Accounts); account, n = f.parent(account), n+1 {
		if is(account) {
			return true
		}
	}
	return false
}

// tree lists all associations: an account's own, its own for partitions, its users', then the accounts below it, each
// in order of name.
func (f *Facts) tree() []*model.Association {
	kids, users, pools := map[string][]string{}, map[string][]*model.Association{}, map[string][]*model.Association{}
	for name, a := range f.Accounts {
		if name != model.RootAccount {
			kids[a.Parent] = append(kids[a.Parent], name)
		}
	}
	for key, a := range f.assocs {
		switch {
		case key.User != "":
			users[key.Account] = append(users[key.Account], a)
		case key.Partition != "":
			pools[key.Account] = append(pools[key.Account], a)
		}
	}
	var out []*model.Association
	var walk func(name string, left int)
	walk = func(name string, left int) {
		if left == 0 {
			return
		}
		if a := f.assoc(name, "", ""); a != nil {
			out = append(out, a)
		}
		slices.SortFunc(pools[name], func(a, b *model.Association) int { return strings.Compare(a.Partition, b.Partition) })
		out = append(out, pools[name]...)
		slices.SortFunc(users[name], func(a, b *model.Association) int {
			if c := strings.Compare(a.User, b.User); c != 0 {
				return c
			}
			return strings.Compare(a.Partition, b.Partition)
		})
		out = append(out, users[name]...)
		slices.Sort(kids[name])
		for _, k := range kids[name] {
			walk(k, left-1)
		}
	}
	walk(model.RootAccount, len(f.Accounts)+1)
	return out
}

// effective gives an association with the values that it inherits from the accounts above it.
func (f *Facts) effective(a *model.Association) *model.Association {
	n := *a
	up := a.Account
	switch {
	case a.OfPool():
		return a // what it does not set holds as for the account
	case a.User == "":
		up = f.parent(up)
	}
	for steps := 0; up != "" && steps <= len(f.Accounts); up, steps = f.parent(up), steps+1 {
		p := f.assoc(up, "", "")
		if p == nil {
			continue
		}
		if n.QOS == nil {
			n.QOS = p.QOS
		}
		if n.DefQOS == "" {
			n.DefQOS = p.DefQOS
		}
		for _, l := range []struct{ to, from *model.Limit }{{&n.MaxJobs, &p.MaxJobs}, {&n.MaxAccrue, &p.MaxAccrue},
			{&n.MaxSubmit, &p.MaxSubmit},
			{&n.MaxWallS, &p.MaxWallS}, {&n.Priority, &p.Priority}, {&n.MinPrioThresh, &p.MinPrioThresh}} {
			if *l.to == 0 {
				*l.to = *l.from
			}
		}
		for _, l := range []struct{ to, from *[]model.TRESLimit }{{&n.MaxTRESPerJob, &p.MaxTRESPerJob},
			{&n.MaxTRESPerNode, &p.MaxTRESPerNode},
			{&n.MaxTRESMins, &p.MaxTRESMins}, {&n.MaxTRESRunMins, &p.MaxTRESRunMins}} {
			for _, t := range *l.from {
				if !slices.ContainsFunc(*l.to, func(x model.TRESLimit) bool { return x.TRES == t.TRES }) {
					*l.to = putTRES(*l.to, t)
				}
			}
		}
	}
	return &n
}

func (f *Facts) parent(account string) string {
	if a := f.Accounts[account]; a != nil {
		return a.Parent
	}
	return ""
}

// putTRES gives list with one limit set.
func putTRES(list []model.TRESLimit, t model.TRESLimit) []model.TRESLimit {
	i, found := slices.BinarySearchFunc(list, t.TRES,
		func(x model.TRESLimit, name string) int { return strings.Compare(x.TRES, name) })
	out := slices.Clone(list)
	if found {
		out[i] = t
		return out
	}
	return slices.Insert(out, i, t)
}
