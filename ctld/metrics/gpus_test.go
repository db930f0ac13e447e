package metrics_test

import (
	"testing"
	"time"

	"gbatch/ctld/metrics"
)

// TestIdleForAnHour: a GPU counts as idle for long when the job that holds it has held it for an hour in which it did
// nothing; a GPU that nobody holds never does.
func TestIdleForAnHour(t *testing.T) {
	const hour = 3_600_000
	src := source(cluster(t, 1, 2)) // a job has GPUs 0 to 3 of n0000
	idle := map[int32]int64{0: hour, 1: hour - 1, 3: 2 * hour, 7: 5 * hour}
	src.IdleMS = func(string) map[int32]int64 { return idle }
	const name = `gbatch_gpus_allocated_idle_hour{type="a100"}`
	for at, want := range map[time.Duration]float64{59 * time.Minute: 0, 61 * time.Minute: 2} {
		now := src
		now.Now = epoch.Add(int64(at / time.Second))
		if got := read(t, scrape(t, now, "/metrics", plainText), false).series[name]; got != want {
			t.Errorf("after %s %v GPUs are idle for long, not %v", at, got, want)
		}
	}
}

// TestBadTokens: what is the client's fault is no error of the server's.
func TestBadTokens(t *testing.T) {
	src := source(cluster(t, 1, 1))
	src.Waits = &metrics.Waits{}
	src.Waits.Served(511, time.Millisecond)
	src.Waits.Served(503, time.Millisecond)
	x := read(t, scrape(t, src, "/metrics", plainText), false)
	for name, want := range map[string]float64{`gbatch_http_requests_total{code="4xx"}`: 1,
		`gbatch_http_requests_total{code="5xx"}`: 1} {
		if got := x.series[name]; got != want {
			t.Errorf("%s is %v, not %v", name, got, want)
		}
	}
}
