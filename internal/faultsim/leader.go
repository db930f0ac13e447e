package faultsim

import (
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
	"gbatch/internal/state"
)

// leader.go is the model of a leader's loops: cycle, dispatch, clock, collect and ship of package ctld, in one round
// that is made whenever something has changed. Like there, every loop looks at the facts and does what is missing, and
// works on a view that may be older than what is on its way into the log.

const (
	speakMS   = 500
	sureMS    = 5 * second
	nodeLimit = 10 // SlurmdTimeout, seconds
	beatS     = 3  // HeartbeatInterval
	killWaitS = 2
)

// leads is what a controller has while it leads. A new leader begins without any of it.
type leads struct {
	since      int64 // when nodes began to be heard
	looked     int64
	leaseUntil int64
	sessions   []*session // by node
	left       []lastWord // by node
	planner    *sched.Planner
	lastGen    uint64
	lastPlan   int64
	planning   bool
	ticking    bool
	losing     bool
	shipping   bool
	sent       uint64 // the last record that gdbd has acknowledged
	asked      bool   // gdbd has said what it has
	collecting bool
	inbox      []nodeReports
	waking     bool
	tries      map[string]*try
}

type lastWord struct {
	at    int64
	lease int64
}

type nodeReports struct {
	s    *session
	list []*proto.Report
}

// session is a node's connection to this leader.
type session struct {
	c       *controller
	node    int
	s       *stream
	epoch   uint64
	seen    int64
	spoke   int64
	beat    model.Time
	leaseS  int64
	free    bool
	told    map[key]telling
	asking  bool // a majority is asked whether this leader leads
	entered bool
}

type telling uint8

const (
	toldLaunch telling = 1 << iota
	toldStop
)

func (c *controller) beginLeading(life int, term uint64) {
	if c.life != life || c.term != term || !c.believes || !c.runs() {
		if c.life == life && c.term == term && c.believes {
			c.w.after(100, func() { c.beginLeading(life, term) }) // it is stopped
		}
		return
	}
	if c.w.log.leader == c.id && c.w.log.term == term {
		c.applyTo(len(c.w.log.entries))
	}
	c.leads = leads{since: c.w.now, looked: c.w.now, sessions: make([]*session, len(c.w.nodes)),
		left: make([]lastWord, len(c.w.nodes)), planner: sched.NewPlanner(), tries: map[string]*try{}}
	ready := func() {
		c.leading = true
		c.clock.Lead(true)
		c.w.tell("controller %d leads in term %d", c.id, term)
		c.each(second, c.wake)
		c.each(speakMS/2, c.speak)
		c.wake()
	}
	if c.st.Peek().Config().Cluster != "" {
		ready()
		return
	}
	c.propose(&state.SetConfig{Config: c.w.config(), Instance: 77}, func(_ state.Result, err error) {
		if err == nil && c.believes && c.term == term {
			ready()
		}
	})
}

func (c *controller) endLeading() {
	if c.leading {
		c.w.tell("controller %d leads no more", c.id)
	}
	c.leading = false
	if c.clock != nil {
		c.clock.Lead(false)
	}
	for _, s := range c.sessions {
		if s != nil {
			s.s.close(0)
		}
	}
	c.sessions = nil
}

// each does something again and again while this leadership lasts.
func (c *controller) each(d int64, do func()) {
	life, term := c.life, c.term
	c.w.after(d, func() {
		if c.life != life || c.term != term || !c.leading {
			return
		}
		if !c.stopped {
			do()
		}
		c.each(d, do)
	})
}

// propose puts one command into the log. done is called if this process lives so long.
func (c *controller) propose(b state.Body, done func(state.Result, error)) {
	data, err := state.Encode(c.time(), b)
	if err != nil {
		c.w.fail("%T can't be encoded: %v", b, err)
		return
	}
	term := c.term
	c.w.log.propose(c, [][]byte{data}, func(res []state.Result, err error) {
		if c.stopped { // it reads the answer when it goes on
			life := c.life
			c.w.later(func() bool { return !c.stopped || c.life != life }, func() {
				if c.life == life {
					c.settle(term, res, err, done)
				}
			})
			return
		}
		c.settle(term, res, err, done)
	})
}

func (c *controller) settle(_ uint64, res []state.Result, err error, done func(state.Result, error)) {
	var one state.Result
	if len(res) > 0 {
		one = res[0]
	}
	done(one, err)
}

// confirmed tells whether this controller leads now: by its lease, or by asking the others.
func (c *controller) confirmed(then func(bool)) {
	switch {
	case !c.leading || !c.believes:
		then(false)
	case c.w.now < c.leaseUntil || c.w.bug(StaleReads):
		then(true)
	default:
		c.verify(then)
	}
}

// verify asks a majority.
func (c *controller) verify(then func(bool)) {
	life, term, begun := c.life, c.term, c.w.now
	could := c.isLeader()
	c.w.after(c.w.between(2, 12), func() {
		if c.life != life {
			return // nobody waits any more
		}
		if c.stopped { // the answer comes too late
			c.w.later(func() bool { return !c.stopped || c.life != life }, func() {
				if c.life == life {
					then(false)
				}
			})
			return
		}
		ok := could && c.term == term && c.isLeader()
		if ok {
			c.leaseUntil = begun + leaseTime
			c.w.log.goodAt = max(c.w.log.goodAt, begun)
		}
		then(ok)
	})
}

func (c *controller) isLeader() bool {
	return c.believes && c.w.log.leader == c.id && c.w.log.term == c.term && c.w.log.majority(c.id)
}

// wake makes a round soon.
func (c *controller) wake() {
	if c.waking || !c.leading {
		return
	}
	c.waking = true
	life, term := c.life, c.term
	c.w.after(c.w.between(4, 25), func() {
		if c.life != life || c.term != term || !c.leading {
			return
		}
		c.waking = false
		if c.runs() {
			c.round()
		}
	})
}

func (c *controller) round() {
	v := c.st.Peek()
	c.endLost(v)
	c.giveUp(v)
	c.tick(v)
	c.plan(v)
	c.dispatch(v)
	c.collect()
	c.ship(v)
}

// endLost ends the sessions of nodes that were given up: they register again.
func (c *controller) endLost(v *state.View) {
	for i, s := range c.sessions {
		if s == nil {
			continue
		}
		if n := v.Node(c.w.nodes[i].name); n != nil && n.Link == model.LinkLost {
			c.leave(s)
			s.s.close(0)
		}
	}
}

// giveUp marks nodes that have been silent for SlurmdTimeout. A new leader, and one that stood still, waits that long.
func (c *controller) giveUp(v *state.View) {
	limit := v.Config().Params.NodeTimeoutS * second
	if c.w.now-c.looked > second+max(limit/10, second/2) {
		c.since = c.w.now
	}
	c.looked = c.w.now
	if c.losing || c.w.now-c.since < limit {
		return
	}
	var lost []string
	for i, node := range c.w.nodes {
		n := v.Node(node.name)
		if n == nil || n.Link != model.LinkUp {
			continue
		}
		seen, wait := c.since, limit
		if s := c.sessions[i]; s != nil {
			seen, wait = s.seen, max(wait, s.leaseS*second)
		} else if left := c.left[i]; left.at > seen {
			seen, wait = left.at, max(wait, left.lease)
		}
		if c.w.now-max(seen, c.since) > wait {
			lost = append(lost, node.name)
		}
	}
	if len(lost) == 0 {
		return
	}
	c.w.tell("controller %d gives up %v", c.id, lost)
	c.losing = true
	c.propose(&state.Lost{Nodes: lost}, func(state.Result, error) { c.losing = false; c.wake() })
}

func (c *controller) tick(v *state.View) {
	if due := v.NextDue(); c.ticking || due == 0 || due > c.time() {
		return
	}
	c.ticking = true
	c.propose(&state.Tick{}, func(state.Result, error) { c.ticking = false; c.wake() })
}

func (c *controller) plan(v *state.View) {
	if c.planning || v.Gen() == c.lastGen && c.w.now-c.lastPlan < 5*second {
		return
	}
	c.lastGen, c.lastPlan = v.Gen(), c.w.now
	plan := c.planner.Plan(v, c.time(), sched.Configured(&v.Config().Params))
	if plan.Empty() {
		return
	}
	c.planning = true
	c.propose(&state.Starts{Epoch: c.term, Plan: plan}, func(state.Result, error) { c.planning = false; c.wake() })
}

// dispatch sends nodes the orders that the facts require and that they have not got in this session.
func (c *controller) dispatch(v *state.View) {
	orders := make([]*proto.Orders, len(c.sessions))
	v.Moving(func(j *model.Job) bool {
		k := key{j.ID, j.Attempt}
		name := j.Run.Alloc.Nodes[0].Node
		i := slices.IndexFunc(c.w.nodes, func(n *node) bool { return n.name == name })
		s := c.sessions[i]
		what := toldLaunch
		if j.State == model.Completing {
			what = toldStop
		} else if j.State != model.Configuring {
			return true
		}
		if s == nil || !s.entered || what == toldLaunch && !s.free || s.told[k]&what != 0 {
			return true
		}
		s.told[k] |= what
		o := orders[i]
		if o == nil {
			o = &proto.Orders{Epoch: s.epoch, Heard: s.beat}
			orders[i] = o
		}
		if what == toldStop {
			o.Stop = append(o.Stop, &proto.Stop{Job: j.ID, Attempt: j.Attempt, Cause: j.Run.Stop, KillWaitS: killWaitS})
			return true
		}
		o.Launch = append(o.Launch, &proto.Launch{Job: j.ID, Attempt: j.Attempt, Task: j.Task, Spec: j.Spec,
			Part: j.Run.Partition, LimitS: j.Run.LimitS, Start: j.Run.Start, Alloc: j.Run.Alloc, Script: v.Blob(j.Spec.Script)})
		return true
	})
	for i, o := range orders {
		if o != nil {
			c.sessions[i].send(o)
		}
	}
}

// collect puts all reports that have come into one entry, and then acknowledges them.
func (c *controller) collect() {
	if c.collecting || len(c.inbox) == 0 {
		return
	}
	batch := c.inbox
	c.inbox = nil
	cmd := &state.Reports{Placed: true}
	for _, b := range batch {
		for _, r := range b.list {
			report := state.Report{Kind: state.ReportKind(r.Kind), Job: r.Job, Attempt: r.Attempt, At: r.At, Exit: r.Exit,
				Text: r.Text, Node: c.w.nodes[b.s.node].name}
			if c.w.bug(HeardAt) {
				report.At = c.time()
			}
			cmd.Reports = append(cmd.Reports, report)
		}
	}
	c.collecting = true
	ack := func() {
		for _, b := range batch {
			a := &proto.ReportAck{}
			for _, r := range b.list {
				a.Seqs = append(a.Seqs, r.Seq)
				if r.Kind == proto.ReportEnded {
					delete(b.s.told, key{r.Job, r.Attempt})
				}
			}
			b.s.s.send(1, a)
		}
	}
	if c.w.bug(AckReports) {
		ack()
	}
	c.propose(cmd, func(_ state.Result, err error) {
		c.collecting = false
		if err != nil {
			for _, b := range batch {
				b.s.s.close(0) // the node registers again and repeats what was not acknowledged
				c.leave(b.s)
			}
			return
		}
		if !c.w.bug(AckReports) {
			ack()
		}
		c.wake()
	})
}

// speak lets every node hear from its leader.
func (c *controller) speak() {
	for _, s := range c.sessions {
		if s != nil && s.entered && c.w.now-s.spoke >= speakMS/2 {
			s.send(&proto.Orders{Epoch: s.epoch})
		}
	}
}

func (s *session) send(o *proto.Orders) {
	o.Heard, s.spoke = s.beat, s.c.w.now
	s.s.send(1, through(s.c.w, o))
}

func (c *controller) leave(s *session) {
	if s.node < len(c.sessions) && c.sessions[s.node] == s {
		c.sessions[s.node] = nil
		c.left[s.node] = lastWord{s.seen, s.leaseS * second}
	}
}

// hello registers a node, as (*Controller).hello does.
func (c *controller) hello(st *stream, node int, h *proto.Hello) {
	if c.w.bug(OldEpoch) && c.leading {
		c.welcome(st, node, h)
		return
	}
	c.confirmed(func(ok bool) {
		if !ok {
			st.close(0)
			return
		}
		v := c.st.Peek()
		leaving := slices.Concat(h.Leaving, unknownOf(v, h.Node, h.Known))
		join := &state.Join{Node: h.Node, BootID: h.BootID, BootAt: c.time(), UpSince: c.time(),
			Uptime: h.Uptime}
		if len(leaving) > 0 {
			join.Problem = "Still ends what was given up"
		}
		for _, a := range h.Known {
			join.Known = append(join.Known, state.Report{Job: a.Job, Attempt: a.Attempt})
		}
		term := c.term
		c.propose(join, func(res state.Result, err error) {
			if err != nil || res.Refusal != state.OK || c.term != term || !c.leading {
				st.close(0)
				return
			}
			c.welcome(st, node, h)
		})
	})
}

// welcome begins a node's session.
func (c *controller) welcome(st *stream, node int, h *proto.Hello) {
	v := c.st.Peek()
	s := &session{c: c, node: node, s: st, epoch: c.term, seen: c.w.now, spoke: c.w.now, beat: h.Now,
		leaseS: h.LeaseS, told: map[key]telling{}, entered: true}
	st.took[0] = func(m any) { c.hear(s, m) }
	st.ended[0] = func() { c.leave(s) }
	st.send(1, through(c.w, &proto.Welcome{Cluster: "sim", Epoch: c.term, HeartbeatS: beatS, KillWaitS: killWaitS,
		Instance: v.Instance(), Forget: unknownOf(v, h.Node, h.Known), TimeoutS: nodeLimit, Sure: true,
		LeadsMS: c.w.now - c.since, SpeakMS: speakMS}))
	if old := c.sessions[node]; old != nil {
		old.s.close(0)
	}
	c.sessions[node] = s
	c.wake()
}

// unknownOf gives a node's attempts that the facts don't have there.
func unknownOf(v *state.View, node string, known []proto.Attempt) []proto.Attempt {
	var out []proto.Attempt
	for _, a := range known {
		j := v.Job(a.Job)
		if j == nil || j.Attempt != a.Attempt || !j.State.HasResources() ||
			!slices.Contains(j.Run.Alloc.NodeNames(), node) {
			out = append(out, a)
		}
	}
	return out
}

// hear takes a node's message.
func (c *controller) hear(s *session, m any) {
	if !c.leading || s.epoch != c.term {
		return
	}
	s.seen = c.w.now
	switch m := m.(type) {
	case *proto.Heartbeat:
		s.beat, s.leaseS = m.Now, m.LeaseS
		was := s.free
		s.free = len(m.Leaving) == 0
		problem := ""
		if !s.free {
			problem = "Still ends what was given up"
		}
		if n := c.st.Peek().Node(c.w.nodes[s.node].name); n != nil && n.Problem != problem {
			c.propose(&state.NodeHealth{Node: c.w.nodes[s.node].name, Problem: problem}, func(state.Result, error) {})
		}
		if s.free && !was {
			c.wake()
		}
		c.acknowledge(s)
	case *proto.Reports:
		now := c.time()
		for _, r := range m.Reports {
			if r.Kind == proto.ReportEnded {
				a := c.w.attemptsOf(key{r.Job, r.Attempt})
				a.slow = max(a.slow, int64(c.w.real()-(m.Now-model.Time(c.w.nodes[s.node].skew))))
			}
			r.At = now - (m.Now - r.At)
		}
		c.inbox = append(c.inbox, nodeReports{s, m.Reports})
		c.wake()
	}
}

// acknowledge tells a node that its heartbeat was heard by the one that leads.
func (c *controller) acknowledge(s *session) {
	if s.asking {
		return
	}
	s.asking = true
	beat := s.beat
	c.verify(func(ok bool) {
		s.asking = false
		if n := c.st.Peek().Node(c.w.nodes[s.node].name); !ok || n == nil || n.Link != model.LinkUp {
			return
		}
		s.send(&proto.Orders{Epoch: s.epoch, Sure: beat, LeadsMS: c.w.now - c.since})
	})
}
