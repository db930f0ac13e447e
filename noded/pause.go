package noded

import (
	"context"
	"math/rand/v2"
	"time"
)

// pause.go has the pauses between two tries.

// acceptPace is the pause after a connection could not be taken.
const acceptPace = 100 * time.Millisecond

// Backoff between two rounds over all controllers.
const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// backoff is a jittered exponential pause.
type backoff struct{ next time.Duration }

func (b *backoff) reset() { b.next = 0 }

// take gives the next pause: between half and all of a span that doubles from backoffMin to backoffMax.
func (b *backoff) take() time.Duration {
	if b.next == 0 {
		b.next = backoffMin
	}
	d := b.next
	b.next = min(2*b.next, backoffMax)
	return d/2 + rand.N(d/2)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
