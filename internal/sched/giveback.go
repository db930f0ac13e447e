package sched

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
)

// What elastic jobs have beyond their least number of nodes is lent. A job that does not fit may have it back before
// any job is preempted for it: one in a partition of a higher PriorityTier, of a QOS with a higher Priority or with the
// flag Headroom, of a QOS that may preempt the other, or one whose QOS or account is below its guarantee. The job gets
// a claim, as with preemption. The elastic job is asked for the nodes, keeps them for its grace, and never goes below
// its least number. One with segments is asked for all nodes of a segment.

// mayRecall reports whether a job may ask elastic jobs for nodes at all.
func (p *Planner) mayRecall(j *model.Job, l *lane) bool {
	if j.Het != nil {
		return false
	}
	q := p.v.QOS(j.Spec.QOS)
	return l.part.PriorityTier > p.lowest ||
		q != nil && (q.Priority > 0 || len(q.Preempt) > 0 || q.Flags&model.QOSHeadroom != 0) ||
		len(p.ownersOf(j.Spec, l.part.Name)) > 0
}

// anySpare reports whether some elastic job has more than its least number of nodes.
func (p *Planner) anySpare() bool {
	if len(p.elastic) == 0 {
		return false
	}
	if p.spareAt != p.pass {
		p.spareAt = p.pass
		p.spare = slices.ContainsFunc(p.growing(), func(g grower) bool { return g.j.Spare() > 0 })
	}
	return p.spare
}

// goes reports whether a job leaves a node before it ends: it has given it up, or is asked for it.
func (p *Planner) goes(id model.JobID, node string) bool {
	if slices.Contains(p.asked[id], node) {
		return true
	}
	j := p.elastic[id]
	if j == nil {
		j = p.v.Job(id)
	}
	return j != nil && j.Run != nil && j.Run.Yields(node)
}

// recaller is a job that asks elastic jobs for nodes.
type recaller struct {
	*robber
	left  map[model.JobID]int        // how many nodes each can still be asked for
	whole map[segment]bool           // that are asked for
	taken map[owner]map[string]int64 // of owners with guarantees
}

// segment is nodes of an elastic job that go together: so many before the first of them in its allocation.
type segment struct {
	job model.JobID
	at  int
}

func segmentAt(j *model.Job, node string) segment {
	k := j.Run.Alloc.Place(node)
	return segment{j.ID, k - k%j.Spec.Stride()}
}

// recall asks elastic jobs for the nodes that a job needs, and gives it a claim to them.
func (p *Planner) recall(l *lane, it *item) bool {
	if p.calls >= maxPreempts || it.e.claim != nil || p.waitsForNodes(l, it) != "" {
		return false
	}
	key := p.vainKeyOf(l, it, true)
	if p.vainCalls.has(key, it.leastS()) {
		return false
	}
	if p.callLooks++; p.callLooks > maxLooks {
		return false
	}
	r := &recaller{robber: p.robberOf(l, it), left: map[model.JobID]int{}, whole: map[segment]bool{},
		taken: map[owner]map[string]int64{}}
	if r.futileWith(r.lenders, true) {
		p.vainCalls.note(key, 0, false)
		return false
	}
	p.calls++
	alloc, list := r.borrow()
	if len(list) == 0 {
		p.vainCalls.note(key, it.leastS(), r.needless)
		return false
	}
	if p.claimRefused(l, it, alloc) != model.ReasonNone {
		return false
	}
	if !p.hold(it.e, l, alloc) {
		return false
	}
	clear(p.emptiest)
	var asks []model.Asking
	for _, o := range list {
		for _, v := range o.list {
			k := slices.IndexFunc(asks, func(a model.Asking) bool { return a.Job == v.j.ID })
			if k < 0 {
				k = len(asks)
				asks = append(asks, model.Asking{Job: v.j.ID, Attempt: v.j.Attempt, For: it.e.j.ID})
			}
			s := segmentAt(v.j, o.n.def.Name)
			for i := range v.j.Spec.Stride() {
				name := v.j.Run.Alloc.Nodes[s.at+i].Node
				if slices.Contains(p.asked[v.j.ID], name) {
					break // with another node of the segment
				}
				asks[k].Nodes = append(asks[k].Nodes, name)
				p.asked[v.j.ID] = append(p.asked[v.j.ID], name)
			}
		}
	}
	p.plan.Ask = append(p.plan.Ask, asks...)
	p.plan.Claims = append(p.plan.Claims,
		model.ClaimSet{Job: it.e.j.ID, Claim: &model.Claim{Partition: l.part.Name, Alloc: alloc}})
	p.because(it.e, model.ReasonResources, "")
	return true
}

// lends reports whether an elastic job gives this one what it has to spare. lent: only because it is guaranteed.
func (r *recaller) lends(j *model.Job) (ok, lent bool) {
	q := r.p.v.QOS(j.Spec.QOS)
	if q == nil {
		q = &model.QOS{}
	}
	tier := int32(0)
	if part := r.p.v.Partition(j.Run.Partition); part != nil {
		tier = part.PriorityTier
	}
	if r.l.part.PriorityTier > tier || r.preempts(j, q) ||
		r.l.part.PriorityTier == tier && r.qos != nil && r.qos.Flags&^q.Flags&model.QOSHeadroom != 0 ||
		r.l.part.PriorityTier == tier && r.qos != nil && r.qos.Priority > q.Priority {
		return true, false
	}
	return r.owed && r.lent(j, q), true
}

// spareOf gives how many nodes a job can still be asked for.
func (r *recaller) spareOf(j *model.Job) int {
	n, known := r.left[j.ID]
	if !known {
		if ok, _ := r.lends(j); ok {
			n = j.Spare() - len(r.p.asked[j.ID])
		}
		r.left[j.ID] = n
	}
	return n
}

// lenders gives the elastic jobs that can leave a node, in the order of worse.
func (r *recaller) lenders(n *node) []*victim {
	var out []*victim
	for _, id := range n.rec.Jobs {
		j := r.p.elastic[id]
		if j == nil || r.p.victims[id] != stays || r.p.goes(id, n.def.Name) || segmentAt(j, n.def.Name).at < 1 ||
			r.spareOf(j) < j.Spec.Stride() {
			continue
		}
		v := &victim{j: j, prio: cmp.Or(j.Run.Priority, j.Priority)}
		if q := r.p.v.QOS(j.Spec.QOS); q != nil {
			v.class = int64(q.Priority)
		}
		if part := r.p.v.Partition(j.Run.Partition); part != nil {
			v.class += int64(part.PriorityTier) << 32
		}
		out = append(out, v)
	}
	slices.SortFunc(out, worse)
	return out
}

// take notes that jobs give a node, and reports whether they can.
func (r *recaller) take(o *outing) bool {
	for _, v := range o.list {
		if r.whole[segmentAt(v.j, o.n.def.Name)] {
			continue
		}
		if r.spareOf(v.j) < v.j.Spec.Stride() || !r.stillLent(v.j, o.n) {
			return false
		}
	}
	for _, v := range o.list {
		if s := segmentAt(v.j, o.n.def.Name); !r.whole[s] {
			r.whole[s] = true
			r.left[v.j.ID] -= v.j.Spec.Stride()
		}
	}
	return true
}

// stillLent reports whether an owner with a guarantee still has more than that when its job gives a node, and notes
// that it gives it.
func (r *recaller) stillLent(j *model.Job, n *node) bool {
	if _, lent := r.lends(j); !lent {
		return true
	}
	o := r.p.ownerOf(j.Spec, j.Run.Partition, r.by)
	if o == (owner{}) {
		return true
	}
	have, t := r.robber.spare(o), r.taken[o]
	if t == nil {
		t = map[string]int64{}
		r.taken[o] = t
	}
	one := model.Alloc{Nodes: j.Run.Alloc.Nodes[segmentAt(j, n.def.Name).at:][:j.Spec.Stride()]}
	for _, c := range one.TRES() {
		if g := model.CountTRES(r.p.guarantee(o), c.TRES); g > 0 && t[c.TRES]+c.Count > max(0, have[c.TRES]) {
			return false
		}
	}
	for _, c := range one.TRES() {
		t[c.TRES] += c.Count
	}
	return true
}

// borrow gives the nodes that elastic jobs are to give, and the job's allocation once it has them. It gives none if
// that does not help, or if the job fits once what is being given up already is free.
func (r *recaller) borrow() (*model.Alloc, []*outing) {
	sh := r.it.sh
	var best *outing
	if sh.single {
		for _, n := range sh.pool.nodes {
			nd := &sh.whole[n.class.at]
			if nd.never || !r.may(n) || !sh.named(n, true) {
				continue
			}
			fits := func(gone func(model.JobID) bool) bool { return r.place(n, gone) != nil }
			all := r.lenders(n)
			switch {
			case len(all) == 0 && len(n.rec.Jobs) > 0 && !slices.ContainsFunc(n.rec.Jobs, func(id model.JobID) bool {
				return r.p.ending(id) || r.p.goes(id, n.def.Name)
			}):
				continue
			case fits(without(nil)):
				r.needless = true
				return nil, nil
			case len(all) == 0 || !fits(without(all)):
				continue
			}
			if o := (&outing{n, r.spareSome(all, fits)}); best == nil || r.cheaper(o, best) < 0 {
				best = o
			}
		}
	}
	if best != nil {
		if !r.take(best) {
			return nil, nil
		}
		na := r.place(best.n, without(best.list))
		return &model.Alloc{Nodes: []model.NodeAlloc{*na}}, []*outing{best}
	}
	if sh.spread {
		return r.borrowMany()
	}
	return nil, nil
}

// cheaper orders loans: as victims and, of one job, the node that it got last first.
func (r *recaller) cheaper(a, b *outing) int {
	last := func(o *outing) int {
		if len(o.list) == 0 {
			return 0
		}
		return o.list[0].j.Run.Alloc.Place(o.n.def.Name)
	}
	return cmp.Or(r.compare(a, b), cmp.Compare(last(b), last(a)))
}

// borrowMany is borrow for a job on several nodes: it takes nodes that need no loan first, then those that cost least,
// until the job fits.
func (r *recaller) borrowMany() (*model.Alloc, []*outing) {
	sh := r.it.sh
	var nodes []*outing
	for _, n := range sh.pool.nodes {
		if nd := &sh.least[n.class.at]; nd.never || !r.may(n) || !sh.named(n, false) {
			continue
		}
		fits := func(gone func(model.JobID) bool) bool {
			return r.meets(r.room(n, gone), &sh.least[n.class.at])
		}
		if fits(without(nil)) {
			nodes = append(nodes, &outing{n: n})
		} else if all := r.lenders(n); len(all) > 0 && fits(without(all)) {
			nodes = append(nodes, &outing{n, r.spareSome(all, fits)})
		}
	}
	slices.SortStableFunc(nodes, func(a, b *outing) int {
		return cmp.Or(cmp.Compare(min(1, len(a.list)), min(1, len(b.list))), r.cheaper(a, b))
	})
	lay := func(list []*outing) *model.Alloc {
		rooms := make([]*room, 0, len(list))
		for _, o := range list {
			if rm := r.room(o.n, without(o.list)); r.meets(rm, &sh.least[o.n.class.at]) {
				rooms = append(rooms, rm.as(&sh.rq))
			}
		}
		if len(rooms) < sh.rq.MinNodes {
			return nil
		}
		a, _ := laySpread(rooms, &sh.rq)
		return a
	}
	idle := slices.IndexFunc(nodes, func(o *outing) bool { return len(o.list) > 0 })
	if idle < 0 {
		r.needless = lay(nodes) != nil
		return nil, nil
	}
	if r.needless = idle >= sh.rq.MinNodes && lay(nodes[:idle]) != nil; r.needless {
		return nil, nil
	}
	chosen := slices.Clone(nodes[:idle])
	tried := 0
	for i, o := range nodes[idle:] {
		if !r.take(o) {
			continue
		}
		chosen = append(chosen, o)
		last := idle+i == len(nodes)-1
		if len(chosen) < sh.rq.MinNodes || !last && tried >= maxLays && len(chosen)%maxLays != 0 {
			continue
		}
		tried++
		if alloc := lay(chosen); alloc != nil {
			var used []*outing
			for _, o := range chosen {
				if len(o.list) > 0 && alloc.Place(o.n.def.Name) >= 0 {
					used = append(used, o)
				}
			}
			return alloc, used
		}
	}
	return nil, nil
}

// maxLays is how many sets of nodes are tried one node after the other; beyond it only every so many.
const maxLays = 16
