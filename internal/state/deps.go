package state

import "gbatch/internal/model"

// Dependencies are looked at when the job they name starts or ends, never by walking the queue: waiters knows who
// waits for whom.

// exists reports whether a dependency's target is still known.
func (s *State) exists(id model.JobID, task int32) bool {
	if _, ok := s.arrays.Get(id); ok {
		return true
	}
	if task != model.NoTask {
		return false
	}
	_, ok := s.jobs.Get(id)
	return ok
}

// verdict is what is known of a dependency.
type verdict uint8

const (
	open verdict = iota
	fulfilled
	failed
)

// openDeps gives the dependencies that still hold j. With DepAny one fulfilled is enough; a failed one counts only once
// all have failed.
func (s *State) openDeps(j *model.Job, deps []model.Dep, at model.Time) []model.Dep {
	var out []model.Dep
	for _, d := range deps {
		v := open
		if d.Failed {
			v = failed
		} else {
			v = s.evaluate(j, d)
		}
		switch v {
		case fulfilled:
			if d.DelayS > 0 {
				j.Begin = max(j.Begin, at.Add(d.DelayS))
			}
			if j.Spec.DepAny {
				return nil
			}
		case failed:
			d.Failed = true
			out = append(out, d)
		default:
			out = append(out, d)
		}
	}
	return out
}

// neverSatisfied reports whether j's dependencies can't be fulfilled any more.
func neverSatisfied(j *model.Job) bool {
	n := 0
	for _, d := range j.Deps {
		if d.Failed {
			n++
		}
	}
	return n > 0 && (!j.Spec.DepAny || n == len(j.Deps))
}

func (s *State) evaluate(j *model.Job, d model.Dep) verdict {
	if d.Kind == model.DepSingleton {
		first, ok := liveKey{}, false
		s.live.Ascend(liveKey{uid: j.Spec.UID, name: j.Spec.Name}, func(k liveKey) bool {
			first, ok = k, k.uid == j.Spec.UID && k.name == j.Spec.Name
			return false
		})
		if !ok || first.id >= j.ID {
			return fulfilled
		}
		return open
	}
	if a, ok := s.arrays.Get(d.Job); ok && d.Task == model.NoTask {
		return ofArray(d.Kind, a)
	}
	id := d.Job
	if d.Task != model.NoTask {
		el, ok := s.elems.Get(elemKey(d.Job, d.Task))
		if !ok {
			if owner, ok := s.jobs.Get(d.Job); ok && owner.Tasks.Has(d.Task) {
				return open
			}
			return unknown(d.Kind)
		}
		id = el
	}
	t, ok := s.jobs.Get(id)
	if !ok {
		return unknown(d.Kind)
	}
	done, good := t.State.Finished(), t.State == model.Completed
	switch d.Kind {
	case model.DepAfter:
		if done || t.State == model.Running || t.State == model.Completing {
			return fulfilled
		}
	case model.DepAfterAny:
		if done {
			return fulfilled
		}
	case model.DepAfterOK, model.DepAfterCorr:
		if done && good {
			return fulfilled
		}
		if done {
			return failed
		}
	case model.DepAfterNotOK:
		if done && !good {
			return fulfilled
		}
		if done {
			return failed
		}
	}
	return open
}

// unknown judges a dependency on a job that has been forgotten: it is over, how is not known any more.
func unknown(k model.DepKind) verdict {
	if k == model.DepAfter || k == model.DepAfterAny {
		return fulfilled
	}
	return failed
}

func ofArray(k model.DepKind, a *Array) verdict {
	done := a.Done == a.Total
	switch k {
	case model.DepAfter:
		if a.Waiting == 0 {
			return fulfilled
		}
	case model.DepAfterAny:
		if done {
			return fulfilled
		}
	case model.DepAfterOK, model.DepAfterCorr:
		if done && a.Failed == 0 {
			return fulfilled
		}
		if done {
			return failed
		}
	case model.DepAfterNotOK:
		if done && a.Failed > 0 {
			return fulfilled
		}
		if done {
			return failed
		}
	}
	return open
}

// wake looks again at everybody who waits for j or its array, after j started or ended.
func (s *State) wake(j *model.Job, at model.Time) {
	ids := s.waiters[j.ID]
	if j.ArrayID != 0 && j.ArrayID != j.ID {
		ids = append(append([]model.JobID(nil), ids...), s.waiters[j.ArrayID]...)
	}
	for _, id := range ids {
		s.splitCorresponding(id, at)
		w, ok := s.jobs.Get(id)
		if !ok || w.State != model.Pending {
			continue
		}
		c := *w
		s.update(&c, at)
		if neverSatisfied(&c) && c.Spec.KillOnDep {
			s.cancelPending(&c, at, c.Spec.UID)
		}
	}
	if !j.State.Finished() {
		return
	}
	var next model.JobID
	s.live.Ascend(liveKey{uid: j.Spec.UID, name: j.Spec.Name}, func(k liveKey) bool {
		if k.uid == j.Spec.UID && k.name == j.Spec.Name {
			next = k.id
		}
		return false
	})
	if w, ok := s.jobs.Get(next); ok && w.State == model.Pending && hasKind(w.Deps, model.DepSingleton) {
		c := *w
		s.update(&c, at)
	}
}

func hasKind(deps []model.Dep, k model.DepKind) bool {
	for _, d := range deps {
		if d.Kind == k {
			return true
		}
	}
	return false
}

// splitCorresponding handles aftercorr between two arrays: each task whose counterpart has ended leaves the array's
// record and is judged on its own.
func (s *State) splitCorresponding(id model.JobID, at model.Time) {
	for {
		j, ok := s.jobs.Get(id)
		if !ok || j.State != model.Pending || !j.IsArray() || !hasKind(j.Deps, model.DepAfterCorr) {
			return
		}
		task := s.corresponding(j)
		if task == model.NoTask {
			return
		}
		el := s.split(j, model.TaskSet{{Lo: task, Hi: task, Step: 1}})
		for i := range el.Deps {
			if el.Deps[i].Kind == model.DepAfterCorr && el.Deps[i].Task == model.NoTask {
				el.Deps[i].Task = task
			}
		}
		s.update(el, at)
		s.record(el)
		if el.ID == id { // the last task took the array's own record
			return
		}
	}
}

// corresponding gives a task of j whose counterpart in an aftercorr array has ended, or NoTask.
func (s *State) corresponding(j *model.Job) int32 {
	found := int32(model.NoTask)
	for _, d := range j.Deps {
		if d.Kind != model.DepAfterCorr || d.Failed || d.Task != model.NoTask {
			continue
		}
		if _, ok := s.arrays.Get(d.Job); !ok {
			continue
		}
		j.Tasks.Each(func(t int32) bool {
			el, ok := s.elems.Get(elemKey(d.Job, t))
			if !ok {
				return true
			}
			if target, ok := s.jobs.Get(el); ok && target.State.Finished() {
				found = t
				return false
			}
			return true
		})
		if found != model.NoTask {
			break
		}
	}
	return found
}

// split takes tasks out of a pending array's record and gives them one of their own, unpublished; the last tasks take
// the array's record itself. The caller publishes what split returns.
func (s *State) split(j *model.Job, tasks model.TaskSet) *model.Job {
	rest := j.Tasks
	tasks.Each(func(t int32) bool {
		rest = rest.Without(t)
		return true
	})
	el := *j
	el.Deps = append([]model.Dep(nil), j.Deps...)
	if len(rest) > 0 {
		owner := *j
		owner.Tasks = rest
		s.put(&owner)
		s.record(&owner)
		el.ID = s.nextID
		s.nextID++
		s.useBlob(el.Spec.Script)
		s.useBlob(el.Spec.Env)
	}
	el.Tasks = tasks
	if tasks.Count() == 1 {
		el.Task, el.Tasks = tasks.Min(), nil
		s.elems.Set(elemKey(el.ArrayID, el.Task), el.ID)
	}
	return &el
}
