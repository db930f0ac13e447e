package ask

import (
	"slices"

	"gbatch/internal/model"
)

// Size is the least that a job takes in all.
type Size struct {
	Nodes, Tasks, CPUs int
	MemMiB             int64 // 0: the share of its nodes or CPUs
}

// Size gives the least that the job takes. Unknown amounts (all memory of a node) count as 0 until the job is placed.
func (c *Counts) Size() Size { return c.SizeOn(max(1, c.MinNodes)) }

// SizeOn gives the least that the job takes on a number of nodes.
func (c *Counts) SizeOn(nodes int) Size {
	s := Size{Nodes: nodes, Tasks: c.TasksOn(nodes)}
	s.CPUs = max(s.Tasks*c.CPUsPerTask, nodes*c.MinCPUs)
	if c.Overcommit {
		s.CPUs = nodes * max(c.CPUsPerTask, c.MinCPUs)
	}
	gpus := c.JobGPUs()
	s.CPUs = max(s.CPUs, gpus*c.CPUsPerGPU)
	switch {
	case c.ByGPU:
		s.MemMiB = c.GPUMemNode*int64(nodes) + c.GPUMemTask*int64(s.Tasks) + c.GPUMemJob*int64(gpus)
	case c.MemPerNode > 0:
		s.MemMiB = c.MemPerNode * int64(nodes)
	case c.MemPerNode == 0 && c.MemPerCPU > 0:
		s.MemMiB = c.MemPerCPU * int64(s.CPUs)
	}
	return s
}

// onNode gives the least that the job's largest node gives.
func (c *Counts) onNode(s *Size) Size {
	most := max(c.MaxNodes, 1)
	one := Size{Nodes: 1, Tasks: c.PerNode}
	if c.MaxNodes == 1 {
		one.Tasks = s.Tasks
	}
	one.CPUs = max(c.CPUsFor(one.Tasks, 0), (s.CPUs+most-1)/most)
	switch {
	case c.ByGPU:
		one.MemMiB = c.GPUMemNode + c.GPUMemTask*int64(one.Tasks)
	case c.MemPerNode > 0:
		one.MemMiB = c.MemPerNode
	case c.MemPerNode == 0 && c.MemPerCPU > 0:
		one.MemMiB = c.MemPerCPU * int64(one.CPUs)
	}
	return one
}

// GresOn gives the units of generic resources that the job takes on a number of nodes with a number of tasks, by name
// and type in the order of the request.
func (c *Counts) GresOn(s *Size) []model.GresCount {
	var out []model.GresCount
	for i := range c.Gres {
		g := &c.Gres[i]
		n := unitsOf(g, s)
		if n == 0 {
			continue
		}
		if k := slices.IndexFunc(out, func(o model.GresCount) bool { return o.Name == g.Name && o.Type == g.Type }); k >= 0 {
			out[k].Count += n
			continue
		}
		out = append(out, model.GresCount{Name: g.Name, Type: g.Type, Count: n})
	}
	return out
}

// UnitsOf gives how many units of a generic resource the job takes, of one type or, with "", of any.
func (c *Counts) UnitsOf(s *Size, name, typ string) int64 {
	sum := int64(0)
	for i := range c.Gres {
		if g := &c.Gres[i]; g.Name == name && (typ == "" || g.Type == typ) {
			sum += unitsOf(g, s)
		}
	}
	return sum
}

func unitsOf(g *model.GresReq, s *Size) int64 {
	switch g.Per {
	case model.PerNode:
		return int64(g.Count) * int64(s.Nodes)
	case model.PerTask:
		return int64(g.Count) * int64(s.Tasks)
	}
	return int64(g.Count)
}

// Certain gives the licenses that the job takes in any case: of several of which one is enough, none.
func (c *Counts) Certain() []model.LicenseCount {
	if c.AnyLicense && len(c.Licenses) > 1 {
		return nil
	}
	return c.Licenses
}

// Least gives the least that the job takes, as lists of resources: for the whole job, and for its largest node.
func (c *Counts) Least() (all, node []model.TRESCount) {
	whole := c.Size()
	one := c.onNode(&whole)
	add := func(tres string, n, each int64) {
		if n > 0 {
			all = model.AddTRES(all, tres, n)
		}
		if each > 0 {
			node = model.AddTRES(node, tres, each)
		}
	}
	add("cpu", int64(whole.CPUs), int64(one.CPUs))
	add("node", int64(whole.Nodes), 1)
	add("mem", whole.MemMiB, one.MemMiB)
	most := int64(max(c.MaxNodes, 1))
	for i := range c.Gres {
		g := &c.Gres[i]
		n, each := unitsOf(g, &whole), unitsOf(g, &one)
		if g.Per == model.PerJob {
			each = (n + most - 1) / most
		}
		add(model.GresTRES(g.Name, ""), n, each)
		if g.Type != "" {
			add(model.GresTRES(g.Name, g.Type), n, each)
		}
	}
	for _, l := range c.Certain() {
		add(model.LicenseTRES(l.Name), l.Count, 0)
	}
	return all, node
}

// Bill gives the billing units of a list of resources under rules (TRESBillingWeights).
func Bill(have []model.TRESCount, rules *model.AskRules) int64 {
	if rules == nil {
		return model.BillMicros(have, nil, 0) / model.FactorOne
	}
	return model.BillMicros(have, rules.Billing, rules.Flags) / model.FactorOne
}
