package relay

import (
	"context"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
)

// attend.go releases the allocation of a command on this host when the command is killed: galloc's, and that of a grun
// outside of a job. The end of its connection shows the command's end.

// attend waits for the command's end, and cancels its job if the command ended without a message.
func (s *Local) attend(ctx context.Context, r *server.Request, who *proto.Caller) error {
	var rq proto.AttendRequest
	if err := proto.Decode(r.Body, &rq); err != nil {
		return rpc.Errorf(proto.CodeBadRequest, "malformed request: %v", err)
	}
	vanished, err := server.Attend(ctx, r)
	if err != nil || !vanished {
		return err
	}
	body, err := proto.Encode(rq.Cancel())
	if err != nil {
		return err
	}
	s.Log.Info("a command was killed; its allocation is cancelled", "job", rq.Job, "request", rq.RequestID,
		"uid", who.UID)
	unknown := server.NotYet()
	err = server.GiveBack(ctx, func() error {
		return unknown(s.Relay.Forward(ctx, who, proto.KindCancel, body, func(*rpc.Frame) error { return nil }))
	})
	if err != nil {
		s.Log.Warn("the allocation of a killed command could not be cancelled", "job", rq.Job, "err", err)
	}
	return nil
}
