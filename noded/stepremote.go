package noded

import (
	"net"

	"gbatch/internal/proto"
	"gbatch/noded/ports"
)

// stepremote.go is a node's own side of a step that another node manages: the part is a step like any other, with its
// group, its tasks and their ends, except that its command is the manager, and a relay carries its tasks' input and
// output (stepbeside.go).

type (
	msgPart struct { // the manager asks for this node's part, or for word of it
		conn *stepConn
		part *proto.StepPart
	}
	msgPartForget struct{ conn *stepConn } // the manager has the part's end written down
)

// onPart accepts a part, or sends the events of a known one.
func (l *loop) onPart(m msgPart) error {
	pt := m.part
	refuse := func(code int32, format string, args ...any) error {
		l.refusePart(m.conn, code, format, args...)
		return nil
	}
	key := proto.Attempt{Job: pt.Job, Attempt: pt.Attempt}
	a := l.attempts[key]
	switch {
	case a == nil && l.gone.has(key):
		return refuse(proto.PartRefused, "job %d has ended there", pt.Job)
	case a == nil || a.rec == nil || a.rec.Order == nil || a.phase < ready:
		return refuse(proto.PartNotReady, "job %d has not been prepared there yet", pt.Job)
	case a.rec.Order.Alloc.Nodes[0].Node != m.conn.from || pt.Nodes[pt.Here].Node != l.n.opts.Name:
		return refuse(proto.PartRefused, "node %s does not manage the steps of job %d", m.conn.from, pt.Job)
	}
	if s := a.steps[pt.Step]; s != nil {
		return l.rejoinPart(s, m)
	}
	switch {
	case a.doomed():
		return refuse(proto.PartRefused, "job %d ends there", pt.Job)
	case pt.Request == nil:
		return refuse(proto.PartUnknown, "the step has not begun there")
	case len(a.steps) >= maxSteps:
		return refuse(proto.PartRefused, "%d steps of job %d run there already", maxSteps, pt.Job)
	case a.rec.Order.Alloc.Place(l.n.opts.Name) < 0,
		pt.Version == a.rec.Order.Version && int(pt.Nodes[pt.Here].Index) != a.rec.Order.Alloc.Place(l.n.opts.Name):
		return refuse(proto.PartRefused, "the step's place on the node is not the job's")
	case pt.Version > a.rec.Order.Version:
		return refuse(proto.PartNotReady, "the node has not been told of the present nodes of job %d yet", pt.Job)
	}
	if mine, err := ports.Parse(pt.Request.Ports); pt.Request.Ports != "" {
		if clash := ports.Clash(mine, l.portsHeld()); err != nil || clash != 0 {
			return refuse(proto.PartRefused, "port %d (--resv-ports) is held by another job's step there: try again", clash)
		}
	}
	s := &step{job: a, req: pt.Request, conn: m.conn, id: pt.Step, phase: stepCreated}
	s.rec = &placedStep{Job: pt.Job, Attempt: pt.Attempt, ID: pt.Step, Name: pt.Name, At: pt.At, Nodes: pt.Nodes,
		Manager: m.conn.from, Terminal: pt.Request.Terminal != nil, Container: pt.Request.Container.Shown(),
		Ports: pt.Request.Ports, Waits: true}
	switch err := l.addStep(s); {
	case tooLarge(err):
		return refuse(proto.PartRefused, "node %s can't keep the step's data: %v", l.n.opts.Name, err)
	case err != nil:
		return err
	}
	m.conn.step = s
	s.send(l, &proto.StepEvent{Kind: proto.StepCreated, Step: s.id})
	return nil
}

// rejoinPart gives a part back to its manager, and sends all events so far.
func (l *loop) rejoinPart(s *step, m msgPart) error {
	if old := s.conn; old != nil {
		old.step = nil
		l.soon(old.close)
	}
	s.conn, m.conn.step = m.conn, s
	if m.part.Request != nil {
		s.req = m.part.Request
	}
	s.stopTimer(timerLonely)
	for i := range s.tasks {
		s.tellTask(l, i)
	}
	switch {
	case s.phase == stepOverHere:
		s.tellOver(l)
	case s.req == nil && !s.allBegan():
		s.send(l, &proto.StepEvent{Kind: proto.StepRefused, Code: proto.PartUnknown, Text: "some tasks have not begun there"})
	case !s.allBegan() && s.phase != stepPreparing && s.phase != stepUnmaking:
		if s.phase == stepCreated {
			l.setStepDeadline(s, filesWait)
		}
		s.send(l, &proto.StepEvent{Kind: proto.StepCreated, Step: s.id})
	}
	return nil
}

// allBegan reports whether no task waits for its files.
func (s *step) allBegan() bool {
	for i := range s.tasks {
		if t := &s.tasks[i]; !t.began && t.ended == nil && t.order == nil {
			return false
		}
	}
	return true
}

// partCleared keeps the end of this node's part until the manager has it.
func (l *loop) partCleared(s *step, m *msgStepCleared) error {
	s.final = &l.stepReport(s, m.use, m.seen).Step.Exit
	s.used = s.final.Use
	s.tellOver(l)
	if s.job.doomed() {
		return l.overStep(s)
	}
	return nil
}

func (s *step) tellOver(l *loop) {
	s.send(l, &proto.StepEvent{Kind: proto.StepDone, Step: s.id, OOM: s.oom, Use: s.final})
}

func (l *loop) onPartForget(m msgPartForget) error {
	s := m.conn.step
	if s == nil || s.phase != stepOverHere {
		return nil
	}
	return l.overStep(s)
}

// relayTo is the command's address for the other nodes, as seen from here; "" if that is this host.
func relayTo(c *stepConn, io *proto.StepIO) *proto.StepIO {
	if io == nil {
		return nil
	}
	at := &proto.StepIO{Port: io.Port, Key: io.Key, PMIx: io.PMIx, Nodes: io.Nodes}
	if ip := net.ParseIP(c.host); ip != nil && !ip.IsLoopback() {
		at.Host = c.host
	}
	return at
}

// relayAt is the command's address for this node's own relay; nil if there is none.
func relayAt(c *stepConn, io *proto.StepIO) *proto.StepIO {
	if io == nil {
		return nil
	}
	at := *io
	if at.Host == "" {
		at.Host = c.host
	}
	return &at
}
