package ctld

import (
	"sync"
	"testing"

	"gbatch/internal/state"
)

// TestViewHasWhatWasApplied: a View taken after an entry was applied contains it, even if others take Views at the same
// moment.
func TestViewHasWhatWasApplied(t *testing.T) {
	m := newMachine()
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					m.View()
				}
			}
		})
	}
	defer readers.Wait()
	defer close(stop)
	for i := range 20_000 {
		data, err := state.Encode(1, &state.Tick{})
		if err != nil {
			t.Fatal(err)
		}
		gen := m.View().Gen()
		m.Apply(uint64(i+1), [][]byte{data})
		if got := m.View().Gen(); got <= gen {
			t.Fatalf("after entry %d the View is of generation %d, before it was of %d", i+1, got, gen)
		}
	}
}
