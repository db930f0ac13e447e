package state

import (
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"gbatch/internal/blob"
	"gbatch/internal/model"
)

// full gives a cluster of 100 nodes and its submissions: what gsubmit sends for a small job, each with a name, a
// script and a path of its own, encoded.
func full(tb testing.TB, jobs int) (*State, [][]byte) {
	tb.Helper()
	st := New()
	cfg := &model.Config{Cluster: "bench", Params: model.Params{MinJobAgeS: 300, MemConsumed: true}}
	p := &model.Partition{Name: "p", Default: true}
	for i := range 100 {
		name := fmt.Sprintf("n%03d", i)
		cfg.Nodes = append(cfg.Nodes, &model.NodeDef{Name: name, CPUs: 128, ThreadsPerCore: 1, MemMiB: 500_000})
		p.Nodes = append(p.Nodes, name)
	}
	cfg.Partitions = append(cfg.Partitions, p)
	st.Apply(Command{At: epoch, Body: &SetConfig{Config: cfg}})
	for _, n := range p.Nodes {
		st.Apply(Command{At: epoch, Body: &Join{Node: n, BootID: "b"}})
	}
	env := blob.Make([]byte(fmt.Sprintf("PATH=/usr/bin\x00HOME=/home/ann\x00%0400d", 1)))
	logged := make([][]byte, jobs)
	for i := range logged {
		script := blob.Make(fmt.Appendf(nil, "#!/bin/sh\n#SBATCH -n 1\nexec ./simulate --case %d --out results/%d\n", i, i))
		logged[i] = encoded(tb, &Submit{RequestID: fmt.Sprintf("%032x", i), Script: script, Env: env, Priority: 1_000_000,
			Spec: spec(i, script.Key, env.Key)})
	}
	return st, logged
}

func spec(i int, script, env string) *model.Spec {
	return &model.Spec{Name: fmt.Sprintf("case-%06d", i), UID: 1000, GID: 1000, Groups: []uint32{1000, 27}, User: "ann",
		Group:   "ann",
		Account: "physics", QOS: "normal", Partitions: []string{"p"}, Script: script, Env: env,
		Command: fmt.Sprintf("/home/ann/runs/%06d/job.sh", i), Submit: fmt.Sprintf("gsubmit runs/%06d/job.sh", i),
		WorkDir: "/home/ann/runs",
		StdIn:   "/dev/null", StdOut: "/home/ann/runs/slurm-%j.out", Umask: 0o22, Host: "login1", MinNodes: 1, MaxNodes: 1,
		Tasks: 1, CPUsPerTask: 1,
		Limits: []model.RLimit{{Resource: 7, Soft: 1024, Hard: 1 << 20}, {Resource: 3, Soft: 8 << 20, Hard: ^uint64(0)}},
		LimitS: 3600}
}

func encoded(tb testing.TB, b Body) []byte {
	tb.Helper()
	data, err := Encode(epoch, b)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func fold(tb testing.TB, st *State, data []byte) Result {
	c, err := Decode(data)
	if err != nil {
		tb.Fatal(err)
	}
	return st.Apply(c)
}

// BenchmarkSubmit decodes and applies one submission.
func BenchmarkSubmit(b *testing.B) {
	st, logged := full(b, 20_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%len(logged) == 0 && i > 0 {
			b.StopTimer()
			st, _ = full(b, 0)
			b.StartTimer()
		}
		fold(b, st, logged[i%len(logged)])
	}
}

// BenchmarkJobLife starts, reports started and ends one job, 50,000 others pending.
func BenchmarkJobLife(b *testing.B) {
	st, logged := full(b, 50_000)
	for _, data := range logged {
		fold(b, st, data)
	}
	next := st.nextID
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		id := st.Apply(Command{At: epoch, Body: &Submit{Spec: spec(i, "", "")}}).Job
		node := fmt.Sprintf("n%03d", i%100)
		start := encoded(b, &Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p",
			LimitS: 3600,
			Alloc:  &model.Alloc{Nodes: []model.NodeAlloc{{Node: node, CPUs: model.UpTo(1), MemMiB: 100, Tasks: 1}}}}}}})
		started := encoded(b, &Reports{Reports: []Report{{Kind: Started, Job: id, Attempt: 1, At: epoch}}})
		ended := encoded(b, &Reports{Reports: []Report{{Kind: Ended, Job: id, Attempt: 1, At: epoch}}})
		b.StartTimer()
		fold(b, st, start)
		fold(b, st, started)
		fold(b, st, ended)
	}
	if j := st.View().Job(next); j.State != model.Completed {
		b.Fatal(j.State)
	}
}

// BenchmarkArrayTask starts and ends one task of an array of a million.
func BenchmarkArrayTask(b *testing.B) {
	st, _ := full(b, 0)
	sp := spec(0, "", "")
	sp.Tasklist = model.TaskSet{{Lo: 0, Hi: 1<<20 - 1, Step: 1}}
	array := st.Apply(Command{At: epoch, Body: &Submit{Spec: sp}}).Job
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		task := int32(i % (1 << 20))
		st.Apply(Command{At: epoch, Body: &Starts{Plan: model.Plan{Starts: []model.Start{{Job: array, Task: task,
			Partition: "p", LimitS: 3600,
			Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n000", CPUs: model.UpTo(1), MemMiB: 100, Tasks: 1}}}}}}}})
		st.Apply(Command{At: epoch, Body: &Reports{Reports: []Report{{Kind: Ended, Job: st.nextID - 1, Attempt: 1,
			At: epoch}}}})
	}
}

// running gives an array of n tasks that all run, and the numbers of their records in order of task; the last one has
// the array's.
func running(tb testing.TB, n int32) (*State, []model.JobID) {
	tb.Helper()
	st, _ := full(tb, 0)
	sp := spec(0, "", "")
	sp.Tasklist = model.TaskSet{{Lo: 0, Hi: n - 1, Step: 1}}
	array := st.Apply(Command{At: epoch, Body: &Submit{Spec: sp}}).Job
	ids := make([]model.JobID, n)
	for i := range n {
		on := model.NodeAlloc{Node: fmt.Sprintf("n%03d", i/128), CPUs: bit(int(i % 128)), Tasks: 1}
		res := st.Apply(Command{At: epoch, Body: &Starts{Plan: model.Plan{Starts: []model.Start{{Job: array, Task: i,
			Partition: "p", LimitS: 3600, Alloc: &model.Alloc{Nodes: []model.NodeAlloc{on}}}}}}})
		if res.Each[0] != OK {
			tb.Fatal(res.Each)
		}
		ids[i] = st.View().TaskRecord(array, i).ID
	}
	return st, ids
}

func (s *State) end(id model.JobID) {
	s.Apply(Command{At: epoch, rules: rulesNow,
		Body: &Reports{Reports: []Report{{Kind: Ended, Job: id, Attempt: 1, At: epoch}}}})
}

// BenchmarkArrayEnds ends tasks of an array of which 12,000 run.
func BenchmarkArrayEnds(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		st, ids := running(b, 12_000)
		b.StartTimer()
		for _, id := range ids[:1000] {
			st.end(id)
		}
	}
}

// TestArrayEnds: the end of a task does not take longer for each other task of its array that runs.
func TestArrayEnds(t *testing.T) {
	least := func(n int32) time.Duration {
		st, ids := running(t, n)
		best := time.Hour
		for _, id := range ids[:90] {
			begin := time.Now()
			st.end(id)
			best = min(best, time.Since(begin))
		}
		return best
	}
	if few, many := least(100), least(6000); many > 10*few {
		t.Errorf("a task of 100 ends in %v, one of 6000 in %v", few, many)
	}
}

// TestEverySecondTask: many tasks of an array are ended and held at once, and what is left of it is short.
func TestEverySecondTask(t *testing.T) {
	const n = 100_000
	st, _ := full(t, 0)
	sp := spec(0, "", "")
	sp.Tasklist = model.TaskSet{{Lo: 0, Hi: n - 1, Step: 1}}
	id := st.Apply(Command{At: epoch, Body: &Submit{Spec: sp}}).Job
	of := func(lo, hi, step int32) []model.JobRef {
		return []model.JobRef{{Job: id, Task: model.NoTask, Tasks: model.TaskSet{{Lo: lo, Hi: hi, Step: step}}}}
	}
	for _, x := range []struct {
		body Body
		left string
	}{
		{&Stop{Event: model.EvCancel, Targets: of(0, n-2, 2)}, "1-99999:2"},
		{&Edit{Set: []Field{SetHold}, Hold: model.HeldByUser, Targets: of(1, n-3, 4)}, "3-99999:4"},
	} {
		if r := st.Apply(Command{At: epoch, Body: x.body}); r.Each[0] != OK {
			t.Fatal(r.Each)
		}
		if left := st.View().Job(id).Tasks; left.String() != x.left {
			t.Errorf("%d ranges are left, %.60s, want %s", len(left), left, x.left)
		}
	}
	if err := st.Check(); err != nil {
		t.Error(err)
	}
}

// BenchmarkView takes a view after each of a stream of submissions.
func BenchmarkView(b *testing.B) {
	st, logged := full(b, 50_000)
	for _, data := range logged {
		fold(b, st, data)
	}
	b.Run("unchanged", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			st.View()
		}
	})
	b.Run("submit and view", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			st.Apply(Command{At: epoch, Body: &Submit{Spec: spec(i, "", "")}})
			st.View()
		}
	})
}

// BenchmarkManyWaiters ends one job for which 20,000 wait.
func BenchmarkManyWaiters(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		st, _ := full(b, 0)
		st.Apply(Command{At: epoch, Body: &Submit{Spec: spec(0, "", "")}})
		for i := range 20_000 {
			sp := spec(i, "", "")
			sp.Deps = []model.Dep{{Kind: model.DepAfterAny, Job: 1, Task: model.NoTask}}
			st.Apply(Command{At: epoch, Body: &Submit{Spec: sp}})
		}
		b.StartTimer()
		st.Apply(Command{At: epoch, Body: &Stop{Targets: []model.JobRef{{Job: 1, Task: model.NoTask}},
			Event: model.EvCancel}})
		if st.View().ReadyLen("p") != 20_000 {
			b.Fatal("not everybody was woken")
		}
	}
}

// BenchmarkSnapshot writes and reads 100,000 distinct pending jobs.
func BenchmarkSnapshot(b *testing.B) {
	st, logged := full(b, 100_000)
	for _, data := range logged {
		fold(b, st, data)
	}
	logged = nil
	size := len(snapshot(b, st))
	b.Run("freeze", func(b *testing.B) {
		for b.Loop() {
			st.Freeze()
		}
	})
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(size))
		for b.Loop() {
			if err := st.Freeze()(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("restore", func(b *testing.B) {
		b.SetBytes(int64(size))
		for b.Loop() {
			restored(b, st)
		}
	})
}

// BenchmarkMemory reports what a pending distinct job costs, indexes, contents and accounting event included.
func BenchmarkMemory(b *testing.B) {
	const jobs = 50_000
	for b.Loop() {
		st, logged := full(b, jobs)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&before)
		for _, data := range logged {
			fold(b, st, data)
		}
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/jobs, "B/job")
		st.Apply(Command{At: epoch.Add(requestAgeS + 1), Body: &Tick{}})
		for range 20 {
			st.Apply(Command{At: epoch.Add(requestAgeS + 1), Body: &Tick{}})
		}
		last, _, _ := st.outbox.Max()
		st.Apply(Command{At: epoch, Body: &Trim{Seq: last}})
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/jobs, "B/job-settled")
		runtime.KeepAlive(logged)
		runtime.KeepAlive(st)
	}
}
