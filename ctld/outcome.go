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
// already in the log, these codes must not be used, unless the request may be repeated.

// lostError is the error for a command about which the store can't tell whether it is in the log. again is the answer
// to a request that may be repeated.
type lostError struct {
	why   string
	again *rpc.Error
}

func (e *lostError) Error() string { return e.why }

var (
	errMoved = rpc.Errorf(proto.CodeNotLeader, "leadership has just moved; try again")
	errSlow  = rpc.Errorf(proto.CodeBusy, "Socket timed out on send/recv operation")
)

// proposalError turns an error of the store into the error for the command's request.
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
	case errors.As(err, &lost) && row.Repeats:
		return lost.again
	case errors.As(err, &lost):
		return rpc.Errorf(proto.CodeUnknown, "%s", row.Unknown(lost.why))
	case made && !row.Repeats && errors.As(err, &e) && (e.Code == proto.CodeNotLeader || e.Code == proto.CodeNoController):
		return rpc.Errorf(proto.CodeUnknown, "%s", row.Unknown(e.Text+"; a part of the change was made"))
	}
	return err
}

// relayError gives the answer to a request that was passed on to another controller and failed with err.
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
