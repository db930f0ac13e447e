package ctld

import (
	"context"
	"errors"
	"sync/atomic"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/store"
)

// outcome.go keeps the promise that CodeNotLeader and CodeNoController make to whoever passes a request on: nothing of
// it was done, so it may be made again somewhere else. A command whose fate the store does not know, and a request of
// which a part is in the log already, must not be answered with them, unless the request may be repeated.

// lostError is the error of a command that is in the log or not: the store can't tell. again is the answer to a request
// that may be repeated.
type lostError struct {
	why   string
	again *rpc.Error
}

func (e *lostError) Error() string { return e.why }

var (
	errMoved = rpc.Errorf(proto.CodeNotLeader, "leadership has just moved; try again")
	errSlow  = rpc.Errorf(proto.CodeBusy, "Socket timed out on send/recv operation")
)

// proposalError says what an error of the store means for the request behind the command.
func proposalError(err error) error {
	switch {
	case errors.Is(err, store.ErrNotLeader), errors.Is(err, store.ErrClosed):
		return errMoved
	case errors.Is(err, store.ErrQueueFull):
		return errSlow
	case errors.Is(err, store.ErrTooLarge):
		return refuse(proto.CodeBadRequest, "the request is too large for one log entry")
	case errors.Is(err, store.ErrLeadershipLost):
		return &lostError{"leadership moved while the change was on its way", errMoved}
	case errors.Is(err, context.DeadlineExceeded):
		return &lostError{errSlow.Text, errSlow}
	}
	return &lostError{err.Error(), errSlow}
}

// madeKey is the key of a request's context for whether a command of it is in the log.
type madeKey struct{}

// withMade gives a context in which propose notes that it has succeeded.
func withMade(ctx context.Context) (context.Context, *atomic.Bool) {
	made := new(atomic.Bool)
	return context.WithValue(ctx, madeKey{}, made), made
}

func noteMade(ctx context.Context) {
	if made, ok := ctx.Value(madeKey{}).(*atomic.Bool); ok {
		made.Store(true)
	}
}

// answerFor gives the error that a request is answered with when its handler failed with err. made tells whether a part
// of it is done.
func answerFor(kind uint16, made bool, err error) error {
	row := proto.RequestOf(kind)
	var lost *lostError
	var e *rpc.Error
	switch {
	case errors.As(err, &lost) && row.Repeats:
		return lost.again
	case errors.As(err, &lost):
		return rpc.Errorf(proto.CodeUnknown, "%s", row.Unknown(lost.why))
	case made && !row.Repeats && errors.As(err, &e) && (e.Code == proto.CodeNotLeader || e.Code == proto.CodeNoController):
		return rpc.Errorf(proto.CodeUnknown, "%s", row.Unknown(e.Text+"; a part of the change was made"))
	}
	return err
}

// relayError gives the answer to a request that another controller was asked with err as the result.
func relayError(kind uint16, err error) error {
	unreachable := func(why any) error {
		return rpc.Errorf(proto.CodeNoController, "Unable to contact slurm controller (connect failure): %v", why)
	}
	row := proto.RequestOf(kind)
	var e *rpc.Error
	var unsent *rpc.Unsent
	switch {
	case errors.As(err, &e) && e.Code == proto.CodeNotLeader:
		return unreachable("leadership is moving; try again")
	case err == nil || errors.As(err, &e):
		return err
	case errors.As(err, &unsent), row.Repeats:
		return unreachable(err)
	}
	return rpc.Errorf(proto.CodeUnknown, "%s",
		row.Unknown("the connection to the controller that leads broke before it answered"))
}
