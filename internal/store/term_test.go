package store

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
)

// fullStable is a disk without room for some writes.
type fullStable struct {
	raft.StableStore
	fails int
}

var errFull = errors.New("no space left on device")

func (s *fullStable) SetUint64(key []byte, n uint64) error {
	if s.fails > 0 {
		s.fails--
		return errFull
	}
	return s.StableStore.SetUint64(key, n)
}

// TestTermOnFullDisk: raft, which panics if it can't write its term, is kept waiting until there is room, or until the
// store closes. Other writes fail at once.
func TestTermOnFullDisk(t *testing.T) {
	stop := make(chan struct{})
	disk := &fullStable{raft.NewInmemStore(), 3}
	p := &patientStable{disk, stop}
	if err := p.SetUint64(keyTerm, 7); err != nil {
		t.Errorf("the term with room after a while: %v", err)
	}
	if n, err := disk.GetUint64(keyTerm); n != 7 || err != nil {
		t.Errorf("the term on the disk is %d (%v), want 7", n, err)
	}
	disk.fails = 1
	if err := p.SetUint64([]byte("LastVoteTerm"), 7); !errors.Is(err, errFull) {
		t.Errorf("a vote without room gives %v", err)
	}
	disk.fails = 1 << 30
	close(stop)
	if err := p.SetUint64(keyTerm, 8); err != nil {
		t.Errorf("the term while the store closes: %v", err)
	}
	// raft's name of the key
	g := newGroup(t, 1, Options{Logger: testLogger(t)})
	g.start(g.peers[0], t.TempDir())
	if n, err := g.leader().disk.stable.GetUint64(keyTerm); n == 0 || err != nil {
		t.Errorf("raft's term is %d (%v)", n, err)
	}
}
