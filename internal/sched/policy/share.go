package policy

import (
	"gbatch/internal/ask"
	"gbatch/internal/model"
)

// room is the capacity of a partition.
type room struct {
	nodes, cpus, gpus int64
	mem               int64 // MiB; 0 where memory does not count
	rules             model.AskRules
}

// shareUnit stands for a whole partition: jobs' shares are counted in units of 1/shareUnit.
const shareUnit = 1 << 20

// rooms counts the partitions' capacity. Nodes that are away count: they come back.
func rooms(c *model.Config) map[string]*room {
	defs := make(map[string]*model.NodeDef, len(c.Nodes))
	for _, d := range c.Nodes {
		defs[d.Name] = d
	}
	out := make(map[string]*room, len(c.Partitions))
	for _, p := range c.Partitions {
		r := &room{rules: ask.RulesOf(p, &c.Params)}
		for _, name := range p.Nodes {
			d := defs[name]
			if d == nil {
				continue
			}
			r.nodes++
			r.cpus += int64(d.CPUs)
			if c.Params.MemConsumed {
				r.mem += d.MemMiB
			}
			for i := range d.Gres {
				if d.Gres[i].Name == model.GPUName {
					r.gpus += int64(d.Gres[i].Count)
				}
			}
		}
		out[p.Name] = r
	}
	return out
}

// share gives a job's dominant share of a partition: the largest of its shares of the CPUs, the GPUs, the memory and,
// where it takes nodes for itself, the nodes. From 1 to shareUnit. Source: Ghodsi, Zaharia, Hindman, Konwinski,
// Shenker, Stoica: Dominant Resource Fairness, NSDI 2011.
func (r *room) share(sp *model.Spec) int64 {
	c := ask.Of(sp, &r.rules)
	size := c.Size()
	s := max(of(int64(size.CPUs), r.cpus), of(c.UnitsOf(&size, model.GPUName, ""), r.gpus), of(size.MemMiB, r.mem))
	if sp.Exclusive || sp.MemPerNode == model.WholeMem {
		s = max(s, of(int64(size.Nodes), r.nodes))
	}
	return max(1, s)
}

// of gives part/whole in shareUnit; 0 if whole is 0.
func of(part, whole int64) int64 {
	if whole <= 0 || part <= 0 {
		return 0
	}
	return min(part, whole) * shareUnit / whole
}
