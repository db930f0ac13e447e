package sched

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// divide shares the GPUs of a node, each with a number of units.
func divide(d *model.NodeDef, name string, each int32, one bool) {
	first := int32(0)
	for i := range d.Gres {
		g := d.Gres[i]
		if g.Name != gpuName {
			continue
		}
		x := model.GresDef{Name: name, Type: g.Type, First: first, Count: each * g.Count, OneSharing: one}
		for u := g.First; u < g.First+g.Count; u++ {
			x.Over = append(x.Over, model.Share{GPU: u, Count: each})
		}
		first += x.Count
		d.Gres = append(d.Gres, x)
	}
}

// share divides the GPUs of most nodes, and gives GPUs memory.
func (w *world) share(c *cluster) {
	c.cfg.Params.GPUMemMarginMiB = int64(pick(w, 0, 2000))
	for _, d := range c.cfg.Nodes {
		for i := range d.Gres {
			d.Gres[i].MemMiB = int64(pick(w, 16_000, 40_000))
		}
		if w.chance(70) {
			divide(d, "shard", int32(pick(w, 2, 4, 7)), w.chance(15))
		}
		if w.chance(50) {
			divide(d, "mps", 100, w.chance(15))
		}
	}
}

// shareOf lets a job ask for whole GPUs, shares, parts of a GPU, memory of GPUs.
func (w *world) shareOf(sp *model.Spec) {
	typ := pick(w, "", "", "a", "B")
	if sp.Gres = nil; sp.More != nil && len(sp.More.GPUsPerSocket) > 0 {
		m := sp.Extra()
		m.GPUsPerSocket = nil // these would be whole GPUs together with shares, which submission refuses
		sp.More = &m
	}
	switch w.n(6) {
	case 0:
		sp.Gres = []model.GresReq{{Name: "gpu", Type: typ, Count: int32(1 + w.n(3)),
			Per: pick(w, model.PerNode, model.PerJob, model.PerTask)}}
	case 1, 2:
		sp.Gres = []model.GresReq{{Name: "shard", Type: typ, Count: int32(1 + w.n(4))}}
	case 3:
		sp.Gres = []model.GresReq{{Name: "mps", Type: typ, Count: int32(10 * (1 + w.n(10)))}}
	case 4:
		sp.Gres = []model.GresReq{{Name: "shard", Type: typ, Count: 1, Milli: int32(pick(w, 100, 250, 500, 750, 999))}}
	case 5:
		return
	}
	if w.chance(40) {
		sp.More = &model.Needs{GPUMemMiB: int64(1000 * (1 + w.n(20)))}
	}
}

// given compares a start's GPUs with its job's request.
func given(v *state.View, s *model.Start) error {
	sp := v.Job(s.Job).Spec
	margin := v.Config().Params.GPUMemMarginMiB
	for i := range s.Alloc.Nodes {
		na := &s.Alloc.Nodes[i]
		def := v.Node(na.Node).Def
		for _, g := range na.Gres {
			if g.Share == nil {
				if model.IsShare(g.Name) {
					return fmt.Errorf("%s of no GPU", g.Name)
				}
				g.Index.Each(func(u int) bool {
					d := def.GPUDef(int32(u))
					return sp.Extra().GPUMemMiB == 0 || sp.Extra().GPUMemMiB <= d.MemMiB-margin
				})
				continue
			}
			d := def.Sharing(g.Name, g.Share.GPU)
			first, of := d.Units(g.Share.GPU)
			if of != g.Share.Of || d.Type != g.Type || !span(int(first), int(of)).Contains(g.Index) ||
				g.Share.MemMiB != sp.Extra().GPUMemMiB {
				return fmt.Errorf("%s %s of GPU %+v", g.Name, g.Index, *g.Share)
			}
		}
		for _, rq := range sp.Gres {
			if !model.IsShare(rq.Name) {
				continue
			}
			n := int32(0)
			for _, g := range na.Gres {
				if g.Name == rq.Name && (rq.Type == "" || strings.EqualFold(rq.Type, g.Type)) {
					if n = int32(g.Index.Count()); rq.Milli > 0 && n == model.ShareCount(rq.Milli, g.Share.Of) {
						n = rq.Count
					}
				}
			}
			if n != rq.Count {
				return fmt.Errorf("%+v, asked for %+v", na.Gres, rq)
			}
		}
	}
	return nil
}

// TestSharesAreNeverOverdrawn: random mixes of whole GPUs, shards, mps, parts of GPUs and memory of GPUs come and go
// under policies of all sorts. After every step no GPU is both whole and shared, and no share is given twice; a kept
// planner makes the plans of a fresh one, and of one that caches nothing.
func TestSharesAreNeverOverdrawn(t *testing.T) {
	seeds := 30
	if testing.Short() {
		seeds = 8
	}
	got := map[string]int{}
	for seed := range seeds {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 41)), shares: true}
		pol := Policy{}
		kept := NewPlanner()
		live(t, w, seed, 14, func(c *cluster, w *world, v *state.View) model.Plan {
			if w.chance(30) {
				if pol = w.backfill(); w.chance(30) {
					pol = Policy{}
				}
			}
			plan := kept.Plan(v, c.now, pol)
			if pol.Backfill.Keep {
				return plan
			}
			if fresh := Plan(v, c.now, pol); !reflect.DeepEqual(plan, fresh) {
				t.Fatalf("%s: a kept planner plans otherwise:\n%+v\n%+v", c.at, plan, fresh)
			}
			forgetful := NewPlanner()
			forgetful.forgetful = true
			if without := forgetful.Plan(v, c.now, pol); !reflect.DeepEqual(plan, without) {
				t.Fatalf("%s: a planner that remembers plans otherwise:\n%+v\n%+v", c.at, plan, without)
			}
			for i := range plan.Starts {
				if err := given(v, &plan.Starts[i]); err != nil {
					t.Fatalf("%s: job %d: %v", c.at, plan.Starts[i].Job, err)
				}
				for _, na := range plan.Starts[i].Alloc.Nodes {
					for _, g := range na.Gres {
						got[g.Name]++
						if g.Share != nil && g.Share.MemMiB > 0 {
							got["memory"]++
						}
					}
				}
			}
			return plan
		})
	}
	for _, name := range []string{"gpu", "shard", "mps", "memory"} {
		if got[name] < seeds {
			t.Errorf("only %d times %s in %d worlds", got[name], name, seeds)
		}
	}
}

// TestSharesPossible: exactly the jobs that Possible accepts start on an empty cluster; a queue at rest stays at rest.
func TestSharesPossible(t *testing.T) {
	can := map[Impossible]int{}
	for seed := range 25 {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 43)), shares: true}
		c := w.cluster(t)
		for k := range 10 {
			sp := w.spec(c)
			w.shareOf(sp)
			sp.Partitions, sp.Tasklist = sp.Partitions[:1], nil
			v := c.st.View()
			why, alloc := Possible(v, sp, v.Partition(sp.Partitions[0]))
			can[why]++
			c.at = fmt.Sprintf("seed %d, job %d: %s %+v", seed, k, why, sp)
			c.apply(&state.Submit{Spec: sp, Priority: 1})
			plan := c.cycle(Policy{Backfill: Backfill{On: true, Reserve: 1}})
			if (why == CanRun) != (len(plan.Starts) == 1) {
				t.Fatalf("%s: starts %+v", c.at, plan)
			}
			if why == CanRun && !reflect.DeepEqual(alloc, plan.Starts[0].Alloc) {
				t.Fatalf("%s: possible on %s, starts %s", c.at, allocLine(alloc), startLine(&plan.Starts[0]))
			}
			c.clear()
		}
	}
	if can[CanRun] == 0 || can[NoSuchGres] == 0 {
		t.Errorf("%v", can)
	}
}
