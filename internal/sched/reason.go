package sched

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Every job that is looked at and does not start gets a reason. A job that waits in several partitions gets the most
// telling one. A plan contains only reasons that are new, so that a queue at rest gives an empty plan.

// reason is why a job waits, as one pass found it.
type reason struct {
	model.Reason
	why string
}

// weight orders the reasons of one job in different partitions: a partition where it is next in line beats one where it
// may not run.
func weight(r model.Reason) int {
	switch r {
	case model.ReasonJobArrayTaskLimit:
		return 5
	case model.ReasonResources, model.ReasonLicenses:
		return 4
	case model.ReasonPriority:
		return 3
	case model.ReasonReqNodeNotAvail:
		return 2
	case model.ReasonPartitionDown, model.ReasonPartitionInactive, model.ReasonBadConstraints:
		return 0
	}
	return 1
}

func (p *Planner) because(e *entry, r model.Reason, why string) {
	e.at(p)
	if !e.said {
		e.said = true
		e.why = reason{r, why}
		p.said = append(p.said, e)
	} else if weight(r) > weight(e.why.Reason) {
		e.why = reason{r, why}
	}
}

// maxRefused is how many jobs of a partition that starts no jobs get their reason in one pass.
const maxRefused = 256

// refuseAll gives the jobs at the head of a queue that starts no jobs their reason.
func (p *Planner) refuseAll(l *lane) {
	n := 0
	for i := l.first; i < len(l.items) && n < maxRefused; i++ {
		if e := l.items[i].e; e != nil {
			p.because(e, l.refuse, l.why)
			n++
		}
	}
}

// Texts that users read after a reason.
const (
	nodesAway   = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
	notTogether = "there is no moment at which all components of the job fit together"
	noNodes     = "no nodes of the partition, even if all of them were up and empty, hold the job"
)

// blocked deals with a job, or an array's task, that does not fit. It gets a reservation if the policy's depth allows
// another one. With a depth of 0 it blocks its lane. A job that would not fit even if all nodes that are up were empty
// waits for nodes to come back, and does not block the jobs behind it. Nor does one that waits for a license or the end
// of an advance reservation: reservations of such jobs are counted apart, so that they don't use up the depth.
func (p *Planner) blocked(l *lane, it *item, task int32) {
	if p.over != model.ReasonNone {
		p.limited(l, it.e, p.over)
		return
	}
	waits, never := p.unlicensed(it)
	switch {
	case p.beyond(it.sh):
		p.because(it.e, model.ReasonReservation, tooLittle)
		return
	case never:
		p.because(it.e, model.ReasonLicenses, "more licenses than the cluster has")
		return
	case waits && !p.backfills(): // more room would not help it, so it blocks no other job
		p.because(it.e, model.ReasonLicenses, "")
		return
	}
	if it.calls && !waits && p.anySpare() && p.recall(l, it) {
		return
	}
	if it.robs && !waits && p.preemptIn(l, it) {
		return
	}
	closed := p.closed(it)
	apart, reserved := waits || closed != "", &l.reserved
	if apart { // it keeps no jobs waiting, and takes no reservation from those that wait for room
		reserved = &l.apart
	}
	mine := p.another(*reserved)
	if mine && p.backfills() && !p.mayReserve(l, it) {
		mine = false
	}
	if p.backfills() && !mine && !apart {
		p.behind(l, it.e)
		return
	}
	if it.e.j.Het != nil && l.away < p.policy.Depth {
		if r, why := p.partAway(l, it); why != "" {
			l.away++
			p.because(it.e, r, why)
			return
		}
	}
	if l.away < p.policy.Depth {
		if why := p.waitsForNodes(l, it); why != "" {
			l.away++
			p.because(it.e, it.sh.none, why)
			return
		}
	}
	switch {
	case p.backfills() && !mine:
	case it.e.j.Het != nil:
		if !p.reserveSet(l, it) {
			p.because(it.e, model.ReasonResources, notTogether)
			return
		}
		if p.backfills() {
			*reserved++
		}
	case p.backfills() && p.reserve(l, it):
		*reserved++
		if task != model.NoTask {
			p.reserveTasks(l, it, task, reserved)
		}
	}
	if apart {
		p.apartBecause(l, it.e, closed)
		return
	}
	if l.block != nil {
		p.behind(l, it.e)
		return
	}
	l.block = it.e
	p.because(it.e, model.ReasonResources, "")
	if !p.backfills() && p.tiers {
		p.keep(l)
	}
}

// another reports whether the policy's depth allows one more reservation beside n.
func (p *Planner) another(n int) bool {
	return p.policy.Backfill.Reserve < 0 || n < p.policy.Backfill.Reserve
}

// apartBecause gives its reason to a job that waits for no room: for the end of others' advance reservations (closed
// says which), or for licenses.
func (p *Planner) apartBecause(l *lane, e *entry, closed string) {
	if l.shut++; l.shut > p.policy.Depth {
		return
	}
	if closed != "" {
		p.because(e, model.ReasonReqNodeNotAvail, closed)
	} else {
		p.because(e, model.ReasonLicenses, "")
	}
}

// limited deals with a job that a limit holds. It blocks no other job, unless assoc_limit_stop is set: then the jobs
// behind it wait too, so that they don't use up again and again what it waits for.
func (p *Planner) limited(l *lane, e *entry, r model.Reason) {
	p.because(e, r, "")
	if p.cfg.Params.LimitStop {
		l.stopped = true
		if l.block == nil {
			l.block = e
		}
	}
}

// mayReserve reports whether a job is old and important enough for a reservation.
func (p *Planner) mayReserve(l *lane, it *item) bool {
	bf, prio := &p.policy.Backfill, it.prio
	if !p.numbered(l.part) && !it.rushes() {
		prio = uint64(it.e.j.Priority)
	}
	least := bf.MinPriority
	if it.limits != nil {
		if n, set := it.limits.prio.Value(); set {
			least = uint64(max(0, n))
		}
	}
	return !p.unreserved(it.e.j) && (bf.MinAgeS <= 0 || it.e.j.Eligible.Add(bf.MinAgeS) <= p.now) && prio >= least
}

// unreserved reports whether jobs of a job's QOS get no reservations (NoReserve).
func (p *Planner) unreserved(j *model.Job) bool {
	q := p.v.QOS(j.Spec.QOS)
	return q != nil && q.Flags&model.QOSNoReserve != 0
}

// reserveTasks gives reservations to the tasks of an array behind one that has a reservation, and counts them.
func (p *Planner) reserveTasks(l *lane, it *item, task int32, reserved *int) {
	it.e.j.Tasks.Each(func(t int32) bool {
		if t <= task {
			return true
		}
		if len(it.e.resv) >= p.policy.Backfill.MaxArrayResv || !p.another(*reserved) || !p.reserve(l, it) {
			return false
		}
		*reserved++
		return true
	})
}

// behind gives its reason to a job behind one that does not fit.
func (p *Planner) behind(l *lane, e *entry) {
	if l.block == nil {
		l.block = e
		p.because(e, model.ReasonResources, "")
		return
	}
	if l.said < p.policy.Depth {
		l.said++
		p.because(e, model.ReasonPriority, "")
	}
}

// waitsForNodes says why a request would not fit even if the lane's nodes that are up were empty; "": it would.
func (p *Planner) waitsForNodes(l *lane, it *item) string {
	if p.beyond(it.sh) {
		it.sh.none, it.sh.noneAt = model.ReasonReservation, 0
		return tooLittle
	}
	for sh := it.sh.next; sh != nil; sh = sh.next {
		if p.whyNot(sh) == model.ReasonNone {
			return ""
		}
	}
	sh := it.sh
	p.hopeless(sh) // a reservation may have other nodes now
	if sh.noneAt != p.usable || p.forgetful {
		sh.none, sh.noneAt = p.whyNot(sh), p.usable
	}
	switch sh.none {
	case model.ReasonNone:
		return ""
	case model.ReasonReqNodeNotAvail:
		return nodesAway
	}
	return noNodes
}

func (p *Planner) whyNot(sh *shape) model.Reason {
	if sh.relaxed != nil {
		sh = sh.relaxed
	}
	pl := sh.pool
	if sh.single {
		away := false
		for _, n := range pl.nodes {
			if sh.whole[n.class.at].never || !sh.named(n, true) {
				continue
			}
			if c := p.capacity(n.class); !sh.whole[n.class.at].in(c) {
				continue
			}
			if n.up() && (len(n.rec.Out) == 0 || sh.whole[n.class.at].in(p.inService(n))) {
				return model.ReasonNone
			}
			away = true
		}
		if !sh.spread && away {
			return model.ReasonReqNodeNotAvail
		}
		if !sh.spread {
			return model.ReasonBadConstraints
		}
	}
	if pl.emptyAt != p.usable {
		pl.emptyAt, pl.all, pl.empty = p.usable, pl.all[:0], pl.empty[:0]
		for _, n := range pl.nodes {
			if n.rec == nil {
				continue
			}
			r := p.stock.empty(n.def)
			pl.all = append(pl.all, r)
			if n.up() && len(n.rec.Out) > 0 {
				r = p.stock.empty(n.def)
				r.without(n.rec)
			}
			if n.up() {
				pl.empty = append(pl.empty, r)
			}
		}
		byWeight := func(a, b *room) int { return cmp.Compare(a.weight(), b.weight()) }
		slices.SortStableFunc(pl.all, byWeight)
		slices.SortStableFunc(pl.empty, byWeight)
	}
	if a, _, _ := lay(pl.empty, 0, &sh.rq); a != nil {
		return model.ReasonNone
	}
	if a, _, _ := lay(pl.all, 0, &sh.rq); a != nil {
		return model.ReasonReqNodeNotAvail
	}
	return model.ReasonBadConstraints
}

// capacity gives what an empty node of a class has.
func (p *Planner) capacity(c *nodeClass) *counts {
	if c.full == nil {
		full := p.stock.capacity(c.def)
		c.full = &full
	}
	return c.full
}

// inService gives what a node would have if it were empty, without units that are out of service.
func (p *Planner) inService(n *node) *counts {
	r := p.stock.empty(n.def)
	r.without(n.rec)
	c := countsOf(r, 0)
	return &c
}

// explain gives the reason Priority to the jobs behind the one that blocks a lane.
func (p *Planner) explain(l *lane) {
	if l.block == nil {
		return
	}
	for ; l.said < p.policy.Depth && l.next < len(l.items); l.next++ {
		if e := l.items[l.next].e; e != nil {
			p.because(e, model.ReasonPriority, "")
			l.said++
		}
	}
}

// say puts the reasons that are new into the plan.
func (p *Planner) say() {
	for _, e := range p.said {
		if e.last == allStarted || e.j.Reason == e.why.Reason && e.j.Why == e.why.why {
			continue
		}
		p.plan.Reasons = append(p.plan.Reasons, model.ReasonSet{Job: e.j.ID, Reason: e.why.Reason, Why: e.why.why})
	}
}

// CompleteWait: jobs are held back while others are COMPLETING, so that the nodes of large jobs come free together and
// don't go to small jobs one by one. Nothing starts until the last one has ended, or has been COMPLETING for that long;
// with reduce_completing_frag that holds only for partitions that share nodes with the partition of such a job, or with
// the job if its partition is gone. Predictions (--test-only, gqueue --start) don't count with it.

// settling says on what a pass waits.
type settling struct {
	until model.Time // the end of the longest wait; 0: none
	all   bool       // every partition waits
	parts map[string]bool
}

// Settling gives until when the jobs of a partition wait for others that are COMPLETING; 0: they don't.
func Settling(v *state.View, part string, now model.Time) model.Time {
	if s := settlingAt(v, now); s.holds(part) {
		return s.until
	}
	return 0
}

func settlingAt(v *state.View, now model.Time) (s settling) {
	params := &v.Config().Params
	if params.CompleteWaitS <= 0 {
		return s
	}
	s.all = !params.CompleteParts
	on, seen := map[string]bool{}, map[string]bool{} // nodes, and partitions whose nodes are among them
	v.Moving(func(j *model.Job) bool {
		if j.State != model.Completing {
			return true
		}
		since := j.Run.StopAt
		if j.Run.Over != nil {
			since = max(since, j.Run.Over.At)
		}
		if until := since.Add(params.CompleteWaitS); until > now {
			s.until = max(s.until, until)
			p := v.Partition(j.Run.Partition)
			switch {
			case s.all:
			case p == nil:
				for i := range j.Run.Alloc.Nodes {
					on[j.Run.Alloc.Nodes[i].Node] = true
				}
			case !seen[p.Name]:
				seen[p.Name] = true
				for _, name := range p.Nodes {
					on[name] = true
				}
			}
		}
		return true
	})
	if s.until == 0 || s.all {
		return s
	}
	s.parts = map[string]bool{}
	for _, p := range v.Config().Partitions {
		for _, name := range p.Nodes {
			if on[name] {
				s.parts[p.Name] = true
				break
			}
		}
	}
	return s
}

func (s *settling) holds(part string) bool { return s.until != 0 && (s.all || s.parts[part]) }

// settle marks the lanes whose jobs wait in this pass.
func (p *Planner) settle() {
	s := settlingAt(p.v, p.now)
	for _, l := range p.lanes {
		l.settles = s.holds(l.part.Name)
	}
	p.settled = s.until
}

// completing is what users read of all jobs in a lane that waits.
const completing = "jobs are COMPLETING, and CompleteWait keeps others from starting meanwhile"

// holdAll says of the jobs in a lane that waits why they do.
func (p *Planner) holdAll(l *lane) {
	n := 0
	for i := l.first; i < len(l.items) && n < maxRefused; i++ {
		if e := l.items[i].e; e != nil {
			p.because(e, model.ReasonResources, completing)
			n++
		}
	}
}
