package sched

import (
	"slices"
	"strings"

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
	var where *model.Alloc
	if it.sh.rq.Exclusive {
		where = ownNodes
	}
	return p.lim.refuses(it.limits, w.all, w.node, it.e.j.Spec.LeastS(it.limitS), where)
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
	p.over = p.lim.refuses(it.limits, need, p.lim.vector(node), g.limitS, g.alloc)
	if p.over != model.ReasonNone && !it.e.j.Expediting() {
		return false
	}
	p.over = model.ReasonNone
	p.lim.count(it.limits, need, g.limitS, g.alloc)
	if p.hets > 0 {
		p.counted = append(p.counted, charged{it.limits, need, g.limitS, g.alloc})
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
	need := lim.vector(all)
	limitS := g.limitS(sp, part, func() []int64 { return need })
	return lim.refuses(g, need, lim.vector(node), limitS, nil)
}

// limitS gives a job's time limit: its own or the partition's, otherwise what its QOS or association leave it. need
// gives the least that it uses.
func (g *limitSet) limitS(sp *model.Spec, part *model.Partition, need func() []int64) int64 {
	s := part.LimitS(sp)
	if g == nil || sp.LimitS != model.NotSet || part.DefTimeS != model.NotSet {
		return s
	}
	if g.wallS > 0 {
		s = min(s, g.wallS)
	}
	var use []int64
	for i := range g.rules {
		r := &g.rules[i]
		if r.kind != jobMins {
			continue
		}
		if use == nil {
			use = need()
		}
		if r.t < len(use) && use[r.t] > 0 {
			s = min(s, max(r.limit/use[r.t], 1)*60)
		}
	}
	return s
}

// holding is what jobs of one tally hold, this plan's starts included.
type holding struct {
	scope state.Scope
	names []string
	pass  uint64
	jobs  int64
	use   []int64        // units, by resource
	run   []int64        // minutes still to come
	base  *state.Tally   // what it had before this plan; nil: nothing
	nodes map[string]int // by node: this plan's starts
	used  []int64        // minutes gone; nil until asked for
	wallS int64
}

func (lim *limiter) holding(sc state.Scope, names ...string) *holding {
	key := string(sc) + strings.Join(names, "\x00")
	h := lim.holds[key]
	if h == nil {
		h = &holding{scope: sc, names: names}
		lim.holds[key] = h
	}
	return h
}

// fresh reads a holding from the View, once a pass.
func (lim *limiter) fresh(h *holding) *holding {
	if h.pass == lim.pass && len(h.use) == len(lim.tres) {
		return h
	}
	if h.pass != lim.pass {
		h.base, h.nodes = nil, nil
	}
	same := h.pass == lim.pass // a limit named a new resource in this pass: what the pass has added stays
	was := *h
	h.pass, h.jobs, h.used = lim.pass, 0, nil
	h.use, h.run = make([]int64, len(lim.tres)), make([]int64, len(lim.tres))
	if t := lim.v.Tally(h.scope, h.names...); t != nil && !lim.alone {
		h.jobs, h.base = t.Jobs, t
		for i := range t.TRES {
			if k, ok := lim.index[strings.ToLower(t.TRES[i].TRES)]; ok {
				h.use[k], h.run[k] = t.TRES[i].Count, t.TRES[i].RunMins(lim.now)
			}
		}
		if k, ok := lim.index[nodeTRES]; ok {
			h.use[k] = t.Nodes()
		}
	}
	if same {
		h.jobs = was.jobs
		copy(h.use, was.use)
		copy(h.run, was.run)
	}
	return h
}

// spent reads the decayed usage of a holding's jobs, once a pass.
func (lim *limiter) spent(h *holding) *holding {
	lim.fresh(h)
	if h.used != nil {
		return h
	}
	h.used, h.wallS = make([]int64, len(lim.tres)), 0
	if lim.alone {
		return h
	}
	add := func(u *state.Usage) {
		if u == nil {
			return
		}
		u = lim.v.UsageAt(u, lim.now)
		h.wallS += u.Wall.Value / 1000
		for i := range u.TRES {
			if k, ok := lim.index[strings.ToLower(u.TRES[i].TRES)]; ok {
				h.used[k] += u.TRES[i].Meter.Value / 60_000
			}
		}
		if k, ok := lim.index["billing"]; ok {
			h.used[k] += u.Bill.Value / 60_000
		}
	}
	switch h.scope {
	case state.OfAssoc:
		add(lim.v.UsageOf(h.names[0], h.names[1], h.names[2]))
	case state.OfQOS:
		add(lim.v.QOSUsage(h.names[0]))
	case state.OfAccount:
		add(lim.v.AccountUsage(h.names[0]))
	case state.OfQOSUser, state.OfQOSAccount, state.OfPool: // no limit asks for it
	}
	return h
}

// ownNodes stands for nodes that no other job is on.
var ownNodes = &model.Alloc{}

// more gives how much a job adds to what a holding has of a resource: a node on which another job of the holding is
// counts already. Without the allocation it is the least that it can add.
func (h *holding) more(tres string, n int64, a *model.Alloc) int64 {
	if tres != nodeTRES || a == ownNodes {
		return n
	}
	if a == nil {
		have := int64(len(h.nodes))
		if h.base != nil {
			have += h.base.Nodes()
		}
		return max(0, n-have)
	}
	n = 0
	for i := range a.Nodes {
		if name := a.Nodes[i].Node; h.nodes[name] == 0 && (h.base == nil || !h.base.On(name)) {
			n++
		}
	}
	return n
}

// count adds a job that the plan starts.
func (lim *limiter) count(g *limitSet, need []int64, limitS int64, a *model.Alloc) {
	lim.tally(g, need, limitS, 1, a)
}

// uncount takes it back.
func (lim *limiter) uncount(g *limitSet, need []int64, limitS int64, a *model.Alloc) {
	lim.tally(g, need, limitS, -1, a)
}

// countMore adds what a job that counts already gets more: a node.
func (lim *limiter) countMore(g *limitSet, add []int64, leftS int64, a *model.Alloc) {
	for i, h := range g.counts {
		if !slices.Contains(g.counts[:i], h) {
			lim.hold(lim.fresh(h), add, leftS, g.charge, 1, a)
		}
	}
}

// hold adds or subtracts what is held for some seconds by a job with a UsageFactor, in millionths.
func (lim *limiter) hold(h *holding, need []int64, limitS, factor, sign int64, a *model.Alloc) {
	for t, n := range need {
		if t >= len(h.use) {
			continue
		}
		h.run[t] += sign * model.Scale(n*min(limitS, maxMinutesS), factor, model.FactorOne) / 60
		if lim.tres[t] != nodeTRES {
			h.use[t] += sign * n
			continue
		}
		if sign > 0 {
			h.use[t] += h.more(nodeTRES, n, a)
		}
		h.stand(a, sign)
		if sign < 0 {
			h.use[t] -= h.more(nodeTRES, n, a)
		}
	}
}

// stand adds or subtracts a job of the plan on its nodes.
func (h *holding) stand(a *model.Alloc, sign int64) {
	if h.nodes == nil {
		h.nodes = map[string]int{}
	}
	for i := range a.Nodes {
		name := a.Nodes[i].Node
		if h.nodes[name] += int(sign); h.nodes[name] == 0 {
			delete(h.nodes, name)
		}
	}
}

func (lim *limiter) tally(g *limitSet, need []int64, limitS, sign int64, a *model.Alloc) {
	for i, h := range g.counts {
		if slices.Contains(g.counts[:i], h) {
			continue
		}
		lim.fresh(h)
		h.jobs += sign
		lim.hold(h, need, limitS, g.charge, sign, a)
	}
}
