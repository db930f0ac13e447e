package ctld

import (
	"time"

	"gbatch/internal/sched"
)

// bf_max_time. A pass itself is bounded by counts only, so that equal facts give equal plans; after a pass that took
// longer than bf_max_time, the next passes look at fewer jobs behind the first one that does not fit, until they are
// quick enough to look at more again.

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

// took adapts the bound to a pass that tested some jobs and took a time; most is bf_max_time, 0 for none.
func (b *timeBound) took(tested int, took, most time.Duration) {
	switch {
	case most <= 0:
		b.most = 0
	case took > most:
		b.most = max(leastTested, int(int64(tested)*int64(most)/int64(took)))
	case b.most == 0:
	case tested < b.most: // the pass looked at the whole queue
		b.most = 0
	case took < most/2:
		b.most *= 2
	}
}
