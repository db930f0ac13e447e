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
		err           error
		made          bool // of another command of the same request
		again, change proto.Code
	}{
		{store.ErrNotLeader, false, proto.CodeNotLeader, proto.CodeNotLeader},
		{store.ErrClosed, false, proto.CodeNotLeader, proto.CodeNotLeader},
		{fmt.Errorf("%w: %w", store.ErrQueueFull, context.DeadlineExceeded), false, proto.CodeBusy, proto.CodeBusy},
		{store.ErrTooLarge, false, proto.CodeBadRequest, proto.CodeBadRequest},
		{store.ErrLeadershipLost, false, proto.CodeNotLeader, proto.CodeUnknown},
		{fmt.Errorf("waiting: %w", context.DeadlineExceeded), false, proto.CodeBusy, proto.CodeUnknown},
		{context.Canceled, false, proto.CodeBusy, proto.CodeUnknown},
		{store.ErrNotLeader, true, proto.CodeNotLeader, proto.CodeUnknown},
	} {
		err := proposalError(c.err)
		if got := codeOf(answerFor(proto.KindSubmit, c.made, err)); got != c.again {
			t.Errorf("%v: a submission is answered %d, want %d", c.err, got, c.again)
		}
		if got := codeOf(answerFor(proto.KindReserve, c.made, err)); got != c.change {
			t.Errorf("%v: a reservation is answered %d, want %d", c.err, got, c.change)
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
	for _, c := range []struct {
		err           error
		again, change proto.Code
	}{
		{&rpc.Unsent{Err: lost}, proto.CodeNoController, proto.CodeNoController},
		{lost, proto.CodeNoController, proto.CodeUnknown},
		{rpc.Errorf(proto.CodeNotLeader, "c2:1"), proto.CodeNoController, proto.CodeNoController},
		{rpc.Errorf(proto.CodeInvalidJob, "no"), proto.CodeInvalidJob, proto.CodeInvalidJob},
	} {
		if got := codeOf(relayError(proto.KindJobs, c.err)); got != c.again {
			t.Errorf("%v: a question is answered %d, want %d", c.err, got, c.again)
		}
		if got := codeOf(relayError(proto.KindUpdateJob, c.err)); got != c.change {
			t.Errorf("%v: a change is answered %d, want %d", c.err, got, c.change)
		}
	}
	if relayError(proto.KindUpdateJob, nil) != nil {
		t.Error("an answer is an error")
	}
	if err := relayError(proto.KindUpdateJob, lost); !strings.Contains(err.Error(), "look at gcontrol show job") {
		t.Error(err)
	}
}
