package ctld

import (
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// nodeunits.go lists nodes' units one by one: their properties from the node's registration, their readings from its
// last heartbeat, and their jobs from the facts.

// chunkUnits is how many nodes with all their units go into one frame.
const chunkUnits = 50

// units fills in a node's own data about its units.
func (n *nodeSet) units(node string, info *proto.NodeInfo) {
	s := n.session(node)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info.Units, info.Readings = s.units, s.beat.Readings
}

// holders lists the units of a node that jobs hold.
func holders(v *state.View, n *model.Node) []proto.UnitHolder {
	var out []proto.UnitHolder
	for _, id := range n.Jobs {
		j := v.Job(id)
		if j == nil || j.Run == nil || j.Run.Alloc == nil {
			continue
		}
		for i := range j.Run.Alloc.Nodes {
			na := &j.Run.Alloc.Nodes[i]
			if na.Node != n.Def.Name {
				continue
			}
			for _, g := range na.Gres {
				g.Index.Each(func(k int) bool {
					out = append(out, proto.UnitHolder{Name: g.Name, Index: int32(k), Job: jobText(j)})
					return len(out) < proto.MaxUnits
				})
			}
		}
	}
	return out
}
