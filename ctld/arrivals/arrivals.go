// Package arrivals makes one change of what many ask for at the same time, when a change costs much, whatever is in it:
// a rack of nodes of State=FUTURE that is switched on registers within a second, and each of their definitions would
// change all partitions.
package arrivals

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Queue gathers what comes while a change is being made. The next change has all of it. The zero value is empty.
type Queue struct {
	mu      sync.Mutex
	waiting []*arrival
	busy    bool // somebody makes a change, and tells the others
}

type arrival struct {
	name string
	told chan word // of one
}

// word is what an arrival is told: how its change ended, or that it is the one to make the next.
type word struct {
	next bool
	err  error
}

// Do returns when a change with the name has been made by some caller's change, or the caller leaves; each caller gives
// the same functions. If a change with several names is refused for what is in it, each of them is tried alone, so that
// no name fails for another one's fault.
func (q *Queue) Do(ctx context.Context, name string, change func(names []string) error,
	refused func(error) bool) error {
	me := &arrival{name: name, told: make(chan word, 1)}
	q.mu.Lock()
	q.waiting = append(q.waiting, me)
	others := q.busy
	q.busy = true
	q.mu.Unlock()
	if others {
		select {
		case w := <-me.told:
			if !w.next {
				return w.err
			}
		case <-ctx.Done():
			q.leave(me)
			return ctx.Err()
		}
	}
	return q.lead(me, change, refused)
}

// errFailed is what the others are told if a change panics.
var errFailed = errors.New("the change failed")

// lead makes a change of what is waiting, and hands the lead on.
func (q *Queue) lead(me *arrival, change func(names []string) error, refused func(error) bool) error {
	q.mu.Lock()
	list := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	of := map[string][]*arrival{}
	var names []string
	for _, a := range list {
		if of[a.name] == nil {
			names = append(names, a.name)
		}
		of[a.name] = append(of[a.name], a)
	}
	var mine error
	tell := func(name string, err error) {
		for _, a := range of[name] {
			if a == me {
				mine = err
			} else {
				a.told <- word{err: err}
			}
		}
		delete(of, name)
	}
	defer func() {
		for _, name := range names {
			tell(name, errFailed) // those that have been told are gone
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.passOn()
	}()
	err := change(slices.Clone(names))
	alone := err != nil && len(names) > 1 && refused(err)
	for _, name := range names {
		if alone {
			err = change([]string{name})
		}
		tell(name, err)
	}
	return mine
}

// leave takes out an arrival that waits no longer.
func (q *Queue) leave(a *arrival) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, a)
	if i < 0 { // its change is being made
		return
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	select {
	case <-a.told: // it was to make the next change
		q.passOn()
	default:
	}
}

// passOn lets the first that waits make the next change. The caller holds mu.
func (q *Queue) passOn() {
	if q.busy = len(q.waiting) > 0; q.busy {
		q.waiting[0].told <- word{next: true}
	}
}
