package pools

import (
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Class is one of the two halves of a cluster that serves people at once and works off the rest when there is room.
type Class uint8

// The classes.
const (
	Online Class = iota // of high priority
	Batch               // of low priority
)

// classQOS are the names of QOS that stand for a class.
var classQOS = [...][]string{Online: {"high", "online"}, Batch: {"low", "batch"}}

// QOS gives the names of QOS that stand for a class, the one that counts first first.
func (c Class) QOS() []string { return classQOS[c] }

// ClassOf gives the class of a job: that of its own QOS, or of its partition's, or that of its nice value. v may be
// nil.
func ClassOf(v *state.View, j *model.Job) Class {
	for _, name := range [...]string{j.Spec.QOS, partitionQOS(v, j)} {
		for c, names := range classQOS {
			if slices.Contains(names, name) {
				return Class(c)
			}
		}
	}
	if j.Spec.Nice > 0 {
		return Batch
	}
	return Online
}

// partitionQOS names the QOS of the partition that a job is in, or of the first one that it waits for; "": it has none.
func partitionQOS(v *state.View, j *model.Job) string {
	if j.Run != nil && j.Run.PartQOS != "" {
		return j.Run.PartQOS
	}
	if v != nil {
		if p := v.Partition(j.Partition()); p != nil {
			return p.QOS
		}
	}
	return ""
}

// QOSOf names the QOS whose limits hold for a job: its own one, and its partition's.
func QOSOf(v *state.View, j *model.Job) []string {
	list := []string{j.Spec.QOS}
	if q := partitionQOS(v, j); q != "" && q != j.Spec.QOS {
		list = append(list, q)
	}
	return list
}
