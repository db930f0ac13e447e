package server

import (
	"context"
	"errors"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

const (
	giveBackFor  = time.Hour   // how long somebody is looked for that takes back what a client held
	giveBackPace = time.Second // between two tries
	notYetFor    = time.Minute // how long a submission may be on its way
)

// Attend takes a request's connection over, tells the client so with a frame of the request's kind, and waits until the
// client has gone. It reports whether the client went without saying, by a frame of any kind, that it would; it did not
// where the server stops.
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

// NotYet gives a function that says whether a try to give back what a client held has to be repeated: nil is done,
// and so is a refusal, since there is no such job any more. A job that is not known may still be on its way for
// notYetFor: its submission was taken from the client that vanished.
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

// GiveBack calls ask, which gives back what a client held that has vanished, until it succeeds, for an hour at most.
// It gives the last error where nobody took it.
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
