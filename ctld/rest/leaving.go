package rest

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"gbatch/internal/rpc/share"
)

// leaving.go bounds what answers take in memory. A short answer is put together before a byte of it leaves, so that its
// status says what became of it. A long one leaves while it is made, at the pace of its reader; if it can't be made to
// its end, its errors say so, and the connection ends where its last byte would be. What answers are made of is claimed
// from a budget: who reads slowly, or asks for many things at once, waits for their own requests.

const (
	mostWaits  = 128 << 10        // bytes of an answer that wait until it is whole
	streamTime = time.Hour        // for an answer that leaves while it is made
	heldBytes  = 96 << 20         // of what the answers of all users are made of
	heldOfOne  = 32 << 20         // of those of one user; one by itself may be larger
	heldStep   = 256 << 10        // claims are multiples of it
	decodedAs  = 8                // a part of an answer takes about so many times its bytes
	heldTime   = 20 * time.Second // to wait for one's own requests
	roomBytes  = 512 << 10        // that a room's or a page's answer counts as, until it has been read
)

func newHeld() *share.Budget { return &share.Budget{Total: heldBytes, Bytes: heldOfOne} }

// held is what one request has claimed of the budget.
type held struct {
	payer string // "": what many share is nobody's
	bytes int    // claimed
	kept  int    // of them, until the request ends
	leave func()
}

func heldOfUser(uid uint32) *held { return &held{payer: strconv.FormatUint(uint64(uid), 10)} }

// holds claims so many bytes beside those that are kept.
func (q *request) holds(bytes int) error {
	h := q.held
	need := h.kept + bytes
	if need <= max(h.bytes, share.SmallBytes) { // what is small is bounded by the number of requests
		return nil
	}
	need = (need + heldStep - 1) / heldStep * heldStep
	h.free()
	leave, err := q.s.held.Enter(q.ctx, share.Claim{Payer: h.payer, Bytes: need, Patience: heldTime})
	if err != nil {
		return err
	}
	h.bytes, h.leave = need, leave
	return nil
}

func (h *held) free() {
	if h.leave != nil {
		h.leave()
	}
	h.bytes, h.leave = 0, nil
}

// leaving is an answer that leaves while it is made.
type leaving struct {
	q    *request
	sink *sink
	owes int // bytes that its user has not paid for
	err  error
}

// aged says how old the facts are, as far as it is known by now and they are not the leader's.
func (q *request) aged() {
	if q.age > 0 {
		q.w.Header().Set("X-Gbatch-Age-Ms", strconv.FormatInt(q.age.Milliseconds()+1, 10))
	}
}

// begin lets an answer leave: its status is a good one from now on.
func (q *request) begin() error {
	q.form.headers(q.w.Header(), q.form.gzip)
	q.aged()
	q.w.WriteHeader(http.StatusOK)
	q.w.more(streamTime)
	l := &leaving{q: q}
	l.sink = q.form.sink(q.form.gzip, l.write)
	q.out.to = l
	for i := range q.out.list {
		l.add(&q.out.list[i])
	}
	q.out.list, q.out.own = nil, 0
	return l.err
}

// add sends a piece. After an error nothing is made any more.
func (l *leaving) add(x *piece) {
	if l.err != nil {
		return
	}
	if l.err = l.sink.add(x); l.err != nil {
		l.q.w.stop(l.err)
	}
}

func (l *leaving) write(b []byte) error {
	if l.owes += len(b); l.owes >= flowLeast {
		if err := l.q.s.flows(l.q.ctx, l.q.who, l.owes); err != nil {
			return err
		}
		l.owes = 0
	}
	_, err := l.q.w.Write(b)
	return err
}

// end sends what is left; err: the answer is not whole.
func (l *leaving) end(err error) {
	if l.err == nil {
		l.err = l.sink.end()
	}
	l.q.w.cut = err != nil || l.err != nil
}

// late is the end of a request that takes too long.
func late() error {
	return &fault{Number: errUnexpected, Text: "Timed out", Status: http.StatusGatewayTimeout,
		Detail: fmt.Sprintf("the answer was not there in %v; ask for less", requestTime)}
}

// timed gives a request's context, with its end and what gives it more time.
func timed(ctx context.Context) (of context.Context, stop context.CancelCauseFunc, more func(time.Duration)) {
	of, stop = context.WithCancelCause(ctx)
	end := time.AfterFunc(requestTime, func() { stop(late()) })
	context.AfterFunc(of, func() { end.Stop() })
	return of, stop, func(d time.Duration) { end.Reset(d) }
}
