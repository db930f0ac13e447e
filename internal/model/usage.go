package model

import (
	"slices"

	"gbatch/internal/wire"
)

// Usage is the measured usage of a job or step: a part for each node, in order of name. Counters of the kernel (CPU
// time, peak memory, page faults, I/O if the kernel counts it by control group) are exact. Memory of the processes,
// their number and GPUs come from samples, and are only as fine as the samples.
type Usage struct {
	Nodes []NodeUsage
	Batch *NodeUsage // for a job with steps: the batch script's part of Nodes; otherwise nil
}

func (x *Usage) Wire(c *wire.C) {
	wire.List(c, &x.Nodes, MaxList)
	wire.Ptr(c, &x.Batch)
}

// NodeUsage is the usage on one node.
type NodeUsage struct {
	Node     string
	Tasks    int32 // of the step on this node; 0 counts as 1
	CPUs     int32 // CPUs that it held
	MemMiB   int64 // memory that it held
	UserMS   int64 // CPU time, milliseconds
	SysMS    int64
	PeakKB   int64 // peak memory, page cache included, KiB
	RSSKB    int64 // most memory of its processes in a sample, without page cache, KiB; 0: no sample
	VMKB     int64 // most address space of its processes in a sample, KiB; 0: no sample
	Faults   int64 // page faults that read from a disk
	ReadB    int64 // read from block devices, bytes
	WriteB   int64 // written to them, bytes
	Procs    int32 // most processes in a sample; 0: no sample
	OOMKills int32 // processes that the kernel killed for memory
	EveryS   int32 // time between samples, seconds; 0: measured only at the end
	Samples  int32 // number of samples
	GPUs     []GPUUsage
}

func (x *NodeUsage) Wire(c *wire.C) {
	wire.Text(c, &x.Node, MaxName)
	wire.Int(c, &x.Tasks)
	wire.Int(c, &x.CPUs)
	wire.Int(c, &x.MemMiB)
	wire.Int(c, &x.UserMS)
	wire.Int(c, &x.SysMS)
	wire.Int(c, &x.PeakKB)
	wire.Int(c, &x.RSSKB)
	wire.Int(c, &x.VMKB)
	wire.Int(c, &x.Faults)
	wire.Int(c, &x.ReadB)
	wire.Int(c, &x.WriteB)
	wire.Int(c, &x.Procs)
	wire.Int(c, &x.OOMKills)
	wire.Int(c, &x.EveryS)
	wire.Int(c, &x.Samples)
	wire.List(c, &x.GPUs, MaxFew)
}

// GPUUsage is the usage of one GPU while a job held it.
type GPUUsage struct {
	Index     int32 // on its node
	UUID      string
	Samples   int32
	UtilSum   int64 // percent, summed over the samples
	UtilMax   int32 // percent
	MemMaxMiB int64 // most memory in use on the GPU
	MemMiB    int64 // memory of the GPU; 0: unknown
	OwnMaxMiB int64 // peak memory of the job's own processes on it
	EnergyMJ  int64 // millijoules between the first and the last sample
	UtilCount int32 // samples that have the utilization
}

func (x *GPUUsage) Wire(c *wire.C) {
	wire.Int(c, &x.Index)
	wire.Text(c, &x.UUID, MaxName)
	wire.Int(c, &x.Samples)
	wire.Int(c, &x.UtilSum)
	wire.Int(c, &x.UtilMax)
	wire.Int(c, &x.MemMaxMiB)
	wire.Int(c, &x.MemMiB)
	wire.Int(c, &x.OwnMaxMiB)
	wire.Int(c, &x.EnergyMJ)
	wire.Int(c, &x.UtilCount)
}

// UtilAve gives the mean utilization in percent; ok is false if no sample has it.
func (g *GPUUsage) UtilAve() (pct int64, ok bool) {
	if g.UtilCount <= 0 {
		return 0, false
	}
	return (g.UtilSum + int64(g.UtilCount)/2) / int64(g.UtilCount), true
}

// Node gives a node's part, nil where there is none.
func (u *Usage) Node(name string) *NodeUsage {
	if u == nil {
		return nil
	}
	for i := range u.Nodes {
		if u.Nodes[i].Node == name {
			return &u.Nodes[i]
		}
	}
	return nil
}

// Add adds another step's usage to u. Counters add up; of two peaks on a node the larger one counts, because steps may
// have run one after the other. It doesn't change values that u shares with v.
func (u *Usage) Add(v *Usage) {
	if v == nil {
		return
	}
	u.Nodes = slices.Clone(u.Nodes)
	for i := range v.Nodes {
		n := v.Nodes[i]
		n.GPUs = slices.Clone(n.GPUs)
		mine := u.Node(n.Node)
		if mine == nil {
			u.Nodes = append(u.Nodes, n)
			continue
		}
		mine.add(&n)
	}
	slices.SortStableFunc(u.Nodes, func(a, b NodeUsage) int {
		switch {
		case a.Node < b.Node:
			return -1
		case a.Node > b.Node:
			return 1
		}
		return 0
	})
}

func (n *NodeUsage) add(m *NodeUsage) {
	n.Tasks = max(n.Tasks, 1) + max(m.Tasks, 1)
	n.CPUs, n.MemMiB = max(n.CPUs, m.CPUs), max(n.MemMiB, m.MemMiB)
	n.UserMS += m.UserMS
	n.SysMS += m.SysMS
	n.PeakKB, n.RSSKB, n.VMKB = max(n.PeakKB, m.PeakKB), max(n.RSSKB, m.RSSKB), max(n.VMKB, m.VMKB)
	n.Faults += m.Faults
	n.ReadB += m.ReadB
	n.WriteB += m.WriteB
	n.Procs = max(n.Procs, m.Procs)
	n.OOMKills += m.OOMKills
	n.EveryS = max(n.EveryS, m.EveryS)
	n.Samples = max(n.Samples, m.Samples)
	gpus := slices.Clone(n.GPUs)
	for _, g := range m.GPUs {
		at := slices.IndexFunc(gpus, func(x GPUUsage) bool { return x.Index == g.Index && x.UUID == g.UUID })
		if at < 0 {
			gpus = append(gpus, g)
			continue
		}
		x := &gpus[at]
		x.Samples += g.Samples
		x.UtilSum += g.UtilSum
		x.UtilCount += g.UtilCount
		x.UtilMax, x.MemMaxMiB, x.MemMiB = max(x.UtilMax, g.UtilMax), max(x.MemMaxMiB, g.MemMaxMiB), max(x.MemMiB, g.MemMiB)
		x.OwnMaxMiB = max(x.OwnMaxMiB, g.OwnMaxMiB)
		x.EnergyMJ += g.EnergyMJ
	}
	n.GPUs = gpus
}

// CPUms gives the CPU time of all nodes, milliseconds.
func (u *Usage) CPUms() (user, sys int64) {
	if u == nil {
		return 0, 0
	}
	for i := range u.Nodes {
		user, sys = user+u.Nodes[i].UserMS, sys+u.Nodes[i].SysMS
	}
	return user, sys
}

// PeakKB gives the largest peak memory of a node, KiB.
func (u *Usage) PeakKB() int64 {
	peak := int64(0)
	if u != nil {
		for i := range u.Nodes {
			peak = max(peak, u.Nodes[i].PeakKB)
		}
	}
	return peak
}

// EnergyMJ gives the energy of all GPUs, millijoules.
func (u *Usage) EnergyMJ() int64 {
	sum := int64(0)
	if u != nil {
		for i := range u.Nodes {
			for j := range u.Nodes[i].GPUs {
				sum += u.Nodes[i].GPUs[j].EnergyMJ
			}
		}
	}
	return sum
}
