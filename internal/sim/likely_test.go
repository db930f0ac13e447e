package sim

import (
	"context"
	"math"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/sched"
	"gbatch/internal/sched/policy"
	"gbatch/internal/state"
)

// foreteller is the default scheduler. Of some waiting jobs, it notes in which range they are likely to start and when
// they surely do.
type foreteller struct {
	byDefault
	past   *policy.Past
	asked  int
	every  int
	seen   map[model.JobID]bool
	ranges map[model.JobID][3]model.Time // early, late, sure
	starts map[model.JobID]model.Time
}

func (f *foreteller) Plan(v *state.View, now model.Time) model.Plan {
	f.past.Refresh(v, now)
	plan := f.byDefault.Plan(v, now)
	for _, s := range plan.Starts {
		f.starts[s.Job] = now
	}
	v.Jobs(func(j *model.Job) bool {
		if j.State != model.Pending || f.seen[j.ID] {
			return true
		}
		f.seen[j.ID] = true
		if _, starts := f.starts[j.ID]; starts {
			return true
		}
		if f.asked++; f.asked%f.every != 0 || !f.past.Knows() {
			return true
		}
		pol := f.policy
		pol.Order, _ = f.rules.Frozen(now)
		at := [3]model.Time{}
		for i, predict := range [...]sched.Predict{f.past.Early(), f.past.Late(), nil} {
			pol.Predict = predict
			at[i] = sched.Soonest(v, now, pol, j)
		}
		if at[0] != 0 && at[1] != 0 && at[2] != 0 {
			f.ranges[j.ID] = [3]model.Time{min(at[0], at[1], at[2]), min(max(at[0], at[1]), at[2]), at[2]}
		}
		return true
	})
	return plan
}

// TestLikelyStarts: of the jobs that wait, most start within the range that is told for them at their submission,
// most of them before its late end, and its middle is far nearer to what happens than the sure moment. What comes later
// and goes first is not foreseen.
func TestLikelyStarts(t *testing.T) {
	h := habits{seed: 3, jobs: 3000, procs: 80640, users: 60, load: 0.71, rush: 0.5, periodS: 4 * 86400, wide: 1,
		size: 0.006, spread: 1.3}
	t.Run("habits", func(t *testing.T) { likelyStarts(t, h.work()) })
	t.Run("KTH-SP2", func(t *testing.T) {
		w, err := Open(traces(t, "KTH-SP2.sc15.swf.gz"))
		if err != nil {
			t.Fatal(err)
		}
		w.Jobs = w.Jobs[:8000]
		likelyStarts(t, w)
	})
}

func likelyStarts(t *testing.T, w *Workload) {
	t.Helper()
	m, err := NewMachine(w, Size{})
	if err != nil {
		t.Fatal(err)
	}
	f := &foreteller{byDefault: *newByDefault().(*byDefault), past: policy.NewPast(), every: 10,
		seen: map[model.JobID]bool{}, ranges: map[model.JobID][3]model.Time{}, starts: map[model.JobID]model.Time{}}
	if _, err := Replay(context.Background(),
		Setup{Work: w, Machine: m, Scheduler: Scheduler{Name: "told", New: func() Planner { return f }}}); err != nil {
		t.Fatal(err)
	}
	n, within, before, middle, sure := 0.0, 0.0, 0.0, 0.0, 0.0
	for id, r := range f.ranges {
		at, ok := f.starts[id]
		if !ok {
			continue
		}
		n++
		if at <= r[1]+60_000 {
			before++
			if at >= r[0]-60_000 {
				within++
			}
		}
		middle += math.Abs(float64(at - (r[0]+r[1])/2))
		sure += math.Abs(float64(at - r[2]))
	}
	t.Logf("%s: %.0f jobs that wait: %.0f %% start within their range (a minute on each side), %.0f %% before its "+
		"end; error of its middle %.0f s in the mean, of the sure moment %.0f s", w.Name, n, 100*within/n, 100*before/n,
		middle/n/1000, sure/n/1000)
	if n < 50 || within < 0.5*n || before < 0.7*n || middle > 0.7*sure {
		t.Errorf("%s: want 50 %% within, 70 %% before, and an error of 70 %% of the sure moment's at most", w.Name)
	}
}
