package sched

import (
	"gbatch/internal/model"
)

// GPUs by their numbers (--gpu-index): each node of the job gives exactly these. The calendar counts them as any GPUs
// of the node, as it does GPUs by socket (bysocket.go); their numbers are checked when the job would start.

// named reports whether a job asks for particular units of a node, by number or by socket.
func (rq *Request) named() bool { return len(rq.OfSocket) > 0 || !rq.Index.Empty() }

// hasNamed reports whether the units that a job asks for by number or by socket are free.
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

// hasIndex reports whether the GPUs that a job asks for by number are free.
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

// wantsType reports whether the job asks for GPUs of a type.
func (rq *Request) wantsType(typ string) bool {
	for i := range rq.Gres {
		if g := &rq.Gres[i]; g.Name == gpuName && model.TypeFits(gpuName, g.Type, typ) {
			return true
		}
	}
	return false
}
