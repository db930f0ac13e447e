package headroom

import (
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Room is a partition's headroom at a moment.
type Room struct {
	Unit  string // gpu or cpu
	Total int64  // in service
	Keep  int64  // the headroom
	Firm  int64  // with jobs that can't be ended at once
	Held  []Held // the same, by job

	firm map[string]model.Bits // by node, for every node that counts
}

// Held is what one job holds.
type Held struct {
	Job   model.JobID
	Units int64
}

// Left gives how much more jobs that can't be ended at once may have; less than 0 if they have too much.
func (r *Room) Left() int64 { return r.Total - r.Keep - r.Firm }

// Of counts a partition's headroom; nil if it has none.
func Of(v *state.View, part *model.Partition) *Room {
	if part.Headroom <= 0 {
		return nil
	}
	r := &Room{Unit: "cpu", firm: map[string]model.Bits{}}
	var nodes []*model.Node
	cpus := int64(0)
	for _, name := range part.Nodes {
		n := v.Node(name)
		if n == nil || !n.Usable() {
			continue
		}
		nodes = append(nodes, n)
		r.firm[name] = nil
		cpus += int64(n.Def.CPUs)
		for i := range n.Def.Gres {
			if g := &n.Def.Gres[i]; g.Name == model.GPUName {
				r.Unit = model.GPUName
				r.Total += int64(g.Count)
			}
		}
		if broken := n.OutOf(model.GPUName); !broken.Empty() {
			r.Total -= int64(broken.Count())
		}
	}
	if r.Unit == "cpu" {
		r.Total = cpus
	}
	r.Keep = model.TRESLimit{Count: int64(part.Headroom), Percent: true}.Of(r.Total)
	lender := Lenders(v)
	for _, n := range nodes {
		for _, id := range n.Jobs {
			if j := v.Job(id); j != nil && j.Run != nil && !lender.Lends(j, j.Run.Partition) {
				r.add(j, n.Def.Name)
			}
		}
	}
	return r
}

// add counts what a job that can't be ended has of a node.
func (r *Room) add(j *model.Job, node string) {
	k := j.Run.Alloc.Place(node)
	if k < 0 || j.Spec.Elastic() != nil && k >= int(j.Spec.MinNodes) {
		return
	}
	if n := r.takeOne(&j.Run.Alloc.Nodes[k]); n > 0 {
		i := slices.IndexFunc(r.Held, func(h Held) bool { return h.Job == j.ID })
		if i < 0 {
			i = len(r.Held)
			r.Held = append(r.Held, Held{Job: j.ID})
		}
		r.Held[i].Units += n
	}
}

// units gives what counts of a part of a node. A GPU of which the job has a share counts as a whole one.
func (r *Room) units(na *model.NodeAlloc) model.Bits {
	if r.Unit == "cpu" {
		return na.CPUs
	}
	var out model.Bits
	for i := range na.Gres {
		switch g := &na.Gres[i]; {
		case g.Share != nil:
			out = out.With(int(g.Share.GPU))
		case g.Name == model.GPUName:
			out = out.Or(g.Index)
		}
	}
	return out
}

// Needs gives how much an allocation takes that no job which can't be ended has already.
func (r *Room) Needs(a *model.Alloc) int64 {
	n := int64(0)
	for i := range a.Nodes {
		na := &a.Nodes[i]
		if was, counts := r.firm[na.Node]; counts {
			n += int64(r.units(na).Minus(was).Count())
		}
	}
	return n
}

// Take counts an allocation of a job that can't be ended at once, and gives how much it takes.
func (r *Room) Take(id model.JobID, a *model.Alloc) int64 {
	n := int64(0)
	for i := range a.Nodes {
		n += r.takeOne(&a.Nodes[i])
	}
	if n > 0 {
		r.Held = append(r.Held, Held{id, n})
	}
	return n
}

func (r *Room) takeOne(na *model.NodeAlloc) int64 {
	was, counts := r.firm[na.Node]
	if !counts {
		return 0
	}
	more := r.units(na).Minus(was)
	n := int64(more.Count())
	if n > 0 {
		r.firm[na.Node] = was.Or(more)
		r.Firm += n
	}
	return n
}

// TRES gives the name of the resource that counts, as gacctmgr and ginfo call it.
func (r *Room) TRES() string {
	if r.Unit == "cpu" {
		return "cpu"
	}
	return model.GresTRES(r.Unit, "")
}
