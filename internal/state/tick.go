package state

import "gbatch/internal/model"

// maxPerTick bounds the work of one Tick, for each sort of job. What is left over is due at once again.
const maxPerTick = 4096

// applyTick lets time pass up to at.
func (s *State) applyTick(at model.Time, c *Tick) Result {
	limit := int(c.Limit)
	if limit <= 0 || limit > maxPerTick {
		limit = maxPerTick
	}
	res := Result{}
	for range limit {
		d, ok := s.limits.Min()
		if !ok || d.at > at {
			break
		}
		j, ok := s.jobs.Get(d.id)
		if !ok {
			s.limits.Delete(d)
			continue
		}
		s.stopRunning(j, at, model.StopTimeLimit, 0)
		res.Changed = true
	}
	for range limit {
		d, ok := s.begins.Min()
		if !ok || d.at > at {
			break
		}
		j, ok := s.jobs.Get(d.id)
		if !ok {
			s.begins.Delete(d)
			continue
		}
		n := *j
		s.update(&n, at)
		res.Changed = true
	}
	age := s.cfg.Params.MinJobAgeS
	for range limit {
		d, ok := s.finished.Min()
		if !ok || d.at.Add(age) > at {
			break
		}
		s.finished.Delete(d)
		if j, ok := s.jobs.Get(d.id); ok {
			s.remove(j)
			s.forgetArray(j)
			res.Changed = true
		}
	}
	for range limit {
		seq, id, ok := s.reqQueue.Min()
		if !ok {
			break
		}
		if r, ok := s.requests.Get(id); ok && r.At.Add(requestAgeS) > at {
			break
		}
		s.reqQueue.Delete(seq)
		s.requests.Delete(id)
	}
	s.plan()
	return res
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
	if _, ok := s.jobs.Get(j.ArrayID); ok {
		return
	}
	left := false
	s.elems.Ascend(elemKey(j.ArrayID, 0), func(k uint64, _ model.JobID) bool {
		left = model.JobID(k>>32) == j.ArrayID
		return false
	})
	if !left {
		s.arrays.Delete(j.ArrayID)
	}
}
