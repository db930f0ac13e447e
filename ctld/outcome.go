package ctld

import (
	"context"
	"errors"
	"sync/atomic"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/store"
)

// outcome.go keeps the promise of CodeNotLeader and CodeNoController: nothing of the request was done, so it may be
// made again on another controller. If the store does not know what became of a command, or a part of the request is
// already in the log, the code is CodeUnknown: only a request with an id may be made again, and its command does so.

// lostError is the error for a command about which the store can't tell whether it is in the log.
type lostError struct{ why string }

func (e *lostError) Error() string { return e.why }

var (
	errMoved = rpc.Errorf(proto.CodeNotLeader, "leadership has just moved; try again")
	errSlow  = rpc.Errorf(proto.CodeBusy, "Socket timed out on send/recv operation")
)

// proposalError turns an error of the store into the error for the command's request.
func proposalError(err error) error {
	switch {
	case errors.Is(err, store.ErrNotLeader), errors.Is(err, store.ErrClosed),
		errors.Is(err, store.ErrQueueFull) && errors.Is(err, context.Canceled): // this controller ends
		return errMoved
	case errors.Is(err, store.ErrQueueFull):
		return errSlow
	case errors.Is(err, store.ErrTooLarge):
		return refuse(proto.CodeBadRequest, "the request is too large for one log entry")
	case errors.Is(err, store.ErrLeadershipLost):
		return &lostError{"leadership moved while the change was on its way"}
	case errors.Is(err, context.DeadlineExceeded):
		return &lostError{errSlow.Text}
	}
	return &lostError{err.Error()}
}

// madeKey is the context key for whether a command of the request is in the log.
type madeKey struct{}

// withMade gives a context in which propose records its success.
func withMade(ctx context.Context) (context.Context, *atomic.Bool) {
	made := new(atomic.Bool)
	return context.WithValue(ctx, madeKey{}, made), made
}

func noteMade(ctx context.Context) {
	if made, ok := ctx.Value(madeKey{}).(*atomic.Bool); ok {
		made.Store(true)
	}
}

// answerFor gives the error for the answer to a request whose handler failed with err. made says whether a part of the
// request is done.
func answerFor(kind uint16, made bool, err error) error {
	row := proto.RequestOf(kind)
	var lost *lostError
	var e *rpc.Error
	switch {
	case errors.As(err, &lost):
		return rpc.Errorf(proto.CodeUnknown, "%s", row.Unknown(lost.why))
	case made && errors.As(err, &e) && (e.Code == proto.CodeNotLeader || e.Code == proto.CodeNoController):
		return rpc.Errorf(proto.CodeUnknown, "%s", row.Unknown(e.Text+"; a part of the change was made"))
	}
	return err
}

// mayBeMade reports whether a request that was passed on and failed with err may have been carried out.
func mayBeMade(err error) bool {
	var e *rpc.Error
	var unsent *rpc.Unsent
	return err != nil && !errors.As(err, &e) && !errors.As(err, &unsent)
}

// relayError gives the answer to a request that was passed on to another controller and failed with err. lost says that
// an earlier try of it may have been carried out.
func relayError(row *proto.Request, lost bool, err error) error {
	unreachable := func(why any) error {
		return rpc.Errorf(proto.CodeNoController, "Unable to contact slurm controller (connect failure): %v", why)
	}
	var e *rpc.Error
	answered := errors.As(err, &e)
	switch {
	case err == nil || answered && proto.Settled(e.Code):
		return err
	case (lost || mayBeMade(err)) && row.Effect == proto.Changes:
		return rpc.Errorf(proto.CodeUnknown, "%s",
			row.Unknown("the connection to the controller that leads broke before it answered"))
	case answered && e.Code == proto.CodeNotLeader:
		return unreachable("leadership is moving; try again")
	case answered:
		return err
	}
	return unreachable(err)
}
