package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/sched/headroom"
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

// Headroom (ReservePercent): a job that it binds starts only while enough stays for those that may have it. It waits
// as for a limit, and blocks no other job. Behind it, other jobs that are bound overtake it only if that does not delay
// it, as EASY does it with nodes.

// shortage is what the first job of a lane that waits for the headroom leaves to those behind it.
type shortage struct {
	at    model.Time // when there is room for it
	extra int64      // what is left beside it then
}

// keeps gives what a lane keeps back, counted once a pass; nil: nothing.
func (p *Planner) keeps(l *lane) *headroom.Room {
	if l.part.Headroom <= 0 {
		return nil
	}
	if l.roomAt != p.pass {
		l.roomAt = p.pass
		l.room = headroom.Of(p.v, l.part)
		for i := range p.plan.Starts {
			p.takeFirm(l, &p.plan.Starts[i])
		}
	}
	return l.room
}

// lenders knows which jobs can be ended at once.
func (p *Planner) lenders() *headroom.Lender {
	if p.lenderAt != p.pass {
		p.lender, p.lenderAt = headroom.Lenders(p.v), p.pass
	}
	return p.lender
}

// takeFirm counts a start of this plan in a lane's headroom.
func (p *Planner) takeFirm(l *lane, st *model.Start) {
	if j := p.v.Job(st.Job); l.roomAt == p.pass && j != nil && !p.lenders().Lends(j, st.Partition) {
		l.room.Take(st.Job, st.Alloc)
	}
}

// firmly counts the plan's last start in all lanes that keep something back.
func (p *Planner) firmly() {
	for _, l := range p.lanes {
		if l.part.Headroom > 0 {
			p.takeFirm(l, &p.plan.Starts[len(p.plan.Starts)-1])
		}
	}
}

// bound gives a lane's headroom if a job may not have it; nil if it may, or there is none.
func (p *Planner) bound(l *lane, it *item) *headroom.Room {
	if l.part.Headroom <= 0 || !p.lenders().Binds(it.e.j, l.part.Name) {
		return nil
	}
	return p.keeps(l)
}

// leftIn gives what is left of a lane beside its headroom and the claims of other jobs that it binds.
func (p *Planner) leftIn(l *lane, it *item, r *headroom.Room) int64 {
	left := r.Left()
	for _, e := range p.claimers {
		if e != it.e && e.claim != nil && e.claim.alloc != nil && p.lenders().Binds(e.j, e.claim.lane.part.Name) {
			left -= r.Needs(e.claim.alloc)
		}
	}
	return left
}

// keptFrom reports whether a job waits for a lane's headroom with what it takes.
func (p *Planner) keptFrom(l *lane, it *item, r *headroom.Room, need int64) bool {
	if need <= 0 {
		return false
	}
	if left := p.leftIn(l, it, r); need <= left {
		w := l.waits
		return w != nil && need > w.extra && p.after(p.now, it.leastS()) > w.at
	} else if p.isOwed(l, it) {
		return false
	}
	if l.waits == nil && need <= r.Total-r.Keep {
		l.waits = p.shortageOf(l, it, r, need)
	}
	return true
}

// isOwed reports whether the job's QOS or account is below its guarantee, which comes before the headroom.
func (p *Planner) isOwed(l *lane, it *item) bool {
	return len(p.ownersOf(it.e.j.Spec, l.part.Name)) > 0 && p.robberOf(l, it).owed
}

// shortageOf finds out when there is room for a job; nil if nobody knows.
func (p *Planner) shortageOf(l *lane, it *item, r *headroom.Room, need int64) *shortage {
	if !p.backfills() {
		return &shortage{at: p.now}
	}
	at, left := p.roomBeside(r, p.leftIn(l, it, r), need)
	if at == forever {
		return nil
	}
	return &shortage{at, left - need}
}

// roomBeside gives the moment from which need units are left beside the headroom, and how many are left then; forever
// if jobs without a time limit have them. left is how many are now.
func (p *Planner) roomBeside(r *headroom.Room, left, need int64) (model.Time, int64) {
	type end struct {
		at    model.Time
		units int64
	}
	var ends []end
	for _, h := range r.Held {
		e := end{forever, h.Units}
		if k := slices.IndexFunc(p.plan.Starts, func(s model.Start) bool { return s.Job == h.Job }); k >= 0 {
			e.at = p.after(p.now, p.plan.Starts[k].LimitS)
		} else if j := p.v.Job(h.Job); j != nil && j.Run != nil {
			e.at = p.endOf(j)
		}
		ends = append(ends, e)
	}
	slices.SortFunc(ends, func(a, b end) int { return cmp.Compare(a.at, b.at) })
	at := p.now
	for _, e := range ends {
		if left >= need {
			break
		}
		at, left = e.at, left+e.units
	}
	if left < need || at >= p.now.Add(unlimitedS/2) {
		return forever, left
	}
	return at, left
}

// keptBack reports whether a job waits for a lane's headroom, by the least that it takes.
func (p *Planner) keptBack(l *lane, it *item) bool {
	r := p.bound(l, it)
	return r != nil && p.keptFrom(l, it, r, p.firmNeed(r, it))
}

// firmNeed gives the least that a job takes of what counts in a headroom.
func (p *Planner) firmNeed(r *headroom.Room, it *item) int64 {
	all, _ := it.sh.rq.Least()
	return amountOf(all, r.TRES())
}

// admitsBeside is keptBack for what a job is to get.
func (p *Planner) admitsBeside(l *lane, it *item, alloc *model.Alloc) bool {
	r := p.bound(l, it)
	if r == nil {
		return true
	}
	need := r.Needs(alloc)
	if p.keptFrom(l, it, r, need) {
		p.over = model.ReasonHeadroom
		return false
	}
	if w := l.waits; w != nil && p.after(p.now, it.leastS()) > w.at {
		w.extra -= need
	}
	return true
}

// kept explains that a job waits for a headroom, and gives the moment from which it need not; 0: nobody knows.
func (x *explainer) kept(s *spot) (text string, from model.Time) {
	p, part := x.p, s.l.part
	r := p.bound(s.l, &s.it)
	if r == nil {
		return "", 0
	}
	need, left := p.firmNeed(r, &s.it), p.leftIn(s.l, &s.it, r)
	if need <= 0 || need <= left || p.isOwed(s.l, &s.it) {
		return "", 0
	}
	unit := map[bool]string{true: "GPUs", false: "CPUs"}[r.Unit == model.GPUName]
	text = fmt.Sprintf("partition %s keeps %d of %d %s back (ReservePercent) for jobs that can be ended at once and for "+
		"QOS with the flag Headroom; %d of the other %d are in use or promised, asks for %d", part.Name, r.Keep, r.Total,
		unit, r.Total-r.Keep-left, r.Total-r.Keep, need)
	if need > r.Total-r.Keep {
		return text + ": it can never start as it is", forever
	}
	when, _ := p.roomBeside(r, left, need)
	if when == forever {
		return text, forever
	}
	return text + "; room by " + at(when), when
}
