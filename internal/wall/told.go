package wall

import (
	"sync/atomic"
	"time"
)

// Told is another host's time: what it told last, and what has passed here since. Before it has told it, it is this
// host's.
type Told struct {
	Host  func() time.Time // this host's clock
	Most  time.Duration    // what is further off is not believed
	ahead atomic.Int64     // the other's time less this host's, nanoseconds
}

// Hear notes what the other host says: milliseconds since 1970; 0: it does not say it.
func (t *Told) Hear(milli int64) {
	if milli <= 0 {
		return
	}
	ahead := time.UnixMilli(milli).Sub(t.Host())
	if ahead.Abs() > t.Most {
		ahead = 0
	}
	t.ahead.Store(int64(ahead))
}

// Now gives the other host's time.
func (t *Told) Now() time.Time { return t.Host().Add(time.Duration(t.ahead.Load())) }
