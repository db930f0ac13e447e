package ctld

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strconv"
	"time"

	"gbatch/ctld/rest"
	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
	"gbatch/internal/rpc/share"
	"gbatch/internal/sched/multifactor"
)

// reads.go answers requests that only read. They must not keep the log, the planner and the heartbeats from the CPU:
// they are made a part at a time behind a gate, equal ones share an answer, and a user who asks for too much waits
// (package share). While no controller leads, this one says what it knows, and how old that is.

const (
	pricePerRequest = 40                    // rows that a request counts as, beside those of its answer
	pricePerPing    = 5                     // of what is at hand
	rowBytes        = 300                   // a job's size in a list
	shareRest       = 3                     // a list that many wait for takes a quarter of one CPU
	heldPerRow      = 10 * time.Microsecond // an answer that takes longer than its rows should counts as more
	askedPerRow     = 20 * time.Microsecond // the same of one that gdbd makes
	recordsAtOnce   = 2                     // answers of gdbd's that one user may have under way
	recordsPatience = 15 * time.Second      // of a further one
	usersAtOnce     = 2                     // users who may list at QueryRateLimit together, for each CPU of this process
)

// readers is what requests that only read share.
type readers struct {
	gate    *share.Gate
	passes  *share.Gate  // planning passes that users ask for: one at a time
	records share.Budget // of answers of gdbd's
	same    share.Group
	memory  *share.Memory // of what is shared, over HTTP too
	limits  share.Limits
	keys    chan struct{} // holds one while the tokens' key is read
}

func newReaders() readers {
	cpus := runtime.GOMAXPROCS(0)
	memory := new(share.Memory)
	return readers{gate: share.NewGate(max(1, cpus/2)), passes: share.NewGate(1), keys: make(chan struct{}, 1),
		records: share.Budget{Requests: recordsAtOnce}, memory: memory,
		same: share.Group{Rest: shareRest, Memory: memory}, limits: share.Limits{Total: usersAtOnce * float64(cpus)}}
}

// read answers a request that changes nothing: it waits if its user has asked for too much, and shares the answers of
// equal requests. Before a byte of it goes out this controller still leads, by its lease: whatever happened while the
// answer was made, it is not older than the request.
func (c *Controller) read(ctx context.Context, a *call, kind uint16, h *handler) ([]byte, error) {
	payer, price := c.payer(a, kind)
	if err := c.readers.limits.Pay(ctx, payer, price, c.queryRate()); err != nil {
		return nil, err
	}
	defer func() { c.readers.limits.Settle(payer, c.took(a)-price) }()
	send := func(part []byte) error {
		if !a.sent && !c.leads(ctx) {
			return errMoved
		}
		a.sent = true
		return a.r.ReplyMore(part)
	}
	final := func(last []byte, err error) ([]byte, error) { // what goes out at the end
		if err == nil && !a.sent && !c.leads(ctx) {
			return last, errMoved
		}
		return last, err
	}
	if key, ok := c.sameAs(a, kind); ok && !rest.OnlyBeginning(ctx) {
		last, err := c.readShared(ctx, a, kind, h, key, payer, send)
		if !errors.Is(err, share.ErrTooMuch) {
			return last, err
		}
	}
	if kind == proto.KindReport {
		a.more = send
		return c.askedRecords(ctx, a, h, payer)
	}
	if h.asks || h.waits {
		a.more = send
		last, err := c.make(ctx, a, h)
		a.bytes += len(last)
		return final(last, err)
	}
	sending := time.Duration(0)
	more := c.gated(ctx, payer, send)
	a.more = func(part []byte) error {
		sent := time.Now()
		defer func() { sending += time.Since(sent) }()
		return more(part)
	}
	if err := c.readers.gate.Enter(ctx, payer); err != nil {
		return nil, err
	}
	begun := time.Now()
	last, err := c.make(ctx, a, h)
	a.rows += float64((time.Since(begun) - sending) / heldPerRow)
	c.readers.gate.Leave()
	a.bytes += len(last)
	return final(last, err)
}

// took gives what an answer has cost, rows: those that went out, or the time that it took if that was more, but no more
// than a user may have at once. A slow answer then delays its user's next ones by a few seconds at most.
func (c *Controller) took(a *call) float64 {
	most := share.BurstS * c.queryRate()
	return max(basePrice(a.kind)+float64(a.bytes/rowBytes), min(a.rows, most))
}

// readRecords is read for what gdbd has, which every controller passes on.
func (c *Controller) readRecords(ctx context.Context, a *call, h *handler) ([]byte, error) {
	payer, price := c.payer(a, a.kind)
	if err := c.readers.limits.Pay(ctx, payer, price, c.queryRate()); err != nil {
		return nil, err
	}
	defer func() { c.readers.limits.Settle(payer, c.took(a)-price) }()
	return c.askedRecords(ctx, a, h, payer)
}

// askedRecords makes an answer of gdbd's, of which each user has a few under way. What is passed on counts.
func (c *Controller) askedRecords(ctx context.Context, a *call, h *handler, payer string) ([]byte, error) {
	leave, err := c.readers.records.Enter(ctx, share.Claim{Payer: payer, Patience: recordsPatience})
	if err != nil {
		return nil, err
	}
	defer leave()
	begun := time.Now()
	defer func() { a.rows += float64(time.Since(begun) / askedPerRow) }()
	more := a.more
	a.more = func(part []byte) error {
		a.bytes += len(part)
		return more(part)
	}
	return c.make(ctx, a, h)
}

// gated sends a part outside of the gate, where the caller is before and after: a slow client takes nobody's turn.
func (c *Controller) gated(ctx context.Context, payer string, send func([]byte) error) func([]byte) error {
	return func(part []byte) error {
		c.readers.gate.Leave()
		err := send(part)
		runtime.Gosched() // heartbeats and the log come first
		if entered := c.readers.gate.Enter(context.WithoutCancel(ctx), payer); err == nil {
			err = entered
		}
		return err
	}
}

// readShared answers with an answer that all equal requests get.
func (c *Controller) readShared(ctx context.Context, a *call, kind uint16, h *handler, key, payer string,
	send func([]byte) error) ([]byte, error) {
	got, err := c.readers.same.Get(ctx, key, c.stamp(), func(ctx context.Context, put func([]byte) error) (any, error) {
		stamp := c.stamp() // before the facts are looked at
		if err := c.readers.gate.Enter(ctx, payer); err != nil {
			return nil, err
		}
		defer c.readers.gate.Leave()
		own := &call{who: a.who, kind: a.kind, body: a.body}
		own.more = c.gated(ctx, payer, func(part []byte) error { return put(bytes.Clone(part)) })
		begun := time.Now()
		last, err := c.make(ctx, own, h)
		if err != nil {
			if !errors.Is(err, share.ErrTooMuch) { // nobody waits for it any more, but it was begun
				own.rows = float64(time.Since(begun) / heldPerRow)
				c.readers.limits.Settle(payer, c.took(own)-basePrice(own.kind))
			}
			return nil, err
		}
		return stamp, put(last)
	})
	if err != nil {
		return nil, err
	}
	defer got.Done()
	last := len(got.Parts) - 1
	for _, part := range got.Parts {
		a.bytes += len(part) // it was made, whether the client stays to read it or not
	}
	for _, part := range got.Parts[:last] {
		if err := send(part); err != nil {
			return nil, err
		}
	}
	if !a.sent && !c.leads(ctx) {
		return nil, errMoved
	}
	return got.Parts[last], nil
}

// factsStamp is what lists are made from, besides the moment: equal stamps, equal lists.
type factsStamp struct {
	gen      uint64
	expected *map[model.JobID]*model.Expect
	places   *map[model.JobID]int32
	order    *multifactor.Order
}

func (c *Controller) stamp() factsStamp {
	return factsStamp{c.machine.View().Gen(), c.expected.Load(), c.places.Load(), c.prio.last.Load()}
}

// sameAs gives the key of requests with the same answer: the same kind and words, from callers who see the same. Those
// whom PrivateData hides something from see what others do not.
func (c *Controller) sameAs(a *call, kind uint16) (key string, ok bool) {
	switch kind {
	case proto.KindJobs:
		var rq proto.JobsRequest
		if proto.Decode(a.body, &rq) != nil || len(rq.Filter.Jobs) > 0 {
			return "", false // found by their numbers: nothing to share
		}
	case proto.KindPartitions:
		if byGroups(c.machine.View().Config()) {
			return "", false // the answer says to which the caller's groups are closed
		}
	case proto.KindNodes, proto.KindConfig, proto.KindPools:
	default:
		return "", false
	}
	class := c.sees(c.machine.View(), a.who).class()
	return strconv.Itoa(int(kind)) + " " + class + "\x00" + string(a.body), true
}

// payer names who pays for a request, and guesses the rows of its answer. A user's long lists don't slow that user's
// small requests. A compute node speaks only for users with a job there: for others it pays itself.
func (c *Controller) payer(a *call, kind uint16) (name string, price float64) {
	name, price = payerOf(a.who.UID), basePrice(kind)
	if role, node, ok := a.r.Peer.Daemon(); ok && role == pki.RoleNode && a.who.UID == model.NoID {
		name = "node " + node
	}
	var rq proto.JobsRequest
	switch {
	case kind != proto.KindJobs || proto.Decode(a.body, &rq) != nil || len(rq.Filter.Jobs)+len(rq.Filter.Users) > 0:
		return name + smallRequests, price
	}
	return name, price + float64(c.machine.View().JobCount())
}

const smallRequests = " small"

// basePrice is what a request costs beside the rows of its answer. A ping tells what the controllers have asked each
// other already.
func basePrice(kind uint16) float64 {
	if kind == proto.KindPing {
		return pricePerPing
	}
	return pricePerRequest
}

func payerOf(uid uint32) string { return strconv.FormatUint(uint64(uid), 10) }

// queryRate is QueryRateLimit, rows a second; 0: no limit.
func (c *Controller) queryRate() float64 {
	switch n := c.machine.View().Config().Params.QueryRows; {
	case n < 0:
		return 0
	case n == 0: // a configuration of before
		return conf.DefaultQueryRate
	default:
		return float64(n)
	}
}

// staleAfter is how long no controller leads before reads are answered from what this one knows: an election is over by
// then.
const staleAfter = 3 * time.Second

// serveStale answers a request that only reads from this controller's own facts while no controller leads, and says how
// old they are.
func (c *Controller) serveStale(ctx context.Context, r *server.Request, who *caller, body []byte) {
	var rq proto.Stale
	row := proto.RequestIn(proto.KindStale, body)
	err := proto.Decode(body, &rq)
	h, ok := handlers[rq.Kind]
	switch left := staleAfter - c.leaderless(); {
	case err != nil || row.Effect == proto.Changes || !ok:
		c.end(r, nil, refuse(proto.CodeBadRequest, "a request of kind %d is not one that only reads", rq.Kind))
		return
	case left > 0 || c.machine.View().Config().Cluster == "":
		c.end(r, nil, refuse(proto.CodeNoController, "no controller leads just now"))
		return
	case h.asks && rq.Kind != proto.KindPing:
		c.end(r, nil, refuse(proto.CodeNoController, "no controller leads, and only the one that does can ask the nodes"))
		return
	}
	if err := c.mayAsk(who, rq.Kind); err != nil {
		c.end(r, nil, err)
		return
	}
	a := &call{r: r, who: who, kind: rq.Kind, body: rq.Body, more: r.ReplyMore}
	payer, price := c.payer(a, rq.Kind)
	if err := c.readers.limits.Pay(ctx, payer, price, c.queryRate()); err != nil {
		c.end(r, nil, err)
		return
	}
	age := c.factsAge()
	end := &proto.StaleEnd{AgeMS: age.Milliseconds() + 1, From: c.opts.Name}
	last, err := c.make(ctx, a, &h)
	a.bytes += len(last)
	c.readers.limits.Settle(payer, c.took(a)-price)
	var said *rpc.Error
	switch {
	case err == nil:
		err = r.ReplyMore(last)
	case errors.As(err, &said):
		end.Code, end.Text, err = said.Code, said.Text, nil
		if said.Code == proto.CodeInvalidJob { // it may have come since
			end.Code, end.Text = proto.CodeNoController, "no controller leads, and "+c.opts.Name+" knew no such job "+
				age.Round(time.Second).String()+" ago"
		}
	}
	c.end(r, end, err)
}

// leaderless is for how long no controller has led, as far as this one knows.
func (c *Controller) leaderless() time.Duration {
	if at := c.lost.Load(); at != nil {
		return time.Since(*at)
	}
	return 0
}

// factsAge is how long ago this controller's facts were the cluster's, at most.
func (c *Controller) factsAge() time.Duration {
	at := c.store.LastContact()
	if !at.IsZero() {
		at = at.Add(-c.store.CommitLag())
	}
	if until := c.lease.Until(); !until.IsZero() {
		if led := until.Add(-c.store.LeaseTime()); led.After(at) {
			at = led
		}
	}
	if at.IsZero() { // neither since it started: the last entry of its log was made then
		return time.Duration(c.now()-model.Time(c.machine.last.Load())) * time.Millisecond
	}
	return time.Since(at)
}
