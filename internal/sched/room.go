package sched

import (
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// room is what is free on one node while a plan is made. It only shrinks.
type room struct {
	def     *model.NodeDef
	stock   *stock
	cpus    model.Bits // free; with whole cores only CPUs of entirely free cores
	nfree   int        // number of free CPUs
	mem     int64      // MiB free
	gres    []gresRoom
	held    []model.GPUHeld // GPU memory that processes outside of jobs hold
	lot     *lot            // how its GPUs are shared; nil: they are not
	slots   []int           // what each shared GPU has free, see sharing.go
	busy    bool            // a job is on it
	shut    bool            // takes no more: exclusive, or not usable
	counted bool            // made from counts: the numbers of the units are not known
	rank    uint8           // rankOf its node
	keep    int             // a blocked job of a partition of this tier waits for it: lower tiers get nothing

	plain   int              // jobs with CPUs of their own
	sharers int              // jobs that share their CPUs
	shares  []model.CPUShare // the CPUs of jobs that share them
	extra   []int            // slots that are taken in addition to shares, by partition
	levels  []model.Bits     // cpus by how many jobs have them, for a job that shares: no job, one job, and so on
	taken   model.Bits       // CPUs that jobs have
	closed  bool             // a reservation closes the node before the planned end
	limited bool             // reservations hold back a part of the node: jobs that share get at most limit CPUs in all
	limit   int
	inside  bool       // the job that is placed is in one of these reservations
	theirs  model.Bits // CPUs that it may not share, of jobs in other reservations
	full    bool       // a job has the node for itself
	asleep  bool       // a suspended job is on it

	uncut model.Bits // cpus before reservations took their number off them; nil: they are as they are
	caps  []int      // most CPUs that the job to place may have of each socket; nil: all

	parts   []partUse // CPUs in use by partition, where a partition limits them
	private bool      // a job of a partition with ExclusiveUser is on it
	uid     uint32    // user of the jobs on it, if it is the same for all
	mixed   bool      // the jobs on it have different users
}

// gresRoom is what is free of one type of a generic resource.
type gresRoom struct {
	name, typ string
	free      model.Bits // empty if the resource is never used up (NoConsume)
	nfree     int
}

type partUse struct {
	part string
	cpus int
	at   []int // by socket, as far as it is known; nil: no partition limits the CPUs of a socket
}

// stock makes rooms of nodes.
type stock struct {
	v         *state.View
	params    *model.Params
	cost      func(node string) []int32 // Policy.Cost
	now       model.Time                // 0: no GPU is known to have a model loaded
	pos       map[string]int            // positions of nodes in the configuration; made when first needed
	byPart    bool                      // some partition limits the CPUs that its jobs may have on a node
	bySocket  bool                      // some partition limits the CPUs that its jobs may have on a socket
	byUser    bool                      // some partition keeps different users' jobs apart
	isPrivate map[string]bool
	nets      map[string]*network // by the name that partitions give; nil: not needed yet
	gpus      gpuMaps
	lots      lots
	sharing   map[string]int // partitions whose jobs share CPUs, from 1
	shared    bool           // there are such partitions, or jobs that share CPUs
	qosClass  bool           // jobs of a QOS may suspend others
}

// lot gives the description of a node's shared GPUs, nil if it shares none.
func (s *stock) lot(d *model.NodeDef) *lot { return s.lots.of(d, s.params.GPUMemMarginMiB) }

func newStock(v *state.View) *stock {
	cfg := v.Config()
	s := &stock{v: v, params: &cfg.Params, isPrivate: map[string]bool{}, lots: lots{}}
	s.sharing = map[string]int{}
	s.qosClass = cfg.Params.Preempt.ByQOS && suspends(v)
	for _, p := range cfg.Partitions {
		s.bySocket = s.bySocket || p.MaxCPUsPerSocket > 0
		s.byPart = s.byPart || p.MaxCPUsPerNode > 0 || s.bySocket
		s.byUser = s.byUser || p.ExclusiveUser
		s.isPrivate[p.Name] = p.ExclusiveUser
		if p.ShareMax > 1 {
			s.sharing[p.Name], s.shared = len(s.sharing)+1, true
		}
	}
	return s
}

// place gives a node's position in the configuration.
func (s *stock) place(name string) int {
	if s.pos == nil {
		nodes := s.v.Config().Nodes
		s.pos = make(map[string]int, len(nodes))
		for i, n := range nodes {
			s.pos[n.Name] = i
		}
	}
	return s.pos[name]
}

// network is how nodes lie to each other: by switches or by blocks; neither: all are alike.
type network struct {
	tree     *tree
	blocks   *blocks
	optional bool // it counts only for jobs that ask for it
}

// network gives the network of partitions that name this topology, "" for the default one; it is made when first
// needed.
func (s *stock) network(name string) *network {
	if n := s.nets[name]; n != nil {
		return n
	}
	cfg := s.v.Config()
	t := cfg.Networks()[cfg.NetworkOf(&model.Partition{Topology: name})]
	n := &network{optional: s.params.TopoOptional}
	if t.Blocks != nil {
		n.blocks = newBlocks(t.Blocks)
	} else if n.tree = newTree(t.Switches); n.tree != nil {
		n.tree.scatter = s.params.Dragonfly
	}
	if s.nets == nil {
		s.nets = map[string]*network{}
	}
	s.nets[name] = n
	return n
}

// fate is an assumption about what a job does.
type fate uint8

const (
	stays  fate = iota
	sleeps      // it gives its CPUs back
	leaves
)

// weight orders nodes: those of less weight are used first, and of nodes that are off only what is needed.
func (r *room) weight() int64 { return int64(r.rank)<<32 | int64(r.def.Weight) }

// room gives what is free on a node; gone gives the assumption about each job there, nil: all stay.
func (s *stock) room(n *model.Node, gone func(model.JobID) fate) *room {
	r := s.empty(n.Def)
	r.shut, r.rank = !n.Usable(), rankOf(n)
	r.without(n)
	r.heldBy(n.Held)
	if len(n.Jobs) == 0 {
		return r
	}
	if gone == nil {
		r.busy, r.full, r.asleep = n.AwakeJobs() > 0, n.Exclusive != 0, len(n.Asleep) > 0
		r.shut = r.shut || r.full
		if r.shares = n.CPUShares; len(r.shares) > 0 {
			r.sharers = n.AwakeJobs()
		} else {
			r.plain = n.AwakeJobs()
		}
		r.takeShared(n.Shared)
		r.take(n.UsedCPUs, s.params, n.UsedMem, n.UsedGres)
		if !s.byPart && !s.byUser {
			return r
		}
	}
	for _, id := range n.Jobs {
		j := s.v.Job(id)
		if j == nil || j.Run == nil {
			continue
		}
		what := stays
		if gone != nil {
			what = gone(id)
		}
		if what == leaves {
			continue
		}
		off := what == sleeps || len(n.Asleep) > 0 && slices.Contains(n.Asleep, id)
		r.asleep = r.asleep || off
		if k := j.Run.LeavingAt(n.Def.Name); k >= 0 {
			na := &j.Run.Leaving[k].Part
			if gone != nil {
				r.take(na.CPUs, s.params, na.MemMiB, na.Gres)
				r.join(j.Run.Partition, j.Run.Share, na.CPUs)
			}
			r.busy = true
			r.occupy(s, j.Run.Partition, na.CPUs.Count(), s.bySockets(n.Def, na.CPUs), j.Spec.UID, keepsApart(j.Spec))
			continue
		}
		for i := range j.Run.Alloc.Nodes {
			na := &j.Run.Alloc.Nodes[i]
			if na.Node != n.Def.Name {
				continue
			}
			switch {
			case off:
				if gone != nil {
					r.take(nil, s.params, na.MemMiB, na.Gres)
				}
				r.occupy(s, j.Run.Partition, 0, nil, j.Spec.UID, keepsApart(j.Spec))
				continue
			case gone != nil:
				r.full = r.full || n.Exclusive == id
				r.shut = r.shut || r.full
				r.take(na.CPUs, s.params, na.MemMiB, na.Gres)
				r.join(j.Run.Partition, j.Run.Share, na.CPUs)
			}
			r.busy = true
			r.occupy(s, j.Run.Partition, na.CPUs.Count(), s.bySockets(n.Def, na.CPUs), j.Spec.UID, keepsApart(j.Spec))
		}
	}
	return r
}

// join adds a job's CPUs, shared or its own.
func (r *room) join(part string, share int32, cpus model.Bits) {
	if share > 1 {
		r.sharers++
		r.shares = model.AddShare(r.shares, part, cpus)
	} else {
		r.plain++
	}
}

// fullRoom is all that a node has.
func fullRoom(def *model.NodeDef) *room {
	r := &room{def: def, cpus: def.JobCPUs(), nfree: def.JobCPUCount(), mem: def.JobMemMiB()}
	if len(def.Gres) > 0 {
		r.gres = make([]gresRoom, len(def.Gres))
		for i, g := range def.Gres {
			if g.NoConsume {
				r.gres[i] = gresRoom{g.Name, g.Type, nil, int(g.Count)}
				continue
			}
			free := span(int(g.First), int(g.Count)).Minus(g.Off)
			r.gres[i] = gresRoom{g.Name, g.Type, free, free.Count()}
		}
	}
	return r
}

// empty is the room of a node without jobs, whatever its state.
func (s *stock) empty(def *model.NodeDef) *room {
	r := fullRoom(def)
	r.stock = s
	if len(def.Gres) > 0 {
		if r.lot = s.lot(def); r.lot != nil {
			r.slots = r.lot.slots()
		}
	}
	if s.params.WholeCores {
		r.wholeCores()
	}
	return r
}

// span gives the set {first, ..., first+count-1}.
func span(first, count int) model.Bits {
	b := model.UpTo(first + count)
	for i := range min(first, first+count) {
		b[i>>6] &^= 1 << (uint(i) & 63)
	}
	return b
}

// take removes CPUs, memory and units that are in use.
func (r *room) take(cpus model.Bits, params *model.Params, mem int64, gres []model.GresAlloc) {
	r.cpus = r.cpus.Minus(cpus)
	r.taken = r.taken.Or(cpus)
	if params.WholeCores {
		r.wholeCores()
	}
	r.nfree = r.cpus.Count()
	r.mem -= mem
	for _, g := range gres {
		for i := range r.gres {
			if h := &r.gres[i]; h.name == g.Name && h.free.Overlaps(g.Index) {
				h.free = h.free.Minus(g.Index)
				h.nfree = h.free.Count()
			}
		}
	}
	if r.lot != nil {
		r.lot.note(r.slots, gres, -1)
		r.derive()
	}
}

// takeShared removes parts of shared GPUs that are in use.
func (r *room) takeShared(list []model.SharedGPU) {
	if r.lot == nil {
		return
	}
	for i := range list {
		if k, u := r.lot.kind(list[i].Name), int(list[i].GPU); k >= 0 && u < len(r.lot.gpus) {
			r.slots[u*r.lot.stride+1+k] -= int(list[i].Count)
			r.slots[u*r.lot.stride+r.lot.stride-1] -= int(list[i].MemMiB)
		}
	}
}

// without removes the units that are out of service.
func (r *room) without(n *model.Node) {
	if len(n.Out) == 0 {
		return
	}
	for i := range r.gres {
		if h := &r.gres[i]; !h.free.Empty() {
			h.free = h.free.Minus(n.OutOf(h.name))
			h.nfree = h.free.Count()
		}
	}
	if r.lot != nil { // no job gets shares of them either
		n.OutOf(gpuName).Each(func(u int) bool {
			if u < len(r.lot.gpus) {
				r.slots[u*r.lot.stride+slotWhole]--
			}
			return true
		})
		r.derive()
	}
}

// wholeCores removes the free CPUs of cores that are partly in use.
func (r *room) wholeCores() {
	t := int(r.def.ThreadsPerCore)
	if t <= 1 {
		return
	}
	var kept model.Bits
	for first := 0; first+t <= int(r.def.CPUs); first += t {
		whole := true
		for i := first; i < first+t; i++ {
			whole = whole && r.cpus.Has(i)
		}
		if !whole {
			continue
		}
		if kept == nil {
			kept = make(model.Bits, len(r.cpus))
		}
		for i := first; i < first+t; i++ {
			kept[i>>6] |= 1 << (uint(i) & 63)
		}
	}
	r.cpus, r.nfree = kept, kept.Count()
}

// keepsApart reports whether a job shares its nodes only with jobs of its own user.
func keepsApart(sp *model.Spec) bool { return sp.More != nil && sp.More.ExclusiveUser }

// occupy records a job on the node, for partitions whose rules depend on the jobs there.
// at counts its CPUs by socket, nil if that is not known.
func (r *room) occupy(s *stock, part string, cpus int, at []int, uid uint32, alone bool) {
	if s.byUser {
		r.mixed = r.mixed || len(r.parts) > 0 && r.uid != uid
		r.uid = uid
		r.private = r.private || alone || s.isPrivate[part]
	}
	if !s.byPart && !s.byUser {
		return
	}
	for i := range r.parts {
		if r.parts[i].part == part {
			r.parts[i].cpus += cpus
			r.parts[i].at = addBySocket(r.parts[i].at, at)
			return
		}
	}
	r.parts = append(r.parts, partUse{part, cpus, at})
}

// inUse counts the CPUs that a partition's jobs have here.
func (r *room) inUse(part string) int {
	for _, u := range r.parts {
		if u.part == part {
			return u.cpus
		}
	}
	return 0
}

// freeGres counts the free units of a resource that the job can have, of one type or, with typ "", of any.
func (r *room) freeGres(rq *Request, name, typ string) int {
	n := 0
	for i := range r.gres {
		if g := &r.gres[i]; g.name == name && model.TypeFits(name, typ, g.typ) && rq.fitsGPU(&r.def.Gres[i]) {
			n += g.nfree
		}
	}
	return n
}
