package rest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/acctmgr"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// accounts.go reads slurmdb's accounts, users, associations, QOS, clusters and resources, by gacctmgr's tables.

// accountFacts gives the accounts as they are now.
func (q *request) accountFacts() (*acctmgr.Facts, error) {
	return acctmgr.Ask(q.together, proto.Decode)
}

// picked gives the records of "show ENTITY" that a function keeps.
func (q *request) picked(f *acctmgr.Facts, entity string) (*acctmgr.Picked, error) {
	p, err := acctmgr.Pick(f, entity, nil, acctmgr.Options{})
	if err != nil {
		return nil, asFault(err, "")
	}
	return p, nil
}

// one reports whether a value is among those that a parameter names; without any, it is.
func one(list []string, v string) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, v) })
}

// write writes a list of records.
func (q *request) write(name string, f *acctmgr.Facts, p *acctmgr.Picked) {
	q.j.Open(name, '[')
	acctmgr.WriteJSON(q.j, f, p)
	q.j.Close(']')
}

func (q *request) accounts(keep func(*model.Account) bool) (n int, err error) {
	f, err := q.accountFacts()
	if err != nil {
		return 0, err
	}
	p, err := q.picked(f, "accounts")
	if err != nil {
		return 0, err
	}
	p.Accounts = slices.DeleteFunc(p.Accounts, func(a *model.Account) bool { return !keep(a) })
	q.write("accounts", f, p)
	return len(p.Accounts), nil
}

func listAccounts(q *request) error {
	names, about := q.words("account", "name"), q.words("description")
	_, err := q.accounts(func(a *model.Account) bool { return one(names, a.Name) && one(about, a.Description) })
	return err
}

// nothing warns that a query has found nothing, as Slurm does.
func (q *request) nothing(what string) {
	q.warn("Nothing found with query: there is no " + what + " " + q.name)
}

func getAccount(q *request) error {
	n, err := q.accounts(func(a *model.Account) bool { return strings.EqualFold(a.Name, q.name) })
	if err == nil && n == 0 {
		q.nothing("account")
	}
	return err
}

func (q *request) userRecords(keep func(*model.User) bool) (n int, err error) {
	f, err := q.accountFacts()
	if err != nil {
		return 0, err
	}
	p, err := q.picked(f, "users")
	if err != nil {
		return 0, err
	}
	p.Users = slices.DeleteFunc(p.Users, func(u *model.User) bool { return !keep(u) })
	q.write("users", f, p)
	return len(p.Users), nil
}

func listUsers(q *request) error {
	levels, accounts, names := q.words("admin_level"), q.words("default_account"), q.words("user", "name")
	keys := q.words("default_wckey")
	_, err := q.userRecords(func(u *model.User) bool {
		return one(levels, u.Admin.String()) && one(accounts, u.DefaultAccount) && one(names, u.Name) &&
			one(keys, u.DefaultWCKey)
	})
	return err
}

func getUser(q *request) error {
	n, err := q.userRecords(func(u *model.User) bool { return u.Name == q.name })
	if err == nil && n == 0 {
		q.nothing("user")
	}
	return err
}

// Parameters that select associations, with Slurm's blanks.
const (
	onlyDefaults = "Filter to only defaults"
	belowToo     = "Include sub acct information"
)

// assocFilter reads the parameters that select associations.
func (q *request) assocFilter(f *acctmgr.Facts) func(*model.Association) bool {
	accounts, users, parts, parents := q.words("account"), q.words("user"), q.words("partition"),
		q.words("parent_account")
	ids, qos, clusters, def := q.words("id"), q.words("qos"), q.words("cluster"), q.words("default_qos")
	defaults, below := q.flag(onlyDefaults), q.flag(belowToo)
	named := func(account string) bool { return one(accounts, account) }
	return func(a *model.Association) bool {
		up := a.Account
		if a.User == "" {
			up = f.Parent(a.Account)
		}
		switch {
		case !named(a.Account) && !(below && f.Within(a.Account, named)), !one(users, a.User),
			!one(parts, a.Partition), !one(parents, up), !one(def, a.DefQOS),
			!one(clusters, f.Cluster), !one(ids, strconv.FormatUint(uint64(a.ID), 10)):
			return false
		case len(qos) > 0 && !slices.ContainsFunc(a.QOS, func(name string) bool { return one(qos, name) }):
			return false
		case defaults:
			u := f.Users[a.User]
			return u != nil && u.DefaultAccount == a.Account
		}
		return true
	}
}

// assocs writes the associations that are asked for, if there are no more than most of them.
func (q *request) assocs(most int) (n int, err error) {
	f, err := q.accountFacts()
	if err != nil {
		return 0, err
	}
	p, err := q.picked(f, "associations")
	if err != nil {
		return 0, err
	}
	keep := q.assocFilter(f)
	p.Assocs = slices.DeleteFunc(p.Assocs, func(a *model.Association) bool { return !keep(a) })
	if n = len(p.Assocs); n <= most {
		q.write("associations", f, p)
	}
	return n, nil
}

func listAssociations(q *request) error {
	_, err := q.assocs(math.MaxInt)
	return err
}

func getAssociation(q *request) error {
	n, err := q.assocs(1)
	switch {
	case err != nil:
		return err
	case n == 0:
		q.warn("Nothing found with query: there is no such association")
	case n > 1:
		return &fault{Number: 9211, Text: "Ambiguous query",
			Detail: fmt.Sprintf("%d associations match; name account and user", n)}
	}
	return nil
}

func (q *request) qosRecords(keep func(*model.QOS) bool) (n int, err error) {
	f, err := q.accountFacts()
	if err != nil {
		return 0, err
	}
	p, err := q.picked(f, "qos")
	if err != nil {
		return 0, err
	}
	p.QOS = slices.DeleteFunc(p.QOS, func(x *model.QOS) bool { return !keep(x) })
	q.write("qos", f, p)
	return len(p.QOS), nil
}

func listQOS(q *request) error {
	names, ids, about, modes := q.words("name"), q.words("id"), q.words("description"), q.words("preempt_mode")
	_, err := q.qosRecords(func(x *model.QOS) bool {
		return one(names, x.Name) && one(ids, strconv.FormatUint(uint64(x.ID), 10)) && one(about, x.Description) &&
			one(modes, x.PreemptMode)
	})
	return err
}

func getQOS(q *request) error {
	n, err := q.qosRecords(func(x *model.QOS) bool { return strings.EqualFold(x.Name, q.name) })
	if err == nil && n == 0 {
		q.nothing("QOS")
	}
	return err
}

// entity writes a list of one of gacctmgr's other entities.
func (q *request) entity(list, entity string) error {
	f, err := q.accountFacts()
	if err != nil {
		return err
	}
	p, err := q.picked(f, entity)
	if err == nil {
		q.write(list, f, p)
	}
	return err
}

func listClusters(q *request) error { return q.entity("clusters", "clusters") }
func listTRES(q *request) error     { return q.entity("TRES", "tres") }

func getCluster(q *request) error {
	if q.name != q.facts.Config().Cluster {
		q.j.List("clusters", nil)
		q.nothing("cluster")
		return nil
	}
	return listClusters(q)
}

func (q *request) wckeys(keep func(*acctmgr.Facts, *model.WCKey) bool) (n int, err error) {
	f, err := q.accountFacts()
	if err != nil {
		return 0, err
	}
	p, err := q.picked(f, "wckeys")
	if err != nil {
		return 0, err
	}
	p.WCKeys = slices.DeleteFunc(p.WCKeys, func(w *model.WCKey) bool { return !keep(f, w) })
	q.write("wckeys", f, p)
	return len(p.WCKeys), nil
}

func listWCKeys(q *request) error {
	names, users, ids, clusters := q.words("name"), q.words("user"), q.words("id"), q.words("cluster")
	presets := q.flag("only_defaults")
	_, err := q.wckeys(func(f *acctmgr.Facts, w *model.WCKey) bool {
		u := f.Users[w.User]
		return one(names, w.Name) && one(users, w.User) && one(ids, keyID(w)) && one(clusters, f.Cluster) &&
			(!presets || u != nil && u.DefaultWCKey == w.Name)
	})
	return err
}

// keyID gives a wckey's number as text.
func keyID(w *model.WCKey) string { return strconv.FormatUint(uint64(w.ID), 10) }

func getWCKey(q *request) error {
	n, err := q.wckeys(func(_ *acctmgr.Facts, w *model.WCKey) bool { return keyID(w) == q.name })
	if err == nil && n == 0 {
		q.nothing("wckey")
	}
	return err
}

func listInstances(q *request) error {
	q.j.List("instances", nil)
	return nil
}

// dbConfig is all of it in one answer.
func dbConfig(q *request) error {
	f, err := q.accountFacts()
	if err != nil {
		return err
	}
	for _, x := range [][2]string{{"clusters", "clusters"}, {"tres", "tres"}, {"accounts", "accounts"}, {"users",
		"users"},
		{"qos", "qos"}, {"associations", "associations"}, {"wckeys", "wckeys"}} {
		p, err := q.picked(f, x[1])
		if err != nil {
			return err
		}
		q.write(x[0], f, p)
	}
	q.j.List("instances", nil)
	return nil
}

func dbPing(q *request) error {
	var r proto.PingReply
	if err := q.ask(proto.KindPing, &proto.Empty{}, &r); err != nil {
		return err
	}
	q.j.Open("pings", '[')
	for i := range r.Dbds {
		d := &r.Dbds[i]
		q.j.Open("", '{')
		q.j.Str("hostname", d.Addr)
		q.j.Bool("responding", d.Up)
		q.j.Num("latency", d.TookUS)
		q.j.Bool("primary", !d.Copy)
		q.j.Close('}')
	}
	q.j.Close(']')
	return nil
}

// dbDiag: gdbd's own statistics are those of its records in gdiag.
func dbDiag(q *request) error {
	var r proto.DiagReply
	if err := q.ask(proto.KindDiag, &proto.Empty{}, &r); err != nil {
		return err
	}
	j := q.j
	j.Open("statistics", '{')
	j.Num("time_start", r.Since.Seconds())
	j.Open("rollups", '{')
	for _, span := range []string{"hourly", "daily", "monthly"} { // usage is never rolled up here
		j.Open(span, '{')
		j.Num("count", 0)
		j.Num("last_run", 0)
		j.Open("duration", '{')
		for _, name := range []string{"last", "max", "time"} {
			j.Num(name, 0)
		}
		j.Close('}')
		j.Close('}')
	}
	j.Close('}')
	j.Open("RPCs", '[')
	j.Close(']')
	j.Open("users", '[')
	j.Close(']')
	j.Close('}')
	return nil
}
