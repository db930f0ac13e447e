package store

import (
	"sync"

	"github.com/hashicorp/raft"
)

// leader.go tells who waits for it that another voter leads.

// leaderNews is closed and replaced when raft knows another leader, or none.
type leaderNews struct {
	mu      sync.Mutex
	changed chan struct{}
}

func (n *leaderNews) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

func (n *leaderNews) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.changed)
	n.changed = make(chan struct{})
}

// LeaderChanged gives a channel that is closed when Leader gives another answer. Call it before Leader, or a change in
// between is missed.
func (s *Store) LeaderChanged() <-chan struct{} { return s.news.wait() }

// observe follows raft's knowledge of the leader until the store closes.
func (s *Store) observe() {
	defer s.wg.Done()
	seen := make(chan raft.Observation, 1) // one that does not fit says the same
	o := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	s.raft.RegisterObserver(o)
	defer s.raft.DeregisterObserver(o)
	for s.news.tell(); ; s.news.tell() { // what was known before is news as well
		select {
		case <-seen:
		case <-s.stop:
			return
		}
	}
}
