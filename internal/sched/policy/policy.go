package policy

import (
	"cmp"
	"math"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Options are the numbers of the policy. The responses to all of them are flat around what Default takes: see DESIGN.md.
type Options struct {
	// PatienceS is how long a job that found an empty queue lets others go first, seconds.
	PatienceS int64
	// BacklogPct is what it waits on top for what it found ahead: per cent of the time which that takes if the partition
	// does nothing else.
	BacklogPct int64
	// EveryS is how often scores follow the time, seconds. 0: at each Refresh, as in the simulator. A long queue is
	// sorted again each time.
	EveryS int64
	// Class gives a job's class, higher first: no score lifts a job above its class. nil: all are of one.
	Class func(j *model.Job) uint8
}

// Policy is the default order and predictions for the views of one State. Not safe for concurrent use.
type Policy struct {
	opt Options

	cursor state.Cursor
	cfg    *model.Config
	fresh  bool // nothing has been seen
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
	waiting int64 // seconds of the whole partition, in shareUnit, that what waits takes
	running map[model.JobID]*entry
	due     dueHeap  // whose patience lasts, soonest end first; who has left is dropped late
	over    []*entry // whose patience has ended, by arrival; who has left is dropped late
	first   *entry   // of them, who goes before all others; nil: there is none
}

// entry is a job that waits or runs.
type entry struct {
	id     model.JobID
	since  model.Time // waits from then on
	start  model.Time // 0: it waits
	uid    uint32
	share  int64 // in shareUnit
	planS  int64 // what it takes at most, as far as its user is known: for order and backlog
	likely int64 // what it takes on average: for overtaking
	limitS int64
	work   int64 // what it adds to part.waiting
	until  model.Time
	weight float64
	class  uint8
	calm   bool // waits for something else than room: it holds nobody up
	gone   bool
	part   *part
}

// Numbers of Default.
const (
	DefaultPatienceS  = 12 * 3600
	DefaultBacklogPct = 75
)

// Default gives the policy of a cluster whose administrator has named none.
func Default() *Policy {
	return New(Options{PatienceS: DefaultPatienceS, BacklogPct: DefaultBacklogPct})
}

// New gives a policy with other numbers.
func New(o Options) *Policy {
	return &Policy{opt: o, fresh: true, users: newHistory(), jobs: map[model.JobID]*entry{}, parts: map[string]*part{}}
}

// Learn tells of a job that ended before the first view: how long it ran and its limit, seconds. Oldest first.
func (p *Policy) Learn(uid uint32, usedS, limitS int64) { p.users.learn(uid, usedS, limitS) }

// Refresh brings the policy to a view and a moment. It costs what has changed since the last view, the running jobs where
// a job has arrived, and nothing for each that waits.
func (p *Policy) Refresh(v *state.View, now model.Time) {
	changes, next, known := v.Changes(p.cursor)
	p.cursor, p.now = next, now
	if !known || v.Config() != p.cfg {
		p.rebuild(v)
	} else {
		p.follow(v, changes)
	}
	turned := false
	for _, q := range p.list {
		turned = p.patience(q) || turned
	}
	if turned || p.opt.EveryS <= 0 && now != p.at || now >= p.at.Add(p.opt.EveryS) {
		p.at = now
		p.epoch++
	}
}

// Reclassify has every job's class asked for again at the next Refresh.
func (p *Policy) Reclassify() { p.cfg = nil }

// rebuild derives everything from the View, but for what users did before: that stays.
func (p *Policy) rebuild(v *state.View) {
	old := p.jobs
	p.cfg = v.Config()
	p.jobs, p.parts, p.list = map[model.JobID]*entry{}, map[string]*part{}, nil
	rs := rooms(p.cfg)
	for _, d := range p.cfg.Partitions {
		q := &part{def: d, room: rs[d.Name], running: map[model.JobID]*entry{}}
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
		for _, j := range ended { // those that ran when last seen
			if e := old[j.ID]; e != nil && e.start != 0 {
				p.learnOf(j)
			}
		}
	}
	p.fresh = false
	slices.SortFunc(here, func(a, b *model.Job) int {
		return cmp.Or(cmp.Compare(waitsFrom(a), waitsFrom(b)), cmp.Compare(a.ID, b.ID))
	})
	for _, j := range here {
		if j.Run != nil {
			p.admit(j)
		}
	}
	for _, j := range here {
		if state.IsReady(j) {
			p.admit(j)
			if e, o := p.jobs[j.ID], old[j.ID]; e != nil && o != nil && o.until != 0 {
				e.until = min(e.until, o.until)
			}
		}
	}
	for _, q := range p.list {
		q.due.sort()
	}
	p.epoch++
	p.round++
}

// follow takes note of what has changed: ends first, then arrivals in order of number.
func (p *Policy) follow(v *state.View, changes []state.Change) {
	var came []*model.Job
	for _, c := range changes {
		if c.Job == 0 {
			continue
		}
		j, e := v.Job(c.Job), p.jobs[c.Job]
		if e != nil && (j == nil || j.End != nil) {
			if j != nil && e.start != 0 {
				p.learnOf(j)
			}
			p.leave(e)
			continue
		}
		switch {
		case j == nil || j.End != nil:
		case j.Run != nil:
			switch {
			case e == nil: // a task of an array, or so short a wait that nobody saw it
				p.admit(j)
			case e.start == 0:
				p.leave(e)
				p.admit(j)
			}
		case state.IsReady(j):
			if e != nil && e.start == 0 && e.since == waitsFrom(j) && e.part == p.partOf(j) && e.limitS == limitOf(j.Spec, e.part.def) && e.share == e.part.room.share(j.Spec) {
				e.calm = !wantsRoom(j)
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
		until := model.Time(0)
		if e := p.jobs[j.ID]; e != nil {
			if e.start == 0 { // changed while it waits: patience is not renewed
				until = e.until
			}
			p.leave(e)
		}
		if p.admit(j); until != 0 {
			if e := p.jobs[j.ID]; e != nil && until < e.until {
				e.until = until
				e.part.due.sort()
			}
		}
	}
}

// learnOf remembers a job that has ended by itself or by its user or limit.
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
		p.users.learn(j.Spec.UID, (int64(j.End.At-from)-j.Run.SleptMS(j.End.At)+999)/1000, j.Run.LimitS)
	}
}

func waitsFrom(j *model.Job) model.Time { return max(j.Submit, j.Eligible) }

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

// partOf gives the partition that a job counts in: where it runs, or the first that it asks for; nil: none is left.
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

// wantsRoom reports whether a job that may start waits for room and nothing else, as far as is known.
func wantsRoom(j *model.Job) bool {
	return j.Reason == model.ReasonNone || j.Reason == model.ReasonPriority || j.Reason == model.ReasonResources
}

// admit begins to count a job that waits or runs.
func (p *Policy) admit(j *model.Job) {
	q := p.partOf(j)
	if q == nil {
		return
	}
	e := &entry{id: j.ID, uid: j.Spec.UID, part: q, share: q.room.share(j.Spec), since: waitsFrom(j)}
	if j.Run != nil {
		e.start, e.limitS = j.Run.Start, j.Run.LimitS
		e.planS, e.likely = p.users.planned(e.uid, e.limitS)
		p.jobs[j.ID] = e
		q.running[j.ID] = e
		return
	}
	e.limitS = limitOf(j.Spec, q.def)
	e.planS, e.likely = p.users.planned(e.uid, e.limitS)
	e.calm = !wantsRoom(j)
	p.rank(e, j)
	e.work = e.workOf(j)
	e.until = e.since.Add(p.patienceS(q) + p.opt.BacklogPct*(e.work-e.share*e.planS)/shareUnit/100)
	p.jobs[j.ID] = e
	q.waiting += e.work
	q.due.push(e)
}

// rank sets what a waiting job's place depends on beside its wait.
func (p *Policy) rank(e *entry, j *model.Job) {
	class := p.classOf(j)
	w := weightOf(e, j.Spec.Nice)
	if e.weight != 0 && (class != e.class || w != e.weight) {
		p.epoch++ // who has just come is asked for anyway
	}
	e.class, e.weight = class, w
}

func (p *Policy) classOf(j *model.Job) uint8 {
	if p.opt.Class == nil {
		return 0
	}
	return p.opt.Class(j)
}

// leave ends counting a job.
func (p *Policy) leave(e *entry) {
	delete(p.jobs, e.id)
	delete(e.part.running, e.id)
	e.part.waiting -= e.work
	e.work, e.gone = 0, true
}

// workOf gives what of its partition's time a waiting job takes, an array with all of its tasks.
func (e *entry) workOf(j *model.Job) int64 {
	one := e.share * e.planS
	return one * min(int64(max(1, j.Tasks.Count())), math.MaxInt64/4/max(one, 1)/1024)
}
