package noded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/crash"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/check"
	"gbatch/noded/shares"
)

// steppart.go is the manager's side of a step on several nodes: each other node has its part, over a connection that is
// made again as long as the step lives. A node answers a repeated request with what has happened, and keeps the end
// of its part until the manager has reported the step, so either daemon may be restarted at any time.

const (
	// partPatience is how long a node may be out of reach before its part of a step counts as lost.
	partPatience = 60 * time.Second
	// partFirst is the same for a node that has not answered yet: a step that can't begin should say so soon.
	partFirst = 15 * time.Second
	// partUnasked is the same while no controller says where the node is.
	partUnasked = 5 * time.Minute
	// partLast is the same when the job is being ended: the leader ends it on that node too, or has given the node up.
	partLast = 5 * time.Second
	// partSilent is how long a node is out of reach before the command is asked how its tasks have ended. A daemon that is
	// only restarted says it better: with what they have used.
	partSilent = 3 * time.Second
	partPace   = 200 * time.Millisecond // between two tries, doubling to partSlow
	partSlow   = 5 * time.Second
)

// part is another node's part of a step. It belongs to the loop. partstate.go has its state table.
type part struct {
	step     *step
	at       int // its index in rec.Nodes
	phase    partPhase
	conn     *stepConn // of partAsked and partTalking, and of partOver until the node may forget it; else nil
	tasks    []partTask
	files    *proto.StepFiles // for when it asks
	last     unix.Signal      // by which it is to end: SIGTERM, SIGKILL, or 0 while it may run
	use      *model.Exit
	tries    int
	since    time.Time     // since when it is out of reach
	patience time.Duration // how long it may be
	asked    bool          // the command has been asked how its tasks have ended
	gone     bool          // its node is none of the job's any more, and its tasks don't count
	given    bool          // the job has given its node up, and the step goes on without it
}

// partTask is one of its tasks.
type partTask struct {
	began bool
	pid   int32
	ended *proto.StepEvent
}

// The messages about parts.
type (
	msgPartUp struct { // connected, and asked
		p *part
		c *stepConn
	}
	msgPartEvent struct {
		p  *part
		c  *stepConn
		ev *proto.StepEvent
	}
	msgPartLost struct { // the connection has ended, or could not be made (c is nil)
		p   *part
		c   *stepConn
		err error
	}
	msgPartRetry struct{ p *part }
)

// makeParts sets up the parts of the nodes other than this one.
func (s *step) makeParts(node string) {
	for i := range s.rec.Nodes {
		if n := &s.rec.Nodes[i]; n.Node != node {
			p := &part{step: s, at: i, tasks: make([]partTask, len(n.Ranks)), patience: partFirst}
			if r := s.job.rec; r != nil && r.Order != nil && r.Order.Alloc.Place(n.Node) < 0 { // given up before a restart
				p.given, p.gone = true, s.rec.NoKill
			}
			s.parts = append(s.parts, p)
		}
	}
}

func (p *part) node() *proto.StepNode { return &p.step.rec.Nodes[p.at] }

// lives reports whether events of it may still come.
func (l *loop) lives(p *part) bool {
	s := p.step
	return p.phase != partOver && l.step(s.job.key, s.id) == s
}

// partNews is the data of a happening.
type partNews struct {
	c    *stepConn        // of pevUp
	ev   *proto.StepEvent // what the node says
	why  string
	lost bool // of pevGiveUp: the node is out of reach
}

// partHappens looks a happening up in the table of parts, and carries out its act.
func (l *loop) partHappens(p *part, e partHappening, in partNews) {
	c := partTable[p.phase][e]
	p.phase = c.next
	l.actPart(p, c.do, &in)
}

// actPart carries out an act of the table of parts.
func (l *loop) actPart(p *part, do partAct, in *partNews) {
	switch do {
	case partNothing:
	case partDial:
		l.callPart(p)
	case partGreet:
		if p.conn = in.c; p.last != 0 {
			p.sayEnd()
		}
	case partHangUp:
		if in.c != nil {
			in.c.close()
		} else {
			p.hangUp()
		}
	case partFiles:
		if p.patience = partPatience; p.files != nil {
			p.conn.put(proto.StepFrameFiles, p.files)
		}
	case partTell:
		p.patience = partPatience
		l.partTask(p, in.ev)
	case partEnds:
		p.use = in.ev.Use
		p.step.oom = p.step.oom || in.ev.OOM
		if in.ev.OOM && p.step.rec.OOMKill {
			l.stepHappens(p.step, sevKill, stepNews{})
		}
		p.failTasks(l) // its events of the other tasks came before
	case partRedial:
		p.hangUp()
		l.callPart(p)
	case partWait:
		p.hangUp()
		l.partAway(p, in.why)
	case partFails:
		p.hangUp()
		l.partFailed(p, in.why, in.lost)
	case partSayEnd:
		p.sayEnd()
	}
}

// hangUp closes its connection, if it has one.
func (p *part) hangUp() {
	if c := p.conn; c != nil {
		p.conn = nil
		c.close()
	}
}

// callPart asks a node for its part, or for the state of that part.
func (l *loop) callPart(p *part) {
	s := p.step
	m := &proto.StepPart{Job: s.rec.Job, Attempt: s.rec.Attempt, Step: s.id, Here: int32(p.at), Name: s.rec.Name,
		At: s.rec.At, Nodes: s.rec.Nodes, Request: s.req, Version: s.job.rec.Order.Version}
	l.soon(func() { go l.n.talkPart(p, p.node().Node, m) }) // it ends with the connection, which ends with this daemon
}

// talkPart is one connection to a part's node.
func (n *Noded) talkPart(p *part, node string, m *proto.StepPart) {
	ctx, cancel := context.WithTimeout(n.ctx, peerFirst)
	nc, err := n.peers.dial(ctx, node)
	cancel()
	if err != nil {
		n.inbox.post(msgPartLost{p: p, err: err})
		return
	}
	stop := context.AfterFunc(n.ctx, func() { _ = nc.Close() }) // ends the reader
	defer stop()
	c := newStepConn(nc, n.own, shares.Owner{Host: node})
	c.put(proto.StepFramePart, m)
	n.inbox.post(msgPartUp{p, c})
	written := make(chan struct{})
	go func() { // it ends with the connection
		defer close(written)
		c.write()
	}()
	err = n.readEvents(p, c)
	c.close()
	n.inbox.post(msgPartLost{p: p, c: c, err: err})
	<-written
	c.settle()
}

// readEvents reads a node's events of its part until the connection ends.
func (n *Noded) readEvents(p *part, c *stepConn) (err error) {
	defer func() {
		if crashed := crash.Recovered(recover()); crashed != nil {
			n.log.Error("an event of a step has failed, and the daemon goes on", "err", crashed)
			err = crashed
		}
	}()
	for {
		kind, body, paid, err := c.frame(plainLimit)
		if err != nil {
			return err
		}
		if kind != proto.StepFrameEvent {
			return fmt.Errorf("a message of kind %d", kind)
		}
		ev := new(proto.StepEvent)
		if err := c.decode(body, ev, nil); err != nil {
			return err
		}
		c.release(paid)
		if err := check.Event(ev); err != nil {
			return err
		}
		if !c.turn() {
			return net.ErrClosed
		}
		n.inbox.post(msgPartEvent{p, c, ev})
	}
}

// onPartUp is a connection that is made, with the request on its way.
func (l *loop) onPartUp(m msgPartUp) {
	if !l.lives(m.p) {
		m.c.close()
		return
	}
	l.partHappens(m.p, pevUp, partNews{c: m.c})
}

// partFiles tells the parts of their tasks' files.
func (l *loop) partFiles(s *step, m *msgStepFiles) {
	if len(s.parts) == 0 {
		return
	}
	files := &proto.StepFiles{IO: relayTo(m.conn, m.io), Het: m.het, PMI: relayTo(m.conn, m.pmi),
		X11: relayTo(m.conn, m.x11)}
	for _, f := range m.files {
		f.FDs = 0
		files.Files = append(files.Files, f)
	}
	for _, p := range s.parts {
		first := p.files == nil // a node that had some asks again if it needs them
		if p.files = files; first && p.phase == partTalking {
			p.conn.put(proto.StepFrameFiles, files)
		}
	}
}

// hasBegun reports whether tasks of the part have begun.
func (p *part) hasBegun() bool {
	return slices.ContainsFunc(p.tasks, func(t partTask) bool { return t.began })
}

// onPartEvent handles a node's event of its part.
func (l *loop) onPartEvent(m msgPartEvent) {
	p, ev := m.p, m.ev
	if !l.lives(p) || p.conn != m.c {
		return
	}
	switch {
	case ev.Kind != proto.StepRefused:
		p.since, p.tries, p.asked = time.Time{}, 0, false
	case ev.Code == proto.PartNotReady && p.last == 0 && !p.hasBegun():
		// It is there: its prolog takes its time, and the leader ends it.
		p.since = time.Time{}
	}
	switch ev.Kind {
	case proto.StepCreated:
		l.partHappens(p, pevReady, partNews{})
	case proto.StepRefused:
		l.partHappens(p, p.refusal(ev), partNews{why: ev.Text})
		return
	case proto.StepLine, proto.StepNote:
		p.step.send(l, ev)
	case proto.StepStarted, proto.StepExited:
		l.partHappens(p, pevTask, partNews{ev: ev})
	case proto.StepDone:
		l.partHappens(p, pevDone, partNews{ev: ev})
	}
	l.stepProgress(p.step)
}

// refusal gives the happening for a node that does not have its part, or refuses it.
func (p *part) refusal(ev *proto.StepEvent) partHappening {
	switch {
	case ev.Code == proto.PartNotReady:
		return pevNotReady
	case ev.Code != proto.PartUnknown:
		return pevRefused
	case p.last != 0:
		ev.Text = "it was not started"
		return pevUnbegun
	case p.step.req == nil:
		return pevOrphan // with the command's return it is asked again
	}
	return pevUnknown
}

// partTask records a task's event.
func (l *loop) partTask(p *part, ev *proto.StepEvent) {
	s := p.step
	for i, r := range p.node().Ranks {
		t := &p.tasks[i]
		if r != ev.Task || t.ended != nil {
			continue
		}
		if ev.Step, ev.Node = s.id, p.node().Node; ev.Kind == proto.StepExited {
			ev.Ended = l.bounded(ev.Ended, s.rec.At)
			if t.ended = ev; p.gone {
				ev.Code, ev.Signal, ev.Lost = 0, 0, true
			}
		} else if t.began {
			continue
		}
		t.began, t.pid = true, ev.PID
		l.stepBegins(s, l.bounded(ev.Began, s.rec.At))
		s.send(l, ev)
	}
}

// bounded gives another node's time as one from first until now, as its clock may differ; now if it did not give one,
// as those of earlier versions do.
func (l *loop) bounded(at, first model.Time) model.Time {
	if now := l.stamp(); at == 0 || at > now {
		return now
	}
	return max(at, first)
}

// tell sends the command a task's state.
func (p *part) tell(l *loop, i int) {
	t := &p.tasks[i]
	switch {
	case t.ended != nil:
		p.step.send(l, t.ended)
	case t.began:
		p.step.send(l, &proto.StepEvent{Kind: proto.StepStarted, Step: p.step.id, Task: p.node().Ranks[i],
			Node: p.node().Node, PID: t.pid})
	}
}

// onPartLost is a connection that has ended, or could not be made.
func (l *loop) onPartLost(m msgPartLost) {
	if p := m.p; l.lives(p) && m.c == p.conn {
		if p.conn = nil; errors.Is(m.err, errNoAddress) {
			p.patience = max(p.patience, partUnasked)
		}
		l.partHappens(p, pevLost, partNews{why: m.err.Error()})
	}
}

// partAway tries again, or gives the part up.
func (l *loop) partAway(p *part, why string) {
	now := l.now()
	if p.since.IsZero() {
		p.since = now
	}
	patience := p.patience
	if p.gone || p.given || p.step.job.doomed() || p.step.phase >= stepStopping {
		patience = partLast
	}
	if now.Sub(p.since) > patience {
		l.partHappens(p, pevGiveUp, partNews{why: fmt.Sprintf("node %s can't be reached: %s", p.node().Node, why),
			lost: true})
		return
	}
	if now.Sub(p.since) > partSilent && !p.asked {
		p.asked = true
		p.step.send(l, &proto.StepEvent{Kind: proto.StepAway, Step: p.step.id, Node: p.node().Node})
	}
	d := min(partPace<<min(p.tries, 10), partSlow)
	p.tries++
	time.AfterFunc(d, func() { l.n.inbox.post(msgPartRetry{p}) })
}

func (l *loop) onPartRetry(m msgPartRetry) {
	if l.lives(m.p) {
		l.partHappens(m.p, pevRetry, partNews{})
	}
}

// loseParts goes on without the tasks on nodes that the job does not have any more. What still runs of them is ended
// there. With --no-kill they do not count for the step's exit code; otherwise their signal does, as in Slurm.
func (l *loop) loseParts(s *step, alloc *model.Alloc) {
	for _, p := range s.parts {
		if alloc.Place(p.node().Node) < 0 && !p.gone && !p.given {
			p.gone, p.given = s.rec.NoKill, true
			l.endPart(p, false)
		}
	}
}

// partFailed gives up a part: its tasks have failed, and the step ends. If it was lost with its node, the step may go
// on without it.
func (l *loop) partFailed(p *part, why string, lost bool) {
	s := p.step
	if s.cause == model.NoStop && (p.given || s.rec.NoKill && (lost || p.gone)) {
		p.gone = s.rec.NoKill
		p.failTasks(l)
		l.stepBegins(s, l.stamp())
		l.stepProgress(s)
		return
	}
	if s.cause == model.NoStop {
		s.send(l, &proto.StepEvent{Kind: proto.StepLine, Text: fmt.Sprintf("slurmstepd: error: StepId=%s on node %s: %s",
			s.name(), p.node().Node, why)})
	}
	p.failTasks(l)
	if s.began == 0 {
		s.began = l.stamp()
	}
	l.stopStep(s, model.StopCancel, s.job.rec.UID, false, "")
	l.stepProgress(s)
}

// msgStepWords is what a command knows of the ends of tasks whose node is away.
type msgStepWords struct {
	conn *stepConn
	told *proto.StepWords
}

// onStepWords takes such words for the tasks of nodes that are out of reach: their relay, which runs as the job's user,
// has them from gshim. When all tasks of a part have ended, nothing of it is waited for any more. The node's daemon
// ends what is left there when it is back, and the step's record lacks what they have used there.
func (l *loop) onStepWords(m msgStepWords) {
	s := m.conn.step
	if s == nil || s.conn != m.conn {
		return
	}
	for _, w := range m.told.List {
		for _, p := range s.parts {
			if i := slices.Index(p.node().Ranks, w.Task); i >= 0 && p.asked && p.phase != partOver {
				l.partTask(p, &proto.StepEvent{Kind: proto.StepExited, Task: w.Task, Code: w.Code, Signal: w.Signal,
					PID: p.tasks[i].pid})
			}
		}
	}
	for _, p := range s.parts {
		if p.asked && p.phase != partOver && !slices.ContainsFunc(p.tasks, func(t partTask) bool { return t.ended == nil }) {
			l.partHappens(p, pevTold, partNews{})
		}
	}
	l.stepProgress(s)
}

// failTasks marks the tasks whose end is not known as failed.
func (p *part) failTasks(l *loop) {
	for i := range p.tasks {
		if t := &p.tasks[i]; t.ended == nil {
			t.ended = &proto.StepEvent{Kind: proto.StepExited, Step: p.step.id, Task: p.node().Ranks[i],
				Node: p.node().Node, Code: 1, Ended: l.stamp()}
			if p.gone {
				t.ended.Code, t.ended.Lost = 0, true
			}
			p.tell(l, i)
		}
	}
}

// endPart ends a part, by SIGKILL or with a SIGTERM first. A node that is out of reach gets the order when it is back.
func (l *loop) endPart(p *part, now bool) {
	switch {
	case now:
		p.last = unix.SIGKILL // each time: it is told again
	case p.last != 0:
		return
	default:
		p.last = unix.SIGTERM
	}
	l.partHappens(p, pevEnd, partNews{})
}

func (p *part) sayEnd() {
	sig := &proto.StepSignal{} // the node's own way to end a step
	if p.last == unix.SIGKILL {
		sig.Signal = int32(unix.SIGKILL)
	}
	p.conn.put(proto.StepFrameSignal, sig)
}

// signal passes a signal on.
func (p *part) signal(sig unix.Signal) {
	if p.phase == partAsked || p.phase == partTalking {
		p.conn.put(proto.StepFrameSignal, &proto.StepSignal{Signal: int32(sig)})
	}
}

// forget lets the node forget its part, whose end is in the spool.
func (p *part) forget() {
	if c := p.conn; c != nil {
		p.conn = nil
		c.put(proto.StepFrameForget, &proto.StepSignal{})
		c.close()
	}
}

// partsEnded reports whether nothing is left of the parts.
func (s *step) partsEnded() bool {
	for _, p := range s.parts {
		if p.phase != partOver {
			return false
		}
	}
	return true
}
