package sched

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// TestNobodyWakesForAnInstant: if one pending job may suspend others, a job that resumes isn't suspended again by the
// next pass over the same facts; with many such pending jobs it hardly ever is. A kept planner plans like a new one,
// and all jobs end.
func TestNobodyWakesForAnInstant(t *testing.T) {
	seeds := 50
	if testing.Short() {
		seeds = 15
	}
	suspended, resumed, blinks := 0, 0, 0
	for seed := range seeds {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 83))}
		c := newCluster(t)
		c.lazy = true
		byQOS := w.chance(40)
		c.cfg.Params.Preempt = model.Preempt{ByQOS: byQOS, ByPartition: !byQOS, Mode: modeSuspend}
		nodes := 1 + w.n(3)
		for i := range nodes {
			c.cfg.Nodes = append(c.cfg.Nodes,
				&model.NodeDef{Name: fmt.Sprintf("n%d", i), CPUs: int32(pick(w, 4, 8)), ThreadsPerCore: 1, MemMiB: 100_000})
		}
		for i, name := range []string{"low", "high", "top"} {
			p := &model.Partition{Name: name, PriorityTier: int32(1 + i)}
			for _, n := range c.cfg.Nodes {
				p.Nodes = append(p.Nodes, n.Name)
			}
			c.cfg.Partitions = append(c.cfg.Partitions, p)
		}
		cfg := c.cfg
		c.apply(&state.SetConfig{Config: &cfg})
		for i := range nodes {
			c.apply(&state.Join{Node: fmt.Sprintf("n%d", i), BootID: "b"})
		}
		if byQOS {
			c.apply(&state.Accounts{Edits: []model.AcctEdit{
				{Op: model.PutQOS, QOS: &model.QOS{Name: "x", Priority: 1, UsageFactor: model.FactorOne}},
				{Op: model.PutQOS, QOS: &model.QOS{Name: "y", Priority: 2, UsageFactor: model.FactorOne, Preempt: []string{"x"}}},
				{Op: model.PutQOS, QOS: &model.QOS{Name: "z", Priority: 3, UsageFactor: model.FactorOne,
					Preempt: []string{"x", "y"}}}}})
		}
		planner := NewPlanner()
		pol := Policy{Backfill: Backfill{On: w.chance(70), Reserve: pick(w, 0, 1, -1)}}
		alone := false
		woken := map[model.JobID]bool{}
		pass := func() bool {
			v := c.st.View()
			plan := planner.Plan(v, c.now, pol)
			if fresh := Plan(v, c.now, pol); !reflect.DeepEqual(plan, fresh) {
				t.Fatalf("%s: a kept planner plans\n%+v, a new one\n%+v", c.at, plan, fresh)
			}
			for _, p := range plan.Preempt {
				if woken[p.Job] && !byQOS { // with QOS, other jobs may come in between
					blinks++
				}
				if woken[p.Job] && alone {
					t.Fatalf("%s: job %d went on for an instant and is suspended for %d", c.at, p.Job, p.For)
				}
				suspended++
			}
			clear(woken)
			waits := 0
			v.Jobs(func(j *model.Job) bool {
				if state.IsReady(j) && (byQOS || j.Spec.Partitions[0] != "low") {
					waits++
				}
				return true
			})
			alone = waits == 1
			for _, id := range plan.Resume {
				woken[id] = true
				resumed++
			}
			for i, r := range c.apply(&state.Starts{Plan: plan}).Each {
				if r != state.OK {
					t.Fatalf("%s: start %+v is refused: %s", c.at, plan.Starts[i], r)
				}
			}
			return !plan.Empty()
		}
		for round := range 60 {
			c.at = fmt.Sprintf("seed %d, round %d", seed, round)
			c.now = c.now.Add(int64(1 + w.n(10)))
			for range w.n(4) * (45 - round) / 30 {
				sp := &model.Spec{Name: "j", Partitions: []string{pick(w, "low", "low", "high", "top")}, Tasks: int32(1 + w.n(8)),
					CPUsPerTask: 1, MinNodes: 1, MaxNodes: 1, LimitS: int64(60 * (1 + w.n(20))), MemPerNode: 10}
				if byQOS {
					sp.Partitions, sp.QOS = []string{"low"}, pick(w, "x", "x", "y", "z")
				}
				// for a job on several nodes the victims are not always the best ones
				if w.chance(30) && (sp.QOS == "x" || sp.Partitions[0] == "low" && !byQOS) {
					sp.MaxNodes = 3
				}
				c.apply(&state.Submit{Spec: sp, Priority: uint32(1 + w.n(3))})
			}
			for range 12 {
				if !pass() {
					break
				}
			}
			var over state.Reports
			c.st.View().Jobs(func(j *model.Job) bool {
				if j.State.HasResources() && j.Run.Sleep == model.Awake && (w.chance(25) || round > 50) {
					over.Reports = append(over.Reports, state.Report{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: c.now})
				} else if j.State == model.Configuring {
					over.Reports = append(over.Reports, state.Report{Kind: state.Started, Job: j.ID, Attempt: j.Attempt, At: c.now})
				}
				return true
			})
			c.apply(&over)
			clear(woken)
		}
	}
	if blinks*10 > resumed {
		t.Errorf("of %d jobs that went on %d did so for an instant", resumed, blinks)
	}
	if suspended < seeds || resumed < seeds {
		t.Errorf("only %d jobs were suspended and %d went on in %d histories", suspended, resumed, seeds)
	}
}
