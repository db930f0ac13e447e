package server

import (
	"context"
	"errors"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

const (
	giveBackFor  = time.Hour   // how long GiveBack tries
	giveBackPace = time.Second // between two tries
	notYetFor    = time.Minute // how long a submission may be in flight
)

// Attend takes over a request's connection, confirms this with a frame of the request's kind, and waits until the
// client has gone. vanished means that the client sent no frame before it went; it is false if the server stops.
func Attend(ctx context.Context, r *Request) (vanished bool, err error) {
	c, err := r.Hijack()
	if err != nil {
		return false, err
	}
	if err := c.WriteFrame(r.Kind, 0, 0, nil); err != nil {
		return ctx.Err() == nil, nil
	}
	var f rpc.Frame
	return c.ReadFrame(&f) != nil && ctx.Err() == nil, nil
}

// NotYet gives a function that decides whether to repeat a try to release a client's job: nil means done, and so does a
// refusal, since the job no longer exists. An unknown job may still be in flight for notYetFor: the vanished client had
// sent its submission.
func NotYet() func(error) error {
	begin := time.Now()
	return func(err error) error {
		var e *rpc.Error
		switch {
		case !errors.As(err, &e):
			return err
		case e.Code == proto.CodeNoController, e.Code == proto.CodeNotLeader, e.Code == proto.CodeBusy,
			e.Code == proto.CodeUnknown:
			return err
		case e.Code == proto.CodeInvalidJob && time.Since(begin) < notYetFor:
			return err
		}
		return nil
	}
}

// GiveBack calls ask, which releases a vanished client's job, until it succeeds, for at most an hour. Otherwise it
// returns the last error.
func GiveBack(ctx context.Context, ask func() error) error {
	pace := time.NewTicker(giveBackPace)
	defer pace.Stop()
	for end := time.Now().Add(giveBackFor); ; {
		err := ask()
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return err
		}
	}
}
