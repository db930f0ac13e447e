package sched

import (
	"slices"

	"gbatch/internal/ask"
	"gbatch/internal/model"
)

// Request is what a job needs in one partition, with all defaults applied: the amounts, and the conditions on nodes.
type Request struct {
	ask.Counts

	MaxCPUs     int // per node, for all jobs of the partition together; 0: no limit
	TmpMiB      int64
	Want        *model.Features // nil: any node
	External    bool            // nodes without a daemon will do
	Prefer      *model.Feature  // nil: no wish
	Model       string          // its GPUs had better have it loaded; "": no wish
	ReqNodes    nodeSet         // the job gets all of them, and may get others
	ExcNodes    nodeSet
	Exclusive   bool // no other job on its nodes
	Reboot      bool // nor a suspended one
	Private     bool // only jobs of the same user on its nodes
	UID         uint32
	Reservation string
	noticeS     int64 // of a job that gives way to those of a reservation (model.Spec.NoticeS); -1: it does not

	CoresPerSocket, ThreadsPerCore int             // least number that a node has
	TasksPerSocket                 int             // most tasks on a socket; 0: no limit
	OfSocket                       []model.GresReq // GPUs of each of its sockets
	Index                          model.Bits      // GPUs of each node by number; empty: any
	PerCore                        int             // most CPUs that the job uses of one core; 0: all
	CoreEach                       bool            // each task has cores of its own
	Switches                       int             // most leaf switches; 0: any number
	Contiguous, Spread             bool
	Segment                        int // nodes of a segment (blocks); 0: no segments
	Segments                       model.SegmentWish
	LLN                            bool // least loaded nodes first
	GresBind                       model.GresBinding
	GPUMem                         int64 // MiB that each GPU has, or has left where it is shared; 0: any

	Share     int    // how many jobs may share each of its CPUs; up to 1: its CPUs are its own
	sharePart string // the partition of these jobs
	shareAt   int    // that partition's place (stock.shareAt)
	class     int64  // suspended jobs of lower classes don't count

	tier         int    // the partition's PriorityTier
	topology     string // the partition's; "": the default one
	wholeCores   bool
	wholeSockets bool
	wholeNode    bool   // it gets all CPUs of its nodes, which are one socket as far as wholeSockets goes
	sockets      string // how cores are chosen among sockets: model.BlockCores...; "": the first ones
	perSocket    int    // most CPUs of a socket, for all jobs of the partition together; 0: no limit
	part         string // the partition, if it limits CPUs of nodes or sockets
	memConsumed  bool
	gpuMargin    int64 // MiB of each GPU's memory that no job gets
}

// nodeSet is a set of nodes by name. A list may have thousands of them, and a pass asks it about every node for each
// job.
type nodeSet map[string]bool

func nodeSetOf(list []string) nodeSet {
	if len(list) == 0 {
		return nil
	}
	out := make(nodeSet, len(list))
	for _, name := range list {
		out[name] = true
	}
	return out
}

// namesAll reports whether a job names all the nodes that it may have.
func (r *Request) namesAll() bool { return len(r.ReqNodes) > 0 && len(r.ReqNodes) >= r.MaxNodes }

// Resolve gives what sp needs on nodes of partition p. Defaults come from the partition, then from the cluster; without
// a default, memory follows the CPUs (see memFor).
func Resolve(sp *model.Spec, p *model.Partition, params *model.Params) Request {
	rules := ask.RulesOf(p, params)
	r := Request{Counts: ask.Of(sp, &rules), MaxCPUs: int(p.MaxCPUsPerNode), TmpMiB: sp.TmpMiB, Want: wanted(sp.Features),
		ReqNodes: nodeSetOf(sp.ReqNodes), ExcNodes: nodeSetOf(sp.ExcNodes), Exclusive: sp.Exclusive || p.Exclusive(),
		Private: p.ExclusiveUser,
		UID:     sp.UID, Reservation: sp.Reservation, tier: int(p.PriorityTier), wholeCores: params.WholeCores,
		memConsumed: params.MemConsumed}
	r.LLN, r.gpuMargin = params.LLN || p.LLN, params.GPUMemMarginMiB
	r.topology, r.noticeS = p.Topology, sp.NoticeS()
	r.wholeNode = params.WholeNodes && !r.Exclusive
	r.wholeSockets = params.SocketsOf(p) || r.wholeNode
	if r.wholeCores {
		r.sockets = model.BlockCores
		if params.CyclicCores {
			r.sockets = model.CyclicCores
		}
	}
	if r.perSocket = int(p.MaxCPUsPerSocket); r.wholeNode { // which its jobs get whatever it has
		r.MaxCPUs, r.perSocket = 0, 0
	}
	if r.perSocket > 0 || r.MaxCPUs > 0 {
		r.part = p.Name
	}
	if n := p.Shared(sp); n > 1 && !r.Exclusive {
		r.Share, r.sharePart = int(n), p.Name
	}
	if sp.More != nil {
		r.more(sp.More)
	}
	return r
}

// wanted reads a feature expression. Submission refuses one that does not parse; here it fits no node.
func wanted(expr string) *model.Features {
	f, err := model.ParseFeatures(expr)
	if err != nil {
		return &model.Features{Each: &model.Feature{Op: '!', Of: []*model.Feature{{Op: '&'}}}}
	}
	return f
}

// more sets the requests that few jobs make.
func (r *Request) more(m *model.Needs) {
	prefer, name, err := model.SplitPrefer(m.Prefer)
	if err != nil { // submission refuses it
		prefer = ""
	}
	if f := wanted(prefer); f != nil {
		r.Prefer = f.Each
	}
	r.Model, r.External = name, m.External
	r.CoresPerSocket, r.ThreadsPerCore = int(m.CoresPerSocket), int(m.ThreadsPerCore)
	r.TasksPerSocket, r.PerCore = int(m.TasksPerSocket), int(m.ThreadsPerCore)
	if k := int(m.TasksPerCore); k > 0 {
		r.CoreEach = k == 1
		if n := k * r.CPUsPerTask; r.PerCore == 0 || n < r.PerCore {
			r.PerCore = n
		}
	}
	if way := m.Bind.SocketDist(); way != "" && r.wholeCores {
		r.sockets = way
	}
	r.OfSocket, r.Index = m.GPUsPerSocket, m.GPUIndex
	r.Switches, r.Contiguous, r.Spread = int(m.Switches), m.Contiguous, m.Spread
	r.Segment, r.Segments = int(m.Segment), m.Segments
	r.Private, r.Reboot = r.Private || m.ExclusiveUser, m.Reboot
	r.GPUMem, r.GresBind = m.GPUMemMiB, m.GresBind
}

// wish is a rare request for particular units of a node.
type wish struct {
	says    func(rq *Request) string // what needText says of it; "": the job doesn't ask for it
	without string                   // the change that may help
	drop    func(m *model.Needs)
}

var wishes = [...]wish{
	{func(rq *Request) string {
		if rq.Index.Empty() {
			return ""
		}
		return "those with the numbers " + rq.Index.String()
	}, "any GPUs, without --gpu-index", func(m *model.Needs) { m.GPUIndex = nil }},
	{func(rq *Request) string {
		if rq.GresBind != model.BindEnforced {
			return ""
		}
		return "only with CPUs near them"
	}, "any CPUs, without --gres-flags=enforce-binding", func(m *model.Needs) { m.GresBind = model.BindPreferred }},
}

// Which nodes suit a request, by their hardware and features.

// suits reports whether a node's hardware and features suit the job, whatever is free.
func (r *Request) suits(d *model.NodeDef) bool {
	if r.TmpMiB > d.TmpMiB || d.External && !r.External {
		return false
	}
	if r.Sockets|r.CoresPerSocket|r.ThreadsPerCore != 0 &&
		(int(d.Sockets) < r.Sockets || int(d.CoresPerSocket) < r.CoresPerSocket ||
			max(1, int(d.ThreadsPerCore)) < r.ThreadsPerCore) {
		return false
	}
	w := r.Want
	if w == nil {
		return true
	}
	if !w.Each.Met(d.Features) {
		return false
	}
	return len(w.Same) == 0 || slices.ContainsFunc(w.Same, func(f *model.Feature) bool { return f.Met(d.Features) })
}

// alone reports whether a node by itself meets all counts of the job's features, so that it can be the job's only node.
func (r *Request) alone(d *model.NodeDef) bool {
	if r.Want == nil {
		return true
	}
	for i := range r.Want.Counts {
		if c := &r.Want.Counts[i]; c.N > 1 || !c.Met(d.Features) {
			return false
		}
	}
	return true
}

// picky reports whether sets of nodes can only be found by trying: such a job may fit in less room but not in more.
func (r *Request) picky() bool {
	return r.Want != nil && len(r.Want.Counts) > 0 || r.Switches > 0 || r.Contiguous || r.Segment > 0
}
