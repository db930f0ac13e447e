package state

import (
	"fmt"
	"strings"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
)

// Limits bound how many pending jobs gain priority by age at a time: GrpJobsAccrue and MaxJobsAccrue of associations,
// GrpJobsAccrue, MaxJobsAccruePU and MaxJobsAccruePA of a job's QOS (https://slurm.schedmd.com/resource_limits.html).
// An eligible job over such a limit has Accrue = NotAging. It begins to age when another job starts, ends or is held,
// the longest waiting job first. Of an array, as many tasks as there is room for leave the array's record and age.
//
// These limits treat all jobs of one account, user, QOS and partition alike: such jobs are a class, one queue of which
// only the first job is looked at. The class waits for one limit that is reached. An event then costs a look at the
// classes that wait for limits with new room, not at all waiting jobs. If several limits are reached, any of them will
// do: every class that can go on now waits for a limit with new room.

// ages has the jobs that wait to gain priority by age. It is derived, and made anew with the tallies.
type ages struct {
	on      bool // an association or QOS has such a limit
	classes map[who]*ageClass
	limits  map[string]*ageLimit
	counts  map[string][]*ageLimit // limits by the tally that they limit
	fresh   []*ageClass            // classes to look at: their jobs have changed
	opened  []*ageLimit            // limits to look at: fewer jobs age there than before
}

// ageClass has the jobs of one account, user, QOS and partition that are over a limit.
type ageClass struct {
	who    who
	limits []*ageLimit
	jobs   *btree.BTreeG[due] // by Eligible, then number
	at     *ageLimit          // the limit for which it waits; nil: none
	stood  due                // its first job when it began to wait there
	fresh  bool
}

// ageGate is one limit: how many jobs of a tally may age.
type ageLimit struct {
	tally  string
	most   int64
	wait   *btree.BTreeG[ageStand]
	opened bool
}

// ageStand is a class with its first job.
type ageStand struct {
	first due
	class *ageClass
}

func standLess(a, b ageStand) bool { return dueLess(a.first, b.first) }

// AgingOf counts the pending tasks of a record that gain priority by age.
func AgingOf(j *model.Job) int64 {
	if !IsReady(j) || j.Accrue == model.NotAging {
		return 0
	}
	return TasksOf(j)
}

// ageless reports whether a job may start and does not gain priority by age.
func ageless(j *model.Job) bool { return IsReady(j) && j.Accrue == model.NotAging }

func noAges() ages {
	return ages{classes: map[who]*ageClass{}, limits: map[string]*ageLimit{}, counts: map[string][]*ageLimit{}}
}

// makeAges makes the queues anew.
func (s *State) makeAges() {
	s.ages = noAges()
	if s.counting && s.cfg.Params.HoldLimits && s.cfg.Params.Priority.Flags&model.PrioAccrueAlways == 0 {
		s.qos.Scan(func(_ string, q *model.QOS) bool {
			s.ages.on = q.GrpAccrue != 0 || q.MaxAccruePerUser != 0 || q.MaxAccruePerAccount != 0
			return !s.ages.on
		})
		s.ages.on = s.ages.on || s.anyAssoc(func(a *model.Association) bool { return a.GrpAccrue != 0 || a.MaxAccrue != 0 })
	}
	s.jobs.Scan(func(_ model.JobID, j *model.Job) bool {
		s.moveAge(nil, j)
		return true
	})
}

// class gives the class of a job.
func (a *ages) class(s *State, j *model.Job) *ageClass {
	w := whoOf(j)
	c := a.classes[w]
	if c == nil {
		c = &ageClass{who: w, jobs: btree.NewBTreeGOptions(dueLess, noLocks)}
		if a.on {
			c.limits = a.limitsOf(s, w)
		}
		a.classes[w] = c
	}
	return c
}

// limitsOf returns the limits of a class. A limit of the QOS replaces the associations' limits of that kind.
func (a *ages) limitsOf(s *State, w who) []*ageLimit {
	var out []*ageLimit
	limit := func(kind string, l model.Limit, sc Scope, names ...string) {
		most, set := l.Value()
		if !set {
			return
		}
		tally := tallyKey(sc, names...)
		g := a.limits[kind+tally]
		if g == nil {
			g = &ageLimit{tally: tally, most: most, wait: btree.NewBTreeGOptions(standLess, noLocks)}
			a.limits[kind+tally] = g
			a.counts[tally] = append(a.counts[tally], g)
		}
		out = append(out, g)
	}
	r := s.govern(w.account, w.user, w.qos, w.part)
	var q model.QOS
	if own, ok := s.qos.Get(w.qos); ok { // a partition's QOS limits no ages, as in Slurm
		q = *own
	}
	limit("group ", q.GrpAccrue, OfQOS, q.Name)
	limit("account ", q.MaxAccruePerAccount, OfQOSAccount, q.Name, w.account)
	limit("user ", q.MaxAccruePerUser, OfQOSUser, q.Name, w.user)
	if most, set := r.Inherited(func(a *model.Association) model.Limit { return a.MaxAccrue }); set &&
		q.MaxAccruePerUser == 0 {
		limit("each ", model.LimitOf(most), OfAssoc, w.account, w.user, r.Part)
	}
	for i, as := range r.Chain {
		switch {
		case q.GrpAccrue != 0, as.OfPool():
		case i == 0 && r.User:
			limit("group ", as.GrpAccrue, OfAssoc, w.account, w.user, r.Part)
		default:
			limit("group ", as.GrpAccrue, OfAccount, as.Account)
		}
	}
	return out
}

// first gives Accrue for a job that becomes eligible: NotAging, if it has a limit, until letAge finds room.
func (a *ages) first(s *State, j *model.Job) model.Time {
	if a.on && len(a.class(s, j).limits) > 0 {
		return model.NotAging
	}
	return 0
}

// free records that fewer jobs of a tally age.
func (a *ages) free(tally string) {
	for _, g := range a.counts[tally] {
		if !g.opened {
			g.opened = true
			a.opened = append(a.opened, g)
		}
	}
}

// moveAge moves a job between classes when its record changes.
func (s *State) moveAge(old, j *model.Job) {
	was, is := ageless(old), ageless(j)
	if !was && !is || was && is && old.Eligible == j.Eligible && whoOf(old) == whoOf(j) {
		return
	}
	if was {
		c := s.ages.class(s, old)
		c.jobs.Delete(due{old.Eligible, old.ID})
		s.ages.look(c)
	}
	if is {
		c := s.ages.class(s, j)
		c.jobs.Set(due{j.Eligible, j.ID})
		s.ages.look(c)
	}
}

// look marks a class whose jobs have changed.
func (a *ages) look(c *ageClass) {
	if !c.fresh {
		c.fresh = true
		a.fresh = append(a.fresh, c)
	}
}

// leave removes a class from its limit's queue.
func (c *ageClass) leave() {
	if c.at != nil {
		c.at.wait.Delete(ageStand{c.stood, c})
		c.at = nil
	}
}

// stand lets a class wait for a limit.
func (c *ageClass) stand(g *ageLimit) {
	c.leave()
	c.at, c.stood = g, c.head()
	g.wait.Set(ageStand{c.stood, c})
}

func (c *ageClass) head() due {
	d, _ := c.jobs.Min()
	return d
}

// room returns how many more jobs may age under a limit.
func (f *facts) room(g *ageLimit) int64 {
	if t, ok := f.tallies.Get(g.tally); ok {
		return g.most - t.Aging
	}
	return g.most
}

// letAge lets jobs age for which limits have got room since the last call, and reports whether there were any.
func (s *State) letAge(at model.Time) (changed bool) {
	a := &s.ages
	if len(a.fresh) == 0 && len(a.opened) == 0 {
		return false
	}
	todo := btree.NewBTreeGOptions(standLess, noLocks)
	for i := 0; i < len(a.fresh); i++ { // a class that becomes fresh meanwhile is looked at again below
		c := a.fresh[i]
		c.fresh = false
		c.leave()
		if c.jobs.Len() == 0 {
			delete(a.classes, c.who)
		} else {
			todo.Set(ageStand{c.head(), c})
		}
	}
	a.fresh = a.fresh[:0]
	for {
		next, found := todo.Min()
		for _, g := range a.opened {
			if first, some := g.wait.Min(); some && s.room(g) > 0 && (!found || standLess(first, next)) {
				next, found = first, true
			}
		}
		if !found {
			break
		}
		c := next.class
		todo.Delete(next)
		c.leave()
		full, room := s.fullLimit(c)
		if full != nil {
			c.stand(full)
			continue
		}
		s.age(c.head().id, room, at)
		changed = true
		if a.drain(c); c.jobs.Len() > 0 {
			todo.Set(ageStand{c.head(), c})
		} else {
			delete(a.classes, c.who)
		}
	}
	for _, g := range a.opened {
		g.opened = false
	}
	a.opened = a.opened[:0]
	return changed
}

// drain clears the mark of a class that is being looked at.
func (a *ages) drain(c *ageClass) {
	c.fresh = false
	a.fresh = a.fresh[:0]
}

// fullLimit returns the first limit of a class that is reached or, if there is none, how many more jobs may age.
func (s *State) fullLimit(c *ageClass) (full *ageLimit, room int64) {
	room = 1 << 62
	for _, g := range c.limits {
		n := s.room(g)
		if n <= 0 {
			return g, 0
		}
		room = min(room, n)
	}
	return nil, room
}

// age lets a job gain priority by age from now on, or as many tasks of an array as there is room for.
func (s *State) age(id model.JobID, room int64, at model.Time) {
	j, ok := s.jobs.Get(id)
	if !ok {
		return
	}
	n := *j
	if TasksOf(j) > room {
		n = *s.split(j, firstTasks(j.Tasks, int(room)))
	}
	n.Accrue = 0
	if at > n.Eligible {
		n.Accrue = at
	}
	s.put(&n)
	if n.ID != id {
		s.record(&n)
	}
}

// firstTasks gives the first n tasks of a set.
func firstTasks(set model.TaskSet, n int) model.TaskSet {
	out := make([]int32, 0, n)
	set.Each(func(task int32) bool {
		out = append(out, task)
		return len(out) < n
	})
	return model.TaskSetOf(out)
}

// checkAges: every job that does not age has a limit that is full.
func (s *State) checkAges() (err error) {
	s.jobs.Scan(func(id model.JobID, j *model.Job) bool {
		if !ageless(j) {
			return true
		}
		c := s.ages.classes[whoOf(j)]
		if c == nil {
			err = fmt.Errorf("job %d does not age and stands in no queue for it", id)
			return false
		}
		if full, _ := s.fullLimit(c); full == nil {
			err = fmt.Errorf("job %d does not age, and no limit keeps it from that", id)
		}
		return err == nil
	})
	return err
}

// ageLines lists the jobs that wait to age, for checks.
func ageLines(s *State) (out []string) {
	s.jobs.Scan(func(_ model.JobID, j *model.Job) bool {
		if c := s.ages.classes[whoOf(j)]; ageless(j) && c != nil {
			if _, ok := c.jobs.Get(due{j.Eligible, j.ID}); ok {
				out = append(out, fmt.Sprintf("%d of %s: %d", j.ID,
					strings.Join([]string{c.who.account, c.who.user, c.who.qos, c.who.part}, "/"), c.jobs.Len()))
			}
		}
		return true
	})
	return out
}
