package sched

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// backfills gives policies of all sorts.
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

// history lets a random cluster live: jobs come, end early or at their limits or after, are cancelled, held and edited,
// nodes go and come back. each is called once a round, before the round's plan is applied.
func history(t *testing.T, seed int, rounds int, each func(c *cluster, w *world, v *state.View) model.Plan) {
	w := &world{rand.New(rand.NewPCG(uint64(seed), 11))}
	c := w.cluster(t)
	for round := range rounds {
		c.at = fmt.Sprintf("seed %d, round %d", seed, round)
		for range w.n(8) {
			sp := w.spec(c)
			if w.chance(85) {
				sp.LimitS = int64(5 + w.n(200))
			}
			c.apply(&state.Submit{Spec: sp, Priority: uint32(w.n(3))})
		}
		if w.chance(20) { // a pass in between, whose plan nobody applies
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

// happen lets some of all that can happen happen.
func (w *world) happen(c *cluster) {
	var ended state.Reports
	var stop state.Stop
	stop.Event = model.EvCancel
	edit := state.Edit{Set: []state.Field{state.SetPriority}, Priority: uint32(w.n(4))}
	limit := state.Edit{Set: []state.Field{state.SetLimit}, LimitS: int64(5 + w.n(100))}
	c.st.View().Jobs(func(j *model.Job) bool {
		target := state.Target{Job: j.ID, Task: model.NoTask}
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

// TestKeptPlannerEqualsFresh: what a planner keeps from pass to pass changes no plan, and neither does what it learns of
// one job for the next.
func TestKeptPlannerEqualsFresh(t *testing.T) {
	seeds := 120
	if testing.Short() {
		seeds = 25
	}
	starts := 0
	for seed := range seeds {
		kept, pol := NewPlanner(), Policy{}
		history(t, seed, 25, func(c *cluster, w *world, v *state.View) model.Plan {
			if kept.pass == 0 || w.chance(10) {
				if pol = (Policy{}); w.chance(75) {
					pol = w.backfill()
				}
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
	if starts < seeds*20 {
		t.Errorf("only %d starts", starts)
	}
}

func planText(plan model.Plan) (text string) {
	for i := range plan.Starts {
		text += "\n  start " + startLine(&plan.Starts[i])
	}
	for _, r := range plan.Reasons {
		text += fmt.Sprintf("\n  %d %s %s", r.Job, r.Reason, r.Why)
	}
	return text
}
