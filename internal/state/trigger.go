package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tidwall/btree"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/trail"
	"gbatch/internal/wire"
)

// trigger.go keeps triggers. What a command does to jobs, nodes and the configuration is gathered while it is applied
// (stirs), and given to the triggers that are about it at its end. What is no fact by itself, time that passes and how
// the daemons are, the leader tells by a command. A trigger with something that has happened (Hits) waits for the
// leader to run its program; that it ran is told by a command too, so the next leader runs it if it is not known to
// have ended.
//
// A program may set a trigger like its own for what happens next. Nothing is lost between the two: the first one
// gathers on while its program runs and rearmS longer, and gives what it has to the second.

// TriggerOp says what a Triggers does. The numbers are stored: append only.
type TriggerOp uint8

// The operations.
const (
	SetTrigger   TriggerOp = iota + 1 // Set; with Seen if it is about daemons
	DropTriggers                      // IDs
	HitTriggers                       // Hits: what has come with time
	RanTriggers                       // Ran
	SeeDaemons                        // Seen is how the daemons are now
	Reconfigured                      // the configuration was read, and is what it was
)

// Triggers is one change of triggers.
type Triggers struct {
	Op   TriggerOp
	Set  *model.Trigger
	IDs  []uint32
	Hits []TimeHit
	Ran  []TriggerRan
	Seen *model.Daemons
}

func (x *Triggers) Wire(c *wire.C) {
	wire.Int(c, &x.Op)
	wire.Ptr(c, &x.Set)
	wire.Ints(c, &x.IDs, model.MaxList)
	wire.List(c, &x.Hits, model.MaxList)
	wire.List(c, &x.Ran, model.MaxList)
	wire.Ptr(c, &x.Seen)
}

// TimeHit says that time has come for a trigger: its job's limit is near, or nodes have been idle for long enough.
type TimeHit struct {
	ID    uint32
	Nodes []string
	By    model.Time // the leader looked at this moment
}

func (x *TimeHit) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Texts(c, &x.Nodes, model.MaxList, model.MaxName)
	wire.Int(c, &x.By)
}

// TriggerRan says that a trigger's program has ended, which was told what had happened up to some generation of the
// facts.
type TriggerRan struct {
	ID  uint32
	Gen uint64
	Why string // why the program was not run; "": it was
}

func (x *TriggerRan) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Int(c, &x.Gen)
	wire.Text(c, &x.Why, model.MaxName)
}

func (*Triggers) kind() Kind { return KindTriggers }

// Bounds of triggers. Those of root and SlurmUser don't count for others.
const (
	MaxTriggersEach  = 256  // of one user
	MaxTriggersUsers = 4096 // of all users but root and SlurmUser
	MaxTriggersRoot  = 1024 // of root, and of SlurmUser

	// MaxTriggerOffsetS bounds an offset, seconds.
	MaxTriggerOffsetS = 365 * 86400
	// MaxTriggerNodes bounds a list of nodes, bytes.
	MaxTriggerNodes = 16 << 10
	// MaxTriggerProgram bounds a program with its arguments, bytes.
	MaxTriggerProgram = 1024

	gatherS = 2  // between a node's event and the program: others' events come with it
	rearmS  = 15 // in which a trigger like one that is over takes over what has happened
	againS  = 15 // between two runs of a permanent trigger's program
)

func validTriggers(x *Triggers) error {
	t := x.Set
	switch {
	case (x.Op == SetTrigger) != (t != nil):
		return malformed("operation %d of triggers with or without a trigger", x.Op)
	case t != nil && (t.Events == 0 || t.Events&^t.Of.Events() != 0 || (t.Of == model.TriggerJob) != (t.Job != 0) ||
		t.Nodes != "" && t.Of != model.TriggerNode):
		return malformed("a trigger about %s with events %s", t.Of, t.Events)
	case t != nil && (len(t.Program) == 0 || t.Program[0] != '/' || len(t.Program) > MaxTriggerProgram):
		return malformed("a trigger whose program is %.80q", t.Program)
	case t != nil && len(t.Nodes) > MaxTriggerNodes:
		return malformed("a trigger whose nodes take %d bytes", len(t.Nodes))
	case t != nil && (t.OffsetS > MaxTriggerOffsetS || t.OffsetS < -MaxTriggerOffsetS):
		return malformed("a trigger with an offset of %d s", t.OffsetS)
	case x.Op == SeeDaemons && x.Seen == nil:
		return malformed("news of daemons without them")
	}
	if t != nil && t.Nodes != "" {
		if _, err := hostlist.Count(t.Nodes); err != nil {
			return malformed("a trigger about nodes %.80q: %v", t.Nodes, err)
		}
	}
	return nil
}

// triggers are the triggers' part of the facts.
type triggers struct {
	all  *btree.Map[uint32, *model.Trigger]
	next uint32
	seen *model.Daemons // nil: no leader has looked yet
}

func newTriggers() triggers { return triggers{all: new(btree.Map[uint32, *model.Trigger]), next: 1} }

// stirs gathers what the command under way has done that triggers may be about. It is empty between Applies.
type stirs struct {
	nodes   []model.TriggerHit // Gen is not set
	jobs    map[model.JobID]model.TriggerEvents
	held    map[model.JobID]map[string]bool // nodes that jobs with triggers had before the command, or have
	alloc   map[model.JobID]*model.Alloc    // the last one that held has
	gone    []model.JobID                   // records that were removed
	reread  bool                            // the configuration was read
	daemons []model.TriggerHit
}

// stirNode gathers what has become of a node.
func (s *State) stirNode(old, n *model.Node) {
	if s.triggers.all.Len() == 0 {
		return
	}
	if old == nil {
		old = &model.Node{Def: n.Def}
	}
	was, _, _ := down(old)
	is, _, _ := down(n)
	var e model.TriggerEvents
	on := func(event model.TriggerEvents, yes bool) {
		if yes {
			e |= event
		}
	}
	drained := func(n *model.Node) bool { return n.Admin == model.NodeDrain && len(n.Jobs) == 0 }
	draining := func(n *model.Node) bool { return n.Admin == model.NodeDrain && len(n.Jobs) > 0 }
	on(model.OnDown, is == trail.Down && was != trail.Down)
	on(model.OnUp, is == "" && was == trail.Down)
	on(model.OnResume, is == "" && was != "")
	on(model.OnDrained, drained(n) && !drained(old))
	on(model.OnDraining, draining(n) && !draining(old) && !drained(old))
	on(model.OnFail, n.Failing && !old.Failing)
	if e != 0 {
		s.stirs.nodes = append(s.stirs.nodes, model.TriggerHit{Name: n.Def.Name, Events: e})
	}
}

// stirJob gathers what has become of a job with triggers.
func (s *State) stirJob(old, j *model.Job, e model.TriggerEvents) {
	if len(s.jobTriggers) == 0 {
		return
	}
	for _, id := range [...]model.JobID{j.ID, j.ArrayID} {
		if len(s.jobTriggers[id]) == 0 {
			continue
		}
		if j.State.Finished() && (old == nil || !old.State.Finished()) {
			e |= model.OnFini
		}
		if s.stirs.jobs == nil {
			s.stirs.jobs = map[model.JobID]model.TriggerEvents{}
		}
		s.stirs.jobs[id] |= e
		if old != nil && old.Run != nil {
			s.stirs.hold(id, old.Run.Alloc)
		}
	}
}

// hold notes the nodes of a job.
func (st *stirs) hold(id model.JobID, a *model.Alloc) {
	if st.alloc[id] == a {
		return
	}
	if st.held == nil {
		st.held, st.alloc = map[model.JobID]map[string]bool{}, map[model.JobID]*model.Alloc{}
	}
	if st.held[id] == nil {
		st.held[id] = map[string]bool{}
	}
	st.alloc[id] = a
	for i := range a.Nodes {
		st.held[id][a.Nodes[i].Node] = true
	}
}

// pull gives the triggers what the command that is over has done.
func (s *State) pull(at model.Time) {
	st := s.stirs
	if len(st.nodes) == 0 && len(st.jobs) == 0 && len(st.gone) == 0 && len(st.daemons) == 0 && !st.reread {
		return
	}
	s.stirs = stirs{}
	slices.SortStableFunc(st.nodes, func(a, b model.TriggerHit) int { return cmp.Compare(a.Name, b.Name) })
	var all model.TriggerEvents
	for i := range st.nodes {
		all |= st.nodes[i].Events
	}
	if len(st.nodes) > 0 || len(st.daemons) > 0 || st.reread {
		s.triggers.all.Scan(func(_ uint32, t *model.Trigger) bool {
			switch t.Of {
			case model.TriggerJob:
				if t.Events&all != 0 || st.jobs[t.Job] != 0 {
					s.hitJob(t, &st, at)
				}
			case model.TriggerNode:
				var hits []model.TriggerHit
				if t.Events&all != 0 {
					hits = t.Among(st.nodes)
				}
				if st.reread {
					hits = slices.Insert(slices.Clip(hits), 0, model.TriggerHit{Events: model.OnReconfig})
				}
				s.hit(t, hits, at)
			case model.TriggerCtld, model.TriggerDbd, model.TriggerDatabase:
				s.hit(t, st.daemons, at)
			}
			return true
		})
	} else {
		for _, id := range slices.Sorted(maps.Keys(st.jobs)) {
			for _, t := range s.triggersOf(id) {
				s.hitJob(t, &st, at)
			}
		}
	}
	for _, id := range st.gone {
		if s.known(id) {
			continue
		}
		for _, t := range s.triggersOf(id) {
			if len(t.Hits) == 0 || t.Spent != 0 {
				s.dropTrigger(t)
			}
		}
	}
}

// known reports whether there is a record of a job, or of an array's tasks.
func (s *State) known(id model.JobID) bool {
	_, job := s.jobs.Get(id)
	_, array := s.arrays.Get(id)
	return job || array
}

// triggersOf gives the triggers of a job.
func (s *State) triggersOf(id model.JobID) (out []*model.Trigger) {
	for _, n := range s.jobTriggers[id] {
		if t, ok := s.triggers.all.Get(n); ok {
			out = append(out, t)
		}
	}
	return out
}

// hitJob gives a job's trigger what has become of the job and of the nodes that it has, or had before the command.
func (s *State) hitJob(t *model.Trigger, st *stirs, at model.Time) {
	var hits []model.TriggerHit
	e := st.jobs[t.Job]
	if a, ok := s.arrays.Get(t.Job); ok && a.Done < a.Total {
		e &^= model.OnFini
	}
	j, _ := s.jobs.Get(t.Job)
	if e&model.OnTime != 0 && t.OffsetS < 0 && (j == nil || j.Run == nil || t.Looked >= j.Run.Start) {
		e &^= model.OnTime // it was told of the limit before
	}
	if e != 0 {
		hits = append(hits, model.TriggerHit{Events: e})
	}
	if len(st.nodes) > 0 {
		if j != nil && j.Run != nil {
			st.hold(t.Job, j.Run.Alloc)
		}
		held := st.held[t.Job]
		hits = append(hits, model.HitsOf(st.nodes, func(name string) bool { return held[name] })...)
	}
	s.hit(t, hits, at)
}

// hit adds what has happened to a trigger, as far as it is about that. hits are in order of name.
func (s *State) hit(t *model.Trigger, hits []model.TriggerHit, at model.Time) {
	if _, heir := s.triggers.all.Get(t.Heir); heir || t.Off != "" {
		return // it is the other one's, or nobody's
	}
	var list []model.TriggerHit
	for _, h := range hits {
		h.Events, h.Gen = h.Events&t.Events, s.gen
		if h.Events != 0 && len(list) < model.MaxList {
			list = append(list, h)
		}
	}
	if len(list) == 0 {
		return
	}
	n := *t
	if len(n.Hits) == 0 {
		n.Due = s.dueAt(&n, at)
	}
	n.Hits = model.MergeHits(n.Hits, list)
	s.triggers.all.Set(n.ID, &n)
}

// dueAt gives the moment at which the program of a trigger is to run for what happens now.
func (s *State) dueAt(t *model.Trigger, at model.Time) model.Time {
	due := at
	if t.Events&model.OnIdle == 0 && t.OffsetS > 0 {
		due = due.Add(t.OffsetS)
	}
	if t.Of == model.TriggerNode && t.Events&model.OnIdle == 0 && t.Events != model.OnReconfig {
		due = max(due, at.Add(gatherS))
	}
	if t.Ran != 0 {
		due = max(due, t.Ran.Add(againS))
	}
	return due
}

func (s *State) applyTriggers(at model.Time, c *Triggers) Result {
	res := Result{Changed: true}
	switch c.Op {
	case SetTrigger:
		return s.setTrigger(at, c)
	case DropTriggers:
		res.Changed = false
		for _, id := range c.IDs {
			t, ok := s.triggers.all.Get(id)
			if !ok || t.Spent != 0 {
				res.Each = append(res.Each, NoSuchTrigger)
				continue
			}
			s.dropTrigger(t)
			res.Each, res.Changed = append(res.Each, OK), true
		}
	case HitTriggers:
		for i := range c.Hits {
			s.timeHit(&c.Hits[i], at)
		}
	case RanTriggers:
		for _, r := range c.Ran {
			if t, ok := s.triggers.all.Get(r.ID); ok && len(t.Hits) > 0 && t.Spent == 0 {
				s.ran(t, &r, at)
			}
		}
	case SeeDaemons:
		if s.triggers.seen != nil {
			s.stirs.daemons = append(s.stirs.daemons, c.Seen.Since(s.triggers.seen)...)
		}
		s.triggers.seen = c.Seen
	case Reconfigured:
		s.stirs.reread = true
	default:
		return Result{}
	}
	s.plan()
	return res
}

// setTrigger adds a trigger. One that is like another one whose program runs, or has run a moment ago, goes on from it.
func (s *State) setTrigger(at model.Time, c *Triggers) Result {
	t := *c.Set
	if r := s.maySetTrigger(&t); r != OK {
		return Result{Refusal: r}
	}
	watched := false
	var before *model.Trigger
	var off []*model.Trigger
	s.triggers.all.Scan(func(_ uint32, o *model.Trigger) bool {
		watched = watched || o.AboutDaemons()
		if o.Off != "" {
			if o.Alike(&t) && o.Program == t.Program {
				off = append(off, o) // it takes its place
			}
			return true
		}
		if o.Alike(&t) && !o.Perm && (len(o.Hits) > 0 || o.Spent != 0) && o.Heir == 0 &&
			(before == nil || o.Program == t.Program || before.Program != t.Program) {
			before = o
		}
		return true
	})
	t.ID, t.At = s.triggers.next, at
	s.triggers.next++
	t.Hits, t.Due, t.Ran, t.Looked, t.Spent, t.Heir, t.Off = nil, 0, 0, 0, 0, 0, ""
	for _, o := range off {
		s.dropTrigger(o)
	}
	if before != nil {
		t.Looked = before.Looked
		if before.Spent != 0 {
			if s.dropTrigger(before); len(before.Hits) > 0 {
				t.Hits, t.Due = before.Hits, s.dueAt(&t, at)
			}
		} else {
			b := *before
			b.Heir = t.ID
			s.triggers.all.Set(b.ID, &b)
		}
	}
	if t.AboutDaemons() && !watched && c.Seen != nil {
		s.triggers.seen = c.Seen
	}
	s.addTrigger(&t)
	s.plan()
	return Result{Changed: true}
}

// maySetTrigger checks the numbers of triggers, the job, and that there is no such trigger.
func (s *State) maySetTrigger(t *model.Trigger) Refusal {
	system := func(uid uint32) bool { return uid == 0 || uid == s.cfg.Params.SlurmUID }
	own, users, same := 0, 0, false
	s.triggers.all.Scan(func(_ uint32, o *model.Trigger) bool {
		if o.Off != "" && o.Alike(t) && o.Program == t.Program {
			return true // t takes its place
		}
		if o.UID == t.UID {
			own++
		}
		if !system(o.UID) {
			users++
		}
		same = same || o.Alike(t) && o.Program == t.Program && o.Perm == t.Perm && o.Spent == 0 &&
			(o.Perm || len(o.Hits) == 0)
		return true
	})
	switch {
	case same:
		return NameTaken
	case system(t.UID) && own >= MaxTriggersRoot, !system(t.UID) && (own >= MaxTriggersEach || users >= MaxTriggersUsers):
		return Full
	case t.Of != model.TriggerJob:
		return OK
	}
	a, array := s.arrays.Get(t.Job)
	j, job := s.jobs.Get(t.Job)
	switch {
	case !array && !job:
		return NoSuchJob
	case array && a.Done >= a.Total, !array && j.State.Finished():
		return AlreadyDone
	}
	return OK
}

// timeHit gives a trigger what has come with time.
func (s *State) timeHit(h *TimeHit, at model.Time) {
	t, ok := s.triggers.all.Get(h.ID)
	if !ok || t.Spent != 0 || t.Off != "" {
		return
	}
	var hits []model.TriggerHit
	switch {
	case t.Events&model.OnTime != 0:
		j, ok := s.jobs.Get(t.Job)
		if !ok || j.Run == nil || !j.State.HasResources() || t.Looked >= j.Run.Start {
			return
		}
		hits = append(hits, model.TriggerHit{Events: model.OnTime})
	case t.Events&model.OnIdle != 0:
		for _, name := range h.Nodes {
			hits = append(hits, model.TriggerHit{Name: name, Events: model.OnIdle})
		}
		slices.SortFunc(hits, func(a, b model.TriggerHit) int { return cmp.Compare(a.Name, b.Name) })
	}
	n := *t
	n.Looked = max(n.Looked, h.By)
	s.triggers.all.Set(n.ID, &n)
	s.hit(&n, hits, at)
}

// ran takes note that a trigger's program has ended. What has happened since it was begun is left for its next run, or
// for the trigger that is set after it.
func (s *State) ran(t *model.Trigger, r *TriggerRan, at model.Time) {
	n := *t
	n.Hits = slices.DeleteFunc(slices.Clone(t.Hits), func(h model.TriggerHit) bool { return h.Gen <= r.Gen })
	n.Ran = at
	event, text := trail.TriggerRan, t.Program
	if r.Why != "" {
		event, text = trail.TriggerNotRun, t.Program+": "+r.Why
	}
	s.tell(&model.Audit{Event: event, What: trail.Trigger, Name: strconv.FormatUint(uint64(t.ID), 10),
		By: byGbatch, Owner: t.UID, Job: t.Job, Text: text})
	heir, inherited := s.triggers.all.Get(t.Heir)
	switch {
	case t.Of == model.TriggerJob && !s.known(t.Job) && !(t.Perm && len(n.Hits) > 0), inherited:
		s.dropTrigger(t)
		if inherited && len(n.Hits) > 0 {
			h := *heir
			if len(h.Hits) == 0 {
				h.Due = s.dueAt(&h, at)
			}
			h.Hits = model.MergeHits(h.Hits, n.Hits)
			s.triggers.all.Set(h.ID, &h)
		}
	case t.Perm:
		n.Due = 0
		if len(n.Hits) > 0 {
			n.Due = s.dueAt(&n, at)
		}
		s.triggers.all.Set(n.ID, &n)
	default:
		n.Spent, n.Due = at.Add(rearmS), 0
		s.triggers.all.Set(n.ID, &n)
		s.spents.Set(due{n.Spent, model.JobID(n.ID)})
	}
}

// addTrigger adds a trigger to the facts and their indexes.
func (s *State) addTrigger(t *model.Trigger) {
	s.triggers.all.Set(t.ID, t)
	if t.Of == model.TriggerJob {
		s.jobTriggers[t.Job] = append(s.jobTriggers[t.Job], t.ID)
	}
	if t.Spent != 0 {
		s.spents.Set(due{t.Spent, model.JobID(t.ID)})
	}
}

func (s *State) dropTrigger(t *model.Trigger) {
	s.triggers.all.Delete(t.ID)
	s.spents.Delete(due{t.Spent, model.JobID(t.ID)})
	if t.Of != model.TriggerJob {
		return
	}
	left := slices.DeleteFunc(s.jobTriggers[t.Job], func(id uint32) bool { return id == t.ID })
	if s.jobTriggers[t.Job] = left; len(left) == 0 {
		delete(s.jobTriggers, t.Job)
	}
}

// forgetSpent drops triggers that no other one goes on from any more.
func (s *State) forgetSpent(at model.Time, limit int) (changed bool) {
	for range limit {
		d, ok := s.spents.Min()
		if !ok || d.at > at {
			break
		}
		s.spents.Delete(d)
		if t, ok := s.triggers.all.Get(uint32(d.id)); ok {
			s.dropTrigger(t)
		}
		changed = true
	}
	return changed
}

// Triggers calls f for the triggers that are set, in order of number, until it returns false.
func (v *View) Triggers(f func(*model.Trigger) bool) {
	v.triggers.all.Scan(func(_ uint32, t *model.Trigger) bool { return t.Spent != 0 || f(t) })
}

// Trigger gives a trigger, or nil.
func (v *View) Trigger(id uint32) *model.Trigger {
	if t, ok := v.triggers.all.Get(id); ok && t.Spent == 0 {
		return t
	}
	return nil
}

// HasTriggers reports whether there is any trigger.
func (v *View) HasTriggers() bool { return v.triggers.all.Len() > 0 }

// SeenDaemons gives how the daemons are, as a leader last found them; nil: none has looked.
func (v *View) SeenDaemons() *model.Daemons { return v.triggers.seen }

// checkTriggers: the indexes have the triggers that are there, and what waits for a program has something to tell it.
func (s *State) checkTriggers() (err error) {
	ofJobs, spent := 0, 0
	s.triggers.all.Scan(func(id uint32, t *model.Trigger) bool {
		switch {
		case id != t.ID || id >= s.triggers.next:
			err = fmt.Errorf("trigger %d is kept as %d, the next is %d", t.ID, id, s.triggers.next)
		case t.Of == model.TriggerJob && !slices.Contains(s.jobTriggers[t.Job], id):
			err = fmt.Errorf("job %d does not know of trigger %d", t.Job, id)
		case t.Of == model.TriggerJob && len(t.Hits) == 0 && !s.known(t.Job):
			err = fmt.Errorf("trigger %d waits for job %d, which is gone", id, t.Job)
		case t.Spent == 0 && (len(t.Hits) > 0) != (t.Due != 0):
			err = fmt.Errorf("trigger %d is due at %d with %d hits", id, t.Due, len(t.Hits))
		case t.Spent != 0 && t.Perm:
			err = fmt.Errorf("permanent trigger %d is over", id)
		}
		if t.Of == model.TriggerJob {
			ofJobs++
		}
		if t.Spent != 0 {
			spent++
		}
		return err == nil
	})
	for _, list := range s.jobTriggers {
		ofJobs -= len(list)
	}
	if err == nil && (ofJobs != 0 || spent != s.spents.Len()) {
		err = fmt.Errorf("the indexes of triggers have %d of jobs too few, and %d that are over of %d", ofJobs,
			s.spents.Len(), spent)
	}
	return err
}

// trigger reads one.
func (in *restorer) trigger() error {
	x := new(model.Trigger)
	err := in.d.Read(x)
	in.n.triggers.all.Set(x.ID, x)
	return err
}
