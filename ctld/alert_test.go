package ctld

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestEachTroubleIsToldOnce: when it has lasted long enough, and when it is over; a scheduler that completes a pass in
// between has not been stuck.
func TestEachTroubleIsToldOnce(t *testing.T) {
	w, now := newTroubleWatch(), time.Now()
	stuck := func(pass uint64) trouble {
		return trouble{alert: alert{event: "scheduler_stuck", daemon: "the scheduler"}, over: overs["scheduler_stuck"],
			after: time.Minute, turn: pass}
	}
	lost := trouble{alert: alert{event: "dbd_lost", daemon: "gdbd"}, over: "dbd_back"}
	for i, c := range []struct {
		seconds int
		list    []trouble
		want    string
	}{
		{0, []trouble{lost, stuck(1)}, "[dbd_lost]"},
		{30, []trouble{lost, stuck(1)}, "[]"},
		{29, []trouble{lost, stuck(2)}, "[]"},
		{59, []trouble{stuck(2)}, "[dbd_back]"},
		{1, []trouble{stuck(2)}, "[scheduler_stuck]"},
		{60, []trouble{stuck(2)}, "[]"},
		{1, []trouble{stuck(3)}, "[scheduler_back]"},
		{1, []trouble{stuck(3)}, "[]"},
		{1, nil, "[]"},
		{1, []trouble{lost}, "[dbd_lost]"},
	} {
		now = now.Add(time.Duration(c.seconds) * time.Second)
		got := []string{}
		for _, a := range w.step(now, c.list) {
			got = append(got, a.event)
		}
		slices.Sort(got)
		if fmt.Sprint(got) != c.want {
			t.Errorf("step %d: %v, want %s", i+1, got, c.want)
		}
	}
	for begin, end := range overs {
		if troubleText(begin) == begin || troubleText(end) == end {
			t.Errorf("%s or %s has no words", begin, end)
		}
	}
}
