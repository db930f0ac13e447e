package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// naive_test.go is a second implementation that shares no code with the scheduler, the state or the replay: EASY and
// conservative backfill of a pool over lists of jobs, from the papers' definitions, one pass per second. Production
// must give the same schedules.

// naiveRun is a running job.
type naiveRun struct {
	end, limit int64
	procs      int64
}

// naiveLog plays a log.
func naiveLog(w *Workload, pass func(now int64, free int64, running []naiveRun, queue []int, ended bool) (start []int,
	wake int64)) []int64 {
	starts := make([]int64, len(w.Jobs))
	var running []naiveRun
	var queue []int
	next, free, wake := 0, int64(w.MaxProcs), int64(math.MaxInt64)
	for next < len(w.Jobs) || len(running) > 0 {
		now := wake
		if next < len(w.Jobs) {
			now = min(now, w.Jobs[next].Submit)
		}
		for _, r := range running {
			now = min(now, r.end)
		}
		early := false
		running = slices.DeleteFunc(running, func(r naiveRun) bool {
			if r.end > now {
				return false
			}
			free += r.procs
			early = early || r.limit > now
			return true
		})
		for next < len(w.Jobs) && w.Jobs[next].Submit == now {
			queue = append(queue, next)
			next++
		}
		var start []int
		start, wake = pass(now, free, running, queue, early)
		if wake <= now {
			wake = math.MaxInt64
		}
		for _, i := range start {
			j := &w.Jobs[i]
			starts[i] = now
			free -= int64(j.CPUs)
			running = append(running, naiveRun{now + j.Run, now + j.Request, int64(j.CPUs)})
			queue = slices.Delete(queue, slices.Index(queue, i), slices.Index(queue, i)+1)
		}
	}
	return starts
}

// naiveEASY is EASY: start from the head while it fits; the first that doesn't has a shadow time and leaves extra
// processors.
func naiveEASY(w *Workload) []int64 {
	return naiveLog(w, func(now, free int64, running []naiveRun, queue []int, _ bool) (start []int, wake int64) {
		running = slices.Clone(running)
		begin := func(i int) {
			j := &w.Jobs[i]
			free -= int64(j.CPUs)
			start = append(start, i)
			running = append(running, naiveRun{limit: now + j.Request, procs: int64(j.CPUs)})
		}
		k := 0
		for k < len(queue) && int64(w.Jobs[queue[k]].CPUs) <= free {
			begin(queue[k])
			k++
		}
		if k == len(queue) {
			return start, math.MaxInt64
		}
		slices.SortFunc(running, func(a, b naiveRun) int { return int(a.limit - b.limit) })
		shadow, extra := now, free
		for i := 0; i < len(running) && (extra < int64(w.Jobs[queue[k]].CPUs) || running[i].limit == shadow); i++ {
			shadow = running[i].limit
			extra += running[i].procs
		}
		extra -= int64(w.Jobs[queue[k]].CPUs)
		for _, i := range queue[k+1:] {
			j := &w.Jobs[i]
			procs := int64(j.CPUs)
			switch {
			case procs > free:
			case now+j.Request <= shadow:
				begin(i)
			case procs <= extra:
				extra -= procs
				begin(i)
			}
		}
		return start, math.MaxInt64
	})
}

// naiveConservative gives each job a reservation when it arrives; after an end before the limit, each job in turn gets
// a better one if there is one. It checks a job's fit at every second with a possible change, by summing up.
func naiveConservative(w *Workload) []int64 {
	held := map[int]int64{}
	return naiveLog(w, func(now, _ int64, running []naiveRun, queue []int, early bool) (start []int, wake int64) {
		used := func(at int64, without int) int64 {
			sum := int64(0)
			for _, r := range running {
				if max(r.limit, now) > at {
					sum += r.procs
				}
			}
			for i, from := range held {
				if i != without && from <= at && at < from+w.Jobs[i].Request {
					sum += int64(w.Jobs[i].CPUs)
				}
			}
			return sum
		}
		best := func(i int) int64 {
			moments := []int64{now}
			for _, r := range running {
				moments = append(moments, r.limit)
			}
			for k, from := range held {
				if k != i {
					moments = append(moments, from, from+w.Jobs[k].Request)
				}
			}
			slices.Sort(moments)
			for _, from := range moments {
				fits := from >= now
				for _, at := range append([]int64{from}, moments...) {
					if fits && at >= from && at < from+w.Jobs[i].Request {
						fits = used(at, i)+int64(w.Jobs[i].CPUs) <= int64(w.MaxProcs)
					}
				}
				if fits {
					return from
				}
			}
			panic("there is an end of all")
		}
		for _, i := range queue {
			if _, ok := held[i]; !ok || early {
				held[i] = best(i)
			}
		}
		wake = math.MaxInt64
		for _, i := range queue {
			if held[i] <= now {
				start = append(start, i)
			} else {
				wake = min(wake, held[i])
			}
		}
		for _, i := range start {
			delete(held, i)
		}
		return start, wake
	})
}

// naiveWork makes a different kind of log for each seed: sizes in powers of two or whole machines, sessions of equal
// jobs, round, missing or exact limits, quiet and crowded times.
func naiveWork(seed uint64, jobs int) *Workload {
	rng := rand.New(rand.NewPCG(seed, 77))
	procs := []int{1, 7, 64, 100, 338}[seed%5]
	w := &Workload{Name: "naive", MaxProcs: procs}
	at := int64(0)
	for len(w.Jobs) < jobs {
		size := min(procs, 1<<rng.IntN(10))
		if rng.IntN(12) == 0 {
			size = procs
		}
		limit := []int64{60, 600, 3600, 14400, 64800}[rng.IntN(5)]
		at += int64(rng.ExpFloat64() * float64(limit) * float64(size) / float64(procs) * 2)
		for range 1 + rng.IntN(6) {
			run := 1 + int64(float64(limit)*math.Pow(rng.Float64(), 3))
			request := limit
			switch {
			case seed%3 == 1:
				request = -1
			case seed%3 == 2 && rng.IntN(2) == 0:
				request = run
			}
			w.add(Job{ID: int64(len(w.Jobs) + 1), Submit: at, Run: run, Request: request, CPUs: int32(size),
				User: fmt.Sprint("u", rng.IntN(9))})
			at += int64(rng.IntN(3) * rng.IntN(40))
		}
	}
	w.sort()
	return w
}

// TestNaive checks on synthetic logs that production starts every job when the plain definitions do.
func TestNaive(t *testing.T) {
	for _, x := range []struct {
		scheduler string
		jobs      int
		naive     func(*Workload) []int64
	}{{"easy", 1500, naiveEASY}, {"conservative", 250, naiveConservative}} {
		for seed := range uint64(10) {
			w := naiveWork(seed, x.jobs)
			got, want := replayPool(t, w, x.scheduler, Batch, false).Start, x.naive(w)
			waits := 0
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("%s, seed %d: job %d starts at %d, by the definition at %d", x.scheduler, seed, w.Jobs[i].ID, got[i],
						want[i])
					break
				}
				if got[i] > w.Jobs[i].Submit {
					waits++
				}
			}
			if waits < x.jobs/10 {
				t.Errorf("%s, seed %d: only %d of %d jobs wait: nothing was put to the test", x.scheduler, seed, waits, x.jobs)
			}
		}
	}
}
