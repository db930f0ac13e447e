package sched

import (
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// lifts are the flags with which a QOS lifts limits of the partitions that its jobs run in.
const lifts = model.QOSPartitionTimeLimit | model.QOSPartitionMaxNodes | model.QOSPartitionMinNodes

// Lifted gives a partition without those of its limits that a job's QOS lifts (PartitionTimeLimit, PartitionMaxNodes,
// PartitionMinNodes). Time limits of
// jobs that ask for none are the partition's own: LimitS wants that.
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

// anyLifts reports whether some QOS changes who may run in partitions: lifts limits of theirs, or wants reservations.
func anyLifts(v *state.View) bool {
	found := false
	v.AllQOS(func(q *model.QOS) bool {
		found = q.Flags&(lifts|model.QOSRequiresReservation) != 0
		return !found
	})
	return found
}
