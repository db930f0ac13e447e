package noded

import (
	"slices"
	"time"
)

// steprejoin.go handles a step's command that comes back after a restart of gnoded or a lost connection: it gets its
// step, or the step's result.

// rejoin gives a step back to its command, and sends all events so far.
func (l *loop) rejoin(s *step, m msgStep) error {
	if old := s.conn; old != nil {
		old.step = nil
		l.soon(old.close)
	}
	s.conn, s.req = m.conn, m.req
	s.stopTimer(timerLonely)
	if s.phase == stepCreated {
		l.setStepDeadline(s, filesWait)
	}
	s.send(l, s.created(l.n))
	for i := range s.tasks {
		s.tellTask(l, i)
	}
	for _, p := range s.parts {
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
