package sched

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Commands of the transcripts for accounts:
//
//	enforce [safe] [half=SECONDS]               AccountingStorageEnforce=limits; the half-life of usage
//	account NAME [parent=]                      assoc ACCOUNT [user=] [part=] [LIMIT=...]
//	qos NAME [preempt=a,b] [mode=] [grace=] [exempt=] [flags=DenyOnLimit] [LIMIT=...]
//
// LIMIT is a name of Slurm's; of resources, "GrpTRES=cpu:4;gres/gpu:70%". A command replaces an earlier one for the
// same name.

// accounts runs such a command.
func (c *cluster) accounts(verb string, w words) bool {
	put := func(e model.AcctEdit) {
		if res := c.apply(&state.Accounts{Edits: []model.AcctEdit{e}}); res.Refusal != state.OK {
			c.t.Fatalf("%s: refused: %s", c.at, res.Refusal)
		}
	}
	switch verb {
	case "enforce":
		c.cfg.Params.HoldLimits, c.cfg.Params.EnforceSafe = true, len(w.plain) > 0 && w.plain[0] == "safe"
		c.cfg.Params.Priority.HalfLifeS = w.num("half")
		if c.st.View().Config().Cluster != "" {
			cfg := c.cfg
			c.apply(&state.SetConfig{Config: &cfg})
		}
	case "account":
		parent := "root"
		if w.has("parent") {
			parent = w.named["parent"]
		}
		put(model.AcctEdit{Op: model.PutAccount, Account: &model.Account{Name: w.plain[0], Parent: parent}})
		put(model.AcctEdit{Op: model.PutAssoc, Assoc: &model.Association{Account: w.plain[0], Shares: 1}})
	case "assoc":
		a := &model.Association{Account: w.plain[0], User: w.named["user"], Partition: w.named["part"], Shares: 1}
		if a.User != "" {
			put(model.AcctEdit{Op: model.PutUser, User: &model.User{Name: a.User, DefaultAccount: a.Account}})
		}
		c.setLimits(reflect.ValueOf(a).Elem(), w)
		put(model.AcctEdit{Op: model.PutAssoc, Assoc: a})
	case "fair": // USER=MILLIONTHS: the users' fair-share factors
		c.fair = func(_, user, _ string) float64 { return float64(w.num(user)) / float64(model.FactorOne) }
	case "qos":
		q := &model.QOS{Name: w.plain[0], Priority: uint32(w.num("prio")), UsageFactor: model.FactorOne,
			Preempt: w.list("preempt"), PreemptMode: w.named["mode"], GraceTimeS: w.num("grace"),
			LimitFactor: w.num("factor") * model.FactorOne}
		if w.has("usage") {
			q.UsageFactor = w.num("usage") * model.FactorOne
		}
		if w.has("exempt") {
			q.PreemptExemptTimeS = model.LimitOf(w.num("exempt"))
		}
		for _, f := range w.list("flags") {
			bit, ok := model.QOSFlag(f)
			if !ok {
				c.t.Fatalf("%s: unknown flag %s", c.at, f)
			}
			q.Flags |= bit
		}
		c.setLimits(reflect.ValueOf(q).Elem(), w)
		put(model.AcctEdit{Op: model.PutQOS, QOS: q})
	default:
		return false
	}
	return true
}

// setLimits sets the fields that a command names.
func (c *cluster) setLimits(v reflect.Value, w words) {
	for name, text := range w.named {
		if name[0] < 'A' || name[0] > 'Z' {
			continue
		}
		f := v.FieldByName(name)
		if !f.IsValid() {
			c.t.Fatalf("%s: no limit %s", c.at, name)
		}
		switch f.Interface().(type) {
		case model.Limit:
			f.Set(reflect.ValueOf(model.LimitOf(w.num(name))))
		case []model.TRESLimit:
			var list []model.TRESLimit
			for item := range strings.SplitSeq(text, ";") {
				i := strings.LastIndexByte(item, ':')
				num, percent := strings.CutSuffix(item[i+1:], "%")
				n, err := strconv.ParseInt(num, 10, 64)
				if err != nil {
					c.t.Fatalf("%s: %v", c.at, err)
				}
				if percent {
					n *= 100
				}
				list = append(list, model.TRESLimit{TRES: item[:i], Count: n, Percent: percent})
			}
			f.Set(reflect.ValueOf(list))
		default:
			c.t.Fatalf("%s: %s is no limit", c.at, name)
		}
	}
}

// TestDenyOnLimit: with DenyOnLimit, a job that alone exceeds a limit is refused at submission.
func TestDenyOnLimit(t *testing.T) {
	c := newCluster(t)
	c.cfg.Nodes = []*model.NodeDef{{Name: "n1", CPUs: 8, ThreadsPerCore: 1, MemMiB: 8000,
		Gres: []model.GresDef{{Name: "gpu", Count: 4}}}}
	c.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}
	c.cfg.Params.HoldLimits = true
	c.up()
	part := c.st.View().Partition("p")
	for _, flag := range []model.QOSFlags{0, model.QOSDenyOnLimit} {
		q := &model.QOS{Name: "q", Flags: flag, MaxWallS: model.LimitOf(3600),
			MaxTRESPerJob: []model.TRESLimit{{TRES: "cpu", Count: 2}},
			GrpTRES:       []model.TRESLimit{{TRES: "gres/gpu", Count: 1}}, MinTRES: []model.TRESLimit{{TRES: "mem", Count: 10}},
			MaxJobsPerUser: model.LimitOf(1)}
		c.apply(&state.Accounts{Edits: []model.AcctEdit{{Op: model.PutQOS, QOS: q}}})
		for _, x := range []struct {
			sp   model.Spec
			want model.Reason
		}{
			{model.Spec{LimitS: 60, MemPerNode: 20}, model.ReasonNone},
			{model.Spec{MemPerNode: 20}, model.ReasonNone},
			{model.Spec{LimitS: 7200, MemPerNode: 20}, model.ReasonQOSMaxWallDurationPerJobLimit},
			{model.Spec{LimitS: 60, MemPerNode: 20, CPUsPerTask: 3}, model.LimitReason(model.QOSPerJob, "cpu")},
			{model.Spec{LimitS: 60, MemPerNode: 20, Gres: []model.GresReq{{Name: "gpu", Count: 2}}},
				model.LimitReason(model.QOSGrp, "gres/gpu")},
			{model.Spec{LimitS: 60, MemPerNode: 5}, model.LimitReason(model.QOSMin, "mem")},
		} {
			sp := x.sp
			sp.User, sp.Account, sp.QOS, sp.Partitions = "u", "a", "q", []string{"p"}
			want := x.want
			if flag == 0 {
				want = model.ReasonNone
			}
			if got := Alone(c.st.View(), &sp, part); got != want {
				t.Errorf("flags %s: %+v is refused with %s, want %s", flag, x.sp, got, want)
			}
		}
	}
}

// TestLimitsHold: over random histories no limit is ever exceeded, a kept planner plans like a new one, and a job that
// a limit holds does not block others.
func TestLimitsHold(t *testing.T) {
	seeds := 30
	if testing.Short() {
		seeds = 8
	}
	held, starts := 0, 0
	for seed := range seeds {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 41))}
		c := w.cluster(t)
		c.cfg.Params.HoldLimits = true
		for _, p := range c.cfg.Partitions {
			p.QOS = pick(w, "", "", "x", "y")
		}
		cfg := c.cfg
		for _, q := range []string{"x", "y"} {
			c.apply(&state.Accounts{Edits: []model.AcctEdit{{Op: model.PutQOS, QOS: w.qos(q)}}})
		}
		c.apply(&state.SetConfig{Config: &cfg})
		c.apply(&state.Accounts{Edits: []model.AcctEdit{{Op: model.PutAccount,
			Account: &model.Account{Name: "a", Parent: "root"}},
			{Op: model.PutAccount, Account: &model.Account{Name: "b", Parent: "a"}},
			{Op: model.PutAssoc, Assoc: &model.Association{Account: "a", GrpTRES: w.tres(), GrpJobs: w.limit(12),
				MaxJobs: w.limit(4)}},
			{Op: model.PutAssoc, Assoc: &model.Association{Account: "b", GrpTRES: w.tres(), MaxTRESPerJob: w.tres()}}}})
		planner := NewPlanner()
		pol := Policy{Backfill: Backfill{On: w.chance(60), Reserve: pick(w, 0, 1, -1)}}
		for round := range 12 {
			c.at = fmt.Sprintf("seed %d, round %d", seed, round)
			c.now = c.now.Add(int64(w.n(100)))
			for range w.n(12) {
				sp := w.spec(c)
				sp.User, sp.Account, sp.QOS = pick(w, "u", "v"), pick(w, "a", "b"), pick(w, "", "normal", "x", "y")
				sp.LimitS = int64(60 * (1 + w.n(20)))
				c.apply(&state.Submit{Spec: sp, Priority: uint32(w.n(2))})
			}
			if w.chance(10) {
				n := c.cfg.Nodes[w.n(len(c.cfg.Nodes))].Name
				c.apply(&state.NodeEdit{Nodes: []string{n}, Admin: pick(w, model.NodeDrain, model.NodeUp), Reason: "x", By: "root"})
			}
			plan := planner.Plan(c.st.View(), c.now, pol)
			if fresh := Plan(c.st.View(), c.now, pol); !reflect.DeepEqual(plan, fresh) {
				t.Fatalf("%s: a kept planner plans\n%+v, a new one\n%+v", c.at, plan, fresh)
			}
			before := c.st.View()
			for i, r := range c.apply(&state.Starts{Plan: plan}).Each {
				if r != state.OK {
					t.Fatalf("%s: start %+v is refused: %s", c.at, plan.Starts[i], r)
				}
			}
			starts += len(plan.Starts)
			for _, r := range plan.Reasons {
				if r.Reason > 30 {
					held++
				}
			}
			if err := within(before, c.st.View()); err != nil {
				t.Fatalf("%s: %v", c.at, err)
			}
			var ended state.Reports
			c.st.View().Jobs(func(j *model.Job) bool {
				if j.State.HasResources() && w.chance(40) {
					ended.Reports = append(ended.Reports, state.Report{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: c.now})
				}
				return true
			})
			c.apply(&ended)
		}
	}
	if held < seeds || starts < seeds*5 {
		t.Errorf("only %d jobs were held by limits, %d started", held, starts)
	}
}

func (w *world) limit(most int) model.Limit {
	if w.chance(50) {
		return 0
	}
	return model.LimitOf(int64(w.n(most)))
}

func (w *world) tres() []model.TRESLimit {
	var out []model.TRESLimit
	for _, x := range []struct {
		name string
		most int
	}{{"cpu", 20}, {"gres/gpu", 6}, {"mem", 4000}, {"node", 6}} {
		if w.chance(25) {
			l := model.TRESLimit{TRES: x.name, Count: int64(1 + w.n(x.most))}
			if w.chance(20) {
				l.Percent, l.Count = true, int64(2000+w.n(8000))
			}
			out = append(out, l)
		}
	}
	return out
}

func (w *world) qos(name string) *model.QOS {
	return &model.QOS{Name: name, UsageFactor: model.FactorOne, GrpTRES: w.tres(), MaxTRESPerUser: w.tres(),
		MaxTRESPerJob: w.tres(), MaxTRESPerAccount: w.tres(), MaxJobsPerUser: w.limit(5),
		GrpJobs: w.limit(8), MaxJobsPerAccount: w.limit(6), Flags: pick(w, 0, 0, model.QOSOverPartQOS)}
}

// within counts by itself what runs under every QOS and account, and compares it with the limits. Limits in percent
// refer to the nodes that were up when the plan was made; jobs that ran before may exceed them.
func within(before, v *state.View) error {
	type sums struct {
		jobs  int64
		tres  []model.TRESCount
		nodes map[string]bool
	}
	have, had := map[string]*sums{}, map[string]*sums{}
	count := func(v *state.View, into map[string]*sums) {
		v.Jobs(func(j *model.Job) bool {
			if !j.State.HasResources() {
				return true
			}
			keys := []string{}
			names := map[string]bool{j.Spec.QOS: true}
			if p := v.Partition(j.Run.Partition); p.QOS != "" {
				names[p.QOS] = true
			}
			for q := range names {
				keys = append(keys, "q "+q, "u "+q+" "+j.Spec.User, "b "+q+" "+j.Spec.Account)
			}
			for up := j.Spec.Account; up != ""; up = v.Account(up).Parent {
				keys = append(keys, "c "+up)
			}
			for _, k := range keys {
				if into[k] == nil {
					into[k] = &sums{nodes: map[string]bool{}}
				}
				into[k].jobs++
				for _, c := range j.Run.Alloc.TRES() {
					if c.TRES != nodeTRES {
						into[k].tres = model.AddTRES(into[k].tres, c.TRES, c.Count)
					}
				}
				for _, node := range j.Run.Alloc.NodeNames() { // a shared one counts once
					if !into[k].nodes[node] {
						into[k].tres = model.AddTRES(into[k].tres, nodeTRES, 1)
					}
					into[k].nodes[node] = true
				}
			}
			return true
		})
	}
	count(before, had)
	count(v, have)
	var total []model.TRESCount
	v.Nodes(func(n *model.Node) bool {
		if n.Usable() {
			total = model.AddNodeTRES(total, n.Def)
		}
		return true
	})
	for k, s := range have {
		f := strings.Fields(k)
		was := had[k]
		if was == nil {
			was = &sums{}
		}
		lines := func(what string, list []model.TRESLimit) error {
			for _, l := range list {
				n := model.CountTRES(s.tres, l.TRES)
				if n > l.Of(model.CountTRES(total, l.TRES)) && n > model.CountTRES(was.tres, l.TRES) {
					return fmt.Errorf("%s: %s=%+v, and %d are held", k, what, l, n)
				}
			}
			return nil
		}
		jobs := func(what string, l model.Limit) error {
			if n, set := l.Value(); set && s.jobs > n && s.jobs > was.jobs {
				return fmt.Errorf("%s: %s=%d, and %d run", k, what, n, s.jobs)
			}
			return nil
		}
		var errs []error
		if f[0] == "c" || len(f) < 2 {
			continue // a QOS's limit may replace an association's: transcripts test those
		}
		q := v.QOS(f[1])
		if q == nil {
			continue
		}
		// A job has two QOS, its own and the partition's: of a limit that both have, only the first counts.
		switch f[0] {
		case "q":
			errs = append(errs, lines("GrpTRES",
				alsoIn(v, q, q.GrpTRES, func(o *model.QOS) []model.TRESLimit { return o.GrpTRES })),
				jobs("GrpJobs", onlyIn(v, q, q.GrpJobs, func(o *model.QOS) model.Limit { return o.GrpJobs })))
		case "u":
			errs = append(errs, lines("MaxTRESPerUser",
				alsoIn(v, q, q.MaxTRESPerUser, func(o *model.QOS) []model.TRESLimit { return o.MaxTRESPerUser })),
				jobs("MaxJobsPerUser", onlyIn(v, q, q.MaxJobsPerUser, func(o *model.QOS) model.Limit { return o.MaxJobsPerUser })))
		case "b":
			errs = append(errs, lines("MaxTRESPerAccount",
				alsoIn(v, q, q.MaxTRESPerAccount, func(o *model.QOS) []model.TRESLimit { return o.MaxTRESPerAccount })),
				jobs("MaxJobsPerAccount", onlyIn(v, q, q.MaxJobsPerAccount,
					func(o *model.QOS) model.Limit { return o.MaxJobsPerAccount })))
		}
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// alsoIn gives the limits of q that no other QOS has.
func alsoIn(v *state.View, q *model.QOS, list []model.TRESLimit,
	of func(*model.QOS) []model.TRESLimit) []model.TRESLimit {
	var out []model.TRESLimit
	for _, l := range list {
		alone := true
		v.AllQOS(func(o *model.QOS) bool {
			for _, x := range of(o) {
				alone = alone && (o.Name == q.Name || x.TRES != l.TRES)
			}
			return true
		})
		if alone {
			out = append(out, l)
		}
	}
	return out
}

// onlyIn gives a limit of q if no other QOS has it.
func onlyIn(v *state.View, q *model.QOS, l model.Limit, of func(*model.QOS) model.Limit) model.Limit {
	v.AllQOS(func(o *model.QOS) bool {
		if o.Name != q.Name && of(o) != 0 {
			l = 0
		}
		return true
	})
	return l
}
