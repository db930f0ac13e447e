package share

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	modestPart = 0.8              // who has more of the burst left has hardly listed lately
	maxDelay   = 15 * time.Second // of one request: commands wait 30 s for an answer
	maxNames   = 4096             // users with an account of their own; when it is full, all others wait for nothing
)

// BurstS is how many seconds' worth a user may ask for at once, if Limits says nothing else.
const BurstS = 5

// Limits slows users who ask for more than a rate, and users who have asked for much lately if all together ask for
// more than Total times that rate. What a request costs is known only when it is answered, so it pays a guess first.
type Limits struct {
	Total  float64
	BurstS float64 // seconds' worth that may be asked for at once; 0: BurstS

	// Refuse: who owes so much that their request would wait for longer than a command waits for an answer gets
	// ErrOwes, and pays nothing. Otherwise such a request is made after that time, and some of the debt forgotten.
	Refuse bool

	mu    sync.Mutex
	names map[string]*purse
	all   purse
}

// ErrOwes says that somebody has asked for far more than the rate.
var ErrOwes = fmt.Errorf("more is asked for than is served in %v", maxDelay)

// purse is what a user may still ask for. Below zero they wait.
type purse struct {
	has     float64
	at      time.Time
	delayed int64
	waited  time.Duration
}

// Pay takes the price of a request, and waits if the user has asked for more than rate a second for some time; rate 0
// is no limit. An error is that of ctx.
func (l *Limits) Pay(ctx context.Context, name string, price, rate float64) error {
	if rate <= 0 {
		return nil
	}
	delay := l.take(name, price, rate, time.Now())
	if delay < 0 {
		return ErrOwes
	} else if delay == 0 {
		return nil
	}
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		l.Settle(name, -price)
		return context.Cause(ctx)
	}
}

// take gives how long to wait; below 0: for too long, and nothing was taken.
func (l *Limits) take(name string, price, rate float64, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.names[name]
	if p == nil {
		if l.names == nil {
			l.names = map[string]*purse{}
		}
		if len(l.names) >= maxNames && !l.prune(rate, now) {
			return 0
		}
		p = &purse{has: l.burst() * rate, at: now}
		l.names[name] = p
	}
	if l.all.at.IsZero() {
		l.all = purse{has: l.burst() * rate * l.Total, at: now}
	}
	modest := p.fill(rate, l.burst(), now) > l.burst()*rate*modestPart
	if l.Refuse && -p.has >= maxDelay.Seconds()*rate {
		return -1
	}
	debt := maxDelay.Seconds() * rate
	if l.Refuse {
		debt *= 2
	}
	waitS := p.pay(price, rate, debt)
	all := l.all.fill(rate*l.Total, l.burst(), now)
	if together := l.all.pay(price, rate*l.Total, maxDelay.Seconds()*rate*l.Total); !modest && all < 0 {
		waitS = max(waitS, together)
	}
	if waitS <= 0 {
		return 0
	}
	delay := min(time.Duration(waitS*float64(time.Second)), maxDelay)
	p.delayed++
	p.waited += delay
	return delay
}

func (l *Limits) burst() float64 {
	if l.BurstS > 0 {
		return l.BurstS
	}
	return BurstS
}

// fill adds what has come in by now, of which no more than burstS seconds' worth is kept, and gives the sum.
func (p *purse) fill(rate, burstS float64, now time.Time) float64 {
	p.has = min(p.has+now.Sub(p.at).Seconds()*rate, burstS*rate)
	p.at = now
	return p.has
}

// pay takes a price, and gives how long to wait for it, seconds: until what was owed before has come in. Who has
// something left is served, and owes the rest, up to debt.
func (p *purse) pay(price, rate, debt float64) float64 {
	owed := -p.has
	p.has = max(p.has-price, -debt)
	return max(owed/rate, 0)
}

// prune forgets users who have not asked for anything for some time, and were never slowed.
func (l *Limits) prune(rate float64, now time.Time) bool {
	for name, p := range l.names {
		if p.delayed == 0 && p.has+now.Sub(p.at).Seconds()*rate >= l.burst()*rate {
			delete(l.names, name)
		}
	}
	return len(l.names) < maxNames
}

// Settle takes more from a user, or gives back what is less than 0: an answer cost more than its guess, or less.
func (l *Limits) Settle(name string, more float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.has -= more
	if p := l.names[name]; p != nil {
		p.has -= more
	}
}

// Delayed gives how many requests of a user were slowed, and the sum of their waits.
func (l *Limits) Delayed(name string) (n int64, sum time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.names[name]; p != nil {
		return p.delayed, p.waited
	}
	return 0, 0
}

// Forget sets the counts of Delayed to 0.
func (l *Limits) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.names {
		p.delayed, p.waited = 0, 0
	}
}
