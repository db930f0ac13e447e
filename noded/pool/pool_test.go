package pool

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
)

// TestShares: a user whose tasks hang leaves goroutines to others, tasks beyond the part begin in their turn, and one
// that nobody waits for any more ends at once, running or not.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		p := New(ctx, 8, slog.New(slog.NewTextHandler(t.Output(), nil)))
		var mu sync.Mutex
		begun, left := map[uint32]int{}, map[uint32]int{}
		hang := func(uid uint32) func(context.Context) {
			return func(ctx context.Context) {
				mu.Lock()
				if ctx.Err() == nil {
					begun[uid]++
				}
				mu.Unlock()
				<-ctx.Done()
				mu.Lock()
				left[uid]++
				mu.Unlock()
			}
		}
		var leaves []func()
		for range 20 {
			leaves = append(leaves, p.DoFor(1, 2, hang(1)))
		}
		leaveOther := p.DoFor(2, 2, hang(2))
		done := 0
		p.Do(func(context.Context) { done++ })
		synctest.Wait()
		if begun[1] != 2 || begun[2] != 1 || done != 1 {
			t.Fatalf("begun %v, and %d of nobody", begun, done)
		}
		leaves[19]() // it waits
		leaves[19]()
		synctest.Wait()
		if begun[1] != 2 || left[1] != 1 {
			t.Errorf("a task that waited: begun %v, left %v", begun, left)
		}
		leaves[0]() // it runs
		synctest.Wait()
		if begun[1] != 3 || left[1] != 2 {
			t.Errorf("a task that ran: begun %v, left %v", begun, left)
		}
		leaveOther()
		stop()
		p.Wait()
		synctest.Wait()
		if left[1] != 4 || left[2] != 1 || p.running != 0 || len(p.of) != 0 {
			t.Errorf("at the end: begun %v, left %v, %d run, users %v", begun, left, p.running, p.of)
		}
	})
}
