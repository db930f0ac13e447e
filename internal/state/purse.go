package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
)

// Limits in minutes run out while jobs run. When GrpTRESMins or GrpWall of an association or QOS is used up, the jobs
// that use it end (state TIMEOUT, with the limit's own reason); MaxTRESMins ends a job by its own use. Every
// association or QOS with such a limit has a purse. Usage is linear in time apart from its decay, so the moment at
// which a purse is empty is computed whenever a job begins or ceases to spend from it, and nothing is checked before
// (https://slurm.schedmd.com/resource_limits.html).
//
// Effects depend on the facts alone, never on when a purse was last checked: a replica that was restored from a
// snapshot may check some purses once more than others, without effect.

// purse is a holder of limits in minutes.
type purse struct {
	key     string
	scope   Scope
	names   []string
	caps    []spendCap
	settled model.Time // limits that were used up by then have ended their jobs
	due     model.Time // when to check it; 0: never
	touched bool       // due must be computed again
}

// spendCap is how much of one resource jobs may use.
type spendCap struct {
	tres string // "": time that jobs run (GrpWall)
	most int64  // thousandths of a unit's second
}

// spendDue is a purse and the moment at which to check it.
type spendDue struct {
	at model.Time
	p  *purse
}

func spendLess(a, b spendDue) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.p.key < b.p.key
}

// minuteLimit is a limit in minutes that holds for a job.
type minuteLimit struct {
	key    string // its purse; "" if the limit is on each job by itself (MaxTRESMins)
	cap    spendCap
	reason model.Reason
	text   string // for people
}

// who has the names that decide which limits apply to a job.
type who struct{ account, user, qos, part string }

func whoOf(j *model.Job) who {
	return who{j.Spec.Account, j.Spec.User, j.Spec.QOS, j.Partition()}
}

// capOf gives a limit's cap under a LimitFactor; 0 means no factor.
func capOf(l *model.TRESLimit, factor int64) spendCap {
	n := l.Count
	if factor > 0 {
		n = model.Scale(n, factor, model.FactorOne)
	}
	return spendCap{l.TRES, model.Scale(n, 60_000, 1)}
}

// minuteLimits gives the limits in minutes that apply to a job. The first QOS that sets a limit counts, and replaces
// the associations' limit. Of the associations, all Grp limits apply, and the nearest MaxTRESMins.
func (f *facts) minuteLimits(w who) []minuteLimit {
	r := f.govern(w.account, w.user, w.qos, w.part)
	var out []minuteLimit
	closed := map[string]bool{}
	lines := func(name, key, whose string, list []model.TRESLimit, kind model.LimitKind, factor int64) {
		for i := range list {
			if l := &list[i]; !l.Percent && !closed[name+" "+l.TRES] {
				c := capOf(l, factor)
				out = append(out, minuteLimit{key, c, model.LimitReason(kind, l.TRES),
					fmt.Sprintf("%s has used up its %s=%s=%d", whose, name, l.TRES, c.most/60_000)})
			}
		}
	}
	shut := func(name string, list []model.TRESLimit) {
		for i := range list {
			closed[name+" "+list[i].TRES] = true
		}
	}
	wall := func(key, whose string, l model.Limit, why model.Reason) {
		if n, has := l.Value(); has && !closed["GrpWall"] {
			out = append(out, minuteLimit{key, spendCap{"", n * 1000}, why,
				fmt.Sprintf("%s has used up its GrpWall of %d minutes", whose, n/60)})
		}
	}
	factor := int64(0)
	for _, q := range r.QOS {
		if factor == 0 {
			factor = q.LimitFactor
		}
		key, whose := tallyKey(OfQOS, q.Name), "QOS "+q.Name
		wall(key, whose, q.GrpWallS, model.ReasonQOSGrpWallLimit)
		lines("GrpTRESMins", key, whose, q.GrpTRESMins, model.QOSGrpMins, 0)
		lines("MaxTRESMins", "", "the job, of QOS "+q.Name+",", q.MaxTRESMins, model.QOSJobMins, 0)
		closed["GrpWall"] = closed["GrpWall"] || q.GrpWallS != 0
		shut("GrpTRESMins", q.GrpTRESMins)
		shut("MaxTRESMins", q.MaxTRESMins)
	}
	for i, a := range r.Chain {
		key, whose := tallyKey(OfAccount, a.Account), "account "+a.Account
		switch {
		case a.OfPool(): // no Grp limits in minutes
			whose += " in partition " + a.Partition
		case i == 0 && r.User:
			key, whose = tallyKey(OfAssoc, a.Account, a.User, a.Partition), "user "+a.User+" in account "+a.Account
		}
		wall(key, whose, a.GrpWallS, model.ReasonAssocGrpWallLimit)
		lines("GrpTRESMins", key, whose, a.GrpTRESMins, model.AssocGrpMins, factor)
		lines("MaxTRESMins", "", "the job, of account "+a.Account+",", a.MaxTRESMins, model.AssocJobMins, factor)
		shut("MaxTRESMins", a.MaxTRESMins)
	}
	return out
}

// makePurses makes all purses anew, after a change of accounts, QOS or the configuration, or after Restore.
func (s *State) makePurses() {
	s.noPurses()
	if !s.cfg.Params.HoldLimits {
		return
	}
	factors := []int64{0}
	s.qos.Scan(func(_ string, q *model.QOS) bool {
		if q.LimitFactor > 0 && !slices.Contains(factors, q.LimitFactor) {
			factors = append(factors, q.LimitFactor)
		}
		s.capped = s.capped || len(q.MaxTRESMins) > 0
		s.makePurse(q.GrpTRESMins, q.GrpWallS, []int64{0}, OfQOS, q.Name)
		return true
	})
	s.assocs.Scan(func(_ string, a *model.Association) bool {
		s.capped = s.capped || len(a.MaxTRESMins) > 0
		if a.OfPool() {
			return true
		}
		if a.User == "" {
			s.makePurse(a.GrpTRESMins, a.GrpWallS, factors, OfAccount, a.Account)
		} else {
			s.makePurse(a.GrpTRESMins, a.GrpWallS, factors, OfAssoc, a.Account, a.User, a.Partition)
		}
		return true
	})
	if s.capped {
		s.jobs.Scan(func(id model.JobID, j *model.Job) bool {
			s.moveCap(id, j)
			return true
		})
	}
}

// noPurses removes all purses.
func (s *State) noPurses() {
	s.purses, s.spends, s.touched = new(btree.Map[string, *purse]), btree.NewBTreeGOptions(spendLess, noLocks), nil
	s.capped, s.capDue = false, btree.NewBTreeGOptions(dueLess, noLocks)
	s.capAt = new(btree.Map[model.JobID, model.Time])
}

// makePurse makes a purse if there is a limit.
func (s *State) makePurse(list []model.TRESLimit, wallS model.Limit, factors []int64, sc Scope, names ...string) {
	p := &purse{key: tallyKey(sc, names...), scope: sc, names: names}
	for i := range list {
		for _, f := range factors {
			p.caps = append(p.caps, capOf(&list[i], f))
		}
	}
	if n, has := wallS.Value(); has {
		p.caps = append(p.caps, spendCap{"", n * 1000})
	}
	if len(p.caps) > 0 {
		s.purses.Set(p.key, p)
		s.foresee(p)
	}
}

// spent gives the usage of a purse's holder, or nil.
func (f *facts) spent(sc Scope, names []string) *Usage {
	var u *Usage
	switch sc {
	case OfAssoc:
		u, _ = f.usage.Get(usageKey(names[0], names[1], names[2]))
	case OfAccount:
		u, _ = f.acctUse.Get(names[0])
	case OfQOS:
		u, _ = f.qosUse.Get(names[0])
	case OfQOSUser, OfQOSAccount: // these have no limits in minutes
	}
	return u
}

// empties gives the first moment at which a record of usage reaches a cap, or 0.
func (f *facts) empties(u *Usage, c spendCap) model.Time {
	if u == nil {
		u = &Usage{Stamp: 1}
	}
	var m Meter
	switch c.tres {
	case "":
		m = u.Wall
	case "billing":
		m = u.Bill
	default:
		for i := range u.TRES { // nodes spell types of units in any case, limits in lower case
			if strings.EqualFold(u.TRES[i].TRES, c.tres) {
				m.Value, m.Rate = addSat(m.Value, u.TRES[i].Meter.Value), addSat(m.Rate, u.TRES[i].Meter.Rate)
			}
		}
	}
	return f.fadeOf(u).Reaches(m, u.Stamp, c.most)
}

// spends reports whether jobs of a tally hold some of a resource; jobs that are being ended don't count.
func (t *Tally) spends(tres string) bool {
	if tres == "" || tres == "billing" {
		tres = "cpu" // every job has some
	}
	return slices.ContainsFunc(t.TRES, func(h Held) bool { return h.ending() && strings.EqualFold(h.TRES, tres) })
}

// foresee computes when to check a purse.
func (s *State) foresee(p *purse) {
	due := model.Time(0)
	if t, ok := s.tallies.Get(p.key); ok {
		u := s.spent(p.scope, p.names)
		for _, c := range p.caps {
			if !t.spends(c.tres) {
				continue
			}
			if at := s.empties(u, c); at > p.settled && (due == 0 || at < due) {
				due = at
			}
		}
	}
	if due == p.due {
		return
	}
	if p.due != 0 {
		s.spends.Delete(spendDue{p.due, p})
	}
	if p.due = due; due != 0 {
		s.spends.Set(spendDue{due, p})
	}
}

// rise records that a job begins to spend from a purse. If the purse is already empty, this job has to end too.
func (s *State) rise(sc Scope, names ...string) {
	if s.purses.Len() == 0 {
		return
	}
	if p, ok := s.purses.Get(tallyKey(sc, names...)); ok {
		p.settled = 0
		s.touch(p)
	}
}

// touch records that other jobs spend from a purse than before.
func (s *State) touch(p *purse) {
	if !p.touched {
		p.touched = true
		s.touched = append(s.touched, p)
	}
}

// foreseeTouched computes again when to check the purses that were touched.
func (s *State) foreseeTouched() {
	for _, p := range s.touched {
		p.touched = false
		s.foresee(p)
	}
	s.touched = s.touched[:0]
}

// endSpent ends the jobs whose minutes have run out.
func (s *State) endSpent(at model.Time) bool {
	changed := s.endCapped(at)
	var list []*purse
	due := map[string]bool{}
	s.spends.Scan(func(d spendDue) bool {
		if d.at <= at {
			list, due[d.p.key] = append(list, d.p), true
		}
		return d.at <= at
	})
	if len(list) == 0 {
		return changed
	}
	type end struct {
		id model.JobID
		by minuteLimit
	}
	var ends []end
	empty := map[who][]minuteLimit{} // reached limits of the purses that are due
	s.eachAwake(func(j *model.Job) {
		w := whoOf(j)
		reached, known := empty[w]
		if !known {
			for _, l := range s.minuteLimits(w) {
				if p, ok := s.purses.Get(l.key); ok && due[l.key] {
					if when := s.empties(s.spent(p.scope, p.names), l.cap); when != 0 && when <= at {
						reached = append(reached, l)
					}
				}
			}
			empty[w] = reached
		}
		for _, l := range reached {
			if l.cap.tres == "" || l.cap.tres == "billing" || holds(j, l.cap.tres) > 0 {
				ends = append(ends, end{j.ID, l})
				return
			}
		}
	})
	slices.SortFunc(ends, func(a, b end) int { return int(int64(a.id) - int64(b.id)) })
	for _, e := range ends {
		if j, ok := s.jobs.Get(e.id); ok {
			s.stopSpent(j, at, e.by)
			changed = true
		}
	}
	for _, p := range list {
		p.settled = at
		s.foresee(p)
	}
	return changed
}

// eachAwake calls f for every job that spends: it has resources, is not suspended and is not being ended.
func (s *State) eachAwake(f func(*model.Job)) {
	s.nodes.Scan(func(name string, n *model.Node) bool {
		for _, id := range n.Jobs {
			if j, ok := s.jobs.Get(id); ok && j.Run.Alloc.Nodes[0].Node == name && j.State != model.Completing &&
				!j.Run.Idles() {
				f(j)
			}
		}
		return true
	})
}

// holds gives how much of a resource a job has; the name may be in any case.
func holds(j *model.Job, tres string) int64 {
	n := int64(0)
	for _, c := range j.Run.Alloc.TRES() {
		if strings.EqualFold(c.TRES, tres) {
			n += c.Count
		}
	}
	return n
}

// stopSpent ends a job whose minutes have run out.
func (s *State) stopSpent(j *model.Job, at model.Time, l minuteLimit) {
	n, run := *j, *j.Run
	run.StopReason, run.StopWhy = l.reason, l.text
	n.Run = &run
	s.stopRunning(&n, at, model.StopTimeLimit, 0)
}

// capEnd gives the moment at which a running job reaches a MaxTRESMins, and that limit; 0: the clock ends it before.
func (s *State) capEnd(j *model.Job) (first model.Time, by minuteLimit) {
	if j == nil || j.Run == nil || j.State == model.Completing || !j.State.HasResources() || j.Run.Idles() {
		return 0, by
	}
	for _, l := range s.minuteLimits(whoOf(j)) {
		if l.key != "" {
			continue
		}
		n := holds(j, l.cap.tres)
		if l.cap.tres == "billing" {
			n = j.Run.Billing()
		}
		if n <= 0 {
			continue
		}
		left := max(0, l.cap.most-spentOf(j.Run, l.cap.tres))
		at := j.Run.SizedAt() + model.Time(min((left+n-1)/n, maxReach)) + model.Time(j.Run.SleepMS-j.Run.SizedSleepMS)
		if first == 0 || at < first {
			first, by = at, l
		}
	}
	if end := s.LatestEnd(j); end != 0 && end <= first {
		first = 0
	}
	return first, by
}

// lastCap reports whether by rules of before nothing but the time limit ends a job that reaches a MaxTRESMins: it had
// what its partition lets jobs run beyond that (OverTimeLimit) whatever its account's limits.
func (s *State) lastCap(j *model.Job, end model.Time) bool {
	limit := j.Run.Deadline()
	return s.now.rules < rulesWeighed && limit != 0 && limit <= end
}

// spentOf gives what a run's earlier sizes used of a resource, whatever its case, in units times milliseconds.
func spentOf(run *model.Run, tres string) int64 {
	n := int64(0)
	for _, c := range run.Spent {
		if strings.EqualFold(c.TRES, tres) {
			n = addSat(n, c.Count)
		}
	}
	return n
}

// moveCap updates the moment at which MaxTRESMins ends a job.
func (s *State) moveCap(id model.JobID, j *model.Job) {
	was, _ := s.capAt.Get(id)
	at, _ := s.capEnd(j)
	if at == was {
		return
	}
	moveDue(s.capDue, id, was, at)
	if at == 0 {
		s.capAt.Delete(id)
	} else {
		s.capAt.Set(id, at)
	}
}

// endCapped ends the jobs that have reached a MaxTRESMins.
func (s *State) endCapped(at model.Time) (changed bool) {
	for last := (due{}); ; {
		d := due{at: at + 1}
		s.capDue.Ascend(last, func(x due) bool {
			if x == last { // it goes on
				return true
			}
			d = x
			return false
		})
		if d.at > at {
			return changed
		}
		j, ok := s.jobs.Get(d.id)
		end, by := s.capEnd(j)
		switch {
		case !ok || end == 0 || end > at:
			s.moveCap(d.id, j)
		case s.lastCap(j, end):
			last = d
		default:
			s.stopSpent(j, at, by)
			changed = true
		}
	}
}

// settleAs copies from another state with equal facts which purses have been dealt with.
func (s *State) settleAs(o *State) {
	s.purses.Scan(func(key string, p *purse) bool {
		if q, ok := o.purses.Get(key); ok {
			p.settled = q.settled
			s.foresee(p)
		}
		return true
	})
	s.plan()
}

// purseLines lists the purses and when to check them, for tests of invariants.
func purseLines(s *State) []string {
	var out []string
	s.purses.Scan(func(key string, p *purse) bool {
		out = append(out, fmt.Sprintf("%q %v due %d", key, p.caps, p.due))
		return true
	})
	s.spends.Scan(func(d spendDue) bool {
		out = append(out, fmt.Sprintf("%d %q", d.at, d.p.key))
		return true
	})
	return out
}
