//go:build linux && (amd64 || arm64)

package shim

import (
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
	p.do(func() { <-release }, func() { close(hung) })
	var want []int
	for i := range 10 {
		want = append(want, i)
		p.do(quick(i), never)
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
	if p.running != 0 || p.stuck != 0 || len(p.queue) != 0 {
		t.Errorf("left: %d running, %d stuck, %d queued", p.running, p.stuck, len(p.queue))
	}
}
