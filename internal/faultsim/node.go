package faultsim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/fence"
)

// node.go is the model of gnoded: its session, its spool, and what it does with orders. shim.go has the processes.
//
// Everything that it acts on is on its disk before it acts, so a gnoded that is killed goes on with the same facts. A
// reboot ends the processes and gives the machine another boot id; the disk may then have lost its last writes.

const (
	silence     = 2 * second // a session whose leader says nothing ends
	spoolMostMS = 30
)

type node struct {
	w       *World
	id      int
	name    string
	up      bool
	stopped bool
	hostUp  bool
	life    int
	boot    int
	skew    int64

	// The spool.
	epoch    uint64
	attempts map[key]*attempt
	gone     map[key]bool
	reports  []*proto.Report
	seq      uint64

	// The session.
	s        *stream
	streams  []*stream // of this boot
	ctl      int
	sentTo   uint64 // reports up to this number have been sent
	heardAny int64
	beats    []beatSent
	heard    int64 // when the last acknowledged word was sent; -1: none

	shim
}

type beatSent struct {
	now model.Time
	at  int64
}

type phase uint8

const (
	accepted phase = iota
	running
	over
)

// attempt is one attempt of a job on its first node.
type attempt struct {
	k        key
	phase    phase
	unwanted bool // the leader has it no more: it is ended without a report
	launch   *proto.Launch
	starting bool
	stopping bool
	proc     *process
}

func newNode(w *World, id int) *node {
	return &node{w: w, id: id, name: fmt.Sprintf("n%d", id), up: true, hostUp: true, boot: 1, ctl: -1, heard: -1,
		skew: w.between(-20*second, 20*second), attempts: map[key]*attempt{}, gone: map[key]bool{}}
}

func (n *node) runs() bool { return n.hostUp && n.up && !n.stopped }

// time is the node's own clock.
func (n *node) time() model.Time { return n.w.real() + model.Time(n.skew) }

// keys gives the attempts in order.
func (n *node) keys() []key {
	out := make([]key, 0, len(n.attempts))
	for k := range n.attempts {
		out = append(out, k)
	}
	slices.SortFunc(out, byJob)
	return out
}

func byJob(a, b key) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Attempt, b.Attempt)) }

// dial looks for the controller that leads, and registers there.
func (n *node) dial() {
	if n.s != nil || !n.runs() {
		return
	}
	var claim []int
	for i, c := range n.w.ctls {
		if c.runs() && c.leading && n.w.reach(i, n.w.nodeHost(n.id)) {
			claim = append(claim, i)
		}
	}
	if len(claim) == 0 {
		n.redial()
		return
	}
	i := claim[n.w.n(len(claim))]
	c, life := n.w.ctls[i], n.life
	s := &stream{w: n.w, a: i, b: n.w.nodeHost(n.id)}
	n.s, n.ctl, n.heardAny = s, i, n.w.now
	n.streams = append(n.streams, s)
	at := n.w.now
	s.took[0] = func(m any) {
		if h, ok := m.(*proto.Hello); ok && c.up {
			c.hello(s, n.id, h)
		}
	}
	cl := c.life
	s.stuck[0] = func() bool { return c.life == cl && c.stopped }
	s.took[1] = func(m any) { n.take(s, at, m) }
	s.stuck[1] = func() bool { return n.life == life && (n.stopped || !n.hostUp) }
	s.ended[1] = func() { n.drop(s) }
	hello := &proto.Hello{Node: n.name, BootID: fmt.Sprint("b", n.boot), Now: n.time(), LeaseS: nodeLimit,
		Leaving: n.leaving(), Uptime: n.w.now + 1}
	if n.w.bug(LateHello) {
		hello.Uptime = 0
	}
	if n.w.bug(SameBoot) {
		hello.BootID = "b"
	}
	for _, k := range n.keys() {
		if !n.attempts[k].unwanted {
			hello.Known = append(hello.Known, proto.Attempt{Job: k.Job, Attempt: k.Attempt})
		}
	}
	n.beats = append(n.beats, beatSent{hello.Now, at})
	s.send(0, through(n.w, hello))
	n.watch(s)
}

func (n *node) redial() {
	life := n.life
	n.w.after(n.w.between(150, 900), func() {
		if n.life == life {
			n.dial()
		}
	})
}

// watch leaves a leader that is silent, or that acknowledges nothing.
func (n *node) watch(s *stream) {
	life := n.life
	n.w.after(500, func() {
		if n.s != s || n.life != life {
			return
		}
		if n.runs() && (n.w.now-n.heardAny > silence || n.heard >= 0 && n.w.now-n.heard > nodeLimit*second/2 &&
			n.w.now-n.heardAny > 0 && n.w.chance(50)) {
			n.drop(s)
			return
		}
		n.watch(s)
	})
}

// drop ends the session.
func (n *node) drop(s *stream) {
	if n.s != s {
		return
	}
	s.close(1)
	n.s = nil
	n.redial()
}

// leaving lists attempts that were to be forgotten and still have processes.
func (n *node) leaving() []proto.Attempt {
	var out []proto.Attempt
	if n.w.bug(HideLeaving) {
		return nil
	}
	for _, k := range n.keys() {
		if n.attempts[k].unwanted {
			out = append(out, proto.Attempt{Job: k.Job, Attempt: k.Attempt})
		}
	}
	return out
}

// take handles a message of the leader.
func (n *node) take(s *stream, asked int64, m any) {
	if n.s != s {
		return
	}
	n.heardAny = n.w.now
	switch m := m.(type) {
	case *proto.Welcome:
		if m.Epoch < n.epoch && !n.w.bug(OldEpoch) {
			n.drop(s)
			return
		}
		n.epoch = max(n.epoch, m.Epoch)
		n.w.ledger.obeys(n, m.Epoch)
		n.forgetAll(m.Forget)
		n.acknowledged(asked)
		n.sentTo = 0
		n.sendReports()
		n.beat(s)
	case *proto.Orders:
		n.onOrders(s, m)
	case *proto.ReportAck:
		n.onAck(m.Seqs)
	}
}

func (n *node) onOrders(s *stream, o *proto.Orders) {
	if at := n.sentAt(o.Heard); at >= 0 && n.w.now-at > nodeLimit*second && !n.w.bug(LateOrders) {
		n.drop(s) // it may have been given up since
		return
	}
	if o.Empty() {
		return
	}
	if o.Epoch < n.epoch && !n.w.bug(OldEpoch) {
		n.drop(s)
		return
	}
	n.epoch = max(n.epoch, o.Epoch)
	if len(o.Launch)+len(o.Stop)+len(o.Forget) > 0 {
		n.w.ledger.obeys(n, o.Epoch)
	}
	n.forgetAll(o.Forget)
	for _, l := range o.Launch {
		n.onLaunch(l)
	}
	for _, st := range o.Stop {
		n.onStop(key{st.Job, st.Attempt})
	}
	if o.Sure != 0 {
		if at := n.sentAt(o.Sure); at >= 0 {
			n.acknowledged(at)
		}
	}
}

// sentAt is when what carried this moment of the node's clock was sent; -1: unknown.
func (n *node) sentAt(now model.Time) int64 {
	for _, b := range n.beats {
		if b.now == now && now != 0 {
			return b.at
		}
	}
	return -1
}

// acknowledged renews the lease from when the acknowledged word was sent.
func (n *node) acknowledged(at int64) {
	if at <= n.heard {
		return
	}
	n.heard = at
	n.setLease(at)
}

// beat sends heartbeats while the session lasts.
func (n *node) beat(s *stream) {
	if n.s != s {
		return
	}
	life := n.life
	if n.runs() {
		n.beatNow()
	}
	pace := min(int64(beatS*second), fence.Pace(nodeLimit*time.Second).Milliseconds())
	n.w.after(pace, func() {
		if n.life == life {
			n.beat(s)
		}
	})
}

func (n *node) beatNow() {
	if n.s == nil || !n.runs() {
		return
	}
	now := n.time()
	n.beats = append(n.beats, beatSent{now, n.w.now})
	if len(n.beats) > 32 {
		n.beats = n.beats[1:]
	}
	n.s.send(0, through(n.w, &proto.Heartbeat{Now: now, LeaseS: nodeLimit, Leaving: n.leaving()}))
}

// onLaunch accepts an attempt. A known one is never started again.
func (n *node) onLaunch(l *proto.Launch) {
	k := key{l.Job, l.Attempt}
	if a := n.attempts[k]; a != nil {
		switch {
		case a.unwanted:
		case a.phase == running:
			n.report(&proto.Report{Kind: proto.ReportStarted, Job: k.Job, Attempt: k.Attempt, At: n.time()})
		case a.phase == over:
			n.sentTo = 0
			n.sendReports()
		default:
			a.launch = l
			n.begin(a)
		}
		return
	}
	if n.gone[k] {
		return
	}
	a := &attempt{k: k, launch: l}
	n.attempts[k] = a
	n.begin(a)
}

// begin starts an accepted attempt when it is on the disk.
func (n *node) begin(a *attempt) {
	if a.starting {
		return
	}
	a.starting = true
	d := n.w.between(1, spoolMostMS)
	if !n.w.calm && n.w.chance(5) {
		d += n.w.between(0, 3*second) // the disk is slow
	}
	life := n.life
	n.w.after(d, func() {
		if n.life != life || n.attempts[a.k] != a || a.phase != accepted || !n.hostUp {
			return
		}
		n.w.later(func() bool { return n.life != life || n.mayStart() }, func() {
			if n.life == life && n.attempts[a.k] == a && a.phase == accepted && !a.unwanted {
				n.start(a)
			}
		})
	})
}

func (n *node) onStop(k key) {
	a := n.attempts[k]
	switch {
	case a == nil && n.gone[k]:
	case a == nil: // it was ended before it was launched
		n.attempts[k] = &attempt{k: k, phase: over}
		n.report(&proto.Report{Kind: proto.ReportEnded, Job: k.Job, Attempt: k.Attempt})
	case a.phase == over:
		n.sentTo = 0
		n.sendReports()
	case a.stopping:
	case a.phase == accepted:
		a.phase = over
		n.report(&proto.Report{Kind: proto.ReportEnded, Job: k.Job, Attempt: k.Attempt})
	default:
		a.stopping = true
		n.kill(a.proc, n.w.between(1, killWaitS*second), model.Exit{Signal: 15})
	}
}

func (n *node) forgetAll(list []proto.Attempt) {
	for _, f := range list {
		k := key{f.Job, f.Attempt}
		a := n.attempts[k]
		switch {
		case a == nil:
			n.gone[k] = true
		case a.unwanted, a.phase == over:
		case a.phase == accepted:
			delete(n.attempts, k)
			n.gone[k] = true
		default:
			a.unwanted = true
			n.dropReports(k)
			n.kill(a.proc, n.w.between(1, 2*second), model.Exit{Signal: 9})
		}
	}
}

func (n *node) dropReports(k key) {
	n.reports = slices.DeleteFunc(n.reports,
		func(r *proto.Report) bool { return r.Job == k.Job && r.Attempt == k.Attempt })
}

// report keeps a report until it is acknowledged.
func (n *node) report(r *proto.Report) {
	n.seq++
	r.Seq = n.seq
	if r.At == 0 {
		r.At = n.time()
	}
	n.reports = append(n.reports, r)
	n.sendReports()
}

func (n *node) sendReports() {
	if n.s == nil || !n.runs() {
		return
	}
	m := &proto.Reports{Now: n.time()}
	for _, r := range n.reports {
		if r.Seq > n.sentTo {
			m.Reports = append(m.Reports, r)
		}
	}
	if len(m.Reports) == 0 {
		return
	}
	n.sentTo = m.Reports[len(m.Reports)-1].Seq
	n.s.send(0, through(n.w, m))
}

func (n *node) onAck(seqs []uint64) {
	n.reports = slices.DeleteFunc(n.reports, func(r *proto.Report) bool {
		if !slices.Contains(seqs, r.Seq) {
			return false
		}
		if r.Kind == proto.ReportEnded {
			k := key{r.Job, r.Attempt}
			delete(n.attempts, k)
			n.gone[k] = true
			n.w.attemptsOf(k).told = !r.Exit.Unknown
		}
		return true
	})
}

// reaped takes the end of an attempt's process from gshim's journal.
func (n *node) reaped(a *attempt, p *process) {
	a.phase, a.proc = over, nil
	if a.unwanted {
		delete(n.attempts, a.k)
		n.gone[a.k] = true
		n.beatNow()
		return
	}
	n.report(&proto.Report{Kind: proto.ReportEnded, Job: a.k.Job, Attempt: a.k.Attempt, Exit: p.exit,
		At: p.at})
}

// crash is kill -9 of gnoded: processes and gshim go on.
func (n *node) crash() {
	n.w.tell("gnoded of %s dies", n.name)
	n.up, n.stopped = false, false
	n.life++
	if n.s != nil {
		n.s.close(1)
		n.s = nil
	}
	for _, k := range n.keys() {
		n.attempts[k].starting = false
	}
	if n.w.bug(NodeForgets) {
		n.attempts, n.gone, n.reports = map[key]*attempt{}, map[key]bool{}, nil
	}
}

// restart starts gnoded.
func (n *node) restart() {
	if n.up || !n.hostUp {
		return
	}
	n.up, n.stopped = true, false
	n.sentTo, n.heard = 0, -1
	n.readJournal()
	n.dial()
}

func (n *node) resume() {
	if !n.stopped {
		return
	}
	n.stopped = false
	n.readJournal()
	n.sendReports()
	n.dial()
}

// powerLoss ends everything on the host; the disk may lose its last writes.
func (n *node) powerLoss(lies bool) {
	n.w.tell("%s loses power; its disk has lost writes: %v", n.name, lies)
	n.crash()
	n.hostUp = false
	n.boot++
	for _, s := range n.streams {
		s.lostAt = n.w.now
	}
	n.streams = nil
	n.endAll()
	for _, k := range n.keys() {
		if n.attempts[k].phase != over || lies && n.w.chance(50) {
			delete(n.attempts, k)
			n.dropReports(k)
		}
	}
	if lies {
		n.epoch = 0
		n.gone = map[key]bool{}
	}
	n.lease = lease{}
}

func (n *node) powerOn() {
	n.hostUp = true
	n.seq += 1 << 32 // numbers of reports begin with the incarnation
	n.restart()
}
