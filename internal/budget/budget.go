package budget

import (
	"fmt"
	"sync"
)

// Budget is an amount of one thing, shared by all who ask for it. K says who asks: a uid, or the name of a daemon. Make
// one with New.
type Budget[K comparable] struct {
	all, each int64
	trusted   func(K) bool

	mu   sync.Mutex
	used int64
	by   map[K]int64
}

// Over is the error of Take: there is nothing left for who asks.
type Over struct {
	Own   bool  // it is who asks that has enough; otherwise others have the rest
	Has   int64 // what who asks has already
	Limit int64 // Each, or All
}

// Error is for logs; what users are told names the thing.
func (e *Over) Error() string {
	if e.Own {
		return fmt.Sprintf("%d in use by the same user, the limit is %d", e.Has, e.Limit)
	}
	return fmt.Sprintf("almost all of %d are in use, %d by the same user", e.Limit, e.Has)
}

// New gives a budget of all, of which one may have each. trusted says who is bound by all alone, such as root; nil is
// nobody.
func New[K comparable](all, each int64, trusted func(K) bool) *Budget[K] {
	return &Budget[K]{all: all, each: each, trusted: trusted, by: map[K]int64{}}
}

// Root says that a uid is root's.
func Root(uid uint32) bool { return uid == 0 }

// Take takes n for who, or nothing: then the error is an *Over. Nobody may have more than what would still be left for
// the next one, so a few who each have their part do not leave the others without anything.
func (b *Budget[K]) Take(who K, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	own, left := b.by[who], b.all-b.used
	free := b.trusted != nil && b.trusted(who)
	switch {
	case !free && own+n > b.each:
		return &Over{Own: true, Has: own, Limit: b.each}
	case n > left, !free && own+n > left:
		return &Over{Has: own, Limit: b.all}
	}
	b.used += n
	b.by[who] = own + n
	return nil
}

// Give gives n back.
func (b *Budget[K]) Give(who K, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.by[who] -= n; b.by[who] <= 0 {
		delete(b.by, who)
	}
}

// Used gives what who has, and what all have.
func (b *Budget[K]) Used(who K) (own, all int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.by[who], b.used
}
