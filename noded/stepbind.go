package noded

import (
	"maps"
	"slices"

	"gbatch/internal/proto"
	"gbatch/noded/shim"
	"gbatch/noded/steplayout"
)

// stepbind.go gives each task of a step its memory policy. What it is bound to otherwise noded/steplayout decides.

// bindMemory gives a task's memory policy. cpus are the machine's that it runs on, all of the step's where it is not
// bound.
func bindMemory(s *steplayout.Shape, b *proto.StepBind, local int, cpus []int) (shim.MemPolicy, error) {
	p := shim.MemPolicy{Mode: shim.MemBind}
	if b.MemPrefer {
		p.Mode = shim.MemPreferred
	}
	switch b.Mem {
	case proto.BindLocal:
		for _, c := range cpus {
			if node, ok := s.NUMA[c]; ok && !slices.Contains(p.Nodes, node) {
				p.Nodes = append(p.Nodes, node)
			}
		}
		if len(p.Nodes) == 0 {
			return shim.MemPolicy{Mode: shim.MemLocal}, nil
		}
	case proto.BindRank:
		p.Nodes = []int{local}
		// more tasks than memory nodes go round
		if nodes := slices.Compact(slices.Sorted(maps.Values(s.NUMA))); len(nodes) > 0 {
			p.Nodes[0] = nodes[local%len(nodes)]
		}
	case proto.BindMap, proto.BindMask:
		set, err := steplayout.IndexSet(b.MemList[local%len(b.MemList)], b.Mem == proto.BindMask)
		if err != nil {
			return p, err
		}
		p.Nodes = steplayout.Members(set)
	default:
		return shim.MemPolicy{}, nil
	}
	if p.Mode == shim.MemPreferred { // the kernel takes one
		p.Nodes = p.Nodes[:1]
	}
	return p, nil
}
