package sched

import (
	"gbatch/internal/ask"
	"gbatch/internal/model"
)

// Request is what a job needs in one partition, resolved: what it asks for, and of which nodes.
type Request struct {
	ask.Counts

	MaxCPUs     int // per node, of all jobs of the partition; 0: no limit
	TmpMiB      int64
	Want        *model.Features // nil: any node
	Prefer      *model.Feature  // nil: no wish
	ReqNodes    []string        // all of them, others beside them
	ExcNodes    []string
	Exclusive   bool // nobody else on its nodes
	Private     bool // only jobs of the same user on its nodes
	UID         uint32
	Reservation string

	CoresPerSocket, ThreadsPerCore int             // a node has as many
	TasksPerSocket                 int             // most tasks; 0: no limit
	OfSocket                       []model.GresReq // GPUs of each of its sockets
	Index                          model.Bits      // GPUs of each node by number; empty: any
	PerCore                        int             // most CPUs used of one core; 0: all
	CoreEach                       bool            // each task has its cores for itself
	Switches                       int             // most leaf switches; 0: any number
	Contiguous, Spread             bool
	Licenses                       []model.LicenseCount
	AnyLicense                     bool  // one of them is enough
	LLN                            bool  // least loaded nodes first
	GPUMem                         int64 // MiB that each GPU has, or has left where it is shared; 0: any

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
func Resolve(sp *model.Spec, p *model.Partition, params *model.Params) Request {
	rules := ask.RulesOf(p, params)
	r := Request{Counts: ask.Of(sp, &rules), MaxCPUs: int(p.MaxCPUsPerNode), TmpMiB: sp.TmpMiB, Want: wanted(sp.Features),
		ReqNodes: sp.ReqNodes, ExcNodes: sp.ExcNodes, Exclusive: sp.Exclusive || p.Exclusive(), Private: p.ExclusiveUser,
		UID: sp.UID, Reservation: sp.Reservation, tier: int(p.PriorityTier), wholeCores: params.WholeCores,
		memConsumed: params.MemConsumed}
	r.LLN, r.gpuMargin = params.LLN || p.LLN, params.GPUMemMarginMiB
	if n := p.Shared(sp); n > 1 && !r.Exclusive {
		r.Share, r.sharePart = int(n), p.Name
	}
	if sp.More != nil {
		r.more(sp.More)
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
