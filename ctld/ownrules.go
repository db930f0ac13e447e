package ctld

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/sched/policy"
	"gbatch/internal/state"
)

// ownRules are the order and the predictions of a cluster whose configuration names neither PriorityType nor weights.
// They follow the views that one goroutine sees and are not shared. The zero value is ready.
type ownRules struct {
	rules *policy.Policy
	ranks map[string]uint8 // of QOS, from 0 for the least
	gen   uint64           // of the accounts that they were taken from
}

// ownPaceS is how often scores follow the time, seconds: a long queue is sorted again each time.
const ownPaceS = 5

// Classes of jobs: no score lifts one above its class. QOS stand in order of their Priority; a priority that was set by hand
// puts a job before or behind all others.
const (
	classBehind = 16
	classQOS    = 64
	maxQOSRank  = 63
	classAhead  = 192
)

func (o *ownRules) refresh(v *state.View, now model.Time) {
	if o.rules == nil {
		o.rules = policy.New(policy.Options{PatienceS: policy.DefaultPatienceS, BacklogPct: policy.DefaultBacklogPct, EveryS: ownPaceS,
			Class: func(j *model.Job) uint8 {
				switch {
				case j.Direct && j.Priority > basePriority:
					return classAhead
				case j.Direct && j.Priority < basePriority:
					return classBehind
				case j.Spec.QOS == "":
					return classQOS + o.ranks[model.DefaultQOS]
				}
				return classQOS + o.ranks[j.Spec.QOS]
			}})
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
