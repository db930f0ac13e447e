package rpc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// alive.go notices a peer that has fallen silent without ending its connection: its process is stopped, it hangs, or
// its host is off the network. TCP's own limits are of no use: a stopped process's kernel acknowledges everything.
//
// While a Mux has requests under way, it sends a beat every beatEvery. The server's
// connection loop answers it, not a handler, so a daemon that is busy answers too. Every byte that arrives is a sign of
// life, such as a part of a long answer. A server of an older version answers a beat with an error, which is as good.
//
// A command's connection has one request at a time, and the server does not read meanwhile. There the sign of life is
// the preface on a second connection (Probe).

// KindBeat is the kind of a Mux's question whether the server is there. internal/proto's kinds begin after it.
const KindBeat uint16 = 0

const (
	// SilentAfter is how long a peer with requests under way may send nothing before its connection is closed.
	SilentAfter = 2 * time.Second

	firstBeat    = 100 * time.Millisecond // most requests are answered by then
	beatEvery    = 400 * time.Millisecond
	quietAfter   = 700 * time.Millisecond // until ConnOptions.Quiet is called
	suspectAfter = 300 * time.Millisecond // SilentAfter for a peer that Suspect was called for
	suspectEvery = 50 * time.Millisecond

	probeFirst = time.Second      // until a command asks whether its daemon is there
	probeMost  = 10 * time.Second // between two such questions
)

// ErrSilent says that the connection was closed because its peer sent nothing for SilentAfter. It is an ErrLost.
var ErrSilent = fmt.Errorf("%w: it does not answer any more", ErrLost)

// Suspect shortens the patience with the peer until it gives a sign of life: there is news that it has failed.
func (m *Mux) Suspect() {
	select {
	case m.suspected <- struct{}{}:
	default: // it is already
	}
}

// Retire closes the connection when its requests have ended, after limit, or with ctx, and returns then. The peer is
// suspected (see Suspect). No request may be made after it.
func (m *Mux) Retire(ctx context.Context, limit time.Duration) {
	m.Suspect()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
wait:
	for range cap(m.slots) { // with all slots taken, no request is under way
		select {
		case m.slots <- struct{}{}:
		case <-ctx.Done():
			break wait
		case <-m.over:
			break wait
		}
	}
	_ = m.Close() // it was given up
}

// wake tells watch that a request is under way.
func (m *Mux) wake() {
	select {
	case m.asked <- struct{}{}:
	default: // it knows
	}
}

func (m *Mux) busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.calls) > 0
}

// watch ends the connection when its peer has fallen silent.
func (m *Mux) watch() {
	defer m.own.Done()
	for {
		select {
		case <-m.asked:
		case <-m.over:
			return
		}
		if !m.watchBusy() {
			return
		}
	}
}

// watchBusy is watch while requests are under way. False: the connection has ended.
func (m *Mux) watchBusy() bool {
	looked := time.Now()
	heard, arrived := looked, m.c.arrived.Load()
	pace, limit := firstBeat, SilentAfter
	timer := time.NewTimer(pace)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-m.suspected:
			pace, limit = suspectEvery, suspectAfter
			heard, arrived = time.Now(), m.c.arrived.Load() // what came before the news counts no more
		case <-m.over:
			return false
		}
		if !m.busy() {
			return true
		}
		now := time.Now()
		if now.Sub(looked) > pace+quietAfter {
			heard = now // this process stood still: what the peer sent meanwhile is not read yet
		}
		looked = now
		if n := m.c.arrived.Load(); n != arrived {
			arrived, heard, pace, limit = n, now, beatEvery, SilentAfter
		} else if pace == firstBeat {
			pace = beatEvery
		}
		silent := now.Sub(heard)
		if silent >= limit {
			m.end(fmt.Errorf("%s: %w (for %v)", m.c.Name(), ErrSilent, silent.Round(time.Millisecond)))
			_ = m.c.Close() // it may wait a while for a peer that reads nothing; the requests have ended
			return false
		}
		if silent >= quietAfter && m.c.quiet != nil {
			m.c.quiet()
		}
		select {
		case m.beats <- struct{}{}:
		default: // the one before is not yet sent
		}
		timer.Reset(pace)
	}
}

// beat sends beats. It is apart from watch, because a write to a peer that reads nothing waits.
func (m *Mux) beat() {
	defer m.own.Done()
	for {
		select {
		case <-m.beats:
			// A connection that takes no bytes is found by its silence.
			_ = m.c.WriteFrame(KindBeat, FlagMux, m.newID(), nil)
		case <-m.over:
			return
		}
	}
}

// newID gives an id that no request has. The answer to it is dropped.
func (m *Mux) newID() uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		m.lastID++
		if _, taken := m.calls[m.lastID]; !taken && m.lastID != 0 {
			return m.lastID
		}
	}
}

// SetProbe has Call and Stream end with ErrSilent if an answer is late and probe fails: probe asks in another way
// whether the peer is there, such as by Alive.
func (c *Conn) SetProbe(probe func() error) { c.probe = probe }

// Alive reports whether the daemon that listens on the unix socket at path answers the opening of a connection within
// limit.
func Alive(path string, limit time.Duration) error {
	c, err := DialUnix(path, limit)
	if err != nil {
		return err
	}
	err = c.HandshakeWithin(limit)
	_ = c.Close() // it was only to see who answers
	return err
}

// readAnswer reads a frame of an answer. Where the connection has a probe, it waits only as long as the probe finds the
// peer alive. wait is the time to the next probe.
func (c *Conn) readAnswer(f *Frame, wait *time.Duration) error {
	if c.probe == nil {
		return c.ReadFrame(f)
	}
	for {
		until := time.Now().Add(*wait)
		if !c.deadline.IsZero() && c.deadline.Before(until) {
			return c.ReadFrame(f)
		}
		if err := c.s.SetReadDeadline(until); err != nil {
			return c.fail(err, "waiting for a message")
		}
		var err error
		if c.wantPreface {
			_, err = c.peekPreface() // Wait would close a connection whose preface is late
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			err = c.Wait()
		}
		if derr := c.s.SetReadDeadline(c.deadline); err == nil && derr != nil {
			return c.fail(derr, "waiting for a message")
		}
		if err == nil {
			return c.ReadFrame(f)
		}
		if !isTimeout(err) {
			return err
		}
		if perr := c.probe(); perr != nil {
			_ = c.Close() // the peer is silent
			return fmt.Errorf("%s: %w: %w", c.name, ErrSilent, perr)
		}
		*wait = min(2**wait, probeMost)
	}
}
