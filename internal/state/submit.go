package state

import (
	"math"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

func (s *State) applySubmit(at model.Time, c *Submit) Result {
	s.forgetRequests(at, requestsPerSubmit)
	if id := s.taken(c.RequestID); id != 0 {
		return Result{Job: id}
	}
	if !s.roomFor(1) {
		return Result{Refusal: TooManyJobs}
	}
	spec := c.Spec
	if r := s.maySubmit(spec, c.Most); r != OK {
		return Result{Refusal: r}
	}
	if r := s.submitLimit(spec, 0); r != model.ReasonNone {
		return Result{Refusal: OverLimit, Reason: r}
	}
	if !s.keepBlob(&c.Script, spec.UID) {
		return Result{Refusal: ContentMissing}
	}
	if !s.keepBlob(&c.Env, spec.UID) {
		s.dropBlob(c.Script.Key)
		return Result{Refusal: ContentMissing}
	}
	j := s.newJob(at, c.part(), c.Script.Key, c.Env.Key)
	if len(spec.Tasklist) > 0 {
		j.ArrayID, j.Tasks, j.Throttle = j.ID, spec.Tasklist, spec.Throttle
		n := int32(spec.Tasklist.Count())
		s.arrays.Set(j.ID, &Array{ID: j.ID, Total: n, Waiting: n, Min: spec.Tasklist.Min(), Max: spec.Tasklist.Max(),
			Step: spec.Tasklist[0].Step})
	}
	s.noteRequest(c.RequestID, j.ID, at)
	s.settle(j, at)
	s.wakeAll(at)
	s.plan()
	return Result{Job: j.ID, Changed: true}
}

// roomFor reports whether there may be n more jobs.
func (s *State) roomFor(n int) bool {
	most := int(s.cfg.Params.MaxJobs)
	return (most <= 0 || s.jobs.Len()+n <= most) && s.nextID+model.JobID(n-1) <= MaxJobID
}

// alike reports whether jobs of two specifications count for the same limits on numbers of jobs.
func alike(a, b *model.Spec) bool {
	return a.Account == b.Account && a.User == b.User && a.QOS == b.QOS
}

func (c *Submit) part() *HetPart { return &HetPart{Spec: c.Spec, Priority: c.Priority, Hold: c.Hold} }

// newJob gives a job, or a component of one, whose content is kept, its number.
func (s *State) newJob(at model.Time, p *HetPart, script, env string) *model.Job {
	spec := p.Spec
	spec.Script, spec.Env = script, env
	s.internSpec(spec)
	j := &model.Job{ID: s.nextID, Task: model.NoTask, Spec: spec, State: model.Pending, Hold: p.Hold,
		Priority: p.Priority, Direct: spec.PrioReq != 0, Submit: at, Begin: spec.Begin, Attempt: 1, Deps: spec.Deps,
		WCKeyID: s.noteWCKey(spec)}
	s.nextID++
	s.outcomes.Submitted++
	return j
}

// maySubmit checks what a submission asks for, its limits on numbers of jobs excepted.
func (s *State) maySubmit(spec *model.Spec, most int32) Refusal {
	if s.tooLong(spec, most) {
		return TooLong
	}
	if len(spec.Deps) > MaxDeps {
		return BadDependency
	}
	if spec.From != model.FromBefore && spec.CheckUser(s.cfg.Params.SlurmUID) != nil {
		return BadUser
	}
	for _, d := range spec.Deps {
		if d.Kind != model.DepSingleton && !s.exists(d.Job, d.Task) {
			return BadDependency
		}
	}
	return OK
}

// taken gives the job that a RequestID has got, or 0.
func (f *facts) taken(key string) model.JobID {
	if key == "" {
		return 0
	}
	r, _ := f.requests.Get(key)
	return r.Job
}

// noteRequest remembers which job a RequestID has got.
func (s *State) noteRequest(key string, id model.JobID, at model.Time) {
	if key != "" {
		s.requests.Set(key, request{id, at, s.nextReq})
		s.reqQueue.Set(s.nextReq, key)
		s.nextReq++
	}
}

// SpecBytes is the length of a job's description as it is stored, bytes, without the groups of its user.
func SpecBytes(sp *model.Spec) int {
	own := *sp
	own.Groups = nil
	data, err := wire.Marshal(&own)
	if err != nil { // a text or list is over its limit
		return math.MaxInt32
	}
	return len(data)
}

// tooLong reports whether commands of before, which say how many bytes a description may have, refuse one. Now only the
// leader looks at that: the length depends on the version that measures it, and replicas have to agree.
func (s *State) tooLong(sp *model.Spec, most int32) bool {
	return s.now.rules < rulesWeighed && most > 0 && bytesThen(sp) > int(most)
}

// bytesThen is SpecBytes as it was before rulesWeighed. Whoever appends a field to Spec, or to what is in it, takes it
// out here again: its bytes if it is nothing are one for each field. TestOldLengths fails otherwise.
func bytesThen(sp *model.Spec) int {
	n := SpecBytes(sp) - len(sp.Deps) // Dep.Array
	if sp.More != nil {
		n -= 2 // Needs.Reboot, External
	}
	via := 1
	if sp.Via != nil {
		if data, err := wire.Marshal(sp.Via); err == nil {
			via = len(data)
		}
	}
	return n - via
}

// requestsPerSubmit is how many outdated RequestIDs a submission removes: more than it adds, so that they don't pile up
// even if Ticks are rare.
const requestsPerSubmit = 2

// forgetRequests drops up to limit RequestIDs that are older than requestAgeS.
func (s *State) forgetRequests(at model.Time, limit int) {
	for range limit {
		seq, id, ok := s.reqQueue.Min()
		if !ok {
			return
		}
		if r, ok := s.requests.Get(id); ok && r.At.Add(requestAgeS) > at {
			return
		}
		s.reqQueue.Delete(seq)
		s.requests.Delete(id)
	}
}

// judge sets Deps (without fulfilled ones), Eligible and Reason from a pending job's holds, dependencies and begin
// time. j is not published yet.
func (s *State) judge(j *model.Job, at model.Time) {
	j.Deps = s.openDeps(j, j.Deps, at)
	ready := false
	reason := model.ReasonNone
	switch {
	case j.Hold == model.HeldByAdmin:
		reason = model.ReasonJobHeldAdmin
	case j.Hold == model.HeldByUser:
		reason = model.ReasonJobHeldUser
	case neverSatisfied(j):
		reason = model.ReasonDependencyNeverSatisfied
	case len(j.Deps) > 0:
		reason = model.ReasonDependency
	case j.Undue || j.Begin > at:
		reason = model.ReasonBeginTime
	default:
		ready = true
	}
	switch {
	case ready && j.Eligible == 0:
		j.Eligible, j.Reason, j.Why = max(at, 1), model.ReasonPriority, ""
		j.Accrue = s.ages.first(s, j)
	case ready:
	case j.Hold == model.HeldByAdmin && j.Reason.SaysWhyHeld():
		j.Eligible, j.Accrue = 0, 0 // the job has a more telling reason than JobHeldAdmin
	default:
		j.Eligible, j.Accrue, j.Reason, j.Why = 0, 0, reason, ""
		if j.Hold == model.HeldByUser {
			j.Why = s.doubtsJob(j)
		}
	}
}

// rejudge judges a pending job again and publishes its changes. A job that can never start is cancelled if it, or the
// configuration, asks for that.
func (s *State) rejudge(id model.JobID, at model.Time) {
	j, ok := s.jobs.Get(id)
	if !ok || j.State != model.Pending {
		return
	}
	n := *j
	s.judge(&n, at)
	if n.Reason != j.Reason || n.Eligible != j.Eligible || n.Begin != j.Begin || !slices.Equal(n.Deps, j.Deps) {
		s.put(&n)
		// Accounting has the time from which a job could start while it still waits.
		if j.Eligible == 0 && n.Eligible != 0 && s.now.rules >= rulesWeighed {
			s.record(&n)
		}
	}
	s.killNever(id, at)
}

// killNever cancels a pending job whose dependencies can't be fulfilled any more, if it has --kill-on-invalid-dep or
// DependencyParameters says so and the job does not say otherwise.
func (s *State) killNever(id model.JobID, at model.Time) {
	j, ok := s.jobs.Get(id)
	if !ok || j.State != model.Pending || !neverSatisfied(j) {
		return
	}
	if j.Spec.KillOnDep || s.cfg.Params.KillInvalidDep && !j.Spec.Extra().KeepOnDep {
		s.endPending(j, at, model.Cancelled, model.ReasonDependencyNeverSatisfied, j.Spec.UID, j.NeverText())
	}
}

// killAllNever cancels the jobs for which killNever is due, when the configuration begins to ask for that.
func (s *State) killAllNever(at model.Time) {
	var ids []model.JobID
	s.jobs.Scan(func(id model.JobID, j *model.Job) bool {
		if j.State == model.Pending && neverSatisfied(j) {
			ids = append(ids, id)
		}
		return true
	})
	for _, id := range ids {
		s.killNever(id, at)
	}
	s.wakeAll(at)
}
