package state

import "gbatch/internal/model"

// applyStop ends or requeues jobs. A job with resources becomes COMPLETING; what it becomes then stands in Run.Stop.
func (s *State) applyStop(at model.Time, c *Stop) Result {
	res := Result{Each: make([]Refusal, len(c.Targets))}
	for i := range c.Targets {
		res.Each[i] = s.stopTarget(at, c, &c.Targets[i])
		res.Changed = res.Changed || res.Each[i] == OK
	}
	s.plan()
	return res
}

// expand turns a target into job records, splitting tasks off their array where needed.
func (s *State) expand(t *Target) []*model.Job {
	if t.Task == model.NoTask && len(t.Tasks) == 0 {
		return s.wholeJob(t.Job)
	}
	tasks := t.Tasks
	if len(tasks) == 0 {
		tasks = model.TaskSet{{Lo: t.Task, Hi: t.Task, Step: 1}}
	}
	var out []*model.Job
	var waiting model.TaskSet
	owner, ok := s.jobs.Get(t.Job)
	tasks.Each(func(task int32) bool {
		if id, ok := s.elems.Get(elemKey(t.Job, task)); ok {
			if el, ok := s.jobs.Get(id); ok {
				out = append(out, el)
			}
			return true
		}
		if ok && owner.Tasks.Has(task) {
			if n := len(waiting); n > 0 && waiting[n-1].Hi+1 == task {
				waiting[n-1].Hi = task
			} else {
				waiting = append(waiting, model.Range{Lo: task, Hi: task, Step: 1})
			}
		}
		return true
	})
	if len(waiting) > 0 {
		if waiting.Count() == owner.Tasks.Count() {
			return append(out, owner)
		}
		el := s.split(owner, waiting)
		s.put(el)
		out = append(out, el)
	}
	return out
}

// wholeJob gives a job's record or, for an array, its own and those of all its tasks.
func (s *State) wholeJob(id model.JobID) []*model.Job {
	var out []*model.Job
	j, ok := s.jobs.Get(id)
	if ok {
		out = append(out, j)
	}
	if _, isArray := s.arrays.Get(id); isArray && (!ok || j.ArrayID == id) {
		s.elems.Ascend(elemKey(id, 0), func(k uint64, el model.JobID) bool {
			if model.JobID(k>>32) != id {
				return false
			}
			if t, ok := s.jobs.Get(el); ok && el != id {
				out = append(out, t)
			}
			return true
		})
	}
	return out
}

func (s *State) stopTarget(at model.Time, c *Stop, t *Target) Refusal {
	jobs := s.expand(t)
	if len(jobs) == 0 {
		return NoSuchJob
	}
	worst, good := OK, false
	for _, j := range jobs {
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
	if !ok {
		switch {
		case j.State.Finished():
			return AlreadyDone
		case j.State == model.Completing:
			return StillEnding
		}
		return NotPending
	}
	switch {
	case c.Event == model.EvRequeue && j.State.Finished():
		if j.State == model.Cancelled && j.Run == nil {
			return CannotRequeue // it was cancelled before it ran
		}
		s.countArray(j.ArrayID, func(a *Array) {
			a.Done--
			a.Waiting++
			if j.State != model.Completed {
				a.Failed--
			}
		})
		hold := model.NotHeld
		if c.Hold {
			hold = model.HeldByUser
		}
		s.requeued(j, at, hold)
	case next == model.Cancelled:
		s.cancelPending(j, at, c.UID)
	case next == model.Completing:
		cause := model.StopCancel
		switch {
		case c.Event == model.EvRequeue && c.Hold:
			cause = model.StopRequeueHold
		case c.Event == model.EvRequeue:
			cause = model.StopRequeue
		case c.Event == model.EvPreempt:
			cause = model.StopPreempt
		}
		s.stopRunning(j, at, cause, c.UID)
	}
	return OK
}

func (s *State) stopRunning(j *model.Job, at model.Time, cause model.StopCause, uid uint32) {
	n, run := *j, *j.Run
	run.Stop, run.StopAt, run.StopUID = cause, at, uid
	n.Run, n.State = &run, model.Completing
	s.put(&n)
}

func (s *State) cancelPending(j *model.Job, at model.Time, uid uint32) {
	n := *j
	n.State, n.Reason, n.Why = model.Cancelled, model.ReasonNone, ""
	n.Deps, n.Eligible = nil, j.Eligible
	n.End = &model.End{At: at, UID: uid}
	s.put(&n)
	s.record(&n)
	tasks := int32(1)
	if n.IsArray() {
		tasks = int32(n.Tasks.Count())
	}
	s.countArray(n.ArrayID, func(a *Array) {
		a.Waiting -= tasks
		s.arrayDone(a, &n, tasks)
	})
	s.wake(&n, at)
}

// applyEdit changes jobs that are pending and, for time limits, jobs that run.
func (s *State) applyEdit(at model.Time, c *Edit) Result {
	res := Result{Each: make([]Refusal, len(c.Targets))}
	for i := range c.Targets {
		jobs := s.expand(&c.Targets[i])
		res.Each[i] = NoSuchJob
		for _, j := range jobs {
			r := s.edit(at, c, j)
			if res.Each[i] != OK {
				res.Each[i] = r
			}
			res.Changed = res.Changed || r == OK
		}
	}
	s.plan()
	return res
}

func (s *State) edit(at model.Time, c *Edit, j *model.Job) Refusal {
	n := *j
	rejudge := false
	for _, f := range c.Set {
		if f != SetLimit && f != SetThrottle && f != SetAdminComment && j.State != model.Pending {
			if j.State.Finished() {
				return AlreadyDone
			}
			return NotPending
		}
		switch f {
		case SetHold:
			n.Hold = c.Hold
			rejudge = true
		case SetPriority:
			n.Priority = c.Priority
		case SetBegin:
			n.Begin, n.Eligible = c.Begin, 0
			rejudge = true
		case SetLimit:
			if j.State.Finished() {
				return AlreadyDone
			}
			if j.Run != nil {
				run := *j.Run
				run.LimitS = c.LimitS
				n.Run = &run
			}
			sp := *n.Spec
			sp.LimitS = c.LimitS
			n.Spec = &sp
		case SetThrottle:
			n.Throttle = c.Throttle
		case SetDeps:
			n.Deps = append([]model.Dep(nil), c.Deps...)
			sp := *n.Spec
			if c.Spec != nil {
				sp.DepText, sp.DepAny = c.Spec.DepText, c.Spec.DepAny
			}
			n.Spec = &sp
			rejudge = true
		case SetSpec:
			if c.Spec != nil {
				sp := *c.Spec
				sp.Script, sp.Env = n.Spec.Script, n.Spec.Env
				s.internSpec(&sp)
				n.Spec = &sp
			}
		case SetAdminComment:
			n.Comment = c.Comment
		}
	}
	if rejudge {
		s.judge(&n, at)
	}
	s.put(&n)
	s.record(&n)
	return OK
}
