package ctld

import (
	"context"
	"errors"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
)

// attend.go cancels the job of a command on this controller's host when the command is killed, as noded/attend.go does
// on other hosts.

// attend waits for the command's end, and cancels its job if the command ended without a last message.
func (c *Controller) attend(ctx context.Context, r *server.Request, who *caller) {
	var rq proto.AttendRequest
	if err := proto.Decode(r.Body, &rq); err != nil {
		c.end(r, nil, refuse(proto.CodeBadRequest, "malformed request: %v", err))
		return
	}
	vanished, err := server.Attend(ctx, r)
	if err != nil {
		c.end(r, nil, err)
	}
	if !vanished {
		return
	}
	c.log.Info("a command was killed; its allocation is cancelled", "job", rq.Job, "request", rq.RequestID,
		"uid", who.UID)
	cancel, unknown := rq.Cancel(), server.NotYet()
	if err := server.GiveBack(ctx, func() error { return unknown(c.askLeader(ctx, who, cancel)) }); err != nil {
		c.log.Warn("the allocation of a killed command could not be cancelled", "job", rq.Job, "err", err)
	}
}

// askLeader asks the leader to cancel a job. An error means that no controller did.
func (c *Controller) askLeader(ctx context.Context, who *caller, rq *proto.CancelRequest) error {
	var err error
	if c.leading.Load() {
		_, err = c.cancel(ctx, who, rq)
	} else {
		body, eerr := proto.Encode(rq)
		if eerr != nil {
			return eerr
		}
		err = c.toLeader(ctx, who, proto.KindCancel, body, func(*rpc.Frame) error { return nil })
		if errors.Is(err, errHere) {
			_, err = c.cancel(ctx, who, rq)
		}
	}
	return err
}
