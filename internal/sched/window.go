package sched

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
)

// Advance reservations are windows on a node's calendar: for jobs that did not ask for the reservation the node is
// closed from its beginning to its end, for those that did at every other time (FLEX: at none). A job starts only where
// its node stays open until its planned end.

// window is one occurrence of a reservation on a node.
type window struct {
	from, to model.Time
	name     string
	flex     bool
	maint    bool
}

// windowStep opens (1) or closes (-1) a node.
type windowStep struct {
	at   model.Time
	sign int
}

// closedCPUs is more than any node has: taken off what is free while a node is closed, so that no need is met.
const closedCPUs = 1 << 40

// everybody as a cursor's own reservation sees no windows.
const everybody = "\x00"

// windows gives each node its reservations, where they have changed.
func (p *Planner) windows() {
	if p.windowGen == p.v.ResvGen()+1 {
		return
	}
	p.windowGen = p.v.ResvGen() + 1
	p.moved, p.early, p.windowed = true, true, false
	for _, n := range p.nodes {
		n.wins = nil
	}
	p.v.Reservations(func(r *model.Reservation) bool {
		p.windowed = true
		for _, o := range r.Occurrences() {
			for _, name := range r.Nodes {
				if n := p.byName[name]; n != nil && o[1] > p.now {
					n.wins = append(n.wins, window{o[0], o[1], r.Name, r.Flags&model.ResvFlex != 0, r.Flags&model.ResvMaint != 0})
				}
			}
		}
		return true
	})
	if p.policy.Predict != nil {
		p.repredict()
	}
}

// dated reports whether what the node has free now may not be free for long.
func (n *node) dated() bool { return n.resvs > 0 || len(n.wins) > 0 }

// reserved reports whether the node is in a reservation.
func (n *node) reserved(name string) bool {
	return slices.ContainsFunc(n.wins, func(w window) bool { return w.name == name })
}

// open lists the moments at which the cursor's node opens and closes, and puts the cursor before the first.
func (c *cursor) open() {
	c.wins, c.w = c.wins[:0], 0
	if len(c.n.wins) == 0 || c.own == everybody {
		return
	}
	mine := false
	for i := range c.n.wins {
		w := &c.n.wins[i]
		sign := -1
		if w.name == c.own {
			if w.flex {
				continue
			}
			if !mine {
				mine = true
				c.cpus -= closedCPUs
			}
			sign = 1
		}
		c.wins = append(c.wins, windowStep{w.from, sign}, windowStep{w.to, -sign})
	}
	slices.SortFunc(c.wins, func(a, b windowStep) int { return cmp.Compare(a.at, b.at) })
}

// turn opens and closes the node at a moment.
func (c *cursor) turn(at model.Time) {
	for c.w < len(c.wins) && c.wins[c.w].at == at {
		c.cpus += c.wins[c.w].sign * closedCPUs
		c.w++
	}
}

// outside tells why a job's reservation keeps it from starting now.
func (p *Planner) outside(it *item) model.Reason {
	j := it.e.j
	if j.Spec.Reservation == "" {
		return model.ReasonNone
	}
	r := p.v.Reservation(j.Spec.Reservation)
	switch {
	case r == nil:
		return model.ReasonReservationDeleted
	case !r.Admits(j.Spec.User, j.Spec.Account):
		return model.ReasonReservation
	case r.Flags&model.ResvFlex == 0 && (r.Start > p.now || r.End < p.after(p.now, it.leastS())):
		return model.ReasonReservation
	}
	return model.ReasonNone
}

// What people read behind ReqNodeNotAvail, in Slurm's words.
const (
	forMaintenance = "Reserved for maintenance"
	forOthers      = "May be reserved for other job"
)

// closed tells whether only reservations keep a job from starting, or "".
func (p *Planner) closed(it *item) string {
	why := ""
	for _, n := range it.sh.pool.nodes {
		for i := range n.wins {
			if w := &n.wins[i]; w.name != it.e.j.Spec.Reservation && w.from < p.after(p.now, it.leastS()) {
				if why == "" {
					why = forOthers
				}
				if w.maint {
					why = forMaintenance
				}
			}
		}
	}
	if why == "" {
		return ""
	}
	sh, own := *it.sh, p.cursor.own
	sh.round = 0 // what was found out holds with windows
	p.cursor.own = everybody
	a := p.fitAs(&sh, p.after(p.now, it.leastS()))
	p.cursor.own = own
	if a == nil {
		return ""
	}
	return why
}
