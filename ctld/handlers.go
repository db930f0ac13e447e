package ctld

import (
	"context"
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
	"gbatch/internal/rpc/share"
	"gbatch/internal/wire"
)

// handlers.go maps each kind of user request to the method that answers it on the leader. Everything else about a kind
// is in its row in internal/proto/requests.go. Who changes so much that others' changes would wait, waits (share.Pace).

// asking marks a handler that asks other daemons.
func asking(h handler) handler {
	h.asks = true
	return h
}

// waiting marks a handler that waits for files, for names of users, or for its turn.
func waiting(h handler) handler {
	h.waits = true
	return h
}

// handlers has an entry for each kind of request that the leader answers, but for KindOnce, which holds another kind.
var handlers = map[uint16]handler{
	proto.KindPing:       asking(handle((*Controller).ping)),
	proto.KindSubmit:     handle((*Controller).submit),
	proto.KindSubmitEach: handle((*Controller).submitEach),
	proto.KindCancel:     handle((*Controller).cancel),
	proto.KindSignal:     handle((*Controller).cancel),
	proto.KindUpdateJob:  handle((*Controller).updateJob),
	proto.KindUpdateNode: handleDone((*Controller).updateNode),
	proto.KindReserve:    handle((*Controller).reserve),
	proto.KindSetDebug:   handleDone((*Controller).setDebug),

	proto.KindUpdatePartition: handleDone((*Controller).updatePartition),

	proto.KindMIG:          handle((*Controller).applyMIG),
	proto.KindReconfigure:  handle((*Controller).reconfigure),
	proto.KindEditAccounts: handleDone((*Controller).editAccounts),
	proto.KindDiagReset:    handle((*Controller).diagReset),
	proto.KindTakeover:     handle((*Controller).takeover),

	proto.KindEditControllers: handle((*Controller).editControllers),
	proto.KindControllers:     handle((*Controller).controllers),

	proto.KindPresent:    handle((*Controller).present),
	proto.KindCrontab:    waiting(handle((*Controller).crontab)),
	proto.KindSetCrontab: handle((*Controller).setCrontab),

	proto.KindTriggers:      handleParts((*Controller).triggers, endOfTriggers),
	proto.KindSetTrigger:    handleDone((*Controller).setTrigger),
	proto.KindClearTriggers: handle((*Controller).clearTriggers),

	proto.KindToken:      waiting(handle((*Controller).makeToken)),
	proto.KindEditTokens: handle((*Controller).editTokens),

	proto.KindEditCerts: handle((*Controller).editCerts),
	proto.KindCerts:     handle((*Controller).listCerts),

	proto.KindJobs:         handleParts((*Controller).jobs, endOfJobs),
	proto.KindNodes:        handleParts((*Controller).nodesList, endOfNodes),
	proto.KindPartitions:   handle((*Controller).partitions),
	proto.KindPools:        handle((*Controller).pools),
	proto.KindConfig:       handle((*Controller).config),
	proto.KindWait:         handle((*Controller).wait),
	proto.KindAcct:         {parts: true, answer: (*Controller).acct},
	proto.KindReport:       asking(handler{parts: true, answer: (*Controller).usageReport}),
	proto.KindHistory:      {parts: true, asks: true, answer: (*Controller).past},
	proto.KindShares:       handle((*Controller).shares),
	proto.KindDiag:         handle((*Controller).diag),
	proto.KindScript:       handle((*Controller).script),
	proto.KindDump:         handleParts((*Controller).dump, endOfDump),
	proto.KindAccounts:     handleParts((*Controller).accounts, endOfAccounts),
	proto.KindMoney:        handleParts((*Controller).money, endOfMoney),
	proto.KindEditMoney:    handle((*Controller).editMoney),
	proto.KindPrio:         handleParts((*Controller).prios, endOfPrios),
	proto.KindWhy:          waiting(handler{answer: (*Controller).why}),
	proto.KindReservations: handle((*Controller).reservations),
	proto.KindStat:         asking(handle((*Controller).stat)),
	proto.KindSteps:        asking(handleParts((*Controller).steps, endOfSteps)),
	proto.KindPeers:        asking(handle((*Controller).peers)),
	proto.KindDaemon:       asking(handle((*Controller).daemon)),
	proto.KindTail:         asking(handle((*Controller).tail)),
	proto.KindDoctor:       asking(handle((*Controller).doctor)),
}

// handler answers the requests of one kind.
type handler struct {
	parts  bool // the answer is a stream
	asks   bool // other daemons are asked for it, which takes time and no CPU
	waits  bool // it waits, and takes a place of the gate by itself where it needs the CPU
	answer func(c *Controller, ctx context.Context, a *call) (message, error)
}

// call is one request.
type call struct {
	r    *server.Request
	who  *caller
	kind uint16
	body []byte
	part []byte // the last part's buffer, which is used again: a list of 50,000 jobs leaves no garbage

	more  func(part []byte) error // sends a part that another one follows
	bytes int                     // of the answer, so far
	rows  float64                 // as many as the time counts for that it took to make it
	pace  float64                 // units a second for which it has paid, as a change; 0: none
	sent  bool                    // a part of it has gone out
}

// stream sends one part of an answer; the handler returns the last part.
type stream func(msg message) error

func (a *call) send(m message) (err error) {
	if a.part, err = proto.Append(a.part[:0], m); err != nil {
		return err
	}
	if h, ok := m.(proto.Halver); ok && len(a.part) > proto.ChunkBytes {
		if first, second := h.Halves(); second != nil {
			if err := a.send(first); err != nil {
				return err
			}
			return a.send(second)
		}
	}
	a.bytes += len(a.part)
	return a.more(a.part)
}

func (a *call) decode(m message) error {
	if _, none := m.(*proto.Empty); none {
		return nil
	}
	if most := proto.MaxBytes(a.kind); len(a.body) > most {
		return rpc.Errorf(rpc.CodeTooLarge, "a request of %d bytes is over the limit of %d bytes for its kind", len(a.body),
			most)
	}
	err := proto.DecodeWith(a.body, m, wire.Refuse)
	var bad *wire.NotPlain
	switch {
	case errors.As(err, &bad):
		return refuse(proto.CodeBadRequest, "%s contains %v, which would act on the screens and lists that show it",
			written(bad), bad.Why)
	case err != nil:
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
	R pointer[Reply]](f func(*Controller, context.Context, *caller, Q) (R, error)) handler {
	return handler{answer: func(c *Controller, ctx context.Context, a *call) (message, error) {
		rq := Q(new(Rq))
		if err := a.decode(rq); err != nil {
			return nil, err
		}
		return f(c, ctx, a.who, rq)
	}}
}

// handleDone makes a handler from a method whose answer is empty.
func handleDone[Rq any, Q pointer[Rq]](f func(*Controller, context.Context, *caller, Q) error) handler {
	return handle(func(c *Controller, ctx context.Context, who *caller, rq Q) (*proto.Empty, error) {
		return &proto.Empty{}, f(c, ctx, who, rq)
	})
}

// handleParts makes a handler from a method that sends parts. last gives the part that ends the answer.
func handleParts[Rq any, Q pointer[Rq]](f func(*Controller, context.Context, *caller, Q, stream) error,
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
	endOfMoney    = func(*Controller) message { return &proto.MoneyChunk{} }
	endOfTriggers = func(*Controller) message { return &proto.TriggersChunk{} }
	endOfPrios    = func(c *Controller) message {
		return &proto.PrioChunk{Weights: c.machine.View().Config().Params.Priority}
	}
)

// serve answers one user's request. It runs on the leader. False: leadership has moved, nothing was done, and, with
// follow, no answer was given, so that the request can go to the next leader.
func (c *Controller) serve(ctx context.Context, r *server.Request, who *caller, kind uint16, body []byte,
	follow bool) bool {
	if kind == proto.KindOnce {
		return c.serveOnce(ctx, r, who, body, follow)
	}
	begin := time.Now()
	c.counts.serving.Add(1)
	defer func() {
		c.counts.serving.Add(-1)
		c.answered(kind, who, time.Since(begin))
	}()
	h, ok := handlers[kind]
	if !ok {
		c.end(r, nil, refuse(proto.CodeBadRequest,
			"this controller does not know request kind %d; is the command of a newer version?", kind))
		return true
	}
	if err := c.mayAsk(who, kind); err != nil {
		c.end(r, nil, err)
		return true
	}
	ctx, made := withMade(ctx)
	a := &call{r: r, who: who, kind: kind, body: body, more: r.ReplyMore}
	var last []byte
	var err error
	switch row := proto.RequestOf(kind); {
	case kind == proto.KindAcct:
		last, err = c.readRecords(ctx, a, &h)
	case row.Effect != proto.Changes && row.WaitS == 0 && !answeredAnywhere(kind):
		last, err = c.read(ctx, a, kind, &h)
	default:
		if err = c.paced(ctx, a); err == nil {
			last, err = c.make(ctx, a, &h)
			c.madePaced(a, err)
		}
	}
	if err != nil {
		err = answerFor(kind, made.Load(), err)
	}
	if errors.Is(err, errMoved) {
		if follow && !a.sent {
			return false
		}
		err = c.notLeading()
	}
	c.endWith(r, last, err)
	return true
}

// answeredAnywhere reports whether every controller answers a request of that kind, whoever leads: which controllers
// there are, and what gdbd has.
func answeredAnywhere(kind uint16) bool {
	return kind == proto.KindAcct || kind == proto.KindControllers
}

// make gives the last part of an answer.
func (c *Controller) make(ctx context.Context, a *call, h *handler) ([]byte, error) {
	reply, err := h.answer(c, ctx, a)
	if err != nil {
		return nil, err
	}
	return proto.Encode(reply)
}

// Prices of changes, for share.Pace.
const (
	paceBytes   = 4 << 10 // a change costs one unit, and one more for each so many bytes
	paceRefused = 4       // times as much
	paceLeast   = 250     // units a second that a user may always have, on a machine where
	pacePart    = 16      // a part of the CPUs pays for that: this one
)

func newPace() *share.Pace {
	p := share.NewPace(paceLeast)
	p.Part, p.Spent = float64(runtime.GOMAXPROCS(0))/pacePart, spentCPU
	return p
}

// spentCPU is this process's CPU time.
func spentCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func priceOf(a *call) float64 { return 1 + float64(len(a.body)/paceBytes) }

// paced takes the price of a change, and waits if its user makes too many beside others'. Root never waits.
func (c *Controller) paced(ctx context.Context, a *call) (err error) {
	if proto.RequestOf(a.kind).Effect != proto.Changes {
		return nil
	}
	a.pace, err = c.pace.Wait(ctx, payerOf(a.who.UID), priceOf(a), a.who.UID == 0)
	if errors.Is(err, share.ErrOwes) {
		return refuse(proto.CodeBusy, "you make changes much faster than the %.0f a second that are served while "+
			"others make theirs; try again in a moment", a.pace)
	}
	return err
}

// madePaced takes more for a change that was refused: its user learns nothing from making it again.
func (c *Controller) madePaced(a *call, err error) {
	if a.pace > 0 && err != nil {
		c.pace.More(payerOf(a.who.UID), (paceRefused-1)*priceOf(a))
	}
}
