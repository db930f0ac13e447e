package sched

import "gbatch/internal/model"

// Request is what a job needs, resolved: counts per node and for the whole job.
type Request struct {
	MinNodes, MaxNodes int
	Tasks              int // 0: one per node
	TasksPerNode       int // most tasks on one node; 0: no limit
	CPUsPerTask        int
	MinCPUs            int   // per node
	MemPerNode         int64 // MiB; WholeMem: all
	MemPerCPU          int64 // MiB
	Gres               []model.GresReq
}

// Resolve gives what sp needs on nodes of partition p. Defaults come from the partition, then from the cluster; with
// none, memory follows the CPUs (see layNode).
func Resolve(sp *model.Spec, p *model.Partition, params *model.Params) Request {
	r := Request{MinNodes: max(1, int(sp.MinNodes), len(sp.ReqNodes)), MaxNodes: int(sp.MaxNodes), Tasks: int(sp.Tasks),
		TasksPerNode: int(sp.TasksPerNode), CPUsPerTask: max(1, int(sp.CPUsPerTask)), MinCPUs: int(sp.MinCPUs),
		MemPerNode: sp.MemPerNode, MemPerCPU: sp.MemPerCPU, Gres: sp.Gres}
	if r.MaxNodes < r.MinNodes {
		r.MaxNodes = r.MinNodes
		if sp.MinNodes == 0 && r.Tasks > 1 {
			r.MaxNodes = r.Tasks // -n alone may spread
		}
	}
	if r.Tasks == 0 && r.TasksPerNode > 0 {
		r.Tasks = r.MinNodes * r.TasksPerNode
	}
	if r.MemPerNode == 0 && r.MemPerCPU == 0 {
		switch {
		case p.DefMemPerCPU > 0:
			r.MemPerCPU = p.DefMemPerCPU
		case p.DefMemPerNode > 0:
			r.MemPerNode = p.DefMemPerNode
		case params.DefMemPerCPU > 0:
			r.MemPerCPU = params.DefMemPerCPU
		case params.DefMemPerNode > 0:
			r.MemPerNode = params.DefMemPerNode
		}
	}
	return r
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
