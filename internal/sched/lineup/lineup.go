package lineup

import (
	"math"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Base is an order of jobs: a sched.Order.
type Base interface {
	Epoch() uint64
	Priority(j *model.Job, part *model.Partition) uint64
}

// Order is the order of a cluster in which some partition has a policy. It is a sched.Supposer.
type Order struct {
	v      *state.View
	base   Base // of partitions without a policy; nil: priorities as stored
	points Base // multifactor priorities
	fair   func(account, user, part string) float64
	epoch  uint64
	caps   map[string]*capacity // by partition
}

// Own reports whether some partition has a policy.
func Own(cfg *model.Config) bool {
	for _, p := range cfg.Partitions {
		if p.Order != model.OrderDefault {
			return true
		}
	}
	return false
}

// New makes the order of a view. points gives multifactor priorities, fair the fair-share factors, 0 to 1.
func New(v *state.View, base, points Base, fair func(account, user, part string) float64) *Order {
	o := &Order{v: v, base: base, points: points, fair: fair, caps: map[string]*capacity{}}
	o.epoch = points.Epoch()<<20 + v.AcctGen()
	if base != nil {
		o.epoch += base.Epoch() << 40
	}
	return o
}

// Next is New that goes on from the order of an earlier view, which then is of no use any more: of queues by capacity
// it counts again only what has changed. prev may be nil.
func Next(prev *Order, v *state.View, base, points Base, fair func(account, user, part string) float64) *Order {
	o := New(v, base, points, fair)
	if prev != nil && prev.v.Config() == v.Config() && prev.v.AcctGen() == v.AcctGen() {
		o.caps = prev.caps
	}
	return o
}

// Epoch differs when answers may differ.
func (o *Order) Epoch() uint64 { return o.epoch }

// PartEpoch differs when answers for a partition may differ: by capacity they depend on what runs.
func (o *Order) PartEpoch(part *model.Partition) uint64 {
	if part.Order == model.OrderCapacity {
		return o.capacity(part).turn
	}
	return 0
}

// Priority is higher for a job that comes first in a partition.
func (o *Order) Priority(j *model.Job, part *model.Partition) uint64 {
	switch part.Order {
	case model.OrderFIFO:
		return 1
	case model.OrderPriority:
		if o.v.Config().Params.Priority.Weighted() {
			return o.points.Priority(j, part)
		}
		return ranked(o.v, j)
	case model.OrderFairShare:
		return 1 + uint64(o.fair(j.Spec.Account, j.Spec.User, part.Name)*billion)
	case model.OrderCapacity:
		return o.capacity(part).priority(j)
	default:
	}
	if o.base != nil {
		return o.base.Priority(j, part)
	}
	return uint64(j.Priority)
}

// Suppose is Priority for a job that the view doesn't have, or has otherwise.
func (o *Order) Suppose(j *model.Job, part *model.Partition) uint64 {
	switch s, ok := o.base.(interface {
		Suppose(*model.Job, *model.Partition) uint64
	}); {
	case part.Order == model.OrderDefault && ok:
		return s.Suppose(j, part)
	case part.Order == model.OrderCapacity:
		return o.capacity(part).last(j)
	}
	return o.Priority(j, part)
}

const billion = 1e9

// ranked gives the place by QOS and the job's own priority.
func ranked(v *state.View, j *model.Job) uint64 {
	prio := uint64(j.Priority)
	if q := v.QOS(j.Spec.QOS); q != nil {
		prio |= uint64(q.Priority) << 32
	}
	return prio
}

// Shown gives the number that users see as a job's priority in a partition with a policy.
func Shown(v *state.View, points Base, fair func(account, user, part string) float64, j *model.Job,
	part *model.Partition) uint32 {
	switch part.Order {
	case model.OrderFIFO:
		return math.MaxUint32 - 1 - uint32(min(uint64(j.ID), math.MaxUint32-2))
	case model.OrderPriority:
		if v.Config().Params.Priority.Weighted() {
			return uint32(points.Priority(j, part))
		}
		return j.Priority
	case model.OrderFairShare:
		return 1 + uint32(fair(j.Spec.Account, j.Spec.User, part.Name)*billion)
	case model.OrderCapacity:
		c := newCapacity(v, part)
		return uint32(place(c.ratio(c.ownerOf(j.Spec), nil)) >> 22)
	default:
		return j.Priority
	}
}

// Words says what a policy's order is, as an end of "the order there is".
func Words(q model.QueuePolicy) string {
	switch q {
	case model.OrderFIFO:
		return "that of submission"
	case model.OrderPriority:
		return "by priority"
	case model.OrderFairShare:
		return "by fair share: who has had least of their share comes first"
	case model.OrderCapacity:
		return "by capacity: who has least of their guarantee comes first, and who has none comes last"
	default:
		return "the cluster's"
	}
}
