package ctld

import (
	"cmp"
	"context"
	"time"

	"gbatch/ctld/clock"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/sched"
	"gbatch/internal/sched/demand"
	"gbatch/internal/sched/lineup"
	"gbatch/internal/sched/multifactor"
	"gbatch/internal/state"
)

// cycle plans whenever a change could let a job start.
//
// Every change of the facts wakes it, its own included, but it runs at its own pace: all changes between two passes are
// handled in one pass. The plan goes into the log as one entry, and each start is checked against the facts again; a
// start that no longer fits is planned again.
func (c *Controller) cycle(ctx context.Context) {
	var lastGen uint64
	var lastPlan, wake model.Time
	planner := sched.NewPlanner()
	asked := demand.NewWatch(sched.Wants) // anew for each leader: from the jobs of its first view
	var bound timeBound
	var queues *lineup.Order // of the last pass
	pace := pacer{gap: cyclePace}
	for ctx.Err() == nil {
		pace.wait(ctx)
		changed := c.machine.Changed()
		v := c.machine.View()
		aged := v.Pending() > 0 && c.now() >= lastPlan.Add(calcPeriodS(v)) // priorities have changed by now
		due := wake != 0 && c.now() >= wake                                // a reservation begins
		pace.gap = cycleGap(v)
		if v.Gen() != lastGen || aged || due {
			lastGen, lastPlan = v.Gen(), c.now()
			begin := time.Now()
			now := c.now()
			asked.Refresh(v)
			c.asked.Store(asked.Mix())
			policy, order := c.policy(v, now, c.own.orderNow, queues)
			queues, _ = policy.Order.(*lineup.Order)
			bound.limit(&policy)
			plan := planner.Plan(v, now, policy)
			wake = planner.Wake()
			for i := range plan.Starts {
				st := &plan.Starts[i]
				if j, p := v.Job(st.Job), v.Partition(st.Partition); j != nil && p != nil {
					st.Priority = c.priorityIn(v, order, j, p)
				}
			}
			did, bf := planner.Pass(), &v.Config().Params.Backfill
			bound.took(did.Behind, time.Since(begin), time.Duration(cmp.Or(bf.MaxTimeS, bf.IntervalS))*time.Second)
			c.counts.planned(time.Since(begin), did, now)
			c.waits.Passed(time.Since(begin))
			if !plan.Empty() {
				res, err := c.propose(ctx, &state.Starts{Epoch: c.nodes.epoch(), Plan: plan})
				if err != nil {
					if ctx.Err() == nil {
						c.log.Warn("a plan was not applied; a new one is made", "err", err)
					}
					pause(ctx, waitPace)
					continue
				}
				for i, r := range res.Each {
					switch {
					case r != state.OK:
						c.counts.refused.Add(1)
						c.waits.Refused()
					case i < len(plan.Starts):
						c.waits.Started(v, &plan.Starts[i], now)
					}
				}
				c.sayElastic(&plan)
				if len(plan.Starts) > 0 {
					c.passes.completed(v)
					continue // there may be more to start than one plan holds
				}
			}
			c.passes.completed(v)
		}
		rest := time.Duration(calcPeriodS(v)) * time.Second
		if wake != 0 {
			rest = min(rest, max(cyclePace, clock.Until(wake, c.now(), rest)))
		}
		timer := time.NewTimer(rest)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// sayElastic logs which elastic jobs change their nodes.
func (c *Controller) sayElastic(plan *model.Plan) {
	for _, g := range plan.Grow {
		names := (&model.Alloc{Nodes: g.Parts}).NodeNames()
		c.log.Info("an elastic job grows", "job", g.Job, "attempt", g.Attempt, "nodes", hostlist.Compress(names))
	}
	for _, a := range plan.Ask {
		c.log.Info("an elastic job is asked for nodes", "job", a.Job, "attempt", a.Attempt, "nodes",
			hostlist.Compress(a.Nodes), "for", a.For)
	}
}

// policy gives the policy for a pass at a moment, and its multifactor order, if it has one.
//
// If a factor has a weight, multifactor priorities count. If the configuration sets neither weights nor PriorityType,
// the rules of package sched/policy count, as own gives them. With PriorityType alone, jobs go in order of arrival, as
// in Slurm. Partitions with a QueuePolicy have their own order beside that; it goes on from queues, the last pass's.
func (c *Controller) policy(v *state.View, now model.Time,
	own func(*state.View, model.Time) (sched.Order, sched.Predict), queues *lineup.Order) (sched.Policy,
	*multifactor.Order) {
	policy := sched.Configured(&v.Config().Params)
	policy.Demand = c.asked.Load()
	if how := v.Config().Params.GPUSelect; how.ByCost() {
		policy.Cost = c.gpuCost(how)
	}
	order := c.prio.order(v, now)
	policy.FairShare = order.Tree().Factor
	switch prio := &v.Config().Params.Priority; {
	case prio.Weighted(), prio.InOrder():
		policy.Order = order
	case prio.Default():
		policy.Order, policy.Predict = own(v, now)
		if policy.Backfill.On {
			policy.Backfill.Reserve = 1 // the rules were measured with it
		}
	}
	if lineup.Own(v.Config()) {
		policy.Order = lineup.Next(queues, v, policy.Order, order, order.Tree().Factor)
	}
	return policy, order
}

// cycleGap gives the shortest time between two passes: sched_min_interval or, with defer, batch_sched_delay.
func cycleGap(v *state.View) time.Duration {
	bf := &v.Config().Params.Backfill
	return max(cyclePace, time.Duration(bf.MinIntervalUS)*time.Microsecond, time.Duration(bf.DelayS)*time.Second)
}

// bf_max_time. A pass itself is bounded by counts only, so that equal facts give equal plans; after a pass that took
// longer than bf_max_time, the next passes look at fewer jobs behind the first one that does not fit, until they are
// quick enough to look at more again.

// leastTested is the fewest jobs that bf_max_time leaves a pass to look at.
const leastTested = 50

// timeBound keeps passes within a time.
type timeBound struct{ most int } // jobs tested; 0: no bound

// limit puts the bound on a policy.
func (b *timeBound) limit(pol *sched.Policy) {
	if bf := &pol.Backfill; b.most > 0 && (bf.MaxTest <= 0 || b.most < bf.MaxTest) {
		bf.MaxTest = b.most
	}
}

// took adapts the bound to a pass that tested some jobs and took a time; most is bf_max_time, 0 for none.
func (b *timeBound) took(tested int, took, most time.Duration) {
	switch {
	case most <= 0:
		b.most = 0
	case took > most:
		b.most = max(leastTested, int(int64(tested)*int64(most)/int64(took)))
	case b.most == 0:
	case tested < b.most: // the pass looked at the whole queue
		b.most = 0
	case took < most/2:
		b.most *= 2
	}
}

// gangPace is the least time between two decisions about turns.
const gangPace = 100 * time.Millisecond

// takeTurns lets jobs that share CPUs take turns (PreemptMode=GANG): package sched decides from the facts alone which
// jobs are suspended and which resume, so a new leader continues where the last one was.
func (c *Controller) takeTurns(ctx context.Context) {
	for ctx.Err() == nil {
		changed := c.machine.Changed()
		turn, next := sched.Turn(c.machine.View(), c.now())
		if len(turn.Sleep)+len(turn.Wake) > 0 {
			if _, err := c.propose(ctx, &state.Suspend{Turn: turn}); err != nil && ctx.Err() == nil {
				c.log.Warn("gang scheduling could not give the next jobs their turn", "err", err)
			}
			pause(ctx, gangPace)
			continue
		}
		rest := time.Hour // no job waits for a turn
		if next != 0 {
			rest = clock.Until(next, c.now(), rest)
		}
		timer := time.NewTimer(rest)
		select {
		case <-changed:
			pause(ctx, gangPace)
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}
