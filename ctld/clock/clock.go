package clock

import (
	"sync"
	"time"

	"gbatch/internal/model"
)

const (
	// Near is how far two clocks may be apart and still agree.
	Near = 30 * time.Second
	// nearRate and farRate are the parts of the elapsed time by which a difference is made up: 1/n.
	nearRate = 10
	farRate  = 200
	// patience is how long the cluster's time stands at its last known moment while no majority of clocks is known.
	patience = 20 * time.Second
)

// Until gives how long it is from now to a moment, between 0 and most. Moments may be thousands of years away, which a
// time.Duration can't hold.
func Until(due, now model.Time, most time.Duration) time.Duration {
	switch {
	case due <= now:
		return 0
	case int64(due)-int64(now) >= most.Milliseconds():
		return most
	}
	return time.Duration(due-now) * time.Millisecond
}

// Clock is the cluster's time as one controller knows it. All methods may be called from any goroutine.
type Clock struct {
	wall func() model.Time    // the host's clock
	boot func() time.Duration // time since the host's boot, which nobody sets

	mu       sync.Mutex
	born     time.Duration // when New was called
	known    bool          // at and atBoot are set
	at       time.Duration // the cluster's time (since 1970) at atBoot
	atBoot   time.Duration
	guessed  bool          // known is the host's clock's word, taken before there was a log
	byLog    bool          // it has led without knowing the time, and stamped by the log's
	floor    model.Time    // the latest stamp of a command that is in the log
	floorAt  time.Duration // since boot, when it was learnt
	last     model.Time    // what Now gave
	leads    bool
	verdict  Verdict
	judged   time.Duration // with verdict.Sure: what most hosts' clocks showed (since 1970) at judgedAt
	judgedAt time.Duration // since boot
}

// New gives a clock that knows nothing yet. wall is the host's clock, boot the time since its boot.
func New(wall func() model.Time, boot func() time.Duration) *Clock {
	return &Clock{wall: wall, boot: boot, born: boot()}
}

func sinceEpoch(t model.Time) time.Duration { return time.Duration(t) * time.Millisecond }

// Now gives the cluster's time. It never goes back while this controller leads, and is never before a command in the
// log.
func (c *Clock) Now() model.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.boot()
	if !c.known && !c.settle(b) {
		c.byLog = c.byLog || c.leads
		return c.give(c.base(b))
	}
	c.advance(b)
	return c.give(model.Time(c.at / time.Millisecond))
}

func (c *Clock) give(t model.Time) model.Time {
	c.last = max(t, c.floor, c.last)
	return c.last
}

// base is the time by the log, of a clock that knows no elapsed time. Callers hold mu.
func (c *Clock) base(b time.Duration) model.Time {
	return c.floor + model.Time((b-max(c.floorAt, c.born))/time.Millisecond)
}

// settle looks for the first moment of a clock that knows no elapsed time. A leader that has stamped commands by the
// log's time goes on from there if the truth is near, and makes the difference up. Callers hold mu.
func (c *Clock) settle(b time.Duration) bool {
	host := c.truth()
	ahead := sinceEpoch(host) - sinceEpoch(c.floor)
	switch {
	case c.floor == 0: // the cluster is new, or its log has not come yet
		c.guessed = true
	case ahead >= 0 && ahead <= Near: // a short restart: nothing to doubt
	case c.verdict.Sure && c.verdict.Of > 1, b-c.born > patience:
		host = max(host, c.floor)
	default:
		return false
	}
	if base := c.base(b); c.byLog && (sinceEpoch(host)-sinceEpoch(base)).Abs() <= Near {
		host = base
	}
	c.known, c.at, c.atBoot = true, sinceEpoch(host), b
	return true
}

// advance brings the cluster's time to the moment b since boot. Callers hold mu.
func (c *Clock) advance(b time.Duration) {
	passed := b - c.atBoot
	if passed <= 0 {
		return
	}
	c.at, c.atBoot = c.at+passed, b
	if !c.leads {
		return // a follower goes by the leader's time
	}
	miss := sinceEpoch(c.truth()) - c.at
	most := passed / farRate
	if miss.Abs() <= Near {
		most = passed / nearRate
	}
	c.at += min(max(miss, -most), most)
}

// truth is what the majority of the hosts' clocks says. Callers hold mu. It goes on from the last verdict by elapsed
// time: this host's clock may have been set since.
func (c *Clock) truth() model.Time {
	if !c.verdict.Sure {
		return c.wall()
	}
	return model.Time((c.judged + c.boot() - c.judgedAt) / time.Millisecond)
}

// True gives the present moment as the majority of the hosts' clocks has it: nodes' clocks are measured by it.
func (c *Clock) True() model.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.truth()
}

// Miss says how far the hosts' clocks are ahead of the cluster's time.
func (c *Clock) Miss() time.Duration {
	now := c.Now()
	return sinceEpoch(c.True()) - sinceEpoch(now)
}

// Lead says whether this controller stamps commands from now on.
func (c *Clock) Lead(leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		c.advance(c.boot()) // what has passed counts for the old role
	}
	c.leads = leads
}

// Applied takes the stamp of a command in the log.
func (c *Clock) Applied(at model.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at <= c.floor {
		return
	}
	c.floor, c.floorAt = at, c.boot()
	if c.guessed {
		c.guessed = false
		if !c.leads { // it wasn't new: the host's clock counts no more than anybody's
			c.known, c.last = false, 0
		}
	}
	if c.known && !c.leads {
		if b := c.boot(); sinceEpoch(at) > c.at+b-c.atBoot {
			c.at, c.atBoot = sinceEpoch(at), b
		}
	}
}

// Follow takes the leader's time on a controller that follows.
func (c *Clock) Follow(leader model.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leads {
		return
	}
	c.known, c.at, c.atBoot, c.last = true, sinceEpoch(max(leader, c.floor)), c.boot(), 0
	c.guessed = false
}

// Judge takes the verdict on the hosts' clocks.
func (c *Clock) Judge(v Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verdict = v
	c.judged, c.judgedAt = sinceEpoch(c.wall())+v.Off, c.boot()
}

// Verdict gives the last one.
func (c *Clock) Verdict() Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdict
}
