package token

import (
	"bytes"
	"crypto/sha256"
	"sync"
	"time"
)

// seen remembers tokens whose signature was checked, since programs send the same one with every request. What changes
// is looked at each time: the key and the time here, revocations by who asks. Tokens are kept by their digests, so that
// the time of a look-up says nothing about one.
type seen struct {
	mu   sync.Mutex
	list map[[sha256.Size]byte]*sighted
}

// sighted is a token that counted with a key.
type sighted struct {
	key    []byte
	claims Claims
}

// maxSeen bounds the tokens that are remembered; when there are more, all are forgotten.
const maxSeen = 4096

// get gives the claims of a token that was checked with the same key and has not ended.
func (s *seen) get(digest *[sha256.Size]byte, key []byte, now time.Time) *Claims {
	s.mu.Lock()
	x := s.list[*digest]
	s.mu.Unlock()
	if x == nil || !bytes.Equal(x.key, key) || !now.Before(x.claims.Until.Add(leeway)) || now.Before(x.claims.At) {
		return nil
	}
	own := x.claims
	return &own
}

func (s *seen) put(digest *[sha256.Size]byte, key []byte, c *Claims) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil || len(s.list) >= maxSeen {
		s.list = map[[sha256.Size]byte]*sighted{}
	}
	s.list[*digest] = &sighted{key, *c}
}
