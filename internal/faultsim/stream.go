package faultsim

// stream is a connection between a controller and a node. It keeps the order of its messages. While it can't deliver,
// because the network is cut or the receiver is stopped, messages wait; a sender learns that the other side has gone
// only when it can be reached, or after its patience.
type stream struct {
	w      *World
	a, b   int // hosts: of the controller, and of the node
	way    [2]way
	closed bool
	took   [2]func(any) // who gets the messages to side 0 (the controller) and 1 (the node)
	stuck  [2]func() bool
	ended  [2]func() // the connection has ended, as this side sees it
	cutAt  int64     // since when it is cut; 0: it isn't
	lostAt int64     // when the node's host lost power: what had not arrived by then never does; 0: it did not
}

type way struct {
	queue   []letter
	pumping bool
}

type letter struct {
	ready int64
	body  any // nil: the end
}

const (
	tcpPatience = 15 * second // TCP_USER_TIMEOUT
	retransmit  = 150
)

// send sends a message to a side.
func (s *stream) send(side int, body any) {
	if s.closed {
		return
	}
	d := s.w.latency()
	if !s.w.calm && s.w.chance(3) {
		d += s.w.between(50, 4*second) // the network's queues are full
	}
	q := &s.way[side]
	ready := s.w.now + d
	if n := len(q.queue); n > 0 {
		ready = max(ready, q.queue[n-1].ready)
	}
	q.queue = append(q.queue, letter{ready, body})
	s.pump(side)
}

func (s *stream) pump(side int) {
	q := &s.way[side]
	if q.pumping || len(q.queue) == 0 {
		return
	}
	q.pumping = true
	s.w.after(q.queue[0].ready-s.w.now, func() { s.deliver(side) })
}

func (s *stream) deliver(side int) {
	q := &s.way[side]
	q.pumping = false
	if s.took[side] == nil || len(q.queue) == 0 {
		q.queue = nil
		return // nobody is there any more
	}
	switch {
	case !s.w.reach(s.a, s.b):
		if s.cutAt == 0 {
			s.cutAt = s.w.now
		}
		if s.w.now-s.cutAt > tcpPatience {
			s.end(1 - side) // the sender's kernel gives up
			q.queue = nil
			return
		}
		fallthrough
	case s.stuck[side] != nil && s.stuck[side]():
		q.pumping = true
		s.w.after(retransmit, func() { s.deliver(side) })
		return
	}
	s.cutAt = 0
	l := q.queue[0]
	q.queue = q.queue[1:]
	if side == 0 && s.lostAt != 0 && l.ready > s.lostAt {
		q.queue = nil
		return
	}
	if l.body == nil {
		q.queue = nil
		s.end(side)
		return
	}
	s.took[side](l.body)
	s.pump(side)
}

// end tells a side that the connection has ended.
func (s *stream) end(side int) {
	f := s.ended[side]
	s.took[side], s.ended[side] = nil, nil
	if f != nil {
		f()
	}
}

// close ends the connection from one side; the other one learns of it when it has read the rest.
func (s *stream) close(side int) {
	if s.took[side] == nil && s.closed {
		return
	}
	s.took[side], s.ended[side] = nil, nil
	if !s.closed {
		s.send(1-side, nil)
	}
	s.closed = true
}
