package noded

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"gbatch/noded/shim"
)

// link.go keeps the connection to gshim: it starts gshim where none runs, passes its news to the loop, and sends orders
// and acknowledgements from a goroutine of its own. When a broken connection is back, the loop sends everything again
// that was lost (onLink): orders by their phase, acknowledgements because gshim reports those ends again.

const (
	ackTimeout = 30 * time.Second
	linkRetry  = time.Second // between two tries to start gshim
)

// link is the connection to gshim, if it is up.
type link struct {
	start func(context.Context) (*shim.Client, []shim.Event, error)
	inbox *inbox
	log   *slog.Logger
	up    chan struct{} // closed when gshim has been reached for the first time
	once  sync.Once

	mu     sync.Mutex
	c      *shim.Client
	orders []*shim.Launch
	acks   []shim.Key
	lease  *shim.Lease // to be sent; the last one is kept for the next connection
	last   *shim.Lease
	wake   chan struct{}
}

func newLink(o shim.Options, in *inbox, log *slog.Logger) *link {
	start := func(ctx context.Context) (*shim.Client, []shim.Event, error) { return shim.Start(ctx, o) }
	return &link{start: start, inbox: in, log: log, up: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// connected reports whether gshim answers now.
func (k *link) connected() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.c != nil
}

// run keeps gshim connected until ctx ends.
func (k *link) run(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		c, events, err := k.start(ctx)
		if err != nil {
			if ctx.Err() == nil && err.Error() != said {
				said = err.Error()
				k.log.Error("gshim can't be reached; until then this node starts no jobs", "err", err)
			}
			pause(ctx, linkRetry)
			continue
		}
		said = ""
		k.serve(ctx, c, events)
	}
}

// serve uses one connection until it ends.
func (k *link) serve(ctx context.Context, c *shim.Client, events []shim.Event) {
	k.log.Info("connected to gshim", "pid", c.Info().PID, "version", c.Info().Version, "jobs", len(events))
	k.mu.Lock()
	k.c, k.orders, k.acks, k.lease = c, nil, nil, k.last
	k.mu.Unlock()
	k.ring()
	k.inbox.post(msgLink{events})
	k.once.Do(func() { close(k.up) })

	ctx, cancel := context.WithCancel(ctx)
	var sender sync.WaitGroup
	sender.Go(func() { k.send(ctx, c) })
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // ends the events; gshim goes on
	for batch := range c.Events() {
		k.inbox.post(msgEvents{batch})
	}
	k.mu.Lock()
	k.c = nil
	k.mu.Unlock()
	if ctx.Err() == nil {
		k.log.Warn("the connection to gshim has ended", "err", c.Err())
	}
	cancel()
	stop()
	sender.Wait()
	_ = c.Close() // it has ended already
}

// send sends all waiting orders and acknowledgements.
func (k *link) send(ctx context.Context, c *shim.Client) {
	for {
		select {
		case <-k.wake:
		case <-ctx.Done():
			return
		}
		k.mu.Lock()
		orders, acks, lease := k.orders, k.acks, k.lease
		k.orders, k.acks, k.lease = nil, nil, nil
		k.mu.Unlock()
		if lease != nil { // before what may only run under it
			k.sendLease(ctx, c, lease)
		}
		// An order whose key gshim still knows would be answered with its old end.
		first := slices.ContainsFunc(orders, func(l *shim.Launch) bool { return slices.Contains(acks, l.Key) })
		if first {
			k.sendAcks(ctx, c, acks)
		}
		k.sendOrders(c, orders)
		if !first {
			k.sendAcks(ctx, c, acks)
		}
	}
}

// sendOrders sends launches. One that gshim can't be told fails alone.
func (k *link) sendOrders(c *shim.Client, orders []*shim.Launch) {
	good := orders[:0:0]
	for _, o := range orders {
		if err := o.Check(); err != nil {
			k.inbox.post(msgEvents{[]shim.Event{{Kind: shim.LaunchFailed, Key: o.Key, Stage: shim.StageOrder,
				Text: err.Error(), Ended: time.Now()}}})
			continue
		}
		good = append(good, o)
	}
	if err := c.Launch(good...); err != nil {
		k.log.Warn("orders did not reach gshim and are sent again when it is back", "count", len(good), "err", err)
	}
}

func (k *link) sendLease(ctx context.Context, c *shim.Client, l *shim.Lease) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	if err := c.Renew(ctx, *l); err != nil && ctx.Err() == nil {
		k.log.Warn("gshim's lease was not renewed; if the next renewal fails too, jobs end before the node counts as DOWN",
			"err", err)
	}
}

func (k *link) sendAcks(ctx context.Context, c *shim.Client, keys []shim.Key) {
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	if err := c.Ack(ctx, keys...); err != nil && ctx.Err() == nil {
		k.log.Warn("gshim did not get acknowledgements; it reports those ends again", "count", len(keys), "err", err)
	}
}

// launch sends orders to gshim. It carries out all orders that pass its checks.
func (k *link) launch(orders ...*shim.Launch) {
	if len(orders) == 0 {
		return
	}
	k.mu.Lock()
	k.orders = append(k.orders, orders...)
	k.mu.Unlock()
	k.ring()
}

// renew replaces gshim's lease.
func (k *link) renew(l shim.Lease) {
	k.mu.Lock()
	k.lease, k.last = &l, &l
	k.mu.Unlock()
	k.ring()
}

// ack lets gshim forget an end. An order for what has ended that still waits to be sent, as an order is that a new
// gnoded repeats, is taken back: gshim, which has forgotten the first one, would carry it out once more.
func (k *link) ack(key shim.Key) {
	k.mu.Lock()
	k.orders = slices.DeleteFunc(k.orders, func(l *shim.Launch) bool { return l.Key == key })
	k.acks = append(k.acks, key)
	k.mu.Unlock()
	k.ring()
}

func (k *link) ring() {
	select {
	case k.wake <- struct{}{}:
	default: // awake already
	}
}

// signal sends a signal now; shim.ErrGone while gshim is away.
func (k *link) signal(ctx context.Context, key shim.Key, sig syscall.Signal, scope shim.Scope) (int, error) {
	k.mu.Lock()
	c := k.c
	k.mu.Unlock()
	if c == nil {
		return 0, shim.ErrGone
	}
	ctx, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	return c.Signal(ctx, key, sig, scope)
}

// acceptPace is the pause after a connection could not be taken.
const acceptPace = 100 * time.Millisecond

// Backoff between two rounds over all controllers.
const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
)

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
