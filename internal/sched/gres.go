package sched

import (
	"slices"

	"gbatch/internal/model"
)

// pick adds count units of a resource to na, of one type if a type has enough, otherwise of several. It reports whether
// there were enough. gpuset.go chooses among the free units, for a job that takes cpus CPUs.
func (r *room) pick(na *model.NodeAlloc, rq *Request, g model.GresReq, count, cpus int) bool {
	type source struct {
		typ  string
		free model.Bits
	}
	var from []source
	unused := 0 // units that are never used up (NoConsume)
	for i := range r.gres {
		h := &r.gres[i]
		if r.def.Gres[i].NoConsume && h.name == g.Name && model.TypeFits(g.Name, g.Type, h.typ) {
			unused += h.nfree
			continue
		}
		if h.name != g.Name || !model.TypeFits(g.Name, g.Type, h.typ) || !rq.fitsGPU(&r.def.Gres[i]) {
			continue
		}
		free := h.free
		if g.Name == gpuName && !rq.Index.Empty() && !r.counted {
			free = free.And(rq.Index)
		}
		for _, have := range na.Gres {
			if have.Name == h.name {
				free = free.Minus(have.Index)
			}
		}
		if k := slices.IndexFunc(from, func(s source) bool { return s.typ == h.typ }); k >= 0 {
			from[k].free = from[k].free.Or(free)
		} else {
			from = append(from, source{h.typ, free})
		}
	}
	if count -= unused; count <= 0 {
		return true
	}
	by := r.taste(rq, g.Name)
	first := func(free model.Bits, n int) model.Bits { return by.first(free, n) }
	if m := r.gpuMap(g.Name); m != nil && (by == nil || !by.alone) {
		first = func(free model.Bits, n int) model.Bits { return r.units(m, na, g.Name, free, n, cpus, by) }
	}
	for _, s := range from {
		if index := first(s.free, count); index != nil {
			addGres(na, g.Name, s.typ, index)
			return true
		}
	}
	for _, s := range from {
		n := min(count, s.free.Count())
		if n > 0 {
			addGres(na, g.Name, s.typ, first(s.free, n))
			count -= n
		}
	}
	return count == 0
}

// gpuMap gives the links and cores of the units of a resource, or nil.
func (r *room) gpuMap(name string) *gpuMap {
	if r.stock == nil {
		return nil
	}
	return r.stock.gpus.of(r.def, name)
}

// units chooses n free units of from; nil if there are not enough.
func (r *room) units(m *gpuMap, na *model.NodeAlloc, name string, from model.Bits, n, cpus int, by *taste) model.Bits {
	var free model.Bits
	for i := range r.gres {
		if r.gres[i].name == name {
			free = free.Or(r.gres[i].free)
		}
	}
	for i := range na.Gres {
		if na.Gres[i].Name == name {
			free = free.Minus(na.Gres[i].Index)
		}
	}
	if len(from) == 0 || len(free) == 0 {
		return nil
	}
	set := m.choose(from[0], free[0], n, r.cpus, cpus, by)
	if set == 0 {
		return nil
	}
	return model.Bits{set}
}

func addGres(na *model.NodeAlloc, name, typ string, index model.Bits) {
	for i := range na.Gres {
		if na.Gres[i].Name == name && na.Gres[i].Type == typ {
			na.Gres[i].Index = na.Gres[i].Index.Or(index)
			return
		}
	}
	na.Gres = append(na.Gres, model.GresAlloc{Name: name, Type: typ, Index: index})
}
