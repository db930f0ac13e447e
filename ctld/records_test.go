package ctld

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gbatch/ctld/events"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/store"
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

// TestLeaversPay: a list that was made counts whole for a user who has left before reading it, and so does the time
// that one took which nobody waits for any more.
func TestLeaversPay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Controller{machine: newMachine(), readers: newReaders()}
		defer c.readers.same.Close()
		slowly := &handler{parts: true, answer: func(_ *Controller, _ context.Context, a *call) (message, error) {
			for range 50 {
				time.Sleep(20 * time.Millisecond)
				if err := a.send(&proto.JobsChunk{}); err != nil {
					return nil, err
				}
			}
			return &proto.JobsChunk{}, nil
		}}
		gone := errors.New("the client has gone")
		a := &call{kind: proto.KindJobs}
		_, err := c.readShared(t.Context(), a, proto.KindJobs, slowly, "all", "7", func([]byte) error { return gone })
		part, perr := proto.Encode(&proto.JobsChunk{})
		if perr != nil || !errors.Is(err, gone) || a.bytes != 51*len(part) {
			t.Errorf("%d bytes count of an answer of 51 times %d: %v, %v", a.bytes, len(part), err, perr)
		}

		pay := func() { // one row
			if err := c.readers.limits.Pay(t.Context(), "8", 1, c.queryRate()); err != nil {
				t.Error(err)
			}
		}
		pay()
		for range 8 { // half a second of work for each, and thrown away
			ctx, leave := context.WithTimeout(t.Context(), time.Second/2)
			_, err := c.readShared(ctx, &call{kind: proto.KindJobs}, proto.KindJobs, slowly, "mine", "8", nil)
			if leave(); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v", err)
			}
			time.Sleep(time.Second / 10) // what was begun ends
		}
		pay()
		if n, waited := c.readers.limits.Delayed("8"); n != 1 || waited < time.Second {
			t.Errorf("a user who lets lists be made and leaves waited %d times, for %v", n, waited)
		}
	})
}

// TestNotedRecordsFitTheLog: the most records that one change may name, with the most that may be set of each, are a
// command that the log takes; what is more is refused with a sentence.
func TestNotedRecordsFitTheLog(t *testing.T) {
	long := strings.Repeat("x", proto.MaxFieldBytes)
	for fits, set := range map[bool][]model.KV{
		true: {{Key: model.NotedComment, Value: long}},
		false: {{Key: model.NotedComment, Value: long}, {Key: model.NotedExtra, Value: long},
			{Key: model.NotedAdmin, Value: long}}} {
		text, ok := notedText(set, maxNoted)
		if ok != fits {
			t.Fatalf("%d settings of %d records: %v", len(set), maxNoted, ok)
		}
		c := &state.Audits{}
		by := events.By{UID: 1000, User: strings.Repeat("u", 30)}
		for n := range maxNoted {
			r := &model.Record{Job: model.JobID(n + 1), UID: 1000}
			c.List = append(c.List, by.Noted(r, &model.JobRef{Job: r.Job, Task: model.NoTask}, text, set))
		}
		data, err := state.Encode(1, c)
		if err != nil || ok && len(data) > store.MaxCommandBytes {
			t.Errorf("%d settings: %d bytes, %v", len(set), len(data), err)
		}
	}
	if text, ok := notedText([]model.KV{{Key: model.NotedComment, Value: "short"}}, 1); !ok || text != "Comment=short" {
		t.Errorf("one record: %q", text)
	}
}
