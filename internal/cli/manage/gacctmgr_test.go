package manage

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

func TestAccountManager(t *testing.T) {
	f := clitest.New(t, Gacctmgr)
	f.Accts = &proto.AccountsChunk{Gen: 7, Cluster: "demo", TRES: []string{"cpu", "gres/gpu"},
		Accounts: []*model.Account{{Name: "root"}, {Name: "physics", Parent: "root", Description: "p", Organization: "uni"}},
		Users:    []*model.User{{Name: "ann", DefaultAccount: "physics"}},
		Assocs: []*model.Association{{ID: 1, Account: "root", Shares: 1, QOS: []string{"high", "normal"}},
			{ID: 3, Account: "physics", Shares: 5}, {ID: 4, Account: "physics", User: "ann", Shares: 1}},
		QOS: []*model.QOS{{ID: 1, Name: "normal", UsageFactor: model.FactorOne},
			{ID: 2, Name: "high", UsageFactor: model.FactorOne}}}
	f.Want("physics|high,normal\n", "", 0, "sacctmgr", "-nP", "show", "users", "withassoc", "format=account,qos", "where",
		"user=ann", "cluster=demo")
	f.Want("   Account       User     Share \n---------- ---------- --------- \n   physics        ann         1 \n", "", 0,
		"sacctmgr", "list", "Association", "format=account,user,share", "user=ann")
	f.Want("", " This cluster 'other' doesn't exist.\n"+
		"        Contact your admin to add it to accounting. (This cluster is demo)\n", 1, "sacctmgr", "show", "assoc",
		"cluster=other")

	question := "Would you like to commit changes? (You have 30 seconds to decide)\n(N/y): \n"
	plan := " Modified user associations...\n  C = demo       A = physics              U = ann\n"
	for answer, edits := range map[string]int{"y\n": 1, "n\n": 0, "": 0} {
		f.Edits = nil
		f.Stdin = answer
		want := plan + question
		if edits == 0 {
			want += " Changes Discarded\n"
		}
		f.Want(want, "", 0, "sacctmgr", "modify", "user", "ann", "set", "MaxJobs=4")
		if len(f.Edits) != edits {
			t.Errorf("answered %q: %d edits were sent", answer, len(f.Edits))
		}
	}
	f.Edits = nil
	f.Want(plan, "", 0, "sacctmgr", "-i", "modify", "user", "ann", "set", "MaxJobs=4")
	if len(f.Edits) != 1 || f.Edits[0].Gen != 7 || len(f.Edits[0].Edits) != 1 ||
		f.Edits[0].Edits[0].Assoc.MaxJobs != model.LimitOf(4) {
		t.Errorf("sent %+v", f.Edits)
	}
	f.Want("", "", 0, "sacctmgr", "-iQ", "modify", "user", "ann", "set", "MaxJobs=4")
	f.Answers[proto.KindConfig] = &proto.ConfigReply{Config: &model.Config{Cluster: "demo"}}
	f.Want(plan, "sacctmgr: warning: limits of user ann of account physics hold no job: AccountingStorageEnforce in "+
		"gbatch.conf does not have limits or safe\n", 0, "sacctmgr", "-i", "modify", "user", "ann", "set", "MaxJobs=4")
	f.Want("", "", 0, "sacctmgr", "-iQ", "modify", "user", "ann", "set", "MaxJobs=4")
	f.Want(" Nothing modified\n", "", 1, "sacctmgr", "-i", "modify", "user", "eve", "set", "MaxJobs=4")
	f.Want(" Nothing deleted\n", "", 1, "sacctmgr", "-iQ", "delete", "user", "eve")
	f.Want(" This cluster 'demo' already exists.  Not adding.\n", "", 0, "sacctmgr", "-i", "add", "cluster", "demo")
	f.Want("", "Can't run this command in readonly mode.\n", 1, "sacctmgr", "-ir", "delete", "user", "ann")
	f.Want("", "invalid keyword: frobnicate; the verbs are add, modify, delete, show, clear, dump and load\n", 1,
		"sacctmgr", "frobnicate", "user")
	checkFlatFiles(f, t)
	checkJSON(f, t)
	checkRace(f, t)
	f.Stdin = "n\n"
	out, _, rc := f.Run("gacctmgr", "add", "user", "no-such-user-here", "account=physics")
	if rc != 0 || !strings.HasPrefix(out, " There is no uid for user 'no-such-user-here'\n"+
		"Are you sure you want to continue? (You have 30 seconds to decide)\n(N/y): \n Changes Discarded\n") {
		t.Errorf("rc %d\n%s", rc, out)
	}
}

// checkRace has somebody else change accounts between the plan and its edits: it is planned anew from what there is
// then, and shown again only if it is another plan.
func checkRace(f *clitest.Fake, t *testing.T) {
	f.Edits = nil
	f.Meanwhile = func() { f.Accts.Gen++ }
	out, _, _ := f.Run("sacctmgr", "-i", "add", "account", "raced")
	f.Meanwhile = func() { f.Accts.Gen++ }
	if again, errText, rc := f.Run("sacctmgr", "-i", "add", "account", "raced"); rc != 0 || errText != "" || again != out {
		t.Errorf("rc %d %s\n%s, without a race\n%s", rc, errText, again, out)
	}
	if len(f.Edits) != 2 || f.Edits[1].Gen != f.Accts.Gen {
		t.Errorf("sent %+v", f.Edits)
	}
	f.Edits = nil
	f.Meanwhile = func() {
		f.Accts.Gen++
		f.Accts.Accounts = append(f.Accts.Accounts, &model.Account{Name: "raced", Parent: "root"})
		f.Accts.Assocs = append(f.Accts.Assocs, &model.Association{ID: 77, Account: "raced", Shares: 1})
	}
	again, errText, _ := f.Run("sacctmgr", "-i", "add", "account", "raced")
	if !strings.Contains(again+errText, "already exists") || len(f.Edits) != 0 {
		t.Errorf("somebody else made it: %s%s, sent %+v", again, errText, f.Edits)
	}
}

// checkFlatFiles dumps to a file and loads another.
func checkFlatFiles(f *clitest.Fake, t *testing.T) {
	file := filepath.Join(t.TempDir(), "accounts.cfg")
	f.Want(" Dumped 2 accounts and 1 users of cluster demo to "+file+"\n", "", 0, "sacctmgr", "dump", "demo", "file="+file)
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasSuffix(string(text),
		"\nParent - 'physics'\nUser - 'ann':DefaultAccount='physics':Fairshare=1\n") {
		t.Errorf("%v\n%s", err, text)
	}
	f.Want("", " This cluster is demo, there is no tux here\n", 1, "sacctmgr", "dump", "cluster=tux")
	f.Edits = nil
	f.Stdin = "Cluster - 'tux'\nParent - 'physics'\nUser - 'ann':Fairshare=7\n"
	f.Want(" Associations\n  U = ann       A = physics    C = demo\n", "", 0, "sacctmgr", "-i", "load", "-",
		"cluster=demo")
	if len(f.Edits) != 1 || f.Edits[0].Edits[0].Assoc.Shares != 7 {
		t.Errorf("sent %+v", f.Edits)
	}
	f.Stdin = "Cluster - 'demo'\nUser - 'ann':Fairshare=x\n"
	f.Want("", " -: line 2: Bad value for Fairshare: 'x' is not a number of shares, nor parent\n", 1, "sacctmgr", "-i",
		"load", "file=-", "clean")
	f.Want("", " load what? gacctmgr load file=FILE [clean]\n", 1, "sacctmgr", "load", "clean")
	f.Want("", " Unknown option: start=x\n load takes cluster=, file= and clean\n", 1, "sacctmgr", "load", "f", "start=x")
	f.Want("", "Can't run this command in readonly mode.\n", 1, "sacctmgr", "-r", "load", "f")
}

// checkJSON checks limits and a filtered list. internal/cli/json_test.go checks the whole JSON.
func checkJSON(f *clitest.Fake, t *testing.T) {
	a := f.Accts.Assocs[2]
	a.MaxJobs, a.GrpTRES, a.MaxWallS = model.LimitOf(5), []model.TRESLimit{{TRES: "gres/gpu", Count: 4}},
		model.LimitOf(7200)
	f.Accts.QOS[1].Flags, f.Accts.QOS[1].Preempt, f.Accts.QOS[1].PreemptMode = model.QOSDenyOnLimit|model.QOSNoDecay,
		[]string{"normal"}, "REQUEUE"
	var list struct {
		Associations []struct {
			User string
			Max  struct {
				Jobs struct{ Active struct{ Number int } }
			}
		}
	}
	out, _, _ := f.Run("sacctmgr", "list", "assoc", "where", "user=ann", "--json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Associations) != 1 ||
		list.Associations[0].Max.Jobs.Active.Number != 5 {
		t.Errorf("%v %+v\n%s", err, list, out)
	}
}
