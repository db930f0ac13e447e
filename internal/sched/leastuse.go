package sched

import (
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// allocTRES gives the resources of an allocation with licenses, billing units included, and the largest amount of each
// on one node.
func allocTRES(v *state.View, a *model.Alloc, lic []model.LicenseCount, part string) (all, node []model.TRESCount) {
	all = (&model.Run{Alloc: a, Licenses: lic}).TRES()
	all = model.AddTRES(all, "billing", v.BillingOf(all, part))
	one := model.Alloc{Nodes: make([]model.NodeAlloc, 1)}
	for i := range a.Nodes {
		one.Nodes[0] = a.Nodes[i]
		for _, c := range one.TRES() {
			if have := model.CountTRES(node, c.TRES); c.Count > have {
				node = model.AddTRES(node, c.TRES, c.Count-have)
			}
		}
	}
	return all, node
}

// leastUse is the least that a shape takes, in the order of the limiter's resources.
type leastUse struct {
	of        *limiter
	n         int // number of resources that the limiter had then
	part      string
	all, node []int64
}

// leastUseOf returns the least that an item takes.
func (p *Planner) leastUseOf(it *item, part string) *leastUse {
	sh := it.sh
	if w := sh.uses; w != nil && w.of == p.lim && w.n == len(p.lim.tres) && w.part == part {
		return w
	}
	all, node := sh.rq.Least()
	all = model.AddTRES(slices.Clone(all), "billing", p.v.BillingOf(all, part))
	sh.uses = &leastUse{p.lim, len(p.lim.tres), part, p.lim.vector(all), p.lim.vector(node)}
	return sh.uses
}

// held gives the limit that holds a job, whatever is free.
func (p *Planner) held(l *lane, it *item) model.Reason {
	if p.owing(l, it) {
		return model.ReasonAccountBalance
	}
	if it.e.j.Expediting() {
		return model.ReasonNone // it had its resources already
	}
	if p.keptBack(l, it) {
		return model.ReasonHeadroom
	}
	if p.lim == nil || it.limits == nil {
		return model.ReasonNone
	}
	sp := it.e.j.Spec
	if f := p.policy.FairShare; f != nil && it.limits.fair > 0 &&
		f(sp.Account, sp.User, l.part.Name) < float64(it.limits.fair)/float64(model.FactorOne) {
		return model.ReasonQOSUsageThreshold
	}
	w := p.leastUseOf(it, l.part.Name)
	return p.lim.refuses(it.limits, w.all, w.node, it.e.j.Spec.LeastS(it.limitS))
}

// admits reports whether the limits allow a job what it is to get. If they do, it counts the job; otherwise it sets
// Planner.over.
func (p *Planner) admits(l *lane, it *item, g *lodging) bool {
	if !it.e.j.Expediting() && !p.admitsBeside(l, it, g.alloc) {
		return false
	}
	if p.lim == nil || it.limits == nil {
		return true
	}
	all, node := allocTRES(p.v, g.alloc, g.lic, l.part.Name)
	need := p.lim.vector(all)
	p.over = p.lim.refuses(it.limits, need, p.lim.vector(node), g.limitS)
	if p.over != model.ReasonNone && !it.e.j.Expediting() {
		return false
	}
	p.over = model.ReasonNone
	p.lim.count(it.limits, need, g.limitS)
	if p.hets > 0 {
		p.counted = append(p.counted, charged{it.limits, need, g.limitS})
	}
	return true
}

// Alone gives the limit that a job breaks by itself, if its QOS or the partition's QOS refuses such jobs at submission
// (DenyOnLimit); otherwise ReasonNone.
func Alone(v *state.View, sp *model.Spec, part *model.Partition) model.Reason {
	if !v.Config().Params.HoldLimits {
		return model.ReasonNone
	}
	r := v.Govern(sp.Account, sp.User, sp.QOS, part.Name)
	if !slices.ContainsFunc(r.QOS, func(q *model.QOS) bool { return q.Flags&model.QOSDenyOnLimit != 0 }) {
		return model.ReasonNone
	}
	lim := newLimiter(v)
	lim.alone, lim.pass = true, 1
	v.Nodes(func(n *model.Node) bool {
		if n.Usable() {
			lim.total = model.AddNodeTRES(lim.total, n.Def)
		}
		return true
	})
	g := lim.limitsOf(sp, part.Name)
	if g == nil {
		return model.ReasonNone
	}
	rq := Resolve(sp, Lifted(v, sp.QOS, part), &v.Config().Params)
	all, node := rq.Least()
	all = model.AddTRES(all, "billing", v.BillingOf(all, part.Name))
	return lim.refuses(g, lim.vector(all), lim.vector(node), g.limitS(sp, part))
}

// limitS gives a job's time limit: its own or the partition's, otherwise the one of its QOS or association.
func (g *limitSet) limitS(sp *model.Spec, part *model.Partition) int64 {
	s := LimitS(sp, part)
	if g != nil && g.wallS > 0 && sp.LimitS == model.NotSet && part.DefTimeS == model.NotSet {
		s = min(s, g.wallS)
	}
	return s
}
