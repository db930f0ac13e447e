package state

import (
	"slices"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
)

// put replaces a job's record and keeps everything derived from it true.
func (s *State) put(j *model.Job) {
	old, had := s.jobs.Set(j.ID, j)
	if had {
		s.unindex(old)
	}
	s.index(j)
}

// isReady reports whether a job may start as soon as there is room.
func isReady(j *model.Job) bool {
	return j.State == model.Pending && j.Hold == model.NotHeld && len(j.Deps) == 0 && j.Eligible != 0
}

// waitsForBegin reports whether only the begin time holds a job.
func waitsForBegin(j *model.Job) bool {
	return j.State == model.Pending && j.Hold == model.NotHeld && len(j.Deps) == 0 && j.Eligible == 0
}

// isMoving reports whether j's node has to be told something.
func isMoving(j *model.Job) bool { return j.State == model.Configuring || j.State == model.Completing }

// limitOf gives the moment at which j's time limit must be looked at, or 0.
func limitOf(j *model.Job) model.Time {
	if j.Run == nil || j.State == model.Completing || !j.State.HasResources() {
		return 0
	}
	return j.Run.Deadline()
}

func (s *State) index(j *model.Job) {
	switch {
	case isReady(j):
		for _, p := range j.Spec.Partitions {
			s.queueOf(p).Set(readyKey{j.Priority, j.ID})
		}
	case waitsForBegin(j):
		s.begins.Set(due{j.Begin, j.ID})
	case j.State.Finished():
		s.finished.Set(due{j.End.At, j.ID})
	}
	if t := limitOf(j); t != 0 {
		s.limits.Set(due{t, j.ID})
	}
	if !j.State.Finished() {
		s.live.Set(liveKey{j.Spec.UID, j.Spec.Name, j.ID})
		for _, d := range j.Deps {
			if d.Job != 0 && !d.Failed {
				s.addWaiter(d.Job, j.ID)
			}
		}
	}
	if j.State == model.Pending {
		s.pending++
	}
	if j.State.HasResources() {
		s.active++
	}
	if isMoving(j) {
		s.moving.Set(j.ID, j.State)
	}
}

func (s *State) unindex(j *model.Job) {
	switch {
	case isReady(j):
		for _, p := range j.Spec.Partitions {
			s.queueOf(p).Delete(readyKey{j.Priority, j.ID})
		}
	case waitsForBegin(j):
		s.begins.Delete(due{j.Begin, j.ID})
	case j.State.Finished():
		s.finished.Delete(due{j.End.At, j.ID})
	}
	if t := limitOf(j); t != 0 {
		s.limits.Delete(due{t, j.ID})
	}
	if !j.State.Finished() {
		s.live.Delete(liveKey{j.Spec.UID, j.Spec.Name, j.ID})
		for _, d := range j.Deps {
			if d.Job != 0 && !d.Failed {
				s.dropWaiter(d.Job, j.ID)
			}
		}
	}
	if j.State == model.Pending {
		s.pending--
	}
	if j.State.HasResources() {
		s.active--
	}
	if isMoving(j) {
		s.moving.Delete(j.ID)
	}
}

// queueOf gives the partition's queue for writing.
func (s *State) queueOf(part string) *btree.BTreeG[readyKey] {
	q, ok := s.ready.Get(part)
	if !ok {
		q = &queue{btree.NewBTreeGOptions(readyLess, noLocks)}
		s.ready.Set(part, q)
	}
	return q.tree
}

func (s *State) addWaiter(target, id model.JobID) {
	list := s.waiters[target]
	if at, found := slices.BinarySearch(list, id); !found {
		s.waiters[target] = slices.Insert(slices.Clip(list), at, id)
	}
}

func (s *State) dropWaiter(target, id model.JobID) {
	list := s.waiters[target]
	at, found := slices.BinarySearch(list, id)
	switch {
	case !found:
	case len(list) == 1:
		delete(s.waiters, target)
	default:
		s.waiters[target] = append(slices.Clone(list[:at]), list[at+1:]...)
	}
}

// remove forgets a job whole.
func (s *State) remove(j *model.Job) {
	s.jobs.Delete(j.ID)
	s.unindex(j)
	s.dropBlob(j.Spec.Script)
	s.dropBlob(j.Spec.Env)
	if j.ArrayID != 0 && j.Task != model.NoTask {
		s.elems.Delete(elemKey(j.ArrayID, j.Task))
	}
}

// reindex derives everything anew from the facts, after a snapshot was read.
func (s *State) reindex() {
	s.reset()
	s.ready = new(btree.Map[string, *queue])
	s.moving = new(btree.Map[model.JobID, model.JobState])
	s.elems = new(btree.Map[uint64, model.JobID])
	s.active, s.pending = 0, 0
	s.jobs.Scan(func(_ model.JobID, j *model.Job) bool {
		s.index(j)
		if j.ArrayID != 0 && j.Task != model.NoTask {
			s.elems.Set(elemKey(j.ArrayID, j.Task), j.ID)
		}
		return true
	})
	s.plan()
}

// plan notes when time alone next changes something.
func (s *State) plan() {
	next := model.Time(0)
	sooner := func(t model.Time) {
		if t != 0 && (next == 0 || t < next) {
			next = t
		}
	}
	if d, ok := s.limits.Min(); ok {
		sooner(d.at)
	}
	if d, ok := s.begins.Min(); ok {
		sooner(d.at)
	}
	if d, ok := s.finished.Min(); ok {
		sooner(d.at.Add(s.cfg.Params.MinJobAgeS))
	}
	s.nextDue = next
}

// intern keeps one copy of strings that many jobs share.
func (s *State) intern(t string) string {
	const maxInterned = 1 << 16 // names of users, accounts, directories; beyond it strings are kept as they come
	if t == "" {
		return ""
	}
	if known, ok := s.strings[t]; ok {
		return known
	}
	if len(s.strings) < maxInterned {
		s.strings[t] = t
	}
	return t
}

func (s *State) keepBlob(b model.Blob) bool {
	if b.Key == "" {
		return true
	}
	old, ok := s.blobs.Get(b.Key)
	if !ok {
		if b.Data == nil {
			return false
		}
		nb := b
		nb.Refs = 1
		s.blobs.Set(b.Key, &nb)
		return true
	}
	nb := *old
	nb.Refs++
	s.blobs.Set(b.Key, &nb)
	return true
}

// useBlob counts one more user of content that is there.
func (s *State) useBlob(key string) {
	if old, ok := s.blobs.Get(key); ok {
		nb := *old
		nb.Refs++
		s.blobs.Set(key, &nb)
	}
}

func (s *State) dropBlob(key string) {
	old, ok := s.blobs.Get(key)
	if !ok {
		return
	}
	if old.Refs <= 1 {
		s.blobs.Delete(key)
		return
	}
	nb := *old
	nb.Refs--
	s.blobs.Set(key, &nb)
}
