package page

import (
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
)

// held.go counts the GPUs of jobs, and says which a job could get now.

// gpuCount is a number of GPUs in thousandths: a job may hold a part of one (--gpus=0.5, --gres=shard:3).
type gpuCount int64

const wholeGPU gpuCount = 1000

func (n gpuCount) String() string {
	if n%wholeGPU == 0 {
		return strconv.FormatInt(int64(n/wholeGPU), 10)
	}
	return strconv.FormatFloat(float64((n+5)/10)/100, 'f', -1, 64)
}

// gpusHeld counts the GPUs that a job holds, and the parts of shared ones.
func gpusHeld(j *model.Job) (n gpuCount) {
	if j.Run == nil || j.Run.Alloc == nil {
		return 0
	}
	for i := range j.Run.Alloc.Nodes {
		for _, g := range j.Run.Alloc.Nodes[i].Gres {
			switch {
			case g.Share != nil && g.Share.Of > 0:
				n += wholeGPU * gpuCount(g.Index.Count()) / gpuCount(g.Share.Of)
			case g.Share == nil && g.Name == model.GPUName:
				n += wholeGPU * gpuCount(g.Index.Count())
			}
		}
	}
	return n
}

// gpusAsked counts the GPUs and nodes that a job asks for, with its partition's rules; nil: they are not known. shares
// has what it asks of shared GPUs in other units than GPUs.
func gpusAsked(j *model.Job, rules *model.AskRules) (n gpuCount, nodes int, shares string) {
	d := ask.Asked(j.Spec, rules)
	part := gpuCount(0)
	for i := range j.Spec.Gres {
		part += gpuCount(j.Spec.Gres[i].Milli)
	}
	n = part * gpuCount(max(1, d.Nodes))
	var words []string
	for _, g := range d.Gres {
		switch {
		case g.Name == model.GPUName:
			n += wholeGPU * gpuCount(g.Count)
		case model.IsShare(g.Name) && part == 0 && g.Count > 0:
			words = append(words, count(g.Count)+" "+g.Name)
		}
	}
	return n, d.Nodes, strings.Join(words, ", ")
}

// eachGPU calls f for every GPU of which a job holds something.
func eachGPU(j *model.Job, f func(node string, gpu int32)) {
	if j.Run == nil || j.Run.Alloc == nil {
		return
	}
	for i := range j.Run.Alloc.Nodes {
		a := &j.Run.Alloc.Nodes[i]
		for _, g := range a.Gres {
			switch {
			case g.Share != nil:
				f(a.Node, g.Share.GPU)
			case g.Name == model.GPUName:
				g.Index.Each(func(k int) bool { f(a.Node, int32(k)); return true })
			}
		}
	}
}

// sharedText says how much of a shared GPU jobs hold: 3 of 8 shard; "" if it is not shared.
func sharedText(n *model.Node, gpu int32) string {
	s := n.SharesOf(gpu)
	if s == nil || s.Count == 0 {
		return ""
	}
	if def := n.Def.Sharing(s.Name, gpu); def != nil {
		_, all := def.Units(gpu)
		return fmt.Sprintf("%d of %d %s", s.Count, all, s.Name)
	}
	return fmt.Sprintf("%d %s", s.Count, s.Name)
}

// gettable says how many of a node's idle GPUs a job can get now, and why not all: each job needs a CPU, and memory;
// where a partition gives a job CPUs or memory for each GPU, as much as the most generous of the node's partitions asks
// the least for.
func gettable(n *model.Node, idle int, perGPU []perGPU) (fit int, why string) {
	if idle == 0 {
		return 0, ""
	}
	cpus, mem := n.Def.JobCPUCount()-n.UsedCPUs.Count(), n.Def.JobMemMiB()-n.UsedMem
	switch {
	case n.Exclusive != 0:
		return 0, "another job has the whole node"
	case cpus <= 0:
		return 0, "no CPU is free on its node"
	case n.Def.JobMemMiB() > 0 && mem <= 0:
		return 0, "no memory is free on its node"
	case len(perGPU) == 0:
		return idle, ""
	}
	for _, p := range perGPU {
		most, short := idle, ""
		if p.cpus > 0 && cpus/p.cpus < most {
			most, short = cpus/p.cpus, "too few CPUs are free on its node"
		}
		if p.memMiB > 0 && n.Def.JobMemMiB() > 0 && int(mem/p.memMiB) < most {
			most, short = int(mem/p.memMiB), "too little memory is free on its node"
		}
		if most > fit || why == "" {
			fit, why = most, short
		}
		if most == idle {
			return idle, ""
		}
	}
	return fit, why
}

// perGPU is what a job gets with each GPU unless it asks for something else; 0: nothing.
type perGPU struct {
	cpus   int
	memMiB int64
}

// withGPU gives what the partitions of a node give a job with each GPU.
func withGPU(cfg *model.Config, parts []string) (out []perGPU) {
	for _, p := range cfg.Partitions {
		for _, name := range parts {
			if p.Name != name || p.State != model.PartUp {
				continue
			}
			x := perGPU{int(p.DefCPUPerGPU), p.DefMemPerGPU}
			if x.cpus == 0 {
				x.cpus = int(cfg.Params.DefCPUPerGPU)
			}
			if x.memMiB == 0 {
				x.memMiB = cfg.Params.DefMemPerGPU
			}
			out = append(out, x)
		}
	}
	return out
}
