package state

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
	"gbatch/internal/price"
)

// storm makes random commands for a state; many of them are nonsense.
type storm struct {
	rng  *rand.Rand
	view *View
	now  model.Time
	top  model.JobID // numbers are drawn up to a little above this
}

const stormNodes = 6

func (g *storm) n(n int) int { return g.rng.IntN(n) }

func (g *storm) chance(percent int) bool { return g.rng.IntN(100) < percent }

func (g *storm) node() string { return fmt.Sprintf("n%d", g.n(stormNodes+1)) }

func (g *storm) id() model.JobID {
	if g.chance(5) {
		return model.JobID(g.rng.Uint32())
	}
	return g.top + 2 - model.JobID(g.n(min(int(g.top)+2, 40)))
}

// array gives an array that is known, if there is one.
func (g *storm) array() model.JobID {
	var ids []model.JobID
	if g.view != nil {
		g.view.arrays.Scan(func(id model.JobID, _ *Array) bool { ids = append(ids, id); return true })
	}
	if len(ids) == 0 {
		return g.id()
	}
	return ids[g.n(len(ids))]
}

func (g *storm) config() *SetConfig {
	c := &model.Config{Cluster: "storm", Params: model.Params{MinJobAgeS: int64(30 * g.n(4)), MemConsumed: g.chance(70),
		ReturnToService: int32(g.n(3)), MaxJobs: 400, HoldLimits: g.chance(60),
		Priority: model.Priority{HalfLifeS: int64(g.n(3) * 100)}}}
	c.Params.Ship.MaxWaiting = 2 * c.Params.MinJobAgeS
	c.Accounts = [][]string{nil, {"acc", "sub"}, {"sub"}, {"acc"}}[c.Params.MinJobAgeS/30]
	c.Params.TrackWCKey = c.Params.MinJobAgeS > 0
	if c.Params.MinJobAgeS > 0 {
		c.Params.ResvProlog, c.Params.ResvEpilog = "/begins", "/ends"
	}
	if c.Params.MinJobAgeS > 30 {
		c.Params.Exits = model.ExitRules{Requeue: []int32{1}, Hold: []int32{2}, Most: int32(c.Params.MinJobAgeS/30 - 3)}
	}
	c.Params.Price = price.Table{MinS: 60, ByPeriod: c.Params.MinJobAgeS > 30, Lines: []price.Line{{Rates: []price.Rate{
		{TRES: "gres/gpu", Micro: 2_000_001, Per: 1}, {TRES: "cpu", Micro: 7, Per: 1}}}},
		Discounts: []price.Discount{{Hours: 1, Keep: 900_000}}}
	r := &c.Params.Rules
	*r = model.NodeRules{NoHold: g.chance(30), ForceRequeue: g.chance(50), NoHoldOnFail: g.chance(30),
		LaunchRetries:  int32(g.n(4)),
		LaunchBackoffS: int64(g.n(20)), LaunchDrain: int32(g.n(4))}
	for _, list := range []*[]string{&r.Prolog, &r.Epilog, &r.CtldProlog, &r.CtldEpilog} {
		if g.chance(40) {
			*list = []string{"/x"}
		}
	}
	var names []string
	for i := range stormNodes {
		if g.chance(90) {
			name := fmt.Sprintf("n%d", i)
			names = append(names, name)
			c.Nodes = append(c.Nodes, &model.NodeDef{Name: name, CPUs: int32(2 + 2*(i%3)), ThreadsPerCore: 1, MemMiB: 1000,
				Gres: []model.GresDef{{Name: "gpu", Type: "a", Count: 2}, {Name: "gpu", Type: "b", First: 2, Count: 2}}})
		}
	}
	for _, p := range []string{"p", "q"} {
		if g.chance(95) {
			c.Partitions = append(c.Partitions,
				&model.Partition{Name: p, Nodes: names, State: model.PartState(g.n(20) / 18),
					QOS:      []string{"", "high", "none"}[g.n(3)],
					ShareMax: int32(g.n(4)), ShareForced: g.chance(50)})
		}
	}
	return &SetConfig{Config: c, Instance: 1}
}

// define changes the definitions that are there, and makes and removes others.
func (g *storm) define() *Define {
	c := &Define{Create: g.chance(20)}
	cfg := g.view.Config()
	for _, d := range cfg.Nodes {
		if g.chance(30) {
			n := *d
			n.Weight, n.Features = int32(g.n(3)), []string{"f"}
			if n.Gres = nil; g.chance(70) {
				n.Gres = []model.GresDef{{Name: "gpu", Type: "a", Count: int32(1 + g.n(4))}}
			}
			c.Nodes = append(c.Nodes, &n)
		} else if g.chance(10) {
			c.DropNodes = append(c.DropNodes, d.Name)
			if n := *d; int64(g.now)%2 == 0 {
				n.Future = true
				c.Future = append(c.Future, &n)
			}
		}
	}
	for _, d := range cfg.Future {
		if n := *d; int64(g.now)%5 == 0 {
			n.Future = false
			c.Nodes = append(c.Nodes, &n)
		}
	}
	if g.chance(30) {
		c.Nodes = append(c.Nodes, &model.NodeDef{Name: g.node(), CPUs: 2, ThreadsPerCore: 1, MemMiB: 1000, Made: true})
	}
	for _, p := range cfg.Partitions {
		if n := *p; g.chance(30) {
			n.State = model.PartState(g.n(4))
			c.Parts = append(c.Parts, &n)
		}
	}
	if name := []string{"p", "q", "r"}[g.n(3)]; g.chance(20) {
		c.DropParts = append(c.DropParts, name)
	} else if g.chance(30) {
		c.Parts = append(c.Parts, &model.Partition{Name: name, Nodes: []string{g.node()}, Made: true})
	}
	return c
}

func (g *storm) deps() []model.Dep {
	var out []model.Dep
	for range g.n(3) {
		d := model.Dep{Kind: model.DepAfter + model.DepKind(g.n(7)), Job: g.id(), Task: model.NoTask}
		switch {
		case d.Kind == model.DepSingleton:
			d.Job = 0
		case g.chance(50):
			d.Job = g.array()
			fallthrough
		case g.chance(30):
			if g.chance(70) {
				break
			}
			d.Task = int32(g.n(6))
		}
		if d.Kind == model.DepAfter && g.chance(50) {
			d.DelayS = int64(g.n(100))
		}
		out = append(out, d)
	}
	return out
}

func (g *storm) begin() model.Time {
	if g.chance(80) {
		return 0
	}
	return g.now.Add(int64(g.n(200) - 50))
}

func (g *storm) spec() *model.Spec {
	sp := &model.Spec{Name: string('a' + rune(g.n(3))), UID: uint32(g.n(2)), User: fmt.Sprint("u", g.n(2)),
		Account: g.account(), QOS: []string{"", "normal", "high", "none"}[g.n(4)],
		Partitions: [][]string{{"p"}, {"q"}, {"p", "q"}, {"q", "p", "q"}, {"gone"}}[g.n(15)/3],
		Requeue:    g.chance(50), KillOnDep: g.chance(30), Exclusive: g.chance(10), DepAny: g.chance(30), Begin: g.begin(),
		WCKey: []string{"", "w0", "*w1", "w9"}[int64(g.now)%4]}
	if g.chance(40) {
		sp.Deps = g.deps()
	}
	if g.chance(30) {
		sp.More = &model.Needs{Share: true}
	}
	if g.chance(30) {
		sp.More = &model.Needs{Mail: &model.MailWish{User: "u", Types: model.MailTypes(g.n(1 << 11))}, NoKill: true}
	}
	if g.chance(30) {
		sp.MinNodes, sp.MaxNodes = 1, 1
		sp.More = &model.Needs{Elastic: &model.Elastic{Max: int32(1 + g.n(5)), GraceS: int64(g.n(3)*20 - 1)}}
		if int64(g.now)%4 == 0 { // no draw, so that the worlds stay the same
			sp.MinNodes, sp.MaxNodes, sp.More.Segment, sp.More.Elastic.Max = 2, 2, 2, 6
			sp.More.NoKill = true
		}
	}
	if g.chance(25) {
		lo := int32(g.n(3))
		sp.Tasklist = model.TaskSet{{Lo: lo, Hi: lo, Step: 1}}
		if g.chance(80) {
			sp.Tasklist = model.TaskSet{{Lo: lo, Hi: lo + int32(1+g.n(6)), Step: 1}}
		}
		sp.Throttle = int32(g.n(4))
		if g.chance(40) {
			sp.Deps = append(sp.Deps, model.Dep{Kind: model.DepAfterCorr, Job: g.array(), Task: model.NoTask})
		}
	}
	return sp
}

// het submits a heterogeneous job.
func (g *storm) het() *SubmitHet {
	c := &SubmitHet{Script: model.Blob{Key: fmt.Sprint("k", g.n(8)), Data: []byte("x")},
		Holder: model.Blob{Key: "k1", Data: []byte("x")}}
	if g.chance(30) {
		c.RequestID = fmt.Sprint("r", g.n(50))
	}
	if g.chance(20) {
		c.Holder.Data = nil
	}
	for range 2 + g.n(3) {
		sp := g.spec()
		sp.Tasklist, sp.Throttle = nil, 0
		c.Parts = append(c.Parts, HetPart{Spec: sp, Priority: uint32(g.n(3)), Hold: model.HoldKind(g.n(20) / 18)})
	}
	return c
}

// together gives starts for all components of a job that may start, or for most of them.
func (g *storm) together() (out []model.Start) {
	var sets []*model.Job
	g.view.Jobs(func(j *model.Job) bool {
		if j.Leads() && IsReady(j) {
			sets = append(sets, j)
		}
		return true
	})
	if len(sets) == 0 {
		return nil
	}
	all, _ := g.view.Together(sets[g.n(len(sets))])
	for _, j := range all {
		st := g.start()
		st.Job, st.Task, st.Partition = j.ID, model.NoTask, j.Spec.Partitions[0]
		if g.chance(97) {
			out = append(out, st)
		}
	}
	return out
}

func (g *storm) targets() []model.JobRef {
	var out []model.JobRef
	for range 1 + g.n(3) {
		t := model.JobRef{Job: g.id(), Task: model.NoTask}
		if j := g.view.Job(t.Job); j != nil && j.Het != nil && g.chance(50) {
			out = append(out, model.JobRef{Job: j.Het.ID, Task: model.NoTask, Het: int32(g.n(4))})
			continue
		}
		switch g.n(4) {
		case 0:
			t.Task = int32(g.n(8))
		case 1:
			lo := int32(g.n(5))
			t.Tasks = model.TaskSet{{Lo: lo, Hi: lo + int32(g.n(4)), Step: 1}}
			if g.chance(10) {
				t.Tasks = append(t.Tasks, model.Range{Lo: 50, Hi: 1 << 30, Step: 3})
			}
		}
		out = append(out, t)
	}
	return out
}

// start places a ready job on a random node, right or wrong.
func (g *storm) start() model.Start {
	st := model.Start{Job: g.id(), Task: model.NoTask, Partition: []string{"p", "q"}[g.n(2)], LimitS: int64(10 + g.n(300))}
	var ready []*model.Job
	g.view.Ready(st.Partition, func(j *model.Job) bool { ready = append(ready, j); return len(ready) < 20 })
	if len(ready) > 0 && g.chance(95) {
		j := ready[g.n(len(ready))]
		st.Job = j.ID
		if j.IsArray() {
			st.Task = j.Tasks.Min()
			if g.chance(30) {
				j.Tasks.Each(func(t int32) bool { st.Task = t; return g.chance(70) })
			}
		}
	}
	if g.chance(3) {
		st.Task = int32(g.n(6))
	}
	st.Alloc = &model.Alloc{}
	for range 1 + g.n(12)/9 {
		na := model.NodeAlloc{Node: g.node(), Tasks: 1, MemMiB: int64(g.n(600))}
		n := g.view.Node(na.Node)
		if n != nil && g.chance(95) {
			na.CPUs = model.UpTo(int(n.Def.CPUs)).Minus(n.UsedCPUs).First(1)
			if g.chance(40) {
				na.CPUs = model.UpTo(int(n.Def.CPUs)).Minus(model.UpTo(g.n(int(n.Def.CPUs)))).First(1 + g.n(2))
			}
			if g.chance(50) {
				na.Gres = []model.GresAlloc{{Name: "gpu", Index: model.UpTo(4).Minus(n.Used("gpu")).First(1)}}
			}
		} else {
			na.CPUs = model.UpTo(g.n(8))
			na.Gres = []model.GresAlloc{{Name: "gpu", Type: "b", Index: model.UpTo(g.n(4))}}
		}
		st.Alloc.Nodes = append(st.Alloc.Nodes, na)
	}
	return st
}

// elastic gives jobs more nodes, and asks for some.
func (g *storm) elastic(p *model.Plan) {
	g.view.Jobs(func(j *model.Job) bool {
		switch {
		case j.Spec.Elastic() == nil || !j.State.HasResources() || !g.chance(40):
		case g.chance(60):
			p.Grow = append(p.Grow, model.Growth{Job: j.ID, Attempt: j.Attempt, Parts: g.start().Alloc.Nodes})
		default:
			a := model.Asking{Job: j.ID, Attempt: j.Attempt, For: g.id()}
			for _, name := range j.Run.Alloc.NodeNames() {
				if g.chance(60) {
					a.Nodes = append(a.Nodes, name)
				}
			}
			p.Ask = append(p.Ask, a)
		}
		return true
	})
}

// resize takes nodes from a job, or gives those of one to another.
func (g *storm) resize() *Resize {
	c := &Resize{Job: g.active(), Attempt: 1, GraceS: int64(g.n(3))}
	var several []*model.Job
	g.view.Jobs(func(j *model.Job) bool {
		if j.State == model.Running && len(j.Run.Alloc.Nodes) > 1 {
			several = append(several, j)
		}
		return true
	})
	if len(several) > 0 && g.chance(80) {
		c.Job = several[g.n(len(several))].ID
	}
	if j := g.view.Job(c.Job); j != nil && j.Run != nil {
		c.Attempt, c.Agree = j.Attempt, j.Run.Recall != nil && g.chance(50)
		for i, name := range j.Run.Alloc.NodeNames() {
			if i == 0 && g.chance(95) || g.chance(40) {
				c.Keep = append(c.Keep, name)
			}
		}
	}
	if g.chance(40) {
		c.Give = g.active()
	}
	return c
}

// active gives a job with resources, most of the time.
func (g *storm) active() model.JobID {
	var ids []model.JobID
	g.view.Jobs(func(j *model.Job) bool {
		if j.State.HasResources() {
			ids = append(ids, j.ID)
		}
		return true
	})
	if len(ids) == 0 || g.chance(10) {
		return g.id()
	}
	return ids[g.n(len(ids))]
}

func (g *storm) report() Report {
	r := Report{Kind: ReportKind(g.n(12)), Job: g.active(), Attempt: uint32(1 + g.n(2)),
		At: g.now - model.Time(g.n(5000)) + 1000}
	if j := g.view.Job(r.Job); j != nil && g.chance(90) {
		r.Attempt = j.Attempt
		if g.chance(10) {
			r.Attempt--
		}
		if j.Run != nil && len(j.Run.Alloc.Nodes) > 1 && g.chance(60) {
			na := j.Run.Alloc.Nodes[g.n(len(j.Run.Alloc.Nodes))]
			r.Node, r.Since = na.Node, na.Since
		}
		if j.Run != nil && len(j.Run.Leaving) > 0 && g.chance(50) {
			r.Node, r.Since = j.Run.Leaving[0].Part.Node, j.Run.Leaving[0].Part.Since
		}
	}
	if g.chance(5) {
		r.Node = g.node()
	}
	if g.chance(30) {
		r.Exit = model.Exit{Code: int32(g.n(3)), Signal: int32(g.n(2) * 9), Unknown: g.chance(10), OOM: g.chance(10)}
	}
	return r
}

func (g *storm) join() *Join {
	j := &Join{Node: g.node(), BootID: fmt.Sprint("b", g.n(12)/11)}
	if g.chance(10) {
		j.Problem = "Low RealMemory"
	}
	if n := g.view.Node(j.Node); n != nil {
		for _, id := range n.Jobs {
			if job := g.view.Job(id); g.chance(80) && job != nil {
				j.Known = append(j.Known, Report{Job: id, Attempt: job.Attempt})
			}
		}
	}
	return j
}

// era adds what gdbd has of some jobs. The values follow from the time: earlier storms stay as they were.
func (g *storm) era(c *NewEra) *NewEra {
	of := int64(g.now)
	if c.Restored = of%4 > 0; !c.Restored {
		return c
	}
	g.view.Jobs(func(j *model.Job) bool {
		of = of*48271%(1<<31-1) + 1
		if j.State.Finished() || of%3 == 0 {
			return true
		}
		r := FoundRun{Job: j.ID, Attempt: j.Attempt + uint32(of%2), Restarts: j.Restarts,
			Start: g.now - model.Time(of%5000)*5, State: model.Running}
		if of%7 > 1 {
			r.State = model.Completed + model.JobState(of%int64(model.Resizing-model.Completed))
			r.End = g.now - model.Time(of%3000)
			r.Exit = model.Exit{Code: int32(of % 3)}
		}
		if j.IsArray() {
			r.Array, r.Task = j.ArrayID, j.Tasks.Min()
			if of%11 < 7 {
				r.Job = c.NextJob - model.JobID(of%4)
			}
		}
		c.Found = append(c.Found, r)
		return true
	})
	return c
}

func (g *storm) account() string { return []string{"acc", "sub", "root"}[g.n(3)] }

// minutes gives a limit in minutes now and then.
func (g *storm) minutes() []model.TRESLimit {
	if g.chance(60) {
		return nil
	}
	return []model.TRESLimit{{TRES: []string{"cpu", "gres/gpu", "mem", "billing"}[g.n(4)], Count: int64(g.n(12))}}
}

// acctEdit makes one edit of accounts.
func (g *storm) acctEdit() model.AcctEdit {
	qos := []string{"normal", "high", "batch"}[g.n(3)]
	return model.AcctEdit{Op: model.AcctOp(1 + g.n(9)), Account: &model.Account{Name: g.account(), Parent: g.account()},
		User: &model.User{Name: fmt.Sprint("u", g.n(2)), DefaultAccount: []string{"", g.account()}[g.n(2)]},
		Assoc: &model.Association{Account: g.account(), User: []string{"", "u0", "u1"}[g.n(3)],
			Partition: []string{"", "", "p"}[g.n(3)],
			Shares:    1, DefQOS: []string{"", qos}[g.n(2)], GrpTRESMins: g.minutes(), MaxTRESMins: g.minutes(),
			GrpWallS:  model.Limit(g.n(5) / 4 * 240),
			GrpAccrue: model.Limit(g.n(8)), MaxAccrue: model.Limit(g.n(8) / 3)},
		QOS: &model.QOS{Name: qos, Flags: model.QOSFlags(g.n(2)) * model.QOSNoDecay, UsageFactor: int64(g.n(3)) * 500_000,
			Preempt:     []string{"high"},
			GrpTRESMins: g.minutes(), MaxTRESMins: g.minutes(), GrpWallS: model.Limit(g.n(5) / 4 * 180),
			LimitFactor: int64(g.n(4)/2) * 1_500_000,
			GrpSubmit:   model.Limit(g.n(3) / 2 * 20), MaxSubmitPerUser: model.Limit(g.n(4) / 3 * 10),
			GrpAccrue: model.Limit(g.n(12) / 2), MaxAccruePerUser: model.Limit(g.n(8) / 2),
			MaxAccruePerAccount: model.Limit(g.n(8) / 2)}}
}

// next makes one command, or a few of one request, which may have been made before.
func (g *storm) next(st *State) Body {
	if !g.chance(12) {
		return g.one(st)
	}
	c := &Once{Key: fmt.Sprint("k", g.n(40)), Step: OnceStep(1 + g.n(20)/18), Reply: []byte("r")}
	if g.chance(10) {
		c.Step = OnceFinish
	}
	for range (1 + g.n(3)) * int(OnceFinish-c.Step) / 2 {
		c.Step = OnceMake
		if part, err := Encode(g.now, g.one(st)); err == nil { // some of its specifications are too long
			c.Parts = append(c.Parts, part)
		}
	}
	if c.Step == OnceMake && len(c.Parts) == 0 {
		c.Step = OnceBegin
	}
	for range g.n(3) {
		c.Spots = append(c.Spots, int32(g.n(5)))
	}
	return c
}

// one makes one command.
func (g *storm) one(st *State) Body {
	g.view = st.View()
	g.top = st.nextID
	g.now += model.Time(g.n(3000))
	switch k := g.n(100); {
	case k < 22:
		if g.chance(15) {
			return g.het()
		}
		sp := g.spec()
		c := &Submit{Spec: sp, Priority: uint32(g.n(3)), Hold: model.HoldKind(g.n(20) / 18)}
		if g.chance(30) {
			c.RequestID = fmt.Sprint("r", g.n(50))
		}
		if g.chance(60) {
			c.Script = model.Blob{Key: fmt.Sprint("k", g.n(8)), Data: []byte("x")}
			c.Env = model.Blob{Key: fmt.Sprint("k", g.n(8)), Data: []byte("x")}
		}
		if g.chance(20) {
			c.Script.Data = nil
		}
		return c
	case k < 42:
		c := &Starts{Epoch: uint64(g.n(3))}
		for range 1 + g.n(4) {
			c.Plan.Starts = append(c.Plan.Starts, g.start())
		}
		if g.chance(40) {
			c.Plan.Starts = append(c.Plan.Starts, g.together()...)
		}
		for range g.n(10) / 7 {
			p := model.Preemption{Job: g.active(), For: g.id(), Cancel: g.chance(50), GraceS: int64(g.n(50)),
				Sleep: g.chance(60)}
			if p.Cancel { // no draw, so that the storms stay the same
				p.NoticeS = p.GraceS
			}
			c.Plan.Preempt = append(c.Plan.Preempt, p)
			claim := model.ClaimSet{Job: g.id()}
			if g.chance(70) {
				claim.Claim = &model.Claim{Partition: "p", Alloc: g.start().Alloc}
			}
			c.Plan.Claims = append(c.Plan.Claims, claim)
		}
		if g.chance(50) {
			c.Plan.Resume = []model.JobID{g.active(), g.active()}
		}
		g.elastic(&c.Plan)
		for range g.n(3) {
			c.Plan.Reasons = append(c.Plan.Reasons, model.ReasonSet{Job: g.id(), Reason: model.Reason(1 + g.n(3))})
		}
		return c
	case k < 62:
		c := &Reports{}
		for range 1 + g.n(4) {
			c.Reports = append(c.Reports, g.report())
			if g.chance(15) {
				c.Reports = append(c.Reports, Report{Kind: StepEnded, Job: g.active(), Attempt: uint32(g.n(3)),
					Step: &model.Step{ID: int32(g.n(3)), Start: 1, End: 2, Tasks: 1}})
			}
		}
		return c
	case k < 70:
		return &Stop{Targets: g.targets(), Event: model.Event(1 + g.n(11)), Hold: g.chance(30), UID: uint32(g.n(3))}
	case k < 72:
		if g.chance(70) {
			return g.resize()
		}
		c := &Suspend{Resume: g.chance(40)}
		for range g.n(3) {
			c.Targets = append(c.Targets, model.JobRef{Job: g.active(), Task: model.NoTask})
			c.Turn.Sleep, c.Turn.Wake = append(c.Turn.Sleep, g.active()), append(c.Turn.Wake, g.active())
		}
		return c
	case k < 74:
		x := &Stop{Targets: g.targets(), Event: []model.Event{model.EvCancel, model.EvRequeue}[g.n(2)], UID: uint32(g.n(3))}
		if g.chance(20) { // its command gives it back
			x.Fate = &model.Fate{Code: int32(g.n(3))}
		}
		return x
	case k < 82:
		c := &Edit{Targets: g.targets(), Hold: model.HoldKind(g.n(3)), Priority: uint32(g.n(4)), Begin: g.begin(),
			LimitS:   int64(g.n(100)),
			Throttle: int32(g.n(3)), Deps: g.deps(), Comment: "c", Spec: g.spec()}
		for range 1 + g.n(3) {
			c.Set = append(c.Set, SetHold+Field(g.n(8)))
		}
		return c
	case k < 88:
		return g.join()
	case k < 89:
		return &NodeHealth{Node: g.node(), Problem: []string{"", "", "disk"}[g.n(3)]}
	case k < 90:
		return &Lost{Nodes: []string{g.node(), g.node()}}
	case k < 91:
		u := &Units{Node: g.node()}
		for range g.n(4) {
			u.Tells = append(u.Tells, model.UnitTell{Name: "gpu", Index: int32(g.n(3)), Kind: model.OutFault +
				model.OutKind(g.n(2)), Stamp: uint64(g.n(5)), Text: "t"})
		}
		return u
	case k < 92:
		return &NodeEdit{Nodes: []string{g.node()}, Admin: model.NodeAdmin(g.n(2)), Gres: "gpu",
			Units: []int32{int32(g.n(3)), int32(g.n(3))}, By: "root"}
	case k < 93:
		e := &NodeEdit{Nodes: []string{g.node(), g.node()}, Admin: model.NodeAdmin(g.n(3)), Keep: g.chance(10),
			Reason: []string{"", "x"}[g.n(2)], By: "root"}
		e.ResumeS = int64(len(e.Reason)) * 40
		return e
	case k < 94:
		switch g.n(5) {
		case 0, 1:
			return g.define()
		case 2:
			return &Reboots{Nodes: []string{g.node(), g.node()}, Op: RebootOp(g.n(5)), ASAP: g.chance(50),
				Next: model.RebootNext(g.n(3)), Reason: []string{"", "r"}[g.n(2)], By: "root"}
		}
		return g.config()
	case k < 96:
		last := uint64(0)
		g.view.Outbox(0, func(e Event) bool { last = e.Seq; return g.chance(90) })
		if g.chance(50) {
			g.view.Mails(func(seq uint64, _ *Mail) bool { last = seq; return g.chance(80) })
			return &Mailed{Seq: last}
		}
		if turns := g.view.ResvTurns(); len(turns) > 0 && int64(g.now)%3 == 0 {
			return &ResvTold{Seqs: []uint64{turns[0].Seq}}
		}
		if g.chance(5) {
			return g.era(&NewEra{Number: uint64(g.n(20)), NextJob: model.JobID(g.n(50))})
		}
		of := int64(last) // the values follow from it: earlier storms stay as they were
		return &Trim{Seq: last, Acked: of%3 != 0, From: last % 5, Keep: of % 31, KeepBytes: of * 997 % 40_000,
			KeepS: of * 31 % 2000}
	case k < 98:
		if of := int64(g.now) % 8; of < 3 { // the values follow from the time, as above
			number := g.view.NextInvoice() + uint64(of)/2
			bills := []price.Bill{{Account: "acc", Rate: price.Rate{TRES: "cpu", Micro: 7, Per: 1}, Net: price.Money(of)}}
			return []Body{&Credit{price.Ledger{Op: price.AddCredit, Account: "acc", Amount: 1000}},
				&Credit{price.Ledger{Op: price.SetBudget, Account: "sub", Amount: 500}},
				&Issue{price.Invoice{Number: number, Account: "acc", Start: int64(g.now), End: int64(g.now) + 5, Bills: bills,
					Total: price.Total(bills)}}}[of]
		}
		c := &Accounts{}
		if g.chance(20) {
			c.Gen = uint64(g.n(10))
		}
		for range 1 + g.n(3) {
			c.Edits = append(c.Edits, g.acctEdit())
		}
		if of := int64(g.now) % 6; of < 4 { // the values follow from the time, as above
			op := model.PutWCKey
			if of == 3 {
				op = model.DropWCKey
			}
			c.Edits = append(c.Edits, model.AcctEdit{Op: op, WCKey: &model.WCKey{User: fmt.Sprint("u", of%2),
				Name: fmt.Sprint("w", int64(g.now)%3)}})
		}
		if of := int64(g.now) % 11; of < 3 {
			c.Edits = append(c.Edits, model.AcctEdit{Op: model.RenameUser, User: &model.User{Name: fmt.Sprint("u", of)},
				NewName: fmt.Sprint("u", int64(g.now)%4)})
		}
		return c
	default:
		g.now += model.Time(g.n(60_000))
		if n := int64(g.now) % 5; n < 3 && g.view != nil {
			return g.triggers(n)
		}
		return &Tick{Limit: int32(g.n(20))}
	}
}

// triggers makes a command about triggers. It draws nothing from rng.
func (g *storm) triggers(kind int64) *Triggers {
	n := int64(g.now) / 5
	var ids []uint32
	c := &Triggers{}
	g.view.triggers.all.Scan(func(id uint32, t *model.Trigger) bool {
		ids = append(ids, id)
		if len(t.Hits) > 0 && n%3 > 0 {
			c.Ran = append(c.Ran, TriggerRan{ID: id, Gen: g.view.gen - uint64(n%3)})
		}
		return true
	})
	switch {
	case kind == 0 && len(c.Ran) > 0:
		c.Op = RanTriggers
	case kind == 1 && len(ids) > 0 && n%4 == 0:
		c.Op, c.IDs = DropTriggers, ids[:1]
	case kind == 1 && len(ids) > 0 && n%4 == 1:
		c.Op = HitTriggers
		for _, id := range ids {
			c.Hits = append(c.Hits, TimeHit{ID: id, Nodes: []string{"n1", "n3"}, By: g.now})
		}
	case kind == 1 && n%4 == 2:
		c.Op, c.Seen = SeeDaemons, &model.Daemons{Controllers: []string{"c1", "c2"}, Leader: "c1", DbdLost: n%8 == 2}
		if n%3 == 0 {
			c.Seen.Leader, c.Seen.Lost = "c2", []string{"c1"}
		}
	default:
		t := &model.Trigger{UID: uint32(n % 3), Of: model.TriggerOf(1 + n%5), Perm: n%7 == 0, Program: fmt.Sprint("/p", n%11),
			OffsetS: n%30 - 10}
		t.Events = t.Of.Events()
		if t.Of == model.TriggerJob {
			t.Job = max(g.top-min(model.JobID(n%9), g.top), 1)
		}
		if t.Of == model.TriggerNode && n%2 == 0 {
			t.Nodes = "n[0-3]"
		}
		c.Op, c.Set, c.Ran = SetTrigger, t, nil
	}
	return c
}

// TestRandomCommands: after every one of thousands of random commands all invariants hold, and replicas with the same
// log are equal, however often they were restored from a snapshot.
func TestRandomCommands(t *testing.T) {
	seeds, steps := 12, 400
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			g := &storm{rng: rand.New(rand.NewPCG(uint64(seed), 7)), now: epoch}
			s.apply(g.config())
			for i := range stormNodes {
				s.apply(&Join{Node: fmt.Sprintf("n%d", i), BootID: "b0"})
			}
			for step := range steps {
				b := g.next(s.st)
				s.now, s.at = g.now, fmt.Sprintf("seed %d, step %d: %T %+v", seed, step, b, b)
				s.apply(b)
				if _, ok := b.(*Tick); ok {
					nobodyOverspends(t, s)
				}
				if t.Failed() {
					return
				}
			}
			s.replicas()
			if s.st.View().JobCount() < 5 || s.st.nextID < 50 {
				t.Errorf("the storm left only %d jobs of %d", s.st.View().JobCount(), s.st.nextID)
			}
		})
	}
}

// TestRestoredGoesOn: a replica restored in the middle of a long log behaves like the others ever after.
func TestRestoredGoesOn(t *testing.T) {
	g := &storm{rng: rand.New(rand.NewPCG(99, 1)), now: epoch}
	a, b := New(), New()
	apply := func(body Body, states ...*State) {
		data, err := Encode(g.now, body)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range states {
			c, err := Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			st.Apply(c)
		}
	}
	apply(g.config(), a, b)
	for i := range stormNodes {
		apply(&Join{Node: fmt.Sprintf("n%d", i), BootID: "b0"}, a, b)
	}
	var c *State
	for step := range 4000 {
		if step == 2000 {
			c = restored(t, a)
			if !bytes.Equal(snapshot(t, a), snapshot(t, c)) {
				t.Fatal("a restored state writes another snapshot")
			}
		}
		body := g.next(a)
		apply(body, a, b)
		if c != nil {
			apply(body, c)
		}
	}
	want := snapshot(t, a)
	if !bytes.Equal(want, snapshot(t, b)) || !bytes.Equal(want, snapshot(t, c)) {
		t.Error("replicas differ")
	}
	for _, st := range []*State{a, b, c} {
		if err := st.Check(); err != nil {
			t.Error(err)
		}
	}
}

// TestViewsNeverChange: a view shows the same facts at the end as when it was taken, also to readers during Apply.
func TestViewsNeverChange(t *testing.T) {
	g := &storm{rng: rand.New(rand.NewPCG(5, 5)), now: epoch}
	st := New()
	apply := func(b Body) { st.Apply(Command{At: g.now, Body: b}) }
	apply(g.config())
	for i := range stormNodes {
		apply(&Join{Node: fmt.Sprintf("n%d", i), BootID: "b0"})
	}
	type moment struct {
		v    *View
		show []byte
	}
	var taken []moment
	var readers sync.WaitGroup
	for step := range 1500 {
		apply(g.next(st))
		if step%50 == 0 {
			v := st.View()
			m := moment{v, show(t, v)}
			taken = append(taken, m)
			readers.Add(1)
			go func() {
				defer readers.Done()
				for range 3 {
					if !bytes.Equal(show(t, v), m.show) {
						t.Error("a view changed under a reader")
					}
				}
			}()
		}
	}
	readers.Wait()
	for i, m := range taken {
		if !bytes.Equal(show(t, m.v), m.show) {
			t.Errorf("view %d of %d changed", i, len(taken))
		}
	}
}

// show gives all that a view holds.
func show(t *testing.T, v *View) []byte {
	t.Helper()
	var b bytes.Buffer
	f := &frozen{v, new(btree.Map[uint64, string]), new(btree.Map[model.JobID, uint64]),
		new(btree.Map[uint64, string]), false}
	if err := f.write(&b); err != nil {
		t.Error(err)
	}
	for _, p := range []string{"p", "q", "gone"} {
		v.Ready(p, func(j *model.Job) bool { fmt.Fprintln(&b, p, j.ID, j.Priority); return true })
	}
	v.Moving(func(j *model.Job) bool { fmt.Fprintln(&b, j.ID, j.State); return true })
	fmt.Fprintln(&b, v.Gen(), v.NextDue(), v.Active(), v.Pending(), v.JobCount(), v.OutboxLen(), v.ReadyLen("p"))
	for id := range model.JobID(60) {
		v.Tasks(id, func(j *model.Job) bool { fmt.Fprintln(&b, id, j.ID, j.Task, j.Tasks); return true })
		for task := range int32(4) {
			if j := v.TaskRecord(id, task); j != nil {
				fmt.Fprintln(&b, id, task, j.ID)
			}
		}
	}
	return b.Bytes()
}
