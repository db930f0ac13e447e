package state

import "gbatch/internal/model"

func (s *State) applySubmit(at model.Time, c *Submit) Result {
	if c.RequestID != "" {
		if old, ok := s.requests.Get(c.RequestID); ok {
			return Result{Job: old.Job}
		}
	}
	if max := int(s.cfg.Params.MaxJobs); max > 0 && s.jobs.Len() >= max {
		return Result{Refusal: TooManyJobs}
	}
	spec := c.Spec
	if len(spec.Deps) > MaxDeps {
		return Result{Refusal: BadDependency}
	}
	for _, d := range spec.Deps {
		if d.Job != 0 && !s.exists(d.Job, d.Task) {
			return Result{Refusal: BadDependency}
		}
	}
	if !s.keepBlob(c.Script) {
		return Result{Refusal: ContentMissing}
	}
	if !s.keepBlob(c.Env) {
		s.dropBlob(c.Script.Key)
		return Result{Refusal: ContentMissing}
	}
	s.internSpec(spec)
	j := &model.Job{ID: s.nextID, Task: model.NoTask, Spec: spec, State: model.Pending, Hold: c.Hold,
		Priority: c.Priority, Submit: at, Begin: spec.Begin, Attempt: 1, Deps: spec.Deps}
	s.nextID++
	if len(spec.Tasklist) > 0 {
		j.ArrayID, j.Tasks, j.Throttle = j.ID, spec.Tasklist, spec.Throttle
		first := spec.Tasklist[0]
		n := int32(spec.Tasklist.Count())
		s.arrays.Set(j.ID, &Array{ID: j.ID, Total: n, Waiting: n, Min: spec.Tasklist.Min(), Max: spec.Tasklist.Max(),
			Step: first.Step})
	}
	s.judge(j, at)
	s.put(j)
	s.record(j)
	s.splitCorresponding(j.ID, at)
	if c.RequestID != "" {
		s.requests.Set(c.RequestID, request{j.ID, at, s.nextReq})
		s.reqQueue.Set(s.nextReq, c.RequestID)
		s.nextReq++
	}
	s.plan()
	return Result{Job: j.ID, Changed: true}
}

func (s *State) internSpec(sp *model.Spec) {
	for _, p := range []*string{&sp.User, &sp.Group, &sp.Account, &sp.QOS, &sp.WorkDir, &sp.StdIn, &sp.Host, &sp.Script,
		&sp.Env, &sp.Features} {
		*p = s.intern(*p)
	}
	for i := range sp.Partitions {
		sp.Partitions[i] = s.intern(sp.Partitions[i])
	}
	for i := range sp.Gres {
		sp.Gres[i].Name, sp.Gres[i].Type = s.intern(sp.Gres[i].Name), s.intern(sp.Gres[i].Type)
	}
}

// judge sets what follows from a pending job's holds, dependencies and begin time: Deps (fulfilled ones go), Eligible
// and Reason. j is not published yet.
func (s *State) judge(j *model.Job, at model.Time) {
	j.Deps = s.openDeps(j, j.Deps, at)
	ready := false
	switch {
	case j.Hold == model.HeldByAdmin:
		j.Reason = model.ReasonJobHeldAdmin
	case j.Hold == model.HeldByUser:
		j.Reason = model.ReasonJobHeldUser
	case neverSatisfied(j):
		j.Reason = model.ReasonDependencyNeverSatisfied
	case len(j.Deps) > 0:
		j.Reason = model.ReasonDependency
	case j.Begin > at:
		j.Reason = model.ReasonBeginTime
	default:
		ready = true
	}
	switch {
	case !ready:
		j.Eligible, j.Why = 0, ""
	case j.Eligible == 0:
		j.Eligible, j.Reason, j.Why = at, model.ReasonPriority, ""
	}
}

// update publishes a changed copy of a pending job after judging it anew.
func (s *State) update(j *model.Job, at model.Time) {
	s.judge(j, at)
	s.put(j)
}
