package sched

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"gbatch/internal/model"
)

// Preemption: a job that does not fit may end others: jobs of a QOS that its own QOS preempts (preempt/qos), jobs in a
// partition of a lower tier (preempt/partition_prio), or jobs that use what its QOS or account was guaranteed. See
// https://slurm.schedmd.com/preempt.html and qos.html. victims.go chooses the victims; claims.go keeps what they free.

// maxPreempts bounds the jobs for which one pass looks for victims, and those for which it looks for elastic jobs that
// give nodes back. After a pass that has found some, another one follows. Jobs that would not fit if all possible
// victims left don't count (robber.futile), else the same ones would fail in each pass, and nobody behind them could
// preempt. maxLooks bounds those.
const (
	maxPreempts = 16
	maxLooks    = 1024
)

// modeOff and the others are values of PreemptMode.
const (
	modeOff     = "OFF"
	modeCancel  = "CANCEL"
	modeSuspend = "SUSPEND"
	modeRequeue = "REQUEUE"
)

// robber is a job that looks for victims.
type robber struct {
	p    *Planner
	it   *item
	l    *lane
	qos  *model.QOS // nil: none
	owed bool       // by is below its guarantee
	by   owner      // who has the guarantee
	left map[owner]map[string]int64

	asleep map[model.JobID]bool // of the jobs looked at, those that it would suspend

	needless bool // the search has found that it needs none but those who leave already
}

// mayPreempt reports whether a job may preempt at all.
func (p *Planner) mayPreempt(j *model.Job, l *lane) bool {
	pr := &p.cfg.Params.Preempt
	switch {
	case p.mayEnd(j.Spec):
		return true
	case pr.ByPartition:
		return l.part.PriorityTier > p.lowest
	case pr.ByQOS:
		q := p.v.QOS(j.Spec.QOS)
		return q != nil && (len(q.Preempt) > 0 || len(q.GuaranteedTRES) > 0 || pr.Within) ||
			p.v.Pledged() && len(p.ownersOf(j.Spec, l.part.Name)) > 0
	}
	return false
}

// preemptIn does it for each of the reservations that a job asks for, in turn.
func (p *Planner) preemptIn(l *lane, it *item) bool {
	for sh := range it.sh.turns() {
		one := *it
		one.sh = sh
		if !it.sh.attracts(sh) && p.preempt(l, &one) {
			return true
		}
	}
	return false
}

// vainKeyOf gives what jobs have in common of which one's vain search is the others' too; byAccount says that accounts
// differ in whom they may end.
func (p *Planner) vainKeyOf(l *lane, it *item, byAccount bool) vainKey {
	key := vainKey{sh: it.sh, qos: it.e.j.Spec.QOS, l: l}
	if byAccount {
		key.account = it.e.j.Spec.Account
	}
	if p.cfg.Params.Preempt.Within && !p.numbered(l.part) {
		key.prio = int64(it.e.j.Priority)
	}
	return key
}

// preempt finds victims for a job that does not fit, if it may preempt, and gives it a claim to what they free.
func (p *Planner) preempt(l *lane, it *item) bool {
	if !it.robs || p.tries >= maxPreempts || it.e.claim != nil || p.waitsForNodes(l, it) != "" {
		return false
	}
	key := p.vainKeyOf(l, it, p.v.Pledged())
	if p.vain.has(key, it.leastS()) {
		return false
	}
	if p.looks++; p.looks > maxLooks {
		return false
	}
	r := p.robberOf(l, it)
	if r.futile() {
		p.vain.note(key, 0, false)
		return false
	}
	p.tries++
	alloc, list := r.find()
	if len(list) == 0 {
		p.vain.note(key, it.leastS(), r.needless)
		return false
	}
	if why := p.claimRefused(l, it, alloc); why != model.ReasonNone {
		p.because(it.e, why, "")
		return true
	}
	if !p.hold(it.e, l, alloc) {
		return false
	}
	clear(p.emptiest)
	for _, v := range list {
		p.victims[v.j.ID] = leaves
		if v.mode == modeSuspend {
			p.victims[v.j.ID] = sleeps
		}
		p.plan.Preempt = append(p.plan.Preempt,
			model.Preemption{Job: v.j.ID, For: it.e.j.ID, Cancel: v.mode == modeCancel || v.mode != modeSuspend &&
				!v.j.Spec.Requeue, GraceS: v.grace, Sleep: v.mode == modeSuspend, NoticeS: v.notice})
	}
	p.plan.Claims = append(p.plan.Claims,
		model.ClaimSet{Job: it.e.j.ID, Claim: &model.Claim{Partition: l.part.Name, Alloc: alloc}})
	p.because(it.e, model.ReasonResources, "")
	return true
}

// claimRefused gives the limit of its account or QOS that a job would break in an allocation that it would claim.
func (p *Planner) claimRefused(l *lane, it *item, alloc *model.Alloc) model.Reason {
	if p.lim == nil || it.limits == nil {
		return model.ReasonNone
	}
	all, node := allocTRES(p.v, alloc, it.sh.rq.Certain(), l.part.Name)
	return p.lim.refuses(it.limits, p.lim.vector(all), p.lim.vector(node), it.limitS, alloc)
}

func (p *Planner) robberOf(l *lane, it *item) *robber {
	r := &robber{p: p, it: it, l: l, asleep: map[model.JobID]bool{}, qos: p.v.QOS(it.e.j.Spec.QOS)}
	for _, r.by = range p.ownersOf(it.e.j.Spec, l.part.Name) {
		if r.owed = r.belowGuarantee(); r.owed {
			break
		}
	}
	return r
}

// vainKey is equal for jobs that can have the same victims.
type vainKey struct {
	sh      *shape
	qos     string
	account string // where accounts have guarantees
	l       *lane
	prio    int64 // with WITHIN, where places in the queue don't tell it: the higher one has more victims
}

// vain has what searches for victims, or for nodes to ask for, found out in vain, for jobs with the same key.
type vain map[vainKey]*vainTimes

// vainTimes bounds the planned times of jobs that need no search, in seconds. A shorter job has no less room, as it may
// end before reservations begin.
type vainTimes struct {
	fails int64 // from there on none has enough room
	needs int64 // up to there a job fits without anybody's leaving but those who leave already
}

// has reports whether a search for a job of this least planned time is known to be in vain.
func (v vain) has(key vainKey, leastS int64) bool {
	t := v[key]
	return t != nil && (leastS >= t.fails || leastS <= t.needs)
}

// note notes such a search; needless: because nobody else need leave.
func (v vain) note(key vainKey, leastS int64, needless bool) {
	t := v[key]
	if t == nil {
		t = &vainTimes{fails: math.MaxInt64, needs: -1}
		v[key] = t
	}
	if needless {
		t.needs = max(t.needs, leastS)
	} else {
		t.fails = min(t.fails, leastS)
	}
}

// victim is a job that may be ended or suspended for another.
type victim struct {
	j     *model.Job
	class int64 // class of its QOS or partition: lower ones first
	prio  uint32
	mode  string
	grace int64
	h     hold // what it holds on the node that is looked at

	notice int64 // it goes on for so long, seconds
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
		if j == nil || j.Run == nil || r.p.ending(id) || r.p.victims[id] != stays ||
			j.Run.LeavingAt(n.def.Name) >= 0 {
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
	if v := r.yields(j); v != nil {
		return v
	}
	pr := &r.p.cfg.Params.Preempt
	if !pr.ByPartition && !pr.ByQOS {
		return nil
	}
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
		if !r.preempts(j, q) && !(r.owed && r.lent(j, q)) {
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
	if v.mode == modeSuspend && r.it.sh.rq.Reboot { // a reboot would end it
		return nil
	}
	if pr.Youngest {
		v.class, v.prio = 0, 0
	}
	if v.mode == "" || v.mode == modeOff {
		return nil
	}
	if over := j.Run.Start.Add(exempt); v.mode != modeSuspend && over > r.p.now { // it loses nothing by being suspended
		r.p.alarm = soonerOf(r.p.alarm, over)
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
		return r.outranks(j)
	}
	return q.Name != "" && slices.Contains(r.qos.Preempt, q.Name)
}

// numbered reports whether places in a partition's queue are priorities, which can be compared with a number: where the
// default rules or a QueuePolicy order it, they are not, and the jobs' stored priorities are what users can set.
func (p *Planner) numbered(part *model.Partition) bool {
	return !p.cfg.Params.Priority.Default() && part.Order == model.OrderDefault
}

// outranks reports whether this job's priority is higher than that of another of its QOS. Where the default rules or a
// partition's QueuePolicy order the queue, a place in it is no number that a running job still has, and it changes as
// both wait in turn: there the stored priorities count, which are equal unless somebody has set one or used --nice.
func (r *robber) outranks(j *model.Job) bool {
	part := r.p.v.Partition(j.Run.Partition)
	if !r.p.numbered(r.l.part) || part != nil && !r.p.numbered(part) {
		return r.it.rushes() || j.Priority < r.it.e.j.Priority
	}
	return uint64(cmp.Or(j.Run.Priority, j.Priority)) < r.it.prio
}

// Jobs with --signal=R: may run on nodes of reservations with MaxStartDelay that they are not in, if the signal comes
// no more than that long before they leave. To such a job these windows are open (window.yields). A job of the
// reservation that finds no room ends them, whatever PreemptType says: each goes on for its notice, with its signal,
// and is then requeued or cancelled like any preempted job.

// classYields is the class of victims that give way: they go before all others.
const classYields = -1 << 61

// yields says how a job would give way to this one; nil: it doesn't.
func (r *robber) yields(j *model.Job) *victim {
	name := r.it.sh.rq.Reservation
	if name == "" || j.Run.Resv == name || !r.p.waiting[name] {
		return nil
	}
	resv := r.p.v.Reservation(name)
	if resv == nil || !j.Spec.YieldsTo(resv) || resv.At(r.p.now).Start > r.p.now {
		return nil
	}
	v := &victim{j: j, class: classYields, prio: j.Run.Priority, mode: r.p.cfg.Params.Preempt.Mode,
		notice: j.Spec.NoticeS()}
	if v.mode != modeCancel {
		v.mode = modeRequeue
	}
	return v
}

// mayEnd reports whether jobs may give way to a job, as its reservation has a MaxStartDelay.
func (p *Planner) mayEnd(sp *model.Spec) bool {
	return len(p.waiting) > 0 && slices.ContainsFunc(sp.ReservationNames(), func(name string) bool {
		return p.waiting[name]
	})
}

// letRob looks once more at which jobs may end others, if other reservations have a MaxStartDelay than before.
func (p *Planner) letRob(waiting map[string]bool) {
	if maps.Equal(waiting, p.waiting) {
		return
	}
	p.waiting = waiting
	for _, l := range p.lanes {
		l.settle()
		for i := range l.items {
			if it := &l.items[i]; it.e != nil && it.sh != nil && it.e.j.Het == nil {
				it.robs = p.mayPreempt(it.e.j, l)
			}
		}
	}
}
