package relay

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"gbatch/internal/rpc/pki"
)

// A request whose user has gone waits for no other one's connection to a controller that accepts and says nothing.
func TestNobodyWaitsForAnothersDial(t *testing.T) {
	var silent []string
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		silent = append(silent, ln.Addr().String())
	}
	dir := t.TempDir()
	if err := errors.Join(pki.InitCA(dir, "c"), pki.Issue(dir, pki.RoleLogin, "lg1", nil, dir)); err != nil {
		t.Fatal(err)
	}
	creds, err := pki.Load(dir, pki.RoleLogin, "lg1")
	if err != nil {
		t.Fatal(err)
	}
	r := New(NewControllers(silent, nil, creds))
	t.Cleanup(r.Close)
	first := make(chan error, 1)
	go func() {
		_, err := r.anyone(t.Context(), &r.lanes[2])
		first <- err
	}()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) { // until the first one dials
		if !r.lanes[2].mu.TryLock() {
			break
		}
		dials := r.lanes[2].look != nil
		r.lanes[2].mu.Unlock()
		if dials {
			break
		}
		if time.Since(begun) > deadPatience {
			t.Fatal("nobody dials")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.anyone(ctx, &r.lanes[2]); !errors.Is(err, context.Canceled) {
		t.Errorf("the second one: %v", err)
	}
	if len(first) > 0 {
		t.Error("the second one waited for the first one's end")
	}
	if err := <-first; !errors.Is(err, errNoController) {
		t.Errorf("the first one: %v", err)
	}
}
