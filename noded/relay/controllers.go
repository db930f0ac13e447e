package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// controllers.go finds the leader: it tries the configured controllers in turn, follows a follower's hint and remembers
// the last leader. The session with the leader and the relay of users' requests share its results.

const (
	maxHops = 4 // hints followed in one search: leadership moves, but not in circles

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

// leads sets the leader's address; "": unknown.
func (c *Controllers) leads(addr string) {
	c.mu.Lock()
	c.last = addr
	c.mu.Unlock()
}

// Dial opens an rpc connection to the controller at addr.
func (c *Controllers) Dial(ctx context.Context, addr string) (*rpc.Conn, error) {
	nc, err := pki.Dial(ctx, addr, pki.ProtoRPC, c.tls, pki.RoleCtld)
	if err != nil {
		return nil, err
	}
	if err := pki.GiveUpAfter(nc, UserTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to the controller at %s: %w", addr, err), nc.Close())
	}
	return rpc.Client(nc, rpc.ConnOptions{Name: "controller at " + addr}), nil
}

// Look is the result of one round over the controllers.
type Look struct {
	Err     error // of the last controller that answered at all, else of the last tried; nil: found
	Reached bool  // at least one controller answered, if only that it doesn't lead
	Refused bool  // the leader answered, and refuses this node
}

// Look asks the controllers in turn with ask until one accepts. ask returns nil if the controller leads and there is no
// error, an *rpc.Error with CodeNotLeader if it does not lead, and any other *rpc.Error for a refusal by the leader.
func (c *Controllers) Look(ctx context.Context, ask func(addr string) error) Look {
	res := Look{Err: errors.New("no controller is configured")}
	tried := map[string]bool{}
	queue := slices.Clone(c.order())
	for hops := 0; len(queue) > 0 && ctx.Err() == nil; {
		addr := queue[0]
		queue = queue[1:]
		if tried[addr] {
			continue
		}
		tried[addr] = true
		err := ask(addr)
		if err == nil {
			c.leads(addr)
			return Look{Reached: true}
		}
		var e *rpc.Error
		switch {
		case !errors.As(err, &e) || e.Code >= rpc.CodeInternal: // not reached, or busy
			if !res.Reached {
				res.Err = err
			}
		case e.Code == proto.CodeNotLeader:
			res.Reached = true
			res.Err = fmt.Errorf("the controller at %s does not lead and knows no leader", addr)
			if hint := e.Text; hint != "" && hops < maxHops {
				hops++
				res.Err = fmt.Errorf("the controller at %s says that %s leads, which does not answer as the leader", addr, hint)
				if !tried[hint] {
					queue = append([]string{hint}, queue...)
				}
			}
		default:
			c.leads(addr)
			return Look{Err: err, Reached: true, Refused: true}
		}
	}
	if ctx.Err() != nil {
		res.Err = context.Cause(ctx)
	}
	return res
}
