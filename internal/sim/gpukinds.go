package sim

import (
	"cmp"
	"slices"
	"strings"
)

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
