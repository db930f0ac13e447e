package fence

import "time"

const (
	marginLeast = 250 * time.Millisecond
	marginMost  = 5 * time.Second
	askLeast    = time.Second
	askMost     = 5 * time.Second
)

// Margin is how long before a node is given up its processes are killed: they take some time to die.
func Margin(limit time.Duration) time.Duration { return min(max(limit/8, marginLeast), marginMost) }

// Ask is how long a verdict may take, and therefore how long before the end of a lease it is asked for.
func Ask(limit time.Duration) time.Duration { return min(max(limit/4, askLeast), askMost, limit/2) }

// Pace is the longest time between two heartbeats with which a lease lasts.
func Pace(limit time.Duration) time.Duration { return limit / 3 }

// Patience is how long a session without an acknowledgement is kept: then another controller may lead.
func Patience(limit time.Duration) time.Duration { return limit / 2 }
