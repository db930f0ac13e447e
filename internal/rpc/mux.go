package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Mux makes many requests at once over one connection, daemon to daemon.
//
// One goroutine reads the connection and hands each answer to the caller it belongs to. It must never wait for a
// caller, or one that is slow to take a long list would hold up everybody's answers, heartbeats included. So a
// caller's queue has a fixed size, StreamWindow, and the server sends no more than that ahead of what the caller has
// acknowledged: it waits for FlagCredit frames, per request. A caller that gives up says so with FlagCancel, and what
// was under way to it is dropped here.

const (
	// StreamWindow is how many FlagMore frames of one answer may be under way or waiting to be taken.
	StreamWindow = 16
	// MuxRequests is how many requests may be under way on one connection. A Mux makes callers wait for their turn;
	// a server refuses more with CodeBusy.
	MuxRequests = 256

	creditEvery = StreamWindow / 2 // frames taken before they are acknowledged
)

// Mux is a client connection shared by many callers. Make one with NewMux.
type Mux struct {
	c     *Conn
	slots chan struct{} // one per request under way
	done  chan struct{} // closed when the reader has ended; err is set before

	mu     sync.Mutex
	calls  map[uint32]*muxCall
	lastID uint32
	err    error
}

// muxCall is one request under way.
type muxCall struct {
	answers chan Frame // never blocks the reader: the server's credit is its capacity
	single  bool       // a Call: a second answer is dropped, the first one already is the caller's error
}

// NewMux opens c (see Conn.Handshake) and starts reading it; c is the Mux's from then on, also if it fails. Close ends
// the reader.
func NewMux(c *Conn) (*Mux, error) {
	if err := c.Handshake(); err != nil {
		return nil, err
	}
	m := &Mux{c: c, slots: make(chan struct{}, MuxRequests), done: make(chan struct{}), calls: make(map[uint32]*muxCall)}
	go m.read()
	return m, nil
}

// Name is the peer as errors name it.
func (m *Mux) Name() string { return m.c.Name() }

// Done is closed when the connection is over; Err says why.
func (m *Mux) Done() <-chan struct{} { return m.done }

// Err is why the connection is over (ErrLost, ErrProtocol, ErrClosed or an *Error with the server's reason), or nil
// while it lives.
func (m *Mux) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Close ends the connection and every request on it, and waits for the reader. It is idempotent.
func (m *Mux) Close() error {
	err := m.c.Close()
	<-m.done
	return err
}

// read hands answers out until the connection ends.
func (m *Mux) read() {
	var err error
	for err == nil {
		var f Frame // its body goes to the caller
		if err = m.c.ReadFrame(&f); err == nil {
			err = m.deliver(f)
		}
	}
	if err == io.EOF {
		err = fmt.Errorf("%s: %w: the peer closed it", m.c.Name(), ErrLost)
	}
	// The reason is in err; a second close reports nothing new.
	_ = m.c.Close()
	m.mu.Lock()
	m.err = err
	m.mu.Unlock()
	close(m.done)
}

func (m *Mux) deliver(f Frame) error {
	if f.ID == 0 && f.Flags == FlagError {
		return f.asError()
	}
	m.mu.Lock()
	call, known := m.calls[f.ID]
	asked := f.ID-1 < m.lastID // ids go round only after four billion requests
	m.mu.Unlock()
	switch {
	case f.Flags&^(FlagMore|FlagError) != 0:
		return fmt.Errorf("%s: %w: an answer has the flags %#x", m.c.Name(), ErrProtocol, f.Flags)
	case known:
		select {
		case call.answers <- f:
		default:
			if !call.single {
				return fmt.Errorf("%s: %w: more than %d answers ahead of what was acknowledged", m.c.Name(), ErrProtocol,
					StreamWindow)
			}
		}
	case !asked:
		return fmt.Errorf("%s: %w: an answer to %d, which was not asked", m.c.Name(), ErrProtocol, f.ID)
	}
	return nil // also where the caller has given up
}

// Call makes a request and waits for its one answer; see Caller. If ctx ends first, the server is told.
func (m *Mux) Call(ctx context.Context, kind uint16, body []byte) (Frame, error) {
	var answer Frame
	err := m.request(ctx, kind, body, true, func(f *Frame) error {
		if f.More() {
			return fmt.Errorf("%s: %w", m.c.Name(), errStreamed)
		}
		answer = *f
		return nil
	})
	return answer, err
}

// Stream makes a request and gives its answers to each on the calling goroutine; see Caller. If ctx ends or each
// fails, the server is told to stop.
func (m *Mux) Stream(ctx context.Context, kind uint16, body []byte, each func(*Frame) error) error {
	return m.request(ctx, kind, body, false, each)
}

func (m *Mux) request(ctx context.Context, kind uint16, body []byte, single bool, each func(*Frame) error) error {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return unsent(context.Cause(ctx))
	case <-m.done:
		return unsent(m.Err())
	}
	id, call := m.register(single)
	defer m.forget(id)
	if err := m.c.WriteFrame(kind, FlagMux, id, body); err != nil {
		return unsent(m.writeFailed(err)) // what was written of it is no whole frame
	}
	for taken := 0; ; {
		f, err := m.next(ctx, call)
		if err != nil {
			if ctx.Err() != nil {
				m.cancel(kind, id)
			}
			return err
		}
		if f.Flags&FlagError != 0 {
			return f.asError()
		}
		last := !f.More()
		if err := each(&f); err != nil {
			if !last {
				m.cancel(kind, id)
			}
			return err
		}
		if last {
			return nil
		}
		if taken++; taken == creditEvery {
			taken = 0
			if err := m.c.WriteFrame(kind, FlagMux|FlagCredit, id, binary.BigEndian.AppendUint16(nil, creditEvery)); err != nil {
				return m.writeFailed(err)
			}
		}
	}
}

// next waits for the next answer. Answers that arrived before the connection ended come first.
func (m *Mux) next(ctx context.Context, call *muxCall) (Frame, error) {
	select {
	case f := <-call.answers:
		return f, nil
	case <-ctx.Done():
		return Frame{}, fmt.Errorf("%s: no answer: %w", m.c.Name(), context.Cause(ctx))
	case <-m.done:
	}
	select {
	case f := <-call.answers:
		return f, nil
	default:
		return Frame{}, m.Err()
	}
}

// cancel tells the server that an answer is no longer wanted.
func (m *Mux) cancel(kind uint16, id uint32) {
	// If it doesn't arrive the connection is over, and with it the request.
	_ = m.c.WriteFrame(kind, FlagMux|FlagCancel, id, nil)
}

// writeFailed prefers the reader's account of why the connection is over: it may have the server's word on it.
func (m *Mux) writeFailed(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err // over the limit on this side: nothing was sent
	}
	late := time.NewTimer(time.Second)
	defer late.Stop()
	select {
	case <-m.done:
		return m.Err()
	case <-late.C:
		_ = m.c.Close() // err is what there is to report
		return err
	}
}

func (m *Mux) register(single bool) (uint32, *muxCall) {
	call := &muxCall{single: single}
	if single {
		call.answers = make(chan Frame, 1)
	} else {
		call.answers = make(chan Frame, StreamWindow+1)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		m.lastID++
		if _, taken := m.calls[m.lastID]; !taken && m.lastID != 0 {
			m.calls[m.lastID] = call
			return m.lastID, call
		}
	}
}

func (m *Mux) forget(id uint32) {
	m.mu.Lock()
	delete(m.calls, id)
	m.mu.Unlock()
}
