package state

import "gbatch/internal/model"

// Scripts and environments are stored once per content and counted: one reference for each job record that has them as
// its script, and one for each that has them as its environment.

// keepBlob counts one more reference to b, and stores it if it is new. It reports false if b has no content and isn't
// stored yet.
func (s *State) keepBlob(b *model.Blob) bool {
	if b.Key == "" {
		return true
	}
	old, ok := s.blobs.Get(b.Key)
	if !ok {
		if b.Data == nil {
			return false
		}
		nb := *b
		nb.Refs = 1
		s.blobs.Set(b.Key, &nb)
		return true
	}
	nb := *old
	nb.Refs++
	s.blobs.Set(b.Key, &nb)
	return true
}

// useBlob counts one more reference to stored content.
func (s *State) useBlob(key string) {
	if old, ok := s.blobs.Get(key); ok {
		nb := *old
		nb.Refs++
		s.blobs.Set(key, &nb)
	}
}

// dropBlob counts one reference less, and deletes the content with the last one.
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

// blobKey gives the stored copy of a key, so that a job and its content share one string.
func (s *State) blobKey(key string) string {
	if b, ok := s.blobs.Get(key); ok {
		return b.Key
	}
	return key
}
