package relay

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
)

// A request whose user has gone waits for no other one's connection to a controller that accepts and says nothing.
func TestNobodyWaitsForAnothersDial(t *testing.T) {
	silent, creds, _ := silentControllers(t)
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

// The leader is found although the controllers before it in the list, which are asked first, accept and say nothing for
// longer than a search takes.
func TestSilentControllersDelayNobody(t *testing.T) {
	addrs, creds, dir := silentControllers(t)
	own, err := pki.Load(dir, pki.RoleCtld, "c4")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	ln, err := pki.Listen("127.0.0.1:0", own, log, pki.Accept{Proto: pki.ProtoRPC})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- server.Serve(ctx, ln.Proto(pki.ProtoRPC), func(_ context.Context, r *server.Request) { _ = r.Reply(nil) },
			server.Options{Log: log, Peer: pki.PeerOfConn, MaxRequest: rpc.MaxFrame})
	}()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, ln.Close()); err != nil {
			t.Error(err)
		}
	})
	c := NewControllers(append(addrs, ln.Addr().String()), nil, creds)
	defer c.asking.Wait()
	found, look := c.Find(t.Context(), nil)
	if found == nil {
		t.Fatalf("nobody was found: %+v", look)
	}
	if err := found.Conn.Close(); err != nil || found.Addr != ln.Addr().String() {
		t.Errorf("found %s: %v", found.Addr, err)
	}
}

// A user who fills a share of a host's requests with those that the controllers don't answer is refused further ones at
// once, and nobody else; requests that wait by design have places of their own.
func TestOneUserFillsAShare(t *testing.T) {
	silent, creds, _ := silentControllers(t)
	r := New(NewControllers(silent, nil, creds))
	t.Cleanup(r.Close)
	ask := func(uid uint32, kind uint16) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // who is let in does not wait for an answer
		return r.Forward(ctx, &proto.Caller{UID: uid}, kind, nil, func(*rpc.Frame) error { return nil })
	}
	refused := func(err error) bool {
		var said *rpc.Error
		return errors.As(err, &said) && said.Code == proto.CodeBusy
	}
	const greedy, other = 1001, 1002
	for range maxRelays / quarter {
		if err := r.slots.Take(greedy, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask(greedy, proto.KindJobs); !refused(err) {
		t.Errorf("a further request: %v", err)
	}
	if err := ask(other, proto.KindJobs); err == nil || refused(err) {
		t.Errorf("another user's: %v", err)
	}
	if err := ask(greedy, proto.KindWait); err == nil || refused(err) {
		t.Errorf("one that waits: %v", err)
	}
	for range maxWaits / quarter {
		if err := r.waits.Take(greedy, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask(greedy, proto.KindWait); !refused(err) {
		t.Errorf("a further one that waits: %v", err)
	}
}

// silentControllers gives addresses at which connections are accepted and nothing is said, a login host's certificate,
// and where it and that of controller c4 are.
func silentControllers(t *testing.T) (addrs []string, creds *pki.Credentials, dir string) {
	t.Helper()
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		addrs = append(addrs, ln.Addr().String())
	}
	dir = t.TempDir()
	if err := errors.Join(pki.InitCA(dir, "c"), pki.Issue(dir, pki.RoleLogin, "lg1", nil, dir),
		pki.Issue(dir, pki.RoleCtld, "c4", nil, dir)); err != nil {
		t.Fatal(err)
	}
	creds, err := pki.Load(dir, pki.RoleLogin, "lg1")
	if err != nil {
		t.Fatal(err)
	}
	return addrs, creds, dir
}
