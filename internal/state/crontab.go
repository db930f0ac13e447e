package state

import (
	"fmt"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// crontab.go keeps users' crontabs. Each entry is one job. It waits for its Begin like any other; when a run has ended,
// however, it goes back into the queue without one (Job.Undue), and the leader, who has a clock and a time zone, sets
// the entry's next time by an Edit. A job that is cancelled does not come back, and its lines are shown as comments.

// Crontab replaces or removes a user's crontab and its jobs: as a whole, or not at all.
type Crontab struct {
	UID    uint32
	By     uint32 // who does it
	Remove bool
	Text   []byte
	Jobs   []Submit // of the entries, in order; their RequestIDs don't count
	Via    *model.Cert
}

func (x *Crontab) Wire(c *wire.C) {
	wire.Int(c, &x.UID)
	wire.Int(c, &x.By)
	wire.Bool(c, &x.Remove)
	wire.Bytes(c, &x.Text, model.MaxText)
	wire.List(c, &x.Jobs, model.MaxFew)
	wire.Ptr(c, &x.Via)
}

func (*Crontab) kind() Kind { return KindCrontab }

// MaxCrontabBytes bounds the texts of all crontabs together.
const MaxCrontabBytes = 64 << 20

func validCrontab(x *Crontab) error {
	if x.Remove && (len(x.Text) > 0 || len(x.Jobs) > 0) {
		return malformed("a removal of a crontab with a text")
	}
	for i := range x.Jobs {
		sp := x.Jobs[i].Spec
		if err := validSpec(sp); err != nil {
			return err
		}
		if sp.Cron == nil || sp.UID != x.UID || len(sp.Tasklist) > 0 {
			return malformed("a crontab's job that is of none, of another user, or an array")
		}
	}
	return nil
}

func (s *State) applyCrontab(at model.Time, c *Crontab) Result {
	old := s.crontabJobs(c.UID)
	if r := s.mayInstall(c, old); r.Refusal != OK {
		return r
	}
	var kept []string
	for i := range c.Jobs {
		for _, b := range [...]*model.Blob{&c.Jobs[i].Script, &c.Jobs[i].Env} {
			if !s.keepBlob(b, c.UID) {
				for _, key := range kept {
					s.dropBlob(key)
				}
				return Result{Refusal: ContentMissing}
			}
			kept = append(kept, b.Key)
		}
	}
	_, had := s.crontabs.Get(c.UID)
	if s.crontabs.Delete(c.UID); !c.Remove {
		s.crontabs.Set(c.UID, &model.Crontab{UID: c.UID, Text: c.Text, At: at, Via: c.Via})
	}
	for _, j := range old {
		n := *j
		n.LastRun, n.Undue = true, false
		if n.State == model.Pending {
			s.endPending(&n, at, model.Cancelled, model.ReasonNone, c.By, "its user's crontab has changed")
		} else {
			s.put(&n)
			s.record(&n)
		}
	}
	for i := range c.Jobs {
		s.settle(s.newJob(at, c.Jobs[i].part(), c.Jobs[i].Script.Key, c.Jobs[i].Env.Key), at)
	}
	s.wakeAll(at)
	s.plan()
	return Result{Changed: had || !c.Remove}
}

// crontabJobs gives a user's jobs that come back, in order.
func (s *State) crontabJobs(uid uint32) (out []*model.Job) {
	for _, p := range []Phase{Waits, Holds} {
		s.owned.Ascend(ownedKey{uid: uid, phase: p}, func(k ownedKey) bool {
			if k.uid != uid || k.phase != p {
				return false
			}
			if j, ok := s.jobs.Get(k.id); ok && j.Recurs() {
				out = append(out, j)
			}
			return true
		})
	}
	return out
}

// mayInstall checks a crontab's size and its jobs. Limits on numbers of jobs count without the jobs that it replaces.
// If one job is refused, the result's Each ends with it.
func (s *State) mayInstall(c *Crontab, old []*model.Job) Result {
	n := len(c.Jobs)
	if n > 0 && !s.roomFor(n) {
		return Result{Refusal: TooManyJobs}
	}
	bytes := len(c.Text)
	s.crontabs.Scan(func(uid uint32, t *model.Crontab) bool {
		if uid != c.UID {
			bytes += len(t.Text)
		}
		return true
	})
	if !c.Remove && bytes > MaxCrontabBytes {
		return Result{Refusal: Full}
	}
	for i := range c.Jobs {
		sp := c.Jobs[i].Spec
		refused := func(r Refusal, why model.Reason) Result {
			each := make([]Refusal, i+1)
			each[i] = r
			return Result{Refusal: r, Reason: why, Each: each}
		}
		if r := s.maySubmit(sp, c.Jobs[i].Most); r != OK {
			return refused(r, model.ReasonNone)
		}
		others := 0
		for k := range i {
			if alike(c.Jobs[k].Spec, sp) {
				others++
			}
		}
		for _, j := range old {
			if j.State == model.Pending && alike(j.Spec, sp) {
				others--
			}
		}
		if r := s.submitLimit(sp, others); r != model.ReasonNone {
			return refused(OverLimit, r)
		}
	}
	return Result{}
}

// disable makes a job that came back one that does not, and its lines comments. j is not published yet.
func (s *State) disable(j *model.Job) {
	if !j.Recurs() {
		return
	}
	j.LastRun, j.Undue = true, false
	lines := model.Lines{First: j.Spec.Cron.First, Last: j.Spec.Cron.Last}
	if t, ok := s.crontabs.Get(j.Spec.UID); ok && !slices.Contains(t.Off, lines) {
		n := *t
		n.Off = append(slices.Clip(n.Off), lines)
		s.crontabs.Set(n.UID, &n)
	}
}

// stopCrontab ends the coming back of a crontab's jobs: those that wait are cancelled, those that run go on.
func (s *State) stopCrontab(t *model.Crontab, at model.Time, why string) {
	for _, j := range s.crontabJobs(t.UID) {
		if j.State == model.Pending {
			s.endPending(j, at, model.Cancelled, model.ReasonNone, 0, why)
			continue
		}
		n := *j
		s.disable(&n)
		s.put(&n)
		s.record(&n)
	}
	if left, ok := s.crontabs.Get(t.UID); ok {
		n := *left
		n.Why = why
		s.crontabs.Set(n.UID, &n)
	}
}

// retries reports whether a run that has ended was none: the job's nodes did not begin it, and it starts as soon as it
// can.
func retries(j *model.Job) bool {
	return j.Run != nil && (j.Run.Stop == model.StopLaunch || j.Run.Stop == model.StopTaken)
}

// undue reports whether a job waits for the next time of its crontab entry to be set.
func undue(j *model.Job) bool { return j.Undue && j.State == model.Pending }

// Undue gives the jobs of crontabs that wait for their next time to be set, in order.
func (v *View) Undue() (out []*model.Job) {
	v.undue.Scan(func(id model.JobID, _ struct{}) bool {
		if j, ok := v.jobs.Get(id); ok {
			out = append(out, j)
		}
		return true
	})
	return out
}

// Crontab gives a user's crontab; nil if there is none.
func (v *View) Crontab(uid uint32) *model.Crontab {
	t, _ := v.crontabs.Get(uid)
	return t
}

// checkCrontabs: only jobs of crontabs wait for a next time, and no crontab is another user's.
func (s *State) checkCrontabs() (err error) {
	s.jobs.Scan(func(id model.JobID, j *model.Job) bool {
		if j.Undue && (!j.Recurs() || j.State != model.Pending || j.Eligible != 0) {
			err = fmt.Errorf("job %d (%s) waits for a next time, and can't come back", id, j.State)
		}
		return err == nil
	})
	s.crontabs.Scan(func(uid uint32, t *model.Crontab) bool {
		if uid != t.UID {
			err = fmt.Errorf("the crontab of user %d is kept as user %d's", t.UID, uid)
		}
		return err == nil
	})
	return err
}

// crontab reads one.
func (in *restorer) crontab() error {
	x := new(model.Crontab)
	err := in.d.Read(x)
	in.n.crontabs.Set(x.UID, x)
	return err
}
