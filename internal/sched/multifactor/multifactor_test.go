package multifactor

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

const epoch model.Time = 1_700_000_000_000

// world is a state that tests fill.
type world struct {
	t  *testing.T
	st *state.State
}

func newWorld(t *testing.T, p model.Priority, parts ...*model.Partition) *world {
	t.Helper()
	p.Multifactor = true
	cfg := &model.Config{Cluster: "c", Params: model.Params{Priority: p},
		Licenses: []model.LicenseCount{{Name: "matlab", Count: 4}, {Name: "ansys", Count: 2}}}
	var names []string
	for i := range 10 {
		n := fmt.Sprintf("n%d", i)
		names = append(names, n)
		cfg.Nodes = append(cfg.Nodes, &model.NodeDef{Name: n, CPUs: 10, MemMiB: 1000,
			Gres: []model.GresDef{{Name: "gpu", Type: "h100", Count: 4}}})
	}
	if parts == nil {
		parts = []*model.Partition{{Name: "p", PriorityJobFactor: 1}}
	}
	for _, part := range parts {
		part.Nodes = names
	}
	cfg.Partitions = parts
	w := &world{t, state.New()}
	w.apply(epoch, &state.SetConfig{Config: cfg})
	return w
}

func (w *world) apply(at model.Time, b state.Body) state.Result {
	w.t.Helper()
	res := w.st.Apply(state.Command{At: at, Body: b})
	if res.Refusal != state.OK {
		w.t.Fatalf("%+v: %v", b, res.Refusal)
	}
	if err := w.st.Check(); err != nil {
		w.t.Fatal(err)
	}
	return res
}

// accounts reads "name parent shares" and, with @ before it, users.
func (w *world) accounts(text string) {
	w.t.Helper()
	c := &state.Accounts{}
	for line := range strings.Lines(text) {
		var name, parent, shares string
		if n, _ := fmt.Sscan(line, &name, &parent, &shares); n < 3 {
			continue
		}
		a := &model.Association{Account: name, Shares: model.ShareOfParent}
		if shares != "parent" {
			if _, err := fmt.Sscan(shares, &a.Shares); err != nil {
				w.t.Fatal(err)
			}
		}
		if user, ok := strings.CutPrefix(name, "@"); ok {
			a.Account, a.User = parent, user
			c.Edits = append(c.Edits, model.AcctEdit{Op: model.PutUser, User: &model.User{Name: user, DefaultAccount: parent}})
		} else {
			c.Edits = append(c.Edits, model.AcctEdit{Op: model.PutAccount, Account: &model.Account{Name: name, Parent: parent}})
		}
		c.Edits = append(c.Edits, model.AcctEdit{Op: model.PutAssoc, Assoc: a})
	}
	w.apply(epoch, c)
}

func (w *world) submit(at model.Time, account, user string, change func(*model.Spec)) *model.Job {
	w.t.Helper()
	sp := &model.Spec{Name: "j", Account: account, User: user, QOS: "normal", Partitions: []string{"p"}}
	if change != nil {
		change(sp)
	}
	id := w.apply(at, &state.Submit{Spec: sp, Priority: 1000}).Job
	return w.st.View().Job(id)
}

// run lets a job hold some CPUs of node n0 for a span, seconds.
func (w *world) run(at model.Time, account, user string, cpus int, seconds int64) {
	w.t.Helper()
	for _, n := range w.st.View().Config().Nodes {
		w.apply(at, &state.Join{Node: n.Name, BootID: "b"})
	}
	j := w.submit(at, account, user, nil)
	alloc := &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n0", CPUs: model.UpTo(cpus)}}}
	w.apply(at, &state.Starts{Plan: model.Plan{Starts: []model.Start{{Job: j.ID, Task: model.NoTask, Partition: "p",
		LimitS: 1e6, Alloc: alloc}}}})
	if seconds > 0 {
		end := at.Add(seconds)
		w.apply(end, &state.Reports{Reports: []state.Report{{Kind: state.Ended, Job: j.ID, Attempt: 1, At: end}}})
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// Three users of two accounts, the shares and the usage of the published example: the user that has used the least of
// its share goes first, and usage of a half-life ago counts half.
func TestWorkedExample(t *testing.T) {
	w := newWorld(t, model.Priority{WeightFairShare: 10000, WeightAge: 1000, WeightQOS: 10000, MaxAgeS: 7 * 86400,
		HalfLifeS: 14 * 86400})
	w.accounts(`
research root 50
engineering root 30
students root 20
@alice research 30
@bob research 20
@carol engineering 1`)
	w.run(epoch, "research", "alice", 10, 36000) // 100 CPU-hours
	w.run(epoch, "research", "bob", 5, 36000)
	w.run(epoch.Add(18000), "engineering", "carol", 5, 18000)
	now := epoch.Add(36000)
	tree := NewTree(w.st.View(), now, nil)
	for user, hours := range map[string]float64{"alice": 100, "bob": 50, "carol": 25} {
		account := map[string]string{"carol": "engineering"}[user]
		if account == "" {
			account = "research"
		}
		got := float64(tree.Rows[tree.Row(account, user, "")].RawUsage()) / 3600
		if got > hours || got < hours*0.98 { // usage of a job that has just ended has decayed a little
			t.Errorf("%s used %.2f CPU-hours, want %.0f", user, got, hours)
		}
	}
	later := NewTree(w.st.View(), now.Add(14*86400), nil)
	if a, b := tree.Rows[0].Usage, later.Rows[0].Usage; max(a/2-b, b-a/2) > 3 {
		t.Errorf("after a half-life %d of %d are left", b, a)
	}
	o := New(w.st.View(), now, nil)
	part := w.st.View().Partition("p")
	prio := func(account, user string) uint64 { return o.Priority(w.submit(now, account, user, nil), part) }
	a, b, c := prio("research", "alice"), prio("research", "bob"), prio("engineering", "carol")
	if !(c > b && b > a) {
		t.Errorf("carol %d, bob %d, alice %d", c, b, a)
	}
	// Four users are ranked: root's own has used nothing and has the best rank, carol the third of four, ...
	if c != 5000+7500 || b != 5000+5000 || a != 5000+2500 {
		t.Errorf("carol %d, bob %d, alice %d: normal is worth half of critical's 10000, fair-share 3/4, 2/4 and 1/4", c, b, a)
	}
	if f := o.Factors(w.submit(now, "research", "alice", nil), part); f.FairShare != 2500 || f.QOS != 5000 || f.Age != 0 {
		t.Errorf("%+v", f)
	}
}

// An account that neither gacctmgr nor the configuration has created has no share, and its usage is not kept.
func TestUnknownAccountHasNoShare(t *testing.T) {
	w := newWorld(t, model.Priority{WeightFairShare: 1000, HalfLifeS: 7 * 86400})
	tree := NewTree(w.st.View(), epoch, nil)
	if known, fresh := tree.Factor("default", "u", ""), tree.Factor("fresh1", "u", ""); known != 1 || fresh != 0 {
		t.Errorf("factor %v in the account of who names none, %v in one that does not exist: want 1 and 0", known, fresh)
	}
	w.run(epoch, "fresh1", "u", 4, 60)
	w.run(epoch.Add(60), "fresh1", "u", 4, 0) // goes on
	for _, prev := range []*Tree{nil, tree} {
		tree = NewTree(w.st.View(), epoch.Add(3600), prev)
		if i := tree.Row("fresh1", "u", ""); i >= 0 || tree.Factor("fresh1", "u", "") != 0 || tree.Rows[0].Usage != 0 {
			t.Errorf("row %d, factor %v, the root's usage %d", i, tree.Factor("fresh1", "u", ""), tree.Rows[0].Usage)
		}
	}
}

func TestRunningJobsCount(t *testing.T) {
	w := newWorld(t, model.Priority{WeightFairShare: 1000, HalfLifeS: 7 * 86400})
	w.run(epoch, "default", "u", 4, 0) // goes on
	for s, want := range map[int64]float64{0: 0, 60: 240, 3600: 14400} {
		tree := NewTree(w.st.View(), epoch.Add(s), nil)
		if got := float64(tree.Rows[0].Usage) / 1000; math.Abs(got-want) > want*0.01 {
			t.Errorf("after %d s: %v CPU-seconds, want %v", s, got, want)
		}
	}
}

func TestFactors(t *testing.T) {
	license := []model.TRESWeight{{TRES: "license/matlab", Micros: 1000e6, Per: 1}}
	licensed := func(name string, n int64, either bool) *model.Needs {
		list := []model.LicenseCount{{Name: name, Count: n}}
		if either {
			list = append(list, model.LicenseCount{Name: "ansys", Count: 1})
		}
		return &model.Needs{Licenses: list, AnyLicense: either}
	}
	two := []*model.Partition{{Name: "p", PriorityJobFactor: 10}, {Name: "q", PriorityJobFactor: 40, MaxTimeS: 3600}}
	type given = model.Priority
	for _, c := range []struct {
		name   string
		conf   given
		change func(*model.Spec)
		part   string
		after  int64 // seconds since submission
		want   uint64
	}{
		{"nothing is at least 1", given{WeightAge: 1, MaxAgeS: 100}, nil, "p", 0, 1},
		{"age", given{WeightAge: 1000, MaxAgeS: 1000}, nil, "p", 250, 250},
		{"age ends at its most", given{WeightAge: 1000, MaxAgeS: 1000}, nil, "p", 5000, 1000},
		{"age waits for eligibility", given{WeightAge: 1000, MaxAgeS: 1000},
			func(s *model.Spec) { s.Begin = epoch.Add(9000) }, "p", 250, 1},
		{"ACCRUE_ALWAYS doesn't", given{WeightAge: 1000, MaxAgeS: 1000, Flags: model.PrioAccrueAlways},
			func(s *model.Spec) { s.Begin = epoch.Add(9000) }, "p", 250, 250},
		{"partition", given{WeightPartition: 1000}, nil, "p", 0, 250},
		{"the best partition", given{WeightPartition: 1000}, nil, "q", 0, 1000},
		{"NO_NORMAL_PART", given{WeightPartition: 1000, Flags: model.PrioNoNormalPart}, nil, "q", 0, 40000},
		{"QOS", given{WeightQOS: 1000}, func(s *model.Spec) { s.QOS = "high" }, "p", 0, 750},
		{"NO_NORMAL_QOS", given{WeightQOS: 10, Flags: model.PrioNoNormalQOS}, func(s *model.Spec) { s.QOS = "high" }, "p", 0,
			3000},
		{"size: mean of nodes and CPUs", given{WeightJobSize: 1000}, func(s *model.Spec) { s.MinNodes, s.Tasks = 2, 40 }, "p",
			0, 300},
		{"favor small", given{WeightJobSize: 1000, FavorSmall: true}, func(s *model.Spec) { s.MinNodes, s.Tasks = 2, 40 },
			"p", 0, 700},
		{"size over time", given{WeightJobSize: 1000, Flags: model.PrioSizeRelative},
			func(s *model.Spec) { s.Tasks, s.LimitS = 50, 120 }, "p", 0, 250},
		{"size over the partition's time", given{WeightJobSize: 1000, Flags: model.PrioSizeRelative},
			func(s *model.Spec) { s.Tasks = 60 }, "q", 0, 10},
		{"TRES of the partition", given{WeightTRES: []model.TRESWeight{{TRES: "cpu", Micros: 1000e6, Per: 1},
			{TRES: "gres/gpu:h100", Micros: 2000e6, Per: 1}}},
			func(s *model.Spec) {
				s.Tasks, s.Gres = 10, []model.GresReq{{Name: "gpu", Type: "h100", Count: 8, Per: model.PerJob}}
			}, "p", 0, 500},
		{"NO_NORMAL_TRES", given{WeightTRES: []model.TRESWeight{{TRES: "mem", Micros: 2e6, Per: 1024}},
			Flags: model.PrioNoNormalTRES},
			func(s *model.Spec) { s.MemPerNode = 10240 }, "p", 0, 20},
		{"TRES: a license, of those of the cluster", given{WeightTRES: license},
			func(s *model.Spec) { s.More = licensed("matlab", 3, false) }, "p", 0, 750},
		{"TRES: another license", given{WeightTRES: license},
			func(s *model.Spec) { s.More = licensed("ansys", 1, false) }, "p", 0, 1},
		{"TRES: one of two licenses may do", given{WeightTRES: license},
			func(s *model.Spec) { s.More = licensed("matlab", 3, true) }, "p", 0, 1},
		{"NO_NORMAL_TRES: a license", given{WeightTRES: license, Flags: model.PrioNoNormalTRES},
			func(s *model.Spec) { s.More = licensed("matlab", 3, false) }, "p", 0, 3000},
		{"TRES: billing of the partition", given{WeightTRES: []model.TRESWeight{{TRES: "billing", Micros: 1000e6, Per: 1}}},
			func(s *model.Spec) { s.Tasks = 25 }, "p", 0, 250},
		{"nice", given{WeightQOS: 1000}, func(s *model.Spec) { s.Nice = 100 }, "p", 0, 400},
		{"nice never holds", given{WeightQOS: 1000}, func(s *model.Spec) { s.Nice = 10000 }, "p", 0, 1},
		{"set by hand", given{WeightQOS: 1000}, func(s *model.Spec) { s.PrioReq = 7 }, "p", 0, 1000},
		{"all together", given{WeightQOS: 1000, WeightAge: 100, MaxAgeS: 100, WeightPartition: 10},
			func(s *model.Spec) { s.Nice = -5 }, "q", 50, 565},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.conf, two...)
			j := w.submit(epoch, "acc", "u", c.change)
			v := w.st.View()
			o := New(v, epoch.Add(c.after), nil)
			if got := o.Priority(j, v.Partition(c.part)); got != c.want {
				t.Errorf("priority %d, want %d: %+v", got, c.want, o.Factors(j, v.Partition(c.part)))
			}
		})
	}
}

// A job that a limit such as GrpJobsAccrue keeps from ageing has no age, and a job that began to age later has less.
func TestAgeBeginsWithAccrueTime(t *testing.T) {
	w := newWorld(t, model.Priority{WeightAge: 1000, MaxAgeS: 1000})
	j := *w.submit(epoch, "acc", "u", nil)
	o := New(w.st.View(), epoch.Add(500), nil)
	for accrue, want := range map[model.Time]uint64{0: 500, model.NotAging: 1, epoch.Add(300): 200} {
		if j.Accrue = accrue; o.Priority(&j, w.st.View().Partition("p")) != want {
			t.Errorf("accrue %d: priority %d, want %d", accrue, o.Priority(&j, w.st.View().Partition("p")), want)
		}
	}
}

// With STRICT_QOS no factor lifts a job above a job of a higher class.
func TestStrictClasses(t *testing.T) {
	w := newWorld(t, model.Priority{WeightAge: math.MaxInt32, MaxAgeS: 1, Flags: model.PrioStrictQOS})
	last := uint64(0)
	for _, q := range []string{"low", "normal", "high", "critical"} {
		worst := w.submit(epoch.Add(100), "a", "u", func(s *model.Spec) { s.QOS, s.Nice = q, math.MaxInt32 })
		best := w.submit(epoch, "a", "u", func(s *model.Spec) { s.QOS, s.Nice = q, math.MinInt32 })
		v := w.st.View()
		o := New(v, epoch.Add(100), nil)
		lo, hi := o.Priority(worst, v.Partition("p")), o.Priority(best, v.Partition("p"))
		if lo <= last || hi <= lo || hi > Highest {
			t.Errorf("%s: from %d to %d, the class below ends at %d", q, lo, hi, last)
		}
		last = hi
	}
}

func TestIncreaseOnly(t *testing.T) {
	w := newWorld(t, model.Priority{WeightFairShare: 1000, Flags: model.PrioIncrOnly})
	w.accounts("a root 1\n@u a 1\n@v a 1")
	j := w.submit(epoch, "a", "u", nil)
	v := w.st.View()
	first := New(v, epoch, nil)
	before := first.Priority(j, v.Partition("p"))
	w.run(epoch, "a", "u", 1, 100)
	v = w.st.View()
	if got := New(v, epoch.Add(100), nil).Priority(j, v.Partition("p")); got >= before {
		t.Fatalf("usage does not lower the priority: %d, was %d", got, before)
	}
	second := New(v, epoch.Add(100), first)
	if got := second.Priority(j, v.Partition("p")); got != before || second.Epoch() <= first.Epoch() {
		t.Errorf("%d, was %d", got, before)
	}
}

// Classic fair-share: at the first level F = 2^(-U/S); below it the parent's usage counts too.
func TestClassicFairShare(t *testing.T) {
	for _, flags := range []model.PrioFlags{model.PrioNoFairTree, model.PrioDepthOblivious} {
		w := newWorld(t, model.Priority{WeightFairShare: 1000, Flags: flags})
		w.accounts("a root 1\nb root 2\n@root root 0\n@u a 1\n@v a 1\n@x b 1")
		w.run(epoch, "a", "u", 10, 100)
		w.run(epoch, "b", "x", 10, 300)
		tree := NewTree(w.st.View(), epoch.Add(300), nil)
		x := tree.Rows[tree.Row("b", "x", "")]
		if flags == model.PrioNoFairTree {
			// b: S = 2/3, U = 3/4; effective usage of x is that of b.
			if want := math.Exp2(-(0.75 / (2.0 / 3))); !near(x.Factor, want) {
				t.Errorf("x has %v, want %v", x.Factor, want)
			}
			v := tree.Rows[tree.Row("a", "v", "")]
			if want := math.Exp2(-(0.125 / (1.0 / 6))); !near(v.Factor, want) { // half of a's quarter, which v did not use
				t.Errorf("v has %v, want %v", v.Factor, want)
			}
			continue
		}
		if want := math.Exp2(-(0.75 / (2.0 / 3))); !near(x.Factor, want) {
			t.Errorf("oblivious: x has %v, want %v", x.Factor, want)
		}
		if u, v := tree.Rows[tree.Row("a", "u", "")], tree.Rows[tree.Row("a", "v", "")]; u.Factor >= v.Factor {
			t.Errorf("oblivious: u %v is not below v %v", u.Factor, v.Factor)
		}
	}
}

// TestArrival: with priority/basic each job has one less than the job before it, whatever its stored number; a hold and
// an operator's number count.
func TestArrival(t *testing.T) {
	w := newWorld(t, model.Priority{Named: true})
	cfg := *w.st.View().Config()
	cfg.Params.Priority.Multifactor = false
	w.apply(epoch+1, &state.SetConfig{Config: &cfg})
	v := w.st.View()
	o := New(v, epoch+1, nil)
	for name, c := range map[string]struct {
		job  model.Job
		nice int32
		want uint32
	}{
		"first":  {model.Job{ID: 1}, 0, 4294901759},
		"next":   {model.Job{ID: 2}, 0, 4294901758},
		"task":   {model.Job{ID: 7, ArrayID: 2, Task: 3}, 0, 4294901758},
		"nice":   {model.Job{ID: 2}, 10, 4294901748},
		"least":  {model.Job{ID: 4294901750}, 100, 1},
		"raised": {model.Job{ID: 2}, math.MinInt32 + 1, math.MaxUint32 - 2},
		"set":    {model.Job{ID: 2, Priority: 500, Direct: true}, 0, 500},
		"held":   {model.Job{ID: 2, Hold: model.HeldByUser}, 0, 0},
	} {
		c.job.State, c.job.Spec = model.Pending, &model.Spec{Nice: c.nice, Partitions: []string{"p"}}
		if got := o.Of(v, &c.job); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
