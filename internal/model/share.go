package model

import (
	"cmp"
	"slices"

	"gbatch/internal/wire"
)

// Shares of GPUs. A sharing resource (shard, mps) divides GPUs into units that jobs hold; GresDef.Over gives the units
// of each GPU. At any time a GPU is held whole, or shared by one sharing resource.

// GPUName is the generic resource whose units are shared.
const GPUName = "gpu"

// IdleGPUPct is the use below which a GPU that a job holds counts as idle, percent: in metrics, on the page, in advice.
// GpuIdlePolicy, which cancels jobs, counts only GPUs that do nothing at all.
const IdleGPUPct = 10

// MIGName is an alternative name for MIG instances: Slurm calls them gpu.
const MIGName = "mig"

// ShardName is the sharing resource that parts of GPUs (--gpus=0.5) are counted in.
const ShardName = "shard"

// ShareKind is a resource that shares GPUs. Whoever treats kinds differently asks for a field of it, not for the name.
type ShareKind struct {
	Name     string
	CountVar string // environment variable of jobs with what they have of it on the node; "": none
	MPS      bool   // its jobs are clients of NVIDIA's MPS, which is told their part in percent
	UnitMiB  int64  // GPU memory that a unit stands for; 0: a unit is only a count
}

// shareKinds has every resource that shares GPUs.
var shareKinds = [...]ShareKind{
	{Name: ShardName, CountVar: "SLURM_SHARDS_ON_NODE"},
	{Name: "mps", MPS: true},
	{Name: "gpuram", CountVar: "GBATCH_GPURAM_MIB", UnitMiB: 1024},
}

// ShareKindOf finds the kind of a resource, nil if it does not share GPUs.
func ShareKindOf(name string) *ShareKind {
	for i := range shareKinds {
		if shareKinds[i].Name == name {
			return &shareKinds[i]
		}
	}
	return nil
}

// IsShare reports whether a generic resource of this name shares GPUs.
func IsShare(name string) bool { return ShareKindOf(name) != nil }

// MaxGresUnits bounds the units of a resource on a node: each is a bit of every allocation.
const MaxGresUnits = 1 << 16

// ShareUnits gives the units that a count of a resource is, rounded up or down. Where a unit stands for memory, a
// number above MaxGresUnits is bytes: 16G is 16 units of 1 GiB.
func ShareUnits(name string, count int64, up bool) int64 {
	k := ShareKindOf(name)
	if k == nil || k.UnitMiB == 0 || count <= MaxGresUnits {
		return count
	}
	unit := k.UnitMiB << 20
	if n := count / unit; !up || count%unit == 0 {
		return n
	}
	return count/unit + 1
}

// Amount gives what a number of units is in CountVar: MiB where a unit stands for memory.
func (k *ShareKind) Amount(units int) int64 { return int64(units) * max(1, k.UnitMiB) }

// MoreGPUMem gives the GPU memory that a job is likely to need of which at least so much was too little, or was used,
// MiB: a fifth more.
func MoreGPUMem(mib int64) int64 { return (mib*6 + 4) / 5 }

// MaxSharedGPUs bounds the GPUs of a node whose GPUs are shared.
const MaxSharedGPUs = 64

// SharedGPU is the part of one shared GPU that jobs hold.
type SharedGPU struct {
	GPU    int32
	Name   string // the sharing resource
	Count  int32  // units of it in use
	MemMiB int64  // the GPU's memory that the jobs asked for
}

func (x *SharedGPU) Wire(c *wire.C) {
	wire.Int(c, &x.GPU)
	wire.Text(c, &x.Name, MaxName)
	wire.Int(c, &x.Count)
	wire.Int(c, &x.MemMiB)
}

// Units gives a GPU's units of a sharing resource; none if the resource doesn't share the GPU.
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

// Sharing finds the entry of the sharing resource that divides a GPU, or nil.
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

// GPUDef finds the entry of one of the node's GPUs, or nil.
func (d *NodeDef) GPUDef(gpu int32) *GresDef {
	for i := range d.Gres {
		if g := &d.Gres[i]; g.Name == GPUName && gpu >= g.First && gpu < g.First+g.Count {
			return g
		}
	}
	return nil
}

// SharesOf gives the part of one of the node's GPUs that jobs hold, or nil.
func (n *Node) SharesOf(gpu int32) *SharedGPU {
	for i := range n.Shared {
		if n.Shared[i].GPU == gpu {
			return &n.Shared[i]
		}
	}
	return nil
}

// HeldGPUs gives the GPUs of the node that jobs hold, whole ones and those of which they hold shares.
func (n *Node) HeldGPUs() Bits {
	held := n.Used(GPUName)
	for i := range n.Shared {
		held = held.With(int(n.Shared[i].GPU))
	}
	return held
}

// GPU is one GPU in GPUMicros.
const GPU = 1_000_000

// GPUMicros gives how many GPUs it has, in millionths of one: shares are their part of their GPU.
func (x *NodeAlloc) GPUMicros() (n int64) {
	for i := range x.Gres {
		g := &x.Gres[i]
		switch units := int64(g.Index.Count()); {
		case g.Share != nil && IsShare(g.Name) && g.Share.Of > 0:
			n += units * GPU / int64(g.Share.Of)
		case g.Share == nil && g.Name == GPUName:
			n += units * GPU
		}
	}
	return n
}

// GPUMicros is that of all nodes.
func (x *Alloc) GPUMicros() (n int64) {
	for i := range x.Nodes {
		n += x.Nodes[i].GPUMicros()
	}
	return n
}

// AddShared adds (sign 1) or subtracts (-1) an allocation's parts of shared GPUs. It copies the list.
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
		k, found := slices.BinarySearchFunc(out, g.Share.GPU,
			func(s SharedGPU, gpu int32) int { return int(s.GPU) - int(gpu) })
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

// ShareCount converts thousandths of a GPU into a number of its shares, rounded up.
func ShareCount(milli, of int32) int32 { return int32((int64(milli)*int64(of) + 999) / 1000) }

// HoldsGres reports whether a node has want units of its entries, all together, beside what jobs hold there. A shared
// GPU of which a job has a share can't be given out whole, and only one resource shares it.
func (d *NodeDef) HoldsGres(want []int32, held []GresAlloc) bool {
	kind, used := map[int32]int{}, map[int32]int32{} // of shared GPUs: the entry that shares them, and the units in use
	whole := Bits(nil)
	free := make([]int32, len(d.Gres))
	for i := range d.Gres {
		g := &d.Gres[i]
		free[i] = g.Count - int32(g.Off.Count())
	}
	for i := range held {
		a := &held[i]
		for k := range d.Gres {
			g := &d.Gres[k]
			if g.Name != a.Name {
				continue
			}
			if a.Share != nil {
				if _, n := g.Units(a.Share.GPU); n > 0 {
					kind[a.Share.GPU] = k
					used[a.Share.GPU] += int32(a.Index.Count())
				}
				continue
			}
			for u := g.First; u < g.First+g.Count; u++ {
				if a.Index.Has(int(u)) {
					free[k]--
				}
			}
		}
		if a.Name == GPUName {
			whole = whole.Or(a.Index)
		}
	}
	for gpu := range kind {
		if e := d.gpuEntry(gpu); e >= 0 {
			free[e]--
		}
	}
	for k := range min(len(want), len(d.Gres)) {
		if want[k] <= 0 || len(d.Gres[k].Over) == 0 {
			continue
		}
		d.holdShares(k, want[k], free, whole, kind, used)
	}
	for k := range min(len(want), len(d.Gres)) {
		if len(d.Gres[k].Over) == 0 && want[k] > free[k] || len(d.Gres[k].Over) > 0 && want[k] > 0 && free[k] < 0 {
			return false
		}
	}
	return true
}

// holdShares takes units of a sharing resource: first of GPUs that it shares already, then of idle GPUs, those with the
// most units first. If there are too few units it sets the free count to -1.
func (d *NodeDef) holdShares(k int, left int32, free []int32, whole Bits, kind map[int32]int, used map[int32]int32) {
	over := slices.Clone(d.Gres[k].Over)
	rank := func(s Share) int32 { // those that are shared first
		if _, shared := kind[s.GPU]; shared {
			return -1 << 30
		}
		return -s.Count
	}
	slices.SortStableFunc(over, func(a, b Share) int { return cmp.Compare(rank(a), rank(b)) })
	for _, s := range over {
		by, shared := kind[s.GPU]
		if left <= 0 || whole.Has(int(s.GPU)) || shared && by != k {
			continue
		}
		e := d.gpuEntry(s.GPU)
		if !shared && (e < 0 || free[e] <= 0 || d.Gres[e].Off.Has(int(s.GPU))) {
			continue
		}
		n := min(left, s.Count-used[s.GPU])
		if !shared {
			kind[s.GPU] = k
			free[e]--
		}
		used[s.GPU] += n
		if left -= n; d.Gres[k].OneSharing {
			break
		}
	}
	if left > 0 {
		free[k] = -1
	}
}

// gpuEntry gives the index of a GPU's entry, or -1.
func (d *NodeDef) gpuEntry(gpu int32) int {
	return slices.IndexFunc(d.Gres,
		func(g GresDef) bool { return g.Name == GPUName && gpu >= g.First && gpu < g.First+g.Count })
}
