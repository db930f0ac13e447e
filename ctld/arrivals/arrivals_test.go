package arrivals

import (
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
			if slices.Contains(names, "bad") {
				return errors.New("no")
			}
			return nil
		}
		failed := map[string]bool{}
		var wg sync.WaitGroup
		come := func(names ...string) {
			for _, name := range names {
				wg.Go(func() {
					err := q.Do(name, change)
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
	})
}
