package server

import (
	"context"

	"gbatch/internal/rpc"
)

// Attend takes a request's connection over, tells the client so with a frame of the request's kind, and waits until the client
// has gone. It reports whether the client went without saying, by a frame of any kind, that it would; it did not where the server stops.
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
