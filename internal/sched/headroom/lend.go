package headroom

import (
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Lender knows which jobs can be ended at once, by the configuration and the QOS of one view.
type Lender struct {
	v     *state.View
	known map[lenderKey]bool
}

type lenderKey struct{ qos, part string }

// Lenders makes a Lender.
func Lenders(v *state.View) *Lender { return &Lender{v: v, known: map[lenderKey]bool{}} }

// Binds reports whether the headroom of the partition is not for a job.
func (l *Lender) Binds(j *model.Job, part string) bool {
	if j.Spec.Reservation != "" || l.Lends(j, part) {
		return false
	}
	q := l.v.QOS(j.Spec.QOS)
	return q == nil || q.Flags&model.QOSHeadroom == 0
}

// Lends reports whether a job in a partition can be ended at once.
func (l *Lender) Lends(j *model.Job, part string) bool {
	pr := &l.v.Config().Params.Preempt
	if j.Spec.More != nil && j.Spec.More.NoPreempt {
		return false
	}
	if prio := j.Priority; pr.MinExempt > 0 {
		if j.Run != nil && j.Run.Priority != 0 {
			prio = j.Run.Priority
		}
		if prio >= pr.MinExempt {
			return false
		}
	}
	key := lenderKey{j.Spec.QOS, part}
	yes, known := l.known[key]
	if !known {
		yes = l.lends(key.qos, part)
		l.known[key] = yes
	}
	return yes
}

// lends is Lends for all jobs of a QOS in a partition.
func (l *Lender) lends(qos, name string) bool {
	pr := &l.v.Config().Params.Preempt
	mode, grace, exempt := pr.Mode, int64(0), pr.ExemptS
	switch {
	case pr.ByPartition:
		part := l.v.Partition(name)
		if part == nil || !l.below(part) {
			return false
		}
		grace = part.GraceTimeS
		if part.PreemptMode != "" {
			mode = part.PreemptMode
		}
	case pr.ByQOS:
		q := l.v.QOS(qos)
		if q == nil || !l.preempted(qos) {
			return false
		}
		grace = q.GraceTimeS
		if q.PreemptMode != "" {
			mode = q.PreemptMode
		}
		if n, set := q.PreemptExemptTimeS.Value(); set {
			exempt = n
		}
	default:
		return false
	}
	return (mode == "CANCEL" || mode == "REQUEUE") && grace <= 0 && exempt <= 0
}

// below reports whether a partition of a higher tier has one of the nodes.
func (l *Lender) below(part *model.Partition) bool {
	return slices.ContainsFunc(l.v.Config().Partitions, func(o *model.Partition) bool {
		return o.PriorityTier > part.PriorityTier &&
			slices.ContainsFunc(o.Nodes, func(n string) bool { return slices.Contains(part.Nodes, n) })
	})
}

// preempted reports whether some QOS preempts another one.
func (l *Lender) preempted(qos string) bool {
	yes := false
	l.v.AllQOS(func(q *model.QOS) bool {
		yes = slices.Contains(q.Preempt, qos)
		return !yes
	})
	return yes
}
