package jobtext

import (
	"strconv"
	"strings"

	"gbatch/internal/format"
	"gbatch/internal/model"
	"gbatch/internal/seff"
	"gbatch/internal/walltime"
)

// This file owns the usage fields of gacct, gstat and gseff, in sacct's and sstat's words and units. Usage is measured
// per node, so maximum and minimum are over nodes, and a mean is the sum over all nodes divided by the number of tasks.

// UsageText writes one step's usage.
type UsageText struct {
	*model.Usage
	unit      byte // K, M, G, T, P; 0: the largest that keeps a number whole
	noConvert bool // bytes
}

// measure is one quantity that is measured on every node.
type measure struct {
	tres string // its name in TRESUsage*
	id   int64  // its number in JSON, Slurm's where that is fixed
	unit int64  // unit in JSON: bytes per unit of the value; 0: 1
	out  bool   // in TRESUsageOut*, not In
	get  func(n *model.NodeUsage) (value int64, known bool)
	peak func(n *model.NodeUsage) (value int64, known bool) // for TRESUsage*Max; nil: get
	text func(u *UsageText, value int64) string             // in TRESUsage*
}

func (n nodeGPUs) mem() (int64, bool) {
	most, known := int64(0), false
	for i := range n {
		most, known = most+n[i].MemMaxMiB, known || n[i].Samples > 0
	}
	return most, known
}

func (n nodeGPUs) util() (int64, bool) {
	sum, known := int64(0), false
	for i := range n {
		if pct, ok := n[i].UtilAve(); ok {
			sum, known = sum+pct, true
		}
	}
	return sum, known
}

// utilPeak adds up the highest utilization of each GPU, which may be of different times.
func (n nodeGPUs) utilPeak() (int64, bool) {
	sum, known := int64(0), false
	for i := range n {
		if n[i].UtilCount > 0 {
			sum, known = sum+int64(n[i].UtilMax), true
		}
	}
	return sum, known
}

type nodeGPUs []model.GPUUsage

// The measures. A node's GPUs count together, as in Slurm: two GPUs at 80 % are 160.
func mCPU() measure {
	return measure{tres: "cpu", id: 1, get: func(n *model.NodeUsage) (int64, bool) { return n.UserMS + n.SysMS, true },
		text: func(_ *UsageText, v int64) string { return walltime.Elapsed(v / 1000) }}
}

func mMem() measure {
	return measure{tres: "mem", id: 2, unit: 1 << 10,
		get: func(n *model.NodeUsage) (int64, bool) { return n.PeakKB, true }, text: (*UsageText).kib}
}

func mVM() measure {
	return measure{tres: "vmem", id: 7, unit: 1 << 10,
		get: func(n *model.NodeUsage) (int64, bool) { return n.VMKB, n.VMKB > 0 }, text: (*UsageText).kib}
}

func mPages() measure {
	return measure{tres: "pages", id: 8, get: func(n *model.NodeUsage) (int64, bool) { return n.Faults, true },
		text: plainNumber}
}

func mRead() measure {
	return measure{tres: "fs/disk", id: 6, get: func(n *model.NodeUsage) (int64, bool) { return n.ReadB, true },
		text: plainNumber}
}

func mWrite() measure {
	return measure{tres: "fs/disk", id: 6, out: true,
		get: func(n *model.NodeUsage) (int64, bool) { return n.WriteB, true }, text: plainNumber}
}

func mEnergy() measure {
	return measure{tres: "energy", id: 3, get: func(n *model.NodeUsage) (int64, bool) {
		mj := int64(0)
		for i := range n.GPUs {
			mj += n.GPUs[i].EnergyMJ
		}
		return mj / 1000, true
	}, text: plainNumber}
}

func mGPUMem() measure {
	return measure{tres: "gres/gpumem", id: 2001, unit: 1 << 20,
		get:  func(n *model.NodeUsage) (int64, bool) { return nodeGPUs(n.GPUs).mem() },
		text: func(u *UsageText, mib int64) string { return u.kib(mib << 10) }}
}

func mGPUUtil() measure {
	return measure{tres: "gres/gpuutil", id: 2002,
		get:  func(n *model.NodeUsage) (int64, bool) { return nodeGPUs(n.GPUs).util() },
		peak: func(n *model.NodeUsage) (int64, bool) { return nodeGPUs(n.GPUs).utilPeak() }, text: plainNumber}
}

// inMeasures and outMeasures are those of TRESUsageIn* and TRESUsageOut*, in sacct's order, which is the alphabet's.
func inMeasures() []measure {
	return []measure{mCPU(), mEnergy(), mRead(), mGPUMem(), mGPUUtil(), mMem(), mPages(), mVM()}
}

func outMeasures() []measure {
	e := mEnergy()
	e.get = func(*model.NodeUsage) (int64, bool) { return 0, true }
	return []measure{e, mWrite()}
}

func plainNumber(_ *UsageText, v int64) string { return strconv.FormatInt(v, 10) }

// tasks counts the step's tasks.
func (u *UsageText) tasks() int64 {
	n := int64(0)
	for i := range u.Nodes {
		n += max(1, int64(u.Nodes[i].Tasks))
	}
	return max(1, n)
}

// most gives the largest value of a node, and the node; least the smallest; total the sum. known is false if no node
// has the value.
func (u *UsageText) most(m measure) (v int64, at *model.NodeUsage) {
	get := m.get
	if m.peak != nil {
		get = m.peak
	}
	for i := range u.Nodes {
		if x, ok := get(&u.Nodes[i]); ok && (at == nil || x > v) {
			v, at = x, &u.Nodes[i]
		}
	}
	return v, at
}

func (u *UsageText) least(m measure) (v int64, at *model.NodeUsage) {
	for i := range u.Nodes {
		if x, ok := m.get(&u.Nodes[i]); ok && (at == nil || x < v) {
			v, at = x, &u.Nodes[i]
		}
	}
	return v, at
}

func (u *UsageText) total(m measure) (v int64, known bool) {
	for i := range u.Nodes {
		if x, ok := m.get(&u.Nodes[i]); ok {
			v, known = v+x, true
		}
	}
	return v, known
}

func (u *UsageText) mean(m measure) (v int64, known bool) {
	v, known = u.total(m)
	return v / u.tasks(), known
}

// taskOf names the task to which a measured value belongs: on a node with several tasks it is not known.
func taskOf(n *model.NodeUsage) string {
	if n.Tasks > 1 {
		return "-1"
	}
	return "0"
}

// kib writes memory.
func (u *UsageText) kib(kib int64) string {
	switch {
	case u.unit != 0:
		return walltime.FormatIn(kib, 'K', u.unit)
	case u.noConvert:
		return strconv.FormatInt(kib*1024, 10)
	}
	return walltime.FormatExact(kib, 'K')
}

// disk writes bytes as sacct does in its own fields: 0.01M, 11.23M, 2.50G.
func (u *UsageText) disk(bytes int64) string {
	switch {
	case u.noConvert:
		return strconv.FormatInt(bytes, 10)
	case bytes == 0:
		return "0"
	case u.unit != 0:
		return walltime.FormatIn(bytes>>10, 'K', u.unit)
	}
	value, unit := float64(bytes)/(1<<20), 0
	for ; value >= 1024 && unit < 3; unit++ {
		value /= 1024
	}
	return strconv.FormatFloat(value, 'f', 2, 64) + "MGTP"[unit:unit+1]
}

// joules writes energy in thousands: 0, 950, 1.23K.
func joules(j int64) string {
	value, unit := float64(j), -1
	for ; value >= 1000 && unit < 3; unit++ {
		value /= 1000
	}
	if unit < 0 {
		return strconv.FormatInt(j, 10)
	}
	return strconv.FormatFloat(value, 'f', 2, 64) + "KMGT"[unit:unit+1]
}

// tresList writes one of the TRESUsage fields.
func (u *UsageText) tresList(list []measure, get func(m measure) (string, bool)) string {
	var b strings.Builder
	for _, m := range list {
		v, ok := get(m)
		if !ok {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(m.tres)
		b.WriteByte('=')
		b.WriteString(v)
	}
	return b.String()
}

// UsageFields makes the fields that sacct and sstat share. of gives a row's usage, nil where there is none to show.
func UsageFields[T any](of func(row *T) *UsageText) map[string]format.Field[T] {
	fields := map[string]format.Field[T]{}
	add := func(name string, width int, get func(u *UsageText) string) {
		fields[name] = format.Field[T]{Name: name, Width: width, Get: func(row *T) string {
			u := of(row)
			if u == nil {
				return ""
			}
			return get(u)
		}}
	}
	at := func(n *model.NodeUsage) string {
		if n == nil {
			return ""
		}
		return n.Node
	}
	group := func(name string, width, nodeWidth, taskWidth int, m measure, text func(u *UsageText, v int64) string) {
		add("Max"+name, width, func(u *UsageText) string {
			v, n := u.most(m)
			if n == nil {
				return ""
			}
			return text(u, v)
		})
		add("Max"+name+"Node", nodeWidth, func(u *UsageText) string { _, n := u.most(m); return at(n) })
		add("Max"+name+"Task", taskWidth, func(u *UsageText) string {
			_, n := u.most(m)
			if n == nil {
				return ""
			}
			return taskOf(n)
		})
	}
	ave := func(name string, width int, m measure, text func(u *UsageText, v int64) string) {
		add("Ave"+name, width, func(u *UsageText) string {
			v, ok := u.mean(m)
			if !ok {
				return ""
			}
			return text(u, v)
		})
	}
	seconds := func(_ *UsageText, ms int64) string { return walltime.Elapsed(ms / 1000) }
	group("RSS", 10, 10, 10, mMem(), (*UsageText).kib)
	group("VMSize", 10, 14, 14, mVM(), (*UsageText).kib)
	group("Pages", 8, 12, 14, mPages(), plainNumber)
	group("DiskRead", 12, 15, 15, mRead(), (*UsageText).disk)
	group("DiskWrite", 12, 16, 16, mWrite(), (*UsageText).disk)
	ave("RSS", 10, mMem(), (*UsageText).kib)
	ave("VMSize", 10, mVM(), (*UsageText).kib)
	ave("Pages", 10, mPages(), plainNumber)
	ave("DiskRead", 14, mRead(), (*UsageText).disk)
	ave("DiskWrite", 14, mWrite(), (*UsageText).disk)
	ave("CPU", 10, mCPU(), seconds)
	add("MinCPU", 10, func(u *UsageText) string { v, _ := u.least(mCPU()); return seconds(u, v) })
	add("MinCPUNode", 10, func(u *UsageText) string { _, n := u.least(mCPU()); return at(n) })
	add("MinCPUTask", 10, func(u *UsageText) string {
		_, n := u.least(mCPU())
		if n == nil {
			return ""
		}
		return taskOf(n)
	})
	add("ConsumedEnergy", 14, func(u *UsageText) string { return joules(u.EnergyMJ() / 1000) })
	add("ConsumedEnergyRaw", 17, func(u *UsageText) string { return strconv.FormatInt(u.EnergyMJ()/1000, 10) })
	add("NTasks", 8, func(u *UsageText) string { return strconv.FormatInt(u.tasks(), 10) })
	usageTRES(add, "TRESUsageIn", 14, inMeasures())
	usageTRES(add, "TRESUsageOut", 15, outMeasures())
	usageGPU(add)
	return fields
}

// usageTRES adds TRESUsageIn* or TRESUsageOut*.
func usageTRES(add func(string, int, func(*UsageText) string), name string, width int, list []measure) {
	value := func(pick func(u *UsageText, m measure) (int64, bool)) func(u *UsageText) string {
		return func(u *UsageText) string {
			return u.tresList(list, func(m measure) (string, bool) {
				v, ok := pick(u, m)
				return m.text(u, v), ok
			})
		}
	}
	where := func(pick func(u *UsageText, m measure) *model.NodeUsage,
		text func(n *model.NodeUsage) string) func(u *UsageText) string {
		return func(u *UsageText) string {
			return u.tresList(list, func(m measure) (string, bool) {
				n := pick(u, m)
				if n == nil {
					return "", false
				}
				return text(n), true
			})
		}
	}
	most := func(u *UsageText, m measure) *model.NodeUsage { _, n := u.most(m); return n }
	least := func(u *UsageText, m measure) *model.NodeUsage { _, n := u.least(m); return n }
	node := func(n *model.NodeUsage) string { return n.Node }
	add(name+"Ave", width, value((*UsageText).mean))
	add(name+"Tot", width, value((*UsageText).total))
	add(name+"Max", width, value(func(u *UsageText, m measure) (int64, bool) { v, n := u.most(m); return v, n != nil }))
	add(name+"Min", width, value(func(u *UsageText, m measure) (int64, bool) { v, n := u.least(m); return v, n != nil }))
	add(name+"MaxNode", width+4, where(most, node))
	add(name+"MinNode", width+4, where(least, node))
	add(name+"MaxTask", width+4, where(most, taskOf))
	add(name+"MinTask", width+4, where(least, taskOf))
}

// usageGPU adds gbatch's own fields: over all GPUs that the job held, on all nodes.
func usageGPU(add func(string, int, func(*UsageText) string)) {
	add("GPUMemMax", 10, func(u *UsageText) string {
		g := seff.GPUs(u.Usage)
		if g.Count == 0 {
			return ""
		}
		return u.kib(g.MemMaxMiB << 10)
	})
	add("GPUUtilAve", 10, func(u *UsageText) string {
		g := seff.GPUs(u.Usage)
		if g.Told == 0 {
			return ""
		}
		return strconv.FormatInt(g.UtilAve, 10)
	})
	add("GPUUtilMax", 10, func(u *UsageText) string {
		g := seff.GPUs(u.Usage)
		if g.Told == 0 {
			return ""
		}
		return strconv.FormatInt(g.UtilMax, 10)
	})
}
