package pki

import (
	"net"
	"sync"
	"time"
)

const (
	strangerEvery = time.Minute // between two lines about the same address
	maxStrangers  = 1024        // addresses remembered; with more, the log waits for some to grow old
)

// strangers decides which refused connections are logged: one per address and minute, for any port, and at most
// maxStrangers addresses per minute. The zero value is ready.
type strangers struct {
	mu   sync.Mutex
	seen map[string]*stranger
}

type stranger struct {
	logged     time.Time
	suppressed int
}

// note counts a refused connection from addr (host:port). ok says to log it, with the number not logged since the
// last line about that address.
func (s *strangers) note(addr string, now time.Time) (suppressed int, ok bool) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.seen[host]; st != nil {
		if now.Sub(st.logged) < strangerEvery {
			st.suppressed++
			return 0, false
		}
		suppressed = st.suppressed
		st.logged, st.suppressed = now, 0
		return suppressed, true
	}
	if len(s.seen) >= maxStrangers {
		for h, st := range s.seen {
			if now.Sub(st.logged) >= strangerEvery {
				delete(s.seen, h)
			}
		}
		if len(s.seen) >= maxStrangers {
			return 0, false
		}
	}
	if s.seen == nil {
		s.seen = make(map[string]*stranger)
	}
	s.seen[host] = &stranger{logged: now}
	return 0, true
}
