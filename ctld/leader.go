package ctld

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gbatch/ctld/clock"
	"gbatch/ctld/events"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
)

// The loops that only the leader runs start and end here. Each is level-triggered and idempotent: it looks at the facts
// and does what is missing, so a new leader needs no hand-over.

// lead follows the store's leadership until ctx ends.
func (c *Controller) lead(ctx context.Context) {
	var stop func()
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	for {
		select {
		case is := <-c.store.LeaderCh():
			if stop != nil {
				stop()
				stop = nil
			}
			if is {
				stop = c.startLeading(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// logEvents writes what happens into the log. What happened before this controller led was another one's to write.
func (c *Controller) logEvents(ctx context.Context) {
	_, since, _ := c.machine.View().Happened(0)
	for ctx.Err() == nil {
		changed := c.machine.Changed()
		since = events.Log(ctx, c.log, c.machine.View(), since)
		select {
		case <-changed:
			pause(ctx, eventsPace)
		case <-ctx.Done():
		}
	}
}

// eventsPace is from one look at what has happened to the next: the lines of many jobs are written together.
const eventsPace = 100 * time.Millisecond

const (
	takeUpPace = 250 * time.Millisecond // from one attempt to begin to lead to the next
	filesWait  = time.Second            // for the configuration files, when a controller begins to lead
	stopWait   = 30 * time.Second       // for the leader's loops to end
)

// startLeading starts the leader's loops and gives the function that ends them.
func (c *Controller) startLeading(parent context.Context) func() {
	ctx, cancel := context.WithCancel(parent)
	var wg sync.WaitGroup
	var mu sync.Mutex // held while this controller begins or ceases to lead
	wg.Add(1)
	go func() {
		defer wg.Done()
		for err := c.takeUp(ctx); err != nil; err = c.takeUp(ctx) {
			if ctx.Err() != nil {
				c.log.Warn("leading ends before it began", "err", err)
				return
			}
			// As long as raft has it lead, nobody else does.
			c.log.Error("this controller can't begin to lead; it tries again", "err", err)
			pause(ctx, takeUpPace)
		}
		mu.Lock()
		if ctx.Err() != nil {
			mu.Unlock()
			return
		}
		c.log.Info("leading", "term", c.store.Term())
		c.clocks.time.Lead(true)
		c.nodes.lead(c.store.Term(), time.Now())
		c.leading.Store(true)
		mu.Unlock()
		c.door.tell()
		read := make(chan struct{})
		wg.Go(func() {
			defer close(read)
			c.takeFiles(ctx)
		})
		select { // they may be on a file system that hangs: the cluster has its configuration
		case <-read:
		case <-time.After(filesWait):
			c.log.Warn("the configuration files take long to be read; this controller leads meanwhile")
		case <-ctx.Done():
		}
		for _, loop := range []func(context.Context){c.cycle, c.forecast, c.recallRuns, c.dispatch,
			c.answerForExternal, c.collect,
			c.takeTurns, c.clock, c.ship, c.resetUsage, c.checkHealth, c.runSlurmctldProgs, c.keepReservations,
			c.tellReservations,
			c.sendMails, c.watchAlerts, c.watchTroubles, c.keepMembers, c.logEvents, c.tellSight, c.sweepCerts, c.bringRevoked,
			c.leadTokenKey, c.tellLeads, c.jobEvents.Lead, c.keepReboots, c.keepPower, c.takeSamples,
			c.keepCrontabs, c.endInactive, c.runTriggers} {
			wg.Add(1)
			go func() {
				defer wg.Done()
				loop(ctx)
			}()
		}
	}()
	return func() {
		mu.Lock()
		cancel()
		c.leading.Store(false)
		c.clocks.time.Lead(false)
		mu.Unlock()
		c.door.tell()
		next := c.nextLeader()
		if next == "" { // it has not said so yet; a node that asks it waits until it does
			next = c.door.heir()
		}
		c.nodes.drop(next)
		if !endsWithin(&wg, stopWait) { // what it changes is refused: its context has ended
			c.log.Error("a part of this controller still waits for a file or a program; it takes part in elections all the same")
		}
		c.log.Info("not leading any more")
	}
}

// endsWithin reports whether all of a group end within a time.
func endsWithin(wg *sync.WaitGroup, most time.Duration) bool {
	done := make(chan struct{})
	go func() { // ends with the group
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(most):
		return false
	}
}

// takeUp waits until this controller has applied all entries of leaders before it, and gives a new cluster its
// configuration.
func (c *Controller) takeUp(ctx context.Context) error {
	if err := c.store.Barrier(ctx); err != nil {
		return err
	}
	if err := c.firstConfig(ctx); err != nil {
		return fmt.Errorf("the configuration can't be replicated: %w", err)
	}
	return nil
}

// nextLeader is the address of another controller that leads, or "".
func (c *Controller) nextLeader() string {
	if id, addr := c.store.Leader(); id != c.opts.Name {
		return addr
	}
	return ""
}

// firstConfig gives a new cluster its configuration.
func (c *Controller) firstConfig(ctx context.Context) error {
	if c.machine.View().Config().Cluster != "" {
		return nil
	}
	files, problems := c.loadConfig()
	if files == nil {
		return errors.New(firstProblem(problems))
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return fmt.Errorf("draw the cluster's instance number: %w", err)
	}
	_, err := c.propose(ctx, &state.SetConfig{Config: c.configOf(files), Instance: binary.BigEndian.Uint64(id[:]) | 1})
	return err
}

// clock proposes a Tick when time alone has changed something, and marks nodes that have gone silent.
func (c *Controller) clock(ctx context.Context) {
	introduced := time.Now()
	for looked := time.Now(); ctx.Err() == nil; { // every turn: nothing that fails below is tried again after the end
		changed := c.machine.Changed()
		v := c.machine.View()
		now := c.now()
		c.endLost()
		if time.Since(introduced) >= silentPace {
			c.introduce()
			introduced = time.Now()
		}
		c.giveUpOverdue(ctx)
		for _, node := range c.turned.nodes(time.Now()) {
			c.bar(ctx, node)
		}
		if gap := time.Since(looked); gap > standstill(v.Config().Params.NodeTimeoutS) {
			c.log.Warn("this controller did not run for a while; SlurmdTimeout starts again for every node", "for", gap)
			c.nodes.hearAnew(time.Now())
		}
		looked = time.Now()
		if lost := c.nodes.silent(v, time.Now()); len(lost) > 0 {
			c.log.Warn("nodes do not answer", "nodes", lost)
			res, err := c.propose(ctx, &state.Lost{Nodes: lost})
			if err != nil && ctx.Err() == nil {
				c.log.Warn("can't mark silent nodes", "err", err)
				pause(ctx, waitPace)
			}
			if err != nil || res.Changed {
				continue
			}
		}
		wait := silentPace
		if due := v.NextDue(); due != 0 {
			if due <= now {
				if _, err := c.propose(ctx, &state.Tick{}); err != nil && ctx.Err() == nil {
					c.log.Warn("can't let time pass", "err", err)
					pause(ctx, waitPace)
				}
				continue
			}
			wait = clock.Until(due, now, wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
			timer.Stop()
			pause(ctx, clockPace)
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// propose puts one command into the log and gives the state's answer.
func (c *Controller) propose(ctx context.Context, b state.Body) (state.Result, error) {
	data, err := c.encode(b)
	if err != nil {
		return state.Result{}, err
	}
	out, err := c.proposeAll(ctx, [][]byte{data})
	if err != nil {
		return state.Result{}, err
	}
	return out[0], nil
}

// encode gives a command's bytes in the log. A request whose command no replica could read is refused here.
func (c *Controller) encode(b state.Body) ([]byte, error) {
	data, err := state.Encode(c.now(), b)
	if err != nil {
		return nil, refuse(proto.CodeBadRequest, "what the request says can't be: %v", err)
	}
	return data, nil
}

// proposeAll puts encoded commands into the log, in order in one entry, and gives the state's answer to each.
func (c *Controller) proposeAll(ctx context.Context, cmds [][]byte) ([]state.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	answers, err := c.store.ProposeBatch(ctx, cmds)
	if err != nil {
		return nil, proposalError(err)
	}
	noteMade(ctx)
	out := make([]state.Result, len(answers))
	for i, a := range answers {
		res, ok := a.(state.Result)
		if !ok {
			return nil, errors.New("the store returned no result")
		}
		out[i] = res
	}
	return out, nil
}

// now gives the cluster's time, as the leader stamps commands.
func (c *Controller) now() model.Time { return c.clocks.time.Now() }

// pacer spaces the rounds of a loop: the first round after a rest begins at once, further rounds at least gap apart. So
// a single job does not wait, and under load each round, log entry and message handles many.
type pacer struct {
	gap  time.Duration
	last time.Time
}

// wait ends when the next round may begin, or with ctx.
func (p *pacer) wait(ctx context.Context) {
	if d := p.gap - time.Since(p.last); d > 0 {
		pause(ctx, d)
	}
	p.last = time.Now()
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

const (
	doorPatience = 2 * time.Second // for leadership to begin or to move
	// electionPatience is less than a search waits for an answer. An election takes less.
	electionPatience = time.Second
	handOverTime     = 3 * time.Second
	lastWords        = time.Second            // for requests that came before the end
	lastLook         = 200 * time.Millisecond // for the other controllers to say how they are, before that
)

// door has the requests that wait for leadership to begin or to move.
type door struct {
	mu      sync.Mutex
	changed chan struct{}
	handing atomic.Bool            // leadership is being handed over
	to      atomic.Pointer[string] // the address of whom it is handed over to; nil: nobody in particular
}

// heir is the address of the controller that leadership is being handed over to, or "".
func (d *door) heir() string {
	if to := d.to.Load(); to != nil {
		return *to
	}
	return ""
}

func (d *door) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return d.changed
}

// tell lets all who wait look again.
func (d *door) tell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// leads reports whether this controller leads, as a majority has confirmed within the lease: one that was stopped, or
// is cut off, does not answer from facts that are outdated. While leadership begins or is handed over, it waits.
func (c *Controller) leads(ctx context.Context) bool {
	var patience <-chan time.Time
	for {
		changed := c.door.wait()
		handing, is := c.door.handing.Load(), c.store.IsLeader()
		switch {
		case c.leading.Load() && is && !handing:
			return c.lease.Holds(ctx, c.store)
		case !is && !handing:
			return false
		}
		if patience == nil {
			patience = time.After(doorPatience)
		}
		select {
		case <-changed:
		case <-patience:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// leadsAfterElection is leads for who searches the leader: while there is none, it waits for the election's end.
func (c *Controller) leadsAfterElection(ctx context.Context) bool {
	var patience <-chan time.Time
	for {
		changed := c.store.LeaderChanged()
		if id, _ := c.store.Leader(); id != "" {
			return c.leads(ctx)
		}
		if patience == nil {
			patience = time.After(electionPatience)
		}
		select {
		case <-changed:
		case <-patience:
			return c.leads(ctx)
		case <-ctx.Done():
			return false
		}
	}
}

// handOver gives leadership to another controller, "" to the one that has most of the log. Requests wait meanwhile, and
// then go there.
func (c *Controller) handOver(ctx context.Context, to string) error {
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	if c.door.handing.Swap(true) {
		return refuse(proto.CodeBusy, "leadership is being handed over already")
	}
	for _, p := range c.voters() {
		if p.Name == to {
			c.door.to.Store(&p.Addr)
		}
	}
	defer func() {
		c.door.handing.Store(false)
		c.door.to.Store(nil)
		c.door.tell()
	}()
	c.lease.End()
	if err := c.store.TransferLeadership(ctx, to); err != nil {
		return err
	}
	for {
		changed := c.store.LeaderChanged()
		if c.nextLeader() != "" {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil // it is given away, and the next one not known yet
		}
	}
}

// takeover makes another controller the leader.
func (c *Controller) takeover(ctx context.Context, who *caller, rq *proto.TakeoverRequest) (*proto.TakeoverReply,
	error) {
	to := rq.Name
	if rq.Index > 0 {
		all := c.members()
		if int(rq.Index) > len(all) {
			return nil, refuse(proto.CodeBadRequest, "there is no controller %d: there are %d, 0 to %d", rq.Index-1, len(all),
				len(all)-1)
		}
		to = all[rq.Index-1].Name
	}
	voters := namesOf(c.voters())
	switch {
	case to == c.opts.Name, to == "" && rq.From != "" && rq.From != c.opts.Name:
		return &proto.TakeoverReply{Leader: c.opts.Name}, nil
	case to != "" && !c.isMember(to):
		return nil, refuse(proto.CodeBadRequest, "'%s' is not a controller of this cluster", to)
	case len(voters) == 1:
		return nil, refuse(proto.CodeBadRequest, "%s is the only controller", c.opts.Name)
	case to != "" && !slices.Contains(voters, to):
		return nil, refuse(proto.CodeBusy, "%s is being added and does not vote yet: see gcontrol controllers", to)
	}
	c.awaitJoined(ctx, to)
	if to == "" {
		to = c.heir(ctx)
	}
	if err := c.handOver(context.WithoutCancel(ctx), to); err != nil {
		var e *rpc.Error
		if errors.As(err, &e) {
			return nil, err
		}
		return nil, refuse(proto.CodeBusy, "%s still leads: %v", c.opts.Name, err)
	}
	id, _ := c.store.Leader()
	c.log.Info("leadership was handed over", "to", id, "user", who.User)
	return &proto.TakeoverReply{Leader: id}, nil
}
