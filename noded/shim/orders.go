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
		s.dropPassed(&o.launch)
		if o.kind != kindLaunch { // gnoded sends a launch again that is missing after the reconnect
			c.done(o.seq, 0, errors.New("gshim is ending or replacing itself: connect again"))
		}
		return
	}
	mine := true // this function ends it
	defer func() {
		if mine {
			s.end()
		}
	}()
	later := func(f func()) {
		mine = false
		c.orders <- struct{}{}
		s.wg.Go(func() {
			defer func() { s.end(); <-c.orders }()
			s.guard(f, func(err error) { c.done(o.seq, 0, err) })
		})
	}
	switch o.kind {
	case kindLaunch:
		s.onLaunch(c, &o.launch)
	case kindSignal:
		later(func() {
			n, err := s.signal(o.key, unix.Signal(o.sig), o.scope)
			c.done(o.seq, n, err)
		})
	case kindList:
		c.done(o.seq, s.list(c, o.seq), nil)
	case kindAck:
		n, err := s.ack(o.keys)
		c.done(o.seq, n, err)
	case kindLease:
		s.setLease(&o.lease)
		c.done(o.seq, 0, nil)
	case kindPing:
		c.done(o.seq, 0, nil)
	case kindShutdown:
		s.mu.Lock()
		err := s.idle()
		s.closing = s.closing || err == nil
		s.mu.Unlock()
		c.done(o.seq, 0, err)
		mine = false
		s.end()
		if err == nil {
			s.log.Info("shutting down, as ordered")
			c.drain()
			s.stop()
		}
	case kindUpgrade:
		// An upgrade is not counted: it waits for the orders that are.
		mine = false
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
		s.dropPassed(l)
		return
	}
	// The gnoded that sent it is dead. The next one may have sent it again, and have taken its end already.
	if c.hungUp() {
		s.mu.Unlock()
		s.dropPassed(l)
		return
	}
	if len(s.entries) >= maxEntries {
		s.mu.Unlock()
		s.dropPassed(l)
		err := refuse(StageOrder, "gshim already keeps %d launches that run or whose end nobody has acknowledged", maxEntries)
		c.events(0, []Event{failedEvent(l.Key, err)})
		return
	}
	if s.closers.late(l.UID) {
		s.log.Warn("a launch waits until files of earlier ones are closed: who serves them hangs", "job", l.Key.JobID, "step",
			l.Key.Step, "user", l.UID)
	}
	e := &entry{key: l.Key, uid: l.UID, cgroup: l.Cgroup, settled: make(chan struct{})}
	s.entries[l.Key] = e
	s.launching[e] = struct{}{}
	s.inHand++
	if s.lease.idle {
		s.leaseChanged()
	}
	s.mu.Unlock()
	s.launchers.do(l.UID, func() {
		defer s.end()
		s.guard(func() { s.launch(e, l) }, func(err error) { s.launchCrashed(e, err) })
	}, func() {
		s.log.Warn("a launch hangs between fork and exec; its files, directory or program may be on a dead file server",
			"job", l.Key.JobID, "attempt", l.Key.Attempt, "step", l.Key.Step)
		s.wg.Go(func() { s.unstop(e) })
	})
}

// launchCrashed ends a launch whose own goroutine has crashed: it has failed, unless its process is there.
func (s *server) launchCrashed(e *entry, err error) {
	s.mu.Lock()
	under := e.state == starting && s.launchingNow(e) && (e.child == nil || e.child.childTID() == 0)
	s.mu.Unlock()
	if under {
		s.launched(e, Event{}, refuse(StageOrder, "%w", err))
	}
}

// launchingNow reports whether nothing of the launch's result is known. Callers hold mu.
func (s *server) launchingNow(e *entry) bool {
	_, is := s.launching[e]
	return is
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
