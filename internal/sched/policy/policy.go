package policy

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Options are the numbers of the policy. DESIGN.md has what other numbers give.
type Options struct {
	// LongestPct is how long a job waits before it goes first, per cent of the longest wait that order of arrival would
	// have given to anybody lately.
	LongestPct int64
	// LeastS is how long it waits in any case, seconds.
	LeastS int64
	// LatelyS is how long ago the longest wait may be, seconds.
	LatelyS int64
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
	line    *line  // the schedule in order of arrival
	arrived bool   // jobs have come since line was played
	boundMS int64  // patience: a job that has waited for longer goes first
	head    *entry // pending jobs, by arrival
	tail    *entry
	first   *entry   // the job that goes before all others because its patience has ended; nil: there is none
	guesses []*entry // jobs that have started by a guess since first is the first
	strict  bool     // one of them has run longer than guessed: until first has started, nobody overtakes by a guess
}

// entry is a job that waits or runs.
type entry struct {
	id     model.JobID
	since  model.Time // its wait begins then
	idle   bool       // a limit (GrpJobsAccrue, ...) keeps its wait from counting
	start  model.Time // 0: it waits
	uid    uint32
	need   amounts
	share  int64 // its largest, in shareUnit
	plan   forecast
	limitS int64
	guessS int64 // of a running job that overtook by a guess while a job was out of patience: the guess; 0: the others
	weight float64
	class  uint8
	calm   bool // it waits for something other than room: it delays no other job
	part   *part

	// Its neighbours in the list of pending jobs.
	prev, next *entry
}

// Numbers of Default.
const (
	DefaultLongestPct = 140
	DefaultLeastS     = 24 * 3600
	DefaultLatelyS    = 30 * 86400
)

// Standard gives the numbers of Default.
func Standard() Options {
	return Options{LongestPct: DefaultLongestPct, LeastS: DefaultLeastS, LatelyS: DefaultLatelyS}
}

// Default gives the policy of a cluster whose administrator configures none.
func Default() *Policy { return New(Standard()) }

// New gives a policy with other numbers.
func New(o Options) *Policy {
	return &Policy{opt: o, fresh: true, users: newHistory(), jobs: map[model.JobID]*entry{}, parts: map[string]*part{}}
}

// Recall adds jobs that ended before the first view, the oldest first. Jobs that wait are planned anew with the next
// Refresh.
func (p *Policy) Recall(list []Old) {
	p.users.recall(list)
	p.cfg = nil
}

// Refresh brings the policy to a view and a moment. It looks at the changes since the last view and plays the schedules
// in order of arrival up to the moment.
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
	for _, q := range p.list {
		turned = p.patience(q) || turned
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
	old, peaks := p.jobs, map[string][]peak{}
	for _, q := range p.list {
		peaks[q.def.Name] = q.line.peaks
	}
	p.cfg = v.Config()
	p.jobs, p.parts, p.list = map[model.JobID]*entry{}, map[string]*part{}, nil
	rs := rooms(p.cfg)
	for _, d := range p.cfg.Partitions {
		q := &part{def: d, room: rs[d.Name], line: newLine(peaks[d.Name])}
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
		if j.Run != nil || state.IsReady(j) {
			p.join(j, true)
		}
	}
	for _, q := range p.list {
		if q.head != nil && p.fresh { // under the last leader, hardly any job has outlasted its patience
			q.line.note(p.now, int64(p.now-q.head.since)/10/max(1, p.opt.LongestPct))
		}
	}
	p.fresh = false
	p.epoch++
	p.round++
}

// gone removes a job that has ended. It may have started and ended since the last view.
func (p *Policy) gone(e *entry, j *model.Job) {
	p.leave(e)
	if j == nil || j.Run == nil {
		e.part.line.withdraw(e.id)
		return
	}
	e.part.line.ended(e.id, p.learnOf(j), p.now)
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
				if e = p.join(j, false); e != nil {
					e.guess(e.plan.safe)
				}
			case e.start == 0:
				p.leave(e)
				n := e
				if e.part == p.partOf(j) {
					e.part.line.begins(e.id, j.Run.Start)
					n = p.admit(j)
				} else {
					e.part.line.withdraw(e.id)
					n = p.join(j, false)
				}
				if n != nil {
					n.guess(n.plan.safe)
				}
			}
		case state.IsReady(j):
			if e != nil && e.start == 0 && e.since == waitsFrom(j) && e.idle == (j.Accrue == model.NotAging) &&
				e.part == p.partOf(j) && e.limitS == limitOf(j.Spec, e.part.def) && e.share == e.part.room.share(j.Spec) {
				e.calm = e.idle || !wantsRoom(j)
				p.rank(e, j)
				continue
			}
			came = append(came, j)
		case e != nil: // held, or requeued
			p.leave(e)
			e.part.line.withdraw(e.id)
		}
	}
	slices.SortFunc(came, func(a, b *model.Job) int { return cmp.Compare(a.ID, b.ID) })
	for i, j := range came {
		if i > 0 && came[i-1].ID == j.ID {
			continue
		}
		if e := p.jobs[j.ID]; e != nil {
			p.leave(e)
			if q := p.partOf(j); q != e.part || e.start != 0 {
				e.part.line.withdraw(e.id)
			}
		}
		p.join(j, false)
	}
}

// learnOf adds a job to its user's history if it ended by itself, by its user or by its limit. It gives the seconds
// that the job ran.
func (p *Policy) learnOf(j *model.Job) int64 {
	if j.Run == nil || j.End == nil {
		return 0
	}
	usedS := ranS(j)
	if endedItself(j) {
		if q := p.partOf(j); q != nil {
			p.users.learn(j.Spec.UID, usedS, j.Run.LimitS, q.room.share(j.Spec))
		}
	}
	return usedS
}

// ranS gives how long a job that has ended ran, seconds.
func ranS(j *model.Job) int64 {
	from := j.Run.Start
	if j.Run.Launched != 0 {
		from = j.Run.Launched
	}
	return (int64(j.End.At-from) - j.Run.SleptMS(j.End.At) + 999) / 1000
}

// endedItself reports whether a job ended by itself, by its user or by its limit.
func endedItself(j *model.Job) bool {
	switch j.State {
	case model.Completed, model.Failed, model.Timeout, model.Cancelled, model.OutOfMemory:
		return true
	}
	return false
}

// waitsFrom gives the moment from which a job's wait counts.
func waitsFrom(j *model.Job) model.Time { return max(j.Submit, j.Eligible, j.Accrue) }

// limitOf gives a job's time limit in a partition, seconds.
func limitOf(sp *model.Spec, d *model.Partition) int64 {
	if sp.LimitS != model.NotSet {
		return sp.LimitS
	}
	return d.TimeS()
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
	e := &entry{id: j.ID, uid: j.Spec.UID, part: q, need: q.room.amounts(j.Spec), since: waitsFrom(j)}
	e.share, e.limitS = e.need.share(), limitOf(j.Spec, q.def)
	if j.Run != nil {
		e.start, e.limitS = j.Run.Start, j.Run.LimitS
	}
	e.plan = p.users.planned(e.uid, e.limitS, e.share)
	p.jobs[j.ID] = e
	if j.Run != nil {
		return e
	}
	e.idle = j.Accrue == model.NotAging
	e.calm = e.idle || !wantsRoom(j)
	p.rank(e, j)
	q.enlist(e)
	return e
}

// join admits a job that has come, also to its partition's schedule in order of arrival. There, an array stands for its
// tasks. old: that schedule begins.
func (p *Policy) join(j *model.Job, old bool) *entry {
	e := p.admit(j)
	if e == nil || j.Run != nil && j.ArrayID != 0 && p.jobs[j.ArrayID] != nil {
		return e
	}
	limitS := planLimit(e.limitS)
	e.part.line.arrive(&guest{id: e.id, since: e.since, old: old, begun: e.start, need: e.need, limitS: limitS, ranS: -1,
		planS: max(1, min(limitS, e.plan.usual*planPct/100)), tasks: int64(max(1, j.Tasks.Count()))}, p.now)
	e.part.arrived = true
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
	if e.start == 0 {
		e.part.delist(e)
	}
}
