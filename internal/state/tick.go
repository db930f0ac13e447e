package state

import (
	"iter"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
)

// maxPerTick bounds the work of one Tick, for each kind of work. The rest is due again at once.
const maxPerTick = 4096

// applyTick applies the effects of time up to at.
func (s *State) applyTick(at model.Time, c *Tick) Result {
	limit := int(c.Limit)
	if limit <= 0 || limit > maxPerTick {
		limit = maxPerTick
	}
	res := Result{}
	for j := range s.dueBy(s.limits, at, limit) {
		if s.AwaitsPower(j) && (j.Spec.Deadline == 0 || at < j.Spec.Deadline) && s.beginAnew(j, at) != j {
			res.Changed = true
			continue
		}
		s.stopRunning(j, at, s.whyOver(j, at), 0)
		res.Changed = true
	}
	for j := range s.dueBy(s.dooms, at, limit) {
		s.endPending(j, at, model.Deadline, model.ReasonDeadLine, 0, "")
		res.Changed = true
	}
	for j := range s.dueBy(s.begins, at, limit) {
		s.rejudge(j.ID, at)
		res.Changed = true
	}
	res.Changed = s.warn(at, limit) || res.Changed
	res.Changed = s.mailHalfways(at, limit) || res.Changed
	res.Changed = s.takeBack(at, limit) || res.Changed
	before := at.Add(-s.cfg.Params.MinJobAgeS)
	if s.cfg.Params.MinJobAgeS == 0 { // it keeps every job
		before = 0
	}
	for j := range s.dueBy(s.finished, before, limit) {
		s.remove(j)
		s.forgetArray(j)
		if j.Leads() {
			s.wake(j) // nobody waits for the other components any more
		}
		res.Changed = true
	}
	s.forgetRequests(at, limit)
	s.answers.forget(at, limit)
	res.Changed = s.endSpent(at) || res.Changed
	res.Changed = s.turnReservations(at) || res.Changed
	res.Changed = s.resumeNodes(at) || res.Changed
	res.Changed = s.forgetSpent(at, limit) || res.Changed
	s.wakeAll(at)
	s.plan()
	return res
}

// dueBy gives up to limit jobs that are due at a moment, in order. Each is changed so that it is no longer due then.
func (s *State) dueBy(tree *btree.BTreeG[due], at model.Time, limit int) iter.Seq[*model.Job] {
	return func(yield func(*model.Job) bool) {
		for range limit {
			d, ok := tree.Min()
			if !ok || d.at > at {
				return
			}
			j, ok := s.jobs.Get(d.id)
			if !ok {
				tree.Delete(d)
			} else if !yield(j) {
				return
			}
		}
	}
}

// whyOver says why a job is ended whose time is over, and tells those who want to know.
func (s *State) whyOver(j *model.Job, at model.Time) model.StopCause {
	switch {
	case j.Spec.Deadline != 0 && s.LatestEnd(j) == j.Spec.Deadline:
		s.stirJob(nil, j, model.OnTime)
		return model.StopDeadline
	case j.Run.CutShort():
		return j.Run.GivesWay
	}
	s.stirJob(nil, j, model.OnTime)
	s.mail(model.MailLimit, j, at)
	return model.StopTimeLimit
}

// warn notes that running jobs are to get the signal that they asked for.
func (s *State) warn(at model.Time, limit int) (changed bool) {
	for j := range s.dueBy(s.warnings, at, limit) {
		n, run := *j, *j.Run
		run.Warned = at
		n.Run = &run
		s.put(&n)
		changed = true
	}
	return changed
}

// forgetArray drops an array's counters with the last of its records.
func (s *State) forgetArray(j *model.Job) {
	if j.ArrayID == 0 {
		return
	}
	a, ok := s.arrays.Get(j.ArrayID)
	if !ok || a.Done < a.Total {
		return
	}
	if !s.hasRecords(j.ArrayID) {
		s.arrays.Delete(j.ArrayID)
	}
}

// hasRecords reports whether any record of an array is left.
func (s *State) hasRecords(array model.JobID) bool {
	if j, ok := s.jobs.Get(array); ok && j.ArrayID == array {
		return true
	}
	left := false
	for _, tree := range []*btree.Map[uint64, model.JobID]{s.elems, s.groups} {
		tree.Ascend(elemKey(array, 0), func(k uint64, _ model.JobID) bool {
			left = left || model.JobID(k>>32) == array
			return false
		})
	}
	return left
}
