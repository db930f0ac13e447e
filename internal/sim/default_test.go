package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/sched"
	"gbatch/internal/sched/policy"
	"gbatch/internal/state"
)

// guardWatch is the default scheduler; it records the time at which each job became the first of those whose patience
// has ended.
type guardWatch struct {
	byDefault
	first map[model.JobID]model.Time
}

func (g *guardWatch) Plan(v *state.View, now model.Time) model.Plan {
	g.rules.Refresh(v, now)
	if over := g.rules.Overdue(poolPartition); len(over) > 0 {
		if _, ok := g.first[over[0]]; !ok {
			g.first[over[0]] = now
		}
	}
	return g.planner.Plan(v, now, g.policy)
}

// TestNoStarvation checks that a job that has become the first of those whose patience has ended starts within twice
// the longest time limit of all jobs, for any later jobs and wrong planned times: a wrong guess may come at the end of
// the first limit, and then nobody overtakes by a guess. And it checks that every job becomes the first.
func TestNoStarvation(t *testing.T) {
	met := 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 9))
		procs := 2 + rng.IntN(24)
		w := randomWork(rng, procs, 250)
		longest := int64(0)
		for i := range w.Jobs {
			j := &w.Jobs[i]
			j.Submit = j.Submit * int64(10+rng.IntN(4)) / 10 / int64(1+seed%3) // up to far more than the machine's capacity
			if rng.IntN(5) == 0 {
				j.Request = j.Run * int64(1+rng.IntN(40)) // limits far above the run times, so that planned times are wrong
			}
			longest = max(longest, j.Request)
		}
		w.sort()
		m, err := NewMachine(w, Size{})
		if err != nil {
			t.Fatal(err)
		}
		g := &guardWatch{first: map[model.JobID]model.Time{}}
		g.planner, g.rules = sched.NewPlanner(), policy.New(policy.Options{LongestPct: 20, LeastS: 200, LatelyS: 1 << 30})
		g.policy = sched.Policy{MaxStarts: noBound, Depth: 1, Backfill: easy, Order: g.rules.Order(),
			Predict: g.rules.Predict()}
		o, err := Replay(context.Background(),
			Setup{Work: w, Machine: m, Scheduler: Scheduler{Name: "guarded", New: func() Planner { return g }}})
		if err != nil {
			t.Fatal(err)
		}
		overfull(t, o)
		for id, since := range g.first { // job numbers are given in order of submission
			met++
			if waited := o.Start[id-1] - (int64(since)/1000 - defaultEpoch); waited > 2*longest {
				t.Errorf("seed %d: job %d has been the first for %d s when it starts; the longest limit is %d s", seed, id, waited,
					longest)
			}
		}
	}
	if met < 100 {
		t.Errorf("the property was put to the test %d times only", met)
	}
}

// TestDefaultBeatsEASY checks on the real logs, with original and shaken submissions, that the default has less wait
// and slowdown than EASY and no starvation: the longest wait is at most twice EASY's.
func TestDefaultBeatsEASY(t *testing.T) {
	for _, x := range []struct {
		log            string
		wait, slowdown float64 // at most, of EASY's
		seeds          []uint64
	}{
		{"KTH-SP2", 0.85, 0.7, []uint64{0, 1}},
		{"CTC-SP2", 0.85, 0.7, []uint64{1}},
	} {
		for _, seed := range x.seeds {
			if x.log == "CTC-SP2" && testing.Short() {
				continue
			}
			run := func(scheduler string) *Metrics {
				w, err := Open(traces(t, x.log+".sc15.swf.gz"))
				if err != nil {
					t.Fatal(err)
				}
				if seed > 0 {
					w.Shake(seed, 60)
				}
				return replayPool(t, w, scheduler, Batch, false).Measure()
			}
			is, easy := run(DefaultScheduler), run("easy")
			t.Logf("%s, seed %d: wait %.0f of %.0f, slowdown %.1f of %.1f, longest %d of %d", x.log, seed, is.AvgWait,
				easy.AvgWait, is.AvgSlowdown, easy.AvgSlowdown, is.MaxWait, easy.MaxWait)
			if is.AvgWait > x.wait*easy.AvgWait || is.AvgSlowdown > x.slowdown*easy.AvgSlowdown || is.MaxWait > 2*easy.MaxWait {
				t.Errorf("%s, seed %d: want at most %.2f of the wait, %.2f of the slowdown and twice the longest", x.log, seed,
					x.wait, x.slowdown)
			}
		}
	}
}

// TestDefaultRepeats checks that equal workloads give equal schedules.
func TestDefaultRepeats(t *testing.T) {
	for seed := range uint64(5) {
		work := func() *Workload { return randomWork(rand.New(rand.NewPCG(seed, 2)), 12, 400) }
		a, b := replayPool(t, work(), DefaultScheduler, Batch, false), replayPool(t, work(), DefaultScheduler, Batch, false)
		if !slices.Equal(a.Start, b.Start) {
			t.Errorf("seed %d: two replays differ", seed)
		}
	}
}
