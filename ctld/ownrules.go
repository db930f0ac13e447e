package ctld

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"gbatch/internal/model"
	"gbatch/internal/sched"
	"gbatch/internal/sched/policy"
	"gbatch/internal/state"
	"gbatch/internal/walltime"
)

// ownRules are the order and the predictions of a cluster whose configuration names neither PriorityType nor weights.
// They follow the views of one goroutine; other goroutines may read shown priorities. The zero value is ready to use.
type ownRules struct {
	mu    sync.RWMutex // readers take it; the planning goroutine takes it only to refresh
	rules *policy.Policy
	ranks atomic.Pointer[map[string]uint8] // of QOS, from 0 for the least; orders that others keep read it
	gen   uint64                           // generation of the accounts for ranks

	overdue map[string][]model.JobID   // jobs out of patience, by partition, the longest waiting first
	since   map[model.JobID]model.Time // from when; 0: from before this controller led
	epoch   uint64                     // of the order when these were made
	olds    []policy.Old               // that the next refresh takes up
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
			}
			return classQOS + o.rankOf(j)
		}
		o.rules = policy.New(opt)
	}
	if gen := v.AcctGen(); o.ranks.Load() == nil || gen != o.gen {
		ranks := qosRanks(v)
		o.gen = gen
		o.ranks.Store(&ranks)
		o.rules.Reclassify()
	}
	if len(o.olds) > 0 {
		o.rules.Recall(o.olds)
		o.olds = nil
	}
	o.rules.Refresh(v, now)
	if epoch := o.rules.Order().Epoch(); o.since == nil || epoch != o.epoch {
		o.epoch = epoch
		o.noteOverdue(v, now)
	}
}

// recall makes the next refresh take up jobs that ended before this controller led.
func (o *ownRules) recall(list []policy.Old) {
	o.mu.Lock()
	o.olds = list
	o.mu.Unlock()
}

// noteOverdue notes which jobs are out of patience, and from when.
func (o *ownRules) noteOverdue(v *state.View, now model.Time) {
	if o.since == nil {
		now = 0
	}
	was := o.since
	o.overdue, o.since = map[string][]model.JobID{}, map[model.JobID]model.Time{}
	for _, p := range v.Config().Partitions {
		list := slices.DeleteFunc(o.rules.Overdue(p.Name), func(id model.JobID) bool { // these delay no other job
			j := v.Job(id)
			return j == nil || !waitsForRoom(j)
		})
		if len(list) > 0 {
			o.overdue[p.Name] = list
		}
		for _, id := range list {
			at, known := was[id]
			if !known {
				at = now
			}
			o.since[id] = at
		}
	}
}

// waitsForRoom reports whether nothing but room and turn keep a pending job waiting.
func waitsForRoom(j *model.Job) bool {
	switch j.Reason {
	case model.ReasonNone, model.ReasonPriority, model.ReasonResources:
		return state.IsReady(j)
	}
	return false
}

// orderNow refreshes the rules, for the planning goroutine, and gives their order and predictions.
func (o *ownRules) orderNow(v *state.View, now model.Time) (sched.Order, sched.Predict) {
	o.refresh(v, now)
	return o.rules.Order(), o.rules.Predict()
}

// orderThen gives what the planning goroutine plans with, for others, who may keep it.
func (o *ownRules) orderThen(v *state.View, now model.Time) (sched.Order, sched.Predict) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if o.rules == nil { // no pass has been made yet
		return new(ownRules).orderNow(v, now)
	}
	return o.rules.Frozen(now)
}

// says tells in a sentence what these rules do to a pending job: how it stands among the jobs that are out of patience,
// and what its place depends on otherwise. predict gives its planned time.
func (o *ownRules) says(sees *sight, now model.Time, j *model.Job, predict sched.Predict) string {
	v := sees.v
	if len(j.Spec.Partitions) == 0 || v.Partition(j.Spec.Partitions[0]) == nil {
		return ""
	}
	part := v.Partition(j.Spec.Partitions[0]) // jobs count in their first one
	o.mu.RLock()
	list, since := o.overdue[part.Name], o.since[j.ID]
	o.mu.RUnlock()
	if at := slices.Index(list, j.ID); at >= 0 {
		from := "a time before this controller began to lead"
		if since != 0 {
			from = fmt.Sprintf("<t:%d>", int64(since))
		}
		next := "next to start"
		if at > 0 {
			next = fmt.Sprintf("number %d of %d to start", at+1, len(list))
		}
		return fmt.Sprintf("It has been out of patience since %s and is %s in partition %s: until it has started, "+
			"other jobs start there only if they are expected not to delay the first of these.", from, next, part.Name)
	}
	text := fmt.Sprintf("The default order weighs its wait, %s so far, against the time that it is planned with, %s",
		walltime.Short(max(0, int64(now-max(j.Submit, j.Eligible, j.Accrue))/1000)),
		walltime.Limit(planned(predict, j, part, now)))
	text += ", and its size (gbatch-scheduling(7))."
	if len(list) > 0 {
		text += " " + goFirst(sees, list, part.Name)
	}
	return text
}

// goFirst names the jobs that are out of patience; those that have ended or started meanwhile by their number.
func goFirst(sees *sight, list []model.JobID, part string) string {
	name := fmt.Sprint("job ", list[0])
	switch j := sees.v.Job(list[0]); {
	case j != nil && sees.job(j.Spec):
		name = "job " + jobName(j)
	case sees.hides("jobs"):
		name = "another user's job"
	}
	if len(list) == 1 {
		return fmt.Sprintf("%s is out of patience and goes first in partition %s.",
			strings.ToUpper(name[:1])+name[1:], part)
	}
	return fmt.Sprintf("%d jobs of partition %s are out of patience and go first, %s before the others.", len(list),
		part, name)
}

// planned gives the time that a pending job is planned with; unlimited where nothing bounds it.
func planned(predict sched.Predict, j *model.Job, part *model.Partition, now model.Time) (s int64, unlimited bool) {
	s = predict.RuntimeS(j, part.LimitS(j.Spec), now)
	return s, s >= model.Unlimited
}

// rankOf gives the rank of a job's QOS.
func (o *ownRules) rankOf(j *model.Job) uint8 {
	return (*o.ranks.Load())[cmp.Or(j.Spec.QOS, model.DefaultQOS)]
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
	return shownScore(policy.Parts(o.rules.OrderAt(now).Priority(j, p))), true
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
