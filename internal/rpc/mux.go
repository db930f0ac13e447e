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

// Mux makes many concurrent requests over one connection between daemons.
//
// One goroutine reads the connection and passes each answer to its caller. It must never wait for a caller: a slow
// reader of a long list would delay all other answers, heartbeats included. So a caller's queue has a fixed size,
// StreamWindow, and the server sends at most that many unacknowledged frames: for each request it waits for FlagCredit
// frames. A caller that gives up sends FlagCancel, and frames that still come for it are dropped here.

const (
	// StreamWindow is the most FlagMore frames of one answer that may be in flight or queued for the caller.
	StreamWindow = 16
	// MuxRequests is the most concurrent requests on one connection. A Mux makes further callers wait; a server refuses
	// more with CodeBusy.
	MuxRequests = 256

	creditEvery = StreamWindow / 2 // frames read before an acknowledgement
)

// Mux is a client connection shared by many callers. Make one with NewMux.
type Mux struct {
	c     *Conn
	slots chan struct{}  // one per request in progress
	over  chan struct{}  // closed when the connection has ended for the callers; err is set before
	own   sync.WaitGroup // the reader, watch and beat

	asked, suspected, beats chan struct{} // each holds one; see alive.go

	mu     sync.Mutex
	calls  map[uint32]*muxCall
	lastID uint32
	err    error
}

// muxCall is one request in progress.
type muxCall struct {
	answers chan Frame // never blocks the reader: the server's credit is its capacity
	single  bool       // a Call: a second answer is dropped, because the first one has made the call fail
}

// NewMux opens c (see Conn.Handshake) and starts reading it; the Mux owns c from then on, even if NewMux fails. Close
// ends the reader.
func NewMux(c *Conn) (*Mux, error) {
	if err := c.Handshake(); err != nil {
		return nil, err
	}
	m := &Mux{c: c, slots: make(chan struct{}, MuxRequests), over: make(chan struct{}), calls: make(map[uint32]*muxCall),
		asked: make(chan struct{}, 1), suspected: make(chan struct{}, 1), beats: make(chan struct{}, 1)}
	m.own.Add(3)
	go m.read()
	go m.watch()
	go m.beat()
	return m, nil
}

// Name is the peer as errors name it.
func (m *Mux) Name() string { return m.c.Name() }

// Done is closed when the connection has ended; Err gives the reason.
func (m *Mux) Done() <-chan struct{} { return m.over }

// Err is the reason for the connection's end (ErrLost, ErrSilent, ErrProtocol, ErrClosed or an *Error with the server's
// reason), or nil while it is open.
func (m *Mux) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Close ends the connection and every request on it, and waits for its goroutines. It is idempotent.
func (m *Mux) Close() error {
	err := m.c.Close()
	m.own.Wait()
	return err
}

// end ends all requests with err, unless they have ended already.
func (m *Mux) end(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
		close(m.over)
	}
}

// read passes answers to callers until the connection ends.
func (m *Mux) read() {
	defer m.own.Done()
	var err error
	for err == nil {
		var f Frame // a new one: the caller keeps its body
		if err = m.c.ReadFrame(&f); err == nil {
			err = m.deliver(f)
		}
	}
	if err == io.EOF {
		err = fmt.Errorf("%s: %w: the peer closed it", m.c.Name(), ErrLost)
	}
	// The reason is in err; a second close reports nothing new.
	_ = m.c.Close()
	m.end(err)
}

func (m *Mux) deliver(f Frame) error {
	if f.ID == 0 && f.Flags == FlagError {
		return f.asError()
	}
	m.mu.Lock()
	call, known := m.calls[f.ID]
	asked := f.ID-1 < m.lastID // ids wrap only after four billion requests
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
	return nil // also if the caller has given up
}

// Call makes a request and waits for its one answer; see Caller. If ctx ends first, it tells the server.
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

// Stream makes a request and passes its answers to each on the calling goroutine; see Caller. If ctx ends or each
// fails, it tells the server to stop.
func (m *Mux) Stream(ctx context.Context, kind uint16, body []byte, each func(*Frame) error) error {
	return m.request(ctx, kind, body, false, each)
}

func (m *Mux) request(ctx context.Context, kind uint16, body []byte, single bool, each func(*Frame) error) error {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return unsent(context.Cause(ctx))
	case <-m.over:
		return unsent(m.Err())
	}
	id, call := m.register(single)
	defer m.forget(id)
	m.wake()
	if err := m.c.WriteFrame(kind, FlagMux, id, body); err != nil {
		return unsent(m.writeFailed(err)) // the server has no whole frame of it
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
	case <-m.over:
	}
	select {
	case f := <-call.answers:
		return f, nil
	default:
		return Frame{}, m.Err()
	}
}

// cancel tells the server that an answer is no longer needed.
func (m *Mux) cancel(kind uint16, id uint32) {
	// If it doesn't arrive, the connection has ended, and so has the request.
	_ = m.c.WriteFrame(kind, FlagMux|FlagCancel, id, nil)
}

// writeFailed prefers the reader's error, which may have the server's reason. The connection has ended for all callers
// when it returns: who asks again must not be given it.
func (m *Mux) writeFailed(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err // over this side's limit: nothing was sent
	}
	late := time.NewTimer(time.Second)
	defer late.Stop()
	select {
	case <-m.over:
		return m.Err()
	case <-late.C:
		_ = m.c.Close() // err is the error to report
		<-m.over
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
