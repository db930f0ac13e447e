package resv

import (
	"slices"

	"gbatch/internal/model"
)

// Kept gives an updated reservation, or nil if nothing has to change. It updates the times of the next occurrences by
// the calendar, replaces nodes that are down or, with REPLACE, in use, and with PART_NODES takes all nodes of the
// partition.
func Kept(f Facts, old *model.Reservation) *model.Reservation {
	r := *old
	r.Nodes, r.Parts = slices.Clone(old.Nodes), slices.Clone(old.Parts)
	if later := laterOf(&r, f.Zone); len(later) > len(r.Later) {
		r.Later = later
	}
	d := &draft{Facts: f, r: &r}
	switch {
	case r.Flags&model.ResvPartNodes != 0 && len(r.Parts) == 0:
		if p := f.View.Partition(r.Partition); p != nil && len(p.Nodes) > 0 {
			r.Nodes = slices.Sorted(slices.Values(p.Nodes))
			r.Nodes = slices.Compact(r.Nodes)
		}
	case r.Flags&(model.ResvReplace|model.ResvReplaceDown) != 0, r.Count > 0 && r.Flags&model.ResvStatic == 0:
		d.replace()
	}
	if slices.Equal(r.Nodes, old.Nodes) && slices.Equal(r.Later, old.Later) {
		return nil
	}
	return &r
}

// replace gives a reservation idle nodes instead of nodes that are down or, with REPLACE, have jobs. If there are none,
// it keeps its nodes.
func (d *draft) replace() {
	r, v := d.r, d.View
	pool, err := d.pool()
	if err != nil {
		return
	}
	for i, name := range r.Nodes {
		n := v.Node(name)
		if n != nil && n.Usable() && (r.Flags&model.ResvReplace == 0 || len(n.Jobs) == 0) {
			continue
		}
		for _, other := range pool {
			o := v.Node(other)
			if o == nil || !o.Usable() || len(o.Jobs) > 0 || slices.Contains(r.Nodes, other) || d.taken(other) {
				continue
			}
			if p := r.Part(i); p != nil && (n == nil || !sameMake(n.Def, o.Def)) {
				continue
			}
			r.Nodes[i] = other
			break
		}
	}
	if err := d.order(); err != nil {
		return
	}
}

// sameMake reports whether node b can replace node a for a part of a.
func sameMake(a, b *model.NodeDef) bool {
	if a.CPUs != b.CPUs || a.MemMiB < b.MemMiB || len(a.Gres) != len(b.Gres) {
		return false
	}
	for i := range a.Gres {
		if a.Gres[i].Name != b.Gres[i].Name || a.Gres[i].Type != b.Gres[i].Type || a.Gres[i].Count != b.Gres[i].Count {
			return false
		}
	}
	return true
}
