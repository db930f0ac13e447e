package ctld

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"gbatch/ctld/events"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
	"gbatch/internal/state"
)

// once.go makes a user's change exactly once, however often its request comes: the leader that has it in progress, or
// has just answered it, lets further tries share the answer; for any later leader it stands in the state, where it came
// with the change itself (state.Once). DESIGN.md says what that means for changes of several steps, and for effects
// that are not facts.

// Bounds of the leader's own memory of answers. What falls out of it is in the state, if it changed anything.
const (
	maxTries     = 8192     // requests in progress
	keptAnswers  = 4096     // answers
	keptBytes    = 8 << 20  // of all of them
	keptAnswer   = 64 << 10 // of one
	updatesAtOne = 32       // jobs of one update that share a log entry, if they are not larger than this:
	updateBytes  = 2 << 20  // when a log entry has so much of an update, the next job begins another one
	deedBytes    = 200      // of an entry of the trail without its texts
)

var (
	errRepeated = errors.New("the request was made before")
	errCrashed  = errors.New("the handler of the request has crashed")
)

// tries has the requests with an id that are in progress or have been answered lately, by requestKey.
type tries struct {
	mu    sync.Mutex
	all   map[string]*try
	kept  []string // answered ones, oldest first
	bytes int      // of their answers
}

// try is one request and, once done is closed, its answer.
type try struct {
	done chan struct{}
	body []byte
	err  error
	at   time.Time // of the answer
}

// join gives the try of a request; first says that the caller has to make the request and to end the try. nil: too many
// are in progress.
func (t *tries) join(key string) (y *try, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if y = t.all[key]; y != nil {
		return y, false
	}
	if len(t.all)-len(t.kept) >= maxTries {
		return nil, false
	}
	if t.all == nil {
		t.all = map[string]*try{}
	}
	y = &try{done: make(chan struct{})}
	t.all[key] = y
	return y, true
}

// end gives a try its answer, and forgets the try if another one may have another answer.
func (t *tries) end(key string, y *try, body []byte, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	y.body, y.err, y.at = body, err, time.Now()
	close(y.done)
	if len(body) > keptAnswer || !settled(err) {
		delete(t.all, key)
		return
	}
	t.kept, t.bytes = append(t.kept, key), t.bytes+len(body)
	for len(t.kept) > keptAnswers || t.bytes > keptBytes || time.Since(t.all[t.kept[0]].at) > proto.OnceAge {
		oldest := t.kept[0]
		t.kept, t.bytes = t.kept[1:], t.bytes-len(t.all[oldest].body)
		delete(t.all, oldest)
	}
}

// settled reports whether the answer with this error is the answer to every further try.
func settled(err error) bool {
	var e *rpc.Error
	return err == nil || errors.As(err, &e) && proto.Settled(e.Code)
}

// serveOnce answers a request with an id; see serve.
func (c *Controller) serveOnce(ctx context.Context, r *server.Request, who *caller, body []byte,
	follow bool) bool {
	begin := time.Now()
	var once proto.Once
	err := proto.Decode(body, &once)
	row := proto.RequestOf(once.Kind)
	_, known := handlers[once.Kind] // KindOnce has none
	if err != nil || len(once.ID) != proto.OnceIDBytes || !row.ByID() || !known {
		c.end(r, nil, refuse(proto.CodeBadRequest, "a request of kind %d with an id of %d bytes is malformed (%v)", once.Kind,
			len(once.ID), err))
		return true
	}
	if err := c.mayAsk(who, once.Kind); err != nil {
		c.end(r, nil, err)
		return true
	}
	c.counts.serving.Add(1)
	defer func() {
		c.counts.serving.Add(-1)
		c.answered(once.Kind, who, time.Since(begin))
	}()
	key := requestKey(who.UID, once.ID)
	y, first := c.tries.join(key)
	switch {
	case y == nil:
		c.endWith(r, nil, rpc.Errorf(proto.CodeBusy,
			"the controller is busy: %d changes are under way; try again in a moment", maxTries))
		return true
	case first:
		a := &call{who: who, kind: once.Kind, body: once.Body}
		if err := c.paced(ctx, a); err != nil {
			c.tries.end(key, y, nil, rpc.Errorf(proto.CodeBusy, "the request waited for its turn in vain: %v", err))
			break
		}
		c.makeOnce(ctx, key, y, a, &once)
		c.madePaced(a, y.err)
	}
	select {
	case <-y.done:
		err := y.err
		if errors.Is(err, errMoved) {
			if follow {
				return false
			}
			err = c.notLeading()
		}
		c.endWith(r, y.body, err)
	case <-ctx.Done(): // this controller ends, or nobody waits for the answer any more
		c.endWith(r, nil, rpc.Errorf(proto.CodeUnknown, "%s", row.Unknown("the controller ended before it answered")))
	}
	return true
}

// endWith sends a request's last answer, which is encoded already.
func (c *Controller) endWith(r *server.Request, body []byte, err error) {
	if err != nil {
		c.end(r, nil, err)
	} else if err := r.Reply(body); err != nil {
		c.log.Debug("an answer was not delivered", "peer", r.Peer.String(), "kind", r.Kind, "err", err)
	}
}

// makeOnce makes a request and ends its try. The change goes on if the caller leaves: another try may wait for it.
func (c *Controller) makeOnce(ctx context.Context, key string, y *try, a *call, once *proto.Once) {
	body, err := []byte(nil), error(errCrashed)
	defer func() { c.tries.end(key, y, body, err) }()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if c.life != nil {
		defer context.AfterFunc(c.life, cancel)()
	}
	if old := c.machine.View().Answer(key); old != nil {
		body, err = c.recall(ctx, a.who, once, old)
		return
	}
	ctx, made := withMade(context.WithValue(ctx, onceKey{}, key))
	var reply message
	reply, err = handlers[once.Kind].answer(c, ctx, a)
	switch {
	case err == nil:
		body, err = proto.Encode(reply)
	case errors.Is(err, errRepeated): // an earlier try, of which this leader knew nothing, was still on its way
		row := proto.RequestOf(once.Kind)
		err = rpc.Errorf(proto.CodeUnknown, "%s", row.Unknown("an earlier try of the request was carried out"))
		if old := c.machine.View().Answer(key); old != nil {
			body, err = c.recall(ctx, a.who, once, old)
		}
	default:
		err = answerFor(once.Kind, made.Load(), err)
	}
}

// recall gives the answer of a request that was made before, and does again what follows from it outside of the facts
// and may be done twice: the leader that made it may have ended in between.
func (c *Controller) recall(ctx context.Context, who *caller, once *proto.Once, old *state.Answer) ([]byte,
	error) {
	row := proto.RequestOf(once.Kind)
	if old.Begun {
		return nil, rpc.Errorf(proto.CodeBegun, "%s", row.Unknown("the controller that led ended while it carried this out"))
	}
	switch once.Kind {
	case proto.KindCancel:
		var rq proto.CancelRequest
		reply, err := c.recallTargets(old, c.report)
		if err != nil || proto.Decode(once.Body, &rq) != nil {
			return nil, err
		}
		if rq.Kill {
			c.kill(targetsOf(reply.Results))
		}
		return proto.Encode(reply)
	case proto.KindUpdateJob:
		var rq proto.UpdateJobRequest
		if err := proto.Decode(once.Body, &rq); err != nil {
			return nil, err
		}
		reply, err := c.recallTargets(old, c.wordsFor(rq.Action))
		if err != nil {
			return nil, err
		}
		return proto.Encode(reply)
	case proto.KindReconfigure:
		c.nodes.retell()
	}
	return old.Reply, nil
}

// targetsOf gives what results are of.
func targetsOf(results []proto.TargetResult) []model.JobRef {
	out := make([]model.JobRef, len(results))
	for i, r := range results {
		out[i] = r.Ref
	}
	return out
}

// recallTargets gives the answer of a change of jobs that was made before, with the same words for refusals.
func (c *Controller) recallTargets(old *state.Answer,
	words func([]proto.TargetResult, []int, []state.Refusal)) (*proto.TargetsReply, error) {
	var reply proto.TargetsReply
	if err := proto.Decode(old.Reply, &reply); err != nil {
		return nil, err
	}
	for _, r := range old.Refused {
		if int(r.Spot) < len(reply.Results) {
			words(reply.Results, []int{int(r.Spot)}, []state.Refusal{r.Why})
		}
	}
	return &reply, nil
}

// onceKey is the context key for the key of a request with an id.
type onceKey struct{}

// keyOf gives the key under which the request's changes are made; "" if it has no id.
func keyOf(ctx context.Context) string {
	key, _ := ctx.Value(onceKey{}).(string)
	return key
}

// stepKey gives the key for a step of a request that is made in several log entries.
func stepKey(key string, n int) string {
	if key == "" {
		return ""
	}
	return key + "." + strconv.Itoa(n)
}

// change puts the command of a user's request into the log. reply is the request's answer if the state refuses
// nothing, and at says which of the reply's results each target of the command has.
func (c *Controller) change(ctx context.Context, reply message, at []int, b state.Body) (state.Result, error) {
	out, err := c.changes(ctx, keyOf(ctx), reply, at, []state.Body{b})
	if err != nil {
		return state.Result{}, err
	}
	return out[0], nil
}

// changes puts all commands of a user's request, or of one step of it, into the log together; see change. If they were
// made before under the same key, it changes nothing and the error is errRepeated. Without a key they are made as often
// as they are asked for.
func (c *Controller) changes(ctx context.Context, key string, reply message, at []int, list []state.Body) (
	[]state.Result, error) {
	parts := make([][]byte, len(list))
	for i, b := range list {
		var err error
		if parts[i], err = c.encode(b); err != nil {
			return nil, err
		}
	}
	return c.changesOf(ctx, key, reply, at, parts)
}

// changesOf is changes for encoded commands.
func (c *Controller) changesOf(ctx context.Context, key string, reply message, at []int, list [][]byte) (
	[]state.Result, error) {
	deeds, parts := events.Commands(ctx), slices.Clip(list)
	for _, b := range deeds {
		data, err := c.encode(b)
		if err != nil {
			return nil, err
		}
		parts = append(parts, data)
	}
	if key == "" && len(deeds) == 0 {
		return c.proposeAll(ctx, parts)
	}
	if key == "" { // the entries of the trail are told only with what was made
		key = "-:" + rand.Text()
	}
	cmd := &state.Once{Key: key, Step: state.OnceMake, Parts: parts}
	var err error
	if cmd.Reply, err = proto.Encode(reply); err != nil {
		return nil, err
	}
	for k, i := range at {
		if k != i && cmd.Spots == nil {
			cmd.Spots = make([]int32, len(at))
			for k, i := range at {
				cmd.Spots[k] = int32(i)
			}
		}
	}
	res, err := c.propose(ctx, cmd)
	switch {
	case err != nil:
		return nil, err
	case res.Refusal == state.Repeated:
		return nil, errRepeated
	}
	return res.Parts[:min(len(list), len(res.Parts))], nil
}

// begin notes that a request is about to do something outside of the facts. It is done at most once: if this leader
// ends before finish, nobody knows what was done, and a further try is told so.
func (c *Controller) begin(ctx context.Context) error {
	key := keyOf(ctx)
	if key == "" {
		return nil
	}
	res, err := c.propose(ctx, &state.Once{Key: key, Step: state.OnceBegin})
	if err == nil && res.Refusal == state.Repeated {
		return errRepeated
	}
	return err
}

// finish notes the answer of what was begun, and its entries of the trail.
func (c *Controller) finish(ctx context.Context, reply message) {
	list := events.Commands(ctx)
	var err error
	if key := keyOf(ctx); key != "" {
		cmd := &state.Once{Key: key, Step: state.OnceFinish}
		cmd.Reply, err = proto.Encode(reply)
		list = append(list, cmd)
	}
	parts := make([][]byte, len(list))
	for i := range list {
		if err == nil {
			parts[i], err = c.encode(list[i])
		}
	}
	if err == nil && len(parts) > 0 {
		_, err = c.proposeAll(ctx, parts)
	}
	if err != nil {
		c.log.Warn("a request was carried out, and its answer can't be kept for another try", "err", err)
	}
}
