package store

import (
	"bytes"
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// term.go keeps a voter whose disk is full alive. raft panics if it can't write a new term; it stays in this write
// instead until there is room. It can neither vote nor take entries meanwhile, which it could not either way.

var keyTerm = []byte("CurrentTerm") // raft's own key

const termPace = 100 * time.Millisecond // between two tries

// patientStable is raft's small store, whose write of the term waits for room.
type patientStable struct {
	raft.StableStore
	stop <-chan struct{} // closed when the store closes
}

func (p *patientStable) SetUint64(key []byte, n uint64) error {
	for {
		err := p.StableStore.SetUint64(key, n)
		if err == nil || !bytes.Equal(key, keyTerm) || errors.Is(err, errDamaged) {
			return err
		}
		select {
		case <-time.After(termPace):
		case <-p.stop:
			return nil // raft would panic; a vote in this term needs a write of its own, and the process ends
		}
	}
}
