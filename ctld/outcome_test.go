package ctld

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/store"
)

func codeOf(err error) proto.Code {
	var e *rpc.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// The answers for each of the store's errors, to requests that may be repeated and to others.
func TestOutcomeOfCommands(t *testing.T) {
	for _, c := range []struct {
		err  error
		made bool // another command of the same request
		want proto.Code
	}{
		{store.ErrNotLeader, false, proto.CodeNotLeader},
		{store.ErrClosed, false, proto.CodeNotLeader},
		{fmt.Errorf("%w: %w", store.ErrQueueFull, context.Canceled), false, proto.CodeNotLeader},
		{fmt.Errorf("%w: %w", store.ErrQueueFull, context.DeadlineExceeded), false, proto.CodeBusy},
		{store.ErrTooLarge, false, proto.CodeBadRequest},
		{store.ErrLeadershipLost, false, proto.CodeUnknown},
		{fmt.Errorf("waiting: %w", context.DeadlineExceeded), false, proto.CodeUnknown},
		{context.Canceled, false, proto.CodeUnknown},
		{store.ErrNotLeader, true, proto.CodeUnknown},
	} {
		for _, kind := range []uint16{proto.KindSubmit, proto.KindReserve} {
			if got := codeOf(answerFor(kind, c.made, proposalError(c.err))); got != c.want {
				t.Errorf("%v: request %d is answered %d, want %d", c.err, kind, got, c.want)
			}
		}
	}
	ctx, made := withMade(t.Context())
	if noteMade(t.Context()); made.Load() {
		t.Error("another request's command counts")
	}
	if noteMade(ctx); !made.Load() {
		t.Error("the command does not count")
	}
}

// The answers of a follower that has passed a request on to the leader.
func TestOutcomeOfRelaying(t *testing.T) {
	lost := fmt.Errorf("controller: %w", rpc.ErrLost)
	question, update := proto.RequestOf(proto.KindJobs), proto.RequestOf(proto.KindUpdateJob)
	for _, c := range []struct {
		err           error
		again, change proto.Code
	}{
		{&rpc.Unsent{Err: lost}, proto.CodeNoController, proto.CodeNoController},
		{lost, proto.CodeNoController, proto.CodeUnknown},
		{rpc.Errorf(proto.CodeNotLeader, "c2:1"), proto.CodeNoController, proto.CodeNoController},
		{rpc.Errorf(proto.CodeInvalidJob, "no"), proto.CodeInvalidJob, proto.CodeInvalidJob},
	} {
		if got := codeOf(relayError(&question, false, c.err)); got != c.again {
			t.Errorf("%v: a question is answered %d, want %d", c.err, got, c.again)
		}
		if got := codeOf(relayError(&update, false, c.err)); got != c.change {
			t.Errorf("%v: a change is answered %d, want %d", c.err, got, c.change)
		}
	}
	for _, err := range []error{&rpc.Unsent{Err: lost}, rpc.Errorf(proto.CodeNotLeader, ""),
		rpc.Errorf(proto.CodeBusy, "busy")} {
		if got := codeOf(relayError(&update, true, err)); got != proto.CodeUnknown {
			t.Errorf("%v after a try whose answer was lost is answered %d", err, got)
		}
	}
	if relayError(&update, true, nil) != nil {
		t.Error("an answer is an error")
	}
	if err := relayError(&update, false, lost); !strings.Contains(err.Error(), "look at gcontrol show job") {
		t.Error(err)
	}
}
