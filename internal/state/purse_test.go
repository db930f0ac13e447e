package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// nobodyOverspends checks, with the records of usage themselves, that no job whose minutes have run out goes on at
// s.now.
func nobodyOverspends(t *testing.T, s *session) {
	t.Helper()
	st, v := s.st, s.st.View()
	of := func(u *Usage, tres string) int64 {
		switch u = v.UsageAt(u, s.now); tres {
		case "":
			return u.Wall.Value
		case "billing":
			return u.Bill.Value
		}
		n := int64(0)
		for _, x := range u.TRES {
			if strings.EqualFold(x.TRES, tres) {
				n += x.Meter.Value
			}
		}
		return n
	}
	st.eachAwake(func(j *model.Job) {
		for _, l := range st.minuteLimits(whoOf(j)) {
			if tres := l.cap.tres; tres != "" && tres != "billing" && holds(j, tres) == 0 || !st.cfg.Params.HoldLimits {
				continue
			}
			used := int64(0)
			scope, names := Scope(0), []string(nil)
			if l.key != "" {
				scope, names = Scope(l.key[0]), strings.Split(l.key[1:], "\x00")
			}
			switch scope {
			case OfAccount:
				below := st.below(names[0])
				v.Usages(func(u *Usage) bool {
					if below[u.Account] {
						used += of(u, l.cap.tres)
					}
					return true
				})
				used -= 50 // each record is rounded
			case 0:
				n := holds(j, l.cap.tres)
				if l.cap.tres == "billing" {
					n = st.billingOf(j.Run.Alloc.TRES(), j.Run.Partition)
				}
				used = n * (int64(s.now-j.Run.Start) - j.Run.SleptMS(s.now))
			default:
				if u := st.spent(scope, names); u != nil {
					used = of(u, l.cap.tres)
				}
			}
			if used >= l.cap.most && used > 0 {
				t.Errorf("%s: job %d goes on, and %s (%d of %d)", s.at, j.ID, l.text, used, l.cap.most)
			}
		}
	})
}

// purseCluster is a session with one node of 16 CPUs and users of two accounts below science.
func purseCluster(t *testing.T, change func(*model.Config), edits ...model.AcctEdit) *session {
	s := newSession(t)
	s.cfg.Params.HoldLimits = true
	s.cfg.Nodes = []*model.NodeDef{{Name: "n1", CPUs: 16, ThreadsPerCore: 1, MemMiB: 16000,
		Gres: []model.GresDef{{Name: "gpu", Type: "H100", Count: 8}}}}
	s.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}
	if change != nil {
		change(&s.cfg)
	}
	s.apply(&SetConfig{Config: &s.cfg, Instance: 1})
	s.apply(&Join{Node: "n1", BootID: "b"})
	base := acctEdits{acct("science", "root"), acct("physics", "science"), acct("bio", "science"), user("ann"),
		user("bob"), assoc("science", ""), assoc("physics", ""),
		assoc("bio", ""), assoc("physics", "ann"), assoc("bio", "bob")}
	if r := s.apply(&Accounts{Edits: append(base, edits...)}); r.Refusal != OK {
		t.Fatal(r.Refusal)
	}
	return s
}

// run starts a job of account/user/QOS on CPUs first to first+n-1 of the node.
func (s *session) run(account, user, qos string, first, n, gpus int) model.JobID {
	s.t.Helper()
	id := s.apply(&Submit{Spec: &model.Spec{Name: "j", UID: 7, Account: account, User: user, QOS: qos,
		Partitions: []string{"p"}}}).Job
	na := model.NodeAlloc{Node: "n1", CPUs: model.UpTo(first + n).Minus(model.UpTo(first)), Tasks: 1}
	if gpus > 0 {
		na.Gres = []model.GresAlloc{{Name: "gpu", Type: "H100", Index: model.UpTo(gpus)}}
	}
	r := s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 7200,
		Alloc: &model.Alloc{Nodes: []model.NodeAlloc{na}}}}}})
	if r.Each[0] != OK {
		s.t.Fatalf("job %d does not start: %v", id, r.Each[0])
	}
	s.apply(&Reports{Reports: []Report{{Kind: Started, Job: id, Attempt: s.st.View().Job(id).Attempt, At: s.now}}})
	return id
}

// ends lets time pass, with a Tick whenever one is due, until a job is being ended, and gives the seconds since epoch
// and the reason.
func (s *session) ends(id model.JobID) string {
	s.t.Helper()
	for range 100 {
		j := s.st.View().Job(id)
		if j.State == model.Completing {
			s.apply(&Reports{Reports: []Report{{Kind: Ended, Job: id, Attempt: j.Attempt, At: s.now,
				Exit: model.Exit{Signal: 15}}}})
			j = s.st.View().Job(id)
			return fmt.Sprintf("%s %s %g %s", j.State, j.Reason, float64(s.now-epoch)/1000, j.Why)
		}
		due := s.st.View().NextDue()
		if due == 0 {
			return "never"
		}
		s.now = max(s.now, due)
		s.apply(&Tick{})
	}
	s.t.Fatalf("job %d does not end after 100 ticks", id)
	return ""
}

func minutes(tres string, n int64) []model.TRESLimit {
	return []model.TRESLimit{{TRES: tres, Count: n}}
}

// A running job ends when its minutes, or those of an association or QOS, run out, and its text names whose.
func TestMinutesRunOut(t *testing.T) {
	qos := func(q model.QOS) model.AcctEdit {
		q.UsageFactor = max(q.UsageFactor, 500_000)
		return model.AcctEdit{Op: model.PutQOS, QOS: &q}
	}
	of := func(a model.Association) model.AcctEdit {
		a.Shares = 1
		return model.AcctEdit{Op: model.PutAssoc, Assoc: &a}
	}
	for _, c := range []struct {
		name   string
		change func(*model.Config)
		edits  acctEdits
		want   string
	}{
		{"no limit", nil, nil, "TIMEOUT TimeLimit 7200 "},
		{"QOS", nil, acctEdits{qos(model.QOS{Name: "q", UsageFactor: model.FactorOne, GrpTRESMins: minutes("cpu", 10)})},
			"TIMEOUT QOSGrpCPUMinutesLimit 150 QOS q has used up its GrpTRESMins=cpu=10"}, // 4 CPUs
		{"UsageFactor", nil, acctEdits{qos(model.QOS{Name: "q", UsageFactor: 500_000, GrpTRESMins: minutes("cpu", 10)})},
			"TIMEOUT QOSGrpCPUMinutesLimit 300 QOS q has used up its GrpTRESMins=cpu=10"},
		{"types in lower case", nil, acctEdits{qos(model.QOS{Name: "q", UsageFactor: model.FactorOne,
			GrpTRESMins: minutes("gres/gpu:h100", 20)})},
			"TIMEOUT QOSGrpGRESMinutes 600 QOS q has used up its GrpTRESMins=gres/gpu:h100=20"},
		{"resource that it has not", nil,
			acctEdits{qos(model.QOS{Name: "q", UsageFactor: model.FactorOne, GrpTRESMins: minutes("gres/nic", 1)})},
			"TIMEOUT TimeLimit 7200 "},
		{"wall", nil, acctEdits{qos(model.QOS{Name: "q", UsageFactor: model.FactorOne, GrpWallS: model.LimitOf(120)})},
			"TIMEOUT QOSGrpWallLimit 120 QOS q has used up its GrpWall of 2 minutes"},
		{"user", nil, acctEdits{of(model.Association{Account: "physics", User: "ann", GrpTRESMins: minutes("cpu", 20)})},
			"TIMEOUT AssocGrpCPUMinutesLimit 300 user ann in account physics has used up its GrpTRESMins=cpu=20"},
		// bob spends as well: 8 CPUs in all
		{"account above", nil, acctEdits{of(model.Association{Account: "science", GrpTRESMins: minutes("cpu", 20)})},
			"TIMEOUT AssocGrpCPUMinutesLimit 150 account science has used up its GrpTRESMins=cpu=20"},
		{"billing of the root", nil, acctEdits{of(model.Association{Account: "root", GrpTRESMins: minutes("billing", 20)})},
			"TIMEOUT AssocGrpBillingMinutes 150 account root has used up its GrpTRESMins=billing=20"},
		{"QOS before association", nil, acctEdits{of(model.Association{Account: "physics", GrpTRESMins: minutes("cpu", 1)}),
			qos(model.QOS{Name: "q", UsageFactor: model.FactorOne, GrpTRESMins: minutes("cpu", 40)})},
			"TIMEOUT QOSGrpCPUMinutesLimit 600 QOS q has used up its GrpTRESMins=cpu=40"},
		{"LimitFactor", nil, acctEdits{of(model.Association{Account: "physics", GrpTRESMins: minutes("cpu", 10)}),
			qos(model.QOS{Name: "q", UsageFactor: model.FactorOne, LimitFactor: 2 * model.FactorOne})},
			"TIMEOUT AssocGrpCPUMinutesLimit 300 account physics has used up its GrpTRESMins=cpu=20"},
		{"partition's QOS", func(c *model.Config) { c.Partitions[0].QOS = "high" },
			acctEdits{qos(model.QOS{Name: "high", UsageFactor: model.FactorOne, GrpTRESMins: minutes("cpu", 40)})},
			"TIMEOUT QOSGrpCPUMinutesLimit 300 QOS high has used up its GrpTRESMins=cpu=40"}, // of all jobs there
		{"its own minutes", nil, acctEdits{qos(model.QOS{Name: "q", UsageFactor: model.FactorOne,
			MaxTRESMins: minutes("cpu", 8)})},
			"TIMEOUT QOSMaxCpuMinutesPerJobLimit 120 the job, of QOS q, has used up its MaxTRESMins=cpu=8"},
		// 4 CPUs fade towards 4*60/ln 2 = 346 CPU seconds
		{"fading under the bound", func(c *model.Config) { c.Params.Priority.HalfLifeS = 60 },
			acctEdits{qos(model.QOS{Name: "q", UsageFactor: model.FactorOne, GrpTRESMins: minutes("cpu", 6)})},
			"TIMEOUT TimeLimit 7200 "},
		{"fading over the bound", func(c *model.Config) { c.Params.Priority.HalfLifeS = 60 }, // 346.2 (1-2^(-t/60)) = 300
			acctEdits{qos(model.QOS{Name: "q", UsageFactor: model.FactorOne, GrpTRESMins: minutes("cpu", 5)})},
			"TIMEOUT QOSGrpCPUMinutesLimit 174.262 QOS q has used up its GrpTRESMins=cpu=5"},
		{"limits are not enforced", func(c *model.Config) { c.Params.HoldLimits = false },
			acctEdits{qos(model.QOS{Name: "q", UsageFactor: model.FactorOne, GrpTRESMins: minutes("cpu", 10)})},
			"TIMEOUT TimeLimit 7200 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			edits := append(acctEdits{qos(model.QOS{Name: "q", UsageFactor: model.FactorOne})}, c.edits...)
			s := purseCluster(t, c.change, edits...)
			id := s.run("physics", "ann", "q", 0, 4, 2)
			s.run("bio", "bob", "normal", 4, 4, 0)
			if got := s.ends(id); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			s.replicas()
		})
	}
}

// Purses follow changes while jobs run: limits are set, lowered or raised, usage is reset, accounts move, jobs start,
// end and are suspended.
func TestMinutesFollowChanges(t *testing.T) {
	of := func(account string, n int64) model.AcctEdit {
		return model.AcctEdit{Op: model.PutAssoc, Assoc: &model.Association{Account: account, Shares: 1,
			GrpTRESMins: minutes("cpu", n)}}
	}
	s := purseCluster(t, nil)
	a := s.run("physics", "ann", "normal", 0, 4, 0)
	s.now += 60_000 // 4 CPU minutes
	if r := s.apply(&Accounts{Edits: acctEdits{of("science", 20)}}); r.Refusal != OK {
		t.Fatal(r.Refusal)
	}
	if due := s.st.View().NextDue(); due != epoch+300_000 { // 16 more at 4 a minute
		t.Errorf("set while it runs: due at +%d ms", due-epoch)
	}
	b := s.run("bio", "bob", "normal", 4, 4, 0)
	if due := s.st.View().NextDue(); due != epoch+180_000 {
		t.Errorf("another job spends as well: due at +%d ms", due-epoch)
	}
	s.apply(&Suspend{Targets: []model.JobRef{{Job: b, Task: model.NoTask}}})
	if due := s.st.View().NextDue(); due != epoch+300_000 {
		t.Errorf("it is suspended: due at +%d ms", due-epoch)
	}
	s.now += 60_000 // 8 of physics
	s.apply(&Accounts{Edits: acctEdits{{Op: model.ResetUsage, Assoc: &model.Association{Account: "physics"}}}})
	if due := s.st.View().NextDue(); due != epoch+420_000 {
		t.Errorf("usage is reset: due at +%d ms", due-epoch)
	}
	s.apply(&Accounts{Edits: acctEdits{acct("physics", "root")}}) // it leaves science
	if due := s.st.View().NextDue(); due != s.st.View().Job(a).Run.Deadline() {
		t.Errorf("the account has moved away: due at +%d ms", due-epoch)
	}
	s.apply(&Accounts{Edits: acctEdits{of("physics", 2)}})
	s.apply(&Suspend{Targets: []model.JobRef{{Job: b, Task: model.NoTask}}, Resume: true})
	s.now += 30_000
	if got, want := s.ends(a),
		"TIMEOUT AssocGrpCPUMinutesLimit 150 account physics has used up its GrpTRESMins=cpu=2"; got != want {
		t.Errorf("a low limit: %s, want %s", got, want)
	}
	if j := s.st.View().Job(b); j.State != model.Running {
		t.Errorf("the other account's job is %s", j.State)
	}
	if u := s.st.View().AccountUsage("physics"); u == nil ||
		s.st.View().UsageAt(u, s.now).TRES[0].Meter.Value != 2*60_000 {
		t.Errorf("physics has used %+v", u)
	}
	s.replicas()
}

// Resetting the usage of one association for a partition leaves the user's others as they are.
func TestResetOfOnePartition(t *testing.T) {
	s := purseCluster(t, nil)
	for _, part := range []string{"", "gpu", "cpu"} {
		s.st.usage.Set(usageKey("physics", "ann", part), &Usage{Account: "physics", User: "ann", Partition: part,
			Stamp: s.now, Wall: Meter{Value: 5}})
	}
	left := func() (out []string) {
		for _, part := range []string{"", "gpu", "cpu"} {
			if u, _ := s.st.usage.Get(usageKey("physics", "ann", part)); u.Wall.Value != 0 {
				out = append(out, "in "+part)
			}
		}
		return out
	}
	of := model.Association{Account: "physics", User: "ann", Partition: "gpu"}
	s.apply(&Accounts{Edits: acctEdits{{Op: model.ResetUsage, Assoc: &of}}})
	if got := left(); !slices.Equal(got, []string{"in ", "in cpu"}) {
		t.Errorf("usage is left %q", got)
	}
	of.Partition = ""
	s.apply(&Accounts{Edits: acctEdits{{Op: model.ResetUsage, Assoc: &of}}})
	if got := left(); got != nil {
		t.Errorf("usage is left %q after a reset of all", got)
	}
}

// A limit that is used up is checked once, not again and again while its jobs end.
func TestEmptyPurseIsQuiet(t *testing.T) {
	s := purseCluster(t, nil, model.AcctEdit{Op: model.PutQOS,
		QOS: &model.QOS{Name: "q", UsageFactor: model.FactorOne, GrpTRESMins: minutes("cpu", 8)}})
	a, b := s.run("physics", "ann", "q", 0, 4, 0), s.run("bio", "bob", "q", 4, 4, 0)
	s.now += 60_000
	s.apply(&Tick{})
	for _, id := range []model.JobID{a, b} {
		if j := s.st.View().Job(id); j.State != model.Completing || j.Run.StopReason.String() != "QOSGrpCPUMinutesLimit" {
			t.Errorf("job %d is %s, %s", id, j.State, j.Run.StopReason)
		}
	}
	if due := s.st.View().NextDue(); due != 0 {
		t.Errorf("something is due at +%d ms", due-epoch)
	}
	s.ends(a)
	if due := s.st.View().NextDue(); due != epoch+60_000+300_000 { // the finished job is forgotten
		t.Errorf("something is due at +%d ms", due-epoch)
	}
	s.ends(b)
	s.replicas()
}
