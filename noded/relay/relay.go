package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gbatch/internal/budget"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/share"
)

// relay.go forwards users' requests to the leader over one TLS connection, and their answers frame by frame. A request
// that waits by design (for a job's end, for a driver) may last minutes, so those have a separate connection: they
// don't take the places of others. A change whose answer is lost is repeated only if it has an id.

const (
	// maxRelays is how many requests may be under way or wait for their turn; more are refused as busy. One user may have
	// a quarter of them.
	maxRelays = 2048
	// maxWaits is the same for requests that wait by design, which have places of their own.
	maxWaits = 2048
	quarter  = 4
	// leaderPatience is how long a request waits for a leader while controllers answer that none leads: an election.
	// Commands ask again by themselves for a while.
	leaderPatience = 5 * time.Second
	// readPatience is the same for a request that only reads: an old answer is better than none.
	readPatience = 3 * time.Second
	// deadPatience is the same while no controller answers at all.
	deadPatience = time.Second
	relayPace    = 100 * time.Millisecond // between two looks for the leader
	maxMoves     = 8                      // how often one request follows a moving leader
	refreshPace  = 5 * time.Second
	retireFor    = 10 * time.Second // for what is under way with a controller that leads no more
)

var errNoController = rpc.Errorf(proto.CodeNoController, "Unable to contact slurm controller (connect failure)")

// Relay has the connections to the leader.
type Relay struct {
	ctl   *Controllers
	slots *budget.Budget[uint32] // by uid
	waits *budget.Budget[uint32]
	room  share.Room // for lists that may break off when the leader is lost
	lanes [3]lane    // requests that answer at once, those that wait, and those that any controller answers

	ctx  context.Context // of searches for the leader: all waiting requests share them, not only the first
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// lane is one shared connection.
type lane struct {
	mu    sync.Mutex
	mux   *rpc.Mux
	addr  string // of mux's controller
	look  *look  // in progress, or nil
	doubt bool   // mux is quiet: another leader is looked for beside it
}

// look is one search for the leader. The fields after done are valid once it is closed.
type look struct {
	done chan struct{}
	mux  *rpc.Mux
	res  Look
}

// New returns a relay to the leader. Close ends it.
func New(ctl *Controllers) *Relay {
	r := &Relay{ctl: ctl, slots: budget.New(maxRelays, maxRelays/quarter, budget.Root),
		waits: budget.New(maxWaits, maxWaits/quarter, budget.Root)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// Close ends requests in progress.
func (r *Relay) Close() {
	r.stop()
	r.wg.Wait()
	for i := range r.lanes {
		if mux := r.lanes[i].current(); mux != nil {
			_ = mux.Close() // requests in progress end with an error
		}
	}
	r.ctl.asking.Wait()
}

// Refresh asks the leader for the list of controllers every so often while there is a connection, until ctx ends: on a
// login host nobody else tells it.
func (r *Relay) Refresh(ctx context.Context) {
	tick := time.NewTicker(refreshPace)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		mux := r.lanes[0].current()
		if mux == nil || mux.Err() != nil {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, askLimit)
		if f, err := mux.Call(asking, proto.KindPing, nil); err == nil {
			r.ctl.learn(f.Body)
		}
		if f, err := mux.Call(asking, proto.KindRevoked, nil); err == nil {
			r.ctl.takeRevoked(f.Body)
		}
		cancel()
	}
}

// Forward sends one user's request to the leader and gives every answer to each.
func (r *Relay) Forward(ctx context.Context, who *proto.Caller, kind uint16, body []byte,
	each func(*rpc.Frame) error) error {
	row := proto.RequestIn(kind, body)
	slots := r.slots
	if row.WaitS > 0 {
		slots = r.waits
	}
	if err := slots.Take(who.UID, 1); err != nil {
		return busy(err)
	}
	defer slots.Give(who.UID, 1)
	wrapped, err := proto.Encode(&proto.Forward{Caller: *who, Kind: kind, Body: body})
	if err != nil {
		return err
	}
	if len(wrapped) > rpc.MaxRequest {
		// The controller would end the connection, which others use too.
		return rpc.Errorf(rpc.CodeTooLarge, "a request of %d bytes is over the limit of %d bytes (%d MiB)", len(body),
			rpc.MaxRequest, rpc.MaxRequest>>20)
	}
	lost := "" // how the answer to a change was lost, which may have been made
	l := &r.lanes[0]
	if row.WaitS > 0 {
		l = &r.lanes[1]
	}
	answered, again := false, func() {}
	pass := func(f *rpc.Frame) error {
		answered = true
		return each(f)
	}
	if row.Effect != proto.Changes && row.Stream { // one that breaks off is asked for again
		held := r.room.Hold(each)
		defer held.Drop()
		again = held.Drop
		pass = func(f *rpc.Frame) error {
			err := held.Take(f)
			answered = held.Passed
			return err
		}
	}
	patience := leaderPatience
	if row.Effect != proto.Changes {
		patience = readPatience
	}
	if kind == proto.KindStale {
		l = &r.lanes[2]
	}
	for range maxMoves {
		mux, err := (*rpc.Mux)(nil), error(nil)
		if kind == proto.KindStale {
			mux, err = r.anyone(ctx, l)
		} else {
			mux, err = r.leader(ctx, l, patience)
		}
		if err != nil {
			return maybeMade(&row, lost, err)
		}
		again()
		err = mux.Stream(ctx, proto.KindForward, wrapped, pass)
		var e *rpc.Error
		var unsent *rpc.Unsent
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case errors.As(err, &e) && e.Code == proto.CodeNotLeader && !answered:
			l.moved(mux, e.Text, r)
		case errors.As(err, &e) && !proto.Settled(e.Code):
			return maybeMade(&row, lost, err)
		case errors.As(err, &e): // the leader's answer
			return err
		case errors.As(err, &unsent):
			l.moved(mux, "", r)
		case mux.Err() == nil: // each failed
			return err
		case !row.Repeats:
			return maybeMade(&row, brokenOff, err)
		case answered:
			return fmt.Errorf("%w: the connection broke before the answer was complete", errNoController)
		default:
			l.moved(mux, "", r)
			lost = brokenOff
		}
	}
	return maybeMade(&row, lost, errNoController)
}

// busy says why a user's request has no place.
func busy(err error) error {
	var over *budget.Over
	if errors.As(err, &over) && over.Own {
		return rpc.Errorf(proto.CodeBusy, "this host's gnoded is busy: you have %d requests under way, as many as one user "+
			"may; try again in a moment", over.Has)
	}
	return rpc.Errorf(proto.CodeBusy, "this host's gnoded is busy: almost all of its %d places for requests are taken; "+
		"try again in a moment", maxRelays)
}

const brokenOff = "the connection to the controller broke before it answered"

// maybeMade gives the error for a request of which an earlier try may have been carried out, if lost is set.
func maybeMade(row *proto.Request, lost string, err error) error {
	if lost == "" || row.Effect != proto.Changes {
		return err
	}
	return rpc.Errorf(proto.CodeUnknown, "%s", row.Unknown(lost))
}

// moved drops the connection to a controller that no longer leads. hint is the new leader, if known. Others' requests
// on it have the time that they need: a controller that hands leadership over answers what it has.
func (l *lane) moved(old *rpc.Mux, hint string, r *Relay) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mux != old {
		return
	}
	l.mux = nil
	if hint != "" {
		r.ctl.Leads(hint)
	}
	r.retire(old)
}

// retire gives up a connection to which no more requests go.
func (r *Relay) retire(old *rpc.Mux) {
	if r.ctx.Err() != nil {
		_ = old.Close() // Close waits for nobody
		return
	}
	r.wg.Go(func() { old.Retire(r.ctx, retireFor) })
}

// suspect looks for another leader while the connection to this one is quiet. If there is one, requests under way go
// to it.
func (r *Relay) suspect(l *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.doubt || l.mux == nil || !r.ctl.Several() || r.ctx.Err() != nil {
		return
	}
	l.doubt = true
	doubted := l.mux
	r.wg.Go(func() {
		mux, addr, _ := r.open(l)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.doubt = false
		switch {
		case mux == nil:
		case l.mux != doubted || l.addr == addr:
			r.retire(mux) // it is known already, or is alive
		default:
			l.mux, l.addr = mux, addr
			r.retire(doubted)
		}
	})
}

// leader gives the connection to the leader. All requests that need it wait for the same search.
func (r *Relay) leader(ctx context.Context, l *lane, most time.Duration) (*rpc.Mux, error) {
	begun := time.Now()
	patience := time.NewTimer(most)
	defer patience.Stop()
	for {
		mux, look := r.join(l, r.open)
		if mux != nil {
			return mux, nil
		}
		select {
		case <-look.done:
		case <-patience.C:
			return nil, fmt.Errorf("%w: no controller answered in %v", errNoController, most)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if look.mux != nil {
			return look.mux, nil
		}
		if waited := time.Since(begun); waited > most ||
			!look.res.Reached && waited > deadPatience {
			return nil, fmt.Errorf("%w: %w", errNoController, look.res.Err)
		}
		select {
		case <-time.After(relayPace):
		case <-ctx.Done():
		}
	}
}

// anyone gives a connection to a controller, whether it leads or not. All requests that need it wait for the same
// search.
func (r *Relay) anyone(ctx context.Context, l *lane) (*rpc.Mux, error) {
	mux, look := r.join(l, r.openAny)
	if mux != nil {
		return mux, nil
	}
	select {
	case <-look.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if look.mux == nil {
		return nil, fmt.Errorf("%w: %w", errNoController, look.res.Err)
	}
	return look.mux, nil
}

// openAny connects to the first controller that answers.
func (r *Relay) openAny(*lane) (*rpc.Mux, string, Look) {
	why := error(errNoController) // of the last
	tried := r.ctl.order()
	for _, addr := range tried {
		conn, err := r.dialOne(r.ctx, addr)
		if err != nil {
			why = err
			continue
		}
		mux, err := rpc.NewMux(conn)
		if err == nil {
			return mux, addr, Look{Reached: true}
		}
		_ = conn.Close() // err says why
		why = err
	}
	return nil, "", Look{Err: noneAnswers(tried, why)}
}

func (r *Relay) dialOne(ctx context.Context, addr string) (*rpc.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, deadPatience)
	defer cancel()
	return r.ctl.dial(ctx, addr, nil)
}

// join gives the connection, or the search in progress, or begins one.
func (r *Relay) join(l *lane, open func(*lane) (*rpc.Mux, string, Look)) (*rpc.Mux, *look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mux != nil && l.mux.Err() == nil {
		return l.mux, nil
	}
	if l.look == nil {
		k := &look{done: make(chan struct{})}
		l.mux, l.look = nil, k
		r.wg.Go(func() {
			var addr string
			k.mux, addr, k.res = open(l)
			l.mu.Lock()
			l.mux, l.addr, l.look = k.mux, addr, nil
			l.mu.Unlock()
			close(k.done)
		})
	}
	return nil, l.look
}

func (l *lane) current() *rpc.Mux {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mux
}

// open searches for the leader once.
func (r *Relay) open(l *lane) (*rpc.Mux, string, Look) {
	found, res := r.ctl.Find(r.ctx, func() { r.suspect(l) })
	if found == nil {
		return nil, "", res
	}
	mux, err := rpc.NewMux(found.Conn)
	if err != nil {
		_ = found.Conn.Close() // err has the reason
		return nil, "", Look{Err: err}
	}
	return mux, found.Addr, res
}
