package ctld

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// machine owns the state for the store: it applies log entries under one lock, gives Views to readers, and wakes all
// waiters when something has changed.
type machine struct {
	mu      sync.Mutex
	st      *state.State
	view    atomic.Pointer[state.View]
	dirty   atomic.Bool
	changed chan struct{} // closed and replaced at every change; under mu

	revoked chan struct{} // holds one when certificates may have been revoked

	stamped func(model.Time) // gets each command's time, and a snapshot's latest moment
	last    atomic.Int64     // the time of the last command
}

func newMachine() *machine {
	m := &machine{st: state.New(), changed: make(chan struct{}), revoked: make(chan struct{}, 1),
		stamped: func(model.Time) {}}
	m.view.Store(m.st.View())
	return m
}

// Apply applies one log entry. It panics on an entry that can't be decoded: the log is damaged, or newer than this
// version, and if it went on, replicas would differ.
func (m *machine) Apply(index uint64, cmds [][]byte) []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]any, len(cmds))
	gen := m.st.Peek().RevokedGen()
	m.st.Entry(index)
	for i, data := range cmds {
		c, err := state.Decode(data)
		if err != nil {
			panic(fmt.Sprintf("log entry %d, command %d of %d: %v", index, i+1, len(cmds), err))
		}
		m.stamped(c.At)
		m.last.Store(int64(c.At))
		out[i] = m.st.Apply(c)
	}
	if m.st.Peek().RevokedGen() != gen {
		m.noteRevoked()
	}
	m.dirty.Store(true)
	close(m.changed)
	m.changed = make(chan struct{})
	return out
}

func (m *machine) noteRevoked() {
	select {
	case m.revoked <- struct{}{}:
	default: // it is known
	}
}

// Freeze gives a writer of the present facts.
func (m *machine) Freeze() func(io.Writer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.st.Freeze()
}

// freeze gives the present facts, and a writer of the same; open leaves out what only administrators may see.
func (m *machine) freeze(open bool) (*state.View, func(io.Writer) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if open {
		return m.st.View(), m.st.FreezeOpen()
	}
	return m.st.View(), m.st.Freeze()
}

// Restore replaces the facts with a snapshot.
func (m *machine) Restore(r io.Reader) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.st.Restore(r); err != nil {
		return err
	}
	m.stamped(m.st.Peek().Latest()) // the commands before the snapshot may be gone
	m.noteRevoked()
	m.dirty.Store(true)
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

// View gives the present facts. A new View is made only on the first call after a change.
func (m *machine) View() *state.View {
	if !m.dirty.Load() {
		return m.view.Load()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dirty.Load() {
		m.view.Store(m.st.View()) // before the mark is cleared: a reader that sees it cleared takes this view
		m.dirty.Store(false)
	}
	return m.view.Load()
}

// Changed gives a channel that is closed at the next change. Call it before View, or a change in between is missed.
func (m *machine) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}
