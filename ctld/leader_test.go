package ctld

import (
	"context"
	"slices"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// TestClockEndsWithLeadership: after the end of a leadership the clock's loop does nothing more. Its sessions are gone
// then, so every node looks silent, and nothing that it proposes is taken: it would try for ever, and the controller
// could neither end nor lead again.
func TestClockEndsWithLeadership(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	new(Controller).clock(ctx) // it has nothing that it could look at
}

// TestSilentReboot: a node that reboots for longer than SlurmdTimeout is not one that does not answer, so no Lost is
// proposed for it again and again, and the clock goes on. When its reboot is given up, it is.
func TestSilentReboot(t *testing.T) {
	now := time.Now()
	at := model.Time(now.Add(-2 * time.Hour).UnixMilli())
	st := state.New()
	apply := func(b state.Body) state.Result { return st.Apply(state.Command{At: at, Body: b}) }
	cfg := &model.Config{Cluster: "c", Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n1", "n2"}}}}
	cfg.Params.NodeTimeoutS = 300
	for _, n := range []string{"n1", "n2"} {
		cfg.Nodes = append(cfg.Nodes, &model.NodeDef{Name: n, CPUs: 4, ThreadsPerCore: 1})
	}
	apply(&state.SetConfig{Config: cfg})
	for _, n := range []string{"n1", "n2"} {
		apply(&state.Join{Node: n, BootID: "b"})
	}
	apply(&state.Reboots{Nodes: []string{"n1"}, Op: state.AskReboot})
	apply(&state.Reboots{Nodes: []string{"n1"}, Op: state.IssueReboot})
	if !st.View().Node("n1").Rebooting() {
		t.Fatal("n1 was not told to reboot")
	}
	nodes := newNodeSet()
	nodes.lead(1, now.Add(-time.Hour))
	silent := func(want ...string) {
		t.Helper()
		if got := nodes.silent(st.View(), now); !slices.Equal(got, want) {
			t.Errorf("silent: %v, want %v", got, want)
		}
	}
	silent("n2")
	if !apply(&state.Lost{Nodes: []string{"n2"}}).Changed {
		t.Error("Lost of a silent node changed nothing")
	}
	silent()
	apply(&state.Reboots{Nodes: []string{"n1"}, Op: state.GiveUpReboot, Reason: "reboot timed out"})
	silent("n1")
}

// TestNewLeaderGivesTime: a controller that begins to lead has heard nobody, and gives no node up before SlurmdTimeout
// has passed since; the same after it stood still.
func TestNewLeaderGivesTime(t *testing.T) {
	now := time.Now()
	at := model.Time(now.Add(-2 * time.Hour).UnixMilli())
	st := state.New()
	const limit = 8 * time.Second
	cfg := &model.Config{Cluster: "c", Nodes: []*model.NodeDef{{Name: "n1", CPUs: 4, ThreadsPerCore: 1}},
		Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}}
	cfg.Params.NodeTimeoutS = int64(limit / time.Second)
	st.Apply(state.Command{At: at, Body: &state.SetConfig{Config: cfg}})
	st.Apply(state.Command{At: at, Body: &state.Join{Node: "n1", BootID: "b"}})
	nodes := newNodeSet()
	look := func(when string, after time.Duration, want bool) {
		t.Helper()
		if got := len(nodes.silent(st.View(), now.Add(after))) > 0; got != want {
			t.Errorf("%s, after %v, the node is given up: %v", when, after, got)
		}
	}
	nodes.lead(2, now)
	look("begun to lead", 0, false)
	look("begun to lead", limit, false)
	look("begun to lead", limit+time.Second, true)
	nodes.left["n1"] = lastWord{at: now.Add(-time.Hour), lease: limit} // of a session of long ago
	nodes.hearAnew(now.Add(time.Hour))
	look("stood still", time.Hour+limit, false)
	look("stood still", time.Hour+limit+4*time.Second, true)
}
