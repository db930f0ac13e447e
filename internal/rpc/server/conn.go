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

	"gbatch/internal/rpc"
)

// conn is one client's connection. Its goroutine reads a request and, from a sequential client, handles it itself: a
// goroutine for each request costs three times a small request's latency. While it handles one nobody reads, so a
// client that leaves would go unnoticed; therefore a request that takes longer than watchAfter gets a watcher, which
// waits for the next frame to begin, taking nothing. What it found is what the connection's goroutine goes on with.
// Requests from an rpc.Mux have a goroutine each, and the connection is always read.
type conn struct {
	s    *server
	nc   net.Conn
	c    *rpc.Conn
	peer rpc.Peer

	leave    context.CancelFunc // ends the requests' context
	handlers sync.WaitGroup     // of requests with FlagMux

	// The watcher of a sequential request.
	watch    *time.Timer // starts it; with watching, only for the connection's goroutine, which is the handler's too
	watching bool        // it was started and its result not yet taken
	watched  chan error  // its result
	idleFrom time.Time   // when the deadline of an idle connection was set

	mu    sync.Mutex
	over  bool                // the request that is watched has ended or taken the connection over
	muxed map[uint32]*Request // requests with FlagMux under way
}

const (
	// watchAfter is how long a sequential request is handled before the connection is watched for its client's leaving.
	watchAfter = 10 * time.Millisecond
	// lastLookTime is how long an idle connection is looked at once more before it is closed.
	lastLookTime = 10 * time.Millisecond
)

func (cn *conn) run(ctx context.Context) {
	reading, leave := context.WithCancel(ctx)
	cn.leave = leave
	defer cn.handlers.Wait()
	// Often closed already: by the server's end, or by the error that ended the reading.
	defer func() { _ = cn.c.Close() }()
	defer leave()
	err := cn.read(reading)
	if !errors.Is(err, rpc.ErrClosed) && err != io.EOF && err != errHijacked && err != errIdle {
		cn.s.stranger(ctx, cn.nc, err)
	}
}

var (
	errHijacked = errors.New("hijacked")
	errIdle     = errors.New("idle")
)

// read takes frames and sees to their requests until the connection ends or has been hijacked.
func (cn *conn) read(ctx context.Context) error {
	for {
		if err := cn.wait(); err != nil {
			return err
		}
		var f rpc.Frame // its body is the handler's
		if err := cn.c.ReadFrame(&f); err != nil {
			return err
		}
		switch {
		case f.Flags&rpc.FlagMux != 0:
			if err := cn.takeMux(ctx, &f); err != nil {
				return cn.refuse(err)
			}
		case f.Flags != 0:
			return cn.refuse(fmt.Errorf("a request has the flags %#x", f.Flags))
		default:
			r := &Request{Kind: f.Kind, Body: f.Body, Peer: cn.peer, id: f.ID, cn: cn, ctx: ctx}
			cn.startWatch()
			cn.handle(r)
			if r.hijacked {
				return errHijacked
			}
			cn.stopWatch()
		}
	}
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
		// On a host that stood still for a while the deadline passes before the bytes that came in time are seen.
		lastLook = true
		_ = cn.c.SetReadDeadline(time.Now().Add(lastLookTime)) // as in setIdle
	}
}

// setIdle puts the wait for a frame under Options.Idle. Moving the deadline costs, so it happens only now and then: a
// connection may be idle for one to one and a quarter of it.
func (cn *conn) setIdle() {
	idle := cn.s.o.Idle
	if idle == 0 || time.Since(cn.idleFrom) < idle/4 {
		return
	}
	cn.idleFrom = time.Now()
	// A stream that refuses a deadline is closed, and Wait says so.
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
	cn.mu.Unlock()
	cn.idleFrom = time.Time{} // the watcher has lifted the deadline
}

// takeWatched is what the watcher found.
func (cn *conn) takeWatched() error {
	err := <-cn.watched
	cn.watching = false
	cn.mu.Lock()
	cn.over = false
	cn.mu.Unlock()
	return err
}

// watchClient waits for the next frame while a request is handled. If the connection ends instead, so does the
// request's context.
func (cn *conn) watchClient() {
	cn.mu.Lock()
	if !cn.over {
		// A request may take longer than a connection may be idle. A stream that refuses it is closed, and Wait says so.
		_ = cn.c.SetReadDeadline(time.Time{})
	}
	cn.mu.Unlock()
	err := cn.c.Wait()
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		cn.leave()
	}
	cn.watched <- err
}

// takeOver ends the watch for a handler that from now on reads the connection itself.
func (cn *conn) takeOver() {
	if cn.watch.Stop() {
		return
	}
	cn.mu.Lock()
	cn.over = true
	// It wakes the watcher without taking a byte. A stream that refuses it is closed, which wakes the watcher too.
	_ = cn.nc.SetReadDeadline(time.Unix(1, 0))
	cn.mu.Unlock()
	<-cn.watched
}

// refuse closes the connection on a frame that breaks the rules.
func (cn *conn) refuse(err error) error {
	e := rpc.Errorf(rpc.CodeBadRequest, "%v: %v", rpc.ErrProtocol, err)
	// The connection ends either way.
	_ = cn.c.WriteFrame(0, rpc.FlagError, 0, e.Encode())
	return fmt.Errorf("%s: %w: %w", cn.c.Name(), rpc.ErrProtocol, err)
}

// takeMux handles a frame from an rpc.Mux. It never waits for a handler: credits for the others come the same way.
func (cn *conn) takeMux(ctx context.Context, f *rpc.Frame) error {
	cn.mu.Lock()
	r := cn.muxed[f.ID]
	n := len(cn.muxed)
	cn.mu.Unlock()
	switch f.Flags &^ rpc.FlagMux {
	case rpc.FlagCancel:
		if r != nil { // else it was answered meanwhile
			r.cancel()
		}
		return nil
	case rpc.FlagCredit:
		if len(f.Body) != 2 {
			return fmt.Errorf("a credit of %d bytes", len(f.Body))
		}
		if r == nil {
			return nil
		}
		return r.giveCredit(int(binary.BigEndian.Uint16(f.Body)))
	case 0:
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
		if err := cn.c.WriteFrame(f.Kind, rpc.FlagError, f.ID, e.Encode()); err != nil {
			return err
		}
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	r = &Request{Kind: f.Kind, Body: f.Body, Peer: cn.peer, id: f.ID, cn: cn, ctx: ctx, cancel: cancel,
		credit: make(chan struct{}, rpc.StreamWindow)}
	for range rpc.StreamWindow { // ReplyMore takes, the client gives back
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

// forgetMux ends a request before its last answer is sent: the client may make the next one as soon as it has that.
func (cn *conn) forgetMux(r *Request) {
	cn.mu.Lock()
	delete(cn.muxed, r.id)
	cn.mu.Unlock()
}

// handle calls the handler and sees to it that the request is answered.
func (cn *conn) handle(r *Request) {
	log := cn.s.o.Log.With("peer", cn.peer.String(), "kind", r.Kind)
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
