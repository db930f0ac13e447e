package fresh

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestRounds: a question waits until the leader has sent what was new when it was asked, and for a leader that hangs
// only once.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Rounds
		begin := time.Now()
		f.Wait(t.Context()) // there is no leader
		answered := map[string]bool{}
		ask := func(name string) {
			go func() {
				f.Wait(t.Context())
				answered[name] = true
			}()
			synctest.Wait()
		}
		expect := func(names ...string) {
			t.Helper()
			synctest.Wait()
			if len(answered) != len(names) {
				t.Errorf("answered: %v, not %v", answered, names)
			}
			for _, name := range names {
				if !answered[name] {
					t.Errorf("%s is not answered", name)
				}
			}
		}
		// next is the leader's request, and gives what it is answered.
		next := func(done uint64) <-chan uint64 {
			open := make(chan uint64, 1)
			go func() { open <- f.Next(t.Context(), done) }()
			synctest.Wait()
			return open
		}
		l := next(0)
		ask("first")
		round := <-l
		ask("second") // what is new may be too late for the first one's round
		expect()
		l = next(round)
		expect("first")
		next(<-l)
		expect("first", "second")
		if d := time.Since(begin); d != 0 {
			t.Errorf("questions waited %v for time to pass", d)
		}

		ask("third") // the leader hangs from now on
		time.Sleep(maxWait - 1)
		expect("first", "second")
		time.Sleep(time.Nanosecond)
		expect("first", "second", "third")
		ask("fourth")
		expect("first", "second", "third", "fourth")
		l = next(f.round)
		ask("fifth")
		gone, leave := context.WithCancel(t.Context())
		go f.Next(gone, <-l)
		expect("first", "second", "third", "fourth", "fifth")
		leave() // and no other one comes
		synctest.Wait()
		ask("sixth")
		expect("first", "second", "third", "fourth", "fifth", "sixth")
		if d := time.Since(begin); d != maxWait {
			t.Errorf("questions waited %v, not %v", d, maxWait)
		}
	})
}
