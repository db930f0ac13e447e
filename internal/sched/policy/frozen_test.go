package policy

import (
	"testing"

	"gbatch/internal/model"
)

// TestFrozen: what was frozen answers as the policy did, whatever happens to the policy afterwards.
func TestFrozen(t *testing.T) {
	c := newCluster(t, 10, New(Options{LeastS: 3600}))
	busy := c.submit(9, 5, 100_000)
	c.refresh()
	c.start(busy)
	c.refresh()
	wide, small := c.submit(2, 10, 36000), c.submit(3, 1, 600)
	c.refresh()
	c.after(3600)
	if over := c.p.Overdue("p"); len(over) == 0 || over[0] != wide {
		t.Fatalf("overdue: %v, want %v first", over, wide)
	}
	o, r := c.p.Frozen(0)
	v := c.st.View()
	type answer struct {
		priority uint64
		runtime  int64
	}
	all := func(o *Order, r *Predict) map[model.JobID]answer {
		out := map[model.JobID]answer{}
		for _, id := range []model.JobID{busy, wide, small} {
			j := v.Job(id)
			out[id] = answer{o.Priority(j, c.cfg.Partitions[0]), r.RuntimeS(j, j.Spec.LimitS, c.now)}
		}
		return out
	}
	was := all(c.p.Order(), c.p.Predict())
	check := func(when string) {
		t.Helper()
		for id, got := range all(o, r) {
			if got != was[id] {
				t.Errorf("%s: job %d: %v, want %v", when, id, got, was[id])
			}
		}
		if o.Epoch() == 0 {
			t.Error("no epoch")
		}
	}
	check("at once")
	c.end(busy)
	c.start(wide)
	c.after(3600)
	if over := c.p.Overdue("p"); len(over) > 0 && over[0] == wide {
		t.Fatalf("overdue: %v", over)
	}
	check("after the first has started")
}
