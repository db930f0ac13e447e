package heap

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Nearly all of a controller's memory is long-lived job records. A collector that lets the heap double before it runs
// would need as much memory again. One that never lets it grow by more than a fifth would run all the time while there
// are few jobs.
const (
	heapGrowthPct = 20       // how far a large heap grows between two collections, percent (GOGC)
	heapSmall     = 32 << 20 // bytes up to which a heap grows freely
	maxGrowthPct  = 1600
	heapPace      = 2 * time.Second
)

// heapPercent gives GOGC for a heap with live bytes in use.
func heapPercent(live uint64) int {
	if live >= heapSmall {
		return heapGrowthPct
	}
	return int(min(max(heapGrowthPct, (heapSmall-live)*100/max(live, 1)), maxGrowthPct))
}

// Tune adapts GOGC to the heap's size until ctx ends.
func Tune(ctx context.Context) {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	pace := time.NewTicker(heapPace)
	defer pace.Stop()
	for set := 0; ctx.Err() == nil; wait(ctx, pace) {
		metrics.Read(sample)
		if sample[0].Value.Kind() != metrics.KindUint64 {
			return // another Go version: its default is fine
		}
		if pct := heapPercent(sample[0].Value.Uint64()); pct != set {
			set = pct
			debug.SetGCPercent(pct)
		}
	}
}

func wait(ctx context.Context, pace *time.Ticker) {
	select {
	case <-ctx.Done():
	case <-pace.C:
	}
}
