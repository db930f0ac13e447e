package policy

import (
	"cmp"
	"math"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Options are the numbers of the policy. Around the values of Default, results hardly depend on them: see DESIGN.md.
type Options struct {
	// GrantS is how much work of later jobs a job lets pass, seconds of the whole partition.
	GrantS int64
	// GrantPct is added to that: per cent of the work that earlier jobs have had in the same time.
	GrantPct int64
	// PatienceS is how long a job that found an empty queue waits at most before it goes first, seconds.
	PatienceS int64
	// BacklogPct is added to that for the work that the job found ahead: per cent of the time that this work takes if
	// the partition does nothing else.
	BacklogPct int64
	// EveryS is the interval at which scores are computed anew, seconds. 0: at each Refresh, as in the simulator. Each
	// time a long queue is sorted again.
	EveryS int64
	// Class gives a job's class, higher first: no score lifts a job above its class. nil: all jobs have the same class.
	Class func(j *model.Job) uint8
}

// Policy is the default order and predictions for the views of one State. Not safe for concurrent use.
type Policy struct {
	opt Options

	cursor state.Cursor
	cfg    *model.Config
	fresh  bool // no view has been seen
	parts  map[string]*part
	list   []*part // in the configuration's order
	jobs   map[model.JobID]*entry
	users  *history

	now   model.Time
	at    model.Time // the moment of the scores
	epoch uint64     // of the order
	round uint64     // of the predictions
}

// part is a partition's queue.
type part struct {
	def     *model.Partition
	room    *room
	waiting int64 // work of pending jobs: seconds of the whole partition, in shareUnit
	begun   int64 // and of all jobs that have started
	running map[model.JobID]*entry
	head    *entry // pending jobs, by arrival
	tail    *entry
	first   *entry   // the job that goes before all others because its patience has ended; nil: there is none
	guesses []*entry // jobs that have started by a guess since first is the first
	strict  bool     // one of them has run longer than guessed: until first has started, nobody overtakes by a guess

	left     int64 // work that running jobs still had to do at summedAt, in shareUnit; see ahead
	summedAt model.Time
	summed   bool // running has not changed since then
}

// entry is a job that waits or runs.
type entry struct {
	id     model.JobID
	since  model.Time // its wait begins then
	idle   bool       // a limit (GrpJobsAccrue, ...) keeps its wait from counting
	start  model.Time // 0: it waits
	uid    uint32
	share  int64 // in shareUnit
	plan   forecast
	limitS int64
	guessS int64 // of a running job that overtook by a guess while a job was out of patience: the guess; 0: the others
	work   int64 // its part of part.waiting
	weight float64
	class  uint8
	calm   bool // it waits for something other than room: it delays no other job
	part   *part

	// For a pending job.
	until      model.Time // its patience ends then at the latest
	over       bool       // its patience has ended
	left       int64      // work of the jobs that ran when it came
	begunAt    int64      // part.begun when it came
	noted      int64      // work of started jobs that came after it and before the next job in the list
	base       int64      // part of the notes from here to the tail that does not count for it
	prev, next *entry
}

// Numbers of Default.
const (
	DefaultGrantS     = 12 * 3600
	DefaultGrantPct   = 50
	DefaultPatienceS  = 24 * 3600
	DefaultBacklogPct = 200
)

// Standard gives the numbers of Default.
func Standard() Options {
	return Options{GrantS: DefaultGrantS, GrantPct: DefaultGrantPct, PatienceS: DefaultPatienceS,
		BacklogPct: DefaultBacklogPct}
}

// Default gives the policy of a cluster whose administrator configures none.
func Default() *Policy { return New(Standard()) }

// New gives a policy with other numbers.
func New(o Options) *Policy {
	return &Policy{opt: o, fresh: true, users: newHistory(), jobs: map[model.JobID]*entry{}, parts: map[string]*part{}}
}

// Learn adds a job that ended before the first view: how long it ran and its limit, seconds. Call it for the oldest job
// first. It ignores jobs of Nobody.
func (p *Policy) Learn(uid uint32, usedS, limitS int64) {
	if uid != Nobody {
		p.users.learn(uid, usedS, limitS, 0)
	}
}

// Refresh brings the policy to a view and a moment. It looks at the changes since the last view, at the running jobs if
// a job has arrived and, every Options.EveryS or when the first job has started, briefly at each pending job.
func (p *Policy) Refresh(v *state.View, now model.Time) {
	changes, next, known := v.Changes(p.cursor)
	last := p.now
	p.cursor, p.now = next, now
	if !known || v.Config() != p.cfg {
		p.rebuild(v)
	} else {
		p.follow(v, last, changes)
	}
	turned := false
	look := p.opt.EveryS <= 0 || now >= p.at.Add(p.opt.EveryS)
	for _, q := range p.list {
		if f := q.first; look || f != nil && (f.calm || p.jobs[f.id] != f) {
			turned = p.patience(q) || turned
		}
		p.watch(q)
	}
	if turned || p.opt.EveryS <= 0 && now != p.at || now >= p.at.Add(p.opt.EveryS) {
		p.at = now
		p.epoch++
	}
}

// Reclassify makes the next Refresh ask for every job's class again.
func (p *Policy) Reclassify() { p.cfg = nil }

// rebuild derives everything from the View, except for users' histories, which stay.
func (p *Policy) rebuild(v *state.View) {
	old, begun, overtaken := p.jobs, map[string]int64{}, map[model.JobID]int64{}
	for _, q := range p.list {
		begun[q.def.Name] = q.begun
		q.overtaken(overtaken)
	}
	p.cfg = v.Config()
	p.jobs, p.parts, p.list = map[model.JobID]*entry{}, map[string]*part{}, nil
	rs := rooms(p.cfg)
	for _, d := range p.cfg.Partitions {
		q := &part{def: d, room: rs[d.Name], running: map[model.JobID]*entry{}, begun: begun[d.Name]}
		p.parts[d.Name] = q
		p.list = append(p.list, q)
	}
	var ended, here []*model.Job
	v.Jobs(func(j *model.Job) bool {
		switch {
		case j.End != nil:
			ended = append(ended, j)
		default:
			here = append(here, j)
		}
		return true
	})
	if p.fresh {
		slices.SortFunc(ended, func(a, b *model.Job) int {
			return cmp.Or(cmp.Compare(a.End.At, b.End.At), cmp.Compare(a.ID, b.ID))
		})
		for _, j := range ended {
			p.learnOf(j)
		}
	} else {
		for _, j := range ended { // jobs that waited or ran when last seen
			if old[j.ID] != nil {
				p.learnOf(j)
			}
		}
	}
	slices.SortFunc(here, func(a, b *model.Job) int {
		return cmp.Or(cmp.Compare(waitsFrom(a), waitsFrom(b)), cmp.Compare(a.ID, b.ID))
	})
	for _, j := range here {
		if j.Run != nil {
			p.admit(j)
		}
	}
	for _, j := range here {
		e, o := p.jobs[j.ID], old[j.ID]
		switch {
		case e != nil && o != nil && o.start == 0: // has started meanwhile
			e.part.begins(e.part.tail, o.share*o.plan.likely)
		case e != nil && o == nil: // a running job has overtaken the pending jobs that came before it
			e.part.begins(e.part.tail, e.share*e.plan.likely)
		case state.IsReady(j):
			p.admit(j)
			if e = p.jobs[j.ID]; e != nil && o != nil && o.start == 0 {
				e.resume(o, overtaken[j.ID])
			}
		}
	}
	p.fresh = false
	p.epoch++
	p.round++
}

// gone removes a job that has ended. It may have started and ended since the last view.
func (p *Policy) gone(e *entry, j *model.Job) {
	q, before, waited := e.part, e.prev, e.start == 0
	p.leave(e)
	if j == nil || j.Run == nil {
		return
	}
	p.learnOf(j)
	if waited {
		q.begins(before, e.share*e.plan.likely)
	}
}

// follow processes the changes since the last view, of the moment last: ends first, then arrivals in order of number.
func (p *Policy) follow(v *state.View, last model.Time, changes []state.Change) {
	var came []*model.Job
	ended := map[model.JobID]bool{} // a job may have several changes
	for _, c := range changes {
		if c.Job == 0 {
			continue
		}
		j, e := v.Job(c.Job), p.jobs[c.Job]
		switch {
		case e != nil && (j == nil || j.End != nil):
			p.gone(e, j)
			ended[c.Job] = true
		case j == nil:
		case j.End != nil:
			if j.End.At > last && !ended[c.Job] { // it came and ended since the last view
				p.learnOf(j)
				ended[c.Job] = true
			}
		case j.Run != nil:
			switch {
			case e == nil: // a task of an array, or so short a wait that nobody saw it
				if e = p.admit(j); e != nil {
					e.part.begins(p.before(e, j.ArrayID), e.share*e.plan.likely)
					e.guess(e.plan.safe)
				}
			case e.start == 0:
				q, before, work := e.part, e.prev, e.share*e.plan.likely
				p.leave(e)
				q.begins(before, work)
				if n := p.admit(j); n != nil {
					n.guess(e.plan.safe)
				}
			}
		case state.IsReady(j):
			if e != nil && e.start == 0 && e.since == waitsFrom(j) && e.idle == (j.Accrue == model.NotAging) &&
				e.part == p.partOf(j) && e.limitS == limitOf(j.Spec, e.part.def) && e.share == e.part.room.share(j.Spec) {
				e.calm = e.idle || !wantsRoom(j)
				p.rank(e, j)
				if w := e.workOf(j); w != e.work {
					e.part.waiting += w - e.work
					e.work = w
				}
				continue
			}
			came = append(came, j)
		case e != nil:
			p.leave(e)
		}
	}
	slices.SortFunc(came, func(a, b *model.Job) int { return cmp.Compare(a.ID, b.ID) })
	for i, j := range came {
		if i > 0 && came[i-1].ID == j.ID {
			continue
		}
		e := p.jobs[j.ID]
		if e == nil {
			p.admit(j)
			continue
		}
		overtaken := int64(0)
		if e.start == 0 {
			overtaken = e.overtaken()
		}
		p.leave(e)
		// changed while pending: its patience does not begin anew
		if n := p.admit(j); n != nil && e.start == 0 && n.part == e.part && !e.idle {
			n.resume(e, overtaken)
		}
	}
}

// resume gives a pending job the patience that it had before it was admitted again.
func (e *entry) resume(o *entry, overtaken int64) {
	e.until, e.over = min(e.until, o.until), o.over
	e.left, e.begunAt = o.left, o.begunAt
	e.base -= overtaken
}

// learnOf adds a job to its user's history if it ended by itself, by its user or by its limit.
func (p *Policy) learnOf(j *model.Job) {
	if j.Run == nil || j.End == nil {
		return
	}
	switch j.State {
	case model.Completed, model.Failed, model.Timeout, model.Cancelled, model.OutOfMemory:
		from := j.Run.Start
		if j.Run.Launched != 0 {
			from = j.Run.Launched
		}
		q := p.partOf(j)
		if q == nil {
			return
		}
		usedS := (int64(j.End.At-from) - j.Run.SleptMS(j.End.At) + 999) / 1000
		p.users.learn(j.Spec.UID, usedS, j.Run.LimitS, q.room.share(j.Spec))
	}
}

// waitsFrom gives the moment from which a job's wait counts.
func waitsFrom(j *model.Job) model.Time { return max(j.Submit, j.Eligible, j.Accrue) }

// limitOf gives a job's time limit in a partition, seconds.
func limitOf(sp *model.Spec, d *model.Partition) int64 {
	switch {
	case sp.LimitS != model.NotSet:
		return sp.LimitS
	case d.DefTimeS != model.NotSet:
		return d.DefTimeS
	case d.MaxTimeS != model.NotSet:
		return d.MaxTimeS
	}
	return model.Unlimited
}

// partOf gives the partition that a job counts in: where it runs, or the first that it asks for; nil: the configuration
// has none of them.
func (p *Policy) partOf(j *model.Job) *part {
	if j.Run != nil {
		return p.parts[j.Run.Partition]
	}
	for _, name := range j.Spec.Partitions {
		if q := p.parts[name]; q != nil {
			return q
		}
	}
	return nil
}

// wantsRoom reports whether a job that may start waits only for room, as far as its reason tells.
func wantsRoom(j *model.Job) bool {
	return j.Reason == model.ReasonNone || j.Reason == model.ReasonPriority || j.Reason == model.ReasonResources
}

// admit adds an entry for a pending or running job; nil: its partition is gone.
func (p *Policy) admit(j *model.Job) *entry {
	q := p.partOf(j)
	if q == nil {
		return nil
	}
	e := &entry{id: j.ID, uid: j.Spec.UID, part: q, share: q.room.share(j.Spec), since: waitsFrom(j)}
	if j.Run != nil {
		e.start, e.limitS = j.Run.Start, j.Run.LimitS
		e.plan = p.users.planned(e.uid, e.limitS, e.share)
		p.jobs[j.ID] = e
		q.running[j.ID], q.summed = e, false
		return e
	}
	e.limitS = limitOf(j.Spec, q.def)
	e.plan = p.users.planned(e.uid, e.limitS, e.share)
	e.idle = j.Accrue == model.NotAging
	e.calm = e.idle || !wantsRoom(j)
	p.rank(e, j)
	e.work = e.workOf(j)
	left, waiting := q.ahead(p.now)
	e.left, e.begunAt = left, q.begun
	ahead := left + waiting + e.work - e.share*e.plan.likely // an array's other tasks are ahead of its last one
	e.until = e.since.Add(p.opt.PatienceS + ahead/shareUnit*p.opt.BacklogPct/100)
	p.jobs[j.ID] = e
	q.waiting += e.work
	q.enlist(e)
	return e
}

// rank sets what a pending job's place depends on besides its wait: class and weight.
func (p *Policy) rank(e *entry, j *model.Job) {
	class := p.classOf(j)
	w := weightOf(e, j.Spec.Nice)
	if e.weight != 0 && (class != e.class || w != e.weight) {
		p.epoch++ // for a job that has just come, the planner asks anyway
	}
	e.class, e.weight = class, w
}

func (p *Policy) classOf(j *model.Job) uint8 {
	if p.opt.Class == nil {
		return 0
	}
	return p.opt.Class(j)
}

// leave removes a job's entry.
func (p *Policy) leave(e *entry) {
	delete(p.jobs, e.id)
	if e.start != 0 {
		delete(e.part.running, e.id)
		e.part.summed = false
	}
	e.part.waiting -= e.work
	e.work = 0
	if e.start == 0 {
		e.part.delist(e)
	}
}

// workOf gives a pending job's work, of an array the work of all its tasks.
func (e *entry) workOf(j *model.Job) int64 {
	one := e.share * e.plan.likely
	return one * min(int64(max(1, j.Tasks.Count())), math.MaxInt64/4/max(one, 1)/1024)
}
