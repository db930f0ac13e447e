//go:build linux && (amd64 || arm64)

package shim

// orders.go carries out each order of a client. Launches, signals and upgrades go on in goroutines of their own;
// everything else is done at once.

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// begin counts an order; it returns false if gshim no longer takes orders.
func (s *server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.paused && !s.closing {
		s.gate.Wait()
	}
	if s.closing {
		return false
	}
	s.inHand++
	return true
}

func (s *server) end() {
	s.mu.Lock()
	s.inHand--
	s.mu.Unlock()
}

// handle carries out one order and answers on c. It is called in the order of arrival; long work goes on in a
// goroutine.
func (s *server) handle(c *conn, o *order) {
	if !s.begin() {
		o.launch.closePassed()
		if o.kind != kindLaunch { // gnoded sends a launch again that is missing after the reconnect
			c.done(o.seq, 0, errors.New("gshim is ending or replacing itself: connect again"))
		}
		return
	}
	later := func(f func()) {
		c.orders <- struct{}{}
		s.wg.Go(func() {
			defer func() { s.end(); <-c.orders }()
			f()
		})
	}
	switch o.kind {
	case kindLaunch:
		s.onLaunch(c, &o.launch)
		s.end()
	case kindSignal:
		later(func() {
			n, err := s.signal(o.key, unix.Signal(o.sig), o.scope)
			c.done(o.seq, n, err)
		})
	case kindList:
		c.done(o.seq, s.list(c, o.seq), nil)
		s.end()
	case kindAck:
		n, err := s.ack(o.keys)
		c.done(o.seq, n, err)
		s.end()
	case kindLease:
		c.done(o.seq, 0, s.setLease(&o.lease))
		s.end()
	case kindPing:
		c.done(o.seq, 0, nil)
		s.end()
	case kindShutdown:
		s.mu.Lock()
		err := s.idle()
		s.closing = s.closing || err == nil
		s.mu.Unlock()
		c.done(o.seq, 0, err)
		s.end()
		if err == nil {
			s.log.Info("shutting down, as ordered")
			c.drain()
			s.stop()
		}
	case kindUpgrade:
		// An upgrade is not counted: it waits for the orders that are.
		s.end()
		s.wg.Go(func() { s.upgrade(c, o.seq, o.path) })
	}
}

// onLaunch starts a launch, or repeats its newest event if the key is known.
func (s *server) onLaunch(c *conn, l *Launch) {
	s.mu.Lock()
	if e := s.entries[l.Key]; e != nil {
		if e.event.Kind != 0 {
			c.events(0, []Event{e.event})
		}
		s.mu.Unlock()
		l.closePassed()
		return
	}
	// The gnoded that sent it is dead. The next one may have sent it again, and have taken its end already.
	if c.hungUp() {
		s.mu.Unlock()
		l.closePassed()
		return
	}
	if len(s.entries) >= maxEntries {
		s.mu.Unlock()
		l.closePassed()
		err := refuse(StageOrder, "gshim already keeps %d launches that run or whose end nobody has acknowledged", maxEntries)
		c.events(0, []Event{failedEvent(l.Key, err)})
		return
	}
	e := &entry{key: l.Key, cgroup: l.Cgroup, settled: make(chan struct{})}
	s.entries[l.Key] = e
	s.launching[e] = struct{}{}
	s.inHand++
	if s.lease.idle {
		s.leaseChanged()
	}
	s.mu.Unlock()
	s.launchers.do(func() {
		defer s.end()
		s.launch(e, l)
	}, func() {
		s.log.Warn("a launch hangs between fork and exec; its files, directory or program may be on a dead file server",
			"job", l.Key.JobID, "attempt", l.Key.Attempt, "step", l.Key.Step)
	})
}

// list queues the newest event of every launch for c; from then on c gets every new event.
func (s *server) list(c *conn, seq uint64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Event
	for _, e := range s.entries {
		if e.event.Kind != 0 {
			all = append(all, e.event)
		}
	}
	slices.SortFunc(all, func(a, b Event) int { return compareKeys(a.Key, b.Key) })
	for part := range slices.Chunk(all, eventsPerFrame) {
		c.events(seq, part)
	}
	c.subscribed = true
	return len(all)
}

// ack forgets launches whose last event was reported. Unknown keys are no error, because an Ack can be repeated.
func (s *server) ack(keys []Key) (int, error) {
	var gone []Key
	var early []Key
	s.mu.Lock()
	for _, k := range keys {
		switch e := s.entries[k]; {
		case e == nil:
		case e.state != done:
			early = append(early, k)
		default:
			delete(s.entries, k)
			gone = append(gone, k)
		}
	}
	s.mu.Unlock()
	var err error
	if len(gone) > 0 {
		s.jmu.Lock()
		err = s.journal.add(&record{kind: recAcked, keys: gone})
		s.jmu.Unlock()
	}
	if len(early) > 0 {
		err = errors.Join(err, fmt.Errorf("%v has not ended, so its end can't be acknowledged (and %d more)", early[0],
			len(early)-1))
	}
	return len(gone), err
}
