// Package arrivals makes one change of what many ask for at the same time, when a change costs much, whatever is in it:
// a rack of nodes of State=FUTURE that is switched on registers within a second, and each of their definitions would
// change all partitions.
package arrivals

import "sync"

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

// Do returns when a change with the name has been made by some caller's change; each caller gives the same function. If
// one with several names fails, each of them is tried alone, so that no name fails for another one's fault.
func (q *Queue) Do(name string, change func(names []string) error) error {
	me := &arrival{name: name, told: make(chan word, 1)}
	q.mu.Lock()
	q.waiting = append(q.waiting, me)
	others := q.busy
	q.busy = true
	q.mu.Unlock()
	if others {
		if w := <-me.told; !w.next {
			return w.err
		}
	}

	q.mu.Lock()
	list := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	var names []string
	for _, a := range list {
		names = append(names, a.name)
	}
	err := change(names)
	var mine error
	for _, a := range list {
		one := err
		if err != nil && len(list) > 1 {
			one = change([]string{a.name})
		}
		if a == me {
			mine = one
		} else {
			a.told <- word{err: one}
		}
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy = len(q.waiting) > 0; q.busy {
		q.waiting[0].told <- word{next: true}
	}
	return mine
}
