package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// lateConfirmer answers a check when it is told to.
type lateConfirmer struct{ asked, answer chan error }

func (c lateConfirmer) VerifyLeader(context.Context) error {
	c.asked <- nil
	return <-c.answer
}

func (lateConfirmer) LeaseTime() time.Duration { return 2 * time.Second }

// TestLeaseOfTheStopped: a leader that was stopped while it asked whether it leads gets answers of before, once it goes
// on. They say nothing to requests that have come since.
func TestLeaseOfTheStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := New(), lateConfirmer{make(chan error, 1), make(chan error)}
		before, since := make(chan bool, 1), make(chan bool, 1)
		go func() { before <- l.Holds(t.Context(), c) }()
		<-c.asked
		time.Sleep(2 * c.LeaseTime()) // as long as another controller needs to lead
		go func() { since <- l.Holds(t.Context(), c) }()
		synctest.Wait() // it waits for the check that is in progress
		c.answer <- nil
		if !<-before {
			t.Error("a request of before the stop was not confirmed by the check that began with it")
		}
		synctest.Wait()
		select {
		case <-since:
			t.Fatal("a request that came after the check began was confirmed by it")
		case <-c.asked: // it asks again
		}
		c.answer <- errors.New("another controller leads")
		if <-since {
			t.Error("a request was confirmed although another controller leads")
		}
	})
}
