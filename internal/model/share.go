package model

import "slices"

// Shares of GPUs. A sharing resource (shard, mps) divides GPUs into units that are held one by one; GresDef.Over tells
// which units are of which GPU. One GPU is held whole, or shared by units of one sharing resource, at a time.

// GPUName is the generic resource whose units are shared.
const GPUName = "gpu"

// IsShare reports whether a generic resource of this name shares GPUs.
func IsShare(name string) bool { return name == "shard" || name == "mps" }

// MaxSharedGPUs bounds the GPUs of a node whose GPUs are shared.
const MaxSharedGPUs = 64

// SharedGPU is what jobs hold of one shared GPU.
//
//gbatch:codec
type SharedGPU struct {
	GPU    int32
	Name   string // the sharing resource
	Count  int32  // its units in use
	MemMiB int64  // the GPU's memory that the jobs asked for
}

// Units gives the units of a sharing resource that are of one GPU; none where the GPU isn't shared by it.
func (g *GresDef) Units(gpu int32) (first, count int32) {
	first = g.First
	for i := range g.Over {
		if g.Over[i].GPU == gpu {
			return first, g.Over[i].Count
		}
		first += g.Over[i].Count
	}
	return first, 0
}

// Sharing finds the entry of a sharing resource that a GPU is divided by, or nil.
func (d *NodeDef) Sharing(name string, gpu int32) *GresDef {
	for i := range d.Gres {
		g := &d.Gres[i]
		if g.Name != name {
			continue
		}
		for k := range g.Over {
			if g.Over[k].GPU == gpu {
				return g
			}
		}
	}
	return nil
}

// GPUDef finds the entry that one of the node's GPUs is of, or nil.
func (d *NodeDef) GPUDef(gpu int32) *GresDef {
	for i := range d.Gres {
		if g := &d.Gres[i]; g.Name == GPUName && gpu >= g.First && gpu < g.First+g.Count {
			return g
		}
	}
	return nil
}

// SharesOf gives what jobs hold of one of the node's GPUs, or nil.
func (n *Node) SharesOf(gpu int32) *SharedGPU {
	for i := range n.Shared {
		if n.Shared[i].GPU == gpu {
			return &n.Shared[i]
		}
	}
	return nil
}

// AddShared adds (sign 1) or takes off (-1) what an allocation holds of shared GPUs. The list is copied.
func AddShared(list []SharedGPU, gres []GresAlloc, sign int32) []SharedGPU {
	var out []SharedGPU
	for i := range gres {
		g := &gres[i]
		if g.Share == nil {
			continue
		}
		if out == nil {
			out = slices.Clone(list)
		}
		k, found := slices.BinarySearchFunc(out, g.Share.GPU, func(s SharedGPU, gpu int32) int { return int(s.GPU) - int(gpu) })
		if !found {
			out = slices.Insert(out, k, SharedGPU{GPU: g.Share.GPU, Name: g.Name})
		}
		out[k].Count += sign * int32(g.Index.Count())
		out[k].MemMiB += int64(sign) * g.Share.MemMiB
		if out[k].Count <= 0 {
			out = slices.Delete(out, k, k+1)
		}
	}
	if out == nil {
		return list
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// ShareCount gives how many of a GPU's shares a number of thousandths of it is: rounded up.
func ShareCount(milli, of int32) int32 { return int32((int64(milli)*int64(of) + 999) / 1000) }
