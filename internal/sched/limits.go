package sched

import (
	"maps"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Limits of QOS and associations (https://slurm.schedmd.com/resource_limits.html). The View's tallies, which follow
// every change, say what jobs hold together. A pass reads each tally that it needs once and adds its own starts. A job
// that a limit holds blocks no other job and gets no reservation.

// limiter has the limits that apply to pending jobs, as of one generation of the accounts.
type limiter struct {
	v      *state.View
	cfg    *model.Config
	now    model.Time
	pass   uint64
	gen    uint64 // of the accounts
	usable uint64 // Planner.usable when limits in percent were computed

	tres  []string // resources that limits name
	index map[string]int
	sets  map[limitsKey]*limitSet
	holds map[string]*holding
	total []model.TRESCount            // of the nodes that take jobs
	parts map[string][]model.TRESCount // of those in a partition
	safe  bool
	alone bool // holdings are empty: only limits on a single job count
}

type limitsKey struct{ account, user, qos, part string }

// limitSet has the limits for jobs of one user, account and QOS in one partition.
type limitSet struct {
	rules  []rule
	counts []*holding // a started job counts in each of them
	part   string
	wallS  int64  // the longest time limit; 0: none
	wallOf string // the owner of that limit, and its name
	wallBy string
	fair   int64 // the least fair-share factor with which jobs start (UsageThreshold), millionths; 0: any
	usage  int64 // UsageFactor if UsageFactorSafe applies it to limits on a job's use, millionths; 0: not applied
	charge int64 // UsageFactor with which its jobs are charged once they run, millionths
	most   model.Reason
	prio   model.Limit // the least priority that gets a reservation (MinPrioThreshold), instead of the policy's
}

// ruleKind is what a rule limits.
type ruleKind uint8

const (
	byJobs    ruleKind = iota // jobs that run
	byCount                   // units that jobs hold
	byRunMins                 // units times minutes that jobs may still hold
	byMins                    // units times minutes that were used
	byWall                    // minutes that jobs have run
	perJob
	perNode
	jobMins
	atLeast
)

// rule is one limit.
type rule struct {
	kind   ruleKind
	reason model.Reason
	t      int   // resource
	limit  int64 // units, minutes or jobs
	on     *holding
	from   model.TRESLimit // limits in percent are computed anew from it
	factor int64           // LimitFactor, millionths
	pool   string          // the partition of which from is a percentage; "": of the cluster
	who    string          // its owner: "QOS x"
	name   string          // gacctmgr's name of it
}

func newLimiter(v *state.View) *limiter {
	return &limiter{v: v, cfg: v.Config(), gen: v.AcctGen(), index: map[string]int{}, sets: map[limitsKey]*limitSet{},
		holds: map[string]*holding{}, safe: v.Config().Params.EnforceSafe}
}

// limits brings the limiter up to date with the View; it is nil if limits are not enforced.
func (p *Planner) limits() {
	p.acctGen, p.lifts = p.v.AcctGen(), anyLifts(p.v)
	if !p.cfg.Params.HoldLimits {
		p.lim = nil
		return
	}
	if p.lim == nil || p.lim.gen != p.v.AcctGen() || p.lim.cfg != p.cfg {
		p.lim = newLimiter(p.v)
	}
	p.lim.v, p.lim.now, p.lim.pass = p.v, p.now, p.pass
	p.shares()
}

// limitsChanged reports whether accounts have changed, and with them the limits and rights of every pending job.
func (p *Planner) limitsChanged(v *state.View) bool {
	return p.acctGen != v.AcctGen() &&
		(p.lim != nil || p.cfg != nil && p.cfg.Params.Preempt.ByQOS || p.lifts || anyLifts(v))
}

// shares computes limits in percent anew when nodes have come or gone.
func (p *Planner) shares() {
	lim := p.lim
	if lim.usable == p.usable {
		return
	}
	lim.usable, lim.total, lim.parts = p.usable, nil, nil
	for _, n := range p.nodes {
		if n.up() {
			lim.total = model.AddNodeTRES(lim.total, n.def)
		}
	}
	for _, g := range lim.sets {
		if g == nil { // no limits
			continue
		}
		for i := range g.rules {
			if r := &g.rules[i]; r.from.Percent {
				r.limit = lim.units(&r.from, r.factor, r.pool)
			}
		}
	}
}

// units gives a limit as a number of units. A percentage is of what takes jobs in the cluster, or in a partition, pool.
func (lim *limiter) units(l *model.TRESLimit, factor int64, pool string) int64 {
	total := lim.total
	if pool != "" && l.Percent {
		total = lim.totalIn(pool)
	}
	n := l.Of(amountOf(total, l.TRES))
	if factor > 0 {
		n = model.Scale(n, factor, model.FactorOne)
	}
	return n
}

// totalIn gives what the nodes of a partition have that take jobs.
func (lim *limiter) totalIn(part string) []model.TRESCount {
	if have, known := lim.parts[part]; known {
		return have
	}
	if lim.parts == nil {
		lim.parts = map[string][]model.TRESCount{}
	}
	lim.parts[part] = usableIn(lim.v, part)
	return lim.parts[part]
}

// usableIn adds up the nodes of a partition that take jobs.
func usableIn(v *state.View, part string) []model.TRESCount {
	var sum []model.TRESCount
	if p := v.Partition(part); p != nil {
		for _, name := range p.Nodes {
			if n := v.Node(name); n != nil && n.Usable() {
				sum = model.AddNodeTRES(sum, n.Def)
			}
		}
	}
	return sum
}

// amountOf gives a resource's amount in a list, whatever its case.
func amountOf(list []model.TRESCount, tres string) int64 {
	n := int64(0)
	for i := range list {
		if strings.EqualFold(list[i].TRES, tres) {
			n += list[i].Count
		}
	}
	return n
}

func (lim *limiter) resource(tres string) int {
	tres = strings.ToLower(tres) // nodes spell types of resources in any case, limits in lower case
	i, ok := lim.index[tres]
	if !ok {
		i = len(lim.tres)
		lim.index[tres] = i
		lim.tres = append(lim.tres, tres)
	}
	return i
}

// limitsOf returns the limits of a job in a partition, or nil if it has none.
func (lim *limiter) limitsOf(sp *model.Spec, part string) *limitSet {
	key := limitsKey{sp.Account, sp.User, sp.QOS, part}
	g, known := lim.sets[key]
	if !known {
		if len(lim.sets) >= maxLimitSets {
			clear(lim.sets)
		}
		g = lim.newLimits(&key)
		lim.sets[key] = g
	}
	return g
}

// mostNodes gives the largest number of nodes that limits allow a job whose request leaves the number open; 0: any. As
// in Slurm the job takes fewer nodes rather than wait for more than it may ever have.
func (lim *limiter) mostNodes(sp *model.Spec, part string) int64 {
	if lim == nil || sp.MaxNodes > 0 && sp.MaxNodes == sp.MinNodes {
		return 0
	}
	g := lim.limitsOf(sp, part)
	if g == nil {
		return 0
	}
	most := int64(0)
	for i := range g.rules {
		r := &g.rules[i]
		if (r.kind == perJob || r.kind == byCount) && !r.from.Percent && lim.tres[r.t] == nodeTRES && r.limit > 0 &&
			(most == 0 || r.limit < most) {
			most = r.limit
		}
	}
	if most < int64(sp.MinNodes) || sp.MaxNodes > 0 && most >= int64(sp.MaxNodes) {
		return 0
	}
	return most
}

// nodeTRES is what limits call nodes.
const nodeTRES = "node"

// maxLimitSets bounds the cached sets.
const maxLimitSets = 1 << 16

func (lim *limiter) newLimits(k *limitsKey) *limitSet {
	r := lim.v.Govern(k.account, k.user, k.qos, k.part)
	g := &limitSet{part: k.part, charge: model.FactorOne}
	set := closed{}
	factor := int64(0)
	for _, q := range r.QOS {
		if n, has := q.UsageThreshold.Value(); has && q.Flags&model.QOSEnforceUsageThreshold != 0 && g.fair == 0 {
			g.fair = n
		}
		if g.prio == 0 {
			g.prio = q.MinPrioThresh
		}
		if q.Name == k.qos {
			if g.charge = q.UsageFactor; q.Flags&model.QOSUsageFactorSafe != 0 {
				g.usage = q.UsageFactor
			}
		}
		if q.LimitFactor > 0 && factor == 0 {
			factor = q.LimitFactor
		}
		all, user, acct := lim.holding(state.OfQOS, q.Name), lim.holding(state.OfQOSUser, q.Name, k.user),
			lim.holding(state.OfQOSAccount, q.Name, k.account)
		g.counts = append(g.counts, all, user, acct)
		who := "QOS " + q.Name
		g.number(set, "GrpWall", byWall, q.GrpWallS, model.ReasonQOSGrpWallLimit, all)
		g.number(set, "GrpJobs", byJobs, q.GrpJobs, model.ReasonQOSGrpJobsLimit, all)
		g.number(set, "MaxJobsPA", byJobs, q.MaxJobsPerAccount, model.ReasonMaxJobsPerAccount, acct)
		g.number(set, "MaxJobs", byJobs, q.MaxJobsPerUser, model.ReasonQOSMaxJobsPerUserLimit, user)
		set.mark("GrpWall", q.GrpWallS)
		set.mark("GrpJobs", q.GrpJobs)
		set.mark("MaxJobsPA", q.MaxJobsPerAccount)
		set.mark("MaxJobs", q.MaxJobsPerUser)
		if n, has := q.MaxWallS.Value(); has && g.wallS == 0 {
			g.wallS, g.most = max(n, 1), model.ReasonQOSMaxWallDurationPerJobLimit
			g.wallOf, g.wallBy = who, "MaxWallDurationPerJob"
		}
		for _, x := range []struct {
			name string
			list []model.TRESLimit
			kind ruleKind
			why  model.LimitKind
			on   *holding
		}{
			{"Grp", q.GrpTRES, byCount, model.QOSGrp, all}, {"GrpMins", q.GrpTRESMins, byMins, model.QOSGrpMins, all},
			{"GrpRunMins", q.GrpTRESRunMins, byRunMins, model.QOSGrpRunMins, all},
			{"PerJob", q.MaxTRESPerJob, perJob, model.QOSPerJob, nil},
			{"PerNode", q.MaxTRESPerNode, perNode, model.QOSPerNode, nil},
			{"JobMins", q.MaxTRESMins, jobMins, model.QOSJobMins, nil},
			{"Min", q.MinTRES, atLeast, model.QOSMin, nil}, {"PerUser", q.MaxTRESPerUser, byCount, model.QOSPerUser, user},
			{"PerAccount", q.MaxTRESPerAccount, byCount, model.QOSPerAccount, acct},
			{"RunMinsUser", q.MaxTRESRunMinsPerUser, byRunMins, model.QOSPerUser, user},
			{"RunMinsAccount", q.MaxTRESRunMinsPerAcct, byRunMins, model.QOSPerAccount, acct},
		} {
			lim.lines(g, set, limitList{name: x.name, who: who, list: x.list, kind: x.kind, why: x.why, on: x.on,
				relative: q.Flags&model.QOSRelative != 0})
			set.close(x.name, x.list)
		}
	}
	lim.associations(g, set, &r, k, factor)
	if len(g.rules) == 0 && g.wallS == 0 && g.fair == 0 && g.prio == 0 {
		return nil
	}
	return g
}

// associations adds the limits of the user's association and of those above it.
func (lim *limiter) associations(g *limitSet, set closed, r *state.Rules, k *limitsKey, factor int64) {
	inherited := maps.Clone(set) // of limits that accounts pass down, the nearest counts
	own := lim.holding(state.OfAssoc, k.account, k.user, r.Part)
	g.counts = append(g.counts, own)
	for i, a := range r.Chain {
		on := own
		pool := ""
		if i > 0 || !r.User {
			scope, names := r.Scope(i)
			on = lim.holding(scope, names...)
			g.counts = append(g.counts, on)
			if a.OfPool() {
				pool = a.Partition
			}
		}
		who := ofWhom(on, "")
		lines := func(set closed, name string, list []model.TRESLimit, kind ruleKind, why model.LimitKind, on *holding) {
			lim.lines(g, set, limitList{name: name, who: who, list: list, kind: kind, why: why, on: on, factor: factor,
				pool: pool})
		}
		if g.prio == 0 {
			g.prio = a.MinPrioThresh
		}
		g.number(set, "GrpWall", byWall, a.GrpWallS, model.ReasonAssocGrpWallLimit, on)
		g.number(set, "GrpJobs", byJobs, a.GrpJobs, model.ReasonAssocGrpJobsLimit, on)
		g.number(inherited, "MaxJobs", byJobs, a.MaxJobs, model.ReasonAssocMaxJobsLimit, own)
		inherited.mark("MaxJobs", a.MaxJobs)
		if n, has := a.MaxWallS.Value(); has && g.wallS == 0 {
			g.wallS, g.most = max(n, 1), model.ReasonAssocMaxWallDurationPerJobLimit
			g.wallOf, g.wallBy = who, "MaxWall"
		}
		lines(set, "Grp", a.GrpTRES, byCount, model.AssocGrp, on)
		if pool == "" {
			lines(set, "GrpMins", a.GrpTRESMins, byMins, model.AssocGrpMins, on)
		}
		lines(set, "GrpRunMins", a.GrpTRESRunMins, byRunMins, model.AssocGrpRunMins, on)
		for _, x := range []struct {
			name string
			list []model.TRESLimit
			kind ruleKind
			why  model.LimitKind
			on   *holding
		}{{"PerJob", a.MaxTRESPerJob, perJob, model.AssocPerJob, nil},
			{"PerNode", a.MaxTRESPerNode, perNode, model.AssocPerNode, nil},
			{"JobMins", a.MaxTRESMins, jobMins, model.AssocJobMins, nil},
			{"RunMinsUser", a.MaxTRESRunMins, byRunMins, model.AssocGrpRunMins, own}} {
			lines(inherited, x.name, x.list, x.kind, x.why, x.on)
			inherited.close(x.name, x.list)
		}
	}
}

// closed has the limits, by name and resource, that are already set: further limits of the same name don't count.
type closed map[string]bool

func (c closed) mark(name string, l model.Limit) {
	if l != 0 {
		c[name] = true
	}
}

func (c closed) close(name string, list []model.TRESLimit) {
	for i := range list {
		c[name+" "+list[i].TRES] = true
	}
}

// number adds a limit on jobs or minutes, unless one of that name is already set.
func (g *limitSet) number(set closed, name string, kind ruleKind, l model.Limit, why model.Reason, on *holding) {
	if n, has := l.Value(); has && !set[name] {
		g.rules = append(g.rules, rule{kind: kind, reason: why, limit: n, on: on, who: ofWhom(on, ""),
			name: limitName(name, on)})
	}
}

// limitList is a list of limits on resources, all of one kind and one owner.
type limitList struct {
	name, who string
	list      []model.TRESLimit
	kind      ruleKind
	why       model.LimitKind
	on        *holding
	factor    int64  // LimitFactor, millionths
	relative  bool   // numbers are percentages
	pool      string // percentages are of this partition; "": of the cluster
}

// lines adds a list of limits, except for those that are already set.
func (lim *limiter) lines(g *limitSet, set closed, x limitList) {
	for _, l := range x.list {
		if set[x.name+" "+l.TRES] {
			continue
		}
		// minutes have no total of which a limit could be a percentage
		share := x.kind == byCount || x.kind == perJob || x.kind == perNode || x.kind == atLeast
		switch {
		case l.Percent && !share:
			continue // gacctmgr takes none
		case x.relative && share && !l.Percent:
			l.Percent, l.Count = true, l.Count*100
		}
		g.rules = append(g.rules, rule{kind: x.kind, reason: model.LimitReason(x.why, l.TRES), t: lim.resource(l.TRES),
			on: x.on, from: l, factor: x.factor, pool: x.pool, limit: lim.units(&l, x.factor, x.pool),
			who: ofWhom(x.on, x.who), name: limitNames[x.name]})
	}
}

// vector gives amounts in the order of the limiter's resources.
func (lim *limiter) vector(have []model.TRESCount) []int64 {
	out := make([]int64, len(lim.tres))
	for _, c := range have {
		if k, ok := lim.index[strings.ToLower(c.TRES)]; ok {
			out[k] += c.Count
		}
	}
	return out
}

// refuses gives the limit that a job breaks if it takes need for limitS seconds, and at most node on one node. Without
// the allocation, nodes that it could share with others of its kind count for nothing.
func (lim *limiter) refuses(g *limitSet, need, node []int64, limitS int64, a *model.Alloc) model.Reason {
	_, reason := lim.broken(g, need, node, limitS, a)
	return reason
}

// broken also gives the index of the rule that refuses; -1: it is the time limit, or none.
func (lim *limiter) broken(g *limitSet, need, node []int64, limitS int64, a *model.Alloc) (int, model.Reason) {
	if g.wallS > 0 && limitS > g.wallS {
		return -1, g.most
	}
	mins := min(limitS, maxMinutesS)
	for i := range g.rules {
		r := &g.rules[i]
		at := func(list []int64) int64 {
			if r.t < len(list) {
				return list[r.t]
			}
			return 0
		}
		over := false
		switch r.kind {
		case byJobs:
			over = lim.fresh(r.on).jobs+1 > r.limit
		case byCount:
			n, h := at(need), lim.fresh(r.on)
			over = n > 0 && at(h.use)+h.more(lim.tres[r.t], n, a) > r.limit
		case byRunMins:
			n := at(need)
			over = n > 0 && at(lim.fresh(r.on).run)+g.counted(n*mins/60) > r.limit
		case byMins:
			n, h := at(need), lim.spent(r.on)
			over = n > 0 && (at(h.used) >= r.limit || lim.safe && at(h.used)+at(h.run)+g.counted(n*mins/60) > r.limit)
		case byWall:
			over = lim.spent(r.on).wallS >= r.limit || lim.safe && lim.spent(r.on).wallS+g.counted(limitS) > r.limit
		case perJob:
			over = at(need) > r.limit
		case perNode:
			over = at(node) > r.limit
		case jobMins:
			over = at(need)*mins/60 > r.limit
		case atLeast:
			over = at(need) < r.limit
		}
		if over {
			return i, r.reason
		}
	}
	return -1, model.ReasonNone
}

// counted gives a use as limits count it: with UsageFactorSafe it is multiplied by the QOS's UsageFactor.
func (g *limitSet) counted(n int64) int64 {
	if g.usage > 0 {
		return model.Scale(n, g.usage, model.FactorOne)
	}
	return n
}

// maxMinutesS bounds a time limit in sums of minutes, seconds: unlimited jobs count as ten years, as in tallies.
const maxMinutesS = 10 * 365 * 86400
