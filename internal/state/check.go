package state

import (
	"errors"
	"fmt"
	"slices"

	"gbatch/internal/model"
)

// Check verifies every invariant and returns the first that is broken. It walks all facts; tests run it after every
// Apply.
func (s *State) Check() error {
	if err := s.checkJobs(); err != nil { // first, because the others rely on complete records
		return err
	}
	if err := s.checkHets(); err != nil {
		return err
	}
	if err := s.checkNodes(); err != nil {
		return err
	}
	if err := s.checkPower(); err != nil {
		return err
	}
	if err := s.checkDeps(); err != nil {
		return err
	}
	if err := s.checkMoney(); err != nil {
		return err
	}
	if err := s.checkAccounts(); err != nil {
		return err
	}
	if err := s.checkReservations(); err != nil {
		return err
	}
	if err := s.checkCrontabs(); err != nil {
		return err
	}
	if err := s.checkTriggers(); err != nil {
		return err
	}
	return s.checkDerived()
}

// checkNodes: a node's counts of use are exactly what its jobs hold, and nothing is held twice.
func (s *State) checkNodes() (err error) {
	holds := map[string]map[model.JobID]*model.NodeAlloc{}
	s.jobs.Scan(func(id model.JobID, j *model.Job) bool {
		if !j.State.HasResources() {
			return true
		}
		for i := range j.Run.Alloc.Nodes {
			na := &j.Run.Alloc.Nodes[i]
			if holds[na.Node] == nil {
				holds[na.Node] = map[model.JobID]*model.NodeAlloc{}
			}
			holds[na.Node][id] = na
		}
		for i := range j.Run.Leaving {
			na := &j.Run.Leaving[i].Part
			if holds[na.Node] == nil {
				holds[na.Node] = map[model.JobID]*model.NodeAlloc{}
			}
			holds[na.Node][id] = na
		}
		return true
	})
	for _, d := range s.cfg.Future {
		if s.defs[d.Name] != nil {
			return fmt.Errorf("node %s is there, and may come", d.Name)
		}
	}
	s.nodes.Scan(func(name string, n *model.Node) bool {
		var mem int64
		gres := map[string]model.Bits{}
		var shared []model.SharedGPU
		if len(n.Jobs) != len(holds[name]) {
			err = fmt.Errorf("node %s lists %d jobs, %d hold resources there", name, len(n.Jobs), len(holds[name]))
			return false
		}
		if !slices.IsSorted(n.Jobs) || n.Exclusive != 0 &&
			(n.AwakeJobs() != 1 || !slices.Contains(n.Jobs, n.Exclusive) || slices.Contains(n.Asleep, n.Exclusive)) {
			err = fmt.Errorf("node %s lists jobs %v, asleep %v, and is job %d's alone", name, n.Jobs, n.Asleep, n.Exclusive)
			return false
		}
		if s.defs[name] == nil && len(n.Jobs) == 0 {
			err = fmt.Errorf("node %s is in no configuration, and empty", name)
			return false
		}
		ending := int32(0)
		for _, id := range n.Jobs {
			if j, ok := s.jobs.Get(id); ok && (j.State == model.Completing || j.Run.LeavingAt(name) >= 0) {
				ending++
			}
			na := holds[name][id]
			if na == nil {
				err = fmt.Errorf("node %s lists job %d, which holds nothing there", name, id)
				return false
			}
			mem += na.MemMiB
			for _, g := range na.Gres {
				if g.Index.Overlaps(gres[g.Name]) {
					err = fmt.Errorf("node %s: a %s of job %d is given twice", name, g.Name, id)
					return false
				}
				gres[g.Name] = gres[g.Name].Or(g.Index)
			}
			shared = model.AddShared(shared, na.Gres, 1)
		}
		if err = s.checkShared(n, shared); err != nil {
			return false
		}
		cpus, bad := s.sharedRight(n, holds[name])
		if bad != nil {
			err = bad
			return false
		}
		if cpus.String() != n.UsedCPUs.String() || mem != n.UsedMem {
			err = fmt.Errorf("node %s: books %s CPUs and %d MiB, its jobs hold %s and %d", name, n.UsedCPUs, n.UsedMem, cpus,
				mem)
			return false
		}
		if ending != n.Ending {
			err = fmt.Errorf("node %s: counts %d jobs that are ending, there are %d", name, n.Ending, ending)
			return false
		}
		for _, u := range n.UsedGres {
			if u.Index.String() != gres[u.Name].String() {
				err = fmt.Errorf("node %s: books %s %s, its jobs hold %s", name, u.Name, u.Index, gres[u.Name])
				return false
			}
			delete(gres, u.Name)
		}
		for name2, b := range gres {
			if !b.Empty() {
				err = fmt.Errorf("node %s: %s %s is held but not booked", name, name2, b)
			}
		}
		return err == nil
	})
	return err
}

// checkJobs: a record's parts fit its state, and array counters are the sum of their records.
func (s *State) checkJobs() (err error) {
	type sums struct{ waiting, active, done int32 }
	seen := map[model.JobID]*sums{}
	refs := map[string]int32{}
	s.jobs.Scan(func(id model.JobID, j *model.Job) bool {
		refs[j.Spec.Script]++
		refs[j.Spec.Env]++
		bad := func(what string) bool {
			err = fmt.Errorf("job %d (%s): %s", id, j.State, what)
			return false
		}
		if err = validJob(j); err != nil {
			return false
		}
		if what := badSize(j); what != "" {
			return bad(what)
		}
		switch {
		case j.ID != id || id >= s.nextID:
			return bad("is stored under another number, or one that is not given out yet")
		case j.IsArray() && (j.Task != model.NoTask || j.ArrayID == 0 || !j.Tasks.Valid()):
			return bad("is a group of tasks and something else")
		case (j.ArrayID == 0) != (len(j.Spec.Tasklist) == 0):
			return bad("and its specification disagree whether it is of an array")
		case j.Claim != nil && !IsReady(j):
			return bad("has a claim and may not start")
		case j.Rush != nil && (j.State != model.Pending || j.Hold != model.NotHeld):
			return bad("is expedited and does not wait for room")
		case j.State != model.Pending && len(j.Deps) > 0:
			return bad("still has dependencies")
		case j.IsArray() && j.State != model.Pending && j.State != model.Cancelled:
			return bad("is an array that runs as one")
		}
		if j.ArrayID != 0 {
			t := seen[j.ArrayID]
			if t == nil {
				t = &sums{}
				seen[j.ArrayID] = t
			}
			n := int32(1)
			if j.IsArray() {
				n = int32(j.Tasks.Count())
			}
			switch {
			case j.State == model.Pending:
				t.waiting += n
			case j.State.HasResources():
				t.active += n
			default:
				t.done += n
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	for id := range seen {
		if _, ok := s.arrays.Get(id); !ok {
			return fmt.Errorf("tasks of array %d are left, its counters are gone", id)
		}
	}
	s.arrays.Scan(func(id model.JobID, a *Array) bool {
		t := seen[id]
		if t == nil {
			t = &sums{}
		}
		// Finished tasks may have been forgotten already, so done is a lower bound.
		if a.Waiting != t.waiting || a.Active != t.active || a.Done < t.done || a.Waiting+a.Active+a.Done != a.Total ||
			a.Failed > a.Done {
			err = fmt.Errorf("array %d counts %+v, its records %+v", id, *a, *t)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	s.blobs.Scan(func(key string, b *model.Blob) bool {
		if b.Refs != refs[key] {
			err = fmt.Errorf("content %.12s has %d references, %d jobs use it", key, b.Refs, refs[key])
		}
		delete(refs, key)
		return err == nil
	})
	delete(refs, "")
	for key := range refs {
		return fmt.Errorf("content %.12s is used and missing", key)
	}
	return err
}

// checkDeps: no job waits for an event that has already happened.
func (s *State) checkDeps() (err error) {
	s.jobs.Scan(func(id model.JobID, j *model.Job) bool {
		for _, d := range depsOf(j) {
			if d.Failed {
				continue
			}
			if v, _ := s.evaluate(j, d, 0); v != open {
				err = fmt.Errorf("job %d still waits (%s) for %d_%d, which is over", id, d.Kind, d.Job, d.Task)
				return false
			}
			if d.Kind != model.DepAfterCorr || d.Task != model.NoTask || !j.IsArray() {
				continue
			}
			j.Tasks.Each(func(task int32) bool {
				if el, ok := s.elems.Get(elemKey(d.Job, task)); ok {
					if t, ok := s.jobs.Get(el); ok && t.State.Finished() {
						err = fmt.Errorf("task %d of job %d still waits for its counterpart %d_%d, which is over", task, id, d.Job, task)
					}
				}
				return err == nil
			})
		}
		return err == nil
	})
	return err
}

// checkDerived: the indexes equal ones that are built anew from the facts, entry by entry.
func (s *State) checkDerived() error {
	fresh := &State{facts: s.facts}
	fresh.reindex()
	fresh.settleAs(s)
	if fresh.active != s.active || fresh.pending != s.pending || fresh.rising != s.rising || fresh.nextDue != s.nextDue {
		return fmt.Errorf("counters differ: active %d/%d, pending %d/%d, due %d/%d", s.active, fresh.active, s.pending,
			fresh.pending, s.nextDue, fresh.nextDue)
	}
	if len(s.woken) > 0 {
		return fmt.Errorf("%d jobs have started or ended and nobody looked who waits for them", len(s.woken))
	}
	for _, c := range []struct {
		what      string
		have, got []string
	}{
		{"time limits", list(s.limits.Scan), list(fresh.limits.Scan)},
		{"begin times", list(s.begins.Scan), list(fresh.begins.Scan)},
		{"jobs of reservations", list(s.asked.Scan), list(fresh.asked.Scan)},
		{"deadlines", list(s.dooms.Scan), list(fresh.dooms.Scan)},
		{"warnings", list(s.warnings.Scan), list(fresh.warnings.Scan)},
		{"nodes that resume", list(s.resumes.Scan), list(fresh.resumes.Scan)},
		{"takes", list(s.takes.Scan), list(fresh.takes.Scan)},
		{"halfways", list(s.halfways.Scan), list(fresh.halfways.Scan)},
		{"finished jobs", list(s.finished.Scan), list(fresh.finished.Scan)},
		{"names", list(s.live.Scan), list(fresh.live.Scan)},
		{"users' jobs", list(s.owned.Scan), list(fresh.owned.Scan)},
		{"waiters", list(s.waiters.Scan), list(fresh.waiters.Scan)},
		{"tasks", pairs(s.elems.Scan), pairs(fresh.elems.Scan)},
		{"groups of tasks", pairs(s.groups.Scan), pairs(fresh.groups.Scan)},
		{"moving jobs", pairs(s.moving.Scan), pairs(fresh.moving.Scan)},
		{"jobs that share", pairs(s.shares.Scan), pairs(fresh.shares.Scan)},
		{"jobs of crontabs", pairs(s.undue.Scan), pairs(fresh.undue.Scan)},
		{"queues", s.listReady(), fresh.listReady()},
		{"licenses in use", licenseLines(s.licenses), licenseLines(fresh.licenses)},
		{"purses", purseLines(s), purseLines(fresh)},
		{"jobs' own minutes", list(s.capDue.Scan), list(fresh.capDue.Scan)},
		{"tallies", tallyLines(s), tallyLines(fresh)},
		{"jobs that don't age yet", ageLines(s), ageLines(fresh)},
	} {
		if !slices.Equal(c.have, c.got) {
			return fmt.Errorf("the index of %s differs from the facts: it has %v, they give %v", c.what, without(c.have, c.got),
				without(c.got, c.have))
		}
	}
	if err := errors.Join(s.checkAges(), s.checkHeld()); err != nil {
		return err
	}
	return s.checkLogs()
}

// checkLogs: the outbox and the remembered requests agree with their indexes.
func (s *State) checkLogs() (err error) {
	s.outSeq.Scan(func(id model.JobID, seq uint64) bool {
		if j, ok := s.outbox.Get(seq); !ok || j.ID != id {
			err = fmt.Errorf("job %d's last accounting event %d is not in the outbox", id, seq)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	if s.mails.Len() > MaxMails {
		return fmt.Errorf("%d mails wait, the limit is %d", s.mails.Len(), MaxMails)
	}
	if seq, _, ok := s.mails.Max(); ok && seq >= s.nextMail {
		return fmt.Errorf("mail %d is from the future: the next is %d", seq, s.nextMail)
	}
	if err := s.shipped.check(s.nextSeq); err != nil {
		return err
	}
	if seq, _, ok := s.outbox.Min(); ok && seq <= s.shipped.acked {
		return fmt.Errorf("accounting event %d waits, and %d is acknowledged", seq, s.shipped.acked)
	}
	s.outbox.Scan(func(seq uint64, j *model.Job) bool {
		if seq >= s.nextSeq {
			err = fmt.Errorf("accounting event %d is from the future: the next is %d", seq, s.nextSeq)
		}
		_, step := s.outSteps.Get(seq)
		if _, told := s.outTrail.Get(seq); step || told {
			return err == nil
		}
		last, ok := s.outSeq.Get(j.ID)
		if of, there := s.outbox.Get(last); ok && there && last != seq && of.Attempt == j.Attempt &&
			sizeOf(of) == sizeOf(j) {
			err = fmt.Errorf("job %d's attempt %d has two accounting events", j.ID, j.Attempt)
		}
		return err == nil // an earlier attempt has another one when it is corrected
	})
	if err != nil {
		return err
	}
	weighs := detail{}
	s.outSteps.Scan(func(seq uint64, x *model.Step) bool {
		weighs.steps += stepWeight(x)
		if _, ok := s.outbox.Get(seq); !ok {
			err = fmt.Errorf("the step's end %d is not in the outbox", seq)
		}
		return err == nil
	})
	s.outTrail.Scan(func(seq uint64, a *model.Audit) bool {
		weighs.trail += trailWeight(a)
		if j, ok := s.outbox.Get(seq); err == nil && (!ok || j != noJob) {
			err = fmt.Errorf("the entry %d of the trail is not in the outbox", seq)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	if weighs != s.detail {
		return fmt.Errorf("steps and entries that wait weigh %+v, and are counted as %+v", weighs, s.detail)
	}
	if s.requests.Len() != s.reqQueue.Len() {
		return fmt.Errorf("%d requests, %d in their queue", s.requests.Len(), s.reqQueue.Len())
	}
	if err := s.answers.check(); err != nil {
		return err
	}
	s.reqQueue.Scan(func(seq uint64, id string) bool {
		if r, ok := s.requests.Get(id); !ok || r.Seq != seq || seq >= s.nextReq {
			err = fmt.Errorf("request %s stands in the queue at %d, and is %+v", id, seq, r)
		}
		return err == nil
	})
	return err
}

func (s *State) listReady() (out []string) {
	s.ready.Scan(func(part string, q *queue) bool {
		q.tree.Scan(func(k readyKey) bool {
			out = append(out, fmt.Sprint(part, k))
			return true
		})
		return true
	})
	return out
}

func tallyLines(s *State) (out []string) {
	s.tallies.Scan(func(key string, t *Tally) bool {
		one, on := *t, []string(nil)
		if one.nodes = nil; t.nodes != nil {
			on = pairs(t.nodes.Scan)
		}
		out = append(out, fmt.Sprintf("%q=%+v %v", key, one, on))
		return true
	})
	return out
}

func list[T any](scan func(func(T) bool)) (out []string) {
	scan(func(x T) bool {
		out = append(out, fmt.Sprint(x))
		return true
	})
	return out
}

func pairs[K, V any](scan func(func(K, V) bool)) (out []string) {
	scan(func(k K, v V) bool {
		out = append(out, fmt.Sprint(k, "=", v))
		return true
	})
	return out
}

// without gives the entries of a that are not in b.
func without(a, b []string) (out []string) {
	in := map[string]bool{}
	for _, x := range b {
		in[x] = true
	}
	for _, x := range a {
		if !in[x] {
			out = append(out, x)
		}
	}
	return out
}
