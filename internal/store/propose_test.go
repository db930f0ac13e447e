package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"
)

// TestConcurrentProposesShareEntries checks group commit.
func TestConcurrentProposesShareEntries(t *testing.T) {
	g := newGroup(t, 1, Options{})
	m := g.start(g.peers[0], t.TempDir())
	g.leader()
	const callers, each = 64, 50
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				r, err := m.Propose(t.Context(), fmt.Appendf(nil, "c%d-%d", c, i))
				if err != nil {
					t.Error(err)
					return
				}
				// Each caller gets the result of its own command.
				m.machine.mu.Lock()
				if got := m.machine.lines[r.(int)-1]; got != fmt.Sprintf("c%d-%d", c, i) {
					t.Errorf("result %v is of %s", r, got)
				}
				m.machine.mu.Unlock()
			}
		})
	}
	wg.Wait()
	st := m.Stats()
	t.Logf("%d commands in %d entries", st.Commands, st.Entries)
	if st.Commands != callers*each || st.Entries*4 > st.Commands {
		t.Errorf("%d commands took %d entries", st.Commands, st.Entries)
	}
}

func TestBatchStaysTogether(t *testing.T) {
	g := newGroup(t, 1, Options{Net: NewMemNet()})
	m := g.start(g.peers[0], "")
	g.leader()
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := range 20 {
				var cmds [][]byte
				for k := range 100 {
					cmds = append(cmds, fmt.Appendf(nil, "b%d.%d.%d", c, i, k))
				}
				rs, err := m.ProposeBatch(t.Context(), cmds)
				if err != nil || len(rs) != 100 {
					t.Errorf("%d results, %v", len(rs), err)
					return
				}
				for k, r := range rs {
					if r.(int) != rs[0].(int)+k {
						t.Errorf("command %d of a batch is at %d, the first at %d", k, r, rs[0])
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if rs, err := m.ProposeBatch(t.Context(), nil); rs != nil || err != nil {
		t.Errorf("an empty batch: %v, %v", rs, err)
	}
	if _, err := m.Propose(t.Context(), make([]byte, MaxCommandBytes+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a command too large: %v", err)
	}
	if _, err := m.ProposeBatch(t.Context(), make([][]byte, MaxBatchCommands+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a batch too large: %v", err)
	}
	if rs, err := m.ProposeBatch(t.Context(), make([][]byte, 2*queueCommands)); err != nil || len(rs) != 2*queueCommands {
		t.Errorf("a batch larger than the queue: %d results, %v", len(rs), err)
	}
}
