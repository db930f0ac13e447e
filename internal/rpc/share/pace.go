package share

import (
	"context"
	"math"
	"sync"
	"time"
)

// Pace keeps a user who makes many changes from slowing the others': they wait where they are more than Least, and more
// than what all others together make. Nobody waits while nobody else asks for anything.
//
// On a slow machine Least would be all of its CPU. So what a unit takes is measured, and a user always has what Part
// pays for, between a fifth of Least and Least.
type Pace struct {
	Least float64              // units a second that a user may always have
	Part  float64              // of one CPU, that this may take; 0: any
	Spent func() time.Duration // CPU time of this process, ever

	limits Limits
	mu     sync.Mutex
	cost   cost
	last   string    // the user who asked last
	others time.Time // when somebody else than the one before asked
	all    speed
	users  map[string]*speed
}

const (
	paceBurstS = 2               // seconds' worth that a user may ask for at once
	paceAlone  = 2 * time.Second // after which the others have gone
	paceOver   = 2 * time.Second // what was asked for lately is counted over so long
	pacedUsers = 4096            // whose speeds are known
)

// speed is how much was asked for lately: an average over paceOver whose weights fall exponentially.
type speed struct {
	perS float64
	at   time.Time
}

// add counts units, and gives the sum a second.
func (s *speed) add(units float64, now time.Time) float64 {
	s.perS = s.perS*math.Exp(-now.Sub(s.at).Seconds()/paceOver.Seconds()) + units/paceOver.Seconds()
	s.at = now
	return s.perS
}

// cost is what a unit takes of the CPU, with all else that the process does: never too little.
type cost struct {
	units float64 // since at
	at    time.Time
	spent time.Duration // at that moment
	unitS float64       // CPU seconds; 0: not known
}

const (
	costEvery = time.Second
	costLeast = 50 // units between two moments that say something
)

// least is what a user may always have.
func (p *Pace) least(units float64, now time.Time) float64 {
	if p.Part == 0 {
		return p.Least
	}
	c := &p.cost
	c.units += units
	if gap := now.Sub(c.at); gap >= costEvery {
		spent := p.Spent()
		if c.units >= costLeast && gap < 2*costEvery {
			c.unitS = (spent - c.spent).Seconds() / c.units
		}
		c.units, c.at, c.spent = 0, now, spent
	}
	if c.unitS == 0 {
		return p.Least
	}
	return min(max(p.Part/c.unitS, p.Least/5), p.Least)
}

// NewPace gives a pace at which each user may have least units a second.
func NewPace(least float64) *Pace {
	return &Pace{Least: least, users: map[string]*speed{},
		limits: Limits{Total: pacedUsers, BurstS: paceBurstS, Refuse: true}}
}

// rate is how many units a second a user may have, who asks for some now; 0: any.
func (p *Pace) rate(name string, units float64, now time.Time) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name != p.last {
		p.last, p.others = name, now
	}
	u := p.users[name]
	if u == nil {
		if len(p.users) >= pacedUsers {
			clear(p.users) // they are known again after their next changes
		}
		u = &speed{}
		p.users[name] = u
	}
	least := p.least(units, now)
	own := u.add(units, now)
	others := p.all.add(units, now) - own
	if now.Sub(p.others) > paceAlone {
		return 0
	}
	return max(least, others)
}

// Wait takes the price of a change, and waits if its user has made too many. free: it counts, and does not wait. It
// gives the rate for which it has paid, units a second; 0: it has not. The error is ErrOwes, or that of ctx.
func (p *Pace) Wait(ctx context.Context, name string, units float64, free bool) (rate float64, err error) {
	rate = p.rate(name, units, time.Now())
	if free {
		return 0, nil
	}
	return rate, p.limits.Pay(ctx, name, units, rate)
}

// More takes more from a user who has paid.
func (p *Pace) More(name string, units float64) { p.limits.Settle(name, units) }
