package sched

import (
	"fmt"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// hall gives 1,000 nodes of 64 CPUs and 8 GPUs in one partition; free of them are empty, the others are full.
func hall(b *testing.B, free int) *cluster {
	b.Helper()
	c := newCluster(b)
	p := &model.Partition{Name: "p"}
	for i := range 1000 {
		name := fmt.Sprintf("n%04d", i)
		c.cfg.Nodes = append(c.cfg.Nodes, &model.NodeDef{Name: name, CPUs: 64, ThreadsPerCore: 1, MemMiB: 256_000,
			Gres: []model.GresDef{{Name: "gpu", Type: "a100", Count: 8}}})
		p.Nodes = append(p.Nodes, name)
	}
	c.cfg.Partitions = append(c.cfg.Partitions, p)
	cfg := c.cfg
	c.put(&state.SetConfig{Config: &cfg})
	for _, n := range c.cfg.Nodes {
		c.put(&state.Join{Node: n.Name, BootID: "b"})
	}
	for range 1000 - free {
		c.put(&state.Submit{Spec: &model.Spec{Partitions: []string{"p"}, CPUsPerTask: 64, LimitS: 3600}, Priority: 100})
	}
	c.put(&state.Starts{Plan: Plan(c.st.View(), c.now, Policy{})})
	if c.st.View().Active() != 1000-free {
		b.Fatal("the hall is not as full as wanted")
	}
	return c
}

// put applies a command without Check.
func (c *cluster) put(b state.Body) { c.st.Apply(state.Command{At: c.now, Body: b}) }

// queue submits n different jobs that want GPUs.
func (c *cluster) queue(n int) {
	for i := range n {
		c.put(&state.Submit{Priority: 100,
			Spec: &model.Spec{Name: fmt.Sprint(i), Partitions: []string{"p"}, Tasks: 1, CPUsPerTask: int32(4 + i%4),
				MemPerNode: int64(1000 + 100*(i%3)),
				LimitS:     3600, Gres: []model.GresReq{{Name: "gpu", Count: 1}}}})
	}
}

func benchPlan(b *testing.B, c *cluster, starts int) {
	v := c.st.View()
	b.ReportAllocs()
	for b.Loop() {
		if plan := Plan(v, c.now, Policy{}); len(plan.Starts) != starts {
			b.Fatalf("%d starts", len(plan.Starts))
		}
	}
}

// BenchmarkPlanFull: 1,000 full nodes, 10,000 pending.
func BenchmarkPlanFull(b *testing.B) {
	c := hall(b, 0)
	c.queue(10_000)
	benchPlan(b, c, 0)
}

// BenchmarkPlanRoom: as before, with room for 500 of the jobs.
func BenchmarkPlanRoom(b *testing.B) {
	c := hall(b, 63)
	c.queue(10_000)
	benchPlan(b, c, 504)
}

// BenchmarkPlanArray: an array of 50,000 one-CPU tasks on 1,000 free nodes, 1,024 starts at a time.
func BenchmarkPlanArray(b *testing.B) {
	c := hall(b, 1000)
	c.put(&state.Submit{Priority: 100,
		Spec: &model.Spec{Partitions: []string{"p"}, Tasks: 1, Tasklist: model.TaskSet{{Lo: 0, Hi: 49_999, Step: 1}}}})
	benchPlan(b, c, 1024)
}

// BenchmarkPlanWide: jobs of 32 nodes each.
func BenchmarkPlanWide(b *testing.B) {
	c := hall(b, 1000)
	for i := range 1000 {
		c.put(&state.Submit{Priority: 100,
			Spec: &model.Spec{Name: fmt.Sprint(i), Partitions: []string{"p"}, MinNodes: 32, MaxNodes: 32, CPUsPerTask: 64}})
	}
	benchPlan(b, c, 31)
}

// BenchmarkEstimate: the estimated start of a wide job behind 1,000 running ones.
func BenchmarkEstimate(b *testing.B) {
	c := hall(b, 0)
	v := c.st.View()
	sp := &model.Spec{Partitions: []string{"p"}, MinNodes: 100, MaxNodes: 100}
	b.ReportAllocs()
	for b.Loop() {
		if _, a := Estimate(v, c.now, sp, v.Partition("p")); a == nil {
			b.Fatal("never")
		}
	}
}

// BenchmarkPossible: the check of one submission.
func BenchmarkPossible(b *testing.B) {
	c := hall(b, 1000)
	v := c.st.View()
	sp := &model.Spec{Partitions: []string{"p"}, CPUsPerTask: 4, Gres: []model.GresReq{{Name: "gpu", Count: 1}}}
	b.ReportAllocs()
	for b.Loop() {
		if why, _ := Possible(v, sp, v.Partition("p")); why != CanRun {
			b.Fatal(why)
		}
	}
}
