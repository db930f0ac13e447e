package noded

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/noded/pool"
	"gbatch/noded/shares"
)

// oops panics as a defect does that an input has found.
func oops() {
	var none []int
	none[len(none)]++
}

// TestPanicsFailAlone: each worker that input reaches fails its request if it panics, says so in one line that names
// the function, and goes on.
func TestPanicsFailAlone(t *testing.T) {
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	once := func(what string) {
		t.Helper()
		if text := said.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "it crashed: ") ||
			!strings.Contains(text, "noded.") {
			t.Errorf("%s: %q", what, text)
		}
		said.Reset()
	}

	l := &loop{log: log}
	var told error
	if err := l.guard(func() error { oops(); return nil }, func(err error) error { told = err; return nil }); err != nil ||
		told == nil {
		t.Error("a request:", err, told)
	}
	once("a request")
	if err := l.guard(func() error { oops(); return nil }, nil); err != nil {
		t.Error("a request that nobody waits for:", err)
	}
	once("a request that nobody waits for")

	// A pool of one worker does the next task too, and who waits for the first is told.
	p := pool.New(context.Background(), 1, log)
	told = nil
	next := make(chan bool, 1)
	p.Do(func(context.Context) {
		defer pool.Or(func(err error) { told = err })
		oops()
	})
	p.Do(func(context.Context) { next <- true })
	p.Wait()
	if told == nil || len(next) != 1 {
		t.Error("a pool:", told, len(next))
	}
	once("a pool")

	// A message of a controller ends its session, an event of another node its part, and a command's message its
	// connection. The nil pointers are the defect.
	if err := (&session{log: log}).readGuarded(context.Background(), nil, nil, 0); err == nil {
		t.Error("a session goes on")
	}
	once("a session")
	n := &Noded{log: log, stats: make(chan struct{}, 1), inbox: &inbox{wake: make(chan struct{}, 1)}}
	if err := n.readEvents(nil, nil); err == nil {
		t.Error("a part goes on")
	}
	once("a part")
	s := &stepServer{inbox: n.inbox, log: log, own: shares.New(16), conns: map[*stepConn]bool{}}
	c := newStepConn(&feed{r: strings.NewReader("")}, s.own, shares.Owner{})
	s.converse(c, "uid", 1, func() error { oops(); return nil })
	once("a command")
	if !c.closed {
		t.Error("a command's connection stays")
	}

	// A question of a controller is answered all the same. Without a sampler there is no sample.
	here, there := net.Pipe()
	node, ctld := rpc.Client(here, rpc.ConnOptions{}), rpc.Client(there, rpc.ConnOptions{})
	defer node.Close() //nolint:errcheck // the test is over
	defer ctld.Close() //nolint:errcheck // as above
	n.answerNode(node, &proto.NodeAsk{ID: 7, Attempts: []proto.Attempt{{Job: model.JobID(1), Attempt: 1}}})
	var f rpc.Frame
	if err := ctld.ReadFrame(&f); err != nil {
		t.Fatal(err)
	}
	var answer proto.NodeAnswer
	if err := proto.Decode(f.Body, &answer); err != nil || answer.ID != 7 || answer.Failed == "" {
		t.Error("a question:", err, answer)
	}
	select {
	case n.stats <- struct{}{}: // its place is free again
	case <-time.After(10 * time.Second):
		t.Fatal("the question's place is not free")
	}
	once("a question")
}
