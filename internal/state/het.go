package state

import (
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// het.go handles heterogeneous jobs: jobs with consecutive numbers, the components, that start in one command or not
// at all. The first one runs the script; the others hold resources for its steps. A component may end alone, but the
// end of the first one ends all, and if one goes back to the queue, all do.

// SubmitHet adds a heterogeneous job. A repeated RequestID gives the same job again.
type SubmitHet struct {
	RequestID string
	Parts     []HetPart
	Script    model.Blob // of the first component
	Holder    model.Blob // of the others: it only waits
	Env       model.Blob
	Most      int32 // bytes that each Spec may have by rules of before (tooLong); 0: any number
}

func (x *SubmitHet) Wire(c *wire.C) {
	wire.ID(c, &x.RequestID, model.MaxName)
	wire.List(c, &x.Parts, model.MaxFew)
	wire.Struct(c, &x.Script)
	wire.Struct(c, &x.Holder)
	wire.Struct(c, &x.Env)
	wire.Int(c, &x.Most)
}

func (*SubmitHet) kind() Kind { return KindSubmitHet }

// HetPart is one component.
type HetPart struct {
	Spec     *model.Spec
	Priority uint32
	Hold     model.HoldKind
}

func (x *HetPart) Wire(c *wire.C) {
	wire.Ptr(c, &x.Spec)
	wire.Int(c, &x.Priority)
	wire.Int(c, &x.Hold)
}

func (s *State) applySubmitHet(at model.Time, c *SubmitHet) Result {
	s.forgetRequests(at, requestsPerSubmit)
	if id := s.taken(c.RequestID); id != 0 {
		return Result{Job: id}
	}
	n := len(c.Parts)
	if !s.roomFor(n) {
		return Result{Refusal: TooManyJobs}
	}
	for i := range c.Parts {
		sp := c.Parts[i].Spec
		if r := s.maySubmit(sp, c.Most); r != OK {
			return Result{Refusal: r}
		}
		others := 0
		for k := range i {
			if alike(c.Parts[k].Spec, sp) {
				others++
			}
		}
		if r := s.submitLimit(sp, others); r != model.ReasonNone {
			return Result{Refusal: OverLimit, Reason: r}
		}
	}
	var kept []string
	for i := range n {
		script := &c.Script
		if i > 0 {
			script = &c.Holder
		}
		for _, b := range [...]*model.Blob{script, &c.Env} {
			if !s.keepBlob(b, c.Parts[i].Spec.UID) {
				for _, key := range kept {
					s.dropBlob(key)
				}
				return Result{Refusal: ContentMissing}
			}
			kept = append(kept, b.Key)
		}
	}
	first := s.nextID
	for i := range c.Parts {
		p := &c.Parts[i]
		if s.now.rules >= rulesBrief { // they come back together, or none does
			p.Spec.Requeue = c.Parts[0].Spec.Requeue
		}
		j := s.newJob(at, p, kept[2*i], kept[2*i+1])
		j.Het = &model.Het{ID: first, Offset: int32(i), Size: int32(n)}
		s.judge(j, at)
		s.put(j)
		s.record(j)
	}
	s.noteRequest(c.RequestID, first, at)
	for i := range n {
		s.killNever(first+model.JobID(i), at)
	}
	s.wakeAll(at)
	s.plan()
	return Result{Job: first, Changed: true}
}

// component gives the record of a component.
func (f *facts) component(id model.JobID, offset int32) *model.Job {
	j, ok := f.jobs.Get(id + model.JobID(offset))
	if !ok || j.Het == nil || j.Het.ID != id || j.Het.Offset != offset {
		return nil
	}
	return j
}

// Components gives the components of a heterogeneous job that are known, in order; nil if id is no first component.
func (f *facts) Components(id model.JobID) []*model.Job {
	j := f.component(id, 0)
	if j == nil {
		return nil
	}
	out := make([]*model.Job, 0, j.Het.Size)
	for k := range j.Het.Size {
		if o := f.component(id, k); o != nil {
			out = append(out, o)
		}
	}
	return out
}

// Component gives a component by its place; nil if it is not known.
func (v *View) Component(id model.JobID, offset int32) *model.Job { return v.component(id, offset) }

// Together gives the components that have to start together with the first one, j, in order. ok is false while one of
// them may not start, or still has resources from before.
func (f *facts) Together(j *model.Job) (all []*model.Job, ok bool) {
	for _, o := range f.Components(j.Het.ID) {
		switch {
		case IsReady(o):
			all = append(all, o)
		case !o.State.Finished() || o.Leads():
			return nil, false
		}
	}
	return all, len(all) > 0
}

// others calls f for each other component of j's job that is known.
func (s *State) others(j *model.Job, f func(*model.Job)) {
	for k := range j.Het.Size {
		if o := s.component(j.Het.ID, k); o != nil && o.ID != j.ID {
			f(o)
		}
	}
}

// startSet starts all components of a heterogeneous job, or none. starts has those of a plan, and i is the first one of
// the job there.
func (s *State) startSet(at model.Time, epoch uint64, starts []model.Start, i int, each []Refusal) {
	id := model.JobID(0)
	var places []int
	for k := i; k < len(starts); k++ {
		if j, ok := s.jobs.Get(starts[k].Job); ok && j.Het != nil && (id == 0 || j.Het.ID == id) {
			id = j.Het.ID
			places = append(places, k)
		}
	}
	r := s.mayStartSet(at, epoch, id, starts, places)
	for _, k := range places {
		if each[k] = r; r == OK {
			each[k] = s.start(at, epoch, &starts[k])
		}
	}
}

// mayStartSet checks the starts of all components together: each books its nodes until all have been checked.
func (s *State) mayStartSet(at model.Time, epoch uint64, id model.JobID, starts []model.Start, places []int) Refusal {
	first := s.component(id, 0)
	if first == nil {
		return NotPending
	}
	all, ok := s.Together(first)
	if !ok || len(all) != len(places) {
		return NotPending
	}
	for _, j := range all {
		if !slices.ContainsFunc(places, func(k int) bool { return starts[k].Job == j.ID }) {
			return NotPending
		}
	}
	var before []*model.Node
	defer func() {
		for k := len(before) - 1; k >= 0; k-- {
			s.putNode(before[k].Def.Name, before[k])
		}
	}()
	var licenses []model.LicenseCount
	for _, k := range places {
		st := &starts[k]
		j, run, r := s.mayStart(at, epoch, st)
		if r != OK {
			return r
		}
		for _, name := range st.Alloc.NodeNames() {
			if n, ok := s.nodes.Get(name); ok {
				before = append(before, n)
			}
		}
		with := *j
		with.Run = run
		s.take(&with, at)
		for _, l := range st.Licenses {
			at := slices.IndexFunc(licenses, func(o model.LicenseCount) bool { return o.Name == l.Name })
			if at < 0 {
				licenses = append(licenses, l)
			} else {
				licenses[at].Count += l.Count
			}
		}
	}
	if !s.licensed(licenses) {
		return NotFits
	}
	return OK
}

// firstOver reports whether the first component of j's job has ended for good: then no other one comes back.
func (s *State) firstOver(j *model.Job) bool {
	if !j.Follows() {
		return false
	}
	first := s.component(j.Het.ID, 0)
	return first == nil || first.State.Finished()
}

// withFirst ends the other components when the first one has ended: as it did.
func (s *State) withFirst(j *model.Job, at model.Time) {
	if !j.Leads() {
		return
	}
	fate := &model.Fate{State: j.State, Reason: j.Reason, Code: j.End.Exit.Code, Signal: j.End.Exit.Signal, UID: j.End.UID}
	s.others(j, func(o *model.Job) {
		switch {
		case o.State == model.Pending:
			s.endPending(o, at, model.Cancelled, model.ReasonNone, j.End.UID, "component "+j.Het.Name()+" has ended")
		case o.State == model.Completing && (o.Run.Stop == model.NoStop || comesBack(o)):
			s.change(o, func(run *model.Run) { run.Stop, run.StopAt, run.Fate = model.StopWithFirst, at, fate })
		case o.State.HasResources() && o.State != model.Completing:
			n, run := *o, *o.Run
			run.StopWhy, run.Fate = "", fate
			n.Run = &run
			s.stopRunning(&n, at, model.StopWithFirst, 0)
		}
	})
}

// allBack puts the other components back into the queue when one has gone there: they start together.
func (s *State) allBack(j *model.Job, at model.Time) {
	if j.Het == nil {
		return
	}
	s.others(j, func(o *model.Job) {
		if o.State.HasResources() && o.State != model.Completing {
			n, run := *o, *o.Run
			run.StopWhy = "put back into the queue with component " + j.Het.Name()
			n.Run = &run
			s.stopRunning(&n, at, model.StopRequeue, o.Spec.UID)
		}
	})
}

// holdAll gives the other waiting components of j's job the hold of j.
func (s *State) holdAll(j *model.Job, at model.Time) {
	if j.Het == nil || j.Hold == model.NotHeld {
		return
	}
	s.others(j, func(o *model.Job) {
		if o.State == model.Pending && o.Hold < j.Hold {
			n := *o
			n.Hold = j.Hold
			s.judge(&n, at)
			s.put(&n)
			s.record(&n)
		}
	})
}

// heldWith gives the strongest hold of the waiting components of j's job, and of j itself.
func (s *State) heldWith(j *model.Job, hold model.HoldKind) model.HoldKind {
	if j.Het != nil {
		s.others(j, func(o *model.Job) {
			if o.State == model.Pending {
				hold = max(hold, o.Hold)
			}
		})
	}
	return hold
}

// hetTarget gives the components that a change concerns, for a target that names some: one, or with whole set all. r
// says why one can't be changed alone.
func (s *State) hetTarget(t *model.JobRef) (ids []model.JobID, one *model.Job) {
	if t.Het > 0 {
		if one = s.component(t.Job, t.Het-1); one == nil {
			return nil, nil
		}
		return []model.JobID{one.ID}, one
	}
	if j, ok := s.jobs.Get(t.Job); ok && j.Follows() {
		return []model.JobID{j.ID}, j
	}
	return s.wholeJob(t.Job), nil
}

// wholeHet gives all components of a job.
func (s *State) wholeHet(id model.JobID) (ids []model.JobID) {
	for _, o := range s.Components(id) {
		ids = append(ids, o.ID)
	}
	return ids
}

// hetStop says which components a Stop of one component concerns.
func (s *State) hetStop(c *Stop, ids []model.JobID, one *model.Job) ([]model.JobID, Refusal) {
	if one != nil && one.Follows() {
		if c.Event != model.EvCancel || one.State == model.Pending {
			return nil, WholeHet
		}
		return ids, OK
	}
	first, ok := s.jobs.Get(ids[0])
	if !ok || !first.Leads() {
		return ids, OK
	}
	ids = s.wholeHet(first.ID) // what ends the first one ends all
	if c.Event == model.EvRequeue && first.State.Finished() {
		for _, id := range ids {
			if o, ok := s.jobs.Get(id); ok && o.State.HasResources() {
				return nil, StillEnding
			}
		}
	}
	return ids, OK
}

// hetState gives whether a heterogeneous job has ended, and well: all of its components.
func (s *State) hetState(first *model.Job) (done, good bool) {
	done, good = true, true
	for _, o := range s.Components(first.Het.ID) {
		done, good = done && o.State.Finished(), good && o.State == model.Completed
	}
	return done, good
}

// checkHets: components run together, and none outlives the first one.
func (s *State) checkHets() (err error) {
	type seen struct{ running, waiting, over *model.Job }
	sets := map[model.JobID]*seen{}
	s.jobs.Scan(func(_ model.JobID, j *model.Job) bool {
		if j.Het == nil {
			return true
		}
		x := sets[j.Het.ID]
		if x == nil {
			x = &seen{}
			sets[j.Het.ID] = x
		}
		switch {
		case j.State == model.Pending:
			x.waiting = j
		case j.State.HasResources() && j.State != model.Completing:
			x.running = j
		case j.Leads() && j.State.Finished():
			x.over = j
		}
		switch {
		case x.running != nil && x.waiting != nil:
			err = malformed("component %s runs, and %s waits", x.running.Het.Name(), x.waiting.Het.Name())
		case x.over != nil && (x.running != nil || x.waiting != nil):
			err = malformed("component %s has ended, and others go on", x.over.Het.Name())
		}
		return err == nil
	})
	return err
}

// hetEdit gives the components that an Edit of a target concerns: a hold, and whether it comes back, is of all, and a
// specification of one.
func (s *State) hetEdit(c *Edit, t *model.JobRef, ids []model.JobID) []model.JobID {
	if len(ids) == 0 {
		return ids
	}
	j, ok := s.jobs.Get(ids[0])
	switch {
	case !ok || j.Het == nil:
	case slices.Contains(c.Set, SetSpec):
		return ids[:1]
	case slices.Contains(c.Set, SetRequeue) && s.now.rules >= rulesBrief:
		return s.wholeHet(j.Het.ID)
	case (t.Het > 0 || j.Follows()) && slices.Contains(c.Set, SetHold):
		return s.wholeHet(j.Het.ID)
	}
	return ids
}
