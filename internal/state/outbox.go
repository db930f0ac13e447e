package state

import "gbatch/internal/model"

// The outbox holds accounting events until gdbd has them: the job's record as it was, under a growing sequence. An
// event that has not been acknowledged is replaced by the next one of the same attempt, because each is whole: a job
// that comes and goes while gdbd is away costs one entry.

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

func (s *State) applyTrim(c *Trim) Result {
	res := Result{}
	for {
		seq, j, ok := s.outbox.Min()
		if !ok || seq > c.Seq {
			return res
		}
		s.outbox.Delete(seq)
		if cur, ok := s.outSeq.Get(j.ID); ok && cur == seq {
			s.outSeq.Delete(j.ID)
		}
		res.Changed = true
	}
}
