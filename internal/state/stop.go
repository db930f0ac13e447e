package state

import (
	"cmp"
	"slices"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
)

// applyStop ends or requeues jobs. A job with resources becomes COMPLETING; Run.Stop says what it becomes after that.
func (s *State) applyStop(at model.Time, c *Stop) Result {
	res := Result{Each: make([]Refusal, len(c.Targets))}
	for i := range c.Targets {
		res.Each[i] = s.stopTarget(at, c, &c.Targets[i])
		res.Changed = res.Changed || res.Each[i] == OK
		s.wakeAll(at)
	}
	s.plan()
	return res
}

// expand gives the numbers of a target's job records. If the target names only some pending tasks of a record, they are
// split off, if split is set; otherwise it gives their record.
func (s *State) expand(t *model.JobRef, split bool) []model.JobID {
	if t.Task == model.NoTask && len(t.Tasks) == 0 {
		ids, _ := s.hetTarget(t)
		return ids
	}
	a, ok := s.arrays.Get(t.Job)
	if !ok {
		return nil
	}
	tasks := t.Tasks
	if len(tasks) == 0 {
		tasks = model.TaskSet{{Lo: t.Task, Hi: t.Task, Step: 1}}
	}
	var out []model.JobID
	tasks.Each(func(task int32) bool {
		if id, ok := s.elems.Get(elemKey(t.Job, task)); ok {
			out = append(out, id)
		}
		return task < a.Max
	})
	if len(out) == tasks.Count() { // each has a record of its own
		return out
	}
	for _, sh := range s.sharers(t.Job, tasks, a.Max) {
		if !split || sh.j.State != model.Pending || len(sh.wanted) == sh.j.Tasks.Count() {
			out = append(out, sh.j.ID)
			continue
		}
		group := s.split(sh.j, model.TaskSetOf(sh.wanted))
		s.put(group)
		s.record(group)
		out = append(out, group.ID)
	}
	return out
}

// sharer is a record of several tasks of an array, and those of them that are wanted, in order.
type sharer struct {
	j      *model.Job
	wanted []int32
}

// sharers gives the records of several tasks that have some of these tasks, up to the array's last one, in order of the
// first of them. There may be as many as half of the tasks: the work grows with their tasks, not with their product.
func (s *State) sharers(array model.JobID, tasks model.TaskSet, last int32) (out []sharer) {
	asked := tasks.Count()
	add := func(j *model.Job) {
		few, many := tasks, j.Tasks
		if asked > j.Tasks.Count() {
			few, many = j.Tasks, tasks
		}
		var wanted []int32
		few.Each(func(task int32) bool {
			if many.Has(task) {
				wanted = append(wanted, task)
			}
			return task < last
		})
		if len(wanted) > 0 {
			out = append(out, sharer{j, wanted})
		}
	}
	if j, ok := s.jobs.Get(array); ok && j.ArrayID == array && j.IsArray() {
		add(j)
	}
	s.groups.Ascend(groupKey(array, 0), func(k uint64, id model.JobID) bool {
		if model.JobID(k>>32) != array {
			return false
		}
		if j, ok := s.jobs.Get(id); ok {
			add(j)
		}
		return true
	})
	slices.SortFunc(out, func(a, b sharer) int { return cmp.Compare(a.wanted[0], b.wanted[0]) })
	return out
}

// wholeJob gives a job's record or, for an array, the array's own record and those of all its tasks, or those of all
// components of a heterogeneous job.
func (s *State) wholeJob(id model.JobID) []model.JobID {
	if out := s.wholeHet(id); out != nil {
		return out
	}
	var out []model.JobID
	if _, ok := s.jobs.Get(id); ok {
		out = append(out, id)
	}
	if _, isArray := s.arrays.Get(id); !isArray {
		return out
	}
	for _, tree := range []*btree.Map[uint64, model.JobID]{s.elems, s.groups} {
		tree.Ascend(elemKey(id, 0), func(k uint64, el model.JobID) bool {
			if model.JobID(k>>32) != id {
				return false
			}
			if el != id {
				out = append(out, el)
			}
			return true
		})
	}
	return out
}

func (s *State) stopTarget(at model.Time, c *Stop, t *model.JobRef) Refusal {
	ids := s.expand(t, c.Event == model.EvCancel)
	if len(ids) == 0 {
		return NoSuchJob
	}
	_, one := s.hetTarget(t)
	ids, worst := s.hetStop(c, ids, one)
	if worst != OK {
		return worst
	}
	good := false
	for _, id := range ids {
		j, ok := s.jobs.Get(id)
		if !ok {
			continue
		}
		if r := s.stopJob(at, c, j); r == OK {
			good = true
		} else {
			worst = r
		}
	}
	if good {
		return OK
	}
	return worst
}

func (s *State) stopJob(at model.Time, c *Stop, j *model.Job) Refusal {
	next, ok := model.Next(j.State, c.Event)
	switch {
	case c.Event != model.EvCancel && c.Event != model.EvRequeue && c.Event != model.EvPreempt:
		return NotPending // Stop takes no other events
	case !ok && j.State.Finished():
		return AlreadyDone
	case !ok && j.State == model.Completing:
		return StillEnding
	case !ok:
		return CannotRequeue // a pending job can't be preempted either
	case j.State == model.Completing && !comesBack(j) && c.Event == model.EvCancel && j.Recurs():
		n := *j // it ends as it does, and does not come back
		s.disable(&n)
		s.put(&n)
	case j.State == model.Completing && !comesBack(j):
		return StillEnding // a repeated cancel must not begin KillWait again, nor hide why the job really ends
	case next == model.Pending:
		if j.Run == nil {
			return CannotRequeue // it was cancelled before it ran
		}
		s.countArray(j.ArrayID, func(a *Array) {
			a.Done--
			a.Waiting++
			a.Back = true
			if j.State != model.Completed {
				a.Failed--
				if j.State != model.Cancelled {
					a.Ill--
				}
				if a.Failed == 0 {
					a.Culprit = ""
				}
			}
		})
		hold := model.NotHeld
		if c.Hold {
			hold = model.HeldByUser
		}
		if s.firstOver(j) {
			return CannotRequeue
		}
		s.mailRequeue(j, at)
		n := *j
		n.Special = c.Special && c.Hold
		if !c.Hold {
			s.delayed(&n, at)
		}
		if s.now.rules >= rulesLast {
			n.Back = codes(&j.End.Exit)
		}
		s.requeued(&n, at, hold)
	case next == model.Cancelled:
		reason := model.ReasonNone
		if c.Keep && j.Reason != model.ReasonDependencyNeverSatisfied { // that one says who ends the job
			reason = j.Reason
		}
		s.endPending(j, at, model.Cancelled, reason, c.UID, c.Why)
	case next == model.Completing:
		cause := model.StopCancel
		switch {
		case c.Event == model.EvRequeue && c.Hold:
			cause = model.StopRequeueHold
		case c.Event == model.EvRequeue:
			cause = model.StopRequeue
		case c.Event == model.EvPreempt:
			cause = model.StopPreempt
		case c.Fate != nil:
			cause = model.StopGivenBack
		case c.Limit != model.ReasonNone:
			cause = model.StopTimeLimit
		}
		n, run := *j, *j.Run
		n.Special = c.Special && c.Hold
		if cause == model.StopRequeue {
			s.delayed(&n, at)
		}
		run.StopWhy, run.FailedNode = "", "" // of what it was being ended for before
		switch cause {
		case model.StopCancel:
			run.StopWhy = c.Why
		case model.StopGivenBack:
			run.Fate = c.Fate
		case model.StopTimeLimit:
			run.StopReason, run.StopWhy = c.Limit, c.Why
		}
		n.Run = &run
		if cause == model.StopCancel {
			s.disable(&n)
		}
		s.stopRunning(&n, at, cause, c.UID)
	}
	return OK
}

// comesBack reports whether a COMPLETING job goes back to the queue once it has ended.
func comesBack(j *model.Job) bool {
	switch j.Run.Stop {
	case model.StopRequeue, model.StopRequeueHold, model.StopProlog, model.StopLaunch, model.StopTaken:
		return true
	case model.StopPreempt, model.StopNodeFail, model.StopUnitFault:
		return j.Spec.Requeue
	}
	return false
}

// delayed sets the time before which a job does not run again that is put back into the queue. Until then it can be
// given another one, as in Slurm; and one that puts itself back does not run again and again.
func (s *State) delayed(j *model.Job, at model.Time) {
	if delay := s.cfg.Params.RequeueDelayS; s.now.rules >= rulesOwed && delay > 0 && j.Begin <= at && !j.Recurs() {
		j.Begin = at.Add(delay)
	}
}

func (s *State) stopRunning(j *model.Job, at model.Time, cause model.StopCause, uid uint32) {
	n, run := *j, *j.Run
	s.stir(j, &run, at) // before Stop is set: after that the job does not count as suspended
	run.Stop, run.StopAt, run.StopUID = cause, at, uid
	n.Run, n.State = &run, model.Completing
	s.put(&n)
	if j.State != model.Completing {
		s.countEnding(&n)
	}
	if j.State == model.Configuring {
		s.wake(&n) // for --dependency=after it counts as started
	}
	if run.Program == model.NoCtldProgram && s.AwaitsPower(&n) {
		s.partsGone(&n, at)
	}
}

// endPending ends a pending job, or the rest of an array. why is a sentence, "" if the state says everything.
func (s *State) endPending(j *model.Job, at model.Time, state model.JobState, reason model.Reason, uid uint32,
	why string) {
	n := *j
	s.disable(&n)
	n.State, n.Reason, n.Why, n.Deps = state, reason, why, nil
	n.End = &model.End{At: at, UID: uid}
	s.put(&n)
	s.record(&n)
	s.mailEnd(&n, at)
	tasks := int32(1)
	if n.IsArray() {
		tasks = int32(n.Tasks.Count())
	}
	s.countArray(n.ArrayID, func(a *Array) {
		a.Waiting -= tasks
		s.arrayDone(a, &n, tasks)
	})
	s.wake(&n)
	if n.Het != nil {
		s.others(&n, func(o *model.Job) {
			if o.State == model.Pending {
				s.endPending(o, at, state, reason, uid, why)
			}
		})
	}
}
