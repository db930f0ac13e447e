package ctld

import (
	"testing"
	"time"

	"gbatch/internal/sched"
)

// TestTimeBound: after a pass longer than bf_max_time, the next passes look at fewer jobs, and at more again once
// passes are quick.
func TestTimeBound(t *testing.T) {
	var b timeBound
	pol := sched.Policy{Backfill: sched.Backfill{On: true}}
	if b.limit(&pol); pol.Backfill.MaxTest != 0 {
		t.Fatalf("bounded to %d before any pass", pol.Backfill.MaxTest)
	}
	for i, c := range []struct {
		tested int
		took   time.Duration
		most   time.Duration
		want   int
	}{
		{10_000, 20 * time.Second, 30 * time.Second, 0},
		{10_000, 60 * time.Second, 30 * time.Second, 5000},
		{5000, 29 * time.Second, 30 * time.Second, 5000},
		{5000, 10 * time.Second, 30 * time.Second, 10_000},
		{10_000, 300 * time.Second, 30 * time.Second, 1000},
		{60, 300 * time.Second, 30 * time.Second, leastTested},
		{leastTested, time.Second, 30 * time.Second, 2 * leastTested},
		{7, time.Second, 30 * time.Second, 0}, // the queue ended before the bound
		{10_000, 60 * time.Second, 30 * time.Second, 5000},
		{5000, 60 * time.Second, 0, 0},
	} {
		if b.took(c.tested, c.took, c.most); b.most != c.want {
			t.Fatalf("step %d: bound %d, want %d", i, b.most, c.want)
		}
	}
	b.most = 100
	pol.Backfill.MaxTest = 50
	if b.limit(&pol); pol.Backfill.MaxTest != 50 {
		t.Errorf("bf_max_job_test=50 became %d", pol.Backfill.MaxTest)
	}
	pol.Backfill.MaxTest = 500
	if b.limit(&pol); pol.Backfill.MaxTest != 100 {
		t.Errorf("bound 100, got %d", pol.Backfill.MaxTest)
	}
}
