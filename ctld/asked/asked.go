// Package asked hears that somebody asks gdbd for records (package dbd/fresh), so that those of a job
// that has ended just before are sent at once. Without questions records wait a while for others.
package asked

import (
	"context"
	"sync"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// hurry is the least time between two Puts that were asked for: users who ask in a loop can't make each record a
// transaction.
const hurry = 20 * time.Millisecond

// Questions are those that one gdbd has heard, round by round. One goroutine, which sends records, calls its methods.
type Questions struct {
	m      *rpc.Mux
	last   func() uint64 // the number of the last record there is
	rounds chan uint64   // that begin
	over   chan uint64   // that have ended; it has room for one
	stop   context.CancelFunc
	wg     sync.WaitGroup

	round, upTo uint64 // the open round, 0: none; and the last record that it needs
}

// Hear listens until Close. last gives the number of the last record there is.
func Hear(ctx context.Context, m *rpc.Mux, last func() uint64) *Questions {
	ctx, stop := context.WithCancel(ctx)
	h := &Questions{m: m, last: last, rounds: make(chan uint64), over: make(chan uint64, 1), stop: stop}
	h.wg.Go(func() { h.hear(ctx) })
	return h
}

// Close ends the listening.
func (h *Questions) Close() {
	h.stop()
	h.wg.Wait()
}

// hear waits for rounds. A gdbd that does not know the request is older.
func (h *Questions) hear(ctx context.Context) {
	for rq := (proto.Asked{}); ; {
		body, err := proto.Encode(&rq)
		if err != nil {
			return
		}
		f, err := h.m.Call(ctx, proto.KindAsked, body)
		var reply proto.AskedReply
		if err != nil || proto.Decode(f.Body, &reply) != nil {
			return // the connection has ended, which Wait tells, or records come with their delay
		}
		if rq.Done = 0; reply.Round == 0 {
			continue
		}
		select {
		case h.rounds <- reply.Round:
		case <-ctx.Done():
			return
		}
		select {
		case rq.Done = <-h.over:
		case <-ctx.Done():
			return
		}
	}
}

// begin opens a round.
func (h *Questions) begin(round uint64) { h.round, h.upTo = round, h.last() }

// Look opens a round if somebody has asked.
func (h *Questions) Look() {
	select {
	case round := <-h.rounds:
		h.begin(round)
	default:
	}
}

// Sent ends the round if gdbd now has all that it needs.
func (h *Questions) Sent(last uint64) {
	if last >= h.upTo {
		h.End()
	}
}

// End ends the round: there is nothing more to send.
func (h *Questions) End() {
	if h.round > 0 {
		h.over <- h.round
		h.round = 0
	}
}

// Wait waits until records are to be sent: pace after changed, so that others go with them, or when somebody asks.
// begun is the time of the latest Put.
func (h *Questions) Wait(ctx context.Context, changed <-chan struct{}, pace time.Duration, begun time.Time) error {
	var late <-chan time.Time
	for {
		select {
		case <-changed:
			t := time.NewTimer(pace)
			defer t.Stop()
			changed, late = nil, t.C
		case <-late:
			return nil
		case round := <-h.rounds:
			h.begin(round)
			t := time.NewTimer(hurry - time.Since(begun))
			defer t.Stop()
			changed, late = nil, t.C
		case <-h.m.Done():
			return h.m.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
