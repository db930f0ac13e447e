package sched

import (
	"slices"

	"gbatch/internal/model"
)

// Request is what a job needs in one partition, resolved: counts per node and for the whole job, defaults filled in.
type Request struct {
	MinNodes, MaxNodes int
	Grow               bool // a range of nodes was asked for: as many as possible, not as few
	Tasks              int  // of the whole job; 0: PerNode on each node
	PerNode            int  // fewest tasks on one node
	TasksPerNode       int  // most tasks on one node; 0: no limit
	CPUsPerTask        int
	MinCPUs            int   // per node
	MaxCPUs            int   // per node, of all jobs of the partition; 0: no limit
	MemPerNode         int64 // MiB; WholeMem: all
	MemPerCPU          int64 // MiB
	MaxMem             int64 // MiB per node that the job may ask for; 0: no limit
	TmpMiB             int64
	Gres               []model.GresReq // those with a type first
	Want               *model.Features // nil: any node
	Prefer             *model.Feature  // nil: no wish
	ReqNodes           []string        // all of them, others beside them
	ExcNodes           []string
	Exclusive          bool // nobody else on its nodes
	Private            bool // only jobs of the same user on its nodes
	Overcommit         bool // one CPU per node, however many tasks
	UID                uint32
	Reservation        string

	Sockets, CoresPerSocket, ThreadsPerCore int             // a node has as many
	TasksPerSocket                          int             // most tasks; 0: no limit
	OfSocket                                []model.GresReq // GPUs of each of its sockets
	Index                                   model.Bits      // GPUs of each node by number; empty: any
	PerCore                                 int             // most CPUs used of one core; 0: all
	CoreEach                                bool            // each task has its cores for itself
	CPUsPerGPU                              int             // for each GPU that is counted per job
	GPUMemNode, GPUMemTask, GPUMemJob       int64           // MiB for the GPUs of a node, of a task, and for each that is counted per job
	ByGPU                                   bool            // memory is given by GPU
	Switches                                int             // most leaf switches; 0: any number
	Contiguous, Spread                      bool
	Licenses                                []model.LicenseCount
	AnyLicense                              bool  // one of them is enough
	LLN                                     bool  // least loaded nodes first
	GPUMem                                  int64 // MiB that each GPU has, or has left where it is shared; 0: any

	Share     int    // how many jobs may have each of its CPUs; up to 1: it has them for itself
	sharePart string // the partition whose jobs these are
	shareAt   int    // its place
	class     int64  // suspended jobs of lower ones are planned over

	tier        int // the partition's
	wholeCores  bool
	memConsumed bool
	gpuMargin   int64 // MiB of each GPU's memory that nobody gets
}

// Resolve gives what sp needs on nodes of partition p. Defaults come from the partition, then from the cluster; with
// none, memory follows the CPUs (see memFor).
//
// Where sp says nothing of nodes, the job gets as few as hold its tasks and its per-job resources; where it gives a
// range, as many as are free.
func Resolve(sp *model.Spec, p *model.Partition, params *model.Params) Request {
	r := Request{Tasks: int(sp.Tasks), PerNode: 1, TasksPerNode: int(sp.TasksPerNode), CPUsPerTask: max(1, int(sp.CPUsPerTask)),
		MinCPUs: int(sp.MinCPUs), MaxCPUs: int(p.MaxCPUsPerNode), MemPerNode: sp.MemPerNode, MemPerCPU: sp.MemPerCPU, TmpMiB: sp.TmpMiB,
		Gres: typedFirst(sp.Gres), Want: wanted(sp.Features), ReqNodes: sp.ReqNodes, ExcNodes: sp.ExcNodes,
		Exclusive: sp.Exclusive || p.Exclusive(), Private: p.ExclusiveUser, Overcommit: sp.Overcommit, UID: sp.UID, Reservation: sp.Reservation,
		tier: int(p.PriorityTier), wholeCores: params.WholeCores, memConsumed: params.MemConsumed}
	r.LLN, r.gpuMargin = params.LLN || p.LLN, params.GPUMemMarginMiB
	if n := p.Shared(sp); n > 1 && !r.Exclusive {
		r.Share, r.sharePart = int(n), p.Name
	}
	r.nodes(sp, p)
	r.gpuDefaults(sp, p, params)
	if sp.More != nil {
		r.more(sp.More)
	}
	if r.Tasks == 0 && r.TasksPerNode > 0 {
		r.PerNode = r.TasksPerNode
	}
	r.memory(p, params)
	return r
}

// nodes sets how many nodes the job may have.
func (r *Request) nodes(sp *model.Spec, p *model.Partition) {
	least := max(1, int(sp.MinNodes))
	if r.Tasks > 0 {
		least = min(least, r.Tasks) // a node without a task is none of the job's
	}
	if sp.MinNodes == 0 && r.Want != nil {
		sum := 0
		for i := range r.Want.Counts {
			sum = min(sum+r.Want.Counts[i].N, model.MaxFeatureCount)
		}
		if r.Tasks > 0 {
			sum = min(sum, r.Tasks)
		}
		least = max(least, sum)
	}
	r.MinNodes = max(least, len(sp.ReqNodes), int(p.MinNodes))
	switch {
	case sp.MaxNodes > 0:
		r.MaxNodes = max(int(sp.MaxNodes), len(sp.ReqNodes))
	case sp.MinNodes > 0:
		r.MaxNodes = r.MinNodes
	default:
		r.MaxNodes = max(r.MinNodes, r.Tasks)
		for _, g := range r.Gres {
			if g.Per == model.PerJob {
				r.MaxNodes = max(r.MaxNodes, int(g.Count))
			}
		}
	}
	r.Grow = sp.MinNodes > 0 && r.MaxNodes > r.MinNodes
	if r.Tasks > 0 {
		r.MaxNodes = min(r.MaxNodes, max(r.Tasks, r.MinNodes))
	}
	if p.MaxNodes > 0 {
		r.MaxNodes = min(r.MaxNodes, int(p.MaxNodes))
	}
}

// DefaultMemory gives what jobs of a partition have that ask for no memory, MiB: one of the two, or 0, an even share.
func DefaultMemory(p *model.Partition, params *model.Params) (perCPU, perNode int64) {
	switch {
	case p.DefMemPerCPU > 0:
		return p.DefMemPerCPU, 0
	case p.DefMemPerNode > 0:
		return 0, p.DefMemPerNode
	case params.DefMemPerCPU > 0:
		return params.DefMemPerCPU, 0
	}
	return 0, max(0, params.DefMemPerNode)
}

// memory sets how much memory the job needs and may have on a node.
func (r *Request) memory(p *model.Partition, params *model.Params) {
	if r.MemPerNode == 0 && r.MemPerCPU == 0 && !r.ByGPU {
		r.MemPerCPU, r.MemPerNode = DefaultMemory(p, params)
	}
	perCPU, perNode := params.MaxMemPerCPU, params.MaxMemPerNode
	if p.MaxMemPerCPU > 0 || p.MaxMemPerNode > 0 {
		perCPU, perNode = p.MaxMemPerCPU, p.MaxMemPerNode
	}
	r.MaxMem = perNode
	if perCPU <= 0 {
		return
	}
	// As in Slurm: who wants more memory per CPU than the limit gets more CPUs for it.
	switch {
	case r.MemPerCPU > perCPU:
		factor := (r.MemPerCPU + perCPU - 1) / perCPU
		r.CPUsPerTask *= int(factor)
		r.MemPerCPU = (r.MemPerCPU + factor - 1) / factor
	case r.MemPerNode > 0:
		r.MinCPUs = max(r.MinCPUs, int((r.MemPerNode+perCPU-1)/perCPU))
	}
}

// tasksOn gives how many tasks the job has on n nodes.
func (r *Request) tasksOn(n int) int {
	if r.Tasks == 0 {
		return n * r.PerNode
	}
	return max(r.Tasks, n)
}

// cpusFor gives how many CPUs a node must give for a number of tasks and of GPUs that are counted per job, before whole
// cores are made of them.
func (r *Request) cpusFor(tasks, gpus int) int {
	if r.Overcommit {
		return max(1, r.MinCPUs, gpus*r.CPUsPerGPU)
	}
	return max(tasks*r.CPUsPerTask, r.MinCPUs, gpus*r.CPUsPerGPU)
}

// typedFirst orders requests so that those of one type are served before those that take any.
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

// LimitS gives the time limit that a job gets in a partition, seconds.
func LimitS(sp *model.Spec, p *model.Partition) int64 {
	switch {
	case sp.LimitS != model.NotSet:
		return sp.LimitS
	case p.DefTimeS != model.NotSet:
		return p.DefTimeS
	case p.MaxTimeS != model.NotSet:
		return p.MaxTimeS
	}
	return model.Unlimited
}
