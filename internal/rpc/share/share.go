package share

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of a Group's answers.
const (
	MaxAnswer = 64 << 20               // bytes of one answer
	MaxLive   = 64 << 20               // bytes of all answers that are kept or still being sent
	maxTopics = 1024                   // different answers at the same time
	keepFor   = 500 * time.Millisecond // an answer that is still true is used again for so long
	idleFor   = 2 * time.Second        // and forgotten after this time
	// tooMuchFor is how long answers are not shared after one took too much memory.
	tooMuchFor = 10 * time.Second
)

// ErrTooMuch says that an answer can't be shared, since it or all of them would take too much memory. The caller makes
// its own, part by part.
var ErrTooMuch = errors.New("too much to be shared")

var errClosed = errors.New("the daemon is ending")

// Answer is an answer's encoded parts, in order. They are shared: nobody may change them.
type Answer struct {
	Parts [][]byte
	Err   error // if it is an error, after Parts

	group *Group
	bytes int
	users int // who still need the bytes; under the group's lock
	stamp any
	made  time.Time
}

// Passing is the stamp of an answer that is not kept. Says is what those learn of it who wait for it.
type Passing struct{ Says any }

// Says gives what a Passing answer says of itself; nil: it is none.
func (a *Answer) Says() any {
	p, _ := a.stamp.(Passing)
	return p.Says
}

// Done gives the answer's memory back. Each caller of Get calls it once, when it has sent the answer.
func (a *Answer) Done() {
	a.group.mu.Lock()
	defer a.group.mu.Unlock()
	a.group.drop(a)
}

// Make makes an answer: it puts each part, whose memory then belongs to the answer. The stamp is what the answer was
// made from; it is compared with a later one to see whether the answer is still true. nil, and a Passing: the answer
// isn't kept.
type Make func(ctx context.Context, put func(part []byte) error) (stamp any, err error)

// Group shares answers by key. Rest is how many times as long as an answer took to make the next one with the same key
// waits: 3 bounds the work to a quarter of one CPU. Gap is the least between the beginnings of two answers with the
// same key while many ask for it: they are made of newer facts, and for more callers, than one for each. Memory is for
// the answers of all groups that have the same one; nil: this group's own. Close ends it.
type Group struct {
	Rest   int
	Gap    time.Duration
	Memory *Memory

	mu     sync.Mutex
	keys   map[string]*topic
	mine   Memory
	closed bool
	ctx    context.Context
	stop   context.CancelFunc
	own    sync.WaitGroup

	asked, made int64
}

// Memory counts the bytes of answers that are kept or still being sent.
type Memory struct{ live atomic.Int64 }

func (m *Memory) full() bool { return m.live.Load() > MaxLive }

// add counts bytes of an answer; false: there is no room.
func (m *Memory) add(bytes int) bool {
	if m.live.Add(int64(bytes)) > MaxLive+MaxAnswer {
		m.free(bytes)
		return false
	}
	return true
}

func (m *Memory) free(bytes int) { m.live.Add(-int64(bytes)) }

func (g *Group) memory() *Memory {
	if g.Memory != nil {
		return g.Memory
	}
	return &g.mine
}

// topic has the answers for one key.
type topic struct {
	next    *round        // who wait for an answer that isn't being made yet
	wake    chan struct{} // holds one: next is there
	last    *Answer       // kept; nil: none
	tooMuch time.Time     // when an answer could last not be shared
	begun   [2]time.Time  // the last answers but one and two
}

// often reports whether an answer and the two before it begin within one gap, and notes that it begins.
func (t *topic) often(now time.Time, gap time.Duration) bool {
	often := now.Sub(t.begun[1]) < gap
	t.begun[0], t.begun[1] = now, t.begun[0]
	return often
}

// round is one answer that is to be made. Its context ends when nobody waits for it any more.
type round struct {
	ctx     context.Context
	stop    context.CancelFunc
	done    chan struct{}
	waiting int // under the group's lock
	make    Make
	answer  *Answer
}

// Get gives an answer that was begun after the call, or an earlier one whose stamp is now's. The caller calls Done.
func (g *Group) Get(ctx context.Context, key string, now any, do Make) (*Answer, error) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil, errClosed
	}
	if g.keys == nil {
		g.keys = map[string]*topic{}
		g.ctx, g.stop = context.WithCancel(context.Background())
	}
	g.asked++
	if len(key) > sha256.Size { // as long as its asker likes
		sum := sha256.Sum256([]byte(key))
		key = string(sum[:])
	}
	t := g.keys[key]
	if t != nil && t.last != nil && now != nil && t.last.stamp == now && time.Since(t.last.made) < keepFor {
		a := t.last
		a.users++
		g.mu.Unlock()
		return a, nil
	}
	if g.memory().full() || t == nil && len(g.keys) >= maxTopics || t != nil && time.Since(t.tooMuch) < tooMuchFor {
		g.mu.Unlock()
		return nil, ErrTooMuch
	}
	if t == nil {
		t = &topic{wake: make(chan struct{}, 1)}
		g.keys[key] = t
		g.own.Go(func() { g.serve(key, t) })
	}
	if t.next == nil {
		t.next = &round{done: make(chan struct{}), make: do}
		t.next.ctx, t.next.stop = context.WithCancel(g.ctx)
		select {
		case t.wake <- struct{}{}:
		default: // it wakes already
		}
	}
	r := t.next
	r.waiting++
	g.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
		g.leave(t, r)
		return nil, context.Cause(ctx)
	}
	if err := r.answer.Err; err != nil && len(r.answer.Parts) == 0 {
		r.answer.Done()
		return nil, err
	}
	return r.answer, nil
}

// leave is for a caller who doesn't wait any longer. What nobody waits for isn't made.
func (g *Group) leave(t *topic, r *round) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.waiting--
	switch {
	case r.answer != nil:
		g.drop(r.answer)
	case r.waiting == 0:
		r.stop()
		if t.next == r {
			t.next = nil
		}
	}
}

// serve makes the answers of one key as long as somebody asks.
func (g *Group) serve(key string, t *topic) {
	for {
		g.mu.Lock()
		r := t.next
		t.next = nil
		select {
		case <-t.wake:
		default:
		}
		g.mu.Unlock()
		if r != nil {
			begin := time.Now()
			often := t.often(begin, g.Gap)
			if many := g.one(t, r); many || often {
				took := time.Since(begin)
				g.pause(max(time.Duration(g.Rest)*took, g.Gap-took))
			}
			if g.ctx.Err() == nil {
				continue
			}
		}
		idle := time.NewTimer(idleFor)
		select {
		case <-t.wake:
		case <-idle.C:
		case <-g.ctx.Done():
		}
		idle.Stop()
		if g.ended(key, t) {
			return
		}
	}
}

// ended forgets a topic that nobody asks for, and every topic once the group is closed.
func (g *Group) ended(key string, t *topic) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.next != nil && !g.closed {
		return false
	}
	g.forget(t)
	delete(g.keys, key)
	if r := t.next; r != nil {
		t.next = nil
		r.answer = &Answer{group: g, Err: errClosed, users: r.waiting}
		close(r.done)
		r.stop()
	}
	return true
}

func (g *Group) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-g.ctx.Done():
	}
}

// one makes the answer of one round. many: more callers wait for it than one command and its successor.
func (g *Group) one(t *topic, r *round) (many bool) {
	a := &Answer{group: g}
	begin := time.Now()
	defer r.stop()
	stamp, err := g.try(r.ctx, r.make, func(part []byte) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		if a.bytes+len(part) > MaxAnswer || !g.memory().add(len(part)) {
			return ErrTooMuch
		}
		a.Parts = append(a.Parts, part)
		a.bytes += len(part)
		return nil
	})
	a.Err, a.stamp, a.made = err, stamp, begin
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made++
	if errors.Is(err, ErrTooMuch) {
		g.memory().free(a.bytes)
		a.Parts, a.bytes = nil, 0
		t.tooMuch = time.Now()
	}
	a.users = r.waiting
	g.forget(t)
	if _, passing := stamp.(Passing); err == nil && stamp != nil && !passing && !g.memory().full() {
		t.last = a
		a.users++
	}
	if a.users == 0 {
		g.memory().free(a.bytes)
	}
	r.answer = a
	close(r.done)
	return r.waiting > 2
}

// try makes an answer. A panic becomes an error, as in a request's own goroutine.
func (g *Group) try(ctx context.Context, do Make, put func([]byte) error) (stamp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("making an answer has crashed: %v\n%s", p, debug.Stack())
		}
	}()
	return do(ctx, put)
}

// forget drops the kept answer. The group's lock is held.
func (g *Group) forget(t *topic) {
	if t.last != nil {
		g.drop(t.last)
		t.last = nil
	}
}

func (g *Group) drop(a *Answer) {
	if a.users--; a.users == 0 {
		g.memory().free(a.bytes)
	}
}

// Counts gives the requests and the answers that were made for them.
func (g *Group) Counts() (asked, made int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked, g.made
}

// Close ends what is being made, and waits for it.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	stop := g.stop
	g.mu.Unlock()
	if stop != nil {
		stop()
	}
	g.own.Wait()
}
