package sim

import (
	"gbatch/internal/model"
	"gbatch/internal/sched"
	"gbatch/internal/sched/lineup"
	"gbatch/internal/sched/multifactor"
	"gbatch/internal/sched/policy"
	"gbatch/internal/state"
)

// configured is the scheduler of a configuration: multifactor priorities if any factor has a weight, order of arrival
// with priority/basic, and otherwise the default rules. It plans at each event, not every bf_interval.
func configured(c *model.Config) Scheduler {
	p := sched.Configured(&c.Params)
	if p.MaxStarts == 0 {
		p.MaxStarts = noBound
	}
	s := Scheduler{Name: Configured}
	how := "no backfill"
	if p.Backfill.On {
		how = "backfill, with reservations for the first jobs of each partition or as many as bf_max_job_test looks at"
	}
	switch prio := &c.Params.Priority; {
	case prio.Weighted():
		s.Text = "multifactor priority, " + how
		s.New = func() Planner { return &weighted{planner: sched.NewPlanner(), policy: p, asked: newAsked()} }
	case !prio.Default():
		s.Text = "in order of arrival, " + how
		s.New = func() Planner {
			plan := &planning{planner: sched.NewPlanner(), policy: p, asked: newAsked()}
			if lineup.Own(c) {
				plan.queues = &queues{}
			}
			return plan
		}
	default:
		if p.Backfill.On {
			p.Backfill.Reserve = 1
		}
		s.Text = "nothing named, so the default order and predictions"
		s.New = func() Planner {
			rules := policy.Default()
			p.Order, p.Predict = rules.Order(), rules.Predict()
			plan := &byDefault{planner: sched.NewPlanner(), rules: rules, policy: p, asked: newAsked()}
			if lineup.Own(c) {
				plan.queues = &queues{}
			}
			return plan
		}
	}
	if lineup.Own(c) {
		s.Text += "; partitions with a QueuePolicy in their own order"
	}
	return s
}

// queues gives partitions with a QueuePolicy their own order beside the others'; nil: no partition has one.
type queues struct {
	points *multifactor.Order
	last   *lineup.Order
}

func (q *queues) order(v *state.View, now model.Time, base sched.Order) sched.Order {
	if q == nil {
		return base
	}
	if stale(q.points, v, now) {
		q.points = multifactor.New(v, now, q.points)
	}
	q.last = lineup.Next(q.last, v, base, q.points, q.points.Tree().Factor)
	return q.last
}

// stale reports whether multifactor priorities are due again: each PriorityCalcPeriod, as in the controller.
func stale(o *multifactor.Order, v *state.View, now model.Time) bool {
	return o == nil || !o.Made(v) || now >= o.At().Add(max(1, v.Config().Params.Priority.CalcPeriodS))
}

// weighted is the production planner with multifactor priorities.
type weighted struct {
	planner *sched.Planner
	policy  sched.Policy
	order   *multifactor.Order
	asked   asked
}

// Plan is one pass. It recomputes shares, usage and ages every PriorityCalcPeriod, as the controller does.
func (w *weighted) Plan(v *state.View, now model.Time) model.Plan {
	if stale(w.order, v, now) {
		w.order = multifactor.New(v, now, w.order)
		w.policy.Order = w.order
	}
	if lineup.Own(v.Config()) {
		last, _ := w.policy.Order.(*lineup.Order)
		w.policy.Order = lineup.Next(last, v, w.order, w.order, w.order.Tree().Factor)
	}
	w.asked.note(v, &w.policy)
	return w.planner.Plan(v, now, w.policy)
}
