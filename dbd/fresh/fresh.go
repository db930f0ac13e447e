// Package fresh lets an answer of gdbd have the records of a job that has ended just before.
//
// The leader sends records with a delay, in which start and end of a short job become one. So it waits
// here (proto.Asked) for somebody to ask. The answer opens a round, and with the leader's next
// request, which ends the round, all is here that had been recorded when the round began. Who asks
// during a round waits for the next one.
package fresh

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxWait is how long a question waits for the leader. It is answered without what is new then.
const maxWait = 300 * time.Millisecond

// Rounds knows who waits for whom. The zero value has no leader.
type Rounds struct {
	mu      sync.Mutex
	round   uint64        // the latest one that was opened
	done    uint64        // the latest one that has ended
	news    chan struct{} // closed and replaced when a round ends; nil: nobody waits
	leaders []chan uint64 // that wait here; each gets the number of a round, once
	wanted  bool          // a question waits for a round that is not open yet
	late    bool          // the leader did not end a round in time, and has not come again since
}

// Wait waits until all is here that has been recorded by now, if a leader is there to send it.
func (f *Rounds) Wait(ctx context.Context) {
	f.mu.Lock()
	if f.late || len(f.leaders) == 0 && f.round == f.done { // no leader, or one that does not know this request
		f.mu.Unlock()
		return
	}
	need := f.round + 1
	f.wanted = true
	f.openRound()
	limit := time.NewTimer(maxWait)
	defer limit.Stop()
	for f.done < need {
		if f.news == nil {
			f.news = make(chan struct{})
		}
		news := f.news
		f.mu.Unlock()
		select {
		case <-news:
		case <-limit.C:
			f.mu.Lock()
			f.late = f.done < need
			f.mu.Unlock()
			return
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
	}
	f.mu.Unlock()
}

// openRound opens a round if somebody wants one and a leader waits. The caller holds mu.
func (f *Rounds) openRound() {
	if !f.wanted || len(f.leaders) == 0 {
		return
	}
	f.wanted = false
	f.round++
	for _, l := range f.leaders { // one that was deposed may wait here too
		l <- f.round
	}
	f.leaders = nil
}

// Next ends a round, unless done is 0, and waits for one that begins; 0: none has when ctx has ended.
func (f *Rounds) Next(ctx context.Context, done uint64) uint64 {
	l := make(chan uint64, 1)
	f.come(l, done)
	select {
	case round := <-l:
		return round
	case <-ctx.Done():
		f.leave(l)
		return 0
	}
}

// come notes a leader that has ended a round and waits for the next one.
func (f *Rounds) come(l chan uint64, done uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.late = false
	if done > f.done && done <= f.round {
		f.done = done
		if f.news != nil {
			close(f.news)
			f.news = nil
		}
	}
	f.leaders = append(f.leaders, l)
	f.openRound()
}

// leave forgets a leader that waits no longer.
func (f *Rounds) leave(l chan uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaders = slices.DeleteFunc(f.leaders, func(other chan uint64) bool { return other == l })
}
