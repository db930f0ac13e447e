package sched

import "gbatch/internal/model"

// How long a job stays is not always what it asks for: with --time-min its limit may be cut, as far as to that, where
// that lets it start sooner; with --deadline it has to be over by then. A job with a limit that may be cut is reserved
// for at the earliest moment at which its least time fits and, once it starts, gets as much of its limit as fits.
//
// Source: Slurm's sbatch manual, --time-min and --deadline.

// stay is how long a job that starts at a moment may stay, seconds.
type stay struct {
	limitS int64 // its time limit
	planS  int64 // what it is planned with: the limit, or less where that is predicted
	leastS int64 // the least that it is planned with
}

// stayAt gives how long a job may stay that starts at a moment; ok is false where it could not end before its deadline.
func (it *item) stayAt(t model.Time) (s stay, ok bool) {
	sp := it.e.j.Spec
	s = stay{it.limitS, it.planS, min(it.planS, sp.LeastS(it.limitS))}
	if sp.Deadline == 0 {
		return s, true
	}
	room, least := int64(sp.Deadline-t)/1000, sp.LeastS(it.limitS)
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

// leastS gives the least time that a job is planned with, seconds.
func (it *item) leastS() int64 { return min(it.planS, it.e.j.Spec.LeastS(it.limitS)) }

// lodge finds room for a job from now on: for all of its time or, where its limit may be cut, for as much of it as
// there is. lic is a set of licenses for it.
func (p *Planner) lodge(it *item) (alloc *model.Alloc, lic []model.LicenseCount, s stay) {
	s, ok := it.stayAt(p.now)
	if !ok {
		return nil, nil, s
	}
	end := p.after(p.now, s.planS)
	if lic, ok = p.licenses(it.sh, end); ok {
		if alloc = p.fit(it.sh, end); alloc != nil {
			return alloc, lic, s
		}
	}
	if s.leastS >= s.planS {
		return nil, nil, s
	}
	soon := p.after(p.now, s.leastS)
	if lic, ok = p.licenses(it.sh, soon); !ok {
		return nil, nil, s
	}
	if alloc = p.fit(it.sh, soon); alloc == nil {
		return nil, nil, s
	}
	longest := int64(p.free(it, alloc, lic, soon, end)-p.now) / 1000
	if longest >= s.planS {
		return alloc, lic, s
	}
	s.planS = max(s.leastS, longest/60*60)
	s.limitS = max(s.planS, it.e.j.Spec.LeastS(s.limitS))
	return alloc, lic, s
}

// free gives the moment until which an allocation that is free until soon stays free, at most until end.
func (p *Planner) free(it *item, alloc *model.Alloc, lic []model.LicenseCount, soon, end model.Time) model.Time {
	p.cursor.own = it.sh.rq.Reservation
	for i := range alloc.Nodes {
		na := &alloc.Nodes[i]
		n := p.byName[na.Node]
		if !n.dated() {
			continue
		}
		if p.social {
			return soon // who comes there, and whom it may not meet, is not in the counts
		}
		h := n.holdOf(na, it.sh.part, it.e.j.Spec)
		nd := need{cpus: h.cpus, mem: h.mem, idle: it.sh.rq.Exclusive}
		if !p.stock.params.MemConsumed {
			nd.mem = 0
		}
		for k, g := range h.gres {
			if g > 0 {
				nd.gres = append(nd.gres, gresNeed{1 << uint(k), g})
			}
		}
		end = p.cursor.until(n, &nd, p.now, end)
	}
	if len(lic) > 0 {
		nd := p.licenseNeed(lic)
		end = p.cursor.until(p.lic, &nd, p.now, end)
	}
	if ms := model.Time(p.policy.Backfill.ResolutionS * 1000); ms > 1000 && end != forever {
		end = end / ms * ms // ends are rounded up
	}
	return max(soon, end)
}

// until gives the first moment at which a need that is met now is not met, at most end.
func (c *cursor) until(n *node, nd *need, now, end model.Time) model.Time {
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
