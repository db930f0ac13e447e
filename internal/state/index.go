package state

import (
	"slices"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
)

// Every index has a function from a job's record to its entry in the index (readyIn, beginOf, ...). put computes the
// entries of the old and the new record and moves the difference, so every entry that was added is later removed.

// put replaces a job's record and updates everything that is derived from it.
func (s *State) put(j *model.Job) {
	if j.Claim != nil && !IsReady(j) {
		j.Claim = nil // j is not shared yet
	}
	if j.Rush != nil && (j.State != model.Pending || j.Hold != model.NotHeld) {
		j.Rush = nil
	}
	if j.State != model.Pending {
		j.Back = nil
	}
	old, _ := s.jobs.Set(j.ID, j)
	s.journal.add(Change{Job: j.ID})
	s.outcomes.count(old, j)
	s.tellJob(old, j)
	s.stirJob(old, j, 0)
	s.reindexJob(old, j)
	s.mailNever(old, j)
}

// remove forgets a job.
func (s *State) remove(j *model.Job) {
	s.jobs.Delete(j.ID)
	s.journal.add(Change{Job: j.ID})
	if len(s.jobTriggers) > 0 {
		s.stirs.gone = append(s.stirs.gone, j.ID, j.ArrayID)
	}
	s.reindexJob(j, nil)
	s.dropBlob(j.Spec.Script)
	s.dropBlob(j.Spec.Env)
}

// IsReady reports whether a job may start as soon as there is room.
func IsReady(j *model.Job) bool {
	return j != nil && j.State == model.Pending && j.Hold == model.NotHeld && len(j.Deps) == 0 && j.Eligible != 0
}

// readyIn gives the partitions in whose queues j is.
func readyIn(j *model.Job) []string {
	if !IsReady(j) {
		return nil
	}
	return j.Spec.Partitions
}

// beginOf gives the begin time of a job that only its begin time holds, or 0.
func beginOf(j *model.Job) model.Time {
	if j == nil || j.State != model.Pending || j.Hold != model.NotHeld || len(j.Deps) > 0 || j.Eligible != 0 || j.Undue {
		return 0
	}
	return j.Begin
}

// endOf gives the moment at which a finished job ended, or 0.
func endOf(j *model.Job) model.Time {
	if j == nil || !j.State.Finished() {
		return 0
	}
	return max(j.End.At, 1)
}

// limitOf gives the moment at which j's time limit ends it, or so many seconds after that (model.Unlimited: never), but
// not after its deadline or its reservation's end; 0: never.
func limitOf(j *model.Job, over int64) model.Time {
	if j == nil || j.Run == nil || j.State == model.Completing || !j.State.HasResources() {
		return 0
	}
	end := j.Run.Deadline()
	if over >= model.Unlimited {
		end = 0
	} else if end != 0 {
		end = end.Add(over)
	}
	ends := [...]model.Time{j.Spec.Deadline, 0}
	if !j.Run.Idles() { // as its own limit
		ends[1] = j.Run.ResvEnd
	}
	for _, e := range ends {
		if e != 0 && (end == 0 || e < end) {
			end = e
		}
	}
	return end
}

// LatestEnd gives the moment at which the clock ends a job: its deadline, its reservation's end, or its time limit and
// what its partition lets jobs run beyond that (OverTimeLimit). 0: never, or it does not run.
func (f *facts) LatestEnd(j *model.Job) model.Time {
	if j == nil || j.Run == nil {
		return 0
	}
	over := int64(0)
	if p := f.parts[j.Run.Partition]; p != nil && !j.Run.CutShort() {
		over = p.OverTimeS
	}
	return limitOf(j, over)
}

// overTimes gives what each partition lets jobs run beyond their limits.
func overTimes(parts map[string]*model.Partition) map[string]int64 {
	over := map[string]int64{}
	for name, p := range parts {
		if p.OverTimeS > 0 {
			over[name] = p.OverTimeS
		}
	}
	return over
}

// eachCut calls f for each job that the clock ends.
func (s *State) eachCut(f func(due)) {
	s.jobs.Scan(func(id model.JobID, j *model.Job) bool {
		if at := s.LatestEnd(j); at != 0 {
			f(due{at, id})
		}
		return true
	})
}

// warningOf gives the moment at which a running job is to get the signal that it asked for, or 0.
func warningOf(j *model.Job) model.Time {
	end := limitOf(j, 0)
	if end == 0 || j.Spec.Warning == nil || j.Run.Warned != 0 || j.State != model.Running {
		return 0
	}
	return max(end.Add(-j.Spec.Warning.BeforeS), 1)
}

// doomOf gives the first moment from which a pending job can't end before its deadline, or 0.
func doomOf(j *model.Job) model.Time {
	if j == nil || j.State != model.Pending || j.Spec.Deadline == 0 {
		return 0
	}
	least := int64(0) // without a limit of its own the job has its partition's
	if s := j.Spec.LimitS; s != model.NotSet && s < model.Unlimited {
		least = s
	}
	if m := j.Spec.More; m != nil && m.TimeMinS > 0 {
		least = m.TimeMinS
	}
	return max(j.Spec.Deadline.Add(-least)+1, 1)
}

// liveOf gives an unfinished job's place among the jobs of its user and name.
func liveOf(j *model.Job) (k liveKey, ok bool) {
	if j == nil || j.State.Finished() {
		return k, false
	}
	return liveKey{j.Spec.UID, j.Spec.Name, root(j), j.ID}, true
}

// Phase is a part of a job's life, by which the jobs of a user are found.
type Phase uint8

const (
	Waits  Phase = 1 << iota // PENDING
	Holds                    // it has or had resources, and has not ended
	IsOver                   // it has ended
)

// PhaseOf gives the phase of a state, or of one of a filter.
func PhaseOf(s model.JobState) Phase {
	switch {
	case s == model.Pending, s == model.Expediting, s == model.SpecialExit, s == model.Queued:
		return Waits
	case s.Finished():
		return IsOver
	}
	return Holds
}

// ownedOf gives a job's place among its user's jobs.
func ownedOf(j *model.Job) ownedKey {
	if j == nil {
		return ownedKey{}
	}
	return ownedKey{j.Spec.UID, PhaseOf(j.State), j.ID}
}

// root gives the number under which a job was submitted: its array's, its first component's, or its own.
func root(j *model.Job) model.JobID {
	switch {
	case j.ArrayID != 0:
		return j.ArrayID
	case j.Het != nil:
		return j.Het.ID
	}
	return j.ID
}

// depsOf gives the dependencies of an unfinished job.
func depsOf(j *model.Job) []model.Dep {
	if j == nil || j.State.Finished() {
		return nil
	}
	return j.Deps
}

func waitKeyOf(d model.Dep, id model.JobID) waitKey { return waitKey{d.Job, d.Task, id} }

// waitsOn reports whether a dependency still waits for a particular job.
func waitsOn(d model.Dep) bool { return d.Job != 0 && !d.Failed }

// partOf gives the key of a record among its array's records: of a single task, or of a group that was split off.
func partOf(j *model.Job) (elem, group uint64) {
	switch {
	case j == nil || j.ArrayID == 0:
		return 0, 0
	case j.Task != model.NoTask:
		return elemKey(j.ArrayID, j.Task), 0
	case j.ID != j.ArrayID:
		return 0, groupKey(j.ArrayID, j.ID)
	}
	return 0, 0
}

// movingOf gives the state of a job about which a node needs an order, or 0.
func movingOf(j *model.Job) model.JobState {
	if j != nil && (j.State == model.Configuring || j.State == model.Completing || j.State.HasResources() &&
		(j.Run.Turns > 0 || j.Run.Warned != 0 || !j.Run.Unready.Empty() || j.Run.Version > 0)) {
		return j.State
	}
	return 0
}

// sharesOf reports whether j shares CPUs or is suspended.
func sharesOf(j *model.Job) bool {
	return j != nil && j.State.HasResources() && (j.Run.Share > 1 || j.Run.Sleep != model.Awake)
}

// reindexJob replaces old's entries by j's in every index; either may be nil.
func (s *State) reindexJob(old, j *model.Job) {
	id := model.JobID(0)
	if j != nil {
		id = j.ID
	} else {
		id = old.ID
	}
	s.moveReady(old, j)
	s.countLicenses(old, j)
	moveDue(s.begins, id, beginOf(old), beginOf(j))
	moveDue(s.dooms, id, doomOf(old), doomOf(j))
	moveDue(s.warnings, id, warningOf(old), warningOf(j))
	moveDue(s.takes, id, takesAt(old), takesAt(j))
	moveDue(s.halfways, id, halfwayOf(old), halfwayOf(j))
	moveDue(s.finished, id, endOf(old), endOf(j))
	moveDue(s.limits, id, s.LatestEnd(old), s.LatestEnd(j))
	was, wasLive := liveOf(old)
	is, isLive := liveOf(j)
	if was != is {
		if wasLive {
			s.live.Delete(was)
		}
		if isLive {
			s.live.Set(is)
		}
	}
	if was, is := ownedOf(old), ownedOf(j); was != is {
		if old != nil {
			s.owned.Delete(was)
		}
		if j != nil {
			s.owned.Set(is)
		}
	}
	s.moveWaits(id, depsOf(old), depsOf(j))
	oldElem, oldGroup := partOf(old)
	elem, group := partOf(j)
	if oldElem != elem {
		if oldElem != 0 {
			s.elems.Delete(oldElem)
		}
		if elem != 0 {
			s.elems.Set(elem, id)
		}
	}
	if oldGroup != group {
		if oldGroup != 0 {
			s.groups.Delete(oldGroup)
		}
		if group != 0 {
			s.groups.Set(group, id)
		}
	}
	if a, b := movingOf(old), movingOf(j); a != b {
		if b == 0 {
			s.moving.Delete(id)
		} else {
			s.moving.Set(id, b)
		}
	}
	if a, b := old != nil && undue(old), j != nil && undue(j); a != b {
		if b {
			s.undue.Set(id, struct{}{})
		} else {
			s.undue.Delete(id)
		}
	}
	if a, b := sharesOf(old), sharesOf(j); a != b {
		if b {
			s.shares.Set(id, struct{}{})
		} else {
			s.shares.Delete(id)
		}
	}
	s.moveAsked(id, old, j)
	s.count(old, -1)
	s.count(j, 1)
	s.moveTally(old, j)
	s.moveAge(old, j)
	if s.capped {
		s.moveCap(id, j)
	}
}

func (s *State) count(j *model.Job, n int) {
	switch {
	case j == nil:
	case j.State == model.Pending:
		s.pending += n
	case j.State.HasResources():
		s.active += n
	}
}

func moveDue(tree *btree.BTreeG[due], id model.JobID, from, to model.Time) {
	if from == to {
		return
	}
	if from != 0 {
		tree.Delete(due{from, id})
	}
	if to != 0 {
		tree.Set(due{to, id})
	}
}

func (s *State) moveReady(old, j *model.Job) {
	from, to := readyIn(old), readyIn(j)
	if len(from) == 0 && len(to) == 0 || len(from) > 0 && len(to) > 0 && old.Priority == j.Priority &&
		slices.Equal(from, to) {
		return
	}
	for _, p := range from {
		s.queueOf(p).Delete(readyKey{old.Priority, old.ID})
	}
	for _, p := range to {
		s.queueOf(p).Set(readyKey{j.Priority, j.ID})
	}
}

func (s *State) moveWaits(id model.JobID, from, to []model.Dep) {
	if len(from) == 0 && len(to) == 0 || slices.Equal(from, to) {
		return
	}
	for _, d := range from {
		if waitsOn(d) {
			s.waiters.Delete(waitKeyOf(d, id))
		}
	}
	for _, d := range to {
		if waitsOn(d) {
			s.waiters.Set(waitKeyOf(d, id))
		}
	}
}

// queueOf gives the partition's queue for writing.
func (s *State) queueOf(part string) *btree.BTreeG[readyKey] {
	q, ok := s.ready.Get(part)
	if !ok {
		q = &queue{tree: btree.NewBTreeGOptions(readyLess, noLocks)}
		s.ready.Set(part, q)
	}
	q.copy = nil
	return q.tree
}

// reindex builds everything derived from the facts, after a snapshot was read.
func (s *State) reindex() {
	s.reset()
	s.ready = new(btree.Map[string, *queue])
	s.moving = new(btree.Map[model.JobID, model.JobState])
	s.shares = new(btree.Map[model.JobID, struct{}])
	s.undue = new(btree.Map[model.JobID, struct{}])
	s.elems = new(btree.Map[uint64, model.JobID])
	s.groups = new(btree.Map[uint64, model.JobID])
	s.active, s.pending, s.rising, s.counting = 0, 0, 0, false
	s.nodes.Scan(func(name string, n *model.Node) bool {
		s.countRising(nil, n)
		s.noteResume(name, nil, n)
		return true
	})
	s.jobs.Scan(func(_ model.JobID, j *model.Job) bool {
		s.reindexJob(nil, j)
		return true
	})
	s.triggers.all.Scan(func(_ uint32, t *model.Trigger) bool {
		s.addTrigger(t)
		return true
	})
	s.recount()
	s.plan()
	s.hold()
}

// plan sets nextDue: the next moment at which time alone changes something.
func (s *State) plan() {
	next := model.Time(0)
	sooner := func(t model.Time) {
		if t != 0 && (next == 0 || t < next) {
			next = t
		}
	}
	if d, ok := s.limits.Min(); ok {
		sooner(d.at)
	}
	s.foreseeTouched()
	if d, ok := s.spends.Min(); ok {
		sooner(d.at)
	}
	if d, ok := s.capDue.Min(); ok {
		sooner(d.at)
	}
	if d, ok := s.begins.Min(); ok {
		sooner(d.at)
	}
	if d, ok := s.dooms.Min(); ok {
		sooner(d.at)
	}
	if d, ok := s.warnings.Min(); ok {
		sooner(d.at)
	}
	if d, ok := s.takes.Min(); ok {
		sooner(d.at)
	}
	if d, ok := s.halfways.Min(); ok {
		sooner(d.at)
	}
	if d, ok := s.finished.Min(); ok && s.cfg.Params.MinJobAgeS > 0 {
		sooner(d.at.Add(s.cfg.Params.MinJobAgeS))
	}
	if d, ok := s.spents.Min(); ok {
		sooner(d.at)
	}
	if r, ok := s.resumes.Min(); ok {
		sooner(r.at)
	}
	sooner(s.nextReservation())
	s.nextDue = next
}
