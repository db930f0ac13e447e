package sched

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/sched/demand"
	"gbatch/internal/state"
)

// backfill gives random policies with backfill.
func (w *world) backfill() Policy {
	pol := Policy{Backfill: Backfill{On: true, Reserve: pick(w, 1, 1, 2, 5, -1), ShortestFirst: w.chance(30)}}
	bf := &pol.Backfill
	if w.chance(30) {
		bf.ResolutionS = int64(pick(w, 1, 10, 60))
	}
	if w.chance(20) {
		bf.WindowS = int64(pick(w, 30, 100, 1000))
	}
	if w.chance(20) {
		bf.MaxTest = 1 + w.n(10)
	}
	if w.chance(10) {
		bf.MaxUser, bf.MaxPart, bf.MaxUserPart, bf.MaxAssoc = w.n(4), w.n(6), w.n(4), w.n(8)
	}
	if w.chance(10) {
		bf.MaxStart = 1 + w.n(3)
	}
	bf.BusyNodes = w.chance(20)
	bf.MaxArrayResv = w.n(4)
	if w.chance(10) {
		bf.MinAgeS = int64(w.n(50))
	}
	return pol
}

// history simulates a random cluster: jobs are submitted, end before, at or after their limits, and are cancelled, held
// and edited; nodes go and come back. each is called once a round, before the round's plan is applied.
func history(t *testing.T, seed int, rounds int, each func(c *cluster, w *world, v *state.View) model.Plan) {
	live(t, &world{rng: rand.New(rand.NewPCG(uint64(seed), 11)), hets: seed%3 == 2, sockets: seed%4 == 1,
		yields: seed < 1000 && seed%5 == 3}, seed, rounds, each)
}

// live is history with a given world.
func live(t *testing.T, w *world, seed int, rounds int, each func(c *cluster, w *world, v *state.View) model.Plan) {
	c := w.cluster(t)
	if seed%2 == 1 && seed < 1000 { // in half of the worlds jobs suspend others
		c.cfg.Params.Preempt = model.Preempt{ByPartition: true, Mode: modeSuspend}
		for _, p := range c.cfg.Partitions {
			p.PriorityTier = int32(1 + w.n(3))
		}
		c.up()
	}
	for round := range rounds {
		c.at = fmt.Sprintf("seed %d, round %d", seed, round)
		if w.yields && round%8 == 0 {
			w.reserve(c, round == 0)
		}
		for range w.n(8) {
			sp := w.spec(c)
			if w.yields && w.chance(30) {
				sp.Reservation = "r"
			} else if w.yields && w.chance(50) {
				sp.Warning = &model.Warning{Signal: 10, BeforeS: int64(pick(w, 0, 30, 90)), Yields: true}
			}
			if w.chance(85) {
				sp.LimitS = int64(5 + w.n(200))
			}
			if w.chance(15) {
				m := sp.Extra()
				m.TimeMinS = int64(1 + w.n(100))
				sp.More = &m
			}
			if w.chance(10) {
				sp.Deadline = c.now.Add(int64(1 + w.n(300)))
			}
			c.apply(&state.Submit{Spec: sp, Priority: uint32(w.n(3))})
		}
		if w.hets && w.chance(50) {
			c.apply(w.het(c))
		}
		if w.chance(20) { // a pass in between, whose plan is not applied
			each(c, w, c.st.View())
		}
		plan := each(c, w, c.st.View())
		res := c.apply(&state.Starts{Plan: plan})
		for i, r := range res.Each {
			if r != state.OK {
				t.Fatalf("%s: %s is refused: %s", c.at, startLine(&plan.Starts[i]), r)
			}
		}
		c.now += model.Time(1000 * w.n(40))
		w.happen(c)
	}
}

// reserve makes a reservation whose jobs others may give way to, or one that has none of these.
func (w *world) reserve(c *cluster, first bool) {
	r := &model.Reservation{Name: "r", Start: c.now, End: c.now.Add(100_000), Users: []string{"u"},
		DelayS: int64(pick(w, 0, 60, 60, 120))}
	for i, d := range c.cfg.Nodes {
		if i == 0 || w.chance(50) {
			r.Nodes = append(r.Nodes, d.Name)
		}
	}
	if !first {
		c.apply(&state.Reserve{Op: state.DropResv, Resv: &model.Reservation{Name: "r"}})
	}
	c.apply(&state.Reserve{Op: state.CreateResv, Resv: r})
}

// het gives a submission of a heterogeneous job.
func (w *world) het(c *cluster) *state.SubmitHet {
	rq := &state.SubmitHet{}
	for range 2 + w.n(2) {
		sp := w.spec(c)
		sp.Tasklist, sp.Throttle = nil, 0
		if w.chance(85) {
			sp.LimitS = int64(5 + w.n(200))
		}
		rq.Parts = append(rq.Parts, state.HetPart{Spec: sp, Priority: uint32(w.n(3))})
	}
	if len(rq.Parts) == 2 { // no draw, so that the worlds stay the same
		for i := range rq.Parts {
			sp := rq.Parts[i].Spec
			m := sp.Extra()
			m.Expedite = true
			sp.Requeue, sp.More = true, &m
		}
	}
	return rq
}

// happen applies some random events.
func (w *world) happen(c *cluster) {
	var ended state.Reports
	var stop state.Stop
	stop.Event = model.EvCancel
	edit := state.Edit{Set: []state.Field{state.SetPriority}, Priority: uint32(w.n(4))}
	limit := state.Edit{Set: []state.Field{state.SetLimit}, LimitS: int64(5 + w.n(100))}
	c.st.View().Jobs(func(j *model.Job) bool {
		target := model.JobRef{Job: j.ID, Task: model.NoTask}
		switch {
		case j.State.HasResources() && (w.chance(25) || j.Run.Deadline() != 0 && j.Run.Deadline() < c.now && w.chance(80)):
			ended.Reports = append(ended.Reports, state.Report{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: c.now})
		case j.State.Finished():
		case w.chance(3):
			stop.Targets = append(stop.Targets, target)
		case j.State == model.Pending && w.chance(4):
			edit.Targets = append(edit.Targets, target)
		case w.chance(3):
			limit.Targets = append(limit.Targets, target)
		}
		return true
	})
	c.apply(&ended)
	c.apply(&stop)
	var begun state.Reports
	sleep := []*state.Suspend{{}, {Resume: true}}
	c.st.View().Jobs(func(j *model.Job) bool {
		switch {
		case j.State == model.Configuring && w.chance(70):
			begun.Reports = append(begun.Reports, state.Report{Kind: state.Started, Job: j.ID, Attempt: j.Attempt, At: c.now})
		case j.State == model.Running && w.chance(6):
			sleep[0].Targets = append(sleep[0].Targets, model.JobRef{Job: j.ID, Task: model.NoTask})
		case j.State == model.Suspended && w.chance(30):
			sleep[1].Targets = append(sleep[1].Targets, model.JobRef{Job: j.ID, Task: model.NoTask})
		case j.State == model.Running && w.chance(6):
			sleep[0].Turn.Sleep = append(sleep[0].Turn.Sleep, j.ID)
		case j.State == model.Suspended && w.chance(40):
			sleep[0].Turn.Wake = append(sleep[0].Turn.Wake, j.ID)
		}
		return true
	})
	c.apply(&begun)
	c.apply(sleep[0])
	c.apply(sleep[1])
	c.apply(&edit)
	c.apply(&limit)
	nodes := c.cfg.Nodes
	name := nodes[w.n(len(nodes))].Name
	switch w.n(14) {
	case 0:
		c.apply(&state.NodeEdit{Nodes: []string{name}, Admin: model.NodeDrain, Reason: "r", By: "root"})
	case 1, 2:
		for _, n := range nodes {
			c.apply(&state.NodeEdit{Nodes: []string{n.Name}, Admin: model.NodeUp, By: "root"})
			c.apply(&state.Join{Node: n.Name, BootID: "b", Known: known(c)})
		}
	case 3:
		c.apply(&state.Lost{Nodes: []string{name}})
	case 4:
		c.up()
	case 5, 6:
		c.apply(&state.NodeEdit{Nodes: []string{name}, Admin: pick(w, model.NodeDrain, model.NodeUp), Gres: "gpu",
			Units: []int32{int32(w.n(4))}, Reason: "r", By: "root"})
	case 7:
		c.apply(&state.Units{Node: name,
			Tells: []model.UnitTell{{Name: "gpu", Index: int32(w.n(4)), Kind: pick(w, model.OutFault, model.OutInUse),
				Stamp: uint64(c.now)}}})
	}
}

func known(c *cluster) (out []state.Report) {
	c.st.View().Jobs(func(j *model.Job) bool {
		if j.State.HasResources() {
			out = append(out, state.Report{Kind: state.Started, Job: j.ID, Attempt: j.Attempt, At: c.now})
		}
		return true
	})
	return out
}

// TestKeptPlannerEqualsFresh: a planner that is kept from pass to pass makes the same plans as a new one, and as one
// that caches nothing between jobs.
func TestKeptPlannerEqualsFresh(t *testing.T) {
	seeds := 120
	if testing.Short() {
		seeds = 25
	}
	starts, weighed := 0, 0
	for seed := range seeds {
		kept, pol, asked := NewPlanner(), Policy{}, demand.NewWatch(Wants)
		history(t, seed, 25, func(c *cluster, w *world, v *state.View) model.Plan {
			asked.Refresh(v)
			if kept.pass == 0 || w.chance(10) {
				if pol = (Policy{}); w.chance(75) {
					pol = w.backfill()
				}
			}
			if seed%2 == 1 { // nodes are chosen by what jobs ask for
				pol.Demand = asked.Mix()
			}
			if pol.Demand != nil {
				weighed++
			}
			plan := kept.Plan(v, c.now, pol)
			if fresh := Plan(v, c.now, pol); !reflect.DeepEqual(plan, fresh) {
				t.Fatalf("%s: %+v\na kept planner: %s\na fresh one:    %s", c.at, pol, planText(plan), planText(fresh))
			}
			forgetful := NewPlanner()
			forgetful.forgetful = true
			if fresh := forgetful.Plan(v, c.now, pol); !reflect.DeepEqual(plan, fresh) {
				t.Fatalf("%s: %+v\na kept planner:    %s\na forgetful one:   %s", c.at, pol, planText(plan), planText(fresh))
			}
			starts += len(plan.Starts)
			return plan
		})
	}
	if starts < seeds*20 || weighed < seeds {
		t.Errorf("only %d starts, and %d plans with a mix", starts, weighed)
	}
}

func planText(plan model.Plan) (text string) {
	for i := range plan.Starts {
		text += "\n  start " + startLine(&plan.Starts[i])
	}
	for _, x := range plan.Preempt {
		text += fmt.Sprintf("\n  preempt %+v", x)
	}
	for _, x := range plan.Claims {
		text += fmt.Sprintf("\n  claim %+v", x)
	}
	text += fmt.Sprintf("\n  resume %v", plan.Resume)
	for _, r := range plan.Reasons {
		text += fmt.Sprintf("\n  %d %s %s", r.Job, r.Reason, r.Why)
	}
	return text
}

// TestNobodyDelaysReservations checks plans with backfill against the reservations that they make. If all jobs end at
// their expected ends, and no job starts but the plan's starts, each reserved job fits on its nodes at its moment: no
// count of a node's calendar is ever below zero.
func TestNobodyDelaysReservations(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 15
	}
	reserved, ahead := 0, 0
	for seed := range seeds {
		kept, pol := NewPlanner(), Policy{}
		history(t, 1000+seed, 20, func(c *cluster, w *world, v *state.View) model.Plan {
			if kept.pass == 0 || w.chance(10) {
				pol = w.backfill()
				pol.Backfill.Keep = w.chance(20)
			}
			plan := kept.Plan(v, c.now, pol)
			for _, n := range kept.nodes {
				cur := &kept.cursor
				cur.begin(n, c.now)
				for {
					if cur.cpus < 0 || cur.mem < 0 && c.cfg.Params.MemConsumed ||
						slices.ContainsFunc(cur.gres, func(g int) bool { return g < 0 }) {
						t.Fatalf("%s: %+v: node %s is promised twice: %+v\n%+v", c.at, pol, n.def.Name, cur.counts, n.steps)
					}
					if _, ok := cur.next(); !ok {
						break
					}
				}
				reserved += n.resvs
			}
			ahead += kept.ahead
			return plan
		})
	}
	if reserved < seeds*10 || ahead < seeds {
		t.Errorf("only %d reservations and %d jobs that overtook", reserved, ahead)
	}
}

// TestBackfillKeepsTheShadow: under EASY the first blocked job starts no later than its first reservation said,
// whatever is submitted behind it, as long as all jobs end by their limits.
func TestBackfillKeepsTheShadow(t *testing.T) {
	for seed := range 40 {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 77))}
		c := newCluster(t)
		c.lazy = true
		for i := range 1 + w.n(4) {
			c.cfg.Nodes = append(c.cfg.Nodes,
				&model.NodeDef{Name: fmt.Sprintf("n%d", i), CPUs: int32(pick(w, 4, 8)), ThreadsPerCore: 1, MemMiB: 8000,
					Gres: []model.GresDef{{Name: "gpu", Type: "a", Count: int32(w.n(5))}}})
		}
		c.part(words{c: c, plain: []string{"p"}, named: map[string]string{}})
		c.up()
		pl := NewPlanner()
		pol := Policy{Backfill: Backfill{On: true, Reserve: pick(w, 1, 1, 3, -1)}}
		promised := map[model.JobID]model.Time{}
		var first model.JobID
		for round := range 60 {
			c.at = fmt.Sprintf("seed %d, round %d", seed, round)
			for range w.n(4) {
				n := int32(1 + w.n(len(c.cfg.Nodes)))
				c.apply(&state.Submit{Priority: 1,
					Spec: &model.Spec{User: "u", Partitions: []string{"p"}, MinNodes: n, MaxNodes: n, Tasks: n,
						CPUsPerTask: int32(1 + w.n(4)),
						LimitS:      int64(5 + w.n(100)), Gres: []model.GresReq{{Name: "gpu", Count: int32(w.n(3))}}}})
			}
			plan := pl.Plan(c.st.View(), c.now, pol)
			c.apply(&state.Starts{Plan: plan})
			for _, s := range plan.Starts {
				if at, ok := promised[s.Job]; ok && s.Job == first && c.now > at {
					t.Fatalf("%s: job %d was promised +%d and starts at +%d", c.at, s.Job, (at-epoch)/1000, (c.now-epoch)/1000)
				}
			}
			first = 0
			c.st.View().Ready("p", func(j *model.Job) bool {
				at, _, ok := pl.Expected(j.ID)
				if !ok {
					return true // it can never run here
				}
				if old, known := promised[j.ID]; first == 0 && (!known || at < old) {
					promised[j.ID] = at
				} else if first == 0 && at > old {
					t.Fatalf("%s: job %d was promised +%d, now +%d", c.at, j.ID, (old-epoch)/1000, (at-epoch)/1000)
				}
				if first == 0 {
					first = j.ID
				}
				return false
			})
			next := c.now.Add(int64(1 + w.n(30)))
			c.st.View().Jobs(func(j *model.Job) bool {
				if j.State.HasResources() {
					next = min(next, j.Run.Deadline())
				}
				return true
			})
			c.now = next
			var ended state.Reports
			c.st.View().Jobs(func(j *model.Job) bool {
				if j.State.HasResources() && (j.Run.Deadline() == next || w.chance(10)) {
					ended.Reports = append(ended.Reports, state.Report{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: c.now})
				}
				return true
			})
			c.apply(&ended)
		}
	}
}
