//go:build linux && (amd64 || arm64)

package shim

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// A launch that hangs does not hold up others; launches start in the order of their arrival, a few at a time.
func TestLaunchers(t *testing.T) {
	var wg sync.WaitGroup
	p := newLaunchers(&wg)
	p.most = 1
	var mu sync.Mutex
	var order []int
	hung, release := make(chan struct{}), make(chan struct{})
	at, most := 0, 0
	quick := func(i int) func() {
		return func() {
			mu.Lock()
			at++
			most = max(most, at)
			order = append(order, i)
			mu.Unlock()
			time.Sleep(time.Millisecond) // long enough to meet another, if there were one
			mu.Lock()
			at--
			mu.Unlock()
		}
	}
	never := func() { t.Error("a quick launch was said to hang") }
	p.do(1, func() { <-release }, func() { close(hung) })
	var want []int
	for i := range 10 {
		want = append(want, i)
		p.do(1, quick(i), never)
	}
	mu.Lock()
	if len(order) != 0 {
		t.Errorf("%v ran beside a launch that was not stuck yet", order)
	}
	mu.Unlock()
	<-hung
	deadline := time.Now().Add(10 * time.Second)
	for done := false; !done && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		mu.Lock()
		done = len(order) == len(want)
		mu.Unlock()
	}
	close(release)
	wg.Wait()
	if !slices.Equal(order, want) || most != 1 {
		t.Errorf("order %v, %d at once; wanted %v, one at a time", order, most, want)
	}
	if p.running != 0 || p.stuck != 0 || len(p.queue) != 0 || len(p.users) != 0 {
		t.Errorf("left: %d running, %d stuck, %d queued", p.running, p.stuck, len(p.queue))
	}
}

// Launches of one user that hang hold that user's places, and no other user's.
func TestLaunchersShare(t *testing.T) {
	var wg sync.WaitGroup
	p := newLaunchers(&wg)
	hang, began := make(chan struct{}), make(chan struct{}, maxForking)
	for range maxForking {
		p.do(1, func() { began <- struct{}{}; <-hang }, func() {})
	}
	for range maxUserForking {
		<-began
	}
	done := make(chan struct{})
	for i := range uint32(20) {
		p.do(2+i, func() { done <- struct{}{} }, func() {})
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatalf("another user's launch waits for those that hang: %d running, %d stuck", p.running, p.stuck)
		}
	}
	if n := len(began); n > 0 {
		t.Errorf("one user has %d places too many", n)
	}
	close(hang)
	wg.Wait()
	if len(began) != maxForking-maxUserForking || len(p.users) != 0 || p.running != 0 {
		t.Errorf("%d of the user's other launches began later; left: %d users, %d running", len(began), len(p.users),
			p.running)
	}
}

// While too many of a user's files hang at their close, launches of that user wait with their files, and go on when
// some are closed. Nobody else waits.
func TestLaunchersWaitForFiles(t *testing.T) {
	var wg sync.WaitGroup
	p := newLaunchers(&wg)
	var late sync.Map
	p.late = func(uid uint32) bool { _, is := late.Load(uid); return is }
	began := make(chan uint32, maxForking)
	launch := func(uid uint32) { p.do(uid, func() { began <- uid }, func() {}) }
	late.Store(uint32(1), true)
	for range 3 * maxUserForking {
		launch(1)
	}
	launch(2)
	if uid := <-began; uid != 2 {
		t.Errorf("a launch of user %d has begun", uid)
	}
	wg.Wait()
	if n := len(began); n != 0 {
		t.Errorf("%d launches have begun whose user's files hang", n)
	}
	late.Clear()
	p.wake(1)
	wg.Wait()
	if n := len(began); n != 3*maxUserForking || len(p.users) != 0 {
		t.Errorf("%d launches have begun since; left: %d users", n, len(p.users))
	}
	p.wake(1) // nothing waits
}

// Files of one user that hang at their close hold up no other user's; the user passes no more of them.
func TestClosers(t *testing.T) {
	var c closers
	c.users = map[uint32]*closing{1: {hands: maxClosers}} // all of which hang
	pipe := func() (*os.File, *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
		return r, w
	}
	_, kept := pipe()
	for i := range maxUnclosed {
		if c.late(1) {
			t.Fatalf("late with %d launches", i)
		}
		c.drop(1, [PassedFiles]*os.File{kept})
	}
	if !c.late(1) || c.late(2) {
		t.Errorf("late: user 1 %v, user 2 %v", c.late(1), c.late(2))
	}
	r, w := pipe()
	c.drop(2, [PassedFiles]*os.File{w})
	if _, err := r.Read(make([]byte, 1)); err == nil {
		t.Error("bytes came from nowhere")
	}
	until(t, "the other user to be forgotten", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.users[2] == nil
	})
	if _, err := kept.Write([]byte("x")); err != nil {
		t.Errorf("a file that waits was closed: %v", err)
	}
}
