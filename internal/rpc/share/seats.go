package share

import "sync"

// Seats bounds what many users keep open at the same time: streams, pages.
type Seats struct {
	All int // of everybody

	mu    sync.Mutex
	taken int
	of    map[uint32]int
}

// Take takes a seat for a user, who may have most of them; false: none is left. Leave gives it back.
func (s *Seats) Take(uid uint32, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= s.All || s.of[uid] >= most {
		return false
	}
	if s.of == nil {
		s.of = map[uint32]int{}
	}
	s.taken++
	s.of[uid]++
	return true
}

// Leave gives back a seat of a user.
func (s *Seats) Leave(uid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.of[uid]--; s.of[uid] == 0 {
		delete(s.of, uid)
	}
}
