package noded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// steppart.go is the manager's side of a step on several nodes: each other node has its part, over a connection that is
// made again as long as the step lives. A node answers a repeated request with what has happened, and keeps the end
// of its part until the manager has reported the step, so either daemon may be restarted at any time.

const (
	// partPatience is how long a node may be out of reach before its part of a step counts as lost.
	partPatience = 60 * time.Second
	// partFirst is the same for a node that has not answered yet: a step that can't begin should say so soon.
	partFirst = 15 * time.Second
	// partLast is the same when the job is being ended: the leader ends it on that node too, or has given the node up.
	partLast = 5 * time.Second
	partPace = 200 * time.Millisecond // between two tries, doubling to partSlow
	partSlow = 5 * time.Second
)

// part is another node's part of a step. It belongs to the loop.
type part struct {
	step    *step
	at      int       // its place in rec.Nodes
	conn    *stepConn // nil: none
	dialing bool
	heard   bool // it has answered
	tasks   []partTask
	files   *proto.StepFiles // for when it asks
	stop    bool             // it is to end
	kill    bool             // at once
	done    bool
	use     *model.Exit
	tries   int
	since   time.Time // since when it is out of reach
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
			s.parts = append(s.parts, &part{step: s, at: i, tasks: make([]partTask, len(n.Ranks))})
		}
	}
}

func (p *part) node() *proto.StepNode { return &p.step.rec.Nodes[p.at] }

// lives reports whether there is still something to hear of it.
func (l *loop) lives(p *part) bool {
	s := p.step
	return !p.done && l.step(s.job.key, s.id) == s
}

// startPart asks a node for its part, or for word of it.
func (l *loop) startPart(p *part) {
	s := p.step
	p.dialing = true
	m := &proto.StepPart{Job: s.rec.Job, Attempt: s.rec.Attempt, Step: s.id, Here: int32(p.at), Name: s.rec.Name,
		At: s.rec.At, Nodes: s.rec.Nodes, Request: s.req}
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
	c := newStepConn(nc)
	c.put(proto.StepFramePart, m)
	n.inbox.post(msgPartUp{p, c})
	go c.write()
	err = readEvents(nc, func(ev *proto.StepEvent) { n.inbox.post(msgPartEvent{p, c, ev}) })
	c.close()
	n.inbox.post(msgPartLost{p: p, c: c, err: err})
}

// readEvents takes what a node says of its part until the connection ends.
func readEvents(nc net.Conn, each func(*proto.StepEvent)) error {
	for {
		kind, body, err := readStepFrame(nc)
		if err != nil {
			return err
		}
		if kind != proto.StepFrameEvent {
			return fmt.Errorf("a message of kind %d", kind)
		}
		ev := new(proto.StepEvent)
		if err := proto.Decode(body, ev); err != nil {
			return err
		}
		each(ev)
	}
}

func (l *loop) onPartUp(m msgPartUp) {
	p := m.p
	if !l.lives(p) {
		m.c.close()
		return
	}
	p.conn, p.dialing = m.c, false
	if p.stop || p.kill {
		p.sayEnd()
	}
}

// partFiles tells the parts of their tasks' files.
func (l *loop) partFiles(s *step, m *msgStepFiles) {
	if len(s.parts) == 0 {
		return
	}
	files := &proto.StepFiles{IO: relayTo(m.conn, m.io)}
	for _, f := range m.files {
		f.FDs = 0
		files.Files = append(files.Files, f)
	}
	for _, p := range s.parts {
		if p.files != nil && p.heard && p.conn != nil { // it has them, or asks again
			p.files = files
			continue
		}
		p.files = files
		if p.conn != nil && p.heard {
			p.conn.put(proto.StepFrameFiles, files)
		}
	}
}

// onPartEvent takes a node's word about its part.
func (l *loop) onPartEvent(m msgPartEvent) error {
	p, ev := m.p, m.ev
	if !l.lives(p) || p.conn != m.c {
		return nil
	}
	s := p.step
	if ev.Kind != proto.StepRefused {
		p.since, p.tries = time.Time{}, 0
	}
	switch ev.Kind {
	case proto.StepCreated:
		if p.heard = true; p.files != nil {
			p.conn.put(proto.StepFrameFiles, p.files)
		}
	case proto.StepRefused:
		return l.partRefused(p, ev)
	case proto.StepLine, proto.StepNote:
		s.send(l, ev)
	case proto.StepStarted, proto.StepExited:
		p.heard = true
		l.partTask(p, ev)
	case proto.StepDone:
		p.heard, p.done, p.use = true, true, ev.Use
		s.oom = s.oom || ev.OOM
		for i := range p.tasks { // its word about them comes before
			if t := &p.tasks[i]; t.ended == nil {
				t.ended = &proto.StepEvent{Kind: proto.StepExited, Step: s.id, Task: p.node().Ranks[i],
					Node: p.node().Node, Code: 1}
				p.tell(l, i)
			}
		}
	}
	l.stepProgress(s)
	return nil
}

// partTask takes note of a task.
func (l *loop) partTask(p *part, ev *proto.StepEvent) {
	s := p.step
	for i, r := range p.node().Ranks {
		t := &p.tasks[i]
		if r != ev.Task || t.ended != nil {
			continue
		}
		if ev.Step, ev.Node = s.id, p.node().Node; ev.Kind == proto.StepExited {
			t.ended = ev
		} else if t.began {
			continue
		}
		if t.began, t.pid = true, ev.PID; s.began == 0 {
			s.began = l.stamp()
		}
		s.send(l, ev)
	}
}

// tell tells the command how a task is.
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

// partRefused is a node that has not got its part, or won't take it.
func (l *loop) partRefused(p *part, ev *proto.StepEvent) error {
	c := p.conn
	p.conn = nil
	c.close()
	switch {
	case ev.Code == proto.PartNotReady:
		return l.partAway(p, errors.New(ev.Text))
	case ev.Code == proto.PartUnknown && p.stop:
		l.partOver(p, "it was not started")
	case ev.Code == proto.PartUnknown && p.step.req != nil:
		l.startPart(p)
	case ev.Code == proto.PartUnknown: // with the command's return it is asked again
	default:
		l.partOver(p, ev.Text)
	}
	return nil
}

// onPartLost is a connection that has ended.
func (l *loop) onPartLost(m msgPartLost) error {
	p := m.p
	if !l.lives(p) || m.c != p.conn {
		return nil
	}
	p.conn, p.dialing = nil, false
	return l.partAway(p, m.err)
}

// partAway tries again, or gives the part up.
func (l *loop) partAway(p *part, why error) error {
	now := l.now()
	if p.since.IsZero() {
		p.since = now
	}
	patience := partPatience
	switch {
	case p.step.job.doomed() || p.step.phase >= stepStopping:
		patience = partLast
	case !p.heard:
		patience = partFirst
	}
	if now.Sub(p.since) > patience {
		l.partOver(p, fmt.Sprintf("node %s can't be reached: %v", p.node().Node, why))
		return nil
	}
	d := min(partPace<<min(p.tries, 10), partSlow)
	p.tries++
	time.AfterFunc(d, func() { l.n.inbox.post(msgPartRetry{p}) })
	return nil
}

func (l *loop) onPartRetry(m msgPartRetry) {
	if p := m.p; l.lives(p) && p.conn == nil && !p.dialing {
		l.startPart(p)
	}
}

// partOver gives up a part: its tasks have failed, and the step ends.
func (l *loop) partOver(p *part, why string) {
	s := p.step
	p.done = true
	if s.cause == model.NoStop {
		s.send(l, &proto.StepEvent{Kind: proto.StepLine,
			Text: fmt.Sprintf("slurmstepd: error: StepId=%d.%d on node %s: %s", s.rec.Job, s.id, p.node().Node, why)})
	}
	for i := range p.tasks {
		if t := &p.tasks[i]; t.ended == nil {
			t.ended = &proto.StepEvent{Kind: proto.StepExited, Step: s.id, Task: p.node().Ranks[i], Node: p.node().Node, Code: 1}
			p.tell(l, i)
		}
	}
	if s.began == 0 {
		s.began = l.stamp()
	}
	l.stopStep(s, model.StopCancel, s.job.rec.UID, false, "")
	l.stepProgress(s)
}

// endPart has a part end, at once or with a SIGTERM first. A node out of reach hears of it when it is back.
func (l *loop) endPart(p *part, now bool) {
	if p.done || p.stop && !now {
		return
	}
	p.stop, p.kill = true, p.kill || now
	p.sayEnd()
	if p.conn == nil && !p.dialing && p.since.IsZero() {
		l.startPart(p)
	}
}

func (p *part) sayEnd() {
	if p.conn == nil {
		return
	}
	sig := &proto.StepSignal{}
	if p.kill {
		sig.Signal = int32(unix.SIGKILL)
	}
	p.conn.put(proto.StepFrameSignal, sig)
}

// signal passes a signal on.
func (p *part) signal(sig unix.Signal) {
	if p.conn != nil && !p.done {
		p.conn.put(proto.StepFrameSignal, &proto.StepSignal{Signal: int32(sig)})
	}
}

// forget lets the node forget its part, whose end is written down.
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
		if !p.done {
			return false
		}
	}
	return true
}
