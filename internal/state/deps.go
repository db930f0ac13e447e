package state

import (
	"fmt"
	"slices"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
)

// Dependencies are checked when the job that they name starts or ends, never by walking the queue: the index waiters
// has the jobs that wait for each job. wake notes a job that has started or ended, and wakeAll checks its waiters when
// the command's change is complete, so a chain of jobs that cancel one another needs no recursion.

// exists reports whether a dependency's target is still known.
func (s *State) exists(id model.JobID, task int32) bool {
	if _, ok := s.arrays.Get(id); !ok {
		_, ok := s.jobs.Get(id)
		return ok && task == model.NoTask
	}
	if task == model.NoTask || s.taskRecord(id, task) != nil {
		return true
	}
	// The task's record has been forgotten, or there was no such task: any other record of the array tells which.
	other, ok := s.jobs.Get(id)
	for _, tree := range []*btree.Map[uint64, model.JobID]{s.elems, s.groups} {
		if ok && other.ArrayID == id {
			break
		}
		tree.Ascend(elemKey(id, 0), func(k uint64, el model.JobID) bool {
			if model.JobID(k>>32) == id {
				other, ok = s.jobs.Get(el)
			}
			return false
		})
	}
	return ok && other.ArrayID == id && other.Spec.Tasklist.Has(task)
}

// verdict is the state of a dependency.
type verdict uint8

const (
	open verdict = iota
	fulfilled
	failed
)

// openDeps gives the dependencies that still hold j. With DepAny one fulfilled dependency is enough, and failed ones
// count only when all have failed. A delay after another job's start moves j's begin time.
func (s *State) openDeps(j *model.Job, deps []model.Dep, at model.Time) []model.Dep {
	var out []model.Dep
	for _, d := range deps {
		v, since := failed, at
		if !d.Failed {
			v, since = s.evaluate(j, d, at)
		}
		switch v {
		case fulfilled:
			if d.DelayS > 0 {
				j.Begin = max(j.Begin, since.Add(d.DelayS))
			}
			if j.Spec.DepAny {
				return nil
			}
		case failed:
			if !d.Failed {
				d.Failed, d.Why = true, s.culprit(d)
			}
			out = append(out, d)
		default:
			out = append(out, d)
		}
	}
	return out
}

// culprit says which job made a dependency fail for good: of an array, the task that failed first.
func (s *State) culprit(d model.Dep) string {
	if a, ok := s.arrays.Get(d.Job); ok && d.Task == model.NoTask {
		if d.Kind == model.DepAfterNotOK {
			return fmt.Sprintf("all tasks of job %d ended COMPLETED", d.Job)
		}
		return a.Culprit
	}
	var t *model.Job
	if d.Task != model.NoTask {
		t = s.taskRecord(d.Job, d.Task)
	} else {
		t, _ = s.jobs.Get(d.Job)
	}
	if t == nil || !t.State.Finished() {
		return ""
	}
	return howEnded(t)
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

// evaluate gives the state of a dependency of j and, if it is fulfilled, the moment of that.
func (s *State) evaluate(j *model.Job, d model.Dep, at model.Time) (verdict, model.Time) {
	if d.Kind == model.DepSingleton {
		if first, ok := s.firstLive(j.Spec.UID, j.Spec.Name); ok && first.root < root(j) {
			return open, at
		}
		return fulfilled, at
	}
	if a, ok := s.arrays.Get(d.Job); ok && d.Task == model.NoTask {
		return ofArray(d.Kind, a), at
	}
	var t *model.Job
	if d.Task != model.NoTask {
		t = s.taskRecord(d.Job, d.Task)
	} else {
		t, _ = s.jobs.Get(d.Job)
	}
	if t == nil {
		return unknown(d.Kind), at
	}
	done, good := t.State.Finished(), t.State == model.Completed
	if t.Leads() {
		done, good = s.hetState(t)
	}
	switch d.Kind {
	case model.DepAfter:
		switch {
		case t.Run != nil && t.Run.Launched != 0:
			return fulfilled, t.Run.Launched
		case t.State.HasResources() && t.State != model.Configuring:
			return fulfilled, at
		case done:
			return fulfilled, t.End.At
		}
	case model.DepAfterAny:
		if done {
			return fulfilled, at
		}
	case model.DepAfterOK, model.DepAfterCorr:
		if done && good {
			return fulfilled, at
		}
		if done {
			return failed, at
		}
	case model.DepAfterNotOK:
		if done && !good {
			return fulfilled, at
		}
		if done {
			return failed, at
		}
	case model.DepExpand:
		if t.State == model.Running || t.State == model.Suspended {
			return fulfilled, at
		}
		if done {
			return failed, at
		}
	}
	return open, at
}

// firstLive gives the first unfinished job of a user and name, in order of submission.
func (s *State) firstLive(uid uint32, name string) (first liveKey, ok bool) {
	s.live.Ascend(liveKey{uid: uid, name: name}, func(k liveKey) bool {
		first, ok = k, k.uid == uid && k.name == name
		return false
	})
	return first, ok
}

// unknown judges a dependency on a forgotten job: the job has ended, but its result is not known any more.
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
	case model.DepExpand: // it has no nodes of its own
		if done {
			return failed
		}
	}
	return open
}

// wake notes that j has started or ended: wakeAll then checks the jobs that wait for it or its array.
func (s *State) wake(j *model.Job) { s.woken = append(s.woken, j) }

// wakeAll checks all jobs that wait for jobs that have started or ended in this command.
func (s *State) wakeAll(at model.Time) {
	for len(s.woken) > 0 {
		list := s.woken
		s.woken = nil
		for _, j := range list { // all of these first: an array's end must not fail tasks whose counterparts ended well
			if j.State.Finished() && j.Task != model.NoTask {
				for _, id := range s.waitersOf(j) {
					s.splitTask(id, j.ArrayID, j.Task, at)
				}
			}
		}
		for _, j := range list {
			for _, id := range s.waitersOf(j) {
				s.rejudge(id, at)
			}
			if j.State.Finished() {
				s.wakeNamesakes(j, at)
			}
		}
	}
}

// waitersOf gives the jobs that wait for j itself, for its array, or for its task of the array.
func (s *State) waitersOf(j *model.Job) []model.JobID {
	var ids []model.JobID
	collect := func(target model.JobID, from, to int32, fits func(task int32) bool) {
		s.waiters.Ascend(waitKey{target: target, task: from}, func(k waitKey) bool {
			if k.target != target || k.task > to {
				return false
			}
			if fits == nil || fits(k.task) {
				ids = append(ids, k.id)
			}
			return true
		})
	}
	collect(j.ID, model.NoTask, model.NoTask, nil)
	if j.Follows() {
		collect(j.Het.ID, model.NoTask, model.NoTask, nil)
	}
	if j.ArrayID != 0 {
		collect(j.ArrayID, model.NoTask, model.NoTask, nil)
		if j.Task != model.NoTask {
			collect(j.ArrayID, j.Task, j.Task, nil)
		} else {
			collect(j.ArrayID, 0, j.Tasks.Max(), j.Tasks.Has)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// wakeNamesakes checks the singletons that may be next after a job has ended, or has got another name. While an earlier
// one of its user and name is there, or another task of its array, none is.
func (s *State) wakeNamesakes(gone *model.Job, at model.Time) {
	uid, name := gone.Spec.UID, gone.Spec.Name
	first, ok := s.firstLive(uid, name)
	if !ok || first.root <= root(gone) && s.now.rules >= rulesLast {
		return
	}
	var ids []model.JobID
	s.live.Ascend(first, func(k liveKey) bool {
		if k.uid != uid || k.name != name || k.root != first.root {
			return false
		}
		if j, ok := s.jobs.Get(k.id); ok && j.State == model.Pending && hasKind(j.Deps, model.DepSingleton) {
			ids = append(ids, k.id)
		}
		return true
	})
	for _, id := range ids {
		s.rejudge(id, at)
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

// splitCorresponding handles aftercorr between two arrays for a new array: every task whose counterpart has already
// ended leaves the array's record and is judged on its own. The other tasks follow when their counterparts end
// (splitTask).
func (s *State) splitCorresponding(id model.JobID, at model.Time) {
	j, ok := s.jobs.Get(id)
	if !ok || !j.IsArray() || !hasKind(j.Deps, model.DepAfterCorr) {
		return
	}
	type pair struct {
		array model.JobID
		task  int32
	}
	var due []pair
	for _, d := range j.Deps {
		if d.Kind != model.DepAfterCorr || d.Failed || d.Task != model.NoTask {
			continue
		}
		s.elems.Ascend(elemKey(d.Job, 0), func(k uint64, el model.JobID) bool {
			if model.JobID(k>>32) != d.Job {
				return false
			}
			if t, ok := s.jobs.Get(el); ok && t.State.Finished() && j.Tasks.Has(t.Task) {
				due = append(due, pair{d.Job, t.Task})
			}
			return true
		})
	}
	for _, p := range due {
		s.splitTask(id, p.array, p.task, at)
	}
}

// splitTask splits a task whose counterpart in array has ended off the record of its pending array (or group of tasks),
// and judges it on its own.
func (s *State) splitTask(id, array model.JobID, task int32, at model.Time) {
	j, ok := s.jobs.Get(id)
	if !ok || j.State != model.Pending || !j.IsArray() || !j.Tasks.Has(task) {
		return
	}
	if !slices.ContainsFunc(j.Deps, func(d model.Dep) bool {
		return d.Kind == model.DepAfterCorr && d.Job == array && d.Task == model.NoTask && !d.Failed
	}) {
		return
	}
	el := s.split(j, model.TaskSet{{Lo: task, Hi: task, Step: 1}})
	for i := range el.Deps {
		d := &el.Deps[i]
		if d.Kind == model.DepAfterCorr && d.Task == model.NoTask && s.taskRecord(d.Job, task) != nil {
			d.Task = task
		}
	}
	s.judge(el, at)
	s.put(el)
	s.record(el)
	s.killNever(el.ID, at)
}

// split moves tasks from a pending array's record to a new record, which is not published yet; the last tasks keep the
// array's record itself. The caller publishes the record that split returns.
func (s *State) split(j *model.Job, tasks model.TaskSet) *model.Job {
	el := s.splitAs(j, tasks, s.nextID)
	if el.ID == s.nextID {
		s.nextID++
	}
	return el
}

// splitAs is split with a number for the new record that no job has.
func (s *State) splitAs(j *model.Job, tasks model.TaskSet, id model.JobID) *model.Job {
	rest := j.Tasks.MinusSet(tasks)
	el := *j
	el.Deps = append([]model.Dep(nil), j.Deps...)
	if len(rest) > 0 {
		owner := *j
		owner.Tasks = rest
		s.put(&owner)
		s.record(&owner)
		el.ID = id
		s.useBlob(el.Spec.Script)
		s.useBlob(el.Spec.Env)
	}
	el.Tasks = tasks
	if tasks.Count() == 1 {
		el.Task, el.Tasks = tasks.Min(), nil
		s.correspond(&el)
	}
	return &el
}

// correspond has a single task of an array wait for its counterparts only (aftercorr), not for their arrays.
func (s *State) correspond(el *model.Job) {
	if el.Task == model.NoTask || s.now.rules < rulesBrief {
		return
	}
	for i := range el.Deps { // its own
		d := &el.Deps[i]
		if d.Kind == model.DepAfterCorr && d.Task == model.NoTask && s.taskRecord(d.Job, el.Task) != nil {
			d.Task = el.Task
		}
	}
}
