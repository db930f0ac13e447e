package model

import (
	"slices"

	"gbatch/internal/wire"
)

// Alloc is what a running job holds, node by node, in the order of the node list; the first node runs the batch script.
type Alloc struct {
	Nodes []NodeAlloc
}

func (x *Alloc) Wire(c *wire.C) {
	wire.List(c, &x.Nodes, MaxList)
}

// Remote reports whether there are remote GPUs among it.
func (x *Alloc) Remote() bool {
	return slices.ContainsFunc(x.Nodes, func(na NodeAlloc) bool { return na.Remote() })
}

// NodeAlloc is a job's part of one node. CPUs and generic resources are given by index, so that double use can be
// detected.
type NodeAlloc struct {
	Node   string
	CPUs   Bits
	MemMiB int64
	Gres   []GresAlloc
	Tasks  int32

	Since uint32 // Run.Version with which the job got the node; 0: it began with it
}

func (x *NodeAlloc) Wire(c *wire.C) {
	wire.Text(c, &x.Node, MaxName)
	wire.Ints(c, &x.CPUs, MaxFew)
	wire.Int(c, &x.MemMiB)
	wire.List(c, &x.Gres, MaxFew)
	wire.Int(c, &x.Tasks)
	wire.Int(c, &x.Since)
}

// Remote reports whether there are remote GPUs among it.
func (x *NodeAlloc) Remote() bool {
	return slices.ContainsFunc(x.Gres, func(g GresAlloc) bool { return IsRemote(g.Name, g.Type) })
}

// Local gives it without the remote GPUs: itself if there are none.
func (x *NodeAlloc) Local() *NodeAlloc {
	if !x.Remote() {
		return x
	}
	n := *x
	n.Gres = slices.DeleteFunc(slices.Clone(x.Gres), func(g GresAlloc) bool { return IsRemote(g.Name, g.Type) })
	return &n
}

// GresAlloc is units of one generic resource on one node.
type GresAlloc struct {
	Name  string
	Type  string
	Index Bits
	Share *GPUShare // set for shares of a GPU; nil: whole units
}

func (x *GresAlloc) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Text(c, &x.Type, MaxName)
	wire.Ints(c, &x.Index, MaxFew)
	wire.Ptr(c, &x.Share)
}

// GPUShare is the GPU whose shares a job holds. All of a job's shares on a node are of one GPU.
type GPUShare struct {
	GPU    int32 // index among the node's units of gpu
	Of     int32 // shares that the GPU has
	MemMiB int64 // GPU memory that the job asked for (--gpu-mem); 0: not given
}

func (x *GPUShare) Wire(c *wire.C) {
	wire.Int(c, &x.GPU)
	wire.Int(c, &x.Of)
	wire.Int(c, &x.MemMiB)
}

// Leaving is a part of a node that a running job has given up, until nothing of the job is left there.
type Leaving struct {
	Part   NodeAlloc
	At     Time  // when the job gave it up
	GraceS int64 // seconds between SIGTERM and SIGKILL; 0: KillWait
}

func (x *Leaving) Wire(c *wire.C) {
	wire.Struct(c, &x.Part)
	wire.Int(c, &x.At)
	wire.Int(c, &x.GraceS)
}

// Recall is what an elastic job has been asked to give back, and still has.
type Recall struct {
	Nodes []string
	At    Time
	Due   Time // from then on they are taken
	For   JobID
}

func (x *Recall) Wire(c *wire.C) {
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
	wire.Int(c, &x.At)
	wire.Int(c, &x.Due)
	wire.Int(c, &x.For)
}

// Place gives the index of a node among the allocation's; -1 if it is none of them.
func (a *Alloc) Place(node string) int {
	return slices.IndexFunc(a.Nodes, func(na NodeAlloc) bool { return na.Node == node })
}

// NodeNames gives the nodes in order.
func (a *Alloc) NodeNames() []string {
	if a == nil {
		return nil
	}
	out := make([]string, len(a.Nodes))
	for i := range a.Nodes {
		out[i] = a.Nodes[i].Node
	}
	return out
}

// Totals sums the allocation: CPUs, MiB, and the count of each generic resource by name (types added up).
func (a *Alloc) Totals() (cpus int, memMiB int64, gres []GresCount) {
	if a == nil {
		return 0, 0, nil
	}
	for i := range a.Nodes {
		n := &a.Nodes[i]
		cpus += n.CPUs.Count()
		memMiB += n.MemMiB
		for _, g := range n.Gres {
			gres = addGres(gres, g.Name, g.Type, int64(g.Index.Count()))
		}
	}
	return cpus, memMiB, gres
}

// GresCount counts units of one type of a generic resource.
type GresCount struct {
	Name  string
	Type  string
	Count int64
}

func (x *GresCount) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Text(c, &x.Type, MaxName)
	wire.Int(c, &x.Count)
}

func addGres(list []GresCount, name, typ string, n int64) []GresCount {
	for i := range list {
		if list[i].Name == name && list[i].Type == typ {
			list[i].Count += n
			return list
		}
	}
	return append(list, GresCount{name, typ, n})
}

// Units gives the units of a resource in a job's part of a node, of any type.
func (n *NodeAlloc) Units(name string) Bits {
	var units Bits
	for i := range n.Gres {
		if n.Gres[i].Name == name {
			units = units.Or(n.Gres[i].Index)
		}
	}
	return units
}

// GPUs gives the GPUs that a part of an allocation has, whole or in shares.
func (n *NodeAlloc) GPUs() Bits {
	out := n.Units(GPUName)
	for i := range n.Gres {
		if g := &n.Gres[i]; g.Share != nil {
			out = out.With(int(g.Share.GPU))
		}
	}
	return out
}
