package share

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gbatch/internal/rpc"
)

// enter makes a claim and reports on a channel when it is admitted or refused.
func enter(b *Budget, c Claim) (leave chan func(), refused chan error) {
	leave, refused = make(chan func(), 1), make(chan error, 1)
	go func() {
		l, err := b.Enter(context.Background(), c)
		if err != nil {
			refused <- err
		} else {
			leave <- l
		}
	}()
	return leave, refused
}

// TestOnePayersRequestsAreBounded: a payer's requests wait for each other, in order, for their patience; nobody else
// does.
func TestOnePayersRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Budget{Requests: 2, Waits: 1, Bytes: 1 << 20}
		for _, big := range []bool{false, true} {
			bytes := 10
			if big {
				bytes = 600 << 10
			}
			var in []func()
			for range map[bool]int{false: 2, true: 1}[big] {
				leave, err := b.Enter(t.Context(), Claim{Payer: "a", Bytes: bytes})
				if err != nil {
					t.Fatal(err)
				}
				in = append(in, leave)
			}
			var e *rpc.Error
			if _, err := b.Enter(t.Context(), Claim{Payer: "a", Bytes: bytes}); !errors.As(err, &e) || e.Code != rpc.CodeBusy {
				t.Fatalf("big %v: one too many got %v", big, err)
			}
			first, _ := enter(b, Claim{Payer: "a", Bytes: bytes, Patience: time.Minute})
			synctest.Wait()
			second, refused := enter(b, Claim{Payer: "a", Bytes: bytes, Patience: time.Second})
			synctest.Wait()
			for _, c := range []Claim{{Payer: "b", Bytes: bytes}, {Payer: "", Bytes: bytes}, {Payer: "a", Waits: true}} {
				leave, err := b.Enter(t.Context(), c)
				if c.Waits { // they stand behind the line of their own payer
					if err == nil {
						t.Error("a request went in before the one that waits")
					}
					continue
				}
				if err != nil {
					t.Errorf("big %v: %+v: %v", big, c, err)
					continue
				}
				leave()
			}
			select {
			case <-first:
				t.Fatal("one too many went in")
			case <-second:
				t.Fatal("two too many went in")
			case err := <-refused:
				t.Fatal(err)
			default:
			}
			in[0]()
			in[0]() // the second call does nothing
			in[0] = <-first
			time.Sleep(2 * time.Second)
			if err := <-refused; !errors.As(err, &e) || e.Code != rpc.CodeBusy {
				t.Errorf("after its patience: %v", err)
			}
			for _, leave := range in {
				leave()
			}
		}
		if len(b.payers)+b.used+len(b.turns) != 0 {
			t.Errorf("left: %v, %d bytes, turns %v", b.payers, b.used, b.turns)
		}
	})
}

// TestAllRequestsAreBounded: the bytes of all payers are bounded; one request goes in whatever its size, and payers
// take turns.
func TestAllRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Budget{Total: 1 << 20}
		whole, err := b.Enter(t.Context(), Claim{Payer: "a", Bytes: 16 << 20})
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, name := range []string{"b", "b", "b", "c"} {
			go func() {
				leave, err := b.Enter(context.Background(), Claim{Payer: name, Bytes: 900 << 10, Patience: time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, name)
				time.Sleep(time.Second)
				leave()
			}()
			synctest.Wait()
		}
		again, err := b.Enter(t.Context(), Claim{Payer: "d", Bytes: 900 << 10, Again: true})
		if err != nil {
			t.Errorf("the total was counted twice: %v", err)
		} else {
			again()
		}
		if len(order) > 0 {
			t.Error("went in over the total")
		}
		whole()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(order) != 4 || order[1] != "c" && order[0] != "c" {
			t.Errorf("went in: %v", order)
		}
		if b.used != 0 {
			t.Errorf("%d bytes are still counted", b.used)
		}
	})
}

// TestWhoLeavesTheLine: a claim whose context ends gives its place to the next.
func TestWhoLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Budget{Bytes: 1 << 20}
		leave, err := b.Enter(t.Context(), Claim{Payer: "a", Bytes: 900 << 10})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := b.Enter(ctx, Claim{Payer: "a", Bytes: 900 << 10, Patience: time.Hour})
			gone <- err
		}()
		synctest.Wait()
		small, _ := enter(b, Claim{Payer: "a", Bytes: 10, Patience: time.Hour})
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		(<-small)()
		leave()
		if len(b.payers) != 0 {
			t.Errorf("left: %v", b.payers)
		}
	})
}
