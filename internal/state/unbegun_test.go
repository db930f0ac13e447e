package state

import (
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/price"
)

// paid gives what an account was charged, and what of its use is kept.
func paid(st *State, account string) (price.Money, int64, int64) {
	charged, ms, bill := price.Money(0), int64(0), int64(0)
	if w := st.View().Wallet(account); w != nil {
		charged = w.Charged
	}
	st.usage.Scan(func(_ string, u *Usage) bool {
		ms, bill = ms+u.CPUMS, bill+u.Wall.Value
		return true
	})
	return charged, ms, bill
}

// TestUnbegun: a run of which nothing was launched costs nothing and used nothing: nodes that don't come up, and a GPU
// that a stranger has.
func TestUnbegun(t *testing.T) {
	prices := price.Table{MinS: 3600, Lines: []price.Line{{Rates: []price.Rate{{TRES: "cpu", Micro: 60_000_000, Per: 1}}}}}
	check := func(what string, st *State, runs int) {
		t.Helper()
		if charged, ms, wall := paid(st, "physics"); charged != 0 || ms != 0 || wall != 0 {
			t.Errorf("%s: %s charged, %d ms of CPUs and %d of time used", what, charged, ms, wall)
		}
		n := 0
		st.View().Outbox(0, func(e Event) bool {
			if e.Job.End != nil && e.Job.Run != nil {
				n++
				if !e.Job.Unbegun() {
					t.Errorf("%s: the record of run %d says that it has begun", what, e.Job.Attempt)
				}
			}
			return true
		})
		if n != runs {
			t.Errorf("%s: %d records of runs, want %d", what, n, runs)
		}
	}
	p := &powerSession{t: t, st: New(), at: 100_000, id: 1}
	cfg := &model.Config{Cluster: "c", Nodes: []*model.NodeDef{{Name: "n1", CPUs: 4, MemMiB: 100, Cloud: true}},
		Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}, Accounts: []string{"physics"}}
	cfg.Params.Power = model.PowerRules{Suspend: "/off", Resume: "/on", SuspendTimeoutS: 30, ResumeTimeoutS: 60}
	cfg.Params.Price = prices
	p.apply(&SetConfig{Config: cfg})
	p.apply(&Submit{Spec: &model.Spec{Name: "a", User: "u", Account: "physics", Partitions: []string{"p"}, MinNodes: 1,
		MaxNodes: 1}})
	p.start("n1")
	p.op(BeginUp, "n1", OK)
	p.at = p.at.Add(60)
	p.op(GiveUpResume, "n1", OK)
	p.job("NODE_FAIL")
	check("a node that does not come up", p.st, 1)

	s := newSession(t)
	s.cfg.Nodes = []*model.NodeDef{{Name: "n1", CPUs: 4, ThreadsPerCore: 1}}
	s.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}
	s.cfg.Accounts = []string{"physics"}
	s.cfg.Params.Price = prices
	s.apply(&SetConfig{Config: &s.cfg, Instance: 1})
	s.apply(&Join{Node: "n1", BootID: "b"})
	id := s.apply(&Submit{Spec: &model.Spec{Name: "j", Account: "physics", User: "ann", Partitions: []string{"p"}}}).Job
	s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 6000,
		Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(4), Tasks: 1}}}}}}})
	s.now += 20_000
	s.apply(&Reports{Reports: []Report{{Kind: LaunchFailed, Taken: true, Job: id, Attempt: 1, At: s.now}}})
	if j := s.job(id); j.State != model.Pending {
		t.Fatalf("the job is %s", j.State)
	}
	check("a GPU that a stranger has", s.st, 1)
	if ran(s, "physics", 2); s.st.View().Wallet("physics").Charged != 240*price.One {
		t.Errorf("a run that began costs %s", s.st.View().Wallet("physics").Charged)
	}
}
