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
//
// A request for the leader follows it: to the next one, as soon as raft names it or the connection is silent.

const (
	// linkTimeout is how long sent bytes may stay unacknowledged: a daemon whose host died sends no FIN. It is also the
	// time that requests under way have on a connection that was replaced.
	linkTimeout = 10 * time.Second
	// leaderPatience is how long a request waits for a leader, an election. Commands ask again by themselves for a while.
	leaderPatience = 5 * time.Second
	// askOthersAfter is how long raft may know no leader before the others are asked for one.
	askOthersAfter = time.Second
	leastHearing   = 100 * time.Millisecond // for the others' answers, where an old answer is better than a late one
	leaderPace     = 20 * time.Millisecond  // between two tries with a leader that is beginning or ending
	maxMoves       = 100                    // tries of one request
)

var errLinkClosed = errors.New("the controller is ending")

// link is one kept connection to a daemon, shared by all requests to it. Its zero value has no connection.
type link struct {
	mu     sync.Mutex
	addr   string
	m      *rpc.Mux
	dials  map[string]*dialing // attempts in progress, by address
	closed bool
	wg     sync.WaitGroup
	ctx    context.Context // of what ends old connections
	stop   context.CancelFunc
}

// dialing is one attempt to connect. m and err are set when done is closed.
type dialing struct {
	done chan struct{}
	m    *rpc.Mux
	err  error
}

// to gives the connection to addr. All callers wait for the same attempt, whose time dial bounds.
func (l *link) to(ctx context.Context, addr string, dial func() (*rpc.Mux, error)) (*rpc.Mux, error) {
	return l.toUnless(ctx, nil, addr, dial)
}

// errOtherwise is toUnless's error when the caller has given up.
var errOtherwise = errors.New("another controller may lead")

// toUnless is to, and gives up when unless is closed.
func (l *link) toUnless(ctx context.Context, unless <-chan struct{}, addr string,
	dial func() (*rpc.Mux, error)) (*rpc.Mux, error) {
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
			l.ctx, l.stop = context.WithCancel(context.Background())
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
	case <-unless:
		return nil, errOtherwise
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// suspect is called with news that another controller leads than the one at the other end, or none.
func (l *link) suspect(leader string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m != nil && l.addr != leader {
		l.m.Suspect()
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
	ctx := l.ctx
	l.mu.Unlock()
	if old != nil {
		l.wg.Go(func() { old.Retire(ctx, linkTimeout) })
	}
}

// close ends the connection, and the attempts to open one.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	m, stop := l.m, l.stop
	l.m = nil
	l.mu.Unlock()
	if stop != nil {
		stop()
	}
	if m != nil {
		_ = m.Close() // shutting down
	}
	l.wg.Wait()
}

// dialTLS opens a connection to a daemon. It takes dialTimeout at most.
func (c *Controller) dialTLS(ctx context.Context, addr, role string) (*rpc.Mux, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, err := pki.Dial(ctx, addr, pki.ProtoRPC, c.creds, role)
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

// watchLeader tells the connections to the leader when another one leads, until ctx ends.
func (c *Controller) watchLeader(ctx context.Context) {
	for {
		changed := c.store.LeaderChanged()
		id, addr := c.store.Leader()
		switch now := time.Now(); {
		case id != "":
			c.lost.Store(nil)
		case c.lost.Load() == nil:
			c.lost.Store(&now)
		}
		c.toLead.suspect(addr)
		c.toLeadSlow.suspect(addr)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// errHere says that this controller leads by now.
var errHere = errors.New("this controller leads")

// toLeader sends a request to the leader and calls each with every frame of the answer. If leadership moves meanwhile,
// the request goes to the next leader: if it was not carried out, or may be repeated and nothing of an answer has come.
func (c *Controller) toLeader(ctx context.Context, who *caller, kind uint16, body []byte,
	each func(*rpc.Frame) error) error {
	row := proto.RequestIn(kind, body)
	body, err := proto.Encode(&proto.Forward{Caller: who.Caller, Kind: kind, Body: body})
	if err != nil {
		return err
	}
	lost := false // an earlier try may have been carried out
	l := &c.toLead
	if row.WaitS > 0 {
		l = &c.toLeadSlow
	}
	longest := leaderPatience
	if row.Effect != proto.Changes { // an old answer is better then
		longest = max(staleAfter-c.leaderless(), leaderPace)
	}
	patience := time.NewTimer(longest)
	defer patience.Stop()
	held := c.room.Hold(each)
	defer held.Drop()
	whole := row.Effect != proto.Changes && row.Stream // one that breaks off is asked for again
	err = &rpc.Unsent{Err: errors.New("no controller leads just now")}
	for range maxMoves {
		changed := c.store.LeaderChanged()
		id, addr := c.store.Leader()
		if id == c.opts.Name && c.leads(ctx) {
			return errHere
		}
		if addr == "" && c.leaderless() > askOthersAfter {
			id, addr = c.leaderSaid(ctx, max(longest, leastHearing))
		}
		pace := leaderPace
		if addr == "" || id == c.opts.Name {
			pace = leaderPatience / 10
		} else {
			answered := false
			held.Drop()
			tried := c.askOnce(ctx, l, changed, addr, body, func(f *rpc.Frame) (err error) {
				if !whole {
					answered = true
					return each(f)
				}
				err = held.Take(f)
				answered = held.Passed
				return err
			})
			if errors.Is(tried, errOtherwise) {
				continue
			}
			if err = tried; answered || !again(&row, err) {
				return relayError(&row, lost, err)
			}
			lost = lost || mayBeMade(err)
		}
		select {
		case <-time.After(pace):
		case <-changed:
		case <-patience.C:
			return relayError(&row, lost, err)
		case <-ctx.Done(): // this controller ends, or nobody waits any more
			return relayError(&row, lost, err)
		}
	}
	return relayError(&row, lost, err)
}

// leaderSaid gives the controller that says it leads: raft may not know one while it waits for this host's disk. It
// waits for their answers for no longer than patience.
func (c *Controller) leaderSaid(ctx context.Context, patience time.Duration) (name, addr string) {
	hearing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c.hearAll(hearing)
	for _, p := range c.voters() {
		if n, ok := c.news(ctx, p.Name); ok && p.Name != c.opts.Name && n.Leads && time.Since(n.at) < 2*compareWait {
			return p.Name, p.Addr
		}
	}
	return "", ""
}

// askOnce makes a request to the controller at addr, unless that is given up before it was sent.
func (c *Controller) askOnce(ctx context.Context, l *link, unless <-chan struct{}, addr string, body []byte,
	each func(*rpc.Frame) error) error {
	m, err := l.toUnless(ctx, unless, addr, func() (*rpc.Mux, error) {
		return c.dialTLS(context.Background(), addr, pki.RoleCtld)
	})
	switch {
	case errors.Is(err, errOtherwise):
		return err
	case err != nil:
		return &rpc.Unsent{Err: err}
	}
	if err = m.Stream(ctx, proto.KindForward, body, each); err != nil && m.Err() == nil && ctx.Err() == nil {
		var answer *rpc.Error
		if !errors.As(err, &answer) {
			return &failedHere{err}
		}
	}
	return err
}

// failedHere is an error of passing an answer on: its client has gone.
type failedHere struct{ error }

// again reports whether a request that failed with err may be made again.
func again(row *proto.Request, err error) bool {
	var answer *rpc.Error
	var unsent *rpc.Unsent
	var here *failedHere
	switch {
	case err == nil, errors.As(err, &here), errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &answer):
		return answer.Code == proto.CodeNotLeader
	}
	return errors.As(err, &unsent) || row.Repeats
}
