package ctld

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"gbatch/ctld/clock"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/wall"
)

// clocks.go compares the controllers' clocks, on every controller, and the nodes' on the leader. Package clock decides
// what follows for the cluster's time; here is what follows for this controller: it says what is wrong, and one whose
// clock is far from the others' hands leadership over.

const (
	comparePace   = 2 * time.Second  // from one comparison to the next
	compareWait   = time.Second      // for another controller's answer; a later one says too little
	offsetLasts   = 30 * time.Second // a comparison counts for so long
	handOverPace  = time.Minute      // between two attempts to hand leadership over
	clockFileName = "clock.json"
	// trustAfter is how long a leader hears nodes before it says that one's clock is wrong: it may be its own.
	trustAfter = 10 * time.Second
)

// clocks is this controller's view of all clocks.
type clocks struct {
	time *clock.Clock

	mu    sync.Mutex
	links map[string]*link
	heard map[string]heardClock // other controllers, by name
	news  map[string]peerNews   // likewise
	ended bool

	hearing  chan struct{} // holds one while all are asked for a command
	heardAll time.Time     // the end of that; the holder's

	heardFrom time.Time // its begin: who has answered since answers now; under mu
}

// heardClock is what another host's clock showed at a moment. It is compared with this host's clock only when it is
// needed, as that may have been set since.
type heardClock struct {
	showed model.Time
	at     time.Time
}

// ahead gives how far that clock is ahead of this host's.
func (h heardClock) ahead() time.Duration {
	return time.Duration(h.showed-hostTime())*time.Millisecond + time.Since(h.at)
}

// hostTime gives this host's time.
func hostTime() model.Time { return model.Time(wall.Milli()) }

func newClocks() *clocks {
	return &clocks{time: clock.New(hostTime, clock.SinceBoot), links: map[string]*link{},
		heard: map[string]heardClock{}, news: map[string]peerNews{}, hearing: make(chan struct{}, 1)}
}

// keepTime compares the clocks until ctx ends.
func (c *Controller) keepTime(ctx context.Context) {
	file, boot := filepath.Join(c.opts.Dir, clockFileName), clock.BootID()
	var handed time.Time
	saved, said := "", ""
	for ctx.Err() == nil {
		c.comparePeers(ctx)
		v := clock.Judge(c.offsets(time.Now()))
		c.clocks.time.Judge(v)
		text := c.clockTrouble()
		if kind := strings.Map(noDigit, text); kind != said { // a difference that changes is no news
			said = kind
			if text != "" {
				c.log.Warn("clocks differ", "problem", text)
			}
		}
		if v.Sure && v.Self && len(v.Heirs) > 0 && c.store.IsLeader() && time.Since(handed) > handOverPace {
			handed = time.Now()
			c.log.Warn("a controller whose clock is right shall lead", "to", v.Heirs[0])
			if err := c.handOver(ctx, v.Heirs[0]); err != nil {
				c.log.Warn("this controller leads on, by the others' time", "err", err)
			}
		}
		switch err := c.clocks.time.Save(file, boot); {
		case err == nil:
			saved = ""
		case err.Error() != saved:
			saved = err.Error()
			c.log.Warn("can't keep the cluster's time for a restart", "err", err)
		}
		pause(ctx, comparePace)
	}
	c.clocks.mu.Lock()
	c.clocks.ended = true
	c.clocks.mu.Unlock()
	for _, l := range c.clocks.links {
		l.close()
	}
}

func noDigit(r rune) rune {
	if r >= '0' && r <= '9' {
		return -1
	}
	return r
}

// loadTime takes the cluster's time from before a restart.
func (c *Controller) loadTime() {
	if err := c.clocks.time.Load(filepath.Join(c.opts.Dir, clockFileName), clock.BootID()); err != nil {
		c.log.Warn("the time of the last run is not known", "err", err)
	}
}

// comparePeers asks the other controllers for their clocks, all at once.
func (c *Controller) comparePeers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, compareWait)
	defer cancel()
	var all sync.WaitGroup
	for _, p := range c.members() {
		if l := c.clocks.link(p.Name); l != nil && p.Name != c.opts.Name {
			all.Go(func() { c.comparePeer(ctx, p, l) })
		}
	}
	all.Wait()
}

// link gives the connection to another controller; nil: this one ends.
func (k *clocks) link(name string) *link {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return nil
	}
	l := k.links[name]
	if l == nil {
		l = &link{}
		k.links[name] = l
	}
	return l
}

// askMoment asks the controller at an address for its clocks and how it is.
func (c *Controller) askMoment(ctx context.Context, l *link, addr string) (*proto.MomentReply, error) {
	m, err := l.to(ctx, addr, func() (*rpc.Mux, error) { return c.dialTLS(context.Background(), addr, pki.RoleCtld) })
	if err != nil {
		return nil, err
	}
	f, err := m.Call(ctx, proto.KindMoment, nil)
	if err != nil {
		return nil, err
	}
	reply := new(proto.MomentReply)
	return reply, proto.Decode(f.Body, reply)
}

// comparePeer asks one. A controller that does not answer has no vote.
func (c *Controller) comparePeer(ctx context.Context, p Peer, l *link) {
	dial := func() (*rpc.Mux, error) { return c.dialTLS(context.Background(), p.Addr, pki.RoleCtld) }
	if _, err := l.to(ctx, p.Addr, dial); err != nil {
		return // its time does not count below
	}
	begun := time.Now()
	reply, err := c.askMoment(ctx, l, p.Addr)
	if err != nil || reply.Host == 0 {
		return // an older version, or it is going away
	}
	took := time.Since(begun)
	half := took / 2
	c.clocks.mu.Lock()
	c.clocks.news[p.Name] = peerNews{*reply, time.Now(), took}
	c.clocks.heard[p.Name] = heardClock{reply.Host, begun.Add(half)}
	c.clocks.mu.Unlock()
	c.jobEvents.Heard(reply.Told)
	if reply.Leads {
		c.alerted.Store(&reply.Alerts)
		c.clocks.time.Follow(reply.Cluster + model.Time(half/time.Millisecond))
	}
}

// moment answers another controller.
func (c *Controller) moment(ctx context.Context) *proto.MomentReply {
	leader, _ := c.store.Leader()
	far := c.store.Progress()
	r := &proto.MomentReply{Host: hostTime(), Cluster: c.now(), Leads: c.leading.Load(), Name: c.opts.Name,
		Version: c.opts.Version, Leader: leader, Term: c.store.Term(), Index: far.Applied, Last: far.Last, Joins: c.Joining(),
		Stalled: c.store.Stalled(), Troubles: c.ownTroubles(c.machine.View()),
		Told: c.jobEvents.Told(), UpMS: max(int64(hostTime()-c.bootAt), 1), Alerts: c.alerts()}
	if r.Leads && c.lease.Holds(ctx, c.store) {
		r.Members = namesOf(c.members())
	}
	return r
}

// offsets gives what is known of other clocks.
func (c *Controller) offsets(now time.Time) []clock.Offset {
	var out []clock.Offset
	c.clocks.mu.Lock()
	for name, h := range c.clocks.heard {
		if now.Sub(h.at) > offsetLasts {
			delete(c.clocks.heard, name)
			continue
		}
		out = append(out, clock.Offset{Name: name, Controller: true, Ahead: h.ahead()})
	}
	c.clocks.mu.Unlock()
	if c.leading.Load() {
		out = append(out, c.nodes.offsets()...)
	}
	return out
}

// offsets gives the nodes' clocks by their last messages.
func (n *nodeSet) offsets() []clock.Offset {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []clock.Offset
	for name, s := range n.sessions {
		s.mu.Lock()
		if s.clock.showed != 0 {
			out = append(out, clock.Offset{Name: name, Ahead: s.clock.ahead()})
		}
		s.mu.Unlock()
	}
	return out
}

// clockTrouble says in a sentence what is wrong with this host's clock or the cluster's time; "": nothing is.
func (c *Controller) clockTrouble() string {
	var parts []string
	v := c.clocks.time.Verdict()
	if v.Self {
		parts = append(parts, fmt.Sprintf("this host's clock is %s the clocks of %d of %d hosts; set it by NTP",
			aheadOf(-v.Off), v.Agree, v.Of))
	}
	if len(v.Strays) > 0 {
		parts = append(parts, "the clock of controller "+strings.Join(v.Strays, ", ")+" is wrong; set it by NTP")
	}
	if miss := c.clocks.time.Miss(); miss.Abs() > clock.Near && c.leading.Load() {
		parts = append(parts, fmt.Sprintf("the cluster's time is %s the hosts' clocks; it makes up 18 s in each hour, so "+
			"that no job's time limit changes", aheadOf(-miss)))
	}
	return strings.Join(parts, "; ")
}

func aheadOf(d time.Duration) string {
	if d < 0 {
		return (-d).Round(time.Second).String() + " behind"
	}
	return d.Round(time.Second).String() + " ahead of"
}

// hearClock notes a node's clock, and gives the sentence about it if it is wrong, or "". A leader that has just begun
// blames nobody: when it has heard most nodes, it may be wrong itself.
func (c *Controller) hearClock(s *session, theirs model.Time, now time.Time) string {
	if theirs == 0 {
		return "" // a daemon of an older version tells none
	}
	s.mu.Lock()
	s.clock = heardClock{theirs, now}
	s.mu.Unlock()
	if c.nodes.leadsMS(now) < trustAfter.Milliseconds() {
		return ""
	}
	return skewed(theirs, c.clocks.time.True())
}

// nodeTime turns a moment by a node's clock into the cluster's time. stamped is the node's clock as the message left.
func (c *Controller) nodeTime(at, stamped model.Time) model.Time {
	if at == 0 || stamped == 0 {
		return at
	}
	return c.now() - (stamped - at)
}
