package cli

import (
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

func TestAccountManager(t *testing.T) {
	f := newFake(t)
	f.accts = &proto.AccountsChunk{Gen: 7, Cluster: "demo", TRES: []string{"cpu", "gres/gpu"},
		Accounts: []*model.Account{{Name: "root"}, {Name: "physics", Parent: "root", Description: "p", Organization: "uni"}},
		Users:    []*model.User{{Name: "ann", DefaultAccount: "physics"}},
		Assocs:   []*model.Association{{ID: 1, Account: "root", Shares: 1, QOS: []string{"high", "normal"}}, {ID: 3, Account: "physics", Shares: 5}, {ID: 4, Account: "physics", User: "ann", Shares: 1}},
		QOS:      []*model.QOS{{ID: 1, Name: "normal", UsageFactor: model.FactorOne}, {ID: 2, Name: "high", UsageFactor: model.FactorOne}}}
	f.want("physics|high,normal\n", "", 0, "sacctmgr", "-nP", "show", "users", "withassoc", "format=account,qos", "where", "user=ann", "cluster=demo")
	f.want("   Account       User     Share \n---------- ---------- --------- \n   physics        ann         1 \n", "", 0,
		"sacctmgr", "list", "Association", "format=account,user,share", "user=ann")
	f.want("", " This cluster 'other' doesn't exist.\n        Contact your admin to add it to accounting. (This cluster is demo)\n", 1, "sacctmgr", "show", "assoc", "cluster=other")

	question := "Would you like to commit changes? (You have 30 seconds to decide)\n(N/y): "
	plan := " Modified user associations...\n  C = demo       A = physics              U = ann\n"
	for answer, edits := range map[string]int{"y\n": 1, "n\n": 0, "": 0} {
		f.edits = nil
		f.stdin = answer
		want := plan + question
		if edits == 0 {
			want += " Changes Discarded\n"
		}
		f.want(want, "", 0, "sacctmgr", "modify", "user", "ann", "set", "MaxJobs=4")
		if len(f.edits) != edits {
			t.Errorf("answered %q: %d edits were sent", answer, len(f.edits))
		}
	}
	f.edits = nil
	f.want(plan, "", 0, "sacctmgr", "-i", "modify", "user", "ann", "set", "MaxJobs=4")
	if len(f.edits) != 1 || f.edits[0].Gen != 7 || len(f.edits[0].Edits) != 1 || f.edits[0].Edits[0].Assoc.MaxJobs != model.LimitOf(4) {
		t.Errorf("sent %+v", f.edits)
	}
	f.want("", "", 0, "sacctmgr", "-iQ", "modify", "user", "ann", "set", "MaxJobs=4")
	f.want("", "Can't run this command in readonly mode.\n", 1, "sacctmgr", "-ir", "delete", "user", "ann")
	f.want("", " dump is not supported by gbatch: gacctmgr -P show assoc and show qos print everything\n", 1, "sacctmgr", "dump", "demo")
	f.want("", "invalid keyword: frobnicate; the verbs are add, modify, delete and show\n", 1, "sacctmgr", "frobnicate", "user")
	f.stdin = "n\n"
	out, _, rc := f.run("gacctmgr", "add", "user", "no-such-user-here", "account=physics")
	if rc != 0 || !strings.HasPrefix(out, " There is no uid for user 'no-such-user-here'\nAre you sure you want to continue? (You have 30 seconds to decide)\n(N/y):  Changes Discarded\n") {
		t.Errorf("rc %d\n%s", rc, out)
	}
}
