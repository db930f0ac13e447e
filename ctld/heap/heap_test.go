package heap

import "testing"

// A small heap grows to heapSmall, a large one by heapGrowthPct, and nothing by more than maxGrowthPct.
func TestHeapPercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, maxGrowthPct}, {1 << 20, maxGrowthPct}, {4 << 20, 700}, {16 << 20, 100}, {30 << 20, heapGrowthPct},
		{heapSmall, heapGrowthPct}, {1 << 30, heapGrowthPct}} {
		if got := heapPercent(c.live); got != c.want {
			t.Errorf("%d bytes: %d %%, want %d %%", c.live, got, c.want)
		}
	}
}
