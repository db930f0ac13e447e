package sched

import (
	"cmp"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Preemption: a job that does not fit may end others: jobs of a QOS that its own QOS preempts (preempt/qos), jobs in a
// partition of a lower tier (preempt/partition_prio), or jobs that use what its QOS was guaranteed. See
// https://slurm.schedmd.com/preempt.html and qos.html. victims.go chooses the victims; claims.go keeps what they free.

// maxPreempts bounds the jobs for which one pass looks for victims. After a pass that has found some, another one
// follows.
const maxPreempts = 16

// modeOff and the others are values of PreemptMode.
const (
	modeOff     = "OFF"
	modeCancel  = "CANCEL"
	modeSuspend = "SUSPEND"
)

// robber is a job that looks for victims.
type robber struct {
	p    *Planner
	it   *item
	l    *lane
	qos  *model.QOS // nil: none
	owed bool       // its QOS is below its guarantee
	left map[string]map[string]int64

	asleep map[model.JobID]bool // of the jobs looked at, those that it would suspend
}

// mayPreempt reports whether a job may preempt at all.
func (p *Planner) mayPreempt(j *model.Job, l *lane) bool {
	pr := &p.cfg.Params.Preempt
	switch {
	case pr.ByPartition:
		return l.part.PriorityTier > p.lowest
	case pr.ByQOS:
		q := p.v.QOS(j.Spec.QOS)
		return q != nil && (len(q.Preempt) > 0 || len(q.GuaranteedTRES) > 0 || pr.Within)
	}
	return false
}

// preempt finds victims for a job that does not fit, if it may preempt, and gives it a claim to what they free.
func (p *Planner) preempt(l *lane, it *item) bool {
	if !it.robs || p.tries >= maxPreempts || it.e.claim != nil || p.waitsForNodes(l, it) != "" {
		return false
	}
	key := vainKey{it.sh, it.e.j.Spec.QOS, l, 0}
	if p.windowed {
		key.leastS = it.leastS()
	}
	if p.vain[key] {
		return false
	}
	p.tries++
	r := p.robberOf(l, it)
	alloc, list := r.find()
	if len(list) == 0 {
		p.vain[key] = true
		return false
	}
	if p.lim != nil && it.limits != nil {
		all, node := allocTRES(p.v, alloc, it.sh.rq.Certain(), l.part.Name)
		if why := p.lim.refuses(it.limits, p.lim.vector(all), p.lim.vector(node), it.limitS); why != model.ReasonNone {
			p.because(it.e, why, "")
			return true
		}
	}
	if !p.hold(it.e, l, alloc) {
		return false
	}
	for _, v := range list {
		p.victims[v.j.ID] = leaves
		if v.mode == modeSuspend {
			p.victims[v.j.ID] = sleeps
		}
		p.plan.Preempt = append(p.plan.Preempt,
			model.Preemption{Job: v.j.ID, For: it.e.j.ID, Cancel: v.mode == modeCancel || v.mode != modeSuspend &&
				!v.j.Spec.Requeue, GraceS: v.grace, Sleep: v.mode == modeSuspend})
	}
	p.plan.Claims = append(p.plan.Claims,
		model.ClaimSet{Job: it.e.j.ID, Claim: &model.Claim{Partition: l.part.Name, Alloc: alloc}})
	p.because(it.e, model.ReasonResources, "")
	return true
}

func (p *Planner) robberOf(l *lane, it *item) *robber {
	r := &robber{p: p, it: it, l: l, asleep: map[model.JobID]bool{}, qos: p.v.QOS(it.e.j.Spec.QOS)}
	r.owed = r.belowGuarantee()
	return r
}

// vainKey is equal for jobs that can have the same victims.
type vainKey struct {
	sh     *shape
	qos    string
	l      *lane
	leastS int64 // with reservations: a job that ends before they begin may have more room
}

// victim is a job that may be ended or suspended for another.
type victim struct {
	j     *model.Job
	class int64 // class of its QOS or partition: lower ones first
	prio  uint32
	mode  string
	grace int64
	h     hold // what it holds on the node that is looked at
}

// worse orders victims: the lowest class first, then the lowest priority, then the youngest.
func worse(a, b *victim) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.prio, b.prio), cmp.Compare(b.j.Run.Start, a.j.Run.Start),
		cmp.Compare(b.j.ID, a.j.ID))
}

// on gives the possible victims on a node, in the order of worse.
func (r *robber) on(n *node) []*victim {
	var out []*victim
	for _, id := range n.rec.Jobs {
		j := r.p.v.Job(id)
		if j == nil || j.Run == nil || j.State == model.Completing || r.p.victims[id] != stays {
			continue
		}
		if v := r.victim(j); v != nil {
			r.asleep[id] = v.mode == modeSuspend
			for i := range j.Run.Alloc.Nodes {
				if na := &j.Run.Alloc.Nodes[i]; na.Node == n.def.Name {
					v.h = n.holdOf(na, j.Run.Partition, j.Spec, r.p.stock.shareAt(j.Run.Partition, j.Run.Share))
				}
			}
			out = append(out, v)
		}
	}
	slices.SortFunc(out, worse)
	return out
}

// victim says how a job would be ended or suspended for this one; nil if it may not be.
func (r *robber) victim(j *model.Job) *victim {
	pr := &r.p.cfg.Params.Preempt
	v := &victim{j: j, prio: j.Run.Priority, mode: pr.Mode}
	if v.prio == 0 {
		v.prio = j.Priority
	}
	exempt := pr.ExemptS
	if pr.MinExempt > 0 && v.prio >= pr.MinExempt || j.Spec.More != nil && j.Spec.More.NoPreempt {
		return nil
	}
	if pr.ByPartition {
		part := r.p.v.Partition(j.Run.Partition)
		if part == nil || part.PriorityTier >= r.l.part.PriorityTier {
			return nil
		}
		v.class, v.grace = int64(part.PriorityTier), part.GraceTimeS
		if part.PreemptMode != "" {
			v.mode = part.PreemptMode
		}
	} else {
		q := r.p.v.QOS(j.Spec.QOS)
		if q == nil {
			q = &model.QOS{}
		}
		if !r.preempts(j, q) && !(r.owed && r.lent(q)) {
			return nil
		}
		v.class, v.grace = int64(q.Priority), q.GraceTimeS
		if q.PreemptMode != "" {
			v.mode = q.PreemptMode
		}
		if n, set := q.PreemptExemptTimeS.Value(); set {
			exempt = n
		}
	}
	// it has no CPUs, or no processes yet
	if v.mode == modeSuspend && j.State != model.Running && j.Run.Sleep != model.SleepsInTurn {
		return nil
	}
	if pr.Youngest {
		v.class, v.prio = 0, 0
	}
	if v.mode == "" || v.mode == modeOff || j.Run.Start.Add(exempt) > r.p.now {
		return nil
	}
	return v
}

// preempts reports whether this job's QOS preempts jobs of another QOS.
func (r *robber) preempts(j *model.Job, q *model.QOS) bool {
	if r.qos == nil {
		return false
	}
	if r.p.cfg.Params.Preempt.Within && q.Name == r.qos.Name {
		prio := j.Run.Priority
		if prio == 0 {
			prio = j.Priority
		}
		return uint64(prio) < r.it.prio
	}
	return q.Name != "" && slices.Contains(r.qos.Preempt, q.Name)
}

// belowGuarantee reports whether the job's QOS stays below its guarantee of the resources that the job asks for,
// counting the job itself and what other jobs of the QOS have claimed.
func (r *robber) belowGuarantee() bool {
	if r.qos == nil || len(r.qos.GuaranteedTRES) == 0 || !r.p.v.Counting() {
		return false
	}
	need, _ := r.it.sh.rq.Least()
	have := r.p.heldBy(r.qos.Name, true)
	owed := false
	for _, g := range r.qos.GuaranteedTRES {
		n := amountOf(need, g.TRES)
		if n == 0 {
			continue
		}
		if have[strings.ToLower(g.TRES)]+n > g.Of(r.p.totalOf(g.TRES)) {
			return false
		}
		owed = true
	}
	return owed
}

// lent reports whether jobs of a QOS use more than its guarantee of a resource that is guaranteed to this job's QOS.
func (r *robber) lent(q *model.QOS) bool {
	if q.Name == r.qos.Name || slices.Contains(q.Preempt, r.qos.Name) {
		return false
	}
	have := r.spare(q)
	for _, g := range r.qos.GuaranteedTRES {
		if have[strings.ToLower(g.TRES)] > 0 {
			return true
		}
	}
	return false
}

// spare gives how much a QOS uses above its guarantee, by resource. Jobs that are being ended don't count.
func (r *robber) spare(q *model.QOS) map[string]int64 {
	if r.left == nil {
		r.left = map[string]map[string]int64{}
	}
	have, known := r.left[q.Name]
	if !known {
		have = r.p.heldBy(q.Name, false)
		for _, g := range q.GuaranteedTRES {
			have[strings.ToLower(g.TRES)] -= g.Of(r.p.totalOf(g.TRES))
		}
		r.left[q.Name] = have
	}
	return have
}

// within reports whether a set of victims leaves every QOS its guarantee, if they are ended for another QOS's
// guarantee.
func (r *robber) within(list []*victim) bool {
	if !r.owed {
		return true
	}
	taken := map[string]map[string]int64{}
	for _, v := range list {
		q := r.p.v.QOS(v.j.Spec.QOS)
		if q == nil || r.preempts(v.j, q) {
			continue
		}
		have := r.spare(q)
		t := taken[q.Name]
		if t == nil {
			t = map[string]int64{}
			taken[q.Name] = t
		}
		for _, c := range v.j.Run.Alloc.TRES() {
			t[strings.ToLower(c.TRES)] += c.Count
		}
		for _, g := range q.GuaranteedTRES {
			if t[strings.ToLower(g.TRES)] > max(0, have[strings.ToLower(g.TRES)]) {
				return false
			}
		}
	}
	return true
}

// heldBy counts what jobs of a QOS hold, with this plan's starts and without jobs that are being ended; with claims set
// also what its jobs have claimed.
func (p *Planner) heldBy(qos string, claims bool) map[string]int64 {
	out := map[string]int64{}
	if t := p.v.Tally(state.OfQOS, qos); t != nil {
		for i := range t.TRES {
			out[strings.ToLower(t.TRES[i].TRES)] += t.TRES[i].Count
		}
	}
	add := func(a *model.Alloc, sign int64) {
		for _, c := range a.TRES() {
			out[strings.ToLower(c.TRES)] += sign * c.Count
		}
	}
	of := func(id model.JobID) bool {
		j := p.v.Job(id)
		return j != nil && j.Spec.QOS == qos
	}
	p.v.Moving(func(j *model.Job) bool {
		if j.State == model.Completing && j.Spec.QOS == qos {
			add(j.Run.Alloc, -1)
		}
		return true
	})
	for id, f := range p.victims {
		if f == leaves && of(id) {
			add(p.v.Job(id).Run.Alloc, -1)
		}
	}
	for i := range p.plan.Starts {
		if of(p.plan.Starts[i].Job) {
			add(p.plan.Starts[i].Alloc, 1)
		}
	}
	if claims {
		for id := range p.claimed {
			if j := p.v.Job(id); of(id) && j.Claim != nil {
				add(j.Claim.Alloc, 1)
			}
		}
		for i := range p.plan.Claims {
			if c := p.plan.Claims[i]; c.Claim != nil && of(c.Job) {
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
