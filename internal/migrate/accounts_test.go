package migrate

import (
	"fmt"
	"strings"
	"testing"
)

func TestAccounts(t *testing.T) {
	known := func(name string) bool { return name == "normal" }
	r := &Report{}
	a, err := ReadAccounts("dump", file(t, "accounts.cfg"), "qos", file(t, "qos.txt"), known, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"#QOS - 'high':Priority='1000':GraceTime=0:Preempt='normal':PreemptMode='cluster':Flags+='DenyOnLimit':" +
			"UsageFactor='2.000000':GrpTRES='gres/gpu=8':MaxWall='1-00:00:00':MaxTRESPU='cpu=32'\n",
		"#QOS - 'low':Priority='1':GraceTime=60:",
		"\nAccount - 'chem':Description='chem':Organization='chem':Fairshare=1:GrpTRES=cpu=100,gres/gpu=4:MaxJobs=20\n",
	} {
		if !strings.Contains(a.Text, want) {
			t.Errorf("%q is not in\n%s", want, a.Text)
		}
	}
	if r.Lost() {
		t.Error(r.Items)
	}
	if name, line := a.At(4); name != "dump" || line != 1 {
		t.Errorf("line 4 is from %s:%d", name, line)
	}
}

// TestAccountsAlone: a QOS that only the dump names is made, and a person is told.
func TestAccountsAlone(t *testing.T) {
	r := &Report{}
	a, err := ReadAccounts("dump", "Cluster - 'c':Fairshare=1:QOS='normal'\nParent - 'root'\n"+
		"Account - 'a':Fairshare=2147483647:QOS='High,normal':DefaultQOS=high\n", "", "",
		func(name string) bool { return name == "normal" }, r)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(a.Text, "#QOS - 'high'\nCluster - ") || !strings.Contains(a.Text, "'a':Fairshare=parent:") {
		t.Error(a.Text)
	}
	if got := fmt.Sprint(r.Counts); got != "[3 1 0 0 1]" || !r.Lost() {
		t.Error(got, r.Items)
	}
}

func TestAccountsRefused(t *testing.T) {
	for dump, qos := range map[string]string{"": "", "Account - 'a'\n": "", "Cluster - 'x'": "Priority|X\n1|2\n"} {
		if _, err := ReadAccounts("d", dump, "q", qos, func(string) bool { return false }, &Report{}); err == nil &&
			dump != "" {
			t.Errorf("%q, %q: no error", dump, qos)
		}
	}
}

func FuzzAccounts(f *testing.F) {
	f.Add(file(f, "accounts.cfg"), file(f, "qos.txt"))
	f.Fuzz(func(t *testing.T, dump, qos string) {
		a, err := ReadAccounts("d", dump, "q", qos, func(string) bool { return false }, &Report{})
		if err != nil {
			return
		}
		for n := range strings.Count(a.Text, "\n") + 3 {
			a.At(n)
		}
	})
}
