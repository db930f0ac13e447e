package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

const (
	queueCommands = 4096
	queueBytes    = 32 << 20
)

// request is one Propose or ProposeBatch in progress.
type request struct {
	cmds  [][]byte
	bytes int
	done  chan outcome // holds one
}

type outcome struct {
	results []any
	err     error
}

// queue holds requests until gather puts them into an entry. It is bounded in commands and bytes: push waits for room.
type queue struct {
	mu       sync.Mutex
	items    []*request
	commands int
	bytes    int
	closed   bool
	held     bool          // take gives nothing
	taken    int           // batches that were taken and are not done
	idle     chan struct{} // with held: closed when taken is 0
	waiting  int           // pushes that wait for room
	room     chan struct{} // closed and replaced when there is room again
	wake     chan struct{} // holds one: the queue has requests, or was closed
}

func newQueue() *queue {
	return &queue{room: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// push appends r. It returns ErrQueueFull (with ctx's error) when ctx ends first, ErrClosed after close.
func (q *queue) push(ctx context.Context, r *request) error {
	q.mu.Lock()
	for {
		if q.closed {
			q.mu.Unlock()
			return ErrClosed
		}
		// A batch larger than the queue's bounds enters an empty queue.
		if len(q.items) == 0 || q.commands+len(r.cmds) <= queueCommands && q.bytes+r.bytes <= queueBytes {
			break
		}
		q.waiting++
		room := q.room
		q.mu.Unlock()
		var ended error
		select {
		case <-room:
		case <-ctx.Done():
			ended = context.Cause(ctx)
		}
		q.mu.Lock()
		q.waiting--
		if ended != nil {
			n := q.commands
			q.mu.Unlock()
			return fmt.Errorf("%w (%d commands wait): %w", ErrQueueFull, n, ended)
		}
	}
	q.items = append(q.items, r)
	q.commands += len(r.cmds)
	q.bytes += r.bytes
	q.mu.Unlock()
	q.notify()
	return nil
}

// take waits for requests and removes as many as fit into one entry, at least one. It returns nil after close.
func (q *queue) take() []*request {
	for {
		q.mu.Lock()
		if q.closed {
			q.mu.Unlock()
			return nil
		}
		if len(q.items) > 0 && !q.held {
			break
		}
		q.mu.Unlock()
		<-q.wake
	}
	defer q.mu.Unlock()
	n, commands, bytes := 0, 0, 0
	for _, r := range q.items {
		if n > 0 && (commands+len(r.cmds) > entryCommands || bytes+r.bytes > entryBytes) {
			break
		}
		n, commands, bytes = n+1, commands+len(r.cmds), bytes+r.bytes
	}
	batch := slices.Clone(q.items[:n])
	q.items = slices.Delete(q.items, 0, n)
	q.removed(commands, bytes)
	q.taken++
	return batch
}

// done says that the outcome of a batch that take gave is known.
func (q *queue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken--; q.taken == 0 && q.idle != nil {
		close(q.idle)
		q.idle = nil
	}
}

var errHeld = errors.New("it is under way already")

// hold keeps requests in the queue, and returns when the outcome of all that were taken is known. release ends that:
// waiting requests go on, or get refuse.
func (q *queue) hold(ctx context.Context) (release func(refuse error), err error) {
	q.mu.Lock()
	if q.held {
		q.mu.Unlock()
		return nil, errHeld
	}
	q.held = true
	var idle chan struct{}
	if q.taken > 0 {
		idle = make(chan struct{})
		q.idle = idle
	}
	q.mu.Unlock()
	release = func(refuse error) {
		q.mu.Lock()
		q.held, q.idle = false, nil
		var items []*request
		if refuse != nil {
			items, q.items = q.items, nil
			q.removed(q.commands, q.bytes)
		}
		q.mu.Unlock()
		for _, r := range items {
			r.done <- outcome{err: refuse}
		}
		q.notify()
	}
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			release(nil)
			return nil, context.Cause(ctx)
		}
	}
	return release, nil
}

// withdraw removes r, and reports whether it was still queued.
func (q *queue) withdraw(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.items, r)
	if i < 0 {
		return false
	}
	q.items = slices.Delete(q.items, i, i+1)
	q.removed(len(r.cmds), r.bytes)
	return true
}

// close refuses queued and later requests.
func (q *queue) close() {
	q.mu.Lock()
	items := q.items
	q.items, q.closed = nil, true
	q.removed(q.commands, q.bytes)
	q.mu.Unlock()
	for _, r := range items {
		r.done <- outcome{err: ErrClosed}
	}
	q.notify()
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.commands
}

// removed subtracts removed requests and wakes the waiting pushes. The lock is held.
func (q *queue) removed(commands, bytes int) {
	q.commands -= commands
	q.bytes -= bytes
	if q.waiting > 0 {
		close(q.room)
		q.room = make(chan struct{})
	}
}

func (q *queue) notify() {
	select {
	case q.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}
