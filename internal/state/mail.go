package state

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Mails that users asked for (--mail-type) wait here until the leader takes them. It removes them from the facts before
// it sends them, so each is sent at most once, whatever happens to the leader. There is one mail for an array as a
// whole, unless its user asked for mail about its tasks.

// MaxMails bounds the waiting mails; beyond it new ones are dropped.
const MaxMails = 10000

// Mail is one mail to send. Immutable.
type Mail struct {
	What  model.MailTypes // one type
	At    model.Time
	Job   *model.Job // its record at that moment; in a mail about an array as a whole: one of its tasks
	Array *Array     // the array that the mail is about; nil: it is about the job
}

// Mailed drops mails up to Seq, because the leader sends them now.
type Mailed struct {
	Seq uint64
}

func (x *Mailed) Wire(c *wire.C) {
	wire.Int(c, &x.Seq)
}

func (*Mailed) kind() Kind { return KindMailed }

// mail queues a mail about j, if its user asked for it.
func (s *State) mail(what model.MailTypes, j *model.Job, at model.Time) {
	if w := j.Spec.Mail(); w != nil && w.Types&what != 0 && asAlone(j, w) {
		s.queueMail(&Mail{What: what, At: at, Job: j})
	}
}

// asAlone reports whether a job gets mails of its own: it is no array task, or its user asked for mail about tasks.
func asAlone(j *model.Job, w *model.MailWish) bool {
	return j.ArrayID == 0 || w.Types&model.MailArrayTasks != 0
}

func (s *State) queueMail(m *Mail) {
	if s.mails.Len() >= MaxMails {
		return
	}
	s.mails.Set(s.nextMail, m)
	s.nextMail++
}

// mailBegin queues the mail that j, or the first task of its array, has started.
func (s *State) mailBegin(j *model.Job, at model.Time) {
	w := j.Spec.Mail()
	if w == nil || w.Types&model.MailBegin == 0 {
		return
	}
	if asAlone(j, w) {
		s.queueMail(&Mail{What: model.MailBegin, At: at, Job: j})
		return
	}
	if a, ok := s.arrays.Get(j.ArrayID); ok && !a.Begun {
		s.queueMail(&Mail{What: model.MailBegin, At: at, Job: j, Array: a})
	}
}

// mailEnd queues the mail that j has ended. END includes failures; FAIL alone leaves out jobs that completed or were
// cancelled, as in Slurm.
func (s *State) mailEnd(j *model.Job, at model.Time) {
	if w := j.Spec.Mail(); w != nil && asAlone(j, w) {
		failed := j.State != model.Completed && j.State != model.Cancelled
		if what := w.Types.ForEnd(failed); what != 0 {
			s.queueMail(&Mail{What: what, At: at, Job: j})
		}
	}
}

// mailArrayEnd queues the mail that an array has ended; j is its last task, or one that ended with it.
func (s *State) mailArrayEnd(a *Array, j *model.Job) {
	w := j.Spec.Mail()
	if w == nil || asAlone(j, w) {
		return
	}
	if what := w.Types.ForEnd(a.Ill > 0); what != 0 {
		whole := *a
		s.queueMail(&Mail{What: what, At: j.End.At, Job: j, Array: &whole})
	}
}

// mailRequeue queues the mail that j goes back to the queue.
func (s *State) mailRequeue(j *model.Job, at model.Time) { s.mail(model.MailRequeue, j, at) }

// mailBack queues the mail that a run of j has ended and j goes back to the queue. Of one that goes back for its exit
// code, the user is told the failure, as in Slurm.
func (s *State) mailBack(j *model.Job, at model.Time) {
	if s.now.rules < rulesLast || j.State != model.Requeued || j.Run == nil || j.Run.Stop != model.NoStop ||
		j.End.Exit.Code == 0 {
		s.mailRequeue(j, at)
		return
	}
	n := *j
	n.State, n.Reason = j.End.Exit.State()
	if w := j.Spec.Mail(); w != nil && w.Types.ForEnd(n.State != model.Completed) == 0 {
		s.mailRequeue(j, at)
		return
	}
	s.mailEnd(&n, at)
}

// mailNever queues the mail that j's dependencies can't be fulfilled any more. Splitting a group off an array gives no
// further mail.
func (s *State) mailNever(old, j *model.Job) {
	if j.Reason != model.ReasonDependencyNeverSatisfied || old != nil && old.Reason == j.Reason || old == nil &&
		j.ArrayID != 0 && j.ID != j.ArrayID {
		return
	}
	if w := j.Spec.Mail(); w != nil && w.Types&model.MailInvalidDepend != 0 {
		s.queueMail(&Mail{What: model.MailInvalidDepend, Job: j})
	}
}

// halfwayOf gives the moment of the next mail about a running job's time limit, or 0.
func halfwayOf(j *model.Job) model.Time {
	if j == nil || j.Run == nil || j.State != model.Running {
		return 0
	}
	w := j.Spec.Mail()
	if w == nil || !asAlone(j, w) || j.Run.Deadline() == 0 {
		return 0
	}
	percent, _ := w.Types.NextLimit(j.Run.Mailed)
	if percent == 0 {
		return 0
	}
	return max(j.Run.Start+model.Time(j.Run.LimitS*10*int64(percent)+j.Run.SleepMS), 1)
}

// mailHalfways queues the mails about time limits that are due, at most limit.
func (s *State) mailHalfways(at model.Time, limit int) (changed bool) {
	for j := range s.dueBy(s.halfways, at, limit) {
		percent, what := j.Spec.Mail().Types.NextLimit(j.Run.Mailed)
		s.mail(what, j, at)
		s.change(j, func(r *model.Run) { r.Mailed = percent })
		changed = true
	}
	return changed
}

func (s *State) applyMailed(c *Mailed) Result {
	res := Result{}
	for {
		seq, _, ok := s.mails.Min()
		if !ok || seq > c.Seq {
			return res
		}
		s.mails.Delete(seq)
		res.Changed = true
	}
}

// Mails calls f for the mails that wait, in order, until it returns false.
func (v *View) Mails(f func(seq uint64, m *Mail) bool) { v.mails.Scan(f) }
