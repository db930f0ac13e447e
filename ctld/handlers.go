package ctld

import (
	"context"
	"errors"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc/server"
)

// handlers.go maps each kind of user request to the method that answers it on the leader. Everything else about a kind
// is in its row in internal/proto/requests.go.

// handlers has an entry for each kind of request that the leader answers, but for KindOnce, which holds another kind.
var handlers = map[uint16]handler{
	proto.KindPing:         handle((*Controller).ping),
	proto.KindSubmit:       handle((*Controller).submit),
	proto.KindSubmitEach:   handle((*Controller).submitEach),
	proto.KindCancel:       handle((*Controller).cancel),
	proto.KindSignal:       handle((*Controller).cancel),
	proto.KindUpdateJob:    handle((*Controller).updateJob),
	proto.KindUpdateNode:   handleDone((*Controller).updateNode),
	proto.KindReserve:      handle((*Controller).reserve),
	proto.KindMIG:          handle((*Controller).applyMIG),
	proto.KindReconfigure:  handle((*Controller).reconfigure),
	proto.KindEditAccounts: handleDone((*Controller).editAccounts),
	proto.KindDiagReset:    handle((*Controller).diagReset),
	proto.KindTakeover:     handle((*Controller).takeover),

	proto.KindJobs:         handleParts((*Controller).jobs, endOfJobs),
	proto.KindNodes:        handleParts((*Controller).nodesList, endOfNodes),
	proto.KindPartitions:   handle((*Controller).partitions),
	proto.KindConfig:       handle((*Controller).config),
	proto.KindWait:         handle((*Controller).wait),
	proto.KindAcct:         {parts: true, answer: (*Controller).acct},
	proto.KindShares:       handle((*Controller).shares),
	proto.KindDiag:         handle((*Controller).diag),
	proto.KindScript:       handle((*Controller).script),
	proto.KindDump:         handleParts((*Controller).dump, endOfDump),
	proto.KindAccounts:     handleParts((*Controller).accounts, endOfAccounts),
	proto.KindPrio:         handleParts((*Controller).prios, endOfPrios),
	proto.KindWhy:          handle((*Controller).why),
	proto.KindReservations: handle((*Controller).reservations),
	proto.KindStat:         handle((*Controller).stat),
	proto.KindSteps:        handleParts((*Controller).steps, endOfSteps),
	proto.KindPeers:        handle((*Controller).peers),
	proto.KindDoctor:       handle((*Controller).doctor),
}

// handler answers the requests of one kind.
type handler struct {
	parts  bool // the answer is a stream
	answer func(c *Controller, ctx context.Context, a *call) (message, error)
}

// call is one request.
type call struct {
	r    *server.Request
	who  *proto.Caller
	body []byte
	part []byte // the last part's buffer, which is used again: a list of 50,000 jobs leaves no garbage
}

// stream sends one part of an answer; the handler returns the last part.
type stream func(msg message) error

func (a *call) send(m message) (err error) {
	if a.part, err = proto.Append(a.part[:0], m); err != nil {
		return err
	}
	return a.r.ReplyMore(a.part)
}

func (a *call) decode(m message) error {
	if _, none := m.(*proto.Empty); none {
		return nil
	}
	if err := proto.Decode(a.body, m); err != nil {
		return refuse(proto.CodeBadRequest, "malformed request: %v", err)
	}
	return nil
}

// pointer is *T, which is a message.
type pointer[T any] interface {
	*T
	message
}

// handle makes a handler from a method with one answer.
func handle[Rq, Reply any, Q pointer[Rq],
	R pointer[Reply]](f func(*Controller, context.Context, *proto.Caller, Q) (R, error)) handler {
	return handler{answer: func(c *Controller, ctx context.Context, a *call) (message, error) {
		rq := Q(new(Rq))
		if err := a.decode(rq); err != nil {
			return nil, err
		}
		return f(c, ctx, a.who, rq)
	}}
}

// handleDone makes a handler from a method whose answer is empty.
func handleDone[Rq any, Q pointer[Rq]](f func(*Controller, context.Context, *proto.Caller, Q) error) handler {
	return handle(func(c *Controller, ctx context.Context, who *proto.Caller, rq Q) (*proto.Empty, error) {
		return &proto.Empty{}, f(c, ctx, who, rq)
	})
}

// handleParts makes a handler from a method that sends parts. last gives the part that ends the answer.
func handleParts[Rq any, Q pointer[Rq]](f func(*Controller, context.Context, *proto.Caller, Q, stream) error,
	last func(*Controller) message) handler {
	return handler{parts: true, answer: func(c *Controller, ctx context.Context, a *call) (message, error) {
		rq := Q(new(Rq))
		if err := a.decode(rq); err != nil {
			return nil, err
		}
		if err := f(c, ctx, a.who, rq, a.send); err != nil {
			return nil, err
		}
		return last(c), nil
	}}
}

// The last parts of streams.
var (
	endOfJobs     = func(c *Controller) message { return &proto.JobsChunk{Now: c.now()} }
	endOfNodes    = func(c *Controller) message { return &proto.NodesChunk{Now: c.now()} }
	endOfSteps    = func(c *Controller) message { return &proto.StepsChunk{Now: c.now()} }
	endOfDump     = func(*Controller) message { return &proto.DumpChunk{} }
	endOfAccounts = func(*Controller) message { return &proto.AccountsChunk{} }
	endOfPrios    = func(c *Controller) message {
		return &proto.PrioChunk{Weights: c.machine.View().Config().Params.Priority}
	}
)

// serve answers one user's request. It runs on the leader. False: leadership has moved, nothing was done, and, with
// follow, no answer was given, so that the request can go to the next leader.
func (c *Controller) serve(ctx context.Context, r *server.Request, who *proto.Caller, kind uint16, body []byte,
	follow bool) bool {
	if kind == proto.KindOnce {
		return c.serveOnce(ctx, r, who, body, follow)
	}
	begin := time.Now()
	c.counts.serving.Add(1)
	defer func() {
		c.counts.serving.Add(-1)
		c.counts.served(kind, who, time.Since(begin))
	}()
	h, ok := handlers[kind]
	if !ok {
		c.end(r, nil, refuse(proto.CodeBadRequest,
			"this controller does not know request kind %d; is the command of a newer version?", kind))
		return true
	}
	ctx, made := withMade(ctx)
	a := &call{r: r, who: who, body: body}
	reply, err := h.answer(c, ctx, a)
	if err != nil {
		reply, err = nil, answerFor(kind, made.Load(), err)
	}
	if errors.Is(err, errMoved) {
		if follow && a.part == nil {
			return false
		}
		err = c.notLeading()
	}
	c.end(r, reply, err)
	return true
}
