package ctld

import (
	"bytes"
	"sync"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// A controller that gets a snapshot, and none of the commands before it, knows from it how late it is: its host's clock
// may be an hour behind.
func TestSnapshotBringsTheTime(t *testing.T) {
	const noon = model.Time(1_800_000_000_000)
	m := newMachine()
	for i, b := range []state.Body{
		&state.SetConfig{Config: &model.Config{Cluster: "c", Nodes: []*model.NodeDef{{Name: "n1", CPUs: 1}}}, Instance: 1},
		&state.Join{Node: "n1", BootID: "b"}, &state.Submit{Spec: &model.Spec{Partitions: []string{"p"}}},
	} {
		data, err := state.Encode(noon.Add(int64(i)), b)
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(uint64(i+1), [][]byte{data})
	}
	var snap bytes.Buffer
	if err := m.Freeze()(&snap); err != nil {
		t.Fatal(err)
	}
	var got model.Time
	other := newMachine()
	other.stamped = func(at model.Time) { got = at }
	if err := other.Restore(&snap); err != nil {
		t.Fatal(err)
	}
	if got != noon.Add(2) {
		t.Errorf("the snapshot's latest moment is %d ms after noon, not 2000", got-noon)
	}
}

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
