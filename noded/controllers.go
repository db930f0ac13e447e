package noded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// controllers.go finds the leader: it tries the configured controllers in turn, follows a follower's hint and remembers
// who led last. The session with the leader and the relay of users' requests share what it learns.

const (
	maxHops = 4 // hints followed in one look: leadership moves, but not in circles

	// userTimeout is how long sent bytes may stay unacknowledged before the kernel gives the connection up: a leader
	// whose host died sends no FIN. Heartbeats make sure that something is always sent.
	userTimeout = 15 * time.Second
)

// Backoff between two rounds over all controllers.
const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

// controllers knows where the controllers are and which of them led last.
type controllers struct {
	addrs []string // host:port, as configured
	tls   *tls.Config

	mu   sync.Mutex
	last string // where a leader was seen last
}

// order gives the addresses to try: where the leader was seen last, then the others as configured.
func (c *controllers) order() []string {
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

// leads notes where the leader is; "" that it is no longer where it was.
func (c *controllers) leads(addr string) {
	c.mu.Lock()
	c.last = addr
	c.mu.Unlock()
}

// dial opens an rpc connection to the controller at addr.
func (c *controllers) dial(ctx context.Context, addr string) (*rpc.Conn, error) {
	nc, err := pki.Dial(ctx, addr, pki.ProtoRPC, c.tls, pki.RoleCtld)
	if err != nil {
		return nil, err
	}
	if err := pki.GiveUpAfter(nc, userTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to the controller at %s: %w", addr, err), nc.Close())
	}
	return rpc.Client(nc, rpc.ConnOptions{Name: "controller at " + addr}), nil
}

// lookResult is how one round over the controllers went.
type lookResult struct {
	err     error // of the last controller that answered at all, else of the last tried; nil: found
	reached bool  // at least one controller answered, if only that it doesn't lead
	refused bool  // the leader answered, and won't have this node
}

// look asks the controllers in turn with ask until one takes it. ask returns nil where the controller leads and all is
// well, an *rpc.Error with CodeNotLeader where it does not, and any other *rpc.Error for a refusal by the leader.
func (c *controllers) look(ctx context.Context, ask func(addr string) error) lookResult {
	res := lookResult{err: errors.New("no controller is configured")}
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
			return lookResult{reached: true}
		}
		var e *rpc.Error
		switch {
		case !errors.As(err, &e) || e.Code >= rpc.CodeInternal: // not reached, or busy
			if !res.reached {
				res.err = err
			}
		case e.Code == proto.CodeNotLeader:
			res.reached = true
			res.err = fmt.Errorf("the controller at %s does not lead and knows no leader", addr)
			if hint := e.Text; hint != "" && hops < maxHops {
				hops++
				res.err = fmt.Errorf("the controller at %s says that %s leads, which does not answer as the leader", addr, hint)
				if !tried[hint] {
					queue = append([]string{hint}, queue...)
				}
			}
		default:
			c.leads(addr)
			return lookResult{err: err, reached: true, refused: true}
		}
	}
	if ctx.Err() != nil {
		res.err = context.Cause(ctx)
	}
	return res
}

// backoff is a jittered exponential pause.
type backoff struct{ next time.Duration }

func (b *backoff) reset() { b.next = 0 }

// take gives the next pause: between half and all of a span that doubles from backoffMin to backoffMax.
func (b *backoff) take() time.Duration {
	if b.next == 0 {
		b.next = backoffMin
	}
	d := b.next
	b.next = min(2*b.next, backoffMax)
	return d/2 + rand.N(d/2)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
