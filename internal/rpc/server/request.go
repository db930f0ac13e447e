package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// Request is one request being handled. Its methods are for one goroutine at a time, until the handler returns. Body
// belongs to the handler and may be kept.
type Request struct {
	Kind uint16
	Body []byte
	Peer rpc.Peer

	id  uint32
	cn  *conn
	ctx context.Context

	direct Answers // of a request without a connection; cn is nil then
	log    *slog.Logger

	leave    func()             // gives back its place in the budget
	ended    bool               // the last answer was given, or the connection was hijacked
	hijacked bool               // the handler owns the connection
	cancel   context.CancelFunc // with FlagMux: for FlagCancel
	credit   chan struct{}      // with FlagMux: answers that may be sent ahead
}

func internalError() *rpc.Error {
	return rpc.Errorf(rpc.CodeInternal, "internal error in the daemon; its log says more")
}

// Answers takes the answers of a request without a connection: with rpc.FlagMore another one follows, with
// rpc.FlagError the body is an rpc.Error. The body is the caller's only during the call.
type Answers func(flags uint16, body []byte) error

// Direct makes a request that comes over no connection, from peer.
func Direct(ctx context.Context, kind uint16, body []byte, peer rpc.Peer, log *slog.Logger, answers Answers) *Request {
	return &Request{Kind: kind, Body: body, Peer: peer, ctx: ctx, leave: func() {}, direct: answers, log: log}
}

// write sends an answer to where the request came from.
func (r *Request) write(flags uint16, body []byte) error {
	if r.cn == nil {
		return r.direct(flags, body)
	}
	return r.cn.c.WriteFrame(r.Kind, flags, r.id, body)
}

// Remote is the peer's network address; it is meaningless for a unix socket.
func (r *Request) Remote() string {
	if r.cn == nil {
		return ""
	}
	return addrOf(r.cn.nc)
}

// Reply gives the last answer. An error means that it was not sent, because the client has gone; for a body over
// rpc.MaxFrame the client gets an error.
func (r *Request) Reply(body []byte) error { return r.answer(0, body) }

// ReplyMore gives one answer of several; Reply or Fail must follow. It waits while the client has too many unread
// answers, and fails if the client has gone or has cancelled.
func (r *Request) ReplyMore(body []byte) error {
	if r.ended {
		return errEnded
	}
	if r.credit != nil {
		select {
		case <-r.credit:
		case <-r.ctx.Done():
			return fmt.Errorf("%s: %w", r.cn.c.Name(), context.Cause(r.ctx))
		}
	}
	return r.write(rpc.FlagMore, body)
}

// Fail gives err as the last answer. The client sees the code and text of an *rpc.Error. Any other error is answered as
// interrupted says where the server stops; otherwise it goes to the log, and the client gets an internal error.
func (r *Request) Fail(err error) error {
	var e *rpc.Error
	switch {
	case errors.As(err, &e):
	case r.Interrupted():
		e = interrupted(r.Kind, r.Body, err)
	default:
		log := r.log
		if r.cn != nil {
			log = r.cn.s.o.Log
		}
		log.Error("request failed", "peer", r.Peer.String(), "kind", r.Kind, "err", err)
		e = internalError()
	}
	return r.answer(rpc.FlagError, e.Encode())
}

// Interrupted reports whether the request's context has ended: the server stops, or nobody waits for the answer.
func (r *Request) Interrupted() bool { return r.ctx.Err() != nil }

// interrupted is the answer to a request whose handler failed with err since the server stops, so that a daemon that is
// restarted fails no call: what only reads, and what was not sent to where it is carried out, is simply made again; of
// any other change it is said that nothing is known.
func interrupted(kind uint16, body []byte, err error) *rpc.Error {
	if kind == proto.KindForward {
		var f proto.Forward
		if proto.Decode(body, &f) == nil {
			kind, body = f.Kind, f.Body
		}
	}
	row := proto.RequestIn(kind, body)
	var unsent *rpc.Unsent
	if row.Effect == proto.Changes && !errors.As(err, &unsent) {
		return rpc.Errorf(proto.CodeUnknown, "%s", row.Unknown("the daemon that was asked ended before it answered"))
	}
	return rpc.Errorf(proto.CodeNotLeader, "")
}

// Hijack takes over the connection for the handler's own session: from now on only the handler reads and writes frames,
// beginning with those that the client sent after this request. The request needs no answer. The connection is closed
// when the handler returns or the server stops; its context no longer ends when the client disconnects, because the
// handler's reads now fail then. A request from an rpc.Mux shares its connection and cannot take it.
func (r *Request) Hijack() (*rpc.Conn, error) {
	cn := r.cn
	if r.credit != nil || cn == nil {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "this request needs a connection of its own")
	}
	if r.ended {
		return nil, errEnded
	}
	r.ended, r.hijacked = true, true
	r.leave() // a session is no request
	cn.takeOver()
	if err := cn.c.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", cn.c.Name(), rpc.ErrLost, err)
	}
	if err := cn.c.Flush(); err != nil {
		return nil, err
	}
	return cn.c, nil
}

var errEnded = errors.New("the request has had its last answer")

func (r *Request) answer(flags uint16, body []byte) error {
	if r.ended {
		return errEnded
	}
	r.ended = true
	if r.credit != nil {
		r.cn.forgetMux(r)
	}
	err := r.write(flags, body)
	var e *rpc.Error
	if errors.As(err, &e) {
		return errors.Join(err, r.write(rpc.FlagError, e.Encode()))
	}
	return err
}

// giveCredit returns n tokens for answers that the client has read.
func (r *Request) giveCredit(n int) error {
	for range n {
		select {
		case r.credit <- struct{}{}:
		default:
			return fmt.Errorf("a credit for more than the %d answers of the window", rpc.StreamWindow)
		}
	}
	return nil
}
