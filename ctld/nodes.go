package ctld

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"gbatch/ctld/define"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
)

// nodeSet has the leader's sessions with node daemons: connections, last heartbeats, orders that were sent. None of it
// is replicated; a new leader begins empty and nodes register again.
type nodeSet struct {
	mu       sync.Mutex
	sessions map[string]*session
	term     uint64              // 0: this controller does not lead
	since    time.Time           // when this controller began to lead
	left     map[string]lastWord // of nodes' last sessions
	rules    string              // hash of the configuration whose rules every session has been told
	ring     []witness           // who can be asked for others, by name
	ringAt   time.Time           // when it was made
	woken    chan struct{}       // closed and replaced when dispatch has to look again
}

func newNodeSet() *nodeSet {
	return &nodeSet{sessions: map[string]*session{}, left: map[string]lastWord{}, woken: make(chan struct{})}
}

// lastWord is when a node was heard last, and how long it is not given up after that.
type lastWord struct {
	at    time.Time
	lease time.Duration
	ended time.Time // when the session did
}

// session is one node's connection.
type session struct {
	node  string
	conn  *rpc.Conn
	epoch uint64
	hw    proto.Hardware // from its registration
	skew  string         // problem of its clock; "": none
	notes []string       // what the node can't enforce
	addr  string         // address from which it connects
	port  int32          // on which it answers other nodes' daemons
	units []model.GresUnit

	out chan owed // what waits to be written

	mu    sync.Mutex
	owed  int       // bytes of them
	spoke time.Time // when something was sent last
	told  map[partKey]telling
	turns map[proto.Attempt]uint32 // the last Freeze that it got, by attempt
	sizes map[proto.Attempt]uint32 // Version of the last Resize that it got
	seen  time.Time
	beat  proto.Heartbeat
	uses  []proto.JobUse // what jobs there use, as it said last
	clock heardClock     // its last message's; showed is 0 if it tells none

	idle idleUnits
	asks asks

	free    bool            // a heartbeat has said that all attempts that were given up have ended
	leaving []proto.Attempt // attempts that were given up and have not ended

	config string     // hash of the configuration whose rules the node has got
	health healthTime // its last health check

	beaten    chan struct{}   // holds one: a heartbeat has to be acknowledged
	over      chan struct{}   // closed when nothing is read from the node any more
	witnesses []proto.Witness // that the node has been told of; mu guards it
}

// partKey names an attempt's part of a node. A job that gives a node up and gets it again has two there.
type partKey struct {
	proto.Attempt
	since uint32 // NodeAlloc.Since
}

type telling uint8

const (
	toldLaunch telling = 1 << iota
	toldStop
	toldPrepare
	toldWarning
)

// tell reports whether the node still needs an order, and records that it gets it now.
func (s *session) tell(key partKey, what telling) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told[key]&what != 0 {
		return false
	}
	s.told[key] |= what
	return true
}

// maxTurns bounds a session's memory of suspended jobs; beyond it, orders are repeated.
const maxTurns = 4096

// turn reports whether the node still needs the order for a job's last suspension or resumption, and records that it
// gets it now.
func (s *session) turn(key proto.Attempt, turn uint32) bool { return s.news(&s.turns, key, turn) }

// sized is turn for the nodes of a job that was resized.
func (s *session) sized(key proto.Attempt, version uint32) bool {
	return s.news(&s.sizes, key, version)
}

func (s *session) news(of *map[proto.Attempt]uint32, key proto.Attempt, number uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (*of)[key] == number {
		return false
	}
	if *of == nil || len(*of) >= maxTurns {
		*of = map[proto.Attempt]uint32{}
	}
	(*of)[key] = number
	return true
}

func (s *session) forget(key partKey) {
	s.mu.Lock()
	delete(s.told, key)
	delete(s.turns, key.Attempt)
	delete(s.sizes, key.Attempt)
	s.mu.Unlock()
}

// lease is how long the node is not given up after its last word, by its own account. Callers hold mu.
func (s *session) lease() time.Duration { return time.Duration(s.beat.LeaseS) * time.Second }

func (s *session) heard(now time.Time) {
	s.mu.Lock()
	s.seen = now
	s.mu.Unlock()
}

func (n *nodeSet) lead(term uint64, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.term, n.since = term, now
}

func (n *nodeSet) epoch() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.term
}

// drop ends every session and says where the next leader is, if it is known: the nodes look for it otherwise.
func (n *nodeSet) drop(next string) {
	n.mu.Lock()
	sessions := n.sessions
	n.sessions, n.term = map[string]*session{}, 0
	n.mu.Unlock()
	var told sync.WaitGroup
	for _, s := range sessions {
		if next == "" {
			s.hangUp() // nothing is left to say
			continue
		}
		told.Go(func() {
			s.send(&proto.Orders{Epoch: s.epoch, Moved: next})
			select { // the node closes; if this side did, what it has just sent would break the connection before it reads
			case <-s.over:
			case <-time.After(farewell):
			}
			_ = s.conn.Close() // that was its last message
		})
	}
	all := make(chan struct{})
	go func() { // ends when the last node has read it, or rpc.WriteTimeout has passed
		told.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(farewell):
	}
}

func (n *nodeSet) session(node string) *session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sessions[node]
}

// cut ends a node's session, if there is one.
func (n *nodeSet) cut(node string) {
	if s := n.session(node); s != nil {
		s.hangUp() // a node that is there registers again
	}
}

func (n *nodeSet) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.sessions)
}

func (n *nodeSet) connected(node string) bool { return n.session(node) != nil }

func (n *nodeSet) wake() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.woken
}

// wakeAll wakes all who wait on wake.
func (n *nodeSet) wakeAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.woken)
	n.woken = make(chan struct{})
}

// enter makes s the node's session; an older one is ended. It refuses one of another term than that in which this
// controller leads: nobody would end it.
func (n *nodeSet) enter(s *session) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.term == 0 || s.epoch != n.term {
		return false
	}
	if old := n.sessions[s.node]; old != nil {
		old.hangUp() // the node has a new one
	}
	n.sessions[s.node] = s
	if s.config != n.rules {
		n.rules = "" // dispatch compares all
	}
	close(n.woken)
	n.woken = make(chan struct{})
	return true
}

func (n *nodeSet) leave(s *session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sessions[s.node] == s {
		delete(n.sessions, s.node)
		s.mu.Lock()
		n.left[s.node] = lastWord{s.seen, s.lease(), time.Now()}
		s.mu.Unlock()
	}
}

// back waits until nodes whose sessions ended a moment ago have registered again, at most for a time.
func (n *nodeSet) back(ctx context.Context, nodes []string, most time.Duration) {
	give := time.After(most)
	for {
		n.mu.Lock()
		woken, away := n.woken, slices.ContainsFunc(nodes, func(name string) bool {
			last, left := n.left[name]
			return left && n.sessions[name] == nil && time.Since(last.ended) < most
		})
		n.mu.Unlock()
		if !away {
			return
		}
		select {
		case <-woken:
		case <-give:
			return
		case <-ctx.Done():
			return
		}
	}
}

// feel fills in data from the last heartbeat.
func (n *nodeSet) feel(node string, info *proto.NodeInfo) {
	s := n.session(node)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info.SeenAt = model.Time(s.seen.UnixMilli())
	info.Notes = s.notes
	if s.beat.FreeMemMiB != 0 || s.beat.LoadMilli != 0 {
		info.LoadMilli, info.FreeMemMiB = s.beat.LoadMilli, s.beat.FreeMemMiB
	}
}

// stop sends a node a Stop at once, outside of dispatch, if it has a session: for what may be lost.
func (n *nodeSet) stop(node string, st ...*proto.Stop) {
	if s := n.session(node); s != nil {
		s.send(&proto.Orders{Epoch: n.epoch(), Stop: st})
	}
}

// mayRun reports whether a node that says nothing may run its jobs on: it is up by the facts, and has been silent for
// half of SlurmdTimeout or has no session. After SlurmdTimeout silent lists it.
func (n *nodeSet) mayRun(v *state.View, node string, now time.Time) bool {
	limit := time.Duration(v.Config().Params.NodeTimeoutS) * time.Second
	if known := v.Node(node); limit == 0 || known == nil || known.Link != model.LinkUp ||
		known.Def.External {
		return false
	}
	s := n.session(node)
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.seen) > limit/2
}

// led is for how long this controller has led.
func (n *nodeSet) led(now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return now.Sub(n.since).Round(100 * time.Millisecond)
}

// mayStillCome is for how long a node that has not registered with this leader may do so before it is missed; 0: no
// longer, or it has been here. It needs much less than SlurmdTimeout, which passes before it is given up.
func (n *nodeSet) mayStillCome(v *state.View, node string, now time.Time) time.Duration {
	limit := comeBack
	if t := time.Duration(v.Config().Params.NodeTimeoutS) * time.Second; t > 0 {
		limit = min(limit, t)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left[node].ended.After(n.since) {
		return 0
	}
	return max(0, limit-now.Sub(n.since)).Round(100 * time.Millisecond)
}

// comeBack is how long a new leader waits for nodes before it calls one that is not there broken.
const comeBack = 20 * time.Second

// silent lists nodes that are up by the facts and have sent this leader no heartbeat for SlurmdTimeout. A new leader
// first waits for the full SlurmdTimeout. A node that reboots has ResumeTimeout (reboot.go).
func (n *nodeSet) silent(v *state.View, now time.Time) []string {
	limit := time.Duration(v.Config().Params.NodeTimeoutS) * time.Second
	if limit == 0 {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if now.Sub(n.since) < limit {
		return nil
	}
	var out []string
	v.Nodes(func(node *model.Node) bool {
		if node.Link != model.LinkUp || node.Rebooting() || node.Def.External {
			return true
		}
		seen, wait := time.UnixMilli(int64(node.LinkAt)), limit
		if seen.Before(n.since) {
			seen = n.since
		}
		if s := n.sessions[node.Def.Name]; s != nil {
			if s.config != v.Config().Hash {
				return true // it does not know the present heartbeat interval yet
			}
			s.mu.Lock()
			seen, wait = s.seen, max(wait, s.lease())
			s.mu.Unlock()
		} else if left := n.left[node.Def.Name]; left.at.After(seen) {
			seen, wait = left.at, max(wait, left.lease)
		}
		if seen.Before(n.since) { // it was not listened to
			seen = n.since
		}
		if now.Sub(seen) > wait {
			out = append(out, node.Def.Name)
		}
		return true
	})
	return out
}

// come makes a node of one that may come (State=FUTURE), since its daemon registers. A daemon that ran already when
// the node became one that may come does not count: it would be back at once.
func (c *Controller) come(ctx context.Context, h *proto.Hello) error {
	v := c.machine.View()
	def := v.Config().FutureNode(h.Node)
	if def == nil || v.Node(h.Node) != nil {
		return nil
	}
	if def.FutureAt != 0 && c.nodeTime(h.UpSince, h.Now) < def.FutureAt {
		return refuse(proto.CodeInvalidNode, "node %s is State=FUTURE since its gnoded was started: start gnoded anew, or "+
			"gcontrol update NodeName=%s State=RESUME", h.Node, h.Node)
	}
	return c.arrivals.Do(ctx, h.Node, func(names []string) error {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), comeTimeout) // it may have other nodes in it too
		defer stop()
		return c.comeTogether(ctx, names)
	}, func(err error) bool {
		var no *rpc.Error
		return errors.As(err, &no) && proto.Settled(no.Code)
	})
}

const comeTimeout = 10 * time.Second // of a change that makes nodes of those that may come

// comeTogether makes nodes of those that may come: all of them, or none.
func (c *Controller) comeTogether(ctx context.Context, names []string) error {
	c.defining.Lock()
	defer c.defining.Unlock()
	v := c.machine.View()
	names = slices.DeleteFunc(names, func(name string) bool { return v.Config().FutureNode(name) == nil })
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	cmd, err := define.Come(v, names)
	if err != nil {
		return drafted(err)
	}
	if err := c.define(ctx, cmd); err != nil {
		return err
	}
	c.log.Info("nodes of State=FUTURE have come", "nodes", hostlist.Compress(names))
	return nil
}

// hello registers a node and then serves its session until the connection ends.
func (c *Controller) hello(ctx context.Context, name, addr string, h *proto.Hello,
	hijack func(*proto.Welcome) (*rpc.Conn, error)) error {
	if !c.leads(ctx) {
		return c.notLeading()
	}
	if h.Node != name {
		err := refuse(proto.CodeAccess, "the certificate is for node %s, the daemon says it is %s; start gnoded with -N %s "+
			"or issue a certificate for %s (gbatch cert issue)", name, h.Node, name, h.Node)
		c.turned.note(name, refusedNode{at: time.Now(), why: err.Error(), fix: "see that gnoded there is started as " + name})
		return err
	}
	if err := c.come(ctx, h); err != nil {
		return err
	}
	v := c.machine.View()
	n := v.Node(h.Node)
	if n == nil {
		return refuse(proto.CodeInvalidNode,
			"node %s is not in the configuration; add a NodeName=%s line to gbatch.conf and run gcontrol reconfigure",
			h.Node, h.Node)
	}
	leaving := slices.Concat(h.Leaving, unknownOf(v, h.Node, h.Known))
	if h.Instance != 0 && h.Instance != v.Instance() {
		// job numbers of another history: the node ends those attempts by itself
		leaving, h.Known = slices.Concat(h.Leaving, h.Known), nil
	}
	if n.Def.External {
		return refuse(proto.CodeInvalidNode, "node %s is State=EXTERNAL, which has no gnoded: stop gnoded there, or take "+
			"State=EXTERNAL out of its line", h.Node)
	}
	s := &session{node: h.Node, hw: h.Hw, notes: h.Hw.Notes, addr: addr,
		port: h.PeerPort, units: h.Hw.Units[:min(len(h.Hw.Units), proto.MaxUnits)], told: map[partKey]telling{},
		idle: idleUnits{}, beat: proto.Heartbeat{Now: h.Now, LeaseS: h.LeaseS}, beaten: make(chan struct{}, 1),
		over: make(chan struct{}), out: make(chan owed, maxOwed)}
	s.skew = c.hearClock(s, h.Now, time.Now())
	join := &state.Join{Node: h.Node, BootID: h.BootID, BootAt: c.nodeTime(h.BootAt, h.Now),
		UpSince: c.nodeTime(h.UpSince, h.Now), Version: h.Version,
		OS: h.Hw.OS, Arch: h.Hw.Arch, Gres: connections(h.Hw.Gres), Uptime: h.Uptime,
		Problem: cmp.Or(lacks(n.Def, &h.Hw), s.skew, leavingText(leaving), state.Brief(h.Problem))}
	for _, a := range h.Known {
		join.Known = append(join.Known, state.Report{Job: a.Job, Attempt: a.Attempt})
	}
	switch res, err := c.propose(ctx, join); {
	case err != nil:
		return err
	case res.Refusal == state.Outdated:
		return refuse(proto.CodeBusy, "this registration of node %s came late: the node has registered since", h.Node)
	}
	p := v.Config().Params
	epoch := c.nodes.epoch()
	forget := unknownOf(c.machine.View(), h.Node, h.Known)
	witnesses := c.nodes.witnesses(h.Node, addr, time.Now())
	speaks := speakPace(c.nodes.count())
	conn, err := hijack(&proto.Welcome{Cluster: v.Config().Cluster, Epoch: epoch, HeartbeatS: p.HeartbeatS,
		KillWaitS: p.KillWaitS, Def: n.Def,
		Instance: v.Instance(), Rules: &p.Rules, Forget: forget, TimeoutS: p.NodeTimeoutS,
		Sure: true, LeadsMS: c.nodes.leadsMS(time.Now()), Witnesses: witnesses, SpeakMS: speaks.Milliseconds(),
		Controllers: c.votersForNodes(), Revoked: c.issuer.Revoked()})
	if err != nil {
		return err
	}
	s.conn, s.epoch, s.seen, s.config, s.witnesses = conn, epoch, time.Now(), v.Config().Hash, witnesses
	s.leaving = leaving[:min(len(leaving), proto.MaxLeaving)] // until its first heartbeat
	defer close(s.over)
	go s.writes() // ends with the session
	if len(forget) > 0 {
		s.send(&proto.Orders{Epoch: epoch, Forget: forget}) // for an older daemon, which does not read this from Welcome
	}
	if !c.nodes.enter(s) {
		_ = conn.Close() // the node looks for the leader
		return c.notLeading()
	}
	c.turned.forget(h.Node)
	defer c.bar(ctx, h.Node) // after it has left
	defer c.nodes.leave(s)
	c.log.Info("node registered", "node", h.Node, "version", h.Version, "known", len(h.Known), "problem", join.Problem)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go c.acknowledgeBeats(ctx, s, speaks) // ends with the session
	err = c.serveNode(ctx, s)
	c.log.Info("node session ended", "node", h.Node, "err", err)
	return nil
}
