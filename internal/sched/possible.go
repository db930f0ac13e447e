package sched

import (
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Impossible is why a job can never run in a partition as it is configured.
type Impossible uint8

// The kinds.
const (
	CanRun Impossible = iota
	TooManyNodes
	TooManyCPUs
	TooMuchMemory
	NoSuchGres
	NoSuchFeature
	NodesNotInPartition
	PartitionNodes // over the partition's MaxNodes
)

// Possible lays the job onto the partition's empty nodes, whatever state they are in: what does not fit there will
// never run. On success it gives the allocation that an empty partition would give.
func Possible(v *state.View, sp *model.Spec, part *model.Partition) (Impossible, *model.Alloc) {
	if part.MaxNodes > 0 && sp.MinNodes > part.MaxNodes {
		return PartitionNodes, nil
	}
	params := &v.Config().Params
	rq := Resolve(sp, part, params)
	for _, name := range sp.ReqNodes {
		if !contains(part.Nodes, name) {
			return NodesNotInPartition, nil
		}
	}
	var rooms []*room
	total := 0
	for _, name := range part.Nodes {
		n := v.Node(name)
		if n == nil {
			continue
		}
		total++
		if contains(sp.ExcNodes, name) || len(sp.ReqNodes) > 0 && !contains(sp.ReqNodes, name) {
			continue
		}
		r := emptyRoom(n.Def)
		rooms = append(rooms, &r)
	}
	a, m := lay(rooms, sp, &rq, params)
	if a != nil {
		return CanRun, a
	}
	if rq.MinNodes > total {
		return TooManyNodes, nil
	}
	switch m {
	case missCPUs:
		return TooManyCPUs, nil
	case missMemory:
		return TooMuchMemory, nil
	case missGres:
		return NoSuchGres, nil
	case missFeature:
		return NoSuchFeature, nil
	}
	return TooManyNodes, nil
}
