package sim

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"gbatch/internal/model"
)

// GPUUse is a replay's use of GPUs over time.
type GPUUse struct {
	GPUs      int     `json:"gpus"`
	Allocated float64 `json:"allocated"` // mean share of GPUs in use, from the first submission to the last end
	// mean share of the free GPUs that the workload's jobs can't use where they are
	Fragments float64 `json:"fragmentation"`
	Points    []Frag  `json:"fragmentation_curve"` // at most maxFragPoints
}

// Frag is the fragmentation from one moment on.
type Frag struct {
	At    int64   `json:"at"`
	Share float64 `json:"share"`
}

const maxFragPoints = 2000

// gpuMeter measures fragmentation while a replay runs: of the GPUs that are free, how many stand on nodes that have too
// few of them (or of CPUs or memory) for a job, weighted by how often the workload has such jobs.
//
// Source: Weng et al.: Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent,
// USENIX ATC 2023, section 3, for whole GPUs.
type gpuMeter struct {
	total  int
	kinds  []gpuKind
	next   int64 // second of the next look
	step   int64
	points []Frag
}

// gpuKind is the request of a share of the jobs on one node.
type gpuKind struct {
	gpus, cpus int32
	mem        int64
	typ        string
	share      float64
}

// maxKinds bounds the kinds of jobs that fragmentation is measured with: the most frequent ones.
const maxKinds = 32

// newGPUMeter gives nil if there is nothing to measure.
func newGPUMeter(r *replay) *gpuMeter {
	_, total := r.Machine.units()
	if total == 0 {
		return nil
	}
	m := &gpuMeter{total: total}
	first, last := r.Work.span()
	m.next, m.step = first, max(1, (last-first)/(maxFragPoints/2))
	m.kinds = kindsOf(r)
	if len(m.kinds) == 0 {
		return nil
	}
	return m
}

// look measures, at most once per step.
func (m *gpuMeter) look(r *replay, at int64) {
	if at < m.next || len(m.points) >= maxFragPoints {
		return
	}
	m.next = at + m.step
	free, lost := 0.0, 0.0
	r.st.Peek().Nodes(func(n *model.Node) bool {
		g, typ := freeGPUs(n)
		if g == 0 || !n.Usable() {
			return true
		}
		cpus := n.Def.CPUs - int32(n.UsedCPUs.Count())
		mem := n.Def.MemMiB - n.UsedMem
		free += float64(g)
		for i := range m.kinds {
			k := &m.kinds[i]
			if int(k.gpus) > g || k.cpus > cpus || r.Machine.Config.Params.MemConsumed && k.mem > mem || k.typ != "" &&
				k.typ != typ {
				lost += k.share * float64(g)
			}
		}
		return true
	})
	share := 0.0
	if free > 0 {
		share = lost / free
	}
	m.points = append(m.points, Frag{at, share})
}

// freeGPUs counts a node's free GPUs and gives their type, the first where there are several.
func freeGPUs(n *model.Node) (free int, typ string) {
	for _, g := range n.Def.Gres {
		if g.Name == model.GPUName {
			free += int(g.Count)
			if typ == "" {
				typ = g.Type
			}
		}
	}
	return free - n.Used(model.GPUName).Count(), typ
}

func (m *gpuMeter) result() *GPUUse {
	u := &GPUUse{GPUs: m.total, Points: m.points}
	if n := len(m.points); n > 1 { // weighted by time
		sum, span := 0.0, float64(m.points[n-1].At-m.points[0].At)
		for i := range n - 1 {
			sum += m.points[i].Share * float64(m.points[i+1].At-m.points[i].At)
		}
		u.Fragments = sum / math.Max(span, 1)
	}
	return u
}

// kindsOf gives the kinds of the jobs' requests on one node, most frequent first.
func kindsOf(r *replay) []gpuKind {
	count := map[gpuKind]int{}
	all := 0
	for i := range r.Work.Jobs {
		j := &r.Work.Jobs[i]
		if j.GPUs == 0 {
			continue
		}
		nodes := max(1, j.Nodes)
		if per := int32(r.Machine.gpus); j.Nodes == 0 && per > 0 {
			nodes = (j.GPUs + per - 1) / per
		}
		k := gpuKind{gpus: (j.GPUs + nodes - 1) / nodes, cpus: (j.CPUs + nodes - 1) / nodes, mem: j.MemMiB,
			typ: strings.ToLower(j.GPUType)}
		count[k]++
		all++
	}
	out := make([]gpuKind, 0, len(count))
	for k, n := range count {
		k.share = float64(n)
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b gpuKind) int {
		return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(a.gpus, b.gpus), cmp.Compare(a.cpus, b.cpus),
			cmp.Compare(a.mem, b.mem), cmp.Compare(a.typ, b.typ))
	})
	out = out[:min(len(out), maxKinds)]
	sum := 0.0
	for i := range out {
		sum += out[i].share
	}
	for i := range out {
		out[i].share /= sum
	}
	return out
}
