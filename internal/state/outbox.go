package state

import "gbatch/internal/model"

// The outbox holds accounting events until gdbd has them: the job's record as it was, under a growing sequence. An
// event that has not been acknowledged is replaced by the next one of the same attempt, because each is whole: a job
// that comes and goes while gdbd is away costs one entry. Steps that have ended have events of their own, which nothing
// replaces; the same step told twice is two events and one record.

// record queues j's present record for accounting.
func (s *State) record(j *model.Job) {
	if seq, ok := s.outSeq.Get(j.ID); ok {
		if old, ok := s.outbox.Get(seq); ok && old.Attempt == j.Attempt {
			s.outbox.Delete(seq)
		}
	}
	s.outbox.Set(s.nextSeq, j)
	s.outSeq.Set(j.ID, s.nextSeq)
	s.nextSeq++
}

// stepEnded queues the record of a step. The job may have ended by then, or begun again: a node that was away tells of
// it later.
func (s *State) stepEnded(j *model.Job, r *Report) bool {
	if r.Step == nil || r.Attempt == 0 || r.Attempt > j.Attempt || j.IsArray() {
		return false
	}
	if r.Attempt != j.Attempt {
		n := *j
		n.Attempt = r.Attempt
		j = &n
	}
	s.outbox.Set(s.nextSeq, j)
	s.outSteps.Set(s.nextSeq, r.Step)
	s.nextSeq++
	return true
}

func (s *State) applyTrim(c *Trim) Result {
	res := Result{}
	for {
		seq, j, ok := s.outbox.Min()
		if !ok || seq > c.Seq {
			return res
		}
		s.outbox.Delete(seq)
		s.outSteps.Delete(seq)
		if cur, ok := s.outSeq.Get(j.ID); ok && cur == seq {
			s.outSeq.Delete(j.ID)
		}
		res.Changed = true
	}
}
