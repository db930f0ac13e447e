// Package lease knows for how long a controller leads for certain, as a majority has confirmed: one that was
// stopped, or is cut off, does not answer from facts that are outdated.
package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const patience = time.Second // for the other controllers to confirm who leads

// Lease is until when no other controller can lead. It is renewed beside the requests that need it, before it ends; a
// request that finds it ended waits for a majority. Its clock is the process's monotonic one.
type Lease struct {
	begin time.Time
	until atomic.Int64 // ns since begin

	mu   sync.Mutex
	asks *check // in progress, or nil
}

// New gives a lease that nobody has confirmed.
func New() *Lease { return &Lease{begin: time.Now()} }

type check struct {
	since time.Duration // when it began, from the lease's begin
	done  chan struct{}
	err   error
}

// Confirmer is what the lease needs of the store.
type Confirmer interface {
	VerifyLeader(context.Context) error
	LeaseTime() time.Duration
}

// Holds reports whether this controller leads at a moment of the call.
//
// A check that had begun before may have been confirmed long ago: its answers have waited while this process was
// stopped. It counts only if its lease has not ended.
func (l *Lease) Holds(ctx context.Context, s Confirmer) bool {
	called := time.Since(l.begin)
	for {
		left := time.Duration(l.until.Load()) - time.Since(l.begin)
		if left > s.LeaseTime()/2 {
			return true
		}
		now := l.renew(s)
		if left > 0 {
			return true
		}
		select {
		case <-now.done:
		case <-ctx.Done():
			return false
		}
		if now.err != nil || now.since >= called {
			return now.err == nil
		}
	}
}

// End makes the lease invalid: leadership is about to be given away.
func (l *Lease) End() { l.until.Store(0) }

// Until is when the lease ends or has ended; zero: nobody has confirmed it, or it was given away.
func (l *Lease) Until() time.Time {
	if until := l.until.Load(); until > 0 {
		return l.begin.Add(time.Duration(until))
	}
	return time.Time{}
}

// renew asks a majority, once for all who need it at the same time. It ends after patience.
func (l *Lease) renew(s Confirmer) *check {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asks != nil {
		return l.asks
	}
	now := &check{since: time.Since(l.begin), done: make(chan struct{})}
	l.asks = now
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		now.err = s.VerifyLeader(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		if now.err == nil {
			l.until.Store(int64(now.since + s.LeaseTime()))
		}
		l.asks = nil
		close(now.done)
	}()
	return now
}
