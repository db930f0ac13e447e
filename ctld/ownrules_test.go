package ctld

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// The shown priorities have the order of the scores, stay in the band of their class, and lie between the priorities
// that were set by hand.
func TestShownScores(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	last := uint32(0)
	for class := uint8(classQOS); class <= classQOS+maxQOSRank; class++ {
		score := 0.0
		for range 300 {
			n := shownScore(class, false, score)
			if n < last || n < shownLeast || n >= basePriority {
				t.Fatalf("class %d, score %g: %d after %d", class, score, n, last)
			}
			last = n
			score = math.Exp2(math.Log2(max(score, 1e-12)) + rng.Float64())
		}
		if n := shownScore(class, true, 0); n <= last || n >= basePriority {
			t.Fatalf("the first of class %d has %d, others %d", class, n, last)
		} else {
			last = n
		}
	}
	if a, b := shownScore(classQOS, false, 1), shownScore(classQOS, false, 1.01); a >= b {
		t.Errorf("a score of 1 is shown as %d, one of 1.01 as %d", a, b)
	}
}

// TestSaysPatience: gqueue --why tells jobs that are out of patience from when and how they stand, and the others who
// goes first.
func TestSaysPatience(t *testing.T) {
	cfg := &model.Config{Cluster: "c", Params: model.Params{MinJobAgeS: 1e6},
		Nodes: []*model.NodeDef{{Name: "n", CPUs: 4, Boards: 1, Sockets: 1, CoresPerSocket: 4, ThreadsPerCore: 1}},
		Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n"}, Default: true, MaxTimeS: model.Unlimited,
			DefTimeS: model.NotSet, PriorityTier: 1, OverSubscribe: "NO"}}}
	st, now := state.New(), model.Time(1_000_000_000_000)
	submit := func() model.JobID {
		r := st.Apply(state.Command{At: now, Body: &state.Submit{Priority: 1, Spec: &model.Spec{Name: "j", UID: 7, User: "u",
			Partitions: []string{"p"}, LimitS: 3600, Tasks: 4, CPUsPerTask: 1, MinNodes: 1, MaxNodes: 1}}})
		if r.Refusal != state.OK {
			t.Fatal(r.Refusal)
		}
		return r.Job
	}
	st.Apply(state.Command{At: now, Body: &state.SetConfig{Config: cfg, Instance: 1}})
	st.Apply(state.Command{At: now, Body: &state.Join{Node: "n", BootID: "b"}})
	var own ownRules
	says := func(id model.JobID) string {
		_, predict := own.orderThen(st.View(), now)
		return own.says(&sight{v: st.View()}, now, st.View().Job(id), predict)
	}
	has := func(id model.JobID, want string) {
		t.Helper()
		if got := says(id); !strings.Contains(got, want) {
			t.Errorf("job %d: %q, want %q in it", id, got, want)
		}
	}
	first := submit()
	own.orderNow(st.View(), now)
	has(first, "weighs its wait, 0:00 so far, against the time that it is planned with, ")
	now = now.Add(5 * 3600)
	second := submit()
	own.orderNow(st.View(), now)
	now = now.Add(22 * 3600) // a day and what was ahead
	own.orderNow(st.View(), now)
	since := fmt.Sprintf("<t:%d>", int64(now))
	has(first, "out of patience since "+since+" and is next to start in partition p:")
	has(second, "its wait, 22:00:00 so far, against the time that it is planned with, ")
	has(second, fmt.Sprintf("(gbatch-scheduling(7)). Job %d is out of patience and goes first in partition p.", first))
	now = now.Add(24 * 3600)
	own.orderNow(st.View(), now)
	third := submit()
	has(first, "since "+since)
	has(second, fmt.Sprintf("since <t:%d> and is number 2 of 2 to start", int64(now)))
	has(third, fmt.Sprintf("2 jobs of partition p are out of patience and go first, job %d before the others.", first))
	other := ownRules{} // of a new leader
	other.orderNow(st.View(), now)
	if got := other.says(&sight{v: st.View()}, now, st.View().Job(first), other.rules.Predict()); !strings.Contains(got,
		"since a time before this controller began to lead and is next to start") {
		t.Errorf("a new leader says %q", got)
	}
}
