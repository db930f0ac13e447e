package sched

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/sched/demand"
	"gbatch/internal/state"
)

// BenchmarkPlaceGPU: what one decision costs on 1,523 nodes of 8 GPUs in 100 shards each, where jobs of the frequencies
// of Alibaba's openb come and go. "first" takes the first node that holds the job, "demand" the one on which it wastes
// least; the time of each is that of a pass with one start, so the difference is the choice.
func BenchmarkPlaceGPU(b *testing.B) {
	for _, by := range []string{"first", "demand"} {
		b.Run(by, func(b *testing.B) {
			c := newCluster(b)
			p := &model.Partition{Name: "p"}
			for i := range 1523 {
				name := fmt.Sprintf("n%04d", i)
				d := &model.NodeDef{Name: name, CPUs: 96, ThreadsPerCore: 1, MemMiB: 393_216,
					Gres: []model.GresDef{{Name: "gpu", Count: 8}, {Name: "shard", Count: 800}}}
				for u := range int32(8) {
					d.Gres[1].Over = append(d.Gres[1].Over, model.Share{GPU: u, Count: 100})
				}
				c.cfg.Nodes, p.Nodes = append(c.cfg.Nodes, d), append(p.Nodes, name)
			}
			c.cfg.Partitions = append(c.cfg.Partitions, p)
			cfg := c.cfg
			c.put(&state.SetConfig{Config: &cfg})
			for _, n := range c.cfg.Nodes {
				c.put(&state.Join{Node: n.Name, BootID: "b"})
			}
			rng := rand.New(rand.NewPCG(1, 1))
			planner, asked, pol := NewPlanner(), demand.NewWatch(Wants), Policy{}
			var running []model.JobID
			asks := map[model.JobID]int{} // thousandths of a GPU
			var took time.Duration
			held := 0
			submit := func() model.JobID {
				sp, milli := openbJob(rng)
				res := c.st.Apply(state.Command{At: c.now, Body: &state.Submit{Spec: sp, Priority: 100}})
				asks[res.Job] = milli
				return res.Job
			}
			start := func(plan model.Plan) {
				c.put(&state.Starts{Plan: plan})
				for i := range plan.Starts {
					running, held = append(running, plan.Starts[i].Job), held+asks[plan.Starts[i].Job]
				}
			}
			step := func() {
				for held > 1523*8*1000*93/100 {
					k := rng.IntN(len(running))
					held -= asks[running[k]]
					c.put(&state.Reports{Reports: []state.Report{{Kind: state.Ended, Job: running[k], Attempt: 1, At: c.now}}})
					running[k] = running[len(running)-1]
					running = running[:len(running)-1]
				}
				job := submit()
				v := c.st.View()
				begin := time.Now()
				if by == "demand" {
					asked.Refresh(v)
					pol.Demand = asked.Mix()
				}
				plan := planner.Plan(v, c.now, pol)
				took += time.Since(begin)
				if start(plan); len(plan.Starts) == 0 {
					c.put(&state.Stop{Event: model.EvCancel, Targets: []model.JobRef{{Job: job, Task: model.NoTask}}})
				}
			}
			for held < 1523*8*1000*90/100 {
				for range 1000 {
					submit()
				}
				start(planner.Plan(c.st.View(), c.now, pol))
			}
			for range 500 {
				step()
			}
			took = 0
			b.ResetTimer()
			for range b.N {
				step()
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/decision")
		})
	}
}

// openbJob draws a job of the most frequent kinds of openb, and says how many thousandths of a GPU it asks for.
func openbJob(rng *rand.Rand) (sp *model.Spec, milli int) {
	sp = &model.Spec{Partitions: []string{"p"}, Tasks: 1, LimitS: 3600, MinNodes: 1, MaxNodes: 1}
	share := func(n int32) {
		sp.Gres, milli = []model.GresReq{{Name: "shard", Count: n / 10, Milli: n, Per: model.PerNode}}, int(n)
	}
	sp.CPUsPerTask, sp.MemPerNode = int32(4+4*rng.IntN(3)), int64(16_384*(1+rng.IntN(3)))
	switch k := rng.IntN(100); {
	case k < 15:
		share(810)
	case k < 27:
		share(470)
	case k < 32:
		share(320)
	case k < 36:
		share(650)
	case k < 40:
		share(int32(100 + 10*rng.IntN(40)))
	case k < 97:
		sp.Gres, milli = []model.GresReq{{Name: "gpu", Count: 1, Per: model.PerNode}}, 1000
	default:
		n := int32(2 << rng.IntN(3))
		sp.CPUsPerTask = 8 * n
		sp.Gres, milli = []model.GresReq{{Name: "gpu", Count: n, Per: model.PerNode}}, int(n)*1000
	}
	return sp, milli
}
