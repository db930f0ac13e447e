package ctld

import (
	"time"

	"gbatch/internal/sched"
)

// bf_max_time. A pass itself is bounded by counts only, so that equal facts give equal plans; a pass that took longer
// than bf_max_time bounds the count of the jobs that the next ones look at behind the first that does not fit, until
// they have been quick enough to look at more again.

// leastTested is the fewest jobs that bf_max_time leaves a pass to look at.
const leastTested = 50

// timeBound keeps passes within a time.
type timeBound struct{ most int } // jobs tested; 0: no bound

// limit puts the bound on a policy.
func (b *timeBound) limit(pol *sched.Policy) {
	if bf := &pol.Backfill; b.most > 0 && (bf.MaxTest <= 0 || b.most < bf.MaxTest) {
		bf.MaxTest = b.most
	}
}

// took learns from a pass that tested some jobs in a time, of most; 0 is no bound.
func (b *timeBound) took(tested int, took, most time.Duration) {
	switch {
	case most <= 0:
		b.most = 0
	case took > most:
		b.most = max(leastTested, int(int64(tested)*int64(most)/int64(took)))
	case b.most == 0:
	case tested < b.most: // all of the queue was looked at
		b.most = 0
	case took < most/2:
		b.most *= 2
	}
}
