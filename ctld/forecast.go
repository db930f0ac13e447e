package ctld

import (
	"context"
	"time"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/sched"
	"gbatch/internal/state"
)

// The forecast is gqueue --start's data: when and where the first jobs of the queue will start if all jobs run to their
// limits and no new job is submitted. It makes a reservation for each of them (conservative backfill), whatever the
// real policy does, and its plans are never carried out.

// forecastDepth is how many pending jobs a forecast covers, the same as Slurm's default of bf_max_job_test.
const forecastDepth = 500

// forecastRest bounds the cost: after a forecast that took a time, the next one waits at least that many times as long,
// so forecasts take a tenth of one CPU.
const forecastRest = 10

// forecast keeps expected starts up to date, at most bf_interval behind.
func (c *Controller) forecast(ctx context.Context) {
	defer c.expected.Store(nil)
	defer c.places.Store(nil)
	planner := sched.NewPlanner()
	gen := uint64(0)
	for ctx.Err() == nil {
		v := c.machine.View()
		begin := time.Now()
		if v.Gen() != gen {
			gen = v.Gen()
			found, places := map[model.JobID]*model.Expect{}, map[model.JobID]int32{}
			if v.Pending() > 0 {
				now := c.now()
				policy, _ := c.policy(v, now, c.own.orderThen)
				bf := &policy.Backfill
				bf.On, bf.Reserve, bf.WindowS, bf.MinAgeS, bf.MinPriority = true, -1, 0, 0, 0
				bf.MaxTest, bf.MaxStart, bf.MaxArrayResv = forecastDepth, 0, 1
				planner.Plan(v, now, policy)
				planner.Expectations(func(id model.JobID, e *model.Expect) { found[id] = e })
				planner.Positions(func(id model.JobID, place int32) {
					if first, ok := places[id]; !ok || place < first {
						places[id] = place
					}
				})
			}
			c.expected.Store(&found)
			c.places.Store(&places)
		}
		most := time.Duration(max(1, v.Config().Params.Backfill.IntervalS)) * time.Second
		pause(ctx, min(most, max(time.Second, forecastRest*time.Since(begin))))
	}
}

// expects gives the expectation for a pending job, or nil.
func (c *Controller) expects(j *model.Job) *model.Expect {
	found := c.expected.Load()
	if found == nil || j.State != model.Pending {
		return nil
	}
	return (*found)[j.ID]
}

// idleOf adds to e how long a running job's GPUs have been idle.
func (c *Controller) idleOf(j *model.Job, e *model.Expect) *model.Expect {
	if j.State != model.Running {
		return e
	}
	if s := c.idle.idleFor(j); s > 0 {
		return &model.Expect{IdleS: s} // a running job has no other expectation
	}
	return e
}

// placed gives the expectation for a pending job with its place in its queue, or nil.
func (c *Controller) placed(j *model.Job) *model.Expect {
	e, places := c.expects(j), c.places.Load()
	if places == nil || j.State != model.Pending || (*places)[j.ID] == 0 {
		return e
	}
	with := model.Expect{}
	if e != nil {
		with = *e
	}
	with.Position = (*places)[j.ID]
	return &with
}

// partGives gives lists the defaults of partitions for pending jobs that did not ask for a time limit or for memory.
// Jobs of one partition share one value.
type partGives struct {
	v     *state.View
	parts map[string]*model.Expect
}

// add gives e with the defaults of j's partition, or e itself if there are none. It doesn't change stored values.
func (g *partGives) add(j *model.Job, e *model.Expect) *model.Expect {
	sp := j.Spec
	noMem := sp.MemPerCPU == 0 && sp.MemPerNode == 0
	if j.State != model.Pending || len(sp.Partitions) == 0 || sp.LimitS != model.NotSet && !noMem {
		return e
	}
	p := g.of(sp.Partitions[0])
	switch {
	case p == nil:
		return e
	case e != nil:
		with := *e
		with.LimitS, with.MemPerCPU, with.MemPerNode = p.LimitS, p.MemPerCPU, p.MemPerNode
		return &with
	}
	return p
}

func (g *partGives) of(name string) *model.Expect {
	if e, ok := g.parts[name]; ok {
		return e
	}
	if g.parts == nil {
		g.parts = map[string]*model.Expect{}
	}
	p := g.v.Partition(name)
	if p == nil {
		g.parts[name] = nil
		return nil
	}
	e := &model.Expect{LimitS: p.DefTimeS}
	if e.LimitS == model.NotSet {
		e.LimitS = p.MaxTimeS
	}
	rules := ask.RulesOf(p, &g.v.Config().Params)
	e.MemPerCPU, e.MemPerNode = rules.DefMemPerCPU, rules.DefMemPerNode
	g.parts[name] = e
	return e
}
