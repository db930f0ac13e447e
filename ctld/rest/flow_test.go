package rest

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"gbatch/internal/proto"
)

// TestFlow: a user's burst goes at once, what is beyond it waits, and what would wait for too long is refused; others,
// root and short answers don't wait.
func TestFlow(t *testing.T) {
	s := &Server{flow: newFlow()}
	now, cancel := context.WithCancel(context.Background())
	cancel() // who would have to wait gets an error at once
	ann, bob, root := &proto.Caller{UID: 1}, &proto.Caller{UID: 2}, &proto.Caller{}
	for range 3 * flowBurstS { // who has something left is served, and owes the rest
		if err := s.flows(now, ann, flowBytes/2); err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			break
		}
	}
	if err := s.flows(now, ann, flowBytes); !errors.Is(err, context.Canceled) {
		t.Error("who has had the burst:", err)
	}
	if err := s.flows(now, ann, flowLeast-1); err != nil {
		t.Error("a short answer:", err)
	}
	for who, c := range map[string]*proto.Caller{"another user": bob, "root": root} {
		if err := s.flows(now, c, flowBytes); err != nil {
			t.Error(who, err)
		}
	}
	s.flow.Settle("1", 100*flowBytes)
	var f *fault
	if err := s.flows(context.Background(), ann, flowBytes); !errors.As(err, &f) ||
		f.Status != http.StatusTooManyRequests {
		t.Error("who owes far too much:", err)
	}
}
