package sim

import (
	"fmt"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/sched"
	"gbatch/internal/sched/demand"
	"gbatch/internal/sched/policy"
	"gbatch/internal/state"
)

// Planner decides which jobs start, one pass at a time. The time of passes never decreases.
type Planner interface {
	Plan(v *state.View, now model.Time) model.Plan
}

// Scheduler is a policy by name.
type Scheduler struct {
	Name string
	Text string // in words
	New  func() Planner
}

// Names that stand for a choice made elsewhere.
const (
	Configured       = "configured" // as the configuration says
	DefaultScheduler = "default"    // what a fresh configuration uses
)

// noBound is a count that no pass reaches: published schedules know no bounds.
const noBound = 1 << 30

// waker is a Planner that keeps reservations as promises: one may fall due when nothing else happens.
type waker interface {
	// Wake gives the next such moment after the last pass, or 0.
	Wake() model.Time
}

// planning is the production planner with a policy, and with an order that depends on the time where it has one.
type planning struct {
	planner *sched.Planner
	policy  sched.Policy
	order   *scoreOrder // nil: none of ours
	asked   asked
	queues  *queues
}

// asked follows what jobs ask for, as the controller does. Without a watch a job gets the first node that holds it.
type asked struct{ *demand.Watch }

func newAsked() asked { return asked{demand.NewWatch(sched.Wants)} }

// note brings a policy to a view.
func (a asked) note(v *state.View, pol *sched.Policy) {
	if a.Watch != nil {
		a.Refresh(v)
		pol.Demand = a.Mix()
	}
}

// Plan is one pass.
func (p *planning) Plan(v *state.View, now model.Time) model.Plan {
	if p.order != nil {
		p.order.at(now)
	}
	p.asked.note(v, &p.policy)
	pol := p.policy
	pol.Order = p.queues.order(v, now, pol.Order)
	return p.planner.Plan(v, now, pol)
}

// Wake gives the moment at which a kept reservation falls due. Without kept ones a pass at each event is enough.
func (p *planning) Wake() model.Time {
	if !p.policy.Backfill.Keep {
		return 0
	}
	return p.planner.Wake()
}

// byDefault is the production planner with the default order and predictions.
type byDefault struct {
	planner *sched.Planner
	policy  sched.Policy
	rules   *policy.Policy
	asked   asked
	queues  *queues
}

func newByDefault() Planner {
	p := &byDefault{planner: sched.NewPlanner(), rules: policy.Default(), asked: newAsked()}
	p.policy = sched.Policy{MaxStarts: noBound, Depth: 1, Backfill: easy, Order: p.rules.Order(),
		Predict: p.rules.Predict()}
	return p
}

// Plan is one pass.
func (p *byDefault) Plan(v *state.View, now model.Time) model.Plan {
	p.rules.Refresh(v, now)
	p.asked.note(v, &p.policy)
	pol := p.policy
	pol.Order = p.queues.order(v, now, pol.Order)
	return p.planner.Plan(v, now, pol)
}

// named is a scheduler that is the same everywhere.
type named struct {
	name, text string
	backfill   sched.Backfill
	score      func(j sized) float64 // highest first; nil: in order of arrival
}

var (
	easy = sched.Backfill{On: true, Reserve: 1}
	all  = sched.Backfill{On: true, Reserve: -1, Keep: true}
)

func schedulers() []named {
	return []named{
		{name: "fifo", text: "in order of arrival, nothing overtakes"},
		{name: "easy", text: "EASY backfill: in order of arrival; others may overtake the first that waits where that " +
			"doesn't delay it", backfill: easy},
		{name: "easy-sjbf", text: "EASY backfill that tries the shortest jobs first",
			backfill: sched.Backfill{On: true, Reserve: 1, ShortestFirst: true}},
		{name: "conservative", text: "conservative backfill: no job that came earlier is delayed", backfill: all},
		{name: "wfp3", text: "EASY backfill in the order of WFP3, (wait/requested)^3 * processors", backfill: easy,
			score: wfp3},
		{name: "unicef", text: "EASY backfill in the order of UNICEF, wait/(log2(processors) * requested)", backfill: easy,
			score: unicef},
		{name: "sjf", text: "EASY backfill, shortest requested time first", backfill: easy, score: sjf},
		{name: "saf", text: "EASY backfill, smallest requested time * processors first", backfill: easy, score: saf},
		{name: "f1", text: "EASY backfill in the order of F1, log10(requested) * processors + 870 * log10(submit)",
			backfill: easy, score: f1},
	}
}

// SchedulerNames lists the names that NewScheduler knows.
func SchedulerNames() string {
	var list []string
	for _, n := range schedulers() {
		list = append(list, n.name)
	}
	return strings.Join(append(list, DefaultScheduler, Configured), ", ")
}

// NewScheduler gives a scheduler by its name for a machine.
func NewScheduler(name string, m *Machine) (Scheduler, error) {
	for _, n := range schedulers() {
		if n.name == name {
			return Scheduler{Name: n.name, Text: n.text, New: func() Planner {
				p := &planning{planner: sched.NewPlanner(),
					policy: sched.Policy{MaxStarts: noBound, Depth: 1, Backfill: n.backfill}}
				if n.score != nil {
					p.order = &scoreOrder{score: n.score, params: &m.Config.Params}
					p.policy.Order = p.order
				}
				return p
			}}, nil
		}
	}
	switch name {
	case DefaultScheduler:
		return Scheduler{Name: name, Text: "what a fresh configuration uses: see internal/sched/policy", New: newByDefault},
			nil
	case Configured:
		return configured(m.Config), nil
	}
	return Scheduler{}, fmt.Errorf("no scheduler has the name %s: there are %s", name, SchedulerNames())
}

// FIFO gives the scheduler without overtaking.
func FIFO() Scheduler {
	s, _ := NewScheduler("fifo", nil) // a name that is there
	return s
}

// Weighed gives FIFO with nodes chosen by what the jobs that came so far asked for (package demand).
func Weighed() Scheduler {
	return Scheduler{Name: "fifo", Text: "in order of arrival, on the node where it spoils least", New: func() Planner {
		return &planning{planner: sched.NewPlanner(), policy: sched.Policy{MaxStarts: noBound, Depth: 1},
			asked: newAsked()}
	}}
}
