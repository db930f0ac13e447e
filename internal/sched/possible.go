package sched

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Impossible is the reason why a job can never run in a partition as it is configured.
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
	PartitionNodes // over the partition's MaxNodes, or under its MinNodes
	OverMemLimit   // over MaxMemPerNode
	NoSuchLicense  // or not as many
)

var impossibleNames = [...]string{CanRun: "can run", TooManyNodes: "too many nodes", TooManyCPUs: "too many CPUs",
	TooMuchMemory: "too much memory", NoSuchGres: "no such generic resource", NoSuchFeature: "no such feature",
	NodesNotInPartition: "nodes not in the partition", PartitionNodes: "outside the partition's node limits",
	OverMemLimit: "over the memory limit", NoSuchLicense: "no such license, or not as many"}

// String gives the reason in a few words, for logs.
func (i Impossible) String() string {
	if int(i) >= len(impossibleNames) {
		return "unknown"
	}
	return impossibleNames[i]
}

// Possible places the job on the partition's nodes as if they were up and empty: a job that does not fit there can
// never run. On success it gives that allocation. It does not check time limits.
func Possible(v *state.View, sp *model.Spec, part *model.Partition) (Impossible, *model.Alloc) {
	s := newStock(v)
	part = Lifted(v, sp.QOS, part)
	rq := Resolve(sp, part, s.params)
	rq.Switches = 0 // the wish for few switches ends after a time
	if !licensable(v.Config(), &rq) {
		return NoSuchLicense, nil
	}
	for _, name := range sp.ReqNodes {
		if !slices.Contains(part.Nodes, name) {
			return NodesNotInPartition, nil
		}
	}
	if why := rq.outside(sp, part); why != CanRun {
		return why, nil
	}
	defs := make([]*model.NodeDef, 0, len(part.Nodes))
	for _, name := range part.Nodes {
		if def := v.Made(name); def != nil {
			defs = append(defs, def)
		}
	}
	byWeight := func(a, b *model.NodeDef) int { return cmp.Compare(a.Weight, b.Weight) }
	if !slices.IsSortedFunc(defs, byWeight) {
		slices.SortStableFunc(defs, byWeight)
	}
	m := missNodes
	if rq.MaxNodes == 1 { // most jobs: the first node that fits is enough, so no rooms are made for the others
		for _, def := range defs {
			a, _, why := lay([]*room{s.empty(def)}, 0, &rq, part.Name)
			if a != nil {
				return CanRun, a
			}
			m = max(m, why)
		}
	} else {
		rooms := make([]*room, 0, len(defs))
		for _, def := range defs {
			rooms = append(rooms, s.empty(def))
		}
		var a *model.Alloc
		if a, _, m = lay(rooms, 0, &rq, part.Name); a != nil {
			return CanRun, a
		}
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

// outside gives the limit of the partition that a request breaks.
func (rq *Request) outside(sp *model.Spec, part *model.Partition) Impossible {
	switch {
	case rq.MaxNodes < rq.MinNodes, sp.MaxNodes > 0 && max(int(sp.MaxNodes), len(sp.ReqNodes)) < int(part.MinNodes):
		return PartitionNodes
	case rq.MaxMem > 0 && rq.MemPerNode > rq.MaxMem:
		return OverMemLimit
	case rq.MaxMem > 0 && rq.MemPerCPU > 0 && rq.MemPerCPU*int64(rq.CPUsFor(rq.PerNode, 0)) > rq.MaxMem:
		return OverMemLimit
	}
	return CanRun
}

// inOrder sorts rooms in the order in which they are filled: by weight, then as they come.
func inOrder(rooms []*room) {
	slices.SortStableFunc(rooms, func(a, b *room) int { return cmp.Compare(a.def.Weight, b.def.Weight) })
}
