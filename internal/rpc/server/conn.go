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

// conn is one client's connection. Its reader waits for the next frame even while a request is handled, since that is
// how the client's leaving is noticed; but it takes a frame only when it is that frame's turn. What a sequential
// client sent ahead stays in the buffer, where a handler that hijacks the connection finds it.
type conn struct {
	s    *server
	nc   net.Conn
	c    *rpc.Conn
	peer rpc.Peer

	handlers sync.WaitGroup
	turn     chan struct{} // holds a token while a sequential request is handled, or the reader takes a frame
	hijack   chan struct{} // closed by a handler that wants the connection
	parked   chan struct{} // closed by the reader when it has let go of it

	mu        sync.Mutex
	hijacking bool
	active    int                 // requests under way
	muxed     map[uint32]*Request // those of them with FlagMux
}

func (cn *conn) run(ctx context.Context) {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	err := cn.read(reading)
	close(cn.parked)
	if err != errHijacked {
		cancel() // the client has left
	}
	cn.handlers.Wait()
	// Closed by the server's end or by the error that is logged next.
	_ = cn.c.Close()
	if err != nil && !errors.Is(err, rpc.ErrClosed) && err != io.EOF && err != errHijacked && err != errIdle {
		cn.s.stranger(ctx, cn.nc, err)
	}
}

var (
	errHijacked = errors.New("hijacked")
	errIdle     = errors.New("idle")
)

// read takes frames and starts their requests until the connection ends or is hijacked.
func (cn *conn) read(ctx context.Context) error {
	for {
		if err := cn.wait(); err != nil {
			return err
		}
		select {
		case cn.turn <- struct{}{}:
		case <-cn.hijack:
			return errHijacked
		case <-ctx.Done():
			return io.EOF
		}
		var f rpc.Frame // its body is the handler's
		if err := cn.c.ReadFrame(&f); err != nil {
			return err
		}
		if f.Flags&rpc.FlagMux == 0 {
			if f.Flags != 0 {
				return cn.refuse(fmt.Errorf("a request has the flags %#x", f.Flags))
			}
			cn.start(ctx, nil, &Request{Kind: f.Kind, Body: f.Body, Peer: cn.peer, id: f.ID, cn: cn})
			continue
		}
		<-cn.turn
		if err := cn.takeMux(ctx, &f); err != nil {
			return cn.refuse(err)
		}
	}
}

// wait returns nil when a frame has begun to arrive.
func (cn *conn) wait() error {
	for {
		cn.mu.Lock()
		if cn.hijacking {
			cn.mu.Unlock()
			return errHijacked
		}
		if idle := cn.s.o.Idle; idle > 0 {
			// A stream that refuses a deadline is closed, and Wait says so.
			_ = cn.c.SetReadDeadline(time.Now().Add(idle))
		}
		cn.mu.Unlock()
		err := cn.c.Wait()
		if !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, rpc.ErrLost) {
			return err
		}
		cn.mu.Lock()
		idle := cn.active == 0
		cn.mu.Unlock()
		if idle {
			return errIdle
		}
	}
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
	r = &Request{Kind: f.Kind, Body: f.Body, Peer: cn.peer, id: f.ID, cn: cn, cancel: cancel,
		credit: make(chan struct{}, rpc.StreamWindow)}
	cn.start(ctx, cancel, r)
	return nil
}

// start runs the handler. For a sequential request the token in turn is now the handler's.
func (cn *conn) start(ctx context.Context, cancel context.CancelFunc, r *Request) {
	r.ctx = ctx
	cn.mu.Lock()
	cn.active++
	if r.credit != nil {
		cn.muxed[r.id] = r
		// All the credit there is; ReplyMore takes, the client gives back.
		for range rpc.StreamWindow {
			r.credit <- struct{}{}
		}
	}
	cn.mu.Unlock()
	cn.handlers.Go(func() {
		cn.handle(r)
		if cancel != nil {
			cancel()
		}
		cn.mu.Lock()
		cn.active--
		delete(cn.muxed, r.id)
		cn.mu.Unlock()
		if r.credit == nil {
			<-cn.turn
		}
	})
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
