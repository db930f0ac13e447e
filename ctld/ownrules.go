package ctld

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"gbatch/internal/model"
	"gbatch/internal/sched/policy"
	"gbatch/internal/state"
)

// ownRules are the order and the predictions of a cluster whose configuration names neither PriorityType nor weights.
// They follow the views of one goroutine; other goroutines may read shown priorities. The zero value is ready to use.
type ownRules struct {
	mu    sync.RWMutex // readers take it; the planning goroutine takes it only to refresh
	rules *policy.Policy
	ranks map[string]uint8 // of QOS, from 0 for the least
	gen   uint64           // generation of the accounts for ranks
}

// ownPaceS is the interval at which scores are computed anew, seconds: each time a long queue is sorted again.
const ownPaceS = 5

// Classes of jobs: no score lifts a job above its class. QOS are in order of their Priority; a priority that was set by
// hand puts a job before or behind all others.
const (
	classBehind = 16
	classQOS    = 64
	maxQOSRank  = 63
	classAhead  = 192
)

func (o *ownRules) refresh(v *state.View, now model.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rules == nil {
		opt := policy.Standard()
		opt.EveryS = ownPaceS
		opt.Class = func(j *model.Job) uint8 {
			switch {
			case j.Direct && j.Priority > basePriority:
				return classAhead
			case j.Direct && j.Priority < basePriority:
				return classBehind
			case j.Spec.QOS == "":
				return classQOS + o.ranks[model.DefaultQOS]
			}
			return classQOS + o.ranks[j.Spec.QOS]
		}
		o.rules = policy.New(opt)
	}
	if gen := v.AcctGen(); o.ranks == nil || gen != o.gen {
		o.gen, o.ranks = gen, qosRanks(v)
		o.rules.Reclassify()
	}
	o.rules.Refresh(v, now)
}

// qosRanks numbers the QOS by their Priority; equal ones share a rank.
func qosRanks(v *state.View) map[string]uint8 {
	var list []*model.QOS
	v.AllQOS(func(q *model.QOS) bool {
		list = append(list, q)
		return true
	})
	slices.SortFunc(list, func(a, b *model.QOS) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
	})
	ranks := make(map[string]uint8, len(list))
	rank := uint8(0)
	for i, q := range list {
		if i > 0 && q.Priority > list[i-1].Priority && rank < maxQOSRank {
			rank++
		}
		ranks[q.Name] = rank
	}
	return ranks
}

// Scores are shown as whole numbers, in the order of the queue: each QOS has a band, and the score's logarithm gives
// the place in it. Numbers below the bands are for priorities set by hand that put a job behind all others; priorities
// that put it ahead are above basePriority.
const (
	shownLeast = 100_000
	shownBand  = 14_000 // for each rank of QOS: maxQOSRank+1 of them stay below basePriority
	perOctave  = 200
	leastScore = -30 // octave of a job that has waited for less than a second, for half a year on many GPUs
)

// shown gives a pending job's priority as users see it, as of now; ok is false before the first refresh.
func (o *ownRules) shown(j *model.Job, p *model.Partition, now model.Time) (n uint32, ok bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	switch {
	case o.rules == nil:
		return 0, false
	case j.Priority == 0 || j.Direct:
		return j.Priority, true // held, or set by hand
	}
	prio := o.rules.OrderAt(now).Priority(j, p)
	if prio == 0 { // not seen yet: the lowest of its class
		return shownLeast + uint32(o.ranks[cmp.Or(j.Spec.QOS, model.DefaultQOS)])*shownBand, true
	}
	return shownScore(policy.Parts(prio)), true
}

// shownScore gives the shown number for a class and a score.
func shownScore(class uint8, first bool, score float64) uint32 {
	at := 0.0
	switch {
	case first:
		at = shownBand - 1
	case score > 0:
		at = min(max((math.Log2(score)-leastScore)*perOctave, 1), shownBand-2)
	}
	rank := min(max(int(class)-classQOS, 0), maxQOSRank)
	return shownLeast + uint32(rank*shownBand+int(at))
}
