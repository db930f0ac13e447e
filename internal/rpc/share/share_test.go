package share

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gbatch/internal/rpc"
)

// TestOneAnswerForAll: all who ask while an answer is being made get the next one, which is made once, and nobody gets
// one that was begun before they asked.
func TestOneAnswerForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Group{}
		defer g.Close()
		var facts, made atomic.Int64
		do := func(_ context.Context, put func([]byte) error) (any, error) {
			made.Add(1)
			seen := facts.Load()
			time.Sleep(10 * time.Millisecond) // an answer takes time
			return nil, put(fmt.Append(nil, seen))
		}
		ask := func() int64 {
			a, err := g.Get(context.Background(), "list", nil, do)
			if err != nil {
				t.Error(err)
				return -1
			}
			defer a.Done()
			var n int64
			_, err = fmt.Sscan(string(a.Parts[0]), &n)
			if err != nil {
				t.Error(err)
			}
			return n
		}
		var all sync.WaitGroup
		all.Go(func() { ask() })
		synctest.Wait() // it is being made
		for range 100 {
			all.Go(func() {
				want := facts.Add(1) // this client's own change
				if got := ask(); got < want {
					t.Errorf("a client that has made change %d was told of %d", want, got)
				}
			})
		}
		all.Wait()
		if n := made.Load(); n != 2 {
			t.Errorf("101 requests took %d answers, want 2", n)
		}
		if g.mine.live.Load() != 0 {
			t.Errorf("%d bytes are held by nobody", g.mine.live.Load())
		}
	})
}

// TestTrueAnswerIsUsedAgain: an answer is given again while nothing has changed, and for a moment only.
func TestTrueAnswerIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Group{}
		defer g.Close()
		gen, made := 1, 0
		ask := func() {
			a, err := g.Get(context.Background(), "list", gen, func(_ context.Context, put func([]byte) error) (any, error) {
				made++
				return gen, put([]byte("x"))
			})
			if err != nil {
				t.Fatal(err)
			}
			a.Done()
		}
		for range 10 {
			ask()
		}
		if made != 1 {
			t.Errorf("10 equal requests without a change took %d answers", made)
		}
		gen++
		if ask(); made != 2 {
			t.Error("after a change the old answer was given")
		}
		time.Sleep(keepFor)
		if ask(); made != 3 {
			t.Error("an answer was given after its time")
		}
		time.Sleep(2 * idleFor)
		synctest.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.keys) != 0 || g.mine.live.Load() != 0 {
			t.Errorf("%d keys and %d bytes are kept although nobody asks", len(g.keys), g.mine.live.Load())
		}
	})
}

// TestManyRest: a list that many wait for is not made all the time; one client in a loop does not wait.
func TestManyRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Group{Rest: 3}
		defer g.Close()
		const took = 20 * time.Millisecond
		made := 0
		do := func(_ context.Context, put func([]byte) error) (any, error) {
			made++
			time.Sleep(took) // the work
			return nil, put([]byte("x"))
		}
		loops := func(n int, until time.Duration) {
			begin := time.Now()
			var all sync.WaitGroup
			for range n {
				all.Go(func() {
					for time.Since(begin) < until {
						a, err := g.Get(context.Background(), "list", nil, do)
						if err != nil {
							t.Error(err)
							return
						}
						a.Done()
					}
				})
			}
			all.Wait()
		}
		loops(1, time.Second)
		if alone := made; alone != int(time.Second/took) {
			t.Errorf("one client got %d answers in a second, want %d", alone, time.Second/took)
		}
		made = 0
		if loops(16, time.Second); made > int(time.Second/took)/4+2 {
			t.Errorf("16 clients had %d answers made in a second, want a quarter of %d", made, time.Second/took)
		}
	})
}

// TestGapOfAnswers: what is asked for every few milliseconds is made once in each gap, for all who have come by then;
// who asks less often never waits for it.
func TestGapOfAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took, gap = time.Millisecond, 20 * time.Millisecond
		g := &Group{Rest: 3, Gap: gap}
		defer g.Close()
		made := 0
		ask := func() time.Duration {
			begin := time.Now()
			a, err := g.Get(context.Background(), "list", nil, func(_ context.Context, put func([]byte) error) (any, error) {
				made++
				time.Sleep(took)
				return nil, put([]byte("x"))
			})
			if err != nil {
				t.Error(err)
				return 0
			}
			a.Done()
			return time.Since(begin)
		}
		for range 50 {
			if waited := ask(); waited > took {
				t.Fatalf("one client in a rest of %v waited %v", gap/2, waited)
			}
			time.Sleep(gap / 2)
		}
		made = 0
		var all sync.WaitGroup
		var longest atomic.Int64
		for range 300 { // in a second
			all.Go(func() {
				if waited := int64(ask()); waited > longest.Load() {
					longest.Store(waited)
				}
			})
			time.Sleep(time.Second / 300)
		}
		all.Wait()
		if most := int(time.Second/gap) + 3; made > most || time.Duration(longest.Load()) > gap+took {
			t.Errorf("%d answers were made in a second, at most %d should be; the longest wait was %v", made, most,
				time.Duration(longest.Load()))
		}
	})
}

// TestAnswersAreBounded: answers that slow clients still read take a bounded memory.
func TestAnswersAreBounded(t *testing.T) {
	g := &Group{}
	defer g.Close()
	big := make([]byte, MaxAnswer/2)
	do := func(_ context.Context, put func([]byte) error) (any, error) { return nil, put(big) }
	var held []*Answer
	var err error
	for i := 0; err == nil && i < 10; i++ {
		var a *Answer
		if a, err = g.Get(context.Background(), fmt.Sprint(i), nil, do); err == nil {
			held = append(held, a)
		}
	}
	if !errors.Is(err, ErrTooMuch) || len(held)*len(big) > MaxLive+MaxAnswer {
		t.Errorf("%d answers of %d bytes are held, then %v", len(held), len(big), err)
	}
	for _, a := range held {
		a.Done()
	}
	if a, err := g.Get(context.Background(), "again", nil, do); err != nil {
		t.Errorf("with nothing held: %v", err)
	} else {
		a.Done()
	}
	huge := func(_ context.Context, put func([]byte) error) (any, error) {
		return nil, errors.Join(put(big), put(big), put([]byte("x")))
	}
	if _, err := g.Get(context.Background(), "huge", nil, huge); !errors.Is(err, ErrTooMuch) {
		t.Errorf("an answer of more than MaxAnswer: %v", err)
	}
	if g.mine.live.Load() != 0 {
		t.Errorf("%d bytes are held by nobody", g.mine.live.Load())
	}
}

// TestLeaver: a client that leaves gets its context's error, and what it would have got is given back.
func TestLeaver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Group{}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() {
			_, err := g.Get(ctx, "list", nil, func(_ context.Context, put func([]byte) error) (any, error) {
				time.Sleep(time.Second) // it is left meanwhile
				return 1, put([]byte("x"))
			})
			done <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		g.Close()
		if g.mine.live.Load() != 0 || len(g.keys) != 0 {
			t.Errorf("%d bytes and %d keys are left", g.mine.live.Load(), len(g.keys))
		}
		if _, err := g.Get(context.Background(), "list", nil, nil); err == nil {
			t.Error("a closed group answers")
		}
	})
}

// TestNobodyWaits: what is being made ends when the last one who waits for it has left, and what would have been next
// is not begun. Who asks afterwards gets an answer.
func TestNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Group{}
		defer g.Close()
		var begun, parts atomic.Int64
		do := func(ctx context.Context, put func([]byte) error) (any, error) {
			begun.Add(1)
			for range 1000 {
				if err := put([]byte("x")); err != nil {
					return nil, err
				}
				parts.Add(1)
				time.Sleep(time.Millisecond)
			}
			return 1, nil
		}
		var all sync.WaitGroup
		var leave [2]context.CancelFunc
		// For the first one it is being made, for the other one it would be the next.
		for i := range leave {
			ctx, cancel := context.WithCancel(t.Context())
			leave[i] = cancel
			all.Go(func() {
				if _, err := g.Get(ctx, "list", nil, do); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(10 * time.Millisecond)
		leave[1]()
		synctest.Wait()
		leave[0]()
		all.Wait()
		time.Sleep(time.Second)
		if begun.Load() != 1 || parts.Load() > 20 {
			t.Errorf("%d answers were begun and %d parts made for nobody", begun.Load(), parts.Load())
		}
		a, err := g.Get(t.Context(), "list", nil, do)
		if err != nil {
			t.Fatal(err)
		}
		if a.Done(); len(a.Parts) != 1000 {
			t.Errorf("%d parts", len(a.Parts))
		}
	})
}

// TestPanic: a handler that crashes gives an error to all who wait, and the next one is made.
func TestPanic(t *testing.T) {
	g := &Group{}
	defer g.Close()
	if _, err := g.Get(context.Background(), "list", nil, func(context.Context, func([]byte) error) (any, error) {
		panic("oh")
	}); err == nil {
		t.Error("no error")
	}
	if a, err := g.Get(context.Background(), "list", nil, func(_ context.Context, put func([]byte) error) (any, error) {
		return nil, put([]byte("x"))
	}); err != nil {
		t.Error(err)
	} else {
		a.Done()
	}
}

// TestGateTakesTurns: whoever has a hundred requests in the line is one among all.
func TestGateTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1)
		var order []string
		var all sync.WaitGroup
		enter := func(name string) {
			all.Go(func() {
				if err := g.Enter(context.Background(), name); err != nil {
					t.Error(err)
				}
				order = append(order, name) // the gate lets in one
				time.Sleep(time.Millisecond)
				g.Leave()
			})
			synctest.Wait()
		}
		for range 100 {
			enter("greedy")
		}
		ctx, cancel := context.WithCancel(context.Background())
		left := make(chan error, 1)
		go func() { left <- g.Enter(ctx, "leaver") }()
		synctest.Wait()
		enter("modest")
		cancel()
		if err := <-left; err == nil {
			t.Error("who has left got in")
		}
		all.Wait()
		at := 0
		for i, name := range order {
			if name == "modest" {
				at = i
			}
		}
		if at > 3 {
			t.Errorf("the modest one came as number %d", at)
		}
		if g.free != 1 || len(g.lines)+len(g.turns) != 0 {
			t.Errorf("the gate is left with %d free, %v", g.free, g.lines)
		}
	})
}

// TestGreedyUserWaits: a user who asks for more than the rate waits, more with each request and within a bound; others
// don't. If many are greedy together they wait, and a modest user still doesn't.
func TestGreedyUserWaits(t *testing.T) {
	const rate, list = 1000, 500
	l := Limits{Total: 2}
	now := time.Now()
	for i := range BurstS*rate/list + 1 {
		if d := l.take("greedy", list, rate, now); d != 0 {
			t.Errorf("list %d within the burst waits %v", i, d)
		}
	}
	for i := range 3 {
		if d, want := l.take("greedy", list, rate, now), time.Duration(i+1)*time.Second/2; d != want {
			t.Errorf("list %d beyond the burst waits %v, want %v", i, d, want)
		}
	}
	if d := l.take("modest", list, rate, now); d != 0 {
		t.Errorf("another user waits %v", d)
	}
	for range 1000 {
		if d := l.take("greedy", list, rate, now); d > maxDelay {
			t.Fatalf("a request waits %v", d)
		}
	}
	n, sum := l.Delayed("greedy")
	if n != 1003 || sum == 0 {
		t.Errorf("%d requests and %v are counted", n, sum)
	}
	if n, _ := l.Delayed("modest"); n != 0 {
		t.Errorf("the modest user was slowed %d times", n)
	}
	if d := l.take("greedy", list, rate, now.Add(maxDelay)); d != 0 {
		t.Errorf("after a rest a request waits %v", d)
	}
	l, now = Limits{Total: 2}, time.Now()
	slowed := 0
	for i := range 10 { // each within its own rate
		for range BurstS * rate / list {
			if l.take(fmt.Sprint("user", i), list, rate, now) > 0 {
				slowed++
			}
		}
	}
	if slowed == 0 {
		t.Error("ten users together ask for five times what all may, and none waits")
	}
	if d := l.take("modest", list, rate, now); d != 0 {
		t.Errorf("beside them a modest user waits %v", d)
	}
}

// TestPay: a request that leaves while it waits gives back what it paid.
func TestPay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limits
		l.Total = 100
		if err := l.Pay(context.Background(), "u", 600, 100); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if err := l.Pay(ctx, "u", 1e6, 100); err == nil {
			t.Error("it did not wait")
		}
		begin := time.Now()
		if err := l.Pay(context.Background(), "u", 1, 100); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("it waited %v for what another did not take", d)
		}
		if err := l.Pay(ctx, "u", 1e6, 0); err != nil {
			t.Errorf("without a limit: %v", err)
		}
	})
}

// TestHeldAnswer: of an answer that breaks off nothing is passed on, and the whole one comes after it; one for which
// there is no room is passed on as it comes.
func TestHeldAnswer(t *testing.T) {
	var room Room
	var got []string
	h := room.Hold(func(f *rpc.Frame) error { got = append(got, string(f.Body)); return nil })
	take := func(body string, flags uint16) {
		t.Helper()
		if err := h.Take(&rpc.Frame{Flags: flags, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	take("old", rpc.FlagMore)
	if len(got) != 0 || h.Passed {
		t.Errorf("%q was passed on before the answer was whole", got)
	}
	h.Drop() // it has broken off
	take("a", rpc.FlagMore)
	take("b", rpc.FlagMore)
	take("end", 0)
	if fmt.Sprint(got) != "[a b end]" || !h.Passed || room.used.Load() != 0 {
		t.Errorf("got %q, %d bytes are left", got, room.used.Load())
	}
	got, h = nil, room.Hold(h.each)
	room.used.Store(maxHeld)
	if take("x", rpc.FlagMore); fmt.Sprint(got) != "[x]" || room.used.Load() != maxHeld {
		t.Errorf("without room %q is passed on, %d bytes are held", got, room.used.Load())
	}
}
