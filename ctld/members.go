package ctld

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/store"
)

// members.go has the list of the controllers. Who they are stands in raft's log (store/members.go); the configuration
// files follow. A new controller is a member without a vote until it has the state; the leader gives it its vote, also
// if it was another leader that added it. Nodes and login hosts get the new list from the leader. One that was removed
// ends by itself. memberedit.go adds and removes them.

const (
	memberPace   = 200 * time.Millisecond // between two looks at a member that gets the state
	maxHearing   = 300 * time.Millisecond // so old may news of the others be in an answer
	answersFor   = 3 * time.Second        // a controller that was heard so long ago answers
	nearEnough   = 1024                   // log entries that a member lacks at most when it gets its vote
	removedTwice = 2                      // confirmations, in a row, that this controller was removed
)

// members gives all controllers, those without a vote too.
func (c *Controller) members() []Peer {
	if c.store == nil {
		return c.opts.Peers
	}
	var out []Peer
	for _, m := range c.store.Members() {
		out = append(out, Peer{m.ID, m.Addr})
	}
	return out
}

// voters gives those that count for a majority.
func (c *Controller) voters() []Peer {
	var out []Peer
	for _, m := range c.store.Members() {
		if m.Voter {
			out = append(out, Peer{m.ID, m.Addr})
		}
	}
	return out
}

// votersForNodes gives them as nodes are told of them.
func (c *Controller) votersForNodes() []string {
	var out []string
	for _, p := range c.voters() {
		out = append(out, p.Name+"="+p.Addr)
	}
	return out
}

func namesOf(list []Peer) []string {
	var out []string
	for _, p := range list {
		out = append(out, p.Name)
	}
	return out
}

// peerNews is what another controller last said of itself.
type peerNews struct {
	proto.MomentReply
	at   time.Time
	took time.Duration // the answer
}

// news gives what a controller last said; of this one, what it would say.
func (c *Controller) news(ctx context.Context, name string) (peerNews, bool) {
	if name == c.opts.Name {
		return peerNews{*c.moment(ctx), time.Now(), 0}, true
	}
	c.clocks.mu.Lock()
	defer c.clocks.mu.Unlock()
	n, ok := c.clocks.news[name]
	return n, ok
}

// answers reports whether a controller was heard lately.
func (c *Controller) answers(ctx context.Context, name string) bool {
	n, ok := c.news(ctx, name)
	return ok && time.Since(n.at) < answersFor
}

// answersNow reports whether a controller has answered since the last hearAll began.
func (c *Controller) answersNow(ctx context.Context, name string) bool {
	n, ok := c.news(ctx, name)
	c.clocks.mu.Lock()
	defer c.clocks.mu.Unlock()
	return ok && !n.at.Before(c.clocks.heardFrom)
}

// hearAll asks all controllers how they are, once for all who want to know it at the same time.
func (c *Controller) hearAll(ctx context.Context) {
	select {
	case c.clocks.hearing <- struct{}{}:
		defer func() { <-c.clocks.hearing }()
	case <-ctx.Done():
		return
	}
	if time.Since(c.clocks.heardAll) >= maxHearing {
		begun := time.Now()
		c.comparePeers(ctx)
		c.clocks.mu.Lock()
		c.clocks.heardFrom = begun
		c.clocks.mu.Unlock()
		c.clocks.heardAll = time.Now()
	}
}

// controllers lists them as this one knows them. It needs no leader and no majority.
func (c *Controller) controllers(ctx context.Context, _ *caller,
	_ *proto.Empty) (*proto.ControllersReply, error) {
	c.hearAll(ctx)
	leader, _ := c.store.Leader()
	r := &proto.ControllersReply{Cluster: c.machine.View().Config().Cluster, Name: c.opts.Name, Leader: leader,
		Now: c.now()}
	if leader != c.opts.Name && !c.answers(ctx, leader) {
		r.Leader = ""
	}
	members, voters, last := c.store.Members(), int32(0), uint64(0)
	for _, m := range members {
		if n, ok := c.news(ctx, m.ID); ok {
			last = max(last, n.Last)
		}
	}
	for _, m := range members {
		s := c.stateOf(ctx, &m, r.Leader, last)
		r.List = append(r.List, s)
		if m.Voter {
			if voters++; c.answers(ctx, m.ID) {
				r.Answer++
			}
		}
	}
	r.Quorum = voters/2 + 1
	switch {
	case r.Answer < r.Quorum:
		r.Notes = append(r.Notes, fmt.Sprintf("%d of %d controllers answer %s, and %d must: nothing can be changed "+
			"until more of them run", r.Answer, voters, c.opts.Name, r.Quorum))
	case r.Leader == "":
		r.Notes = append(r.Notes, c.opts.Name+" knows no leader: the controllers elect one, or can't reach each other")
	}
	if voters > 0 && voters%2 == 0 && len(members) == int(voters) {
		r.Notes = append(r.Notes, fmt.Sprintf("%d controllers survive no more failures than %d", voters, voters-1))
	}
	if text := c.fileDiffers(); text != "" {
		r.Notes = append(r.Notes, text)
	}
	return r, nil
}

// stateOf gives the line of one controller. last is the last entry that anybody has.
func (c *Controller) stateOf(ctx context.Context, m *store.Member, leader string, last uint64) proto.ControllerState {
	s := proto.ControllerState{Name: m.ID, Addr: m.Addr, Role: proto.RoleVotes, Behind: -1, HeardMS: -1, Health: "ok"}
	n, heard := c.news(ctx, m.ID)
	if heard {
		s.Term, s.Index, s.Version = n.Term, n.Index, n.Version
		s.Behind = int64(last) - int64(min(n.Index, last))
		if m.ID != c.opts.Name {
			s.HeardMS = max(1, time.Since(n.at).Milliseconds())
		} else {
			s.HeardMS = 0
		}
	}
	switch {
	case !m.Voter:
		s.Role = proto.RoleJoins
	case m.ID == leader:
		s.Role = proto.RoleLeads
	}
	switch {
	case !heard:
		s.Health = "has not answered yet"
	case time.Since(n.at) >= answersFor:
		s.Health = fmt.Sprintf("not answering for %s", time.Since(n.at).Round(time.Second))
	case n.Version == "":
		s.Health = "an older version, which tells only that it runs"
	case n.Stalled:
		s.Health = "its disk hangs or is full"
	case n.Joins:
		s.Health = "it gets the state, and votes when it has it"
	case n.Leader == "":
		s.Health = "it knows no leader"
	case slices.Contains(c.clocks.time.Verdict().Strays, m.ID), m.ID == c.opts.Name && c.clocks.time.Verdict().Self:
		s.Health = "its clock is wrong"
	}
	return s
}

// fileDiffers says what this host's configuration file has to name; "": it is right.
func (c *Controller) fileDiffers() string {
	cfg, _ := c.loadConfig()
	if cfg == nil {
		return "" // gbatch check says what is wrong with it
	}
	p, differ := c.otherControllers(cfg)
	if !differ {
		return ""
	}
	return p.File + " on " + c.host + ": " + p.Text + "; " + p.Hint
}

// otherControllers says that the files name other controllers than those that keep the log together.
func (c *Controller) otherControllers(cfg *conf.Config) (problem conf.Problem, differ bool) {
	have := c.members()
	var more, fewer []string
	for _, f := range cfg.Controllers {
		if !slices.ContainsFunc(have, func(p Peer) bool { return p.Name == f.Name }) {
			more = append(more, f.Name)
		}
	}
	for _, p := range have {
		if _, ok := cfg.Controller(p.Name); !ok {
			fewer = append(fewer, p.Name)
		}
	}
	var todo []string
	for _, name := range more {
		todo = append(todo, "add it with gcontrol controllers add "+name+", or remove its line")
	}
	for _, name := range fewer {
		todo = append(todo, fmt.Sprintf("write SlurmctldHost=%s(%s), or remove it with gcontrol controllers remove %s", name,
			c.addrOf(name), name))
	}
	return conf.Problem{File: cfg.Path, Severity: conf.Error,
		Text: fmt.Sprintf("SlurmctldHost names the controllers %s, but the cluster has %s",
			strings.Join(namesIn(cfg), ", "), strings.Join(namesOf(have), ", ")),
		Hint: strings.Join(todo, "; "),
	}, len(todo) > 0
}

// withoutMembers leaves out changes of SlurmctldHost that went through add and remove: the leader tells all daemons.
func (c *Controller) withoutMembers(cfg *conf.Config, all []proto.Change) []proto.Change {
	for _, p := range c.members() {
		if f, ok := cfg.Controller(p.Name); !ok || f.Addr != p.Addr {
			return all // another address counts when its daemons are restarted
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(ch proto.Change) bool {
		return strings.HasPrefix(ch.Key, "SlurmctldHost")
	})
}

func namesIn(cfg *conf.Config) (out []string) {
	for _, f := range cfg.Controllers {
		out = append(out, f.Name)
	}
	return out
}

// keepMembers gives new members their votes, and nodes the list when it changes. It runs on the leader.
func (c *Controller) keepMembers(ctx context.Context) {
	told := ""
	joining := &link{}
	defer joining.close()
	for ctx.Err() == nil {
		for _, m := range c.store.Members() {
			if !m.Voter {
				c.promote(ctx, joining, m.Peer)
			}
		}
		if list := strings.Join(c.votersForNodes(), ","); list != told {
			if told != "" {
				c.log.Info("the controllers have changed", "now", strings.Join(namesOf(c.voters()), ", "))
				c.nodes.retell()
			}
			told = list
		}
		pause(ctx, memberPace)
	}
}

// promote gives a member its vote if it has the state.
func (c *Controller) promote(ctx context.Context, l *link, p store.Peer) {
	asking, cancel := context.WithTimeout(ctx, compareWait)
	defer cancel()
	said, err := c.askMoment(asking, l, p.Addr)
	if err != nil || said.Name != p.ID || said.Joins || said.Index+nearEnough < c.store.Progress().Commit {
		return
	}
	if err := c.store.Promote(ctx, p); err != nil && ctx.Err() == nil {
		c.log.Warn("a new controller could not get its vote yet", "name", p.ID, "err", err)
	}
}

// ErrRemoved says that this controller is not one of the cluster's, or not any more.
var ErrRemoved = store.ErrRemoved

// watchRemoval returns an error when a leader says, as a majority confirms, that this controller was removed.
func (c *Controller) watchRemoval(ctx context.Context) error {
	var heard time.Time
	for times := 0; times < removedTwice; pause(ctx, comparePace/2) {
		if ctx.Err() != nil {
			return nil
		}
		if c.Joining() || c.store.IsLeader() {
			times = 0
			continue
		}
		c.clocks.mu.Lock()
		for _, n := range c.clocks.news {
			switch {
			case !n.Leads || len(n.Members) == 0 || !n.at.After(heard):
			case slices.Contains(n.Members, c.opts.Name):
				times, heard = 0, n.at
			default:
				times, heard = times+1, n.at
			}
		}
		c.clocks.mu.Unlock()
	}
	return fmt.Errorf("%w: it was removed. Its gctld ends and isn't needed any more; remove its SlurmctldHost line on "+
		"all hosts, and disable its service", ErrRemoved)
}

func (c *Controller) ping(ctx context.Context, _ *caller, _ *proto.Empty) (*proto.PingReply, error) {
	return c.pong(ctx), nil
}

// pong gives the answer to a ping: the cluster's state. The other controllers are asked over kept connections, once for
// all pings at the same time.
func (c *Controller) pong(ctx context.Context) *proto.PingReply {
	c.hearAll(ctx)
	c.clocks.mu.Lock()
	from := c.clocks.heardFrom
	c.clocks.mu.Unlock()
	v := c.machine.View()
	id, _ := c.store.Leader()
	r := &proto.PingReply{Cluster: v.Config().Cluster, Leader: id, Term: c.store.Term(), Version: c.opts.Version,
		Now: c.now(), Outbox: int64(v.OutboxLen()), Discarded: int64(v.Shipped().Discarded)}
	c.pongDbd(r)
	r.CertNotes = c.certNotes(v)
	for _, p := range c.members() {
		info := proto.ControllerInfo{Name: p.Name, Addr: p.Addr, Leader: p.Name == id, Up: p.Name == c.opts.Name}
		if info.Up {
			r.Controllers = append(r.Controllers, info)
			continue
		}
		if n, ok := c.news(ctx, p.Name); ok {
			info.SeenMS = max(1, time.Since(n.at).Milliseconds())
			info.Up = !n.at.Before(from)
			info.TookUS = max(1, n.took.Microseconds())
		}
		r.Controllers = append(r.Controllers, info)
	}
	v.Nodes(func(n *model.Node) bool {
		r.Ready = r.Ready || n.Usable() && (n.Rises() || n.Def.External || c.nodes.connected(n.Def.Name))
		return !r.Ready
	})
	return r
}
