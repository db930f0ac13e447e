package sched

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/sched/lineup"
	"gbatch/internal/state"
)

func noShare(string, string, string) float64 { return 0 }

// guaranteed gives accounts of the first partition guarantees: one as a number, one in per cent, one none.
func (c *cluster) guaranteed() {
	edit := state.Accounts{}
	for i, limit := range [][]model.TRESLimit{{{TRES: "gres/gpu", Count: 16}},
		{{TRES: "gres/gpu", Count: 2500, Percent: true}}, nil} {
		a := &model.Account{Name: fmt.Sprintf("a%d", i), Parent: model.RootAccount}
		edit.Edits = append(edit.Edits, model.AcctEdit{Op: model.PutAccount, Account: a},
			model.AcctEdit{Op: model.PutAssoc, Assoc: &model.Association{Account: a.Name, GuaranteedTRES: limit}})
	}
	c.put(&edit)
}

// TestCapacityGoesOn: an order by capacity that goes on from the last view is that of a new one, and says when a job's
// place has changed.
func TestCapacityGoesOn(t *testing.T) {
	c := hallOf(t, 8)
	cfg := c.cfg
	cfg.Partitions = nil
	for i, p := range c.cfg.Partitions[:2] {
		own := *p
		own.Order = []model.QueuePolicy{model.OrderCapacity, model.OrderFIFO}[i]
		cfg.Partitions = append(cfg.Partitions, &own)
	}
	c.cfg = cfg
	c.put(&state.SetConfig{Config: &cfg})
	c.guaranteed()
	rng := rand.New(rand.NewPCG(7, 9))
	pl := NewPlanner()
	var last *lineup.Order
	places, epoch := map[model.JobID]uint64{}, uint64(0)
	part := cfg.Partitions[0]
	same, moved := 0, 0
	for step := range 600 {
		var jobs []*model.Job
		c.st.View().Jobs(func(j *model.Job) bool {
			if !j.State.Finished() {
				jobs = append(jobs, j)
			}
			return true
		})
		switch k := rng.IntN(10); {
		case k < 4 || len(jobs) == 0:
			c.put(&state.Submit{Priority: uint32(1 + rng.IntN(3)), Spec: &model.Spec{Name: fmt.Sprint(step), User: "u",
				Account: fmt.Sprintf("a%d", rng.IntN(3)), Partitions: []string{"p0"}, Tasks: 1, CPUsPerTask: 1, LimitS: 3600,
				Gres: []model.GresReq{{Name: "gpu", Count: int32(1 + rng.IntN(8))}}}})
		case k < 6:
			if j := jobs[rng.IntN(len(jobs))]; j.State.HasResources() {
				c.put(&state.Reports{Reports: []state.Report{{Kind: state.Ended, Job: j.ID, Attempt: 1, At: c.now}}})
			}
		case k == 6:
			c.put(&state.Stop{Event: model.EvCancel, Targets: []model.JobRef{{Job: jobs[rng.IntN(len(jobs))].ID,
				Task: model.NoTask}}})
		case k == 7:
			name := cfg.Nodes[rng.IntN(8)].Name
			c.put(&state.NodeEdit{Nodes: []string{name}, Admin: model.NodeAdmin(rng.IntN(2)), Reason: "test"})
		case k == 8 && step%50 == 0:
			c.guaranteed()
		default:
			pol := full
			pol.MaxStarts = 1 + rng.IntN(3)
			last = lineup.Next(last, c.st.View(), nil, storedPoints{}, noShare)
			pol.Order = last
			c.put(&state.Starts{Plan: pl.Plan(c.st.View(), c.now, pol)})
		}
		v := c.st.View()
		last = lineup.Next(last, v, nil, storedPoints{}, noShare)
		anew := lineup.New(v, nil, storedPoints{}, noShare)
		e := last.PartEpoch(part)
		now := map[model.JobID]uint64{}
		v.Ready(part.Name, func(j *model.Job) bool {
			now[j.ID] = last.Priority(j, part)
			if want := anew.Priority(j, part); now[j.ID] != want {
				t.Fatalf("step %d: job %d has place %d, and %d of a new order", step, j.ID, now[j.ID], want)
			}
			if was, known := places[j.ID]; known && was != now[j.ID] && e == epoch {
				t.Fatalf("step %d: job %d has another place, and the order says that none has", step, j.ID)
			}
			return true
		})
		if e == epoch {
			same++
		} else {
			moved++
		}
		places, epoch = now, e
	}
	if same < 50 || moved < 50 {
		t.Errorf("in %d steps nothing moved, in %d something", same, moved)
	}
}

// BenchmarkQueuePolicy makes a pass with backfill over 200 full nodes with 10,000 pending jobs, after a job of two GPUs
// has ended, by the policy of the first partition. anew is without what the last pass knew.
func BenchmarkQueuePolicy(b *testing.B) {
	for _, how := range []string{"default", "fifo", "priority", "fairshare", "capacity", "capacity/anew"} {
		b.Run(how, func(b *testing.B) {
			c := hallOf(b, 200)
			cfg := c.cfg
			cfg.Partitions = nil
			for _, p := range c.cfg.Partitions {
				own := *p
				for q, word := range model.QueuePolicies() {
					if word == how || q == int(model.OrderCapacity) && how == "capacity/anew" {
						own.Order = model.QueuePolicy(q)
					}
				}
				cfg.Partitions = append(cfg.Partitions, &own)
			}
			c.cfg = cfg
			c.put(&state.SetConfig{Config: &cfg})
			c.guaranteed()
			crowd(b, c, 10_000)
			for i := range 1000 {
				sp := mixed(i)
				sp.Account, sp.Partitions = fmt.Sprintf("a%d", i%3), []string{"p0"}
				c.put(&state.Submit{Priority: 1, Spec: sp})
			}
			pl := NewPlanner()
			var last *lineup.Order
			plan := func() model.Plan {
				v, pol := c.st.View(), full
				if lineup.Own(&cfg) {
					if how == "capacity/anew" {
						last = nil
					}
					last = lineup.Next(last, v, nil, storedPoints{}, noShare)
					pol.Order = last
				}
				return pl.Plan(v, c.now, pol)
			}
			plan()
			next := 0
			for b.Loop() {
				b.StopTimer()
				for {
					next++
					id := model.JobID(next*37%800 + 1)
					if j := c.st.Peek().Job(id); j != nil && j.State.HasResources() {
						c.put(&state.Reports{Reports: []state.Report{{Kind: state.Ended, Job: id, Attempt: 1, At: c.now}}})
						break
					}
				}
				b.StartTimer()
				p := plan()
				b.StopTimer()
				c.put(&state.Starts{Plan: p})
				b.StartTimer()
			}
		})
	}
}
