package sched

import (
	"fmt"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// hallOf gives a cluster of nodes with 64 CPUs and 8 GPUs each, in ten partitions over all of them.
func hallOf(tb testing.TB, nodes int) *cluster {
	tb.Helper()
	c := newCluster(tb)
	var names []string
	for i := range nodes {
		name := fmt.Sprintf("n%05d", i)
		c.cfg.Nodes = append(c.cfg.Nodes, &model.NodeDef{Name: name, CPUs: 64, ThreadsPerCore: 1, MemMiB: 256_000,
			Gres: []model.GresDef{{Name: "gpu", Type: "a100", Count: 8}}})
		names = append(names, name)
	}
	for i := range 10 {
		c.cfg.Partitions = append(c.cfg.Partitions, &model.Partition{Name: fmt.Sprintf("p%d", i), Nodes: names})
	}
	cfg := c.cfg
	c.put(&state.SetConfig{Config: &cfg})
	for _, n := range c.cfg.Nodes {
		c.put(&state.Join{Node: n.Name, BootID: "b"})
	}
	return c
}

// mixed gives the i-th of many different jobs: 1 to 64 GPUs, many CPU counts, sizes of memory and time limits, in ten
// partitions and three QOS.
func mixed(i int) *model.Spec {
	gpus := []int32{1, 1, 1, 2, 4, 8, 8, 16, 32, 64}[i%10]
	nodes := max(1, gpus/8)
	here := gpus / nodes
	return &model.Spec{Name: fmt.Sprint(i), User: fmt.Sprintf("u%d", i%100), UID: uint32(i % 100), Account: "a",
		QOS: []string{"low", "normal", "high"}[i/10%3], Partitions: []string{fmt.Sprintf("p%d", i/30%10)},
		MinNodes: nodes, MaxNodes: nodes, Tasks: nodes, CPUsPerTask: here * int32(2+i/7%7),
		MemPerNode: int64(here) * int64(8000+1000*(i/11%16)), LimitS: int64(600 * (1 + i/13%144)),
		Gres: []model.GresReq{{Name: "gpu", Count: here}}}
}

// crowd fills the cluster with running jobs and then submits n others.
func crowd(tb testing.TB, c *cluster, n int) {
	tb.Helper()
	nodes := len(c.cfg.Nodes)
	for i := range nodes * 4 {
		c.put(&state.Submit{Priority: 1 << 30,
			Spec: &model.Spec{Name: "r", User: "u", Account: "a", Partitions: []string{"p0"}, Tasks: 1, CPUsPerTask: 16,
				MemPerNode: 64_000, LimitS: int64(600 * (1 + i*7919%144)),
				Gres: []model.GresReq{{Name: "gpu", Count: 2}}}})
	}
	pl := NewPlanner()
	for c.st.Peek().Active() < nodes*4 {
		plan := pl.Plan(c.st.Peek(), c.now, Policy{})
		if len(plan.Starts) == 0 {
			tb.Fatal("the cluster does not fill up")
		}
		c.put(&state.Starts{Plan: plan})
	}
	for i := range n {
		c.put(&state.Submit{Priority: uint32(1000 + i/10%3*1000 + i*31%500), Spec: mixed(i)})
	}
	last := uint64(0)
	c.st.Peek().Outbox(0, func(e state.Event) bool { last = e.Seq; return true })
	c.put(&state.Trim{Seq: last})
}

// full is the policy of the benchmarks: a reservation for the first blocked job of each partition, and all others are
// tried.
var full = Policy{Backfill: Backfill{On: true, Reserve: 1}}

// BenchmarkPlace places one 1-GPU job on an idle cluster.
func BenchmarkPlace(b *testing.B) {
	for _, nodes := range []int{200, 1000, 10_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			c := hallOf(b, nodes)
			c.put(&state.Submit{Priority: 1, Spec: mixed(0)})
			v, pl := c.st.View(), NewPlanner()
			pl.Plan(v, c.now, full)
			b.ReportAllocs()
			for b.Loop() {
				if plan := pl.Plan(v, c.now, full); len(plan.Starts) != 1 {
					b.Fatal("not placed")
				}
			}
		})
	}
}

// BenchmarkPlan makes a full pass with backfill over a full cluster: cold is the pass of a new planner, ended=1 a pass
// after a job of two GPUs has ended, arrived=1 a pass after a submission.
func BenchmarkPlan(b *testing.B) {
	for _, size := range []struct{ nodes, pending int }{{200, 1000}, {200, 10_000}, {1000, 1000}, {1000, 10_000},
		{1000, 100_000}, {10_000, 100_000}} {
		b.Run(fmt.Sprintf("nodes=%d/pending=%d", size.nodes, size.pending), func(b *testing.B) {
			c := hallOf(b, size.nodes)
			crowd(b, c, size.pending)
			b.Run("cold", func(b *testing.B) {
				v := c.st.View()
				for b.Loop() {
					if plan := NewPlanner().Plan(v, c.now, full); len(plan.Starts) != 0 {
						b.Fatal("it was not full")
					}
				}
			})
			pl := NewPlanner()
			pl.Plan(c.st.View(), c.now, full)
			step := func(b *testing.B, change func(i int)) {
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					change(i)
					v := c.st.View()
					b.StartTimer()
					plan := pl.Plan(v, c.now, full)
					b.StopTimer()
					c.put(&state.Starts{Plan: plan})
					b.StartTimer()
				}
			}
			next := 0
			b.Run("ended=1", func(b *testing.B) {
				step(b, func(int) {
					for {
						next++
						id := model.JobID(next*37%(size.nodes*4) + 1)
						if j := c.st.Peek().Job(id); j != nil && j.State.HasResources() {
							c.put(&state.Reports{Reports: []state.Report{{Kind: state.Ended, Job: id, Attempt: 1, At: c.now}}})
							return
						}
					}
				})
			})
			b.Run("arrived=1", func(b *testing.B) {
				step(b, func(i int) { c.put(&state.Submit{Priority: 10, Spec: mixed(i)}) })
			})
		})
	}
}

// BenchmarkNodeLists makes a pass over a full cluster with four jobs of 1,000 nodes that name or exclude as many.
func BenchmarkNodeLists(b *testing.B) {
	for _, list := range []string{"none", "exclude", "nodelist"} {
		b.Run(list, func(b *testing.B) {
			c := hallOf(b, 2000)
			crowd(b, c, 0)
			names := c.cfg.Partitions[0].Nodes[1000:]
			for i := range 4 {
				sp := &model.Spec{Name: "w", User: "u", Account: "a", Partitions: []string{"p0"}, MinNodes: 1000,
					MaxNodes: 1000, CPUsPerTask: 64, LimitS: 600 + int64(i)}
				switch list {
				case "exclude":
					sp.ExcNodes = names
				case "nodelist":
					sp.ReqNodes = names
				}
				c.put(&state.Submit{Priority: 10, Spec: sp})
			}
			v := c.st.View()
			for b.Loop() {
				NewPlanner().Plan(v, c.now, Policy{Backfill: Backfill{On: true, Reserve: -1}})
			}
		})
	}
}

// BenchmarkThroughput submits, plans and commits 1-GPU jobs over 10,000 nodes through the real state machine; every
// job ends when the cluster is full. jobs/s counts submission, decision, start and end.
func BenchmarkThroughput(b *testing.B) {
	c := hallOf(b, 10_000)
	pl := NewPlanner()
	var running []model.JobID
	next := 0
	jobs := 0
	b.ReportAllocs()
	for b.Loop() {
		for range DefaultMaxStarts {
			c.put(&state.Submit{Priority: 1,
				Spec: &model.Spec{Name: "j", User: "u", Account: "a", Partitions: []string{"p0"}, Tasks: 1, CPUsPerTask: 4,
					MemPerNode: 8000, LimitS: int64(600 + next%7*600),
					Gres: []model.GresReq{{Name: "gpu", Count: 1}}}})
			next++
		}
		plan := pl.Plan(c.st.View(), c.now, full)
		res := c.st.Apply(state.Command{At: c.now, Body: &state.Starts{Plan: plan}})
		for i, r := range res.Each {
			if r != state.OK {
				b.Fatal(r)
			}
			running = append(running, plan.Starts[i].Job)
		}
		if jobs += len(plan.Starts); len(plan.Starts) != DefaultMaxStarts {
			b.Fatalf("%d starts", len(plan.Starts))
		}
		if len(running) > 70_000 {
			for len(running) > 0 {
				n := min(len(running), 512)
				var r state.Reports
				for _, id := range running[:n] {
					r.Reports = append(r.Reports, state.Report{Kind: state.Ended, Job: id, Attempt: 1, At: c.now})
				}
				c.put(&r)
				running = running[n:]
			}
			last := uint64(0)
			c.st.Peek().Outbox(0, func(e state.Event) bool { last = e.Seq; return true })
			c.put(&state.Trim{Seq: last})
			c.now = c.now.Add(301)
			for range 20 {
				c.put(&state.Tick{})
			}
		}
	}
	b.ReportMetric(float64(jobs)/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(jobs), "us/job")
}
