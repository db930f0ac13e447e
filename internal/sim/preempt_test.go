package sim

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"gbatch/internal/golden"
)

// preemptConf is a node of four processors, and three partitions of one tier above the other.
const preemptConf = `ClusterName=sim
SlurmctldHost=localhost
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=%s
NodeName=n1 CPUs=4 RealMemory=8000
PartitionName=low Nodes=n1 Default=YES PriorityTier=1 MaxTime=1-0
PartitionName=kill Nodes=n1 PriorityTier=2 MaxTime=1-0 PreemptMode=%s
PartitionName=high Nodes=n1 PriorityTier=9 MaxTime=1-0
`

func preemptMachine(t *testing.T, mode, kill string) *Machine {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gbatch.conf")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(preemptConf, mode, kill)), 0o600); err != nil {
		t.Fatal(err)
	}
	m, _, err := FromConf(file)
	if err != nil {
		t.Fatal(err)
	}
	m.Text = "four processors"
	return m
}

func replayOn(t *testing.T, w *Workload, m *Machine) *Outcome {
	t.Helper()
	o, err := Replay(context.Background(), Setup{Work: w, Machine: m, Scheduler: configured(m.Config)})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestPreemption replays a workload that can be checked by hand under each PreemptMode. A suspended job continues with
// its remaining time, a requeued one starts again, a cancelled one is no part of the result.
func TestPreemption(t *testing.T) {
	w := &Workload{Name: "preempt"}
	for _, j := range []Job{
		{ID: 1, Submit: 0, Run: 1000, Request: 1200, CPUs: 4, Queue: "low"},
		{ID: 2, Submit: 100, Run: 200, Request: 200, CPUs: 2, Queue: "high"}, // takes the processors of 1
		{ID: 3, Submit: 150, Run: 50, Request: 60, CPUs: 2, Queue: "low"},    // fits beside 2 while 1 can't go on
		{ID: 4, Submit: 600, Run: 100, Request: 100, CPUs: 4, Queue: "high"},
		{ID: 5, Submit: 650, Run: 100, Request: 100, CPUs: 1, Queue: "low"},
		{ID: 6, Submit: 2000, Run: 500, Request: 500, CPUs: 4, Queue: "kill"},
		{ID: 7, Submit: 2100, Run: 100, Request: 100, CPUs: 4, Queue: "high"},
	} {
		w.add(j)
	}
	w.sort()
	b := &bytes.Buffer{}
	for _, mode := range []string{"SUSPEND,GANG", "REQUEUE", "OFF"} {
		kill := "CANCEL"
		if mode == "OFF" {
			kill = "OFF"
		}
		o := replayOn(t, w, preemptMachine(t, mode, kill))
		fmt.Fprintf(b, "PreemptMode=%s\n", mode)
		if err := o.WriteJobs(b); err != nil {
			t.Fatal(err)
		}
		for _, s := range o.Load {
			fmt.Fprintf(b, "at %d: %d in use, %d wait\n", s.At, s.Busy, s.Queued)
		}
		m := o.Measure()
		fmt.Fprintf(b, "average wait %.2f, utilization %.4f, %+v, left out %v\n\n", m.AvgWait, m.Utilization, o.Cut, m.Left)
	}
	golden.Compare(t, "testdata/preempt.txt", b.Bytes())
}

// TestPreemptedWorkIsKept checks on random workloads, in each mode, that every job runs as long as in the trace and no
// processor is used twice; the sum of processors in use over time equals the work done, lost work included.
func TestPreemptedWorkIsKept(t *testing.T) {
	var all Preempted
	for seed := range 20 {
		rng := rand.New(rand.NewPCG(uint64(seed), 23))
		w := randomWork(rng, 4, 80)
		for i := range w.Jobs {
			w.Jobs[i].Queue = []string{"low", "low", "kill", "high"}[rng.IntN(4)]
		}
		mode := []string{"SUSPEND,GANG", "REQUEUE"}[rng.IntN(2)]
		o := replayOn(t, w, preemptMachine(t, mode, []string{"CANCEL", "REQUEUE"}[rng.IntN(2)]))
		done, busy := 0.0, 0.0
		for i := range w.Jobs {
			if j := &w.Jobs[i]; o.Start[i] != NoStart {
				done += float64(j.CPUs) * float64(j.Run) / 3600
				if o.Start[i] < j.Submit || o.End[i]-o.Start[i] < j.Run || mode == "REQUEUE" && o.End[i]-o.Start[i] != j.Run {
					t.Fatalf("seed %d, %s: job %d of %d seconds runs from %d to %d", seed, mode, j.ID, j.Run, o.Start[i], o.End[i])
				}
			}
		}
		for i, s := range o.Load {
			if s.Busy < 0 || s.Busy > 4 || s.Queued < 0 {
				t.Fatalf("seed %d: %d processors in use and %d jobs wait at %d", seed, s.Busy, s.Queued, s.At)
			}
			if i+1 < len(o.Load) {
				busy += float64(s.Busy) * float64(o.Load[i+1].At-s.At) / 3600
			}
		}
		if c := o.Cut; c != nil {
			done += c.Lost
			all.Suspended, all.Requeued, all.Cancelled = all.Suspended+c.Suspended, all.Requeued+c.Requeued, all.Cancelled+
				c.Cancelled
		}
		if math.Abs(done-busy) > 1e-6 {
			t.Fatalf("seed %d, %s: %.4f processor-hours were in use, and %.4f done", seed, mode, busy, done)
		}
	}
	if all.Suspended < 50 || all.Requeued < 50 || all.Cancelled < 20 {
		t.Errorf("only %+v in all", all)
	}
}
