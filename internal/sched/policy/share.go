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

// amounts are a job's shares of a partition, in shareUnit: of the CPUs, the GPUs, the memory and, where it takes nodes
// for itself, the nodes.
type amounts [4]int64

// amounts gives a job's shares.
func (r *room) amounts(sp *model.Spec) amounts {
	c := ask.Of(sp, &r.rules)
	size := c.Size()
	a := amounts{of(int64(size.CPUs), r.cpus), of(c.UnitsOf(&size, model.GPUName, ""), r.gpus), of(size.MemMiB, r.mem)}
	if sp.Exclusive || sp.MemPerNode == model.WholeMem {
		a[3] = of(int64(size.Nodes), r.nodes)
	}
	return a
}

// share gives a job's dominant share of a partition: the largest of its amounts. From 1 to shareUnit. Source: Ghodsi,
// Zaharia, Hindman, Konwinski, Shenker, Stoica: Dominant Resource Fairness, NSDI 2011.
func (r *room) share(sp *model.Spec) int64 { return r.amounts(sp).share() }

func (a amounts) share() int64 { return max(1, a[0], a[1], a[2], a[3]) }

func (a amounts) fits(free amounts) bool {
	return a[0] <= free[0] && a[1] <= free[1] && a[2] <= free[2] && a[3] <= free[3]
}

func (a amounts) more(b amounts) amounts {
	for i := range a {
		a[i] += b[i]
	}
	return a
}

func (a amounts) less(b amounts) amounts {
	for i := range a {
		a[i] -= b[i]
	}
	return a
}

// of gives part/whole in shareUnit; 0 if whole is 0.
func of(part, whole int64) int64 {
	if whole <= 0 || part <= 0 {
		return 0
	}
	return min(part, whole) * shareUnit / whole
}
