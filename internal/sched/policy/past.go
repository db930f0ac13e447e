package policy

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Past has how long users' jobs really ran, whatever the order of the cluster is. Two predictions come from it, an
// early and a late one: the queue planned with each gives the range in which a job is likely to start. No job is
// ordered, started or ended by them. Its state is bounded as a Policy's history is. Not safe for concurrent use; a
// Frozen one is never changed.
type Past struct {
	cursor state.Cursor
	cfg    *model.Config
	rooms  map[string]*room
	users  *history
	runs   map[model.JobID]bool // jobs that ran when they were last seen
	now    model.Time
	fresh  bool // no view has been seen
}

// NewPast gives a Past that knows of no job.
func NewPast() *Past {
	return &Past{users: newHistory(), runs: map[model.JobID]bool{}, fresh: true}
}

// Recall adds jobs that ended before the first view, the oldest first.
func (p *Past) Recall(list []Old) { p.users.recall(list) }

// Refresh brings it to a view and a moment.
func (p *Past) Refresh(v *state.View, now model.Time) {
	changes, next, known := v.Changes(p.cursor)
	last := p.now
	p.cursor, p.now = next, now
	if v.Config() != p.cfg {
		p.cfg, p.rooms = v.Config(), rooms(v.Config())
	}
	if !known {
		p.rebuild(v)
		return
	}
	ended := map[model.JobID]bool{} // a job may have several changes
	for _, c := range changes {
		if c.Job == 0 {
			continue
		}
		j := v.Job(c.Job)
		switch {
		case j == nil:
			delete(p.runs, c.Job)
		case j.End == nil && j.Run != nil:
			p.runs[j.ID] = true
		case j.End == nil:
			delete(p.runs, j.ID)
		case p.runs[j.ID], j.End.At > last && !ended[j.ID]: // it may have come and ended since the last view
			p.learn(j)
			delete(p.runs, j.ID)
			ended[j.ID] = true
		}
	}
}

// rebuild derives what runs from the View. The first time, it also learns from the jobs that have ended, later only
// from those that ran when they were last seen.
func (p *Past) rebuild(v *state.View) {
	var ended []*model.Job
	was := p.runs
	p.runs = map[model.JobID]bool{}
	v.Jobs(func(j *model.Job) bool {
		switch {
		case j.End != nil:
			if p.fresh || was[j.ID] {
				ended = append(ended, j)
			}
		case j.Run != nil:
			p.runs[j.ID] = true
		}
		return true
	})
	slices.SortFunc(ended, func(a, b *model.Job) int {
		return cmp.Or(cmp.Compare(a.End.At, b.End.At), cmp.Compare(a.ID, b.ID))
	})
	for _, j := range ended {
		p.learn(j)
	}
	p.fresh = false
}

func (p *Past) learn(j *model.Job) {
	if j.Run == nil || !endedItself(j) {
		return
	}
	if r := p.rooms[j.Run.Partition]; r != nil {
		p.users.learn(j.Spec.UID, ranS(j), j.Run.LimitS, r.share(j.Spec))
	}
}

// Knows reports whether any job has been learnt from.
func (p *Past) Knows() bool { return len(p.users.users) > 0 || len(p.users.kinds) > 0 }

// Frozen gives a copy for readers, who may use it while this one is refreshed.
func (p *Past) Frozen() *Past {
	return &Past{cfg: p.cfg, rooms: p.rooms, users: p.users.clone(), now: p.now}
}

// Early plans each job with the smallest of the parts of their limits that its user's last jobs of the same size and
// limit used, or if there are none, its user's last jobs. For a running job, only the parts count that are larger than
// what it has used of its limit; one that has outlived all of them is taken to be half done. A user of whom no job has
// ended counts with the mean of all users' jobs.
func (p *Past) Early() *Likely { return &Likely{p, false} }

// Late plans each job with the largest of these parts, and with its limit if it has outlived them or if no job of its
// user has ended.
func (p *Past) Late() *Likely { return &Likely{p, true} }

// Work gives how long a whole partition would take to run a waiting job, or each task of a waiting array, seconds times
// WorkUnit: its largest share times the mean of what such jobs of its user took; 0: the partition is not there.
func (p *Past) Work(j *model.Job, part *model.Partition) int64 {
	r := p.rooms[part.Name]
	if r == nil {
		return 0
	}
	share := r.share(j.Spec)
	return share * p.users.planned(j.Spec.UID, limitOf(j.Spec, part), share).usual
}

// WorkUnit is the unit of Work, a part of a second.
const WorkUnit = shareUnit

// Likely is one of Past's predictions, a sched.Predict.
type Likely struct {
	p    *Past
	late bool
}

// Epoch differs between the two predictions and between moments.
func (l *Likely) Epoch() uint64 {
	e := uint64(l.p.now) << 1
	if l.late {
		e++
	}
	return e
}

// RuntimeS gives the seconds from start to end that a job is likely to take, from 1 to its limit.
func (l *Likely) RuntimeS(j *model.Job, limitS int64, now model.Time) int64 {
	age, share := int64(-1), int64(0)
	name := ""
	if j.Run != nil {
		age, name = (int64(now-j.Run.Start)-j.Run.SleepMS)/1000, j.Run.Partition
	} else if len(j.Spec.Partitions) > 0 {
		name = j.Spec.Partitions[0]
	}
	if r := l.p.rooms[name]; r != nil {
		share = r.share(j.Spec)
	}
	if s := l.p.users.between(j.Spec.UID, limitS, share, age, l.late); s > 0 {
		return min(s, limitS)
	}
	for s := int64(maxPlanS); limitS >= model.Unlimited; s *= 2 { // it has outlived all that is known
		if s > age {
			return s
		}
	}
	return limitS
}

// between gives the early or the late planned time of a user's job, of which age seconds have passed (negative: it
// waits); 0: nothing is known of such a job.
func (h *history) between(uid uint32, limitS, share, age int64, late bool) int64 {
	limitS = planLimit(limitS)
	whole := func(part int64) int64 {
		if s := max(1, over(limitS*part, partUnit)); s > age {
			return s
		}
		return 0
	}
	var r *record
	if uid != Nobody {
		if r = h.works[work{uid, limitS, share}]; r == nil {
			r = h.users[uid]
		}
	}
	switch {
	case r == nil && late:
		return 0
	case r == nil && uid == Nobody:
		if m := h.kinds[kindOf(limitS, share)]; m != nil {
			return whole(m.mean / kindFine)
		}
		return 0
	case r == nil && h.all.n > 0:
		return whole(h.all.mean / kindFine)
	case r == nil:
		return 0
	}
	parts := r.parts
	p := parts[:r.n]
	slices.Sort(p)
	for len(p) > 0 && whole(int64(p[0])) == 0 {
		p = p[1:]
	}
	switch {
	case len(p) == 0 && late:
		return 0
	case len(p) == 0:
		return 2 * age
	case late:
		return whole(int64(p[len(p)-1]))
	}
	return whole(int64(p[0]))
}

func (h *history) clone() *history {
	c := &history{users: cloneAll(h.users), works: cloneAll(h.works), kinds: cloneAll(h.kinds), ended: h.ended,
		all: h.all}
	return c
}

func cloneAll[K comparable, V any](m map[K]*V) map[K]*V {
	out := make(map[K]*V, len(m))
	for k, v := range m {
		n := *v
		out[k] = &n
	}
	return out
}
