package sched

import (
	"strings"

	"gbatch/internal/model"
)

// GPUs by their numbers (--gpu-index): each node of the job gives exactly these. On the calendar they count as any GPUs
// of the node, as those by socket do (bysocket.go); by number they are looked at once names count.

// named reports whether a job asks for certain units of a node: by number or by socket.
func (rq *Request) named() bool { return len(rq.OfSocket) > 0 || !rq.Index.Empty() }

// hasNamed reports whether the units are free that a job asks for by number or by socket.
func (r *room) hasNamed(rq *Request) bool {
	if !r.hasIndex(rq) {
		return false
	}
	if len(rq.OfSocket) == 0 {
		return true
	}
	_, ok := r.pickBySocket(&model.NodeAlloc{}, rq, 0)
	return ok
}

// hasIndex reports whether the GPUs are free that a job asks for by number.
func (r *room) hasIndex(rq *Request) bool {
	if rq.Index.Empty() || r.counted {
		return true
	}
	left := rq.Index
	for i := range r.gres {
		if g := &r.gres[i]; g.name == gpuName && rq.fitsGPU(&r.def.Gres[i]) && rq.wantsType(g.typ) {
			left = left.Minus(g.free)
		}
	}
	return left.Empty()
}

// wantsType reports whether GPUs of a type are among those that the job asks for.
func (rq *Request) wantsType(typ string) bool {
	for i := range rq.Gres {
		if g := &rq.Gres[i]; g.Name == gpuName && (g.Type == "" || strings.EqualFold(g.Type, typ)) {
			return true
		}
	}
	return false
}
