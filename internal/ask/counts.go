package ask

import (
	"slices"
	"strings"

	"gbatch/internal/model"
)

// Counts is a job's request in one partition: counts per node and for the whole job, with defaults.
type Counts struct {
	MinNodes, MaxNodes int
	Grow               bool // a range of nodes was asked for: as many as possible, not as few
	Tasks              int  // of the whole job; 0: PerNode on each node
	PerNode            int  // fewest tasks on one node
	TasksPerNode       int  // most tasks on one node; 0: no limit
	CPUsPerTask        int
	MinCPUs            int             // per node
	Overcommit         bool            // one task's CPUs per node, however many tasks
	MemPerNode         int64           // MiB; WholeMem: all
	MemPerCPU          int64           // MiB
	MaxMem             int64           // MiB per node that the job may ask for; 0: no limit
	Gres               []model.GresReq // requests with a type first
	Licenses           []model.LicenseCount
	AnyLicense         bool // one of the licenses is enough
	Sockets            int  // least sockets of a node

	CPUsPerGPU                        int   // for each GPU that is counted per job
	GPUMemNode, GPUMemTask, GPUMemJob int64 // MiB for the GPUs of a node, of a task, and for each that is counted per job
	MemPerGPU                         int64 // MiB, with ByGPU
	ByGPU                             bool  // memory is given by GPU
}

// RulesOf gives a partition's and the cluster's defaults and bounds for requests.
func RulesOf(p *model.Partition, params *model.Params) model.AskRules {
	r := model.AskRules{Partition: p.Name, MinNodes: p.MinNodes, MaxNodes: p.MaxNodes, DefMemPerGPU: p.DefMemPerGPU,
		MaxMemPerCPU: params.MaxMemPerCPU, MaxMemPerNode: params.MaxMemPerNode, DefCPUPerGPU: p.DefCPUPerGPU,
		Billing: p.Billing, Flags: params.Priority.Flags, NodeCPUs: p.NodeCPUs}
	r.NodeCPUs = p.CPUsOf(r.NodeCPUs)
	switch {
	case p.DefMemPerCPU > 0:
		r.DefMemPerCPU = p.DefMemPerCPU
	case p.DefMemPerNode > 0:
		r.DefMemPerNode = p.DefMemPerNode
	case params.DefMemPerCPU > 0:
		r.DefMemPerCPU = params.DefMemPerCPU
	default:
		r.DefMemPerNode = max(0, params.DefMemPerNode)
	}
	if r.DefMemPerGPU == 0 {
		r.DefMemPerGPU = params.DefMemPerGPU
	}
	if r.DefCPUPerGPU == 0 {
		r.DefCPUPerGPU = params.DefCPUPerGPU
	}
	if p.MaxMemPerCPU > 0 || p.MaxMemPerNode > 0 {
		r.MaxMemPerCPU, r.MaxMemPerNode = p.MaxMemPerCPU, p.MaxMemPerNode
	}
	return r
}

// Of gives sp's request under rules; with nil rules it is only what sp itself says.
//
// If sp gives no number of nodes, the job gets as few as hold its tasks and its per-job resources; if it gives a range,
// as many as are free.
func Of(sp *model.Spec, rules *model.AskRules) Counts {
	if rules == nil {
		rules = &model.AskRules{}
	}
	c := Counts{Tasks: int(sp.Tasks), PerNode: 1, TasksPerNode: int(sp.TasksPerNode),
		CPUsPerTask: max(1, int(sp.CPUsPerTask)),
		MinCPUs:     int(sp.MinCPUs), Overcommit: sp.Overcommit, MemPerNode: sp.MemPerNode, MemPerCPU: sp.MemPerCPU,
		Gres: typedFirst(sp.Gres)}
	c.nodes(sp, rules)
	c.gpuDefaults(sp, rules)
	if m := sp.More; m != nil {
		c.Sockets = int(m.Sockets)
		c.Licenses, c.AnyLicense = m.Licenses, m.AnyLicense
		if len(m.GPUsPerSocket) > 0 { // a core of each socket with GPUs of the job
			c.Sockets = max(1, c.Sockets)
			c.MinCPUs = max(c.MinCPUs, c.Sockets)
		}
		switch {
		case m.Spread:
			c.Grow = c.MaxNodes > c.MinNodes
		case m.FewNodes:
			c.Grow = false
		}
	}
	if c.Tasks == 0 && c.TasksPerNode > 0 {
		c.PerNode = c.TasksPerNode
	}
	c.memory(rules)
	c.spread(sp, rules)
	c.Grow = c.Grow && c.MaxNodes > c.MinNodes // its tasks or the partition may leave one number of the range
	return c
}

// spread counts the nodes that the tasks need because the largest node of the partition holds only some of them. As in
// Slurm, that is what a waiting job asks for where it doesn't say how many nodes it wants.
func (c *Counts) spread(sp *model.Spec, rules *model.AskRules) {
	if rules.NodeCPUs <= 0 || c.Overcommit {
		return
	}
	each := max(1, int(rules.NodeCPUs)/c.CPUsPerTask) // tasks on one node
	if c.TasksPerNode > 0 {
		each = min(each, c.TasksPerNode)
	}
	least := max((c.Tasks+each-1)/each, (c.JobGPUs()*c.CPUsPerGPU+int(rules.NodeCPUs)-1)/int(rules.NodeCPUs))
	c.MinNodes = max(c.MinNodes, min(least, c.MaxNodes)) // more than MaxNodes fits nowhere
}

// nodes sets how many nodes the job may have.
func (c *Counts) nodes(sp *model.Spec, rules *model.AskRules) {
	least := max(1, int(sp.MinNodes))
	if c.Tasks > 0 {
		least = min(least, c.Tasks) // each node of a job has a task
	}
	if sp.MinNodes == 0 {
		sum := featureNodes(sp.Features)
		if c.Tasks > 0 {
			sum = min(sum, c.Tasks)
		}
		least = max(least, sum)
	}
	c.MinNodes = max(least, len(sp.ReqNodes), int(rules.MinNodes))
	switch {
	case sp.MaxNodes > 0:
		c.MaxNodes = max(int(sp.MaxNodes), len(sp.ReqNodes))
	case sp.MinNodes > 0:
		c.MaxNodes = c.MinNodes
	default:
		c.MaxNodes = max(c.MinNodes, c.Tasks)
		for i := range c.Gres {
			if g := &c.Gres[i]; g.Per == model.PerJob {
				c.MaxNodes = max(c.MaxNodes, int(g.Count))
			}
		}
	}
	c.Grow = sp.MinNodes > 0 && c.MaxNodes > c.MinNodes
	if c.Tasks > 0 {
		c.MaxNodes = min(c.MaxNodes, max(c.Tasks, c.MinNodes))
	}
	if rules.MaxNodes > 0 {
		c.MaxNodes = min(c.MaxNodes, int(rules.MaxNodes))
	}
}

// featureNodes adds up the node counts of a feature expression: [a*2&b*1] are 3.
func featureNodes(expr string) int {
	if !strings.Contains(expr, "*") {
		return 0
	}
	f, err := model.ParseFeatures(expr)
	if err != nil || f == nil {
		return 0
	}
	sum := 0
	for i := range f.Counts {
		sum = min(sum+f.Counts[i].N, model.MaxFeatureCount)
	}
	return sum
}

// gpuDefaults sets the CPUs and the memory per GPU: from the job, otherwise from JobDefaults of the partition or the
// cluster.
func (c *Counts) gpuDefaults(sp *model.Spec, rules *model.AskRules) {
	cpus, mem := 0, int64(0)
	if sp.More != nil {
		cpus, mem = int(sp.More.CPUsPerGPU), sp.More.MemPerGPU
	}
	if cpus == 0 && sp.CPUsPerTask == 0 {
		cpus = int(rules.DefCPUPerGPU)
	}
	if mem == 0 && sp.MemPerNode == 0 && sp.MemPerCPU == 0 {
		mem = rules.DefMemPerGPU
	}
	if cpus == 0 && mem == 0 {
		return
	}
	node, task := 0, 0
	for i := range c.Gres {
		g := &c.Gres[i]
		if g.Name != model.GPUName || g.Count == 0 {
			continue
		}
		switch g.Per {
		case model.PerNode:
			node += int(g.Count)
		case model.PerTask:
			task += int(g.Count)
		case model.PerJob:
			c.CPUsPerGPU, c.GPUMemJob = cpus, mem
		}
		c.ByGPU = mem > 0
	}
	c.MinCPUs = max(c.MinCPUs, node*cpus)
	c.CPUsPerTask = max(c.CPUsPerTask, task*cpus)
	c.GPUMemNode, c.GPUMemTask, c.MemPerGPU = int64(node)*mem, int64(task)*mem, mem
}

// memory sets how much memory the job needs and may have on a node.
func (c *Counts) memory(rules *model.AskRules) {
	if c.MemPerNode == 0 && c.MemPerCPU == 0 && !c.ByGPU {
		c.MemPerCPU, c.MemPerNode = rules.DefMemPerCPU, rules.DefMemPerNode
	}
	c.MaxMem = rules.MaxMemPerNode
	perCPU := rules.MaxMemPerCPU
	if perCPU <= 0 {
		return
	}
	// As in Slurm: a job that asks for more memory per CPU than the limit gets more CPUs.
	switch {
	case c.MemPerCPU > perCPU:
		factor := (c.MemPerCPU + perCPU - 1) / perCPU
		c.CPUsPerTask *= int(factor)
		c.MemPerCPU = (c.MemPerCPU + factor - 1) / factor
	case c.MemPerNode > 0:
		c.MinCPUs = max(c.MinCPUs, int((c.MemPerNode+perCPU-1)/perCPU))
	}
}

// TasksOn gives how many tasks the job has on n nodes.
func (c *Counts) TasksOn(n int) int {
	if c.Tasks == 0 {
		return n * c.PerNode
	}
	return max(c.Tasks, n)
}

// CPUsFor gives how many CPUs a node must give for a number of tasks and of per-job GPUs, before rounding to whole
// cores.
func (c *Counts) CPUsFor(tasks, gpus int) int {
	if c.Overcommit {
		return max(c.CPUsPerTask, c.MinCPUs, gpus*c.CPUsPerGPU)
	}
	return max(tasks*c.CPUsPerTask, c.MinCPUs, gpus*c.CPUsPerGPU)
}

// JobGPUs adds up the per-job GPU requests.
func (c *Counts) JobGPUs() int {
	n := 0
	for i := range c.Gres {
		if g := &c.Gres[i]; g.Per == model.PerJob && g.Name == model.GPUName {
			n += int(g.Count)
		}
	}
	return n
}

// typedFirst orders requests so that requests for a type come before requests for any type.
func typedFirst(list []model.GresReq) []model.GresReq {
	typed := func(a, b model.GresReq) int {
		switch {
		case a.Type != "" && b.Type == "":
			return -1
		case a.Type == "" && b.Type != "":
			return 1
		}
		return 0
	}
	if slices.IsSortedFunc(list, typed) {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, typed)
	return list
}

// Blocks gives the number of tasks on each node of a block distribution, at least one where there is room: evenly, as
// far as there is room, or packed, each node full before the next gets a second one. Tasks without room get no node.
func Blocks(room []int, tasks int, pack bool) []int {
	want := make([]int, len(room))
	for i := range room {
		want[i] = min(1, room[i], tasks)
		tasks -= want[i]
	}
	for left := -1; tasks > 0 && tasks != left; {
		left = tasks
		for i := range room {
			more := min(tasks, room[i]-want[i])
			if !pack {
				more = min(more, 1)
			}
			want[i] += more
			tasks -= more
		}
	}
	return want
}
