package alarm

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestEachTroubleIsToldOnce: when it has lasted long enough, and when it is over; a scheduler that completes a pass in
// between has not been stuck.
func TestEachTroubleIsToldOnce(t *testing.T) {
	w, now := NewWatch(nil, time.Time{}), time.Now()
	stuck := func(pass uint64) Trouble {
		return Trouble{Alert: Alert{Event: "scheduler_stuck", Daemon: "the scheduler"}, Over: Overs["scheduler_stuck"],
			After: time.Minute, Turn: pass}
	}
	lost := Trouble{Alert: Alert{Event: "dbd_lost", Daemon: "gdbd"}, Over: "dbd_back"}
	for i, c := range []struct {
		seconds int
		list    []Trouble
		want    string
	}{
		{0, []Trouble{lost, stuck(1)}, "[dbd_lost]"},
		{30, []Trouble{lost, stuck(1)}, "[]"},
		{29, []Trouble{lost, stuck(2)}, "[]"},
		{59, []Trouble{stuck(2)}, "[dbd_back]"},
		{1, []Trouble{stuck(2)}, "[scheduler_stuck]"},
		{60, []Trouble{stuck(2)}, "[]"},
		{1, []Trouble{stuck(3)}, "[scheduler_back]"},
		{1, []Trouble{stuck(3)}, "[]"},
		{1, nil, "[]"},
		{1, []Trouble{lost}, "[dbd_lost]"},
	} {
		now = now.Add(time.Duration(c.seconds) * time.Second)
		got := []string{}
		for _, a := range w.Step(now, c.list) {
			got = append(got, a.Event)
		}
		slices.Sort(got)
		if fmt.Sprint(got) != c.want {
			t.Errorf("step %d: %v, want %s", i+1, got, c.want)
		}
	}
	for begin, end := range Overs {
		if troubleText(begin) == begin || troubleText(end) == end {
			t.Errorf("%s or %s has no words", begin, end)
		}
	}
}

// TestNextLeaderTellsTheEnd: what a former leader told is not told again, and its end is told, though not before the
// new leader has had time to see it.
func TestNextLeaderTellsTheEnd(t *testing.T) {
	now := time.Now()
	lost := Trouble{Alert: Alert{Event: "dbd_lost", Daemon: "gdbd"}, Over: "dbd_back"}
	stuck := Trouble{Alert: Alert{Event: "scheduler_stuck", Daemon: "the scheduler"}, Over: "scheduler_back", Turn: 7}
	first := NewWatch(nil, time.Time{})
	first.Step(now, []Trouble{lost, stuck})
	stuck.Turn = 1 // of another process
	w := NewWatch(first.Telling(), now.Add(10*time.Second))
	for i, c := range []struct {
		at   int
		list []Trouble
		want string
	}{
		{1, nil, "[]"}, // it has not looked yet
		{2, []Trouble{lost, stuck}, "[]"},
		{3, []Trouble{stuck}, "[dbd_back]"},
		{11, []Trouble{lost, stuck}, "[dbd_lost]"},
		{12, []Trouble{lost}, "[scheduler_back]"},
	} {
		got := []string{}
		for _, a := range w.Step(now.Add(time.Duration(c.at)*time.Second), c.list) {
			got = append(got, a.Event)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("step %d: %v, want %s", i+1, got, c.want)
		}
	}
	if w := NewWatch([]Trouble{lost}, now); fmt.Sprint(len(w.Step(now.Add(time.Second), nil))) != "1" {
		t.Error("the end of a trouble that was over before the new leader looked is not told")
	}
}

// TestLimitIsNoDaemon: a program that is told of a limit finds it, and how many jobs are under it, in variables of
// their own.
func TestLimitIsNoDaemon(t *testing.T) {
	const limit = "GrpTRES=gres/gpu of QOS online"
	a := Alert{Event: "usage_near_limit", Daemon: limit, Jobs: 7}
	for _, want := range []string{"GBATCH_ALERT_DAEMON=", "GBATCH_ALERT_LIMIT=" + limit, "GBATCH_ALERT_JOBS=7"} {
		if env := a.Environ(1); !slices.Contains(env, want) {
			t.Errorf("%q has no %q", env, want)
		}
	}
	lost := Alert{Event: "dbd_lost", Daemon: "gdbd"}
	if env := lost.Environ(1); !slices.Contains(env, "GBATCH_ALERT_DAEMON=gdbd") {
		t.Errorf("%q", env)
	}
}
