package sched

import (
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Guarantees (GuaranteedTRES): what a QOS, an account, or an account in one partition can have whenever it needs it.
// Others borrow what it doesn't use. A job that keeps its owner within the guarantee takes back only what is borrowed:
// of jobs without an owner of that kind, and of owners that use more than their own guarantee.

// owner is who has a guarantee. The kinds don't mix: what an account is guaranteed in a partition is taken back from
// other accounts there.
type owner struct {
	qos     string
	account string // with all accounts below it
	part    string // with account; "": in all partitions
}

// ownersOf gives the owners whose guarantees a job in a partition can use: its QOS, and its account and those above it,
// the nearest first.
func (p *Planner) ownersOf(sp *model.Spec, part string) []owner {
	var out []owner
	if q := p.v.QOS(sp.QOS); q != nil && len(q.GuaranteedTRES) > 0 {
		out = append(out, owner{qos: q.Name})
	}
	if p.v.Pledged() {
		for _, a := range p.v.Govern(sp.Account, "", "", part).Chain {
			if len(a.GuaranteedTRES) > 0 {
				out = append(out, owner{account: a.Account, part: a.Partition})
			}
		}
	}
	return out
}

// ownerOf gives the owner of a job, of the same kind as another one; the zero owner if there is none.
func (p *Planner) ownerOf(sp *model.Spec, part string, like owner) owner {
	if like.account == "" {
		return owner{qos: sp.QOS}
	}
	for _, a := range p.v.Govern(sp.Account, "", "", part).Chain {
		if len(a.GuaranteedTRES) > 0 && a.OfPool() == (like.part != "") {
			return owner{account: a.Account, part: a.Partition}
		}
	}
	return owner{}
}

// guarantee gives an owner's guarantee in units; percentages are of what takes jobs in its partition or in the cluster.
func (p *Planner) guarantee(o owner) []model.TRESCount {
	var list []model.TRESLimit
	if o.account == "" {
		if q := p.v.QOS(o.qos); q != nil {
			list = q.GuaranteedTRES
		}
	} else if a := p.v.Association(o.account, "", o.part); a != nil {
		list = a.GuaranteedTRES
	}
	var out []model.TRESCount
	for i := range list {
		g := &list[i]
		total := int64(0)
		switch {
		case !g.Percent:
		case o.part == "":
			total = p.totalOf(g.TRES)
		default:
			total = amountOf(usableIn(p.v, o.part), g.TRES)
		}
		out = append(out, model.TRESCount{TRES: g.TRES, Count: g.Of(total)})
	}
	return out
}

// owns reports whether a job's resources count as an owner's.
func (p *Planner) owns(o owner, j *model.Job, part string) bool {
	switch {
	case o.account == "":
		return j.Spec.QOS == o.qos
	case o.part != "" && part != o.part:
		return false
	}
	return slices.ContainsFunc(p.v.Govern(j.Spec.Account, "", "", o.part).Chain,
		func(a *model.Association) bool { return a.Account == o.account && a.Partition == o.part })
}

// belowGuarantee reports whether the owner stays below its guarantee of the resources that the job asks for, counting
// the job itself and what other jobs of the owner have claimed.
func (r *robber) belowGuarantee() bool {
	if !r.p.v.Counting() {
		return false
	}
	need, _ := r.it.sh.rq.Least()
	have := r.p.heldBy(r.by, true)
	owed := false
	for _, g := range r.p.guarantee(r.by) {
		n := amountOf(need, g.TRES)
		if n == 0 {
			continue
		}
		if have[strings.ToLower(g.TRES)]+n > g.Count {
			return false
		}
		owed = true
	}
	return owed
}

// lent reports whether a job's owner uses more than its guarantee of a resource that is guaranteed to this job's owner.
// What has no owner is lent.
func (r *robber) lent(j *model.Job, q *model.QOS) bool {
	if r.qos != nil && slices.Contains(q.Preempt, r.qos.Name) {
		return false
	}
	switch o := r.p.ownerOf(j.Spec, j.Run.Partition, r.by); {
	case o == r.by, r.by.part != "" && j.Run.Partition != r.by.part:
		return false
	case o == owner{}:
		return true
	default:
		return r.over(o)
	}
}

// over reports whether an owner uses more than its guarantee of a resource that is guaranteed to this job's owner.
func (r *robber) over(o owner) bool {
	have := r.spare(o)
	for _, g := range r.p.guarantee(r.by) {
		if have[strings.ToLower(g.TRES)] > 0 {
			return true
		}
	}
	return false
}

// spare gives how much an owner uses above its guarantee, by resource. Jobs that are being ended don't count.
func (r *robber) spare(o owner) map[string]int64 {
	if r.left == nil {
		r.left = map[owner]map[string]int64{}
	}
	have, known := r.left[o]
	if !known {
		have = r.p.heldBy(o, false)
		for _, g := range r.p.guarantee(o) {
			have[strings.ToLower(g.TRES)] -= g.Count
		}
		r.left[o] = have
	}
	return have
}

// within reports whether a set of victims leaves every owner its guarantee, if they are ended for another's guarantee.
func (r *robber) within(list []*victim) bool {
	if !r.owed {
		return true
	}
	taken := map[owner]map[string]int64{}
	for _, v := range list {
		if q := r.p.v.QOS(v.j.Spec.QOS); q != nil && r.preempts(v.j, q) {
			continue
		}
		o := r.p.ownerOf(v.j.Spec, v.j.Run.Partition, r.by)
		if o == (owner{}) {
			continue
		}
		have := r.spare(o)
		t := taken[o]
		if t == nil {
			t = map[string]int64{}
			taken[o] = t
		}
		for _, c := range v.j.Run.Alloc.TRES() {
			t[strings.ToLower(c.TRES)] += c.Count
		}
		for _, g := range r.p.guarantee(o) {
			if t[strings.ToLower(g.TRES)] > max(0, have[strings.ToLower(g.TRES)]) {
				return false
			}
		}
	}
	return true
}

// heldBy counts what an owner's jobs hold, with this plan's starts and without jobs that are being ended; with claims
// set also what its jobs have claimed.
func (p *Planner) heldBy(o owner, claims bool) map[string]int64 {
	out := map[string]int64{}
	var t *state.Tally
	switch {
	case o.account == "":
		t = p.v.Tally(state.OfQOS, o.qos)
	case o.part == "":
		t = p.v.Tally(state.OfAccount, o.account)
	default:
		t = p.v.Tally(state.OfPool, o.account, o.part)
	}
	if t != nil {
		for i := range t.TRES {
			out[strings.ToLower(t.TRES[i].TRES)] += t.TRES[i].Count
		}
	}
	add := func(a *model.Alloc, sign int64) {
		for _, c := range a.TRES() {
			out[strings.ToLower(c.TRES)] += sign * c.Count
		}
	}
	p.v.Moving(func(j *model.Job) bool {
		if j.State == model.Completing && p.owns(o, j, j.Run.Partition) {
			add(j.Run.Alloc, -1)
		}
		return true
	})
	for id, f := range p.victims {
		if j := p.v.Job(id); f == leaves && j != nil && p.owns(o, j, j.Run.Partition) {
			add(j.Run.Alloc, -1)
		}
	}
	for i := range p.plan.Starts {
		if s := &p.plan.Starts[i]; p.v.Job(s.Job) != nil && p.owns(o, p.v.Job(s.Job), s.Partition) {
			add(s.Alloc, 1)
		}
	}
	if claims {
		for id := range p.claimed {
			if j := p.v.Job(id); j != nil && j.Claim != nil && p.owns(o, j, j.Claim.Partition) {
				add(j.Claim.Alloc, 1)
			}
		}
		for i := range p.plan.Claims {
			c := &p.plan.Claims[i]
			if j := p.v.Job(c.Job); c.Claim != nil && j != nil && p.owns(o, j, c.Claim.Partition) {
				add(c.Claim.Alloc, 1)
			}
		}
	}
	return out
}

// totalOf gives the amount of a resource on all nodes that take jobs.
func (p *Planner) totalOf(tres string) int64 {
	if p.totalAt != p.usable {
		p.totalAt, p.total = p.usable, nil
		for _, n := range p.nodes {
			if n.up() {
				p.total = model.AddNodeTRES(p.total, n.def)
			}
		}
	}
	return amountOf(p.total, tres)
}
