package sched

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// TestTurnsAreFair: once turns have been taken, no two jobs run on one shared CPU at a time; no job is suspended before
// its turn is over; the job that has waited longest resumes as soon as a turn ends.
func TestTurnsAreFair(t *testing.T) {
	const slice = 5
	for seed := range 20 {
		rng := rand.New(rand.NewPCG(uint64(seed), 5))
		c := newCluster(t)
		c.lazy = true
		c.cfg.Params.MemConsumed = false
		c.cfg.Params.Preempt = model.Preempt{Gang: true, SliceS: slice}
		c.cfg.Nodes = []*model.NodeDef{{Name: "n1", CPUs: 8, ThreadsPerCore: 1, MemMiB: 8000},
			{Name: "n2", CPUs: 8, ThreadsPerCore: 1, MemMiB: 8000}}
		c.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1", "n2"}, ShareMax: 4, ShareForced: true}}
		c.up()
		ran := map[model.JobID]int{}
		for step := range 60 {
			c.at = fmt.Sprintf("seed %d, step %d", seed, step)
			for range rng.IntN(3) {
				c.apply(&state.Submit{Spec: &model.Spec{Partitions: []string{"p"}, Tasks: 1, CPUsPerTask: int32(1 + rng.IntN(8)),
					LimitS: 1000}, Priority: 1})
			}
			c.cycle(Policy{})
			c.begin()
			v := c.st.View()
			turn, next := Turn(v, c.now)
			for _, id := range turn.Sleep {
				if j := v.Job(id); j.Run.Turns > 0 && c.now < j.Run.SleepAt.Add(slice) {
					t.Fatalf("%s: job %d is stopped before its turn is over", c.at, id)
				}
			}
			var first *model.Job
			v.Sharing(func(j *model.Job) bool {
				if j.State == model.Suspended && (first == nil || j.Run.SleepAt < first.Run.SleepAt) {
					first = j
				}
				return true
			})
			c.apply(&state.Suspend{Turn: turn})
			if again, _ := Turn(c.st.View(), c.now); len(again.Sleep)+len(again.Wake) > 0 {
				t.Fatalf("%s: a second turn at once: %+v", c.at, again)
			}
			busy := map[string]model.Bits{}
			waits := false
			c.st.View().Sharing(func(j *model.Job) bool {
				if j.State != model.Running {
					waits = true
					return true
				}
				ran[j.ID]++
				for _, na := range j.Run.Alloc.Nodes {
					if busy[na.Node].Overlaps(na.CPUs) {
						t.Fatalf("%s: job %d runs on CPUs %s of %s beside others", c.at, j.ID, na.CPUs, na.Node)
					}
					busy[na.Node] = busy[na.Node].Or(na.CPUs)
				}
				return true
			})
			if waits != (next != 0) {
				t.Fatalf("%s: somebody waits: %t, the next turn is at %d", c.at, waits, next)
			}
			c.now = c.now.Add(int64(1 + rng.IntN(2*slice)))
			if rng.IntN(4) == 0 {
				c.endSome(rng)
			}
			if first != nil && step > 50 && c.st.View().Job(first.ID).State == model.Suspended &&
				c.now > first.Run.SleepAt.Add(60*slice) {
				t.Fatalf("%s: job %d waits since %d", c.at, first.ID, first.Run.SleepAt)
			}
		}
	}
}

// begin lets every job that has resources run.
func (c *cluster) begin() {
	var r state.Reports
	c.st.View().Jobs(func(j *model.Job) bool {
		if j.State == model.Configuring {
			r.Reports = append(r.Reports, state.Report{Kind: state.Started, Job: j.ID, Attempt: j.Attempt, At: c.now})
		}
		return true
	})
	c.apply(&r)
}

// endSome ends some of the jobs that have resources.
func (c *cluster) endSome(rng *rand.Rand) {
	var r state.Reports
	c.st.View().Jobs(func(j *model.Job) bool {
		if j.State.HasResources() && rng.IntN(3) == 0 {
			r.Reports = append(r.Reports, state.Report{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: c.now})
		}
		return true
	})
	c.apply(&r)
}
