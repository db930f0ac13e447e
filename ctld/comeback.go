package ctld

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// comeback.go handles the return of a node that fell silent.
//
// A node that hangs, or whose network delays everything, is given up (state.Lost) while its connection still exists.
// The leader closes that connection, because anything that arrives on it later is outdated. The node registers again,
// and the answer names the attempts that were given up. The node kills them, and each heartbeat says which of them are
// still there. Until none is left, the node is drained, and dispatch gives it no orders even if an operator resumes it.
//
// Its processes are dead by then, or nearly always: each heartbeat is acknowledged, and a node whose heartbeats are not
// ends what runs on it before it is given up (noded/shim/lease.go). What it needs for that is that nobody gives it up
// sooner than SlurmdTimeout after what was acknowledged, neither this leader nor one that another majority has chosen:
// a majority confirms this one before it acknowledges. A controller that stood still has heard nobody meanwhile, so it
// begins to count anew.

const (
	silentPace  = time.Second     // at which silent nodes are looked for
	sureTimeout = 5 * time.Second // for the other controllers to confirm who leads
	ringPace    = time.Second     // at which the list of witnesses is made anew
	maxRingLook = 256             // witnesses that are looked at for one node

	standstillMost = 2 * time.Second // rpc ends a connection after so long a silence

	fewWitnesses = 4 // a node that knows fewer learns of others without delay

	speakLeast = 500 * time.Millisecond // between two words to one node
	wordsASec  = 5000                   // to all nodes, s^-1: more would cost more than a few percent of a core
	farewell   = 300 * time.Millisecond // for the nodes to take the last word
)

// speakPace is how often a node hears from its leader at least.
func speakPace(nodes int) time.Duration {
	return max(speakLeast, time.Duration(nodes)*time.Second/wordsASec)
}

// standstill is how much later than it should this controller looks for silent nodes when it takes itself for one that
// was stopped: no more than what a node waits for its word (noded/fence), and than the silence that other daemons don't
// notice. A longer one may be why they have told a node that is cut off that nobody leads, so that it keeps its jobs.
func standstill(timeoutS int64) time.Duration {
	return min(silentPace+max(time.Duration(timeoutS)*time.Second/10, silentPace/2), standstillMost)
}

// acknowledgeBeats tells a node which of its heartbeats have been heard by the one that leads, until its session ends.
// While there is nothing else to say, it says every so often that it is there: a node whose leader is silent looks for
// another one. A leader that no majority confirms is silent.
func (c *Controller) acknowledgeBeats(ctx context.Context, s *session, every time.Duration) {
	pace := time.NewTicker(every / 2)
	defer pace.Stop()
	for {
		select {
		case <-s.beaten:
		case <-pace.C:
			s.mu.Lock()
			silent := time.Since(s.spoke)
			s.mu.Unlock()
			if silent >= every/2 {
				s.send(&proto.Orders{Epoch: s.epoch})
			}
			continue
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		now := s.beat.Now
		s.mu.Unlock()
		asking, cancel := context.WithTimeout(ctx, sureTimeout)
		err := c.store.VerifyLeader(asking)
		cancel()
		if err != nil {
			continue // it leads no more, or is asked again with the next one
		}
		if n := c.machine.View().Node(s.node); now == 0 || n == nil || n.Link != model.LinkUp {
			continue
		}
		at := time.Now()
		o := &proto.Orders{Epoch: s.epoch, Sure: now, LeadsMS: c.nodes.leadsMS(at)}
		o.Witnesses = c.nodes.newWitnesses(s, at)
		s.send(o)
	}
}

// introduce tells nodes that know few witnesses of those that have registered since: a node that is cut off right after
// its registration needs somebody to ask.
func (c *Controller) introduce() {
	now := time.Now()
	for _, s := range c.nodes.all() {
		s.mu.Lock()
		few := len(s.witnesses) < fewWitnesses
		s.mu.Unlock()
		if !few {
			continue
		}
		if w := c.nodes.newWitnesses(s, now); w != nil {
			s.send(&proto.Orders{Epoch: s.epoch, LeadsMS: c.nodes.leadsMS(now), Witnesses: w})
		}
	}
}

// newWitnesses gives a node's witnesses if they are others than the node knows, and records that it learns them now.
func (n *nodeSet) newWitnesses(s *session, now time.Time) []proto.Witness {
	w := n.witnesses(s.node, s.addr, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(w, s.witnesses) {
		return nil
	}
	s.witnesses = w
	return w
}

// hearAnew gives all nodes as much time as after the beginning of a leadership.
func (n *nodeSet) hearAnew(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.since = now
}

// leadsMS is for how long nodes have been heard without a break, ms.
func (n *nodeSet) leadsMS(now time.Time) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(now.Sub(n.since).Milliseconds(), 0)
}

// witness is a node that others may ask.
type witness struct {
	proto.Witness
	host string
}

// witnesses gives the nodes that a node may ask whether they hear a controller: those behind it by name, of other hosts
// if there are any.
func (n *nodeSet) witnesses(node, addr string, now time.Time) []proto.Witness {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now.Sub(n.ringAt) > ringPace {
		n.ringAt = now
		n.ring = n.ring[:0]
		for name, s := range n.sessions {
			if s.port > 0 {
				host := hostOf(s.addr)
				at := net.JoinHostPort(host, strconv.Itoa(int(s.port)))
				n.ring = append(n.ring, witness{proto.Witness{Node: name, Addr: at}, host})
			}
		}
		slices.SortFunc(n.ring, func(a, b witness) int { return strings.Compare(a.Node, b.Node) })
	}
	at, _ := slices.BinarySearchFunc(n.ring, node,
		func(w witness, name string) int { return strings.Compare(w.Node, name) })
	own := hostOf(addr)
	var here, out []proto.Witness
	for i := range min(len(n.ring), maxRingLook) {
		switch w := n.ring[(at+i)%len(n.ring)]; {
		case w.Node == node:
		case w.host == own:
			here = append(here, w.Witness)
		case len(out) < proto.MaxWitnesses:
			out = append(out, w.Witness)
		}
	}
	if len(out) == 0 {
		out = here[:min(len(here), proto.MaxWitnesses)]
	}
	return out
}

// hostOf is the host of host:port.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	return host
}

// endLost ends the sessions of nodes that were given up.
func (c *Controller) endLost() {
	all := c.nodes.all() // before the view, so that the view has the registration of each of them
	v := c.machine.View()
	for _, s := range all {
		if n := v.Node(s.node); n != nil && n.Link == model.LinkLost {
			c.log.Info("a lost node's session was closed; the node registers again when it answers",
				"node", s.node)
			c.registerAnew([]string{s.node})
		}
	}
}

// giveUpOverdue gives up jobs that nodes set DOWN have not ended in time, and makes those nodes register again: they
// then kill the rest of these jobs before they get work. A node that is silent is left to SlurmdTimeout: until then its
// gshim may let the jobs run, and they must not start elsewhere.
func (c *Controller) giveUpOverdue(ctx context.Context) {
	v := c.machine.View()
	list := slices.DeleteFunc(v.Overdue(c.now()), func(node string) bool {
		return c.nodes.mayRun(v, node, time.Now())
	})
	if len(list) == 0 {
		return
	}
	c.log.Warn("DOWN nodes have not ended their jobs; the jobs end without them", "nodes", list)
	if _, err := c.propose(ctx, &state.NodeEdit{Nodes: list, Admin: model.NodeDown}); err != nil {
		if ctx.Err() == nil {
			c.log.Warn("jobs of DOWN nodes could not be ended; it is tried again", "nodes", list, "err", err)
		}
		return
	}
	c.registerAnew(list)
}

// registerAnew ends the sessions of nodes: with the next session a node reports what it has, and learns what it must
// end.
func (c *Controller) registerAnew(nodes []string) {
	for _, name := range nodes {
		if s := c.nodes.session(name); s != nil {
			c.nodes.leave(s)
			s.hangUp()
		}
	}
}

// ending reports whether a node has a job to end.
func ending(v *state.View, node string) bool {
	n := v.Node(node)
	return n != nil && slices.ContainsFunc(n.Jobs, func(id model.JobID) bool {
		j := v.Job(id)
		return j != nil && j.State == model.Completing
	})
}

// unknownOf gives a node's attempts that are not in the facts.
func unknownOf(v *state.View, node string, known []proto.Attempt) []proto.Attempt {
	var out []proto.Attempt
	for _, a := range known {
		if j := v.Job(a.Job); j == nil || j.Attempt != a.Attempt || !j.State.HasResources() || hasLeft(j, node) {
			out = append(out, a)
		}
	}
	return out
}

// hasLeft reports whether, by the facts, a node has no part of a job with resources any more.
func hasLeft(j *model.Job, node string) bool {
	if j.Run.LeavingAt(node) >= 0 {
		return false
	}
	k := j.Run.Alloc.Place(node)
	return k < 0 || !j.Run.Busy.Empty() && !j.Run.Busy.Has(k)
}

// registersWithin is the time in which a node whose session was ended registers again, if it can.
const registersWithin = 2 * time.Second

// leavingJobs is how many jobs leavingText names.
const leavingJobs = 4

// leavingText is the reason of a node that is still ending attempts that were given up, or "".
func leavingText(list []proto.Attempt) string {
	if len(list) == 0 {
		return ""
	}
	jobs := make([]model.JobID, 0, len(list))
	for _, a := range list {
		jobs = append(jobs, a.Job)
	}
	slices.Sort(jobs)
	jobs = slices.Compact(jobs)
	words := make([]string, 0, leavingJobs)
	for _, id := range jobs[:min(len(jobs), leavingJobs)] {
		words = append(words, fmt.Sprint(id))
	}
	text := "Still ends what was given up: job " + strings.Join(words, ", ")
	if more := len(jobs) - len(words); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// clear reports whether the node has reported that it has ended all attempts that were given up.
func (s *session) clear() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

// notClear records the attempts that are still there, and reports whether the node has become clear with this.
func (s *session) notClear(leaving []proto.Attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.free
	s.leaving, s.free = leaving[:min(len(leaving), proto.MaxLeaving)], len(leaving) == 0
	return s.free && !was
}

// stillLeaving drains nodes again that are resumed while they are still ending attempts that were given up: they come
// back by themselves. It goes into one log entry with the resumption: no job is planned there in between. A node that
// was told to register again is awaited, since only then does it say so.
func (c *Controller) stillLeaving(ctx context.Context, nodes []string) (list []state.Body) {
	c.nodes.back(ctx, nodes, registersWithin)
	for _, name := range nodes {
		s := c.nodes.session(name)
		if s == nil {
			continue
		}
		s.mu.Lock()
		text := leavingText(s.leaving)
		s.mu.Unlock()
		if text != "" {
			list = append(list, &state.NodeHealth{Node: name, Problem: text})
		}
	}
	return list
}
