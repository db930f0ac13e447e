package rest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"gbatch/internal/acctmgr"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// acctedit.go changes accounts, users, associations and QOS. Each change is planned by gacctmgr's own code from the
// same words that a person would write, so it means the same and is refused for the same reasons.

const (
	replans   = 64 // times that a plan is made anew because others have changed accounts
	replanFor = 50 * time.Millisecond
)

// plan thinks of a change and makes it. Nothing to do is no error.
func (q *request) plan(think func(*acctmgr.Facts) (*acctmgr.Plan, error)) (*acctmgr.Plan, error) {
	for n := 1; ; n++ {
		f, err := q.accountFacts()
		if err != nil {
			return nil, err
		}
		p, err := think(f)
		if err != nil {
			return nil, &fault{Number: errUnexpected, Text: "Invalid change of accounts",
				Detail: strings.TrimSpace(err.Error())}
		}
		for _, note := range p.Notes {
			q.warn(strings.TrimSpace(note))
		}
		if len(p.Edits) == 0 {
			return p, nil
		}
		err = q.ask(proto.KindEditAccounts, &proto.EditAccountsRequest{Gen: f.Gen, Edits: p.Edits}, &proto.Empty{})
		var said *rpc.Error
		if err == nil || !errors.As(err, &said) || said.Code != proto.CodeOutdated || n == replans {
			return p, err
		}
		select {
		case <-time.After(rand.N(replanFor)): // others who have lost the race come at other moments
		case <-q.ctx.Done():
			return nil, q.ctx.Err()
		}
	}
}

// change adds or changes what words name, as gacctmgr add or modify: where are the words that name it.
func (q *request) change(entity string, exists func(*acctmgr.Facts) bool, where, set, add []string) error {
	_, err := q.plan(func(f *acctmgr.Facts) (*acctmgr.Plan, error) {
		if exists(f) {
			if len(set) == 0 {
				return &acctmgr.Plan{}, nil
			}
			words := append(append([]string{"where"}, where...), "set")
			return acctmgr.Modify(f, entity, append(words, set...))
		}
		return acctmgr.Add(f, entity, append(append(append([]string{}, where...), set...), add...))
	})
	return err
}

func postQOS(q *request) error { return q.posted(takeQOS) }

func takeQOS(q *request, b *object) error {
	for _, x := range b.objects("qos") {
		name := x.str("name")
		if name == "" {
			return badChange("a QOS needs a name")
		}
		if err := notDeleted(x, "DELETE qos/"+name); err != nil {
			return err
		}
		set := qosSettings(x)
		if err := b.top().err; err != nil {
			return err
		}
		if err := q.change("qos", func(f *acctmgr.Facts) bool { return f.QOS[strings.ToLower(name)] != nil },
			[]string{"name=" + name}, set, nil); err != nil {
			return err
		}
	}
	return nil
}

// remove removes what a name stands for, and lists what was removed.
func (q *request) remove(entity, list, name string, exists func(*acctmgr.Facts) bool) error {
	there := false
	_, err := q.plan(func(f *acctmgr.Facts) (*acctmgr.Plan, error) {
		if there = exists(f); !there {
			return &acctmgr.Plan{}, nil
		}
		return acctmgr.Remove(f, entity, []string{"name=" + name})
	})
	if err != nil {
		return err
	}
	var gone []string
	if there {
		gone = []string{name}
	} else {
		q.warn("Nothing found with query: there is no " + entity + " " + name)
	}
	if list != "" {
		q.j.List(list, gone)
	}
	return nil
}

func deleteAccount(q *request) error {
	return q.remove("account", "removed_accounts", q.name,
		func(f *acctmgr.Facts) bool { return f.Accounts[strings.ToLower(q.name)] != nil })
}

func deleteUser(q *request) error {
	return q.remove("user", "", q.name, func(f *acctmgr.Facts) bool { return f.Users[q.name] != nil })
}

func deleteQOS(q *request) error {
	return q.remove("qos", "removed_qos", q.name,
		func(f *acctmgr.Facts) bool { return f.QOS[strings.ToLower(q.name)] != nil })
}

// assocNames are the parameters that name associations.
var assocNames = []string{"account", "cluster", "default_qos", "id", "parent_account", "partition", "qos", "user"}

// deleteAssociations removes the associations that match: users from accounts, and accounts where no user is named.
func deleteAssociations(q *request) error {
	if err := q.noneEmpty(); err != nil {
		return err
	}
	if !slices.ContainsFunc(assocNames, func(name string) bool { return len(q.words(name)) > 0 }) {
		return &fault{Number: errQuery, Detail: "say which associations: account=, user= ..."}
	}
	var gone []string
	for {
		f, err := q.accountFacts()
		if err != nil {
			return err
		}
		keep := q.assocFilter(f)
		var next *model.Association
		for _, a := range f.Associations("", "") {
			if keep(a) && (a.User != "" || len(q.words("user")) == 0 && (a.Account != model.RootAccount || a.OfPool())) {
				next = a // the last ones first: users before their accounts, and accounts before those above them
			}
		}
		if next == nil || len(gone) >= replans*replans {
			break
		}
		words := []string{"account=" + next.Account}
		entity := "account"
		if next.User != "" {
			entity, words = "user", append(words, "name="+next.User)
			if next.Partition != "" {
				words = append(words, "partition="+next.Partition)
			}
		} else {
			words = []string{"name=" + next.Account}
			if next.OfPool() {
				words = append(words, "partition="+next.Partition)
			}
		}
		p, err := q.plan(func(f *acctmgr.Facts) (*acctmgr.Plan, error) { return acctmgr.Remove(f, entity, words) })
		if err != nil {
			return err
		}
		if len(p.Edits) == 0 {
			break
		}
		line := "C = " + f.Cluster + " A = " + next.Account
		if next.User != "" {
			line += " U = " + next.User
		}
		gone = append(gone, line)
	}
	if len(gone) == 0 {
		q.warn("Nothing found with query: there is no such association")
	}
	q.j.List("removed_associations", gone)
	return nil
}

func postClusters(q *request) error { return q.posted(takeClusters) }

// takeClusters: this cluster is there already, and what it is comes from its configuration.
func takeClusters(q *request, b *object) error {
	for _, c := range b.objects("clusters") {
		name := c.str("name")
		if name == "" {
			return badChange("a cluster needs a name")
		}
		if err := q.ours(name); err != nil {
			return err
		}
		if err := notDeleted(c, "nothing: the cluster serves this"); err != nil {
			return err
		}
		c.ignore("controller", "flags", "nodes", "select_plugin", "associations", "rpc_version", "tres") // they describe
	}
	return nil
}

// deleteCluster: the cluster that serves this stays.
func deleteCluster(q *request) error {
	if q.name == q.facts.Config().Cluster {
		return unsupported("cluster " + q.name + " serves this and can't be removed")
	}
	q.nothing("cluster")
	q.j.List("deleted_clusters", nil)
	return nil
}

// takeTRES: what is counted comes from the configuration.
func takeTRES(q *request, b *object) error {
	if list := tresWords(b.objects("tres")) + tresWords(b.objects("TRES")); list != "" && q.op.Path != configPath {
		return unsupported("what is counted comes from the configuration: AccountingStorageTRES= in gbatch.conf")
	}
	return nil
}

func postTRES(q *request) error { return q.posted(takeTRES) }

// takeWCKeys gives users wckeys.
func takeWCKeys(q *request, b *object) error {
	for _, w := range b.objects("wckeys") {
		name, user := w.str("name"), w.str("user")
		if name == "" || user == "" {
			return badChange("a wckey needs a name and a user")
		}
		if err := q.flags(w, "DELETE wckey/ID"); err != nil {
			return err
		}
		if c := w.str("cluster"); c != "" {
			if err := q.ours(c); err != nil {
				return err
			}
		}
		w.ignore("id", "accounting")
		if err := b.top().err; err != nil {
			return err
		}
		if err := q.giveWCKeys(user, name); err != nil {
			return err
		}
	}
	return nil
}

// giveWCKeys gives a user wckeys that they do not have yet.
func (q *request) giveWCKeys(user string, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	_, err := q.plan(func(f *acctmgr.Facts) (*acctmgr.Plan, error) {
		return acctmgr.Add(f, "wckey", []string{"name=" + strings.Join(keys, ","), "user=" + user})
	})
	return err
}

func noInstancesOf(_ *request, b *object) error { b.ignore("instances"); return nil }

const configPath = "/slurmdb/V/config"

// postConfig is all of it in one body, as dbConfig gives it. What others build on comes first.
func postConfig(q *request) error {
	return q.posted(takeClusters, takeTRES, takeAccounts, takeQOS, takeUsers, takeAssociations, takeWCKeys, noInstancesOf)
}

func postWCKeys(q *request) error { return q.posted(takeWCKeys) }

func deleteWCKey(q *request) error {
	p, err := q.plan(func(f *acctmgr.Facts) (*acctmgr.Plan, error) {
		return acctmgr.Remove(f, "wckey", []string{"id=" + q.name})
	})
	if err != nil {
		return err
	}
	var gone []string
	for i := range p.Edits {
		gone = append(gone, p.Edits[i].WCKey.Name)
	}
	if len(gone) == 0 {
		q.nothing("wckey")
	}
	q.j.List("deleted_wckeys", gone)
	return nil
}
