package state

import (
	"fmt"
	"slices"

	"gbatch/internal/model"
)

// Shared GPUs: a GPU is held whole, or in units of one sharing resource, and it has the memory that its jobs ask for.

// shareable checks that an allocation's GPUs, whole or shared, are compatible with what is in use. The caller has
// already checked that no unit is given twice.
func (s *State) shareable(n *model.Node, na *model.NodeAlloc) bool {
	shares := false
	for i := range na.Gres {
		g := &na.Gres[i]
		if g.Share != nil {
			shares = true
			continue
		}
		if model.IsShare(g.Name) && divided(n.Def, g.Name) {
			return false // its GPU is not known
		}
		if g.Name != model.GPUName {
			continue
		}
		for k := range n.Shared {
			if g.Index.Has(int(n.Shared[k].GPU)) {
				return false
			}
		}
	}
	if !shares {
		return true
	}
	whole := n.Used(model.GPUName)
	after := model.AddShared(n.Shared, na.Gres, 1)
	for i := range na.Gres {
		g := &na.Gres[i]
		if g.Name == model.GPUName && g.Share == nil {
			whole = whole.Or(g.Index)
		}
	}
	for i := range na.Gres {
		g := &na.Gres[i]
		if g.Share == nil {
			continue
		}
		gpu := g.Share.GPU
		d := n.Def.Sharing(g.Name, gpu)
		if d == nil || whole.Has(int(gpu)) || g.Share.MemMiB < 0 || n.OutOf(model.GPUName).Has(int(gpu)) {
			return false
		}
		first, count := d.Units(gpu)
		if g.Index.Empty() || !model.UpTo(int(first+count)).Minus(model.UpTo(int(first))).Contains(g.Index) {
			return false
		}
		for k := range after {
			x := &after[k]
			switch {
			case x.GPU != gpu && d.OneSharing && x.Name == g.Name:
				return false
			case x.GPU != gpu:
			case x.Name != g.Name, x.Count > count:
				return false
			case g.Share.MemMiB > 0 && x.MemMiB > s.shareMem(n.Def, gpu):
				return false
			}
		}
	}
	return true
}

// divided reports whether a node has GPUs that a resource shares.
func divided(d *model.NodeDef, name string) bool {
	return slices.ContainsFunc(d.Gres, func(g model.GresDef) bool { return g.Name == name && len(g.Over) > 0 })
}

// shareMem gives the memory of a GPU that jobs may ask for together, MiB.
func (s *State) shareMem(d *model.NodeDef, gpu int32) int64 {
	g := d.GPUDef(gpu)
	if g == nil {
		return 0
	}
	return g.MemMiB - s.cfg.Params.GPUMemMarginMiB
}

// checkShared: a node's shared GPUs are exactly those that its jobs hold, and no GPU is both whole and shared, or
// shared by two resources.
func (s *State) checkShared(n *model.Node, shared []model.SharedGPU) error {
	if !slices.Equal(n.Shared, shared) {
		return fmt.Errorf("node %s: books shares %v, its jobs hold %v", n.Def.Name, n.Shared, shared)
	}
	for i := range shared {
		if n.Used(model.GPUName).Has(int(shared[i].GPU)) {
			return fmt.Errorf("node %s: GPU %d is held whole and shared by %s", n.Def.Name, shared[i].GPU, shared[i].Name)
		}
	}
	for _, id := range n.Jobs {
		j, _ := s.jobs.Get(id)
		for k := range j.Run.Alloc.Nodes {
			na := &j.Run.Alloc.Nodes[k]
			if na.Node != n.Def.Name {
				continue
			}
			for _, g := range na.Gres {
				if g.Share == nil {
					continue
				}
				if x := n.SharesOf(g.Share.GPU); x == nil || x.Name != g.Name {
					return fmt.Errorf("node %s: GPU %d of job %d is shared by %s and something else", n.Def.Name, g.Share.GPU, id,
						g.Name)
				}
			}
		}
	}
	return nil
}
