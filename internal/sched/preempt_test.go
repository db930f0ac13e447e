package sched

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Commands of the transcripts for preemption:
//
//	preempt qos|partition_prio [mode=REQUEUE] [exempt=60] [within]   PreemptType and the rest
//	ended                                                           all jobs that are being ended have ended

func (c *cluster) preemption(w words) {
	p := &c.cfg.Params.Preempt
	*p = model.Preempt{ByQOS: w.plain[0] == "qos", ByPartition: w.plain[0] == "partition_prio", Mode: w.named["mode"],
		ExemptS: w.num("exempt"), Within: slices.Contains(w.plain, "within")}
	if c.st.View().Config().Cluster != "" {
		cfg := c.cfg
		c.apply(&state.SetConfig{Config: &cfg})
	}
}

// endStopped reports the ends of jobs that are being ended.
func (c *cluster) endStopped(say func(string, ...any)) {
	var ended state.Reports
	c.st.View().Jobs(func(j *model.Job) bool {
		if j.State == model.Completing {
			ended.Reports = append(ended.Reports,
				state.Report{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: c.now, Exit: model.Exit{Signal: 15}})
		}
		return true
	})
	c.apply(&ended)
	for _, r := range ended.Reports {
		say("job %d is %s", r.Job, c.st.View().Job(r.Job).State)
	}
}

func sayPreempt(say func(string, ...any), plan *model.Plan) {
	for _, v := range plan.Preempt {
		how := "requeue"
		if v.Cancel {
			how = "cancel"
		}
		if v.GraceS > 0 {
			how += fmt.Sprintf(", %d s of grace", v.GraceS)
		}
		if v.NoticeS > 0 {
			how += fmt.Sprintf(", after %d s", v.NoticeS)
		}
		if v.Sleep {
			say("suspend %d for %d", v.Job, v.For)
			continue
		}
		say("end   %d for %d: %s", v.Job, v.For, how)
	}
	for _, id := range plan.Resume {
		say("resume %d", id)
	}
	for _, c := range plan.Claims {
		if c.Claim == nil {
			say("claim of %d is over", c.Job)
		} else {
			say("claim %d in %s on %s", c.Job, c.Claim.Partition, allocLine(c.Claim.Alloc))
		}
	}
}

// TestVictimsAreTheBest: on random small clusters a job on one node ends exactly the set of jobs that an exhaustive
// search over all nodes and sets finds best; a job on several nodes ends no job needlessly.
func TestVictimsAreTheBest(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 60
	}
	single, many := 0, 0
	for seed := range seeds {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 43))}
		c := newCluster(t)
		c.lazy = true
		c.at = fmt.Sprint("seed ", seed)
		c.cfg.Params.Preempt = model.Preempt{ByQOS: true, Mode: "REQUEUE", Strict: seed%3 == 0}
		part := &model.Partition{Name: "p"}
		for i := range 1 + w.n(4) {
			d := &model.NodeDef{Name: fmt.Sprint("n", i), CPUs: int32(pick(w, 4, 8)), ThreadsPerCore: 1, MemMiB: 1000}
			if w.chance(60) {
				d.Gres = []model.GresDef{{Name: "gpu", Count: 4}}
			}
			c.cfg.Nodes = append(c.cfg.Nodes, d)
			part.Nodes = append(part.Nodes, d.Name)
		}
		c.cfg.Partitions = []*model.Partition{part}
		c.up()
		for k, q := range []string{"x", "y", "z"} {
			def := &model.QOS{Name: q, Priority: uint32(k * w.n(2)), UsageFactor: model.FactorOne}
			if q == "z" {
				def.Preempt = []string{"x", "y"}
			}
			c.apply(&state.Accounts{Edits: []model.AcctEdit{{Op: model.PutQOS, QOS: def}}})
		}
		spec := func() *model.Spec {
			sp := &model.Spec{User: "u", Account: "a", Partitions: []string{"p"}, CPUsPerTask: int32(1 + w.n(3)),
				MemPerNode: int64(50 * (1 + w.n(5))), LimitS: 3600, Requeue: true}
			if w.chance(50) {
				sp.Gres = []model.GresReq{{Name: "gpu", Count: int32(1 + w.n(2))}}
			}
			return sp
		}
		for range 30 {
			sp := spec()
			sp.QOS = pick(w, "x", "x", "y", "normal")
			c.apply(&state.Submit{Spec: sp, Priority: uint32(1 + w.n(3))})
			c.now = c.now.Add(int64(w.n(3)))
			c.apply(&state.Starts{Plan: Plan(c.st.View(), c.now, Policy{})})
		}
		var stop state.Stop
		stop.Event = model.EvCancel
		c.st.View().Jobs(func(j *model.Job) bool {
			if j.State == model.Pending {
				stop.Targets = append(stop.Targets, model.JobRef{Job: j.ID, Task: model.NoTask})
			}
			return true
		})
		c.apply(&stop)
		sp := spec()
		sp.QOS, sp.CPUsPerTask = "z", int32(1+w.n(6))
		if w.chance(30) && len(part.Nodes) > 1 {
			sp.MinNodes = int32(2)
			sp.MaxNodes = 2
		}
		id := c.apply(&state.Submit{Spec: sp, Priority: 1}).Job
		v := c.st.View()
		plan := Plan(v, c.now, Policy{})
		if len(plan.Starts) > 0 {
			continue
		}
		var got []model.JobID
		for _, x := range plan.Preempt {
			got = append(got, x.Job)
		}
		slices.Sort(got)
		fits := func(dead []model.JobID) bool {
			without := state.New()
			*without = *restored(t, c.st)
			var end state.Reports
			for _, id := range dead {
				end.Reports = append(end.Reports, state.Report{Kind: state.Ended, Job: id, Attempt: 1, At: c.now})
			}
			without.Apply(state.Command{At: c.now, Body: &end})
			for _, s := range Plan(without.View(), c.now, Policy{}).Starts {
				if s.Job == id {
					return true
				}
			}
			return false
		}
		if sp.MinNodes > 1 {
			if len(got) == 0 {
				continue
			}
			many++
			if !fits(got) {
				t.Fatalf("%s: %v are ended, and job %d does not fit", c.at, got, id)
			}
			for i := range got {
				if rest := slices.Delete(slices.Clone(got), i, i+1); fits(rest) {
					t.Fatalf("%s: of %v, %d is ended in vain", c.at, got, got[i])
				}
			}
			continue
		}
		want := exhaustive(v, fits)
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %v are ended, the best are %v, for %+v", c.at, got, want, sp)
		}
		if len(want) > 0 {
			single++
		}
	}
	if single < seeds/4 || many < seeds/40 {
		t.Errorf("only %d jobs on one node and %d on several found victims", single, many)
	}
}

func restored(t *testing.T, st *state.State) *state.State {
	t.Helper()
	pr := new(bytes.Buffer)
	if err := st.Freeze()(pr); err != nil {
		t.Fatal(err)
	}
	n := state.New()
	if err := n.Restore(pr); err != nil {
		t.Fatal(err)
	}
	return n
}

// exhaustive tries every set of possible victims on every node, and gives the best set, in order of number.
func exhaustive(v *state.View, fits func([]model.JobID) bool) []model.JobID {
	var best []*model.Job
	class := func(j *model.Job) int64 { return int64(v.QOS(j.Spec.QOS).Priority) }
	less := func(a, b *model.Job) int {
		x, y := &victim{j: a, class: class(a), prio: a.Priority}, &victim{j: b, class: class(b), prio: b.Priority}
		return worse(x, y)
	}
	better := func(a, b []*model.Job) bool {
		if b == nil {
			return true
		}
		if v.Config().Params.Preempt.Strict { // the most important first
			for i, k := len(a)-1, len(b)-1; i >= 0 && k >= 0; i, k = i-1, k-1 {
				if c := less(a[i], b[k]); c != 0 {
					return c < 0
				}
			}
			return len(a) < len(b)
		}
		if x, y := class(a[len(a)-1]), class(b[len(b)-1]); x != y {
			return x < y
		}
		if len(a) != len(b) {
			return len(a) < len(b)
		}
		for i := range a {
			if c := less(a[i], b[i]); c != 0 {
				return c < 0
			}
		}
		return false
	}
	v.Nodes(func(n *model.Node) bool {
		var may []*model.Job
		for _, id := range n.Jobs {
			if j := v.Job(id); j.Spec.QOS == "x" || j.Spec.QOS == "y" {
				may = append(may, j)
			}
		}
		for bits := 1; bits < 1<<len(may); bits++ {
			var set []*model.Job
			var ids []model.JobID
			for i, j := range may {
				if bits&(1<<i) != 0 {
					set = append(set, j)
					ids = append(ids, j.ID)
				}
			}
			slices.SortFunc(set, less)
			if better(set, best) && fits(ids) {
				best = set
			}
		}
		return true
	})
	var out []model.JobID
	for _, j := range best {
		out = append(out, j.ID)
	}
	slices.Sort(out)
	return out
}

// TestPreemptionComesToRest: over random histories with preemption no job is ended that may not be, every claim ends in
// a start or is given up, a kept planner plans like a new one, and plans become empty once nothing is submitted any
// more.
func TestPreemptionComesToRest(t *testing.T) {
	seeds := 30
	if testing.Short() {
		seeds = 8
	}
	ended := 0
	for seed := range seeds {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 47))}
		c := w.cluster(t)
		c.cfg.Params.HoldLimits = w.chance(30)
		c.cfg.Params.Preempt = pick(w, model.Preempt{ByQOS: true, Mode: "REQUEUE"},
			model.Preempt{ByPartition: true, Mode: "CANCEL"}, model.Preempt{ByQOS: true, Mode: "REQUEUE", ExemptS: 20})
		cfg := c.cfg
		c.apply(&state.SetConfig{Config: &cfg})
		x, y := w.qos("x"), w.qos("y")
		y.Preempt = []string{"x", "normal"}
		if w.chance(40) {
			y.GuaranteedTRES = w.tres()
		}
		c.apply(&state.Accounts{Edits: []model.AcctEdit{{Op: model.PutQOS, QOS: x}, {Op: model.PutQOS, QOS: y}}})
		planner := NewPlanner()
		pol := Policy{Backfill: Backfill{On: w.chance(70), Reserve: pick(w, 0, 1, -1)}}
		quiet := 0
		for round := range 60 {
			c.at = fmt.Sprintf("seed %d, round %d", seed, round)
			c.now = c.now.Add(int64(1 + w.n(10)))
			if round < 15 {
				for range w.n(10) {
					sp := w.spec(c)
					sp.QOS, sp.LimitS, sp.Requeue = pick(w, "normal", "x", "x", "y"), int64(60*(1+w.n(20))), w.chance(70)
					c.apply(&state.Submit{Spec: sp, Priority: uint32(w.n(2))})
				}
			}
			v := c.st.View()
			plan := planner.Plan(v, c.now, pol)
			if fresh := Plan(v, c.now, pol); !reflect.DeepEqual(plan, fresh) {
				t.Fatalf("%s: a kept planner plans\n%+v, a new one\n%+v", c.at, plan, fresh)
			}
			for _, p := range plan.Preempt {
				victim, robber := v.Job(p.Job), v.Job(p.For)
				if !victim.State.HasResources() || victim.State == model.Completing || robber.State != model.Pending {
					t.Fatalf("%s: job %d (%s) is ended for %d (%s)", c.at, p.Job, victim.State, p.For, robber.State)
				}
				if pr := c.cfg.Params.Preempt; pr.ByQOS && robber.Spec.QOS != "y" || pr.ByQOS && victim.Spec.QOS == "y" ||
					victim.Run.Start.Add(pr.ExemptS) > c.now {
					t.Fatalf("%s: job %d of QOS %s is ended for %d of QOS %s", c.at, p.Job, victim.Spec.QOS, p.For, robber.Spec.QOS)
				}
				ended++
			}
			for i, r := range c.apply(&state.Starts{Plan: plan}).Each {
				if r != state.OK {
					t.Fatalf("%s: start %+v is refused: %s", c.at, plan.Starts[i], r)
				}
			}
			quiet++
			if !plan.Empty() {
				quiet = 0
			}
			var over state.Reports
			c.st.View().Jobs(func(j *model.Job) bool {
				if j.State == model.Completing && w.chance(60) || round < 15 && j.State.HasResources() && w.chance(15) {
					over.Reports = append(over.Reports, state.Report{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: c.now})
				}
				return true
			})
			c.apply(&over)
		}
		if quiet == 0 {
			t.Errorf("seed %d: jobs are still being ended for others", seed)
		}
		c.st.View().Jobs(func(j *model.Job) bool {
			if j.Claim != nil && quiet > 3 {
				t.Errorf("seed %d: job %d waits with a claim, and nobody ends for it", seed, j.ID)
			}
			return true
		})
	}
	if ended < seeds {
		t.Errorf("only %d jobs were ended in %d histories", ended, seeds)
	}
}

// TestVain: a search in vain answers for longer jobs with the same key, one that found that nobody need leave for
// shorter ones, and neither for those between.
func TestVain(t *testing.T) {
	v, key, other := vain{}, vainKey{qos: "a"}, vainKey{qos: "b"}
	v.note(key, 600, false)
	v.note(key, 900, false)
	v.note(key, 60, true)
	for leastS, want := range map[int64]bool{1: true, 60: true, 61: false, 599: false, 600: true, 1 << 40: true} {
		if got := v.has(key, leastS); got != want {
			t.Errorf("%d s: %v, want %v", leastS, got, want)
		}
	}
	if v.has(other, 600) {
		t.Error("a job of another key is not looked at")
	}
}
