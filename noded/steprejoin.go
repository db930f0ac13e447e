package noded

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/ports"
	"gbatch/noded/steplayout"
)

// steprejoin.go handles a step's command that comes back after a restart of gnoded or a lost connection: it gets its
// step, or the step's result. And it handles commands that want something of a step that runs, or beside the steps.

// rejoin gives a step back to its command, and sends all events so far.
func (l *loop) rejoin(s *step, m msgStep) error {
	if old := s.conn; old != nil {
		old.step = nil
		l.soon(old.close)
	}
	m.req.Ports = s.rec.Ports
	s.conn, s.req = m.conn, m.req
	s.stopTimer(timerLonely)
	if s.phase == stepCreated {
		l.setStepDeadline(s, l.stepPatienceOf(s))
	}
	s.send(l, s.created(l.n))
	for i := range s.tasks {
		s.tellTask(l, i)
	}
	for _, p := range s.parts {
		p.asked = false // by this connection
		for i := range p.tasks {
			p.tell(l, i)
		}
	}
	if s.done != nil { // it ended while the command was away
		s.send(l, s.done)
		return nil
	}
	m.conn.step = s
	for _, p := range s.parts {
		l.partHappens(p, pevAsk, partNews{})
	}
	return nil
}

// keepMissed keeps a step that ended while its command had no connection, for when it is back.
func (a *attempt) keepMissed(s *step, now time.Time) {
	if s.conn != nil || s.rec.RequestID == "" || s.rec.Manager != "" {
		return
	}
	s.missed = now
	a.missed = slices.DeleteFunc(a.missed, func(o *step) bool { return now.Sub(o.missed) > missedStep })
	if len(a.missed) == maxMissed {
		a.missed = a.missed[1:]
	}
	a.missed = append(a.missed, s)
}

// takeMissed gives such a step to its command.
func (a *attempt) takeMissed(request string, now time.Time) *step {
	for i, s := range a.missed {
		if s.rec.RequestID == request && now.Sub(s.missed) <= missedStep {
			a.missed = slices.Delete(a.missed, i, i+1)
			return s
		}
	}
	return nil
}

// asideNumber draws the number of a step that is none of the job's. It is drawn, because gshim starts no number twice,
// and an ended one is in no file.
func (a *attempt) asideNumber() int32 {
	for {
		id := proto.StepAside + rand.Int32N(proto.StepAside)
		if a.steps[id] == nil {
			return id
		}
	}
}

// hasShell reports whether the job has, had, or waits for its interactive step. gshim starts no number twice.
func (a *attempt) hasShell() bool {
	return a.shellMade || slices.ContainsFunc(a.queue, func(s *step) bool { return s.req.Interactive })
}

// numberStep gives a step that may have to wait its number, for a command that does not wait (--async). The journal
// knows the number as given.
func (l *loop) numberStep(s *step) error {
	a := s.job
	s.number = a.nextStep
	a.nextStep++
	return l.spool.add(recStepOver, &stepOver{Job: a.key.Job, Attempt: a.key.Attempt, ID: s.number}, false)
}

// attachTo answers gattach with a step's layout, and passes on to the step's command where its output is wanted.
func (l *loop) attachTo(a *attempt, m msgStep) error {
	rq := m.req
	s := a.steps[rq.Parent]
	at := relayAt(m.conn, rq.Attach.IO)
	switch {
	case s == nil || s.rec.Manager != "" || proto.IsAside(s.id) || s.phase >= stepEnding:
		l.refuseStep(m.conn, "Invalid job id specified: step %s does not run", proto.StepID(rq.Job, rq.Parent))
		return nil
	case at == nil:
	case s.conn == nil:
		l.refuseStep(m.conn, "The command of step %s has no connection to node %s at the moment; try again",
			proto.StepID(rq.Job, rq.Parent), l.n.opts.Name)
		return nil
	case at.Host == "" && s.conn.door: // it is on this host, and the step's command is not
		at.Host = ownAddress()
	case at.Host == "":
		at.Host = "127.0.0.1"
	}
	ev := &proto.StepEvent{Kind: proto.StepCreated, Step: s.id, Layout: s.rec.Nodes}
	l.soon(func() { m.conn.send(ev) })
	if at != nil {
		s.send(l, &proto.StepEvent{Kind: proto.StepJoined, Step: s.id, IO: at})
	}
	return nil
}

// onStepGone ends a step whose command is gone: nothing reads its output or waits for it any more.
func (l *loop) onStepGone(c *stepConn) error {
	s := c.step
	if s == nil || s.conn != c {
		return nil
	}
	s.conn, c.step = nil, nil
	if s.rec != nil && (c.door || c.part) { // its host's daemon may come back
		s.setTimer(l, timerLonely, lonelyStep)
		return nil
	}
	if s.rec == nil { // it was waiting
		s.job.queue = slices.DeleteFunc(s.job.queue, func(o *step) bool { return o == s })
		return nil
	}
	l.stopStep(s, model.StopCancel, s.job.rec.UID, false, "")
	return nil
}

// portsHeld gives the ports of the steps that this node has a part of, or manages.
func (l *loop) portsHeld() (held []model.TaskSet) {
	for _, a := range l.attempts {
		for _, s := range a.steps {
			if set, err := ports.Parse(s.rec.Ports); s.rec.Ports != "" && err == nil {
				held = append(held, set)
			}
		}
	}
	return held
}

// choosePorts gives a new step the ports that its command wants: a number, 0 for one more than a node has tasks.
func (l *loop) choosePorts(a *attempt, rq *proto.StepRequest, nodes []proto.StepNode) (string, error) {
	if rq.Ports == "" {
		return "", nil
	}
	n, err := strconv.ParseUint(rq.Ports, 10, 16)
	if err != nil {
		return "", fmt.Errorf("--resv-ports: '%s' is no number of ports", rq.Ports)
	}
	if n == 0 {
		for i := range nodes {
			n = max(n, uint64(len(nodes[i].Ranks))+1)
		}
	}
	_, all := l.n.mpi()
	list, err := ports.Choose(all, int(n), l.portsHeld(), rand.Int32N(max(1, all[1]-all[0]+1)))
	own := func(s *step) bool { return s.rec.Ports != "" }
	if errors.Is(err, ports.ErrHeld) && slices.ContainsFunc(slices.Collect(maps.Values(a.steps)), own) {
		return "", &steplayout.BusyError{Text: "--resv-ports: " + err.Error()}
	}
	return list, err
}

func (l *loop) step(key proto.Attempt, id int32) *step {
	if a := l.attempts[key]; a != nil {
		return a.steps[id]
	}
	return nil
}
