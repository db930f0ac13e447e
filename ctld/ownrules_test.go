package ctld

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The shown priorities have the order of the scores, stay in the band of their class, and lie between the priorities
// that were set by hand.
func TestShownScores(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	last := uint32(0)
	for class := uint8(classQOS); class <= classQOS+maxQOSRank; class++ {
		score := 0.0
		for range 300 {
			n := shownScore(class, false, score)
			if n < last || n < shownLeast || n >= basePriority {
				t.Fatalf("class %d, score %g: %d after %d", class, score, n, last)
			}
			last = n
			score = math.Exp2(math.Log2(max(score, 1e-12)) + rng.Float64())
		}
		if n := shownScore(class, true, 0); n <= last || n >= basePriority {
			t.Fatalf("the first of class %d has %d, others %d", class, n, last)
		} else {
			last = n
		}
	}
	if a, b := shownScore(classQOS, false, 1), shownScore(classQOS, false, 1.01); a >= b {
		t.Errorf("a score of 1 is shown as %d, one of 1.01 as %d", a, b)
	}
}
