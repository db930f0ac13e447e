package samples

import (
	"sync"

	"gbatch/internal/proto"
)

// MaxWaiting is how many minutes wait for a gdbd that is away; older ones are dropped.
const MaxWaiting = 10

// Queue holds minutes for one gdbd. Adding never waits.
type Queue struct {
	mu      sync.Mutex
	minutes [][]*proto.Samples
	dropped int64
	some    chan struct{}
}

func NewQueue() *Queue { return &Queue{some: make(chan struct{}, 1)} }

// Add adds a minute.
func (q *Queue) Add(parts []*proto.Samples) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.minutes = append(q.minutes, parts); len(q.minutes) > MaxWaiting {
		q.minutes = append([][]*proto.Samples(nil), q.minutes[1:]...)
		q.dropped++
	}
	select {
	case q.some <- struct{}{}:
	default: // it is known that there is something
	}
}

// First gives the oldest minute, nil if there is none.
func (q *Queue) First() []*proto.Samples {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.minutes) == 0 {
		return nil
	}
	return q.minutes[0]
}

// Done removes a minute, unless it was dropped.
func (q *Queue) Done(parts []*proto.Samples) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.minutes) > 0 && len(parts) > 0 && len(q.minutes[0]) > 0 && q.minutes[0][0] == parts[0] {
		q.minutes = append([][]*proto.Samples(nil), q.minutes[1:]...)
	}
}

// Some is sent to when there may be something.
func (q *Queue) Some() <-chan struct{} { return q.some }

// Dropped counts minutes that were dropped.
func (q *Queue) Dropped() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}
