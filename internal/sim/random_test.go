package sim

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// randomWork makes a workload with many ties: jobs that come together, ends at the limit, equal sizes.
func randomWork(rng *rand.Rand, procs, jobs int) *Workload {
	w := &Workload{Name: "random", MaxProcs: procs}
	at := int64(0)
	for i := range jobs {
		at += int64(rng.IntN(4) * rng.IntN(60))
		run := int64(1 + rng.IntN(10)*rng.IntN(40))
		req := run
		if rng.IntN(2) == 0 {
			req = (run/60 + 1 + int64(rng.IntN(3))) * 60
		}
		w.add(Job{ID: int64(i + 1), Submit: at, Run: run, Request: req, CPUs: int32(1 + rng.IntN(rng.IntN(procs)+1)),
			User: fmt.Sprint("u", rng.IntN(4))})
	}
	w.sort()
	return w
}

// keepSeeds is the number of workloads that are compared with the conservative reference too.
const keepSeeds = 30

// TestProductionEqualsReference checks on random workloads that the production planner starts every job when the
// simplest planner does, for every named scheduler and both kinds of events.
func TestProductionEqualsReference(t *testing.T) {
	for seed := range 30 {
		rng := rand.New(rand.NewPCG(uint64(seed), 5))
		w := randomWork(rng, 1+rng.IntN(24), 120)
		for _, n := range schedulers() {
			if n.backfill.Keep && seed >= keepSeeds {
				continue
			}
			for _, ev := range []Events{Batch, Single} {
				got, want := replayPool(t, w, n.name, ev, false), replayPool(t, w, n.name, ev, true)
				if !slices.Equal(got.Start, want.Start) {
					for i := range got.Start {
						if got.Start[i] != want.Start[i] {
							t.Fatalf("seed %d, %s, %s: job %d starts at %d, the reference says %d", seed, n.name, ev, w.Jobs[i].ID,
								got.Start[i], want.Start[i])
						}
					}
				}
				overfull(t, got)
			}
		}
	}
}

// overfull fails the test if more processors are in use than exist.
func overfull(t *testing.T, o *Outcome) {
	for _, s := range o.Load {
		if s.Busy > int64(o.Work.MaxProcs) || s.Busy < 0 || s.Queued < 0 {
			t.Fatalf("at %d: %d of %d processors in use, %d jobs wait", s.At, s.Busy, o.Work.MaxProcs, s.Queued)
		}
	}
	for i := range o.Start {
		if o.Start[i] < o.Work.Jobs[i].Submit {
			t.Fatalf("job %d starts at %d, before its submission at %d", o.Work.Jobs[i].ID, o.Start[i], o.Work.Jobs[i].Submit)
		}
	}
}

// TestShake checks that submissions move by 0 to the given seconds, equally for equal seeds, and change the schedule.
func TestShake(t *testing.T) {
	make := func(seed uint64) *Workload {
		w := randomWork(rand.New(rand.NewPCG(1, 1)), 8, 200)
		w.Shake(seed, 60)
		return w
	}
	a, b, c := make(1), make(1), make(2)
	if !slices.Equal(a.Jobs, b.Jobs) || slices.Equal(a.Jobs, c.Jobs) {
		t.Error("equal seeds must shake equally, others otherwise")
	}
	before := map[int64]int64{}
	for _, j := range randomWork(rand.New(rand.NewPCG(1, 1)), 8, 200).Jobs {
		before[j.ID] = j.Submit
	}
	moved := 0
	for _, j := range a.Jobs {
		by := j.Submit - before[j.ID]
		if by < 0 || by > 60 {
			t.Errorf("job %d moved by %d s", j.ID, by)
		}
		if by > 0 {
			moved++
		}
	}
	if moved < 150 || !slices.IsSortedFunc(a.Jobs, bySubmit) {
		t.Errorf("%d of 200 moved", moved)
	}
}

// TestReplayStops checks that a replay ends when its context does.
func TestReplayStops(t *testing.T) {
	w := randomWork(rand.New(rand.NewPCG(1, 1)), 8, 2000)
	m, err := NewMachine(w, Size{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewScheduler("easy", m)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Replay(ctx, Setup{Work: w, Machine: m, Scheduler: s}); err != context.Canceled {
		t.Error(err)
	}
}

// FuzzRead checks that reading any file gives a workload whose jobs can run, or an error that names the file and, for a
// bad line, the line.
func FuzzRead(f *testing.F) {
	f.Add("; MaxProcs: 4\n1 0 -1 10 2 -1 -1 2 20 -1 1 1 1 -1 1 -1 -1 -1\n")
	f.Add("1 0 -1 10 2 1.5 -1 2 20 -1 1 1 1 -1 1 -1 -1 -1\n2 0\n")
	f.Add("job_id,user,vc,submit_time,gpu_num,duration\n1,a,v,2020-04-08 14:19:42,8,30\n")
	f.Add("# per-VC pool sizes (nodes, 8 GPU/node): a=20, " +
		"b=2\njob_id,user,tenant,class,submit_time,num_chips,chip_type,num_nodes,duration_s,walltime_limit_s,final_status\n" +
		"1,u,a,x,5,16,,2,24.0,24.0,DONE\n")
	f.Add("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time," +
		"scheduled_time\np,12000,16384,1,460,,LS,Running,0,12537496,0\n")
	f.Add("JobID|User|Partition|Submit|Start|End|Timelimit|State|NNodes|ReqCPUS|ReqTRES\n" +
		"12|a|p|2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-01T01:00:00|02:00:00|COMPLETED|1|4|cpu=4,gres/gpu=2\n" +
		"12.batch||||||||||\n")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := Read("trace", bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			if !strings.Contains(err.Error(), "trace") {
				t.Fatalf("an error without the file: %v", err)
			}
			return
		}
		for i, j := range w.Jobs {
			if j.Run <= 0 || j.Run > j.Request || j.CPUs < 0 || j.GPUs < 0 || j.CPUs+j.GPUs == 0 || j.Nodes < 0 || i > 0 &&
				j.Submit < w.Jobs[i-1].Submit {
				t.Fatalf("job %+v", j)
			}
		}
	})
}
