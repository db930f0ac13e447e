package ctld

import (
	"context"
	"testing"

	"gbatch/internal/proto"
)

// TestFewRecordsAreUnderWay: of one user's questions to gdbd a few are under way at a time; another's come at once.
func TestFewRecordsAreUnderWay(t *testing.T) {
	c := &Controller{readers: newReaders()}
	in, goOn := make(chan string, 100), make(chan struct{})
	h := &handler{answer: func(*Controller, context.Context, *call) (message, error) {
		in <- "one"
		<-goOn
		return &proto.RecordsChunk{}, nil
	}}
	ask := func(payer string, done chan error) {
		a := &call{kind: proto.KindAcct, more: func([]byte) error { return nil }}
		_, err := c.askedRecords(t.Context(), a, h, payer)
		done <- err
	}
	done := make(chan error)
	for range 20 {
		go ask("7", done)
	}
	for range recordsAtOnce {
		<-in
	}
	go ask("8", done)
	<-in // the other user's
	select {
	case <-in:
		t.Errorf("more than %d of one user's questions are under way", recordsAtOnce)
	default:
	}
	close(goOn)
	for range 21 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
