package server

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// TestInterrupted ends requests' contexts under way, as a daemon that stops does: what only reads can be made again, of
// a change nothing is known, and nobody hears of an internal error.
func TestInterrupted(t *testing.T) {
	forward := func(kind uint16) []byte {
		b, err := proto.Encode(&proto.Forward{Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	causes := make(chan error, 1)
	s := startServer(t, func(ctx context.Context, r *Request) {
		<-ctx.Done()
		_ = r.Fail(<-causes) // the test reads the answer
	}, Options{})
	c := s.dial(t)
	for i, x := range []struct {
		kind  uint16
		body  []byte
		cause error
		want  rpc.Error
	}{
		{proto.KindJobs, nil, context.Canceled, rpc.Error{Code: proto.CodeNotLeader}},
		{proto.KindForward, forward(proto.KindJobs), io.EOF, rpc.Error{Code: proto.CodeNotLeader}},
		{proto.KindSubmit, nil, errors.New("terminated signal received"), rpc.Error{Code: proto.CodeUnknown}},
		{proto.KindForward, forward(proto.KindSubmit), io.EOF, rpc.Error{Code: proto.CodeUnknown}},
		{proto.KindSubmit, nil, &rpc.Unsent{Err: io.EOF}, rpc.Error{Code: proto.CodeNotLeader}},
		{proto.KindSubmit, nil, rpc.Errorf(proto.CodeInvalidJob, "no"), rpc.Error{Code: proto.CodeInvalidJob, Text: "no"}},
	} {
		causes <- x.cause
		id := uint32(i + 1)
		if err := c.WriteFrame(x.kind, rpc.FlagMux, id, x.body); err != nil {
			t.Fatal(err)
		}
		if err := c.WriteFrame(x.kind, rpc.FlagMux|rpc.FlagCancel, id, nil); err != nil {
			t.Fatal(err)
		}
		var f rpc.Frame
		if err := c.ReadFrame(&f); err != nil {
			t.Fatal(err)
		}
		e, err := rpc.DecodeError(f.Body)
		if err != nil {
			t.Fatal(err)
		}
		unknown := "; it is not known whether the change was made"
		if x.want.Code == proto.CodeUnknown && strings.Contains(e.Text, unknown) {
			x.want.Text = e.Text
		}
		if *e != x.want {
			t.Errorf("kind %d, cause %v: %+v, want %+v", x.kind, x.cause, *e, x.want)
		}
	}
	s.stop()
	if s.log.has("request failed") {
		t.Error("a request that was interrupted is in the log as a failed one")
	}
}
