package demand

import "testing"

// TestWaste: what nobody asks for is waste, and a start that spoils more for others costs more.
func TestWaste(t *testing.T) {
	share, one, four := Kind{CPUs: 4, Share: "shard", Milli: 400}, Kind{CPUs: 8, GPUs: 1}, Kind{CPUs: 32, GPUs: 4}
	if newMix(map[Kind]int64{one: Least - 1, {CPUs: 1}: 1000}) != nil {
		t.Error("a mix of too few requests for GPUs")
	}
	m := newMix(map[Kind]int64{share: 64, one: 32, four: 32})
	if few := newMix(map[Kind]int64{share: 1, one: 32, four: 32}); few.Shares() || !m.Shares() {
		t.Error("parts of GPUs are half of the requests, or one of 65")
	}
	table := m.For(func(k *Kind) Need { return Need{CPUs: k.CPUs, GPUs: k.GPUs, Milli: k.Milli} })
	state := func(cpus int32, free ...int16) State {
		s := State{CPUs: cpus, GPUs: int8(len(free))}
		copy(s.Free[:], free)
		return s
	}
	if w := table.Waste(state(64)); w != 0 {
		t.Errorf("a node without GPUs wastes %d", w)
	}
	if w := table.Waste(state(0, 1000, 1000)); w != Lost(2) {
		t.Errorf("GPUs without CPUs waste %d, want all in each estimate, %d", w, Lost(2))
	}
	cost := func(s State, n Need) int64 {
		t.Helper()
		before := table.Waste(s)
		if !s.Start(&n) {
			t.Fatalf("%+v does not start on %+v", n, s)
		}
		return table.Waste(s) - before
	}
	whole4, used := state(64, 1000, 1000, 1000, 1000), state(48, 1000, 1000, 0, 0)
	if a, b := cost(whole4, Need{CPUs: 8, GPUs: 1}), cost(used, Need{CPUs: 8, GPUs: 1}); a <= b {
		t.Errorf("one GPU costs %d where four are free, and %d where they are not", a, b)
	}
	part := Need{CPUs: 4, Milli: 400}
	if a, b := cost(state(64, 1000), part), cost(state(64, 400, 1000), part); a <= b {
		t.Errorf("a part costs %d of a whole GPU, and %d of one that has just this left", a, b)
	}
	if a, b := table.Waste(state(64, 1000, 400)), table.Waste(state(64, 400, 1000)); a != b {
		t.Errorf("the order of GPUs counts: %d, %d", a, b)
	}
	for range 2 { // the same requests give the same mix
		n := newMix(map[Kind]int64{four: 32, share: 64, one: 32})
		if n.trial != m.trial {
			t.Error("another mix of the same requests")
		}
	}
}
