package share

import (
	"context"
	"sync"
	"time"

	"gbatch/internal/rpc"
)

// Budget bounds the requests that are under way in a daemon, for all its listeners: their number and bytes, of each
// payer and in all. Who wants more waits for its own requests to end, in order, or is refused. Small requests are
// bounded by their number, and those that wait by design (for a job's end) are counted apart.
type Budget struct {
	Total    int // bytes of all requests; default TotalBytes
	Bytes    int // of one payer's large requests; one by itself may be larger; default PayerBytes
	Requests int // of one payer; default PayerRequests
	Waits    int // of one payer, by design; default PayerWaits

	mu     sync.Mutex
	used   int // bytes of all
	payers map[string]*payer
	turns  []string // payers with a line, the next one first
}

// Defaults of a Budget.
const (
	TotalBytes    = 128 << 20
	PayerBytes    = 4 << 20
	PayerRequests = 128
	PayerWaits    = 4096

	// SmallBytes is the size of a request that is not large.
	SmallBytes = 64 << 10
	// maxLine bounds the requests of one payer that wait to be admitted.
	maxLine = 1024
)

// Claim is what a request needs.
type Claim struct {
	Payer    string // "": only the total counts
	Bytes    int
	Waits    bool          // by design
	Again    bool          // the total has it already
	Patience time.Duration // for its turn; 0: it is refused at once
}

type payer struct {
	bytes, requests, waits int
	line                   []*turn
}

// turn is a claim that waits.
type turn struct {
	Claim
	in   chan struct{}
	gone bool
}

// Enter admits a request. Without an error the caller calls leave when the request has ended; it is idempotent. The
// error is an *rpc.Error with CodeBusy, or that of ctx.
func (b *Budget) Enter(ctx context.Context, c Claim) (leave func(), err error) {
	b.mu.Lock()
	if b.payers == nil {
		b.payers = map[string]*payer{}
		b.Total, b.Bytes = or(b.Total, TotalBytes), or(b.Bytes, PayerBytes)
		b.Requests, b.Waits = or(b.Requests, PayerRequests), or(b.Waits, PayerWaits)
	}
	p := b.payers[c.Payer]
	if p == nil {
		p = &payer{}
		b.payers[c.Payer] = p
	}
	if len(p.line) == 0 && b.fits(p, &c) {
		b.take(p, &c)
		b.mu.Unlock()
		return b.leaving(&c), nil
	}
	if c.Patience <= 0 || len(p.line) >= maxLine {
		defer b.mu.Unlock()
		defer b.forget(c.Payer, p)
		return nil, b.busy(p, &c)
	}
	t := &turn{Claim: c, in: make(chan struct{})}
	if len(p.line) == 0 {
		b.turns = append(b.turns, c.Payer)
	}
	p.line = append(p.line, t)
	b.mu.Unlock()
	patience := time.NewTimer(c.Patience)
	defer patience.Stop()
	select {
	case <-t.in:
		return b.leaving(&c), nil
	case <-patience.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-t.in: // it was its turn
		return b.leaving(&c), nil
	default:
	}
	t.gone = true
	if err == nil {
		err = b.busy(p, &c)
	}
	b.admit() // those behind it may fit
	return nil, err
}

func or(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// fits reports whether there is room for a claim.
func (b *Budget) fits(p *payer, c *Claim) bool {
	if !c.Again && b.used > 0 && b.used+c.Bytes > b.Total {
		return false
	}
	switch {
	case c.Payer == "":
		return true
	case c.Waits && p.waits >= b.Waits, !c.Waits && p.requests >= b.Requests:
		return false
	}
	return c.Bytes <= SmallBytes || p.bytes == 0 || p.bytes+c.Bytes <= b.Bytes
}

func (b *Budget) take(p *payer, c *Claim) { b.count(p, c, 1) }

func (b *Budget) count(p *payer, c *Claim, sign int) {
	if !c.Again {
		b.used += sign * c.Bytes
	}
	if c.Bytes > SmallBytes {
		p.bytes += sign * c.Bytes
	}
	if c.Waits {
		p.waits += sign
	} else {
		p.requests += sign
	}
}

func (b *Budget) leaving(c *Claim) func() {
	own := *c
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		p := b.payers[own.Payer]
		b.count(p, &own, -1)
		b.admit()
		b.forget(own.Payer, p)
	})
}

// admit lets in whom there is room for, in turns.
func (b *Budget) admit() {
	for tries := len(b.turns); tries > 0 && len(b.turns) > 0; tries-- {
		name := b.turns[0]
		b.turns = b.turns[1:]
		p := b.payers[name]
		let := false
		for len(p.line) > 0 && (p.line[0].gone || !let && b.fits(p, &p.line[0].Claim)) {
			if t := p.line[0]; !t.gone {
				b.take(p, &t.Claim)
				close(t.in)
				let = true
			}
			p.line = p.line[1:]
		}
		if len(p.line) > 0 {
			b.turns = append(b.turns, name)
			if let {
				tries = len(b.turns) + 1
			}
		} else {
			b.forget(name, p)
		}
	}
}

func (b *Budget) forget(name string, p *payer) {
	if p.bytes+p.requests+p.waits+len(p.line) == 0 {
		delete(b.payers, name)
	}
}

// busy gives the refusal of a claim.
func (b *Budget) busy(p *payer, c *Claim) error {
	if c.Payer == "" || (c.Waits || p.requests < b.Requests) && p.bytes == 0 {
		return rpc.Errorf(rpc.CodeBusy, "the daemon is busy: requests of %d MiB are under way; try again in a moment",
			b.used>>20)
	}
	return rpc.Errorf(rpc.CodeBusy, "the daemon is busy: you have %d requests under way, with %d KiB in the large "+
		"ones, as many as one user may; try again in a moment", p.requests+p.waits, p.bytes>>10)
}
