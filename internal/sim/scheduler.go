package sim

import (
	"gbatch/internal/model"
	"gbatch/internal/sched"
	"gbatch/internal/state"
)

// Planner decides what starts, one pass at a time.
type Planner interface {
	Plan(v *state.View, now model.Time) model.Plan
}

// Scheduler is a policy by name.
type Scheduler struct {
	Name string
	Text string // in words
	New  func() Planner
}

// fifo is the policy without backfill.
type fifo struct{ p sched.Policy }

func (f fifo) Plan(v *state.View, now model.Time) model.Plan { return sched.Plan(v, now, f.p) }

// noBound is a count that no pass reaches: published schedules know no bounds.
const noBound = 1 << 30

// FIFO gives the scheduler that starts jobs strictly in their order.
func FIFO() Scheduler {
	return Scheduler{Name: "fifo", Text: "in order of arrival, nothing overtakes",
		New: func() Planner { return fifo{sched.Policy{MaxStarts: noBound, Depth: 1}} }}
}

// Names that stand for a choice made elsewhere.
const (
	Configured       = "configured" // as the configuration says
	DefaultScheduler = "fifo"
)

// NewScheduler gives a scheduler by its name.
func NewScheduler(name string, m *Machine) (Scheduler, error) { return FIFO(), nil }

// SchedulerNames lists the names.
func SchedulerNames() string { return "fifo" }
