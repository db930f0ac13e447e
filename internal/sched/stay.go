package sched

import "gbatch/internal/model"

// A job's time on its nodes may differ from the limit that it asks for. With --time-min the limit may be cut, at most
// to that time, if the job then starts sooner. With --deadline the job must end by then. The reservation of a job whose
// limit may be cut is at the earliest moment at which its least time fits; when the job starts, it gets as much of its
// limit as fits.
//
// Source: Slurm's sbatch manual, --time-min and --deadline.

// stay is how long a job that starts at a moment may stay, seconds.
type stay struct {
	limitS int64 // its time limit
	planS  int64 // planned time: the limit, or less if a prediction says so
	leastS int64 // the least planned time
}

// stayIn gives how long a job may stay if it starts at a moment. If the shape has a reservation, the job ends with it,
// whatever its limit, as in Slurm, or ResvOverRun later; nothing is planned for that time. ok is false if the job could
// not end before its deadline, or the reservation, one of several that it asked for, is for others by now.
func (p *Planner) stayIn(it *item, sh *shape, t model.Time) (s stay, ok bool) {
	sp := it.e.j.Spec
	s = stay{it.limitS, it.planS, min(it.planS, sp.LeastS(it.limitS))}
	if name := sh.rq.Reservation; name != "" {
		if r := p.v.Reservation(name); r != nil && !r.Admits(sp) {
			return s, false
		}
	}
	if end := p.until(sh.rq.Reservation, t); end != forever {
		room := int64(end-t) / 1000
		if it.sh.attracts(sh) && room < s.leastS {
			return s, false
		}
		if over := p.cfg.Params.ResvOverS; over < model.Unlimited {
			s.limitS = max(1, min(s.limitS, room+over))
		}
		s.planS, s.leastS = min(s.planS, room), min(s.leastS, room)
	}
	if sp.Deadline == 0 {
		return s, true
	}
	room, least := int64(sp.Deadline-t)/1000, min(sp.LeastS(it.limitS), s.limitS)
	if room < least || room <= 0 {
		return s, false
	}
	if room < s.limitS {
		s.limitS = max(least, room/60*60)
		s.planS = min(s.planS, s.limitS)
		s.leastS = min(s.leastS, s.planS)
	}
	return s, true
}

// leastS gives the least planned time of a job, seconds.
func (it *item) leastS() int64 { return min(it.planS, it.e.j.Spec.LeastS(it.limitS)) }

// lodging is room for a job from now on.
type lodging struct {
	alloc *model.Alloc // nil: there is none
	lic   []model.LicenseCount
	resv  string // the advance reservation that the job is in
	stay
}

// lodge finds room for a job from now on: for its whole time or, if its limit may be cut, for as much of it as fits. Of
// several advance reservations it takes the first that has room.
func (p *Planner) lodge(it *item) (g lodging) {
	for sh := range it.sh.turns() {
		if g = p.lodgeIn(it, sh); g.alloc != nil {
			break
		}
	}
	return g
}

// begun reports whether jobs may start in a shape's reservation now.
func (p *Planner) begun(sh *shape) bool {
	if sh.rq.Reservation == "" {
		return true
	}
	r := p.v.Reservation(sh.rq.Reservation)
	return r != nil && (r.Flags&model.ResvFlex != 0 || r.At(p.now).Start <= p.now)
}

func (p *Planner) lodgeIn(it *item, sh *shape) lodging {
	s, ok := p.stayIn(it, sh, p.now)
	if !ok || !p.begun(sh) {
		return lodging{}
	}
	end := p.endIn(sh, p.now, s.planS)
	if lic, ok := p.licenses(sh, end); ok {
		if alloc := p.fit(sh, end); alloc != nil {
			return lodging{alloc, lic, sh.rq.Reservation, s}
		}
	}
	if s.leastS >= s.planS {
		return lodging{}
	}
	soon := p.endIn(sh, p.now, s.leastS)
	lic, ok := p.licenses(sh, soon)
	if !ok {
		return lodging{}
	}
	alloc := p.fit(sh, soon)
	if alloc == nil {
		return lodging{}
	}
	if longest := int64(p.free(it, sh, alloc, lic, soon, end)-p.now) / 1000; longest < s.planS {
		s.planS = max(s.leastS, longest/60*60)
		s.limitS = max(s.planS, it.e.j.Spec.LeastS(s.limitS))
	}
	return lodging{alloc, lic, sh.rq.Reservation, s}
}

// free gives the moment up to which an allocation stays free, at most end. It is free until soon at least.
func (p *Planner) free(it *item, sh *shape, alloc *model.Alloc, lic []model.LicenseCount, soon,
	end model.Time) model.Time {
	p.cursor.of(sh)
	for i := range alloc.Nodes {
		na := &alloc.Nodes[i]
		n := p.byName[na.Node]
		if !n.dated() {
			continue
		}
		if p.social || n.room.lot != nil {
			return soon // the counts don't tell which jobs will be there, and some it must not meet
		}
		h := n.holdOf(na, sh.part, it.e.j.Spec, sh.rq.shareAt)
		nd := nodeNeed{cpus: h.cpus, mem: h.mem, idle: sh.rq.Exclusive, place: sh.rq.shareAt, per: sh.rq.Share,
			all: p.stock.whole(n.def)}
		if !p.stock.params.MemConsumed {
			nd.mem = 0
		}
		for k, g := range h.gres {
			if g > 0 {
				nd.gres = append(nd.gres, gresNeed{1 << uint(k), g})
			}
		}
		end = p.cursor.endOf(n, &nd, p.now, end)
	}
	if len(lic) > 0 {
		nd := p.licenseNeed(lic)
		end = p.cursor.endOf(p.lic, &nd, p.now, end)
	}
	if ms := model.Time(p.policy.Backfill.ResolutionS * 1000); ms > 1000 && end != forever {
		end = end / ms * ms // ends are rounded up
	}
	return max(soon, end)
}

// endOf gives the first moment at which a need that is met now is not met, at most end.
func (c *cursor) endOf(n *node, nd *nodeNeed, now, end model.Time) model.Time {
	c.begin(n, now)
	for {
		at, ok := c.next()
		if !ok || at >= end {
			return end
		}
		if !nd.in(&c.counts) {
			return at
		}
	}
}
