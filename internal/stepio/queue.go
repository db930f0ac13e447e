package stepio

import (
	"io"
	"os"
	"sync"
)

// QueueBytes is how much input waits for a task that does not read, before the other tasks of its step wait too.
const QueueBytes = 1 << 20

// Queue passes input on to a task that may read slowly, or not at all, so that other tasks get theirs. It has a
// goroutine, which ends with the queue, or when its file is closed.
type Queue struct {
	w io.WriteCloser

	mu   sync.Mutex
	cond sync.Cond
	held []byte
	over bool  // nothing more comes
	err  error // of the file
}

// NewQueue begins a queue before a file, which it closes.
func NewQueue(w io.WriteCloser) *Queue {
	q := &Queue{w: w}
	q.cond.L = &q.mu
	go q.pass()
	return q
}

// Write queues data, and waits while the queue is full. It fails when the task no longer reads.
func (q *Queue) Write(b []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.held) >= QueueBytes && q.err == nil && !q.over {
		q.cond.Wait()
	}
	switch {
	case q.err != nil:
		return 0, q.err
	case q.over:
		return 0, os.ErrClosed
	}
	q.held = append(q.held, b...)
	q.cond.Broadcast()
	return len(b), nil
}

// Close ends the input after what is queued. It does not wait for that.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
	q.cond.Broadcast()
	return nil
}

// pass writes what is queued.
func (q *Queue) pass() {
	defer q.w.Close() //nolint:errcheck // it has all input, or reads no more
	var spare []byte
	for {
		q.mu.Lock()
		for len(q.held) == 0 && !q.over {
			q.cond.Wait()
		}
		b := q.held
		q.held = spare[:0]
		q.mu.Unlock()
		if len(b) == 0 {
			return
		}
		_, err := q.w.Write(b)
		q.mu.Lock()
		q.err, spare = err, b
		q.cond.Broadcast()
		q.mu.Unlock()
		if err != nil {
			return
		}
	}
}
