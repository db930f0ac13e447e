package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/rpc"
	"gbatch/internal/rpc/share"
)

// conn is one client's connection. Its goroutine reads a request and, from a sequential client, handles it itself: a
// goroutine for each request costs three times a small request's latency. Meanwhile no goroutine reads, so the end of
// the client would go unnoticed. Therefore a request that takes longer than watchAfter gets a watcher, which waits for
// the next frame to begin without reading it. The connection's goroutine continues with the watcher's result. Requests
// from an rpc.Mux have a goroutine each, and the connection is always read.
type conn struct {
	s    *server
	nc   net.Conn
	c    *rpc.Conn
	peer rpc.Peer

	payer    string             // of its requests, see share.Budget
	leave    context.CancelFunc // ends the requests' context
	handlers sync.WaitGroup     // of requests with FlagMux

	// The watcher of a sequential request.
	watch    *time.Timer // starts it; with watching, only for the connection's goroutine, which is the handler's too
	watching bool        // it was started and its result not yet taken
	watched  chan error  // its result
	idleFrom time.Time   // when the deadline of an idle connection was set

	mu    sync.Mutex
	over  bool                // the watched request has ended or taken over the connection
	hangs bool                // the watcher waits for the client's end alone, see untilGone
	muxed map[uint32]*Request // requests with FlagMux in progress
}

const (
	// watchAfter is the time after which a sequential request's connection gets a watcher.
	watchAfter = 10 * time.Millisecond
	// lastLookTime is the time of the last read on an idle connection before it is closed.
	lastLookTime = 10 * time.Millisecond
)

func (cn *conn) run(ctx context.Context) {
	reading, leave := context.WithCancel(ctx)
	cn.leave = leave
	defer cn.handlers.Wait()
	// Often closed already, by the server's end or by a read error.
	defer func() { _ = cn.c.Close() }()
	defer leave()
	err := cn.read(reading)
	if !errors.Is(err, rpc.ErrClosed) && err != io.EOF && err != errHijacked && err != errIdle {
		cn.s.opened.Settle(cn.payer, faultConns)
		cn.s.stranger(ctx, cn.nc, err)
	}
}

var (
	errHijacked = errors.New("hijacked")
	errIdle     = errors.New("idle")
)

// read reads frames and handles their requests until the connection ends or is hijacked.
func (cn *conn) read(ctx context.Context) error {
	for {
		if err := cn.wait(); err != nil {
			return err
		}
		var f rpc.Frame // its body is the handler's
		leave, err := cn.take(ctx, &f)
		if err != nil {
			return err
		}
		if leave == nil { // it was refused
			continue
		}
		switch {
		case f.Flags&rpc.FlagMux != 0:
			if err := cn.takeMux(ctx, &f, leave); err != nil {
				leave()
				return cn.refuse(err)
			}
		case f.Flags != 0:
			leave()
			return cn.refuse(fmt.Errorf("a request has the flags %#x", f.Flags))
		default:
			r := &Request{Kind: f.Kind, Body: f.Body, Peer: cn.peer, id: f.ID, cn: cn, ctx: ctx, leave: leave}
			cn.startWatch()
			cn.handle(r)
			if r.hijacked {
				return errHijacked
			}
			cn.stopWatch()
		}
	}
}

const (
	// busyAfter is how long a local user's request waits for the user's other requests to end.
	busyAfter   = 5 * time.Second
	creditBytes = 2 // of a message with FlagCredit
)

// take reads the next frame when there is room for it, and gives the function that ends its claim. nil without an
// error: it was refused, and the connection goes on. A local user's connection is not read while it waits: it has one
// request at a time. One that many requests share is always read.
func (cn *conn) take(ctx context.Context, f *rpc.Frame) (leave func(), err error) {
	n, err := cn.c.ReadHead(f)
	if err != nil {
		return nil, err
	}
	mux := f.Flags&rpc.FlagMux != 0
	if mux && (f.Flags != rpc.FlagMux || f.Kind == rpc.KindBeat) { // about requests; at most a credit's bytes
		if n > creditBytes {
			return nil, cn.refuse(fmt.Errorf("a message with the flags %#x has %d bytes", f.Flags, n))
		}
		return func() {}, cn.c.ReadBody(f, n)
	}
	claim := share.Claim{Bytes: n, Waits: cn.s.o.Waits(f.Kind), Payer: cn.payer}
	if !mux {
		claim.Patience = busyAfter
	}
	if most := cn.s.o.MaxBytes(f.Kind); n > most {
		err = rpc.Errorf(rpc.CodeTooLarge, "a request of %d bytes is over the limit of %d bytes for its kind", n, most)
		if !mux {
			return nil, cn.end(f, err)
		}
	} else if err = cn.payBytes(ctx, n); err != nil {
		return nil, cn.end(f, err)
	} else if leave, err = cn.s.o.Budget.Enter(ctx, claim); err == nil {
		if err := cn.c.ReadBody(f, n); err != nil {
			leave()
			return nil, err
		}
		return leave, nil
	}
	var e *rpc.Error
	if !errors.As(err, &e) {
		return nil, err
	}
	if err := cn.c.SkipBody(n); err != nil {
		return nil, err
	}
	return nil, cn.c.WriteFrame(f.Kind, rpc.FlagError, f.ID, e.Encode())
}

// payBytes makes a local user wait who sends too many large requests, before they are read.
func (cn *conn) payBytes(ctx context.Context, n int) error {
	if cn.payer == "" || n <= share.SmallBytes {
		return nil
	}
	err := cn.s.sent.Pay(ctx, cn.payer, float64(n), cn.s.o.UserBytes)
	if errors.Is(err, share.ErrOwes) {
		return rpc.Errorf(rpc.CodeBusy, "you send more than %.0f KiB a second in large requests; try again in a moment",
			cn.s.o.UserBytes/1024)
	}
	return err
}

// end answers a request with an error, and ends the connection.
func (cn *conn) end(f *rpc.Frame, err error) error {
	var e *rpc.Error
	if errors.As(err, &e) {
		// The connection ends either way.
		_ = cn.c.WriteFrame(f.Kind, rpc.FlagError, f.ID, e.Encode())
	}
	return fmt.Errorf("%s: %w: %w", cn.c.Name(), rpc.ErrProtocol, err)
}

// wait returns nil when a frame has begun to arrive.
func (cn *conn) wait() error {
	for lastLook := false; ; {
		if !lastLook {
			cn.setIdle()
		}
		var err error
		if cn.watching {
			err = cn.takeWatched()
		} else {
			err = cn.c.Wait()
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, rpc.ErrLost) {
			return err
		}
		cn.idleFrom = time.Time{}
		cn.mu.Lock()
		idle := len(cn.muxed) == 0
		cn.mu.Unlock()
		if !idle {
			continue
		}
		if lastLook {
			return errIdle
		}
		// After a pause of the host, the deadline may pass before bytes that came in time are read.
		lastLook = true
		_ = cn.c.SetReadDeadline(time.Now().Add(lastLookTime)) // as in setIdle
	}
}

// setIdle limits the wait for a frame to Options.Idle. Setting a deadline is expensive, so it is set only from time to
// time: a connection may be idle for 1 to 1.25 times Idle.
func (cn *conn) setIdle() {
	idle := cn.s.o.Idle
	if idle == 0 || time.Since(cn.idleFrom) < idle/4 {
		return
	}
	cn.idleFrom = time.Now()
	// A stream that refuses a deadline is closed, and Wait returns that error.
	_ = cn.c.SetReadDeadline(cn.idleFrom.Add(idle + idle/4))
}

func (cn *conn) startWatch() {
	if cn.watch == nil {
		cn.watch = time.AfterFunc(watchAfter, cn.watchClient)
		return
	}
	cn.watch.Reset(watchAfter)
}

// stopWatch ends the watch of a request that has ended. If the watcher has started, it goes on until the next frame,
// or until setIdle's deadline.
func (cn *conn) stopWatch() {
	if cn.watch.Stop() {
		return
	}
	cn.watching = true
	cn.mu.Lock()
	cn.over = true
	hangs := cn.hangs
	cn.mu.Unlock()
	cn.idleFrom = time.Time{} // the watcher has lifted the deadline
	if hangs {
		cn.wake()
		err := <-cn.watched
		cn.watched <- err
		// A stream that refuses a deadline is closed, and Wait returns that error.
		_ = cn.c.SetReadDeadline(time.Time{})
	}
}

// wake ends what waits to read, without reading a byte. A stream that refuses a deadline is closed, which wakes it too.
func (cn *conn) wake() { _ = cn.nc.SetReadDeadline(time.Unix(1, 0)) }

// takeWatched gives the watcher's result.
func (cn *conn) takeWatched() error {
	err := <-cn.watched
	cn.watching = false
	cn.mu.Lock()
	cn.over, cn.hangs = false, false
	cn.mu.Unlock()
	return err
}

// watchClient waits for the next frame while a request is handled. If the connection ends instead, so does the
// request's context.
func (cn *conn) watchClient() {
	cn.mu.Lock()
	if !cn.over {
		// A request may take longer than the idle limit. A stream that refuses a deadline is closed, and Wait returns
		// that error.
		_ = cn.c.SetReadDeadline(time.Time{})
	}
	cn.mu.Unlock()
	err := cn.c.Wait()
	if err == nil {
		err = cn.untilGone()
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		cn.leave()
	}
	cn.watched <- err
}

// untilGone waits for the end of a client that has sent more than the request that is handled: reading tells of it only
// after all of that. It is asked of the kernel, for a local user's socket. nil: the request has ended.
func (cn *conn) untilGone() error {
	local, ok := cn.nc.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := local.SyscallConn()
	if err != nil {
		return nil // it is closed, which the next read says
	}
	cn.mu.Lock()
	cn.hangs = !cn.over
	over := cn.over
	cn.mu.Unlock()
	if over {
		return nil
	}
	gone := func(fd uintptr) bool { // asked again whenever something has happened on the socket
		p := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(p, 0)
		return err == nil && p[0].Revents&unix.POLLHUP != 0
	}
	if raw.Read(gone) == nil {
		return io.EOF
	}
	return nil // by stopWatch, or it is closed
}

// takeOver ends the watch, because the handler now reads the connection itself.
func (cn *conn) takeOver() {
	if cn.watch.Stop() {
		return
	}
	cn.mu.Lock()
	cn.over = true
	cn.wake()
	cn.mu.Unlock()
	<-cn.watched
}

// refuse closes the connection after an invalid frame.
func (cn *conn) refuse(err error) error {
	e := rpc.Errorf(rpc.CodeBadRequest, "%v: %v", rpc.ErrProtocol, err)
	// The connection ends either way.
	_ = cn.c.WriteFrame(0, rpc.FlagError, 0, e.Encode())
	return fmt.Errorf("%s: %w: %w", cn.c.Name(), rpc.ErrProtocol, err)
}

// takeMux handles a frame from an rpc.Mux. It never waits for a handler, because the others' credits come over the same
// connection.
func (cn *conn) takeMux(ctx context.Context, f *rpc.Frame, leave func()) error {
	cn.mu.Lock()
	r := cn.muxed[f.ID]
	n := len(cn.muxed)
	cn.mu.Unlock()
	switch f.Flags &^ rpc.FlagMux {
	case rpc.FlagCancel:
		leave()
		if r != nil { // else it was answered meanwhile
			r.cancel()
		}
		return nil
	case rpc.FlagCredit:
		leave()
		if len(f.Body) != creditBytes {
			return fmt.Errorf("a credit of %d bytes", len(f.Body))
		}
		if r == nil {
			return nil
		}
		return r.giveCredit(int(binary.BigEndian.Uint16(f.Body)))
	case 0:
		if f.Kind == rpc.KindBeat {
			leave()
			return cn.c.WriteFrame(rpc.KindBeat, 0, f.ID, nil)
		}
	default:
		return fmt.Errorf("a request has the flags %#x", f.Flags)
	}
	switch {
	case r != nil:
		return fmt.Errorf("the id %d is in use by another request", f.ID)
	case f.ID == 0:
		return errors.New("a request has the id 0")
	case n >= cn.s.o.MuxRequests:
		e := rpc.Errorf(rpc.CodeBusy, "too many requests at once on this connection: %d are under way", n)
		leave()
		return cn.c.WriteFrame(f.Kind, rpc.FlagError, f.ID, e.Encode())
	}
	ctx, cancel := context.WithCancel(ctx)
	r = &Request{Kind: f.Kind, Body: f.Body, Peer: cn.peer, id: f.ID, cn: cn, ctx: ctx, cancel: cancel, leave: leave,
		credit: make(chan struct{}, rpc.StreamWindow)}
	for range rpc.StreamWindow { // ReplyMore takes tokens, the client returns them
		r.credit <- struct{}{}
	}
	cn.mu.Lock()
	cn.muxed[r.id] = r
	cn.mu.Unlock()
	cn.handlers.Go(func() {
		defer cancel()
		cn.handle(r)
	})
	return nil
}

// forgetMux ends a request, with its place in the budget, before its last answer is sent: the client may make the next
// one right after it, which doesn't wait for a place.
func (cn *conn) forgetMux(r *Request) {
	r.leave()
	cn.mu.Lock()
	delete(cn.muxed, r.id)
	cn.mu.Unlock()
}

// handle calls the handler and ensures that the request is answered.
func (cn *conn) handle(r *Request) {
	log := cn.s.o.Log.With("peer", cn.peer.String(), "kind", r.Kind)
	defer r.leave()
	defer func() {
		if p := recover(); p != nil {
			log.Error("request handler panicked", "panic", p, "stack", string(debug.Stack()))
		} else if !r.ended {
			log.Error("request handler gave no answer")
		}
		if !r.ended {
			// If it cannot be sent, the client is gone.
			_ = r.answer(rpc.FlagError, internalError().Encode())
		}
	}()
	cn.s.h(r.ctx, r)
}
