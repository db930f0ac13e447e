package ctld

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// links.go keeps connections to other daemons: a TLS handshake for each request would cost a millisecond of CPU on both
// sides. When a connection fails, the requests in progress fail; the next request opens a new connection.

// linkTimeout is how long sent bytes may stay unacknowledged: a daemon whose host died sends no FIN.
const linkTimeout = 10 * time.Second

var errLinkClosed = errors.New("the controller is ending")

// link is one kept connection to a daemon, shared by all requests to it. Its zero value has no connection.
type link struct {
	mu     sync.Mutex
	addr   string
	m      *rpc.Mux
	dials  map[string]*dialing // attempts in progress, by address
	closed bool
	wg     sync.WaitGroup
}

// dialing is one attempt to connect. m and err are set when done is closed.
type dialing struct {
	done chan struct{}
	m    *rpc.Mux
	err  error
}

// to gives the connection to addr. All callers wait for the same attempt, whose time dial bounds.
func (l *link) to(ctx context.Context, addr string, dial func() (*rpc.Mux, error)) (*rpc.Mux, error) {
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return nil, errLinkClosed
	case l.m != nil && l.addr == addr && l.m.Err() == nil:
		defer l.mu.Unlock()
		return l.m, nil
	}
	d := l.dials[addr]
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		if l.dials == nil {
			l.dials = map[string]*dialing{}
		}
		l.dials[addr] = d
		l.wg.Go(func() {
			d.m, d.err = dial()
			l.keep(addr, d)
			close(d.done)
		})
	}
	l.mu.Unlock()
	select {
	case <-d.done:
		return d.m, d.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// keep replaces the old connection by a new one.
func (l *link) keep(addr string, d *dialing) {
	l.mu.Lock()
	delete(l.dials, addr)
	var old *rpc.Mux
	switch {
	case d.err != nil:
	case l.closed:
		old, d.m, d.err = d.m, nil, errLinkClosed
	default:
		old, l.m, l.addr = l.m, d.m, addr
	}
	l.mu.Unlock()
	if old != nil {
		_ = old.Close() // requests in progress on it end with an error
	}
}

// close ends the connection, and the attempts to open one.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	m := l.m
	l.m = nil
	l.mu.Unlock()
	if m != nil {
		_ = m.Close() // shutting down
	}
	l.wg.Wait()
}

// dialTLS opens a connection to a daemon. It takes dialTimeout at most.
func (c *Controller) dialTLS(ctx context.Context, addr, role string) (*rpc.Mux, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, err := pki.Dial(ctx, addr, pki.ProtoRPC, c.clientTLS, role)
	if err != nil {
		return nil, err
	}
	if err := pki.GiveUpAfter(nc, linkTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to %s: %w", addr, err), nc.Close())
	}
	conn := rpc.Client(nc, rpc.ConnOptions{Name: role + " at " + addr})
	m, err := rpc.NewMux(conn)
	if err != nil {
		_ = conn.Close() // the error says why
		return nil, err
	}
	return m, nil
}

// toLeader sends a request to the leader and calls each with every frame of the answer.
func (c *Controller) toLeader(ctx context.Context, who *proto.Caller, kind uint16, body []byte,
	each func(*rpc.Frame) error) error {
	id, addr := c.store.Leader()
	if addr == "" || id == c.opts.Name {
		return relayError(kind, &rpc.Unsent{Err: errors.New("no controller leads just now")})
	}
	body, err := proto.Encode(&proto.Forward{Caller: *who, Kind: kind, Body: body})
	if err != nil {
		return err
	}
	l := &c.toLead
	if proto.RequestOf(kind).WaitS > 0 {
		l = &c.toLeadSlow
	}
	m, err := l.to(ctx, addr, func() (*rpc.Mux, error) { return c.dialTLS(context.Background(), addr, pki.RoleCtld) })
	if err != nil {
		return relayError(kind, &rpc.Unsent{Err: err})
	}
	return relayError(kind, m.Stream(ctx, proto.KindForward, body, each))
}
