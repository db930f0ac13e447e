package sched

import (
	"fmt"
	"strings"

	"gbatch/internal/model"
)

// GPU memory that processes outside of jobs hold (model.GPUHeld). A job that asks for memory of each GPU (--gpu-mem)
// gets GPUs that have that much left beside it, less the margin. On shared GPUs it counts like memory that a job has
// asked for. The calendar ignores it, because nobody knows when such processes end: it is checked when the job would
// start.

// heldBy sets the GPU memory that processes outside of jobs hold.
func (r *room) heldBy(held []model.GPUHeld) {
	r.held = held
	if r.lot == nil {
		return
	}
	for _, h := range held {
		if u := int(h.Index); u < len(r.lot.gpus) {
			r.slots[u*r.lot.stride+r.lot.stride-1] -= int(h.MemMiB)
		}
	}
}

// withHeld sets the GPU memory that processes outside of jobs hold, and gives the room.
func (r *room) withHeld(held []model.GPUHeld) *room {
	r.heldBy(held)
	return r
}

// heldText says how much GPU memory processes outside of jobs hold on a node.
func (n *node) heldText() string {
	var out []string
	for _, h := range n.rec.Held {
		out = append(out, fmt.Sprintf("%d MiB of GPU %d", h.MemMiB, h.Index))
	}
	return n.def.Name + " (" + strings.Join(out, ", ") + ")"
}

// roomy gives the room without the GPUs that have too little memory left for a job that asks for whole GPUs.
func (r *room) roomy(rq *Request) *room {
	if rq.GPUMem == 0 || len(r.held) == 0 {
		return r
	}
	var small model.Bits
	for _, h := range r.held {
		if d := r.def.GPUDef(h.Index); d != nil && rq.GPUMem > d.MemMiB-rq.gpuMargin-h.MemMiB {
			small = small.With(int(h.Index))
		}
	}
	if small.Empty() {
		return r
	}
	x := *r
	x.gres = append([]gresRoom(nil), r.gres...)
	if x.lot != nil {
		x.slots = append([]int(nil), r.slots...)
		small.Each(func(u int) bool {
			if s := u*x.lot.stride + slotWhole; u < len(x.lot.gpus) {
				x.slots[s] = min(x.slots[s], 0)
			}
			return true
		})
		x.derive()
		return &x
	}
	for i := range x.gres {
		if g := &x.gres[i]; g.name == gpuName {
			g.free = g.free.Minus(small)
			g.nfree = g.free.Count()
		}
	}
	return &x
}

// byUnit reports whether it matters to a job which of a node's GPUs are free, not only how many.
func (sh *shape) byUnit(n *node) bool {
	return sh.rq.byUnit() || sh.rq.GPUMem > 0 && n.rec != nil && len(n.rec.Held) > 0
}

// hasUnits reports whether a room has the GPUs that a job asks for by number, by socket or by memory.
func (sh *shape) hasUnits(r *room, nd *nodeNeed) bool {
	if sh.rq.byUnit() && !r.gives(&sh.rq, nd.tasks, nd.whole) {
		return false
	}
	left := r.roomy(&sh.rq)
	if left == r {
		return true
	}
	c := countsOf(left, 0)
	c.plain, c.sharers = 0, 0
	like := *nd
	like.cpus, like.mem, like.place, like.idle = 0, c.mem, 0, false
	return like.in(&c)
}
