package state

import (
	"slices"

	"gbatch/internal/model"
)

// applyEdit changes pending jobs and, as far as a field allows, other jobs.
func (s *State) applyEdit(at model.Time, c *Edit) Result {
	res := Result{Each: make([]Refusal, len(c.Targets))}
	if c.Most > 0 && c.Spec != nil && SpecBytes(c.Spec) > int(c.Most) {
		for i := range res.Each {
			res.Each[i] = TooLong
		}
		return res
	}
	ofArray := !slices.ContainsFunc(c.Set, func(f Field) bool { return f != SetThrottle }) // concerns all its tasks
	for i := range c.Targets {
		t := c.Targets[i]
		if ofArray {
			t = Target{Job: t.Job, Task: model.NoTask}
		}
		res.Each[i] = NoSuchJob
		for _, id := range s.hetEdit(c, &t, s.expand(&t, true)) {
			j, ok := s.jobs.Get(id)
			if !ok {
				continue
			}
			r := s.edit(at, c, j)
			if res.Each[i] != OK {
				res.Each[i] = r
			}
			res.Changed = res.Changed || r == OK
		}
		s.wakeAll(at)
	}
	s.plan()
	return res
}

// mayEdit checks whether all of the command's fields can be changed in a job's present state.
func (s *State) mayEdit(c *Edit, j *model.Job) Refusal {
	for _, f := range c.Set {
		switch f {
		case SetThrottle, SetAdminComment:
			continue
		case SetLimit:
			if j.State.Finished() {
				return AlreadyDone
			}
			continue
		}
		switch {
		case j.State.Finished():
			return AlreadyDone
		case j.State != model.Pending:
			return NotPending
		}
		if f == SetDeps && (len(c.Deps) > MaxDeps || s.circular(j, c.Deps)) {
			return BadDependency
		}
	}
	return OK
}

func (s *State) edit(at model.Time, c *Edit, j *model.Job) Refusal {
	if r := s.mayEdit(c, j); r != OK {
		return r
	}
	n := *j
	if slices.Contains(c.Set, SetSpec) && c.Spec != nil { // first, because the other fields change it further
		sp := *c.Spec
		sp.UID, sp.GID, sp.Groups, sp.User, sp.Group = j.Spec.UID, j.Spec.GID, j.Spec.Groups, j.Spec.User, j.Spec.Group
		sp.From = j.Spec.From
		sp.Script, sp.Env, sp.Tasklist = j.Spec.Script, j.Spec.Env, j.Spec.Tasklist
		sp.Partitions, sp.Gres = slices.Clone(sp.Partitions), slices.Clone(sp.Gres) // the command has other targets
		sp.ReqNodes, sp.ExcNodes = slices.Clone(sp.ReqNodes), slices.Clone(sp.ExcNodes)
		s.internSpec(&sp)
		n.Spec = &sp
	}
	for _, f := range c.Set {
		switch f {
		case SetHold:
			if c.Hold != model.HeldByUser || n.Hold != model.HeldByAdmin { // an operator's hold is the stronger one
				n.Hold = c.Hold
			}
			if n.Hold == model.NotHeld && j.Hold != model.NotHeld && !slices.Contains(c.Set, SetPriority) {
				n.Direct = false // a hold cancels a priority that was set by hand, as in Slurm
			}
		case SetPriority:
			n.Priority, n.Direct = c.Priority, c.Direct
		case SetBegin:
			n.Begin, n.Eligible = c.Begin, 0
		case SetLimit:
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
			n.Deps = slices.Clone(c.Deps)
			if c.Spec != nil {
				sp := *n.Spec
				sp.DepText, sp.DepAny = c.Spec.DepText, c.Spec.DepAny
				n.Spec = &sp
			}
		case SetAdminComment:
			n.Comment = c.Comment
		case SetSite:
			n.Site = c.Site
		}
	}
	if n.State.Finished() && n.Throttle != j.Throttle && n.Comment == j.Comment {
		s.put(&n) // accounting needs no new record of it
		return OK
	}
	s.settle(&n, at)
	if j.Spec.Name != n.Spec.Name {
		s.wakeNamesakes(j.Spec.UID, j.Spec.Name, at)
	}
	return OK
}

// settle judges a job with a new specification, dependencies, hold or begin time, publishes it, and queues its record
// for accounting.
func (s *State) settle(j *model.Job, at model.Time) {
	if j.State != model.Pending {
		s.put(j)
		s.record(j)
		return
	}
	if j.IsArray() && hasKind(j.Deps, model.DepAfterCorr) { // tasks whose counterparts have ended are split off first
		j.Eligible, j.Reason = 0, model.ReasonDependency
		s.put(j)
		s.splitCorresponding(j.ID, at)
		left, ok := s.jobs.Get(j.ID)
		if !ok || !left.IsArray() {
			return // the last task took the record with it
		}
		n := *left
		j = &n
	}
	s.judge(j, at)
	s.put(j)
	s.record(j)
	s.killNever(j.ID, at)
}

// circular reports whether j, with these dependencies, would wait for itself, directly or through other jobs. A
// dependency on an unknown job counts too, because no job can wait for it.
func (s *State) circular(j *model.Job, deps []model.Dep) bool {
	seen := map[model.JobID]bool{}
	var todo []model.JobID
	add := func(deps []model.Dep, known bool) bool {
		for _, d := range deps {
			switch {
			case d.Kind == model.DepSingleton:
			case known && !s.exists(d.Job, d.Task), d.Job == j.ID, d.Job == root(j):
				return false
			case !seen[d.Job]:
				seen[d.Job] = true
				todo = append(todo, d.Job)
			}
		}
		return true
	}
	if !add(deps, true) {
		return true
	}
	for len(todo) > 0 {
		id := todo[0]
		todo = todo[1:]
		for _, rec := range s.wholeJob(id) {
			if t, ok := s.jobs.Get(rec); ok && !add(depsOf(t), false) {
				return true
			}
		}
	}
	return false
}
