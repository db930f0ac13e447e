package sched

import (
	"math/bits"
	"strings"

	"gbatch/internal/model"
)

// Shared GPUs. A GPU is held whole (gpu), or in units of one sharing resource (shard, mps). All shares that a job holds
// on a node are of one GPU. Jobs' requests for memory of a shared GPU are counted against its capacity less the margin.
//
// On nodes with sharing resources, the calendar's counts have slots for each GPU after the node's entries: whether the
// GPU is whole, the free units of each sharing resource, its free memory. Slots are only added and subtracted, so the
// calendar needs no second rule. Their combined meaning (a GPU with a shard in use is not whole) is applied when a need
// is checked (lot.meets) or a room is made from counts (room.derive). The minimum of the slots over a time is what each
// GPU has free for all of that time. Reservations of blocked jobs on such nodes are of particular GPUs.

// Slots of one GPU: slotWhole, then one for each sharing resource, then memory.
const slotWhole = 0

// lot describes the shared GPUs of a node.
type lot struct {
	entries int // of the node's Gres; slots follow
	stride  int
	gpus    []lotGPU
	kinds   []lotKind
	shared  []bool // by the node's entries: gpu and the sharing resources
}

// lotGPU is one GPU.
type lotGPU struct {
	entry int   // of the node's Gres; -1: none
	mem   int64 // MiB that jobs may ask for
}

// lotKind is one sharing resource, over all its types.
type lotKind struct {
	name  string
	one   bool    // it shares only one GPU at a time
	entry []int   // by GPU, of the node's Gres; -1: it doesn't share that one
	first []int32 // number of its first unit, by GPU
	count []int32
}

// lots keeps the lot of each node definition.
type lots map[*model.NodeDef]*lot

// of gives the lot of a node, nil if its GPUs are not shared.
func (l lots) of(d *model.NodeDef, marginMiB int64) *lot {
	for i := range d.Gres {
		if len(d.Gres[i].Over) > 0 {
			x := l[d]
			if x == nil {
				x = newLot(d, marginMiB)
				l[d] = x
			}
			return x
		}
	}
	return nil
}

func newLot(d *model.NodeDef, marginMiB int64) *lot {
	l := &lot{entries: len(d.Gres), shared: make([]bool, len(d.Gres))}
	gpus := 0
	for i := range d.Gres {
		g := &d.Gres[i]
		if g.Name == gpuName {
			gpus = max(gpus, int(g.First+g.Count))
		}
		for _, s := range g.Over {
			gpus = max(gpus, int(s.GPU)+1)
		}
	}
	gpus = min(gpus, model.MaxSharedGPUs)
	l.gpus = make([]lotGPU, gpus)
	for u := range l.gpus {
		l.gpus[u] = lotGPU{entry: -1}
	}
	for i := range d.Gres {
		g := &d.Gres[i]
		if g.Name == gpuName {
			l.shared[i] = true
			for u := int(g.First); u < min(int(g.First+g.Count), gpus); u++ {
				l.gpus[u] = lotGPU{i, g.MemMiB - marginMiB}
			}
		}
		if len(g.Over) == 0 {
			continue
		}
		l.shared[i] = true
		k := l.kind(g.Name)
		if k < 0 {
			k = len(l.kinds)
			x := lotKind{name: g.Name, entry: make([]int, gpus), first: make([]int32, gpus), count: make([]int32, gpus)}
			for u := range x.entry {
				x.entry[u] = -1
			}
			l.kinds = append(l.kinds, x)
		}
		x := &l.kinds[k]
		x.one = x.one || g.OneSharing
		first := g.First
		for _, s := range g.Over {
			if int(s.GPU) < gpus {
				x.entry[s.GPU], x.first[s.GPU], x.count[s.GPU] = i, first, s.Count
			}
			first += s.Count
		}
	}
	l.stride = 2 + len(l.kinds)
	return l
}

// kind finds a sharing resource by name, or gives -1.
func (l *lot) kind(name string) int {
	for k := range l.kinds {
		if l.kinds[k].name == name {
			return k
		}
	}
	return -1
}

// slots gives the slots of an empty node.
func (l *lot) slots() []int {
	out := make([]int, len(l.gpus)*l.stride)
	for u := range l.gpus {
		s := out[u*l.stride:]
		s[slotWhole] = 1
		for k := range l.kinds {
			s[1+k] = int(l.kinds[k].count[u])
		}
		s[l.stride-1] = int(l.gpus[u].mem)
	}
	return out
}

// whole reports whether a GPU is free whole.
func (l *lot) whole(slots []int, u int) bool {
	s := slots[u*l.stride:]
	if s[slotWhole] < 1 {
		return false
	}
	for k := range l.kinds {
		if s[1+k] < int(l.kinds[k].count[u]) {
			return false
		}
	}
	return true
}

// free gives how many units of a sharing resource a GPU has free.
func (l *lot) free(slots []int, u, kind int) int {
	s := slots[u*l.stride:]
	if s[slotWhole] < 1 {
		return 0
	}
	for k := range l.kinds {
		if k != kind && s[1+k] < int(l.kinds[k].count[u]) {
			return 0
		}
	}
	if x := &l.kinds[kind]; x.one {
		for o := range l.gpus {
			if o != u && slots[o*l.stride+1+kind] < int(x.count[o]) {
				return 0
			}
		}
	}
	return max(0, s[1+kind])
}

// broken reports whether more of a GPU is taken than it has.
func (l *lot) broken(slots []int) bool {
	for u := range l.gpus {
		s := slots[u*l.stride:]
		taken := 1 - s[slotWhole]
		for k := range l.kinds {
			if s[1+k] < int(l.kinds[k].count[u]) {
				taken++
			}
		}
		if taken > 1 {
			return true
		}
	}
	return false
}

// note adds to slots what an allocation holds; with sign -1 it subtracts.
func (l *lot) note(slots []int, gres []model.GresAlloc, sign int) {
	for i := range gres {
		g := &gres[i]
		switch {
		case g.Share != nil:
			if k, u := l.kind(g.Name), int(g.Share.GPU); k >= 0 && u < len(l.gpus) {
				slots[u*l.stride+1+k] += sign * g.Index.Count()
				slots[u*l.stride+l.stride-1] += sign * int(g.Share.MemMiB)
			}
		case g.Name == gpuName:
			g.Index.Each(func(u int) bool {
				if u < len(l.gpus) {
					slots[u*l.stride+slotWhole] += sign
				}
				return true
			})
		}
	}
}

// sums sets the free counts of the node's entries from the slots of its GPUs.
func (l *lot) sums(slots, gres []int) {
	for i, shared := range l.shared {
		if shared {
			gres[i] = 0
		}
	}
	for u := range l.gpus {
		if e := l.gpus[u].entry; e >= 0 {
			gres[e] += slots[u*l.stride+slotWhole]
		}
		for k := range l.kinds {
			if e := l.kinds[k].entry[u]; e >= 0 {
				gres[e] += slots[u*l.stride+1+k]
			}
		}
	}
}

// gpuNeed is a need of whole GPUs.
type gpuNeed struct {
	of    uint64
	count int
}

// shareNeed is a need of shares of one GPU.
type shareNeed struct {
	kind  int
	units []int32 // units needed, by GPU; 0: this GPU can't give them
	mem   int
}

// meets reports whether counts have the GPUs that are needed, whole and shared.
func (l *lot) meets(nd *nodeNeed, c *counts) bool {
	slots := c.gres[l.entries:]
	for i := range nd.gpus {
		n := 0
		for of := nd.gpus[i].of; of != 0; of &= of - 1 {
			if l.whole(slots, bits.TrailingZeros64(of)) {
				n++
			}
		}
		if n < nd.gpus[i].count {
			return false
		}
	}
	for i := range nd.shares {
		if s := &nd.shares[i]; l.pick(slots, c.gres, s) < 0 {
			return false
		}
	}
	return true
}

// pick gives the first GPU that can give a share, or -1. gres has the free counts of the node's entries, nil: enough.
func (l *lot) pick(slots, gres []int, s *shareNeed) int {
	for u, n := range s.units {
		if n > 0 && l.has(slots, u, s) && (gres == nil || gres[l.kinds[s.kind].entry[u]] >= int(n)) {
			return u
		}
	}
	return -1
}

// has reports whether a GPU can give a share.
func (l *lot) has(slots []int, u int, s *shareNeed) bool {
	return l.free(slots, u, s.kind) >= int(s.units[u]) && (s.mem == 0 || slots[u*l.stride+l.stride-1] >= s.mem)
}

// shareOf computes a request's need of each GPU of a node; nil if no GPU can give it.
func (l *lot) shareOf(d *model.NodeDef, rq *Request, g *model.GresReq) *shareNeed {
	k := l.kind(g.Name)
	if k < 0 {
		return nil
	}
	s := &shareNeed{kind: k, units: make([]int32, len(l.gpus)), mem: int(rq.GPUMem)}
	some := false
	for u := range l.gpus {
		e := l.kinds[k].entry[u]
		if e < 0 || g.Type != "" && !strings.EqualFold(d.Gres[e].Type, g.Type) {
			continue
		}
		n := g.Count
		if g.Milli > 0 {
			n = model.ShareCount(g.Milli, l.kinds[k].count[u])
		}
		if n > 0 && n <= l.kinds[k].count[u] && (rq.GPUMem == 0 || rq.GPUMem <= l.gpus[u].mem) {
			s.units[u], some = n, true
		}
	}
	if !some {
		return nil
	}
	return s
}

// share sets the need of shared GPUs.
func (nd *nodeNeed) share(l *lot, d *model.NodeDef, rq *Request) {
	for i := range rq.Gres {
		g := &rq.Gres[i]
		if !model.IsShare(g.Name) || g.Count == 0 {
			continue
		}
		if l == nil {
			nd.never = nd.never || d.Sharing(g.Name, 0) != nil // otherwise it is a plain resource
			continue
		}
		s := l.shareOf(d, rq, g)
		if s == nil {
			nd.never = true
			return
		}
		nd.lot, nd.shares = l, append(nd.shares, *s)
	}
	if l == nil {
		return
	}
	for i := range nd.gres {
		x := gpuNeed{count: nd.gres[i].count}
		for u := range l.gpus {
			if e := l.gpus[u].entry; e >= 0 && e < 64 && nd.gres[i].of&(1<<uint(e)) != 0 {
				x.of |= 1 << uint(u)
			}
		}
		if x.of != 0 {
			nd.lot, nd.gpus = l, append(nd.gpus, x)
		}
	}
}

// derive removes from a room what its slots don't have: slots may have less than the room.
func (r *room) derive() {
	l := r.lot
	for i := range r.gres {
		if !l.shared[i] {
			continue
		}
		h := &r.gres[i]
		free := append(model.Bits(nil), h.free...)
		for u := range l.gpus {
			if l.gpus[u].entry == i && free.Has(u) && !l.whole(r.slots, u) {
				free[u>>6] &^= 1 << (uint(u) & 63)
			}
		}
		for k := range l.kinds {
			for u, e := range l.kinds[k].entry {
				if e == i {
					keepFirst(free, int(l.kinds[k].first[u]), int(l.kinds[k].count[u]), l.free(r.slots, u, k))
				}
			}
		}
		h.free = free
		h.nfree = free.Count()
	}
}

// atMost limits a room's GPUs to counts by the node's entries, and removes the shares of an entry with count 0:
// reservations may leave less than the GPUs have free.
func (r *room) atMost(gres []int) {
	for i, shared := range r.lot.shared {
		h := &r.gres[i]
		switch {
		case !shared || gres[i] >= h.nfree:
		case gres[i] <= 0:
			h.free, h.nfree = nil, 0
		case h.name == gpuName:
			h.free, h.nfree = h.free.First(gres[i]), gres[i]
		}
	}
}

// keepFirst keeps only the n smallest members of a range in a set.
func keepFirst(set model.Bits, first, count, n int) {
	for i := first; i < first+count && i>>6 < len(set); i++ {
		if !set.Has(i) {
			continue
		}
		if n > 0 {
			n--
			continue
		}
		set[i>>6] &^= 1 << (uint(i) & 63)
	}
}

// lower changes a room's slots by a function that lowers them, and the room with them.
func (r *room) lower(change func(i, have int) int) {
	slots := make([]int, len(r.slots))
	for i, n := range r.slots {
		slots[i] = change(i, n)
	}
	r.slots = slots
	r.derive()
}

// pickShare adds shares of one GPU to na: of the fullest GPU that is shared already, otherwise of a free GPU that
// gpuset.go chooses. GPUs that have the job's model loaded come before all others; where it has to be loaded, those
// come first that have room for it.
func (r *room) pickShare(na *model.NodeAlloc, rq *Request, g *model.GresReq, cpus int) bool {
	l := r.lot
	s := l.shareOf(r.def, rq, g)
	if s == nil {
		return false
	}
	x := &l.kinds[s.kind]
	best, left := -1, 0
	by := r.taste(rq, gpuName)
	var idle, warm model.Bits
	class := func(int) int { return 0 }
	if by != nil {
		warm, class = by.warm, by.class
	}
	for u, n := range s.units {
		if n == 0 || !l.has(r.slots, u, s) || len(r.unitsOf(x, u, int(n))) == 0 {
			continue
		}
		free := l.free(r.slots, u, s.kind)
		if free == int(x.count[u]) {
			idle = idle.With(u)
			continue
		}
		if best < 0 || class(u) < class(best) || class(u) == class(best) && free-int(n) < left {
			best, left = u, free-int(n)
		}
	}
	if idle.Overlaps(warm) && (best < 0 || !warm.Has(best)) {
		best, idle = -1, idle.And(warm)
	}
	if best < 0 && !idle.Empty() {
		first := by.first(idle, 1)
		if m := r.gpuMap(gpuName); m != nil {
			if near := r.units(m, na, gpuName, idle, 1, cpus, by); near != nil {
				first = near
			}
		}
		best = first.Max()
	}
	if best < 0 {
		return false
	}
	na.Gres = append(na.Gres, model.GresAlloc{Name: x.name, Type: r.def.Gres[x.entry[best]].Type,
		Index: r.unitsOf(x, best, int(s.units[best])),
		Share: &model.GPUShare{GPU: int32(best), Of: x.count[best], MemMiB: rq.GPUMem}})
	return true
}

// unitsOf gives the first free units of a GPU, nil if there are not enough.
func (r *room) unitsOf(x *lotKind, u, n int) model.Bits {
	free := r.gres[x.entry[u]].free
	out := make(model.Bits, len(free))
	copy(out, free)
	keepFirst(out, 0, int(x.first[u]), 0)
	last := int(x.first[u] + x.count[u])
	keepFirst(out, last, len(out)<<6-last, 0)
	return out.First(n)
}

// shareNow reports whether the shares that a job asks for are free.
func (r *room) shareNow(rq *Request, g *model.GresReq) bool {
	if r.lot == nil {
		return false
	}
	s := r.lot.shareOf(r.def, rq, g)
	return s != nil && r.lot.pick(r.slots, nil, s) >= 0
}

// isShare reports whether a request is for shares of this node's GPUs.
func (r *room) isShare(name string) bool { return r.lot != nil && r.lot.kind(name) >= 0 }

// earliestShared is earliest for a job that needs GPUs of a node with shared GPUs. The same GPUs must be free for the
// whole time, so looking at each moment alone is not enough.
func (c *cursor) earliestShared(n *node, nd *nodeNeed, now, limit model.Time,
	end func(model.Time) model.Time) model.Time {
	for _, t := range n.momentsFrom(now) {
		if t >= limit && t > now {
			return forever
		}
		if low := c.least(n, now, t, end(t)); nd.in(&low) {
			return t
		}
	}
	return forever
}
