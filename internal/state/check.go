package state

import (
	"fmt"

	"gbatch/internal/model"
)

// Check verifies every invariant and tells the first that is broken. Tests run it after every Apply; it walks
// everything.
func (s *State) Check() error {
	if err := s.checkNodes(); err != nil {
		return err
	}
	if err := s.checkJobs(); err != nil {
		return err
	}
	return s.checkDerived()
}

// checkNodes: what a node says is in use is exactly what its jobs hold, and nothing is held twice.
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
		return true
	})
	s.nodes.Scan(func(name string, n *model.Node) bool {
		var cpus model.Bits
		var mem int64
		gres := map[string]model.Bits{}
		if len(n.Jobs) != len(holds[name]) {
			err = fmt.Errorf("node %s lists %d jobs, %d hold resources there", name, len(n.Jobs), len(holds[name]))
			return false
		}
		for _, id := range n.Jobs {
			na := holds[name][id]
			if na == nil {
				err = fmt.Errorf("node %s lists job %d, which holds nothing there", name, id)
				return false
			}
			if na.CPUs.Overlaps(cpus) {
				err = fmt.Errorf("node %s: a CPU of job %d is given twice", name, id)
				return false
			}
			cpus, mem = cpus.Or(na.CPUs), mem+na.MemMiB
			for _, g := range na.Gres {
				if g.Index.Overlaps(gres[g.Name]) {
					err = fmt.Errorf("node %s: a %s of job %d is given twice", name, g.Name, id)
					return false
				}
				gres[g.Name] = gres[g.Name].Or(g.Index)
			}
		}
		if cpus.String() != n.UsedCPUs.String() || mem != n.UsedMem {
			err = fmt.Errorf("node %s: books %s CPUs and %d MiB, its jobs hold %s and %d", name, n.UsedCPUs, n.UsedMem, cpus, mem)
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
		switch {
		case j.ID != id:
			return bad("is stored under another number")
		case j.State == model.Pending && (j.Run != nil || j.End != nil):
			return bad("is pending, and ran")
		case j.State.HasResources() && (j.Run == nil || j.Run.Alloc == nil || len(j.Run.Alloc.Nodes) == 0 || j.End != nil):
			return bad("has no allocation, or an end")
		case j.State.Finished() && j.End == nil:
			return bad("is over without an end")
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
	s.arrays.Scan(func(id model.JobID, a *Array) bool {
		t := seen[id]
		if t == nil {
			t = &sums{}
		}
		// Finished tasks may have been forgotten already, so done is a lower bound.
		if a.Waiting != t.waiting || a.Active != t.active || a.Done < t.done || a.Waiting+a.Active+a.Done != a.Total || a.Failed > a.Done {
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

// checkDerived: the indexes are what the facts give.
func (s *State) checkDerived() error {
	fresh := &State{facts: s.facts}
	fresh.reindex()
	if fresh.limits.Len() != s.limits.Len() || fresh.begins.Len() != s.begins.Len() ||
		fresh.finished.Len() != s.finished.Len() || fresh.live.Len() != s.live.Len() || fresh.elems.Len() != s.elems.Len() {
		return fmt.Errorf("an index of times, names or tasks differs from the facts: %d/%d limits, %d/%d begins, %d/%d finished, %d/%d live, %d/%d tasks",
			s.limits.Len(), fresh.limits.Len(), s.begins.Len(), fresh.begins.Len(), s.finished.Len(), fresh.finished.Len(),
			s.live.Len(), fresh.live.Len(), s.elems.Len(), fresh.elems.Len())
	}
	if fresh.active != s.active || fresh.pending != s.pending || fresh.nextDue != s.nextDue {
		return fmt.Errorf("counters differ: active %d/%d, pending %d/%d, due %d/%d", s.active, fresh.active, s.pending, fresh.pending, s.nextDue, fresh.nextDue)
	}
	if fresh.moving.Len() != s.moving.Len() {
		return fmt.Errorf("%d jobs are moving, the facts say %d", s.moving.Len(), fresh.moving.Len())
	}
	if len(fresh.waiters) != len(s.waiters) {
		return fmt.Errorf("%d jobs are waited for, the facts say %d", len(s.waiters), len(fresh.waiters))
	}
	var err error
	s.ready.Scan(func(part string, q *queue) bool {
		n := 0
		if f, ok := fresh.ready.Get(part); ok {
			n = f.tree.Len()
		}
		if n != q.tree.Len() {
			err = fmt.Errorf("partition %s: %d jobs ready, the facts say %d", part, q.tree.Len(), n)
		}
		return err == nil
	})
	return err
}
