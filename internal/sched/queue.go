package sched

import (
	"cmp"
	"math"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/sched/headroom"
	"gbatch/internal/state"
)

// lane is one partition's queue, best job first, kept from pass to pass.
type lane struct {
	at     int // index among the lanes
	part   *model.Partition
	pool   *pool
	shapes map[string]*shape // by ask.Key, see shapesOf
	refuse model.Reason      // the reason why it starts no jobs; ReasonNone: it starts jobs
	why    string

	room   *headroom.Room // what it keeps back, as of the pass roomAt
	roomAt uint64

	epoch uint64 // of its order, see PartOrder
	items []item
	first int    // all items before it are gone
	gone  int    // number of items that are gone
	fresh []item // not yet sorted into items

	// This round's.
	next     int
	block    *entry    // the first job that does not fit
	said     int       // jobs behind block that have their reason
	away     int       // jobs that wait for nodes
	reserved int       // jobs that hold a reservation, but for those in apart
	apart    int       // jobs that hold one and wait for a license or the end of an advance reservation
	shut     int       // jobs that wait for these, with or without a reservation
	tested   int       // jobs that were looked at behind block
	waits    *shortage // of the first job that waits for the headroom; nil: none does
	settles  bool      // its jobs wait for others that are COMPLETING
	stopped  bool      // a limit holds a job, and with assoc_limit_stop no job behind it is looked at
}

// item is a job's place in a lane.
type item struct {
	prio     uint64
	id       model.JobID
	e        *entry // nil: gone
	sh       *shape
	anywhere *shape // the shape to use after AvoidUntil (see keepOff); nil: sh avoids no nodes
	limitS   int64
	planS    int64 // planned time, seconds
	refuse   model.Reason
	limits   *limitSet // nil: none
	robs     bool      // it may preempt
	counted  bool      // in this pass, among those that Planner.within allows
	calls    bool      // it may ask elastic jobs for nodes
}

// entry is a job that may start.
type entry struct {
	j     *model.Job
	lanes []stand

	// This pass's.
	pass   uint64
	last   int32 // the last task that was started; allStarted: none is left
	begun  bool
	why    reason
	said   bool
	resv   []*booking
	resvAt *lane
	claim  *booking // of a job that waits for its victims
	claims bool     // components of its job have claims
}

// stand is a job's place in one lane.
type stand struct {
	l    *lane
	prio uint64
}

// allStarted in entry.last: the job has nothing more to start, here or through another of its partitions.
const allStarted = 1<<31 - 1

// at gives the entry, with its per-pass fields reset if this pass has not used it yet.
func (e *entry) at(p *Planner) *entry {
	if e.pass != p.pass {
		e.pass, e.last, e.begun, e.said, e.resv, e.resvAt, e.claim = p.pass, 0, false, false, nil, nil, nil
		e.claims = false
	}
	return e
}

func itemOrder(a, b *item) int {
	if a.prio != b.prio {
		return cmp.Compare(b.prio, a.prio)
	}
	return cmp.Compare(a.id, b.id)
}

// rushes reports whether a job goes before all others, those of higher tiers too.
func (it *item) rushes() bool { return it.prio == math.MaxUint64 && it.e != nil && it.e.j.Expediting() }

func byItemOrder(a, b item) int { return itemOrder(&a, &b) }

func (p *Planner) priority(j *model.Job, l *lane) uint64 {
	if j.Expediting() {
		return math.MaxUint64
	}
	if p.policy.Order != nil {
		return p.policy.Order.Priority(j, l.part)
	}
	return uint64(j.Priority)
}

// plannedS gives a job's planned time, seconds: its limit, or less if a prediction says so.
func (p *Planner) plannedS(j *model.Job, limitS int64) int64 {
	if p.policy.Predict == nil || p.windowed {
		return limitS
	}
	return max(1, min(limitS, p.policy.Predict.RuntimeS(j, limitS, p.now)))
}

// bootsS is how long the nodes of a job with --reboot may take before its time begins, seconds.
func (p *Planner) bootsS(j *model.Job) int64 {
	if !j.Spec.Extra().Reboot {
		return 0
	}
	return p.cfg.Params.Rules.RebootS
}

// follow processes a job that has changed.
func (p *Planner) follow(id model.JobID) {
	j := p.v.Job(id)
	if p.lic != nil {
		p.holdLicenses(id, j)
	}
	if j != nil && j.Run != nil {
		p.touch(j)
	}
	if p.elastic[id] != nil || j != nil && j.Spec.Elastic() != nil {
		p.noteElastic(id, j)
	}
	e, ready := p.jobs[id], state.IsReady(j)
	switch {
	case e == nil && !ready:
		return
	case e == nil:
		p.admit(j)
	case !ready:
		p.drop(e)
	case e.j.Spec == j.Spec && p.samePriority(e, j):
		e.j = j
		p.noteClaim(j)
		return // a reason or a throttle changed: the order of the queue does not depend on it
	default:
		p.drop(e)
		p.admit(j)
	}
	p.moved = true
}

func (p *Planner) samePriority(e *entry, j *model.Job) bool {
	if p.policy.Order == nil {
		return e.j.Priority == j.Priority && e.j.Expediting() == j.Expediting()
	}
	for _, s := range e.lanes {
		if p.priority(j, s.l) != s.prio {
			return false
		}
	}
	return true
}

// admit puts a job into the lanes of its partitions.
func (p *Planner) admit(j *model.Job) {
	e := &entry{j: j}
	p.apart = p.apart || keepsApart(j.Spec)
	if j.Follows() { // it is looked at with the first component
		p.jobs[j.ID] = e
		p.noteClaim(j)
		return
	}
	if j.Leads() {
		p.hets++
	}
	for i, name := range j.Spec.Partitions {
		l := p.laneOf(name)
		if slices.Contains(j.Spec.Partitions[:i], name) {
			continue
		}
		it := p.newItem(e, l)
		e.lanes = append(e.lanes, stand{l, it.prio})
		l.fresh = append(l.fresh, it)
	}
	p.jobs[j.ID] = e
	if j.Claim != nil || len(p.claimed) > 0 {
		p.noteClaim(j)
	}
}

func (p *Planner) newItem(e *entry, l *lane) item {
	it := item{prio: p.priority(e.j, l), id: e.j.ID, e: e}
	if l.refuse != model.ReasonNone {
		return it
	}
	p.shapeItem(&it, l)
	if p.lim != nil {
		it.limits = p.lim.limitsOf(e.j.Spec, l.part.Name)
	}
	part := l.part
	if p.lifts {
		part = Lifted(p.v, e.j.Spec.QOS, part)
	}
	it.limitS = it.limits.limitS(e.j.Spec, l.part, func() []int64 { return p.leastUseOf(&it, l.part.Name).all })
	it.planS = p.plannedS(e.j, it.limitS) + p.bootsS(e.j)
	it.robs = e.j.Het == nil && p.mayPreempt(e.j, l)
	it.calls = p.mayRecall(e.j, l)
	if most := part.MaxTimeS; most != model.NotSet && it.limitS > most && e.j.Spec.LeastS(it.limitS) <= most {
		it.limitS, it.planS = most, min(it.planS, most+p.bootsS(e.j)) // --time-min allows a shorter limit
	}
	if g := it.limits; g != nil && g.wallS > 0 && it.limitS > g.wallS && e.j.Spec.LeastS(it.limitS) <= g.wallS {
		it.limitS, it.planS = g.wallS, min(it.planS, g.wallS+p.bootsS(e.j))
	}
	if it.refuse = Barred(p.v, e.j.Spec, part); it.refuse != model.ReasonNone {
		return it
	}
	if part.MaxTimeS != model.NotSet && it.limitS > part.MaxTimeS {
		it.refuse = model.ReasonPartitionTimeLimit
	} else {
		switch it.sh.rq.outside(e.j.Spec, part) {
		case PartitionNodes:
			it.refuse = model.ReasonPartitionNodeLimit
		case OverMemLimit:
			it.refuse = model.ReasonMaxMemPerLimit
		default:
			if it.sh.rq.divided(p.stock) != CanRun {
				it.refuse = model.ReasonBadConstraints
			}
		}
	}
	return it
}

// find gives the index at which an item is or would be, and whether it is there.
func (l *lane) find(prio uint64, id model.JobID) (int, bool) {
	key := item{prio: prio, id: id}
	return slices.BinarySearchFunc(l.items, &key, func(a item, b *item) int { return itemOrder(&a, b) })
}

// drop takes a job out of its lanes.
func (p *Planner) drop(e *entry) {
	delete(p.jobs, e.j.ID)
	if e.j.Leads() {
		p.hets--
	}
	for _, s := range e.lanes {
		s.l.drop(e, s.prio)
	}
}

func (l *lane) drop(e *entry, prio uint64) {
	if i := slices.IndexFunc(l.fresh, func(it item) bool { return it.e == e }); i >= 0 {
		l.fresh = slices.Delete(l.fresh, i, i+1)
		return
	}
	k, found := l.find(prio, e.j.ID)
	if !found {
		return
	}
	l.items[k].e = nil
	l.gone++
	for l.first < len(l.items) && l.items[l.first].e == nil {
		l.first++
	}
}

// settle sorts fresh items in and removes items that are gone.
func (l *lane) settle() {
	if l.gone > 64 && l.gone > len(l.items)/2 {
		l.items = slices.DeleteFunc(l.items, func(it item) bool { return it.e == nil })
		l.first, l.gone = 0, 0
	}
	if len(l.fresh) == 0 {
		return
	}
	slices.SortFunc(l.fresh, byItemOrder)
	switch n := len(l.items); {
	case n == 0 || itemOrder(&l.items[n-1], &l.fresh[0]) < 0:
		l.items = append(l.items, l.fresh...)
	case len(l.fresh) <= 4:
		for _, it := range l.fresh {
			k, _ := l.find(it.prio, it.id)
			l.items = slices.Insert(l.items, k, it)
			l.first = min(l.first, k)
		}
	default:
		merged := make([]item, 0, len(l.items)+len(l.fresh))
		for _, it := range l.items {
			for len(l.fresh) > 0 && itemOrder(&l.fresh[0], &it) < 0 {
				merged = append(merged, l.fresh[0])
				l.fresh = l.fresh[1:]
			}
			if it.e != nil {
				merged = append(merged, it)
			}
		}
		l.items, l.first, l.gone = append(merged, l.fresh...), 0, 0
	}
	l.fresh = nil
}

// reorder asks for every priority again.
func (p *Planner) reorder(all bool) {
	for _, l := range p.lanes {
		e := p.partEpoch(l.part)
		if e == l.epoch && !all {
			continue
		}
		l.epoch, p.moved = e, true
		l.settle()
		l.items = slices.DeleteFunc(l.items, func(it item) bool { return it.e == nil })
		l.first, l.gone = 0, 0
		for i := range l.items {
			e := l.items[i].e
			l.items[i].prio = p.priority(e.j, l)
			for k := range e.lanes {
				if e.lanes[k].l == l {
					e.lanes[k].prio = l.items[i].prio
				}
			}
		}
		if !slices.IsSortedFunc(l.items, byItemOrder) {
			slices.SortFunc(l.items, byItemOrder)
		}
	}
}

// repredict asks for every planned time again.
func (p *Planner) repredict() {
	for _, l := range p.lanes {
		l.settle()
		for i := range l.items {
			if it := &l.items[i]; it.e != nil && it.sh != nil {
				it.planS = p.plannedS(it.e.j, it.limitS) + p.bootsS(it.e.j)
			}
		}
	}
}
