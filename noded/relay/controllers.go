package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// controllers.go knows the controllers and remembers the last leader; find.go finds the present one. The session with
// the leader and the relay of users' requests share both.

const (
	// UserTimeout is how long sent bytes may stay unacknowledged before the kernel gives the connection up: a leader
	// whose host died sends no FIN. Heartbeats make sure that something is always sent.
	UserTimeout = 15 * time.Second
)

// Controllers knows the addresses of the controllers and which of them led last.
type Controllers struct {
	addrs []string // host:port, as configured
	tls   *tls.Config

	mu   sync.Mutex
	last string // the address of the last leader

	asking sync.WaitGroup // searches' connections
}

// NewControllers returns the controllers at these addresses, host:port.
func NewControllers(addrs []string, cfg *tls.Config) *Controllers {
	return &Controllers{addrs: addrs, tls: cfg}
}

// order gives the addresses to try: the last leader's, then the others as configured.
func (c *Controllers) order() []string {
	c.mu.Lock()
	last := c.last
	c.mu.Unlock()
	if last == "" {
		return c.addrs
	}
	out := append(make([]string, 0, len(c.addrs)+1), last)
	for _, a := range c.addrs {
		if a != last {
			out = append(out, a)
		}
	}
	return out
}

// Several reports whether another controller can lead than the one that does.
func (c *Controllers) Several() bool { return len(c.addrs) > 1 }

// Leads notes the leader's address; "": unknown. The next search begins there.
func (c *Controllers) Leads(addr string) {
	c.mu.Lock()
	c.last = addr
	c.mu.Unlock()
}

// dial opens an rpc connection to the controller at addr.
func (c *Controllers) dial(ctx context.Context, addr string, quiet func()) (*rpc.Conn, error) {
	nc, err := pki.Dial(ctx, addr, pki.ProtoRPC, c.tls, pki.RoleCtld)
	if err != nil {
		return nil, err
	}
	if err := pki.GiveUpAfter(nc, UserTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to the controller at %s: %w", addr, err), nc.Close())
	}
	return rpc.Client(nc, rpc.ConnOptions{Name: "controller at " + addr, Quiet: quiet}), nil
}
