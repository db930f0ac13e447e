package state

import (
	"slices"

	"gbatch/internal/model"
)

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

// queueRecord queues the record of an attempt that is not the job's last one.
func (s *State) queueRecord(j *model.Job) {
	s.outbox.Set(s.nextSeq, j)
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

// attemptsPerEra is the distance between the attempts of a job in two eras: more than a job has in one.
const attemptsPerEra = 1000

// applyNewEra makes the facts of a restored snapshot safe to go on from: numbers of jobs, attempts and records that
// were given after the snapshot was made are not given a second time with another meaning.
func (s *State) applyNewEra(c *NewEra) Result {
	number := c.Number
	if n := len(s.eras); n > 0 {
		number = max(number, s.eras[n-1].Number+1)
	}
	eras := append(slices.Clone(s.eras), model.Era{Number: max(number, 1), From: s.nextSeq})
	if len(eras) > model.MaxEras { // gdbd may then be sent more than it lacks, never less
		eras[1].From = min(eras[0].From, eras[1].From)
		eras = eras[1:]
	}
	s.eras = eras
	s.nextID = max(s.nextID, min(c.NextJob, MaxJobID))
	for _, id := range s.jobs.Keys() {
		j, ok := s.jobs.Get(id)
		if !ok || j.State != model.Pending || j.IsArray() {
			continue
		}
		n := *j
		n.Attempt = (j.Attempt/attemptsPerEra + 1) * attemptsPerEra
		s.put(&n)
		s.record(&n)
	}
	s.plan()
	return Result{Changed: true}
}
