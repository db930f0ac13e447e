package sched

import (
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// lifts are the flags of a QOS that lift limits of partitions for its jobs.
const lifts = model.QOSPartitionTimeLimit | model.QOSPartitionMaxNodes | model.QOSPartitionMinNodes

// Lifted gives a partition without the limits that a job's QOS lifts (PartitionTimeLimit, PartitionMaxNodes,
// PartitionMinNodes). For the time limit of a job that asks for none, pass the partition itself to LimitS.
func Lifted(v *state.View, qos string, part *model.Partition) *model.Partition {
	return lifted(liftsOf(v, qos), part)
}

func liftsOf(v *state.View, qos string) model.QOSFlags {
	if q := v.QOS(qos); q != nil {
		return q.Flags & lifts
	}
	return 0
}

func lifted(flags model.QOSFlags, part *model.Partition) *model.Partition {
	if flags&lifts == 0 {
		return part
	}
	n := *part
	if flags&model.QOSPartitionTimeLimit != 0 && part.MaxTimeS != model.NotSet {
		n.MaxTimeS = model.Unlimited
	}
	if flags&model.QOSPartitionMaxNodes != 0 {
		n.MaxNodes = 0
	}
	if flags&model.QOSPartitionMinNodes != 0 {
		n.MinNodes = 0
	}
	return &n
}

// anyLifts reports whether a QOS changes which jobs may run in partitions: it lifts their limits, or requires a
// reservation.
func anyLifts(v *state.View) bool {
	found := false
	v.AllQOS(func(q *model.QOS) bool {
		found = q.Flags&(lifts|model.QOSRequiresReservation) != 0
		return !found
	})
	return found
}
