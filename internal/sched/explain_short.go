package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/state"
	"gbatch/internal/walltime"
)

// explain_short.go says what a job lacks. For a limit: its name, its owner, what it allows, what is in use, what the
// job asks for, and when enough jobs that count in it have ended. For nodes: the scarce resource, the jobs that hold
// it, and until when.

// maxHolders bounds the running jobs that roomUnder looks at.
const maxHolders = 10_000

// limited replaces the text of a cause that is a limit by what the rules of the job's partitions say. It gives the
// moment from which there is room under the limit, 0 if that is not known.
func (x *explainer) limited(c *model.Cause) model.Time {
	for i := range x.spots {
		s := &x.spots[i]
		if x.p.lim == nil || s.it.limits == nil {
			continue
		}
		w := x.p.leastUseOf(&s.it, s.l.part.Name)
		limitS, where := x.j.Spec.LeastS(s.it.limitS), (*model.Alloc)(nil)
		if s.it.sh.rq.Exclusive {
			where = ownNodes
		}
		k, r := x.p.lim.broken(s.it.limits, w.all, w.node, limitS, where)
		if r == model.ReasonNone {
			continue
		}
		c.Reason = r // the last pass may have found another limit
		if k < 0 {
			c.Text = fmt.Sprintf("asks for %s; %s allows %s a job (%s)", limitText(limitS), s.it.limits.wallOf,
				limitText(s.it.limits.wallS), s.it.limits.wallBy)
			return 0
		}
		text, when, jobs := x.ruleText(s.it.limits, &s.it.limits.rules[k], w, limitS)
		c.Text, c.Jobs = text, jobs
		return when
	}
	return 0
}

// ruleText says how a job breaks a rule of its limits.
func (x *explainer) ruleText(g *limitSet, r *rule, w *leastUse, limitS int64) (text string, when model.Time,
	jobs []model.JobID) {
	lim := x.p.lim
	of := func(list []int64) int64 {
		if r.t < len(list) {
			return list[r.t]
		}
		return 0
	}
	what := ""
	if r.kind != byJobs && r.kind != byWall {
		what = lim.tres[r.t]
	}
	mins := min(limitS, maxMinutesS)
	amount := func(n int64) string {
		if what == "mem" && r.kind != byMins && r.kind != byRunMins && r.kind != jobMins {
			return walltime.FormatMem(n)
		}
		return fmt.Sprint(n)
	}
	never := func(need int64) string {
		if need <= r.limit {
			return ""
		}
		return "; can never start as it is: the limit is " + amount(r.limit)
	}
	switch r.kind {
	case byJobs:
		text = fmt.Sprintf("%d of %d jobs of %s run (%s)", lim.fresh(r.on).jobs, r.limit, r.who, r.name)
		when, jobs = x.roomUnder(r, 1, lim.fresh(r.on).jobs)
		if r.limit < 1 {
			text += "; can never start as it is"
		}
	case byCount:
		n, have := of(w.all), of(lim.fresh(r.on).use)
		text = fmt.Sprintf("%s of %s %s in use by %s (%s); asks for %s%s", amount(have), amount(r.limit), what, r.who, r.name,
			amount(n), never(n))
		if n <= r.limit {
			when, jobs = x.roomUnder(r, n, have)
		}
	case byRunMins:
		n := g.counted(of(w.all) * mins / 60)
		text = fmt.Sprintf("%d of %d %s-minutes are still to run in %s (%s); asks for %d%s", of(lim.fresh(r.on).run), r.limit,
			what, r.who, r.name, n, never(n))
	case byMins:
		text = fmt.Sprintf("%d of %d %s-minutes have been used by %s (%s)", of(lim.spent(r.on).used), r.limit, what,
			r.who, r.name)
		if lim.safe {
			text += fmt.Sprintf("; asks for %d", of(w.all)*mins/60)
		}
	case byWall:
		text = fmt.Sprintf("jobs of %s have run for %s of %s (%s); asks for %s", r.who, limitText(lim.spent(r.on).wallS),
			limitText(r.limit), r.name, limitText(limitS))
	case perJob:
		text = fmt.Sprintf("asks for %s %s; %s allows %s a job (%s): it can never start as it is", amount(of(w.all)), what,
			r.who, amount(r.limit), r.name)
	case perNode:
		text = fmt.Sprintf("asks for %s %s on a node; %s allows %s (%s): it can never start as it is", amount(of(w.node)),
			what, r.who, amount(r.limit), r.name)
	case jobMins:
		text = fmt.Sprintf("asks for %d %s-minutes; %s allows %d a job (%s): it can never start as it is", of(w.all)*mins/60,
			what, r.who, r.limit, r.name)
	case atLeast:
		text = fmt.Sprintf("asks for %s %s; %s wants at least %s (%s): it can never start as it is", amount(of(w.all)), what,
			r.who, amount(r.limit), r.name)
	}
	if when != 0 {
		text += fmt.Sprintf("; room by %s, when %s", at(when), x.enough(jobs))
	}
	return text, when, jobs[:min(len(jobs), maxNamed)]
}

// enough says that jobs have ended.
func (x *explainer) enough(jobs []model.JobID) string {
	if len(jobs) == 1 {
		return x.jobList(jobs, 1) + " ends"
	}
	return x.jobList(jobs[:min(len(jobs), maxNamed)], len(jobs)) + " end"
}

// roomUnder gives the moment at which need units fit under a rule, and the jobs that have to end first, by their
// planned ends; 0 if some of them have no time limit, or if too many jobs run.
func (x *explainer) roomUnder(r *rule, need, have int64) (model.Time, []model.JobID) {
	type end struct {
		at model.Time
		id model.JobID
		n  int64
	}
	var list []end
	seen := map[model.JobID]bool{}
	for _, n := range x.p.nodes {
		for i := range n.rel {
			l := &n.rel[i]
			if seen[l.id] || l.asleep || l.takes {
				continue
			}
			seen[l.id] = true
			if len(seen) > maxHolders {
				return 0, nil
			}
			j := x.v.Job(l.id)
			if j == nil || j.Run == nil || !x.counts(r.on, j) {
				continue
			}
			e := end{l.at, l.id, 1}
			if r.kind == byCount {
				e.n = 0
				all, _ := allocTRES(x.v, j.Run.Alloc, j.Run.Licenses, j.Run.Partition)
				if list := x.p.lim.vector(all); r.t < len(list) {
					e.n = list[r.t]
				}
			}
			if e.n > 0 {
				list = append(list, e)
			}
		}
	}
	slices.SortFunc(list, func(a, b end) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
	var jobs []model.JobID
	for _, e := range list {
		if e.at >= x.now.Add(unlimitedS/2) {
			return 0, nil
		}
		have -= e.n
		jobs = append(jobs, e.id)
		if have+need <= r.limit {
			return e.at, jobs
		}
	}
	return 0, nil
}

// counts reports whether a running job counts in a holding.
func (x *explainer) counts(h *holding, j *model.Job) bool {
	ofQOS := func() bool { return j.Spec.QOS == h.names[0] || j.Run.PartQOS == h.names[0] }
	switch h.scope {
	case state.OfQOS:
		return ofQOS()
	case state.OfQOSUser:
		return ofQOS() && j.Spec.User == h.names[1]
	case state.OfQOSAccount:
		return ofQOS() && j.Spec.Account == h.names[1]
	case state.OfAssoc:
		return j.Spec.Account == h.names[0] && j.Spec.User == h.names[1] &&
			(h.names[2] == "" || j.Run.AssocPart == h.names[2])
	case state.OfAccount:
		g := x.v.Govern(j.Spec.Account, "", "", "")
		return j.Spec.Account == h.names[0] ||
			slices.ContainsFunc(g.Chain, func(a *model.Association) bool { return a.Account == h.names[0] })
	case state.OfPool:
		g := x.v.Govern(j.Spec.Account, "", "", h.names[1])
		return j.Run.Partition == h.names[1] && slices.ContainsFunc(g.Chain,
			func(a *model.Association) bool { return a.OfPool() && a.Account == h.names[0] })
	}
	return false
}

// limitNames maps rules' names to gacctmgr's names of limits of a QOS or an association.
var limitNames = map[string]string{"Grp": "GrpTRES", "GrpMins": "GrpTRESMins", "GrpRunMins": "GrpTRESRunMins",
	"PerJob":  "MaxTRESPerJob",
	"PerNode": "MaxTRESPerNode", "JobMins": "MaxTRESMinsPerJob", "Min": "MinTRESPerJob", "PerUser": "MaxTRESPerUser",
	"PerAccount":  "MaxTRESPerAccount",
	"RunMinsUser": "MaxTRESRunMinsPerUser", "RunMinsAccount": "MaxTRESRunMinsPerAccount", "MaxJobsPA": "MaxJobsPerAccount",
	"MaxJobs": "MaxJobs", "GrpJobs": "GrpJobs",
	"GrpWall": "GrpWall"}

// limitName gives gacctmgr's name of a limit on jobs.
func limitName(name string, on *holding) string {
	if name == "MaxJobs" && on.scope == state.OfQOSUser {
		return "MaxJobsPerUser"
	}
	return limitNames[name]
}

// ofWhom says whose a limit is: "QOS x", "user bob in QOS x", "account a", "user bob in account a".
func ofWhom(on *holding, otherwise string) string {
	if on == nil {
		return otherwise
	}
	switch on.scope {
	case state.OfQOS:
		return "QOS " + on.names[0]
	case state.OfQOSUser:
		return "user " + on.names[1] + " in QOS " + on.names[0]
	case state.OfQOSAccount:
		return "account " + on.names[1] + " in QOS " + on.names[0]
	case state.OfAssoc:
		text := "user " + on.names[1] + " in account " + on.names[0]
		if on.names[2] != "" {
			text += " and partition " + on.names[2]
		}
		return text
	case state.OfAccount:
		return "account " + on.names[0]
	case state.OfPool:
		return "account " + on.names[0] + " in partition " + on.names[1]
	}
	return strings.Join(on.names, " ")
}

// scarce is a resource of which a request needs more than is free.
type scarce struct {
	what   string
	need   int64
	free   int64 // of all nodes together, or the most that one node has
	all    int64 // what all nodes have together; 0: each node is looked at by itself
	memory bool  // MiB
	text   string
	jobs   []model.JobID
	until  model.Time // enough is free then; 0: not known
}

func (c *scarce) amount(n int64) string {
	if c.memory {
		return walltime.FormatMem(n)
	}
	return fmt.Sprint(n)
}

// scarcest names the resource that a request lacks, if it is a single one: a resource of the whole job if it is counted
// over all nodes together, otherwise one that too few nodes have enough of. at is the moment at which there is enough.
func (x *explainer) scarcest(sh *shape, nodes []*node, least []nodeNeed, want int, last *node, at model.Time) *scarce {
	if c := x.inAll(sh, nodes); c != nil {
		return c
	}
	if sh.single && want > 1 { // over several nodes, in whatever parts
		return nil
	}
	return x.onEach(sh, nodes, least, want, last, at)
}

// entries gives the indices of a node's resources of a name and type.
func entries(n *node, name, typ string) (of []int) {
	for i := range n.def.Gres {
		if d := &n.def.Gres[i]; d.Name == name && model.TypeFits(name, typ, d.Type) {
			of = append(of, i)
		}
	}
	return of
}

func sumOf(list []int, of []int) (n int64) {
	for _, i := range of {
		if i < len(list) {
			n += int64(list[i])
		}
	}
	return n
}

// inAll looks at resources that are counted for the whole job, over several nodes.
func (x *explainer) inAll(sh *shape, nodes []*node) *scarce {
	if sh.single && !sh.spread {
		return nil
	}
	for i := range sh.rq.Gres {
		g := &sh.rq.Gres[i]
		if g.Per != model.PerJob || g.Milli > 0 || g.Count == 0 {
			continue
		}
		c := &scarce{what: g.Name, need: int64(g.Count)}
		if g.Type != "" {
			c.what = g.Type
		}
		var rel []*release
		var gives []int64
		for _, n := range nodes {
			of := entries(n, g.Name, g.Type)
			if divides(n.def, g.Name) {
				return nil // shares are counted otherwise
			}
			c.free += sumOf(n.free.gres, of)
			for _, k := range of {
				c.all += int64(n.def.Gres[k].Count)
			}
			for k := range n.rel {
				if r := &n.rel[k]; !r.takes && !r.asleep {
					if has := sumOf(r.gres, of); has > 0 {
						rel, gives = append(rel, r), append(gives, has)
					}
				}
			}
		}
		if c.free >= c.need {
			continue
		}
		c.text = fmt.Sprintf("waits for %s: %d in all, %d of %d free", c.what, c.need, c.free, c.all)
		x.holders(c, rel, gives, c.need-c.free)
		return c
	}
	return nil
}

// onEach looks at what each node of the job must have.
func (x *explainer) onEach(sh *shape, nodes []*node, least []nodeNeed, want int, last *node, at model.Time) *scarce {
	where := "on one node"
	if want > 1 {
		where = fmt.Sprintf("on each of %d nodes", want)
	}
	enough := func(c *scarce, has func(n *node) int64) bool {
		c.free = 0
		good := 0
		for _, n := range nodes {
			v := has(n)
			c.free = max(c.free, v)
			if v >= c.need {
				good++
			}
		}
		return good >= want
	}
	var found []*scarce
	said := func(c *scarce, has func(n *node) int64, gives func(r *release) int64) {
		if want > 1 {
			good := 0
			for _, n := range nodes {
				if has(n) >= c.need {
					good++
				}
			}
			c.text = fmt.Sprintf("waits for %s: %s %s, %d of them have that free", c.what, c.amount(c.need), where, good)
		} else {
			c.text = fmt.Sprintf("waits for %s: %s %s, the most free on one is %s", c.what, c.amount(c.need), where,
				c.amount(max(0, c.free)))
		}
		found = append(found, c)
		if last == nil || at <= x.now || at == forever {
			return
		}
		var rel []*release
		var list []int64
		for k := range last.rel {
			if r := &last.rel[k]; r.at <= at && !r.takes && !r.asleep && gives(r) > 0 {
				rel, list = append(rel, r), append(list, gives(r))
			}
		}
		bare := c.text
		x.holders(c, rel, list, c.need-has(last))
		if c.until != at { // something else keeps the node for longer
			c.text, c.jobs = bare, nil
		}
	}
	var nd *nodeNeed // of the last node's class, or of any class that can hold the job
	for _, n := range nodes {
		if k := &least[n.class.at]; !k.never && (nd == nil || n == last) {
			nd = k
		}
	}
	if nd == nil || nd.idle || nd.place > 0 {
		return nil
	}
	if nd.lot == nil {
		for i := range sh.rq.Gres {
			g := &sh.rq.Gres[i]
			per := int64(g.Count)
			switch {
			case g.Milli > 0 || g.Count == 0 || g.Per == model.PerJob && !sh.single:
				continue
			case g.Per == model.PerTask && sh.single:
				per *= int64(sh.tasks)
			case g.Per == model.PerTask:
				per *= int64(sh.rq.PerNode)
			}
			c := &scarce{what: g.Name, need: per}
			if g.Type != "" {
				c.what = g.Type
			}
			has := func(n *node) int64 { return sumOf(n.free.gres, entries(n, g.Name, g.Type)) }
			if !enough(c, has) {
				said(c, has, func(r *release) int64 { return sumOf(r.gres, entries(last, g.Name, g.Type)) })
			}
		}
	}
	c := &scarce{what: "CPUs", need: int64(nd.cpus)}
	if has := func(n *node) int64 { return int64(n.free.cpus) }; !enough(c, has) {
		said(c, has, func(r *release) int64 { return int64(r.cpus) })
	}
	c = &scarce{what: "memory", need: nd.mem, memory: true}
	if has := func(n *node) int64 { return n.free.mem }; nd.mem > 0 && !enough(c, has) {
		said(c, has, func(r *release) int64 { return r.mem })
	}
	for _, c := range found { // the resource that is there last
		if c.until == at {
			return c
		}
	}
	if len(found) > 0 {
		return found[0]
	}
	return nil
}

// holders adds the jobs whose ends free what is missing, in the order in which they end; rel need not be sorted.
func (x *explainer) holders(c *scarce, rel []*release, gives []int64, missing int64) {
	order := make([]int, len(rel))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(rel[a].at, rel[b].at), cmp.Compare(rel[a].id, rel[b].id))
	})
	type holder struct {
		n  int64
		at model.Time
	}
	sum := map[model.JobID]*holder{} // a job may hold some on several nodes
	left := missing
	for _, i := range order {
		if left <= 0 {
			break
		}
		h := sum[rel[i].id]
		if h == nil {
			h = &holder{at: rel[i].at}
			sum[rel[i].id] = h
			c.jobs = append(c.jobs, rel[i].id)
		}
		h.n += gives[i]
		left -= gives[i]
		c.until = rel[i].at
	}
	if left > 0 {
		c.until = 0
	}
	for k, id := range c.jobs {
		if k == maxNamed {
			c.text += fmt.Sprintf(", and %d more jobs", len(c.jobs)-k)
			break
		}
		sep := "; "
		if k > 0 {
			sep = ", "
		}
		until := " without a time limit"
		if h := sum[id]; h.at < x.now.Add(unlimitedS/2) {
			until = " until " + at(h.at)
		}
		c.text += fmt.Sprintf("%s%s has %s%s", sep, x.job(id), c.amount(sum[id].n), until)
	}
	c.jobs = c.jobs[:min(len(c.jobs), maxNamed)]
}
