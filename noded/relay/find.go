package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// find.go finds the controller that leads. It asks the last leader first, and the others a moment later, all on
// connections of their own: one that is dead or silent delays nothing. A controller that does not lead is asked again
// and again, so the search goes on through an election. The first one that says that it leads is found.

const (
	stagger   = 150 * time.Millisecond // from one controller to the next, while the first says nothing
	askAgain  = 10 * time.Millisecond  // before a controller that does not lead is asked again; doubles
	askLeast  = 400 * time.Millisecond // the longest of these pauses
	askLimit  = 3 * time.Second        // for one answer
	searchFor = 3 * time.Second        // how long one search takes at most, while nobody leads
	// hintFor is the same while a controller that leads, by what others say, is being connected to: handshakes take long
	// when all nodes of a large cluster come at once.
	hintFor  = 10 * time.Second
	maxHints = 4 // addresses that are not configured, learned in one search
)

// Look is the result of a search.
type Look struct {
	Err     error // why nobody was found: of a controller that answered at all, else of the last asked
	Reached bool  // at least one controller answered, if only that it doesn't lead
}

// Found is a connection to the controller that leads. It is the finder's.
type Found struct {
	Conn *rpc.Conn
	Addr string
}

// said is what one controller said, or the end of the asking.
type said struct {
	addr  string
	conn  *rpc.Conn // it leads
	hint  string    // it does not, and this one does
	err   error
	ended bool // it is not asked again
}

// Find searches the controller that leads. quiet is for the connection (rpc.ConnOptions).
func (c *Controllers) Find(ctx context.Context, quiet func()) (*Found, Look) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends all other asking
	res := Look{Err: errors.New("no controller is configured")}
	heard := make(chan said)
	queue := slices.Clone(c.order())
	asked, failed := map[string]bool{}, map[string]bool{}
	hints, hinted := 0, ""
	ask := func(addr string) {
		if asked[addr] {
			return
		}
		asked[addr] = true
		c.asking.Go(func() { c.ask(ctx, addr, quiet, heard) })
	}
	next := func() {
		for len(queue) > 0 {
			addr := queue[0]
			queue = queue[1:]
			if !asked[addr] {
				ask(addr)
				return
			}
		}
	}
	next()
	begin := time.Now()
	tick := time.NewTicker(stagger)
	defer tick.Stop()
	for len(queue) > 0 || len(failed) < len(asked) {
		select {
		case s := <-heard:
			switch {
			case s.conn != nil:
				c.Leads(s.addr)
				return &Found{s.conn, s.addr}, Look{Reached: true}
			case s.ended:
				failed[s.addr] = true
				if !res.Reached {
					res.Err = s.err
				}
				next()
				continue
			}
			res.Reached, hinted = true, s.hint
			res.Err = fmt.Errorf("the controller at %s does not lead and knows no leader", s.addr)
			if s.hint != "" && s.hint != s.addr {
				res.Err = fmt.Errorf("the controller at %s says that %s leads, which does not answer as the leader", s.addr,
					s.hint)
				if !asked[s.hint] && (slices.Contains(c.Addrs(), s.hint) || hints < maxHints) {
					hints++
					ask(s.hint)
				}
			} else {
				next()
			}
		case <-tick.C:
			next()
			limit := searchFor
			if hinted != "" && !failed[hinted] {
				limit = hintFor
			}
			if time.Since(begin) > limit {
				return nil, res
			}
		case <-ctx.Done():
			res.Err = context.Cause(ctx)
			return nil, res
		}
	}
	if !res.Reached {
		res.Err = noneAnswers(slices.Collect(maps.Keys(failed)), res.Err)
	}
	return nil, res
}

// noneAnswers names all controllers that do not answer, and says why for the last one.
func noneAnswers(addrs []string, why error) error {
	if len(addrs) < 2 {
		return why
	}
	return fmt.Errorf("none of the controllers at %s answers: %w",
		strings.Join(slices.Sorted(slices.Values(addrs)), ", "), why)
}

// ask asks one controller until it leads, it can't be asked, or ctx ends.
func (c *Controllers) ask(ctx context.Context, addr string, quiet func(), heard chan<- said) {
	tell := func(s said) bool {
		select {
		case heard <- s:
			return true
		case <-ctx.Done():
			return false
		}
	}
	conn, err := c.dial(ctx, addr, quiet)
	if err != nil {
		tell(said{addr: addr, err: err, ended: true})
		return
	}
	// The end of ctx ends the wait for an answer.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	for pause := askAgain; ; pause = min(2*pause, askLeast) {
		hint, err := c.leads(conn)
		switch {
		case err != nil:
			tell(said{addr: addr, err: err, ended: true})
		case hint == itself:
			if stop() && tell(said{addr: addr, conn: conn}) {
				return // it has another owner
			}
		default:
			if tell(said{addr: addr, hint: hint}) {
				select {
				case <-time.After(pause):
					continue
				case <-ctx.Done():
				}
			}
		}
		stop()
		_ = conn.Close() // it is of no more use
		return
	}
}

const itself = "leads" // no address

// leads asks a controller whether it leads; if not, it says who does, if it knows.
func (c *Controllers) leads(conn *rpc.Conn) (hint string, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(askLimit)); err != nil {
		return "", err
	}
	f, err := conn.Call(context.Background(), proto.KindPing, nil)
	var e *rpc.Error
	switch {
	case err == nil:
		c.learn(f.Body)
		return itself, conn.SetReadDeadline(time.Time{})
	case errors.As(err, &e) && e.Code == proto.CodeNotLeader:
		return e.Text, nil
	}
	return "", err
}

// learn takes the list of controllers from a leader's answer to a ping. An older one has none in it.
func (c *Controllers) learn(answer []byte) {
	var pong proto.PingReply
	if proto.Decode(answer, &pong) != nil {
		return
	}
	var told []string
	for _, ctl := range pong.Controllers {
		told = append(told, ctl.Name+"="+ctl.Addr)
	}
	c.Know(told)
}
