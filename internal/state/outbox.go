package state

import "gbatch/internal/model"

// The outbox keeps accounting events until gdbd has them: the job's record at that moment, under a growing sequence
// number. The next event of the same attempt replaces one that is not acknowledged, because each event is a complete
// record: a job that starts and ends while gdbd is away costs one entry. Ended steps have events of their own, which
// are never replaced; a step that is reported twice gives two events and one record.

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

// stepEnded queues the record of a step. Its job may have ended or started again by then, because a node that was away
// reports late.
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
