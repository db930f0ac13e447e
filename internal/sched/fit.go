package sched

import (
	"sort"
	"strings"

	"gbatch/internal/model"
)

// room is what is free on one node while a plan is made.
type room struct {
	def   *model.NodeDef
	cpus  model.Bits        // free
	nfree int               // how many
	mem   int64             // MiB free
	gres  []model.GresAlloc // in use, by name
	busy  bool              // somebody is on it
	shut  bool              // takes no more: exclusive, or not usable
}

func roomOf(n *model.Node, usable bool) room {
	cpus := model.UpTo(int(n.Def.CPUs)).Minus(n.UsedCPUs)
	return room{def: n.Def, cpus: cpus, nfree: cpus.Count(), mem: n.Def.MemMiB - n.UsedMem, gres: n.UsedGres,
		busy: len(n.Jobs) > 0, shut: !usable || n.Exclusive != 0}
}

// emptyRoom is a node with nothing on it, whatever its state.
func emptyRoom(def *model.NodeDef) room {
	cpus := model.UpTo(int(def.CPUs))
	return room{def: def, cpus: cpus, nfree: cpus.Count(), mem: def.MemMiB}
}

func (r *room) used(name string) model.Bits {
	for i := range r.gres {
		if r.gres[i].Name == name {
			return r.gres[i].Index
		}
	}
	return nil
}

// freeGres gives the free indices of a resource of any type or one.
func (r *room) freeGres(name, typ string) model.Bits {
	var all model.Bits
	for _, d := range r.def.Gres {
		if d.Name == name && (typ == "" || strings.EqualFold(d.Type, typ)) {
			all = all.Or(model.UpTo(int(d.First + d.Count)).Minus(model.UpTo(int(d.First))))
		}
	}
	if used := r.used(name); used != nil {
		return all.Minus(used)
	}
	return all
}

// Why a job does not fit on a set of nodes.
type miss uint8

const (
	missNone miss = iota
	missNodes
	missCPUs
	missMemory
	missGres
	missFeature
)

// lay places a job on nodes in the given order: the smallest number of nodes that holds it, in order of the list.
// A PerJob count of a resource is spread over the nodes as they come.
func lay(rooms []*room, sp *model.Spec, rq *Request, params *model.Params) (*model.Alloc, miss) {
	worst := missNodes
	if rq.MaxNodes == 1 || rq.MinNodes == 1 && rq.Tasks <= 1 {
		tasks := max(1, rq.Tasks)
		for _, r := range rooms {
			na, m := layNode(r, sp, rq, params, tasks, jobGres(rq, 1, 0))
			if m == missNone {
				return &model.Alloc{Nodes: []model.NodeAlloc{na}}, missNone
			}
			worst = max(worst, m)
		}
		return nil, worst
	}
	for n := rq.MinNodes; n <= rq.MaxNodes; n++ {
		a, m := laySpread(rooms, sp, rq, params, n)
		if a != nil {
			return a, missNone
		}
		worst = max(worst, m)
		if n >= len(rooms) {
			break
		}
	}
	return nil, worst
}

// laySpread places a job on exactly n nodes: every node gets at least one task, then as many as it holds.
func laySpread(rooms []*room, sp *model.Spec, rq *Request, params *model.Params, n int) (*model.Alloc, miss) {
	tasks := max(rq.Tasks, n)
	worst := missNodes
	type place struct {
		r   *room
		max int
	}
	var picked []place
	for _, r := range rooms {
		most := 0
		limit := tasks - (n - 1)
		if rq.TasksPerNode > 0 {
			limit = min(limit, rq.TasksPerNode)
		}
		for try := limit; try >= 1; try = shrink(try, r, rq) {
			if _, m := layNode(r, sp, rq, params, try, jobGres(rq, n, len(picked))); m == missNone {
				most = try
				break
			} else {
				worst = max(worst, m)
			}
		}
		if most > 0 {
			picked = append(picked, place{r, most})
		}
	}
	if len(picked) < n {
		return nil, worst
	}
	sort.SliceStable(picked, func(i, j int) bool { return picked[i].max > picked[j].max })
	picked = picked[:n]
	left := tasks - n
	a := &model.Alloc{}
	for i, p := range picked {
		give := 1 + min(left, p.max-1)
		left -= give - 1
		na, m := layNode(p.r, sp, rq, params, give, jobGres(rq, n, i))
		if m != missNone {
			return nil, m
		}
		a.Nodes = append(a.Nodes, na)
	}
	if left > 0 {
		return nil, missCPUs
	}
	sort.SliceStable(a.Nodes, func(i, j int) bool { return a.Nodes[i].Node < a.Nodes[j].Node })
	return a, missNone
}

// shrink gives the next smaller number of tasks worth trying on a node.
func shrink(try int, r *room, rq *Request) int {
	return min(try-1, max(r.nfree/max(1, rq.CPUsPerTask), 0))
}

// jobGres gives the share of per-job counts that node i of n gets.
func jobGres(rq *Request, n, i int) func(count int32) int {
	return func(count int32) int {
		share := int(count) / n
		if i < int(count)%n {
			share++
		}
		return share
	}
}

// layNode places tasks of a job on one node.
func layNode(r *room, sp *model.Spec, rq *Request, params *model.Params, tasks int, share func(int32) int) (model.NodeAlloc, miss) {
	var none model.NodeAlloc
	if r.shut || sp.Exclusive && r.busy {
		return none, missNodes
	}
	if !HasFeatures(r.def, sp.Features) {
		return none, missFeature
	}
	want := max(tasks*rq.CPUsPerTask, rq.MinCPUs)
	if sp.Overcommit {
		want = max(1, rq.MinCPUs)
	}
	cpus := pickCPUs(r, want, params.WholeCores)
	if sp.Exclusive {
		cpus = r.cpus
	}
	if cpus.Empty() || cpus.Count() < want {
		return none, missCPUs
	}
	na := model.NodeAlloc{Node: r.def.Name, CPUs: cpus, Tasks: int32(tasks)}
	na.MemMiB = memFor(r, rq, cpus.Count())
	if params.MemConsumed && na.MemMiB > r.mem {
		return none, missMemory
	}
	if sp.TmpMiB > r.def.TmpMiB {
		return none, missFeature
	}
	for _, g := range rq.Gres {
		count := int(g.Count)
		switch g.Per {
		case model.PerTask:
			count *= tasks
		case model.PerJob:
			count = share(g.Count)
		}
		if count == 0 {
			continue
		}
		free := r.freeGres(g.Name, g.Type)
		for _, have := range na.Gres {
			if have.Name == g.Name {
				free = free.Minus(have.Index)
			}
		}
		index := free.First(count)
		if index == nil {
			return none, missGres
		}
		na.Gres = append(na.Gres, model.GresAlloc{Name: g.Name, Type: typeOf(r.def, g, index), Index: index})
	}
	return na, missNone
}

// typeOf names the type that was given where the job asked for any and got one kind.
func typeOf(def *model.NodeDef, g model.GresReq, index model.Bits) string {
	for _, d := range def.Gres {
		if d.Name == g.Name && (g.Type == "" || strings.EqualFold(d.Type, g.Type)) {
			if model.UpTo(int(d.First + d.Count)).Minus(model.UpTo(int(d.First))).Contains(index) {
				return d.Type
			}
		}
	}
	return g.Type
}

// memFor gives the memory that goes with cpus on a node, MiB. A job that asked for none, in a cluster without a
// default, gets its CPUs' even share: Slurm would give it the whole node, which surprises everybody once.
func memFor(r *room, rq *Request, cpus int) int64 {
	switch {
	case rq.MemPerNode == model.WholeMem:
		return r.def.MemMiB
	case rq.MemPerNode > 0:
		return rq.MemPerNode
	case rq.MemPerCPU > 0:
		return rq.MemPerCPU * int64(cpus)
	}
	return r.def.MemMiB * int64(cpus) / int64(max(1, r.def.CPUs))
}

// pickCPUs takes the lowest free CPUs; with whole cores all threads of a core or none.
func pickCPUs(r *room, want int, wholeCores bool) model.Bits {
	threads := int(r.def.ThreadsPerCore)
	if !wholeCores || threads <= 1 {
		return r.cpus.First(want)
	}
	var out model.Bits
	for core := 0; core*threads < int(r.def.CPUs) && want > 0; core++ {
		cpus := model.UpTo((core + 1) * threads).Minus(model.UpTo(core * threads))
		if r.cpus.Contains(cpus) {
			out = out.Or(cpus)
			want -= threads
		}
	}
	if want > 0 {
		return nil
	}
	return out
}

// HasFeatures reports whether a node has every feature of an expression "a&b". Validate has checked the expression.
func HasFeatures(def *model.NodeDef, expr string) bool {
	for want := range strings.SplitSeq(expr, "&") {
		if want = strings.TrimSpace(want); want == "" {
			continue
		}
		found := false
		for _, f := range def.Features {
			found = found || f == want
		}
		if !found {
			return false
		}
	}
	return true
}

// book takes an allocation out of the rooms.
func (r *room) book(na *model.NodeAlloc, exclusive bool) {
	r.cpus = r.cpus.Minus(na.CPUs)
	r.nfree = r.cpus.Count()
	r.mem -= na.MemMiB
	r.busy = true
	r.shut = r.shut || exclusive
	for _, g := range na.Gres {
		out := make([]model.GresAlloc, 0, len(r.gres)+1)
		found := false
		for _, u := range r.gres {
			if u.Name == g.Name {
				u.Index, found = u.Index.Or(g.Index), true
			}
			out = append(out, u)
		}
		if !found {
			out = append(out, model.GresAlloc{Name: g.Name, Index: g.Index})
		}
		r.gres = out
	}
}
