package sched

import (
	"slices"
	"strings"

	"gbatch/internal/model"
)

// pick gives count units of a resource to na, of one type if some type has as many, otherwise of several. It reports
// whether there were enough.
func (r *room) pick(na *model.NodeAlloc, g model.GresReq, count int) bool {
	type source struct {
		typ  string
		free model.Bits
	}
	var from []source
	for i := range r.gres {
		h := &r.gres[i]
		if h.name != g.Name || g.Type != "" && !strings.EqualFold(h.typ, g.Type) {
			continue
		}
		free := h.free
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
	for _, s := range from {
		if index := s.free.First(count); index != nil {
			addGres(na, g.Name, s.typ, index)
			return true
		}
	}
	for _, s := range from {
		n := min(count, s.free.Count())
		if n > 0 {
			addGres(na, g.Name, s.typ, s.free.First(n))
			count -= n
		}
	}
	return count == 0
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

// hasFeatures reports whether a node has every one of the features.
func hasFeatures(def *model.NodeDef, want []string) bool {
	for _, f := range want {
		if !slices.Contains(def.Features, f) {
			return false
		}
	}
	return true
}
