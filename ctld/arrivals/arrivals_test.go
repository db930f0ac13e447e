package arrivals

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestDo: what comes while a change is made is in the next one; a name that can't be changed fails alone.
func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		var mu sync.Mutex
		var calls []string
		change := func(names []string) error {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(names)
			calls = append(calls, strings.Join(names, ","))
			switch {
			case slices.Contains(names, "bad"):
				return errors.New("no")
			case slices.Contains(names, "late"):
				return errors.New("too late")
			}
			return nil
		}
		failed := map[string]bool{}
		var wg sync.WaitGroup
		come := func(names ...string) {
			for _, name := range names {
				wg.Go(func() {
					err := q.Do(t.Context(), name, change, func(err error) bool { return err.Error() == "no" })
					mu.Lock()
					defer mu.Unlock()
					failed[name] = err != nil
				})
			}
			synctest.Wait()
		}
		come("a")
		come("b", "c", "d")
		wg.Wait()
		if got := strings.Join(calls, " "); got != "a b,c,d" {
			t.Errorf("changes of %s", got)
		}
		calls = nil
		come("e")
		come("f", "bad")
		wg.Wait()
		if !failed["bad"] || failed["a"] || failed["b"] || failed["e"] || failed["f"] || len(calls) != 4 {
			t.Errorf("%v after %v", failed, calls)
		}
		calls = nil
		come("e")
		come("f", "late", "f")
		wg.Wait()
		if !failed["f"] || !failed["late"] || len(calls) != 2 {
			t.Errorf("what nobody refuses is tried again: %v after %v", failed, calls)
		}
	})
}

// TestLeave: a change that panics, and a caller that leaves, hold nobody up.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		change := func(names []string) error {
			time.Sleep(time.Second)
			if names[0] == "mad" {
				panic("mad")
			}
			return nil
		}
		do := func(ctx context.Context, name string) (err error) {
			defer func() {
				if recover() != nil {
					err = errors.New("panic")
				}
			}()
			return q.Do(ctx, name, change, func(error) bool { return true })
		}
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		go func() { _ = do(ctx, "mad") }()
		synctest.Wait()
		wg.Go(func() {
			if err := do(ctx, "gone"); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that leaves is told %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if err := do(t.Context(), "stays"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		leave()
		wg.Wait()
		if err := do(t.Context(), "later"); err != nil {
			t.Error(err)
		}
	})
}
