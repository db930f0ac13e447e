package dbd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"

	"gbatch/dbd/usage"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/wire"
)

// clusteruse.go says what became of a cluster's time, hour by hour, and of its reservations'. In each hour, what jobs
// held comes first, then the time of nodes that took no jobs, then planned down time, then what waiting jobs asked for,
// as far as there is room; what is left was idle.

// hourUse is an hour, or the part of it that lies in the window.
type hourUse struct {
	lapse
	alloc, waited usage.Sum
	total         usage.Sum
	down, planned usage.Sum
}

// clusterHours are the hours of one cluster in the window.
type clusterHours struct {
	hours []hourUse
	names map[string]int64 // resources, with their largest amount
}

// at gives the hour with a moment.
func (h *clusterHours) at(s usage.Second) *hourUse {
	if len(h.hours) == 0 || s < h.hours[0].from || s >= h.hours[len(h.hours)-1].to {
		return nil
	}
	return &h.hours[s/usage.Hour-h.hours[0].from/usage.Hour]
}

// spread adds amounts for a span of time to a sum of each hour.
func (h *clusterHours) spread(tres []model.TRESCount, in lapse, to func(*hourUse) *usage.Sum) {
	if len(h.hours) == 0 {
		return
	}
	in.from, in.to = max(in.from, h.hours[0].from), min(in.to, h.hours[len(h.hours)-1].to)
	for s := in.from; s < in.to; {
		u := h.at(s)
		n := min(u.to, in.to) - s
		part := usage.Sum{TRES: make([]model.TRESCount, len(tres))}
		for i, t := range tres {
			part.TRES[i] = model.TRESCount{TRES: t.TRES, Count: t.Count * n}
		}
		to(u).Add(&part, 1)
		s += n
	}
}

// clusterUse answers what became of the time of each cluster.
func (p *report) clusterUse(ctx context.Context) ([]*proto.ReportChunk, error) {
	p.win.to = min(p.win.to, p.now)
	p.win.from = min(p.win.from, p.win.to)         // what is to come is empty
	if p.win.to-p.win.from > maxHours*usage.Hour { // a window from the beginning of all time
		p.win.from = max(p.win.from, p.win.to-maxHours*usage.Hour)
	}
	clusters := map[string]*clusterHours{}
	sizes := p.sizes()
	if len(sizes) > 0 && p.win.from < p.win.to { // before the first size nothing is known
		first := int64(sizes[0].Start) / 1000
		for i := range sizes {
			first = min(first, int64(sizes[i].Start)/1000)
		}
		p.win.from = min(max(p.win.from, first/usage.Hour*usage.Hour), p.win.to)
	}
	names, err := seriesNumbers(p.tx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if clusters[name] == nil && (p.sets.clusters == nil || p.sets.clusters[name]) {
			clusters[name] = p.hours()
		}
	}
	if err := p.used(ctx, clusters); err != nil {
		return nil, err
	}
	p.sized(clusters, sizes)
	p.downOf(clusters)
	out := &proto.ReportChunk{}
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		out.Uses = append(out.Uses, clusters[name].uses(name)...)
	}
	return []*proto.ReportChunk{out}, nil
}

// hours makes the hours of the window.
func (p *report) hours() *clusterHours {
	h := &clusterHours{names: map[string]int64{}}
	for s := p.win.from; s < p.win.to; {
		next := min((s/usage.Hour+1)*usage.Hour, p.win.to)
		h.hours = append(h.hours, hourUse{lapse: lapse{s, next}})
		s = next
	}
	return h
}

// used adds what jobs held and waited for.
func (p *report) used(ctx context.Context, clusters map[string]*clusterHours) error {
	record := func(r *model.Record, in lapse) {
		h := clusters[r.Cluster]
		if h == nil {
			return
		}
		for s := in.from; s < in.to; s = (s/usage.Hour + 1) * usage.Hour {
			u := h.at(s)
			if u == nil {
				return
			}
			held, waited := usage.Within(r, u.from, u.to, p.now), usage.Waiting(r, u.from, u.to, p.now)
			u.alloc.Add(&held, 1)
			u.waited.Add(&waited, 1)
		}
	}
	rows := func(first, next uint32, _ bool) error {
		for _, table := range []byte{tableCluster, tableWaiting} {
			err := p.each(table, first, next, func(hour, number uint32, v []byte) error {
				of := p.properties(number)
				if of == nil || clusters[of.Cluster] == nil {
					return nil
				}
				u := clusters[of.Cluster].at(int64(hour) * usage.Hour)
				if table == tableWaiting {
					return u.waited.AddBytes(v)
				}
				return u.alloc.AddBytes(v)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := p.parts(ctx, p.win, func(r *model.Record, in lapse, _ bool) { record(r, in) }, rows); err != nil {
		return err
	}
	return p.live(false, func(r *model.Record) {
		from := min(int64(r.Submit)/1000, p.now)
		record(r, lapse{max(p.win.from, from), p.win.to})
	})
}

// scanSealed calls f for the sealed values of a bucket, from a key on, until it returns false.
func scanSealed[T any, P interface {
	*T
	wire.Coder
}](tx *bolt.Tx, bucket, from []byte, f func(k []byte, x P) bool) {
	b := tx.Bucket(bucket)
	if b == nil {
		return
	}
	c := b.Cursor()
	for k, v := c.Seek(from); k != nil; k, v = c.Next() {
		x := P(new(T))
		if unseal(v, x) && !f(k, x) {
			return
		}
	}
}

// sizes gives what the clusters had, by cluster and time.
func (p *report) sizes() (out []proto.Outage) {
	scanSealed(p.tx, keySizes, nil, func(_ []byte, o *proto.Outage) bool {
		out = append(out, *o)
		return true
	})
	return out
}

// sized adds what the clusters had.
func (p *report) sized(clusters map[string]*clusterHours, sizes []proto.Outage) {
	for i := range sizes {
		o := &sizes[i]
		to := p.win.to
		if i+1 < len(sizes) && sizes[i+1].Cluster == o.Cluster {
			to = int64(sizes[i+1].Start) / 1000
		}
		h, from := clusters[o.Cluster], int64(o.Start)/1000
		if h == nil || from >= p.win.to || to <= p.win.from {
			continue
		}
		for _, t := range o.TRES {
			h.names[t.TRES] = max(h.names[t.TRES], t.Count)
		}
		h.spread(o.TRES, lapse{from, to}, func(u *hourUse) *usage.Sum { return &u.total })
	}
}

// downOf adds the time of nodes that took no jobs, and planned down time: reservations with MAINT. A node's outage in
// such a reservation is planned.
func (p *report) downOf(clusters map[string]*clusterHours) {
	maint := map[string][]lapse{} // by cluster and node
	scanSealed(p.tx, keyReserved, nil, func(k []byte, a *model.Audit) bool {
		cluster, _, _ := bytes.Cut(k, []byte{0})
		h, in := clusters[string(cluster)], lapse{int64(a.Start) / 1000, int64(a.End) / 1000}
		if h == nil || !a.Maint || in.to <= p.win.from || in.from >= p.win.to {
			return true
		}
		h.spread(a.TRES, in, func(u *hourUse) *usage.Sum { return &u.planned })
		if nodes, err := hostlist.Expand(a.Nodes); err == nil {
			for _, n := range nodes {
				key := string(cluster) + "\x00" + n
				maint[key] = append(maint[key], in)
			}
		}
		return true
	})
	scanSealed(p.tx, keyOutages, binary.BigEndian.AppendUint64(nil, uint64(p.win.from)*1000), func(_ []byte,
		o *proto.Outage) bool {
		h, in := clusters[o.Cluster], lapse{int64(o.Start) / 1000, p.win.to}
		if o.End != 0 {
			in.to = int64(o.End) / 1000
		}
		if h == nil || in.from >= p.win.to {
			return true
		}
		for _, rest := range without(in, maint[o.Cluster+"\x00"+o.Node]) {
			h.spread(o.TRES, rest, func(u *hourUse) *usage.Sum { return &u.down })
		}
		return true
	})
}

// without gives the parts of a span that are in none of the others.
func without(in lapse, others []lapse) []lapse {
	parts := []lapse{in}
	for _, o := range others {
		var next []lapse
		for _, p := range parts {
			if o.to <= p.from || p.to <= o.from {
				next = append(next, p)
				continue
			}
			if p.from < o.from {
				next = append(next, lapse{p.from, o.from})
			}
			if o.to < p.to {
				next = append(next, lapse{o.to, p.to})
			}
		}
		parts = next
	}
	return parts
}

// uses sums the hours up, each within what the cluster had in it.
func (h *clusterHours) uses(cluster string) (out []proto.ClusterUse) {
	for i := range h.hours {
		for _, t := range h.hours[i].alloc.TRES {
			_, license := model.TRESLicense(t.TRES)
			if _, known := h.names[t.TRES]; !known && !license && t.TRES != usage.Energy { // of these there is no whole
				h.names[t.TRES] = 0
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.names)) {
		use := proto.ClusterUse{Cluster: cluster, TRES: name, Count: h.names[name]}
		for i := range h.hours {
			u := &h.hours[i]
			alloc := u.alloc.Count(name)
			total := u.total.Count(name)
			if name == "billing" { // no node has any
				total = max(total, alloc)
			}
			alloc = min(alloc, total)
			down := min(u.down.Count(name), total-alloc)
			planned := min(u.planned.Count(name), total-alloc-down)
			use.Total += total
			use.Alloc += alloc
			use.Down += down
			use.PlannedDown += planned
			use.Planned += min(u.waited.Count(name), total-alloc-down-planned)
		}
		out = append(out, use)
	}
	return out
}

// reservations answers what became of the time of reservations.
func (p *report) reservations(ctx context.Context) ([]*proto.ReportChunk, error) {
	p.win.to = min(p.win.to, p.now)
	p.win.from = min(p.win.from, p.win.to) // what is to come is empty
	var list []proto.ResvUse
	scanSealed(p.tx, keyReserved, nil, func(k []byte, a *model.Audit) bool {
		cluster, _, _ := bytes.Cut(k, []byte{0})
		in := lapse{max(int64(a.Start)/1000, p.win.from), min(int64(a.End)/1000, p.win.to)}
		if in.from >= in.to || p.sets.clusters != nil && !p.sets.clusters[string(cluster)] ||
			p.sets.resvs != nil && !p.sets.resvs[a.Name] {
			return true
		}
		u := proto.ResvUse{Cluster: string(cluster), Name: a.Name, Start: a.Start, End: a.End, Nodes: a.Nodes}
		for _, t := range a.TRES {
			u.TRES = append(u.TRES, model.TRESCount{TRES: t.TRES, Count: t.Count * (in.to - in.from)})
		}
		list = append(list, u)
		return len(list) < maxRows
	})
	slices.SortStableFunc(list, func(a, b proto.ResvUse) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Start, b.Start))
	})
	out := &proto.ReportChunk{}
	whole := p.win
	for i := range list {
		u := &list[i]
		p.win = lapse{max(int64(u.Start)/1000, whole.from), min(int64(u.End)/1000, whole.to)}
		p.sums, p.of = map[usage.Of]*tally{}, map[ofKey]*usage.Of{}
		p.sets.resvs, p.rq.By = map[string]bool{u.Name: true}, 0
		if _, err := p.usage(ctx); err != nil {
			return nil, err
		}
		if t := p.sums[usage.Of{Cluster: u.Cluster}]; t != nil {
			u.Alloc = t.TRES
		}
	}
	out.Resvs = list
	return []*proto.ReportChunk{out}, nil
}

// outages answers when nodes took no jobs, and what the clusters had.
func (p *report) outages() []*proto.ReportChunk {
	out := &proto.ReportChunk{}
	nodes := setOf(p.rq.Nodes)
	fits := func(o *proto.Outage) bool {
		return (p.sets.clusters == nil || p.sets.clusters[o.Cluster]) && (nodes == nil || nodes[o.Node]) &&
			int64(o.Start)/1000 < p.win.to && (o.End == 0 || int64(o.End)/1000 >= p.win.from)
	}
	sizes := p.sizes()
	for i := range sizes {
		if o := &sizes[i]; nodes == nil {
			if i+1 < len(sizes) && sizes[i+1].Cluster == o.Cluster {
				o.End = sizes[i+1].Start
			}
			if fits(o) {
				out.Outages = append(out.Outages, *o)
			}
		}
	}
	scanSealed(p.tx, keyOutages, binary.BigEndian.AppendUint64(nil, uint64(p.win.from)*1000), func(_ []byte,
		o *proto.Outage) bool {
		if fits(o) {
			out.Outages = append(out.Outages, *o)
		}
		return len(out.Outages) < maxRows
	})
	slices.SortStableFunc(out.Outages, func(a, b proto.Outage) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Node, b.Node))
	})
	var chunks []*proto.ReportChunk
	for part := range slices.Chunk(out.Outages, rowsPerChunk) {
		chunks = append(chunks, &proto.ReportChunk{Outages: part})
	}
	return chunks
}

// entries answers what is in the trail, the latest maxRows of what fits, oldest first.
func (p *report) entries() (chunks []*proto.ReportChunk) {
	top := p.tx.Bucket(keyTrail)
	if top == nil {
		return nil
	}
	events, things, names, by := setOf(p.rq.Events), setOf(p.rq.Things), setOf(p.rq.Names), setOf(p.rq.ByUsers)
	var list []*model.Audit
	to := timeKey(nil, model.Time(p.win.to)*1000)
	months := top.Cursor()
	for name, _ := months.Last(); name != nil && len(list) < maxRows; name, _ = months.Prev() {
		c := top.Bucket(name).Cursor()
		last := c.Prev
		if k, _ := c.Seek(to); k == nil {
			last = c.Last
		}
		for k, v := last(); k != nil && len(list) < maxRows; k, v = c.Prev() {
			if len(k) < 8 || int64(binary.BigEndian.Uint64(k))/1000 < p.win.from {
				break
			}
			a := &model.Audit{}
			switch {
			case !unseal(v, a):
			case p.q.Only && (!a.ByUser || a.UID != p.q.UID) && (a.Job == 0 || a.Owner != p.q.UID):
			case p.rq.Job != 0 && a.Job != p.rq.Job, events != nil && !events[a.Event], things != nil && !things[a.What],
				names != nil && !names[a.Name], by != nil && !by[a.By]:
			default:
				list = append(list, a)
			}
		}
	}
	slices.Reverse(list)
	for part := range slices.Chunk(list, rowsPerChunk) {
		chunks = append(chunks, &proto.ReportChunk{Trail: part})
	}
	return chunks
}
