package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"gbatch/internal/plain"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/wire"
)

// Limits of one request.
const (
	// DialTimeout bounds connecting to one socket.
	DialTimeout = 5 * time.Second
	// elsewhereAfter is how long a daemon may leave the opening of a connection unanswered if there is another socket.
	elsewhereAfter = time.Second
	// AnswerTimeout bounds the wait for an answer, and for each further part of one.
	AnswerTimeout = 30 * time.Second
	// Patience is how long a request is retried while no controller leads.
	Patience = 10 * time.Second
	// retryPace is the pause between two tries.
	retryPace = 100 * time.Millisecond
	// busyPace is the first pause after a refusal of a daemon that has too much to do, maxBusyPace the longest.
	busyPace    = 100 * time.Millisecond
	maxBusyPace = 2 * time.Second
)

// Client makes requests to a cluster. It is for one goroutine.
type Client struct {
	dir    string
	conn   *rpc.Conn
	path   string          // of conn's socket
	others bool            // there are other sockets than conn's
	second error           // conn's is a node's, although this host has a controller: why not the controller's
	silent map[string]bool // sockets whose daemons did not answer: they are tried last
	within time.Duration   // for each request; 0: as long as it takes
	old    func(age time.Duration, from string)
	care   wire.Care // for the texts of answers
}

// WhenOld calls f for each answer that is not the present state: no controller leads, and the one named from has
// answered with what it knew age ago.
func (c *Client) WhenOld(f func(age time.Duration, from string)) { c.old = f }

// Within bounds each request as a whole, and each connecting before it: for what a command can do without.
func (c *Client) Within(limit time.Duration) { c.within = limit }

func (c *Client) atMost(limit time.Duration) time.Duration {
	if c.within > 0 {
		return min(limit, c.within)
	}
	return limit
}

// Exact makes Decode leave texts as they are, for output that has a form for every character, such as JSON. Otherwise
// characters that would act on a terminal or end a line are replaced.
func (c *Client) Exact() { c.care = wire.AsIs }

// Care is what Decode does about texts.
func (c *Client) Care() wire.Care { return c.care }

// Decode reads an answer, or a part of one.
func (c *Client) Decode(body []byte, m proto.Message) error { return proto.DecodeWith(body, m, c.care) }

// New gives a client for the daemons whose sockets are in dir (LocalSocketDir). It connects with the first request.
func New(dir string) *Client { return &Client{dir: dir, care: wire.Show} }

// Close ends the connection.
func (c *Client) Close() {
	if c.conn != nil {
		_ = c.conn.Close() // no request is in progress
		c.conn = nil
	}
}

// Unreachable is the error for an unreachable cluster, in the words that tools match.
func Unreachable(detail string) *rpc.Error {
	text := "Unable to contact slurm controller (connect failure)"
	if detail != "" {
		text += ": " + detail
	}
	return rpc.Errorf(proto.CodeNoController, "%s", text)
}

// Sockets lists the daemons' sockets in dir, controllers first.
func Sockets(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".sock") {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return ofController(out[i]) && !ofController(out[j]) })
	return out, nil
}

func ofController(path string) bool { return strings.HasPrefix(filepath.Base(path), "ctld") }

func (c *Client) dial() error {
	if c.conn != nil {
		return nil
	}
	paths, err := Sockets(c.dir)
	if err != nil || len(paths) == 0 {
		return Unreachable("no daemon of the cluster has a socket in " + c.dir + "; is it running? (gbatch status)")
	}
	sort.SliceStable(paths, func(i, j int) bool { return !c.silent[paths[i]] && c.silent[paths[j]] })
	limit := DialTimeout
	if c.others = len(paths) > 1; c.others {
		limit = elsewhereAfter
	}
	limit = c.atMost(limit)
	var last, away error
	for _, p := range paths {
		conn, err := rpc.DialUnix(p, limit)
		if err != nil {
			last = err
			if ofController(p) {
				away = err
			}
			continue
		}
		if c.others {
			conn.SetProbe(func() error { return rpc.Alive(p, elsewhereAfter) })
		}
		c.conn, c.path, c.second = conn, p, nil
		if !ofController(p) && slices.ContainsFunc(paths, ofController) {
			if c.second = away; away == nil {
				c.second = errors.New("the controller's daemon on this host does not answer")
			}
		}
		return nil
	}
	return Unreachable(last.Error())
}

// isSilent notes that the daemon of this connection does not answer.
func (c *Client) isSilent() {
	if c.silent == nil {
		c.silent = map[string]bool{}
	}
	if c.silent[c.path] { // all are: none is better than the others
		clear(c.silent)
	}
	c.silent[c.path] = true
}

// Call makes a request with one answer and decodes it into reply. An error from the cluster is an *rpc.Error.
func (c *Client) Call(kind uint16, request, reply proto.Message) error {
	return c.Stream(kind, request, func(body []byte) error { return c.Decode(body, reply) })
}

// Stream makes a request and passes each part of the answer to each. If a try fails after the first part, Stream
// returns the error, because it can't take the parts back. A change has an id, so it is made once however often it is
// tried; one whose outcome is still not known when Stream gives up is an *rpc.Error with CodeUnknown.
func (c *Client) Stream(kind uint16, request proto.Message, each func(body []byte) error) error {
	err := c.stream(kind, request, each)
	var answered *rpc.Error
	if errors.As(err, &answered) {
		answered.Text = plain.Lines(answered.Text)
	}
	return err
}

func (c *Client) stream(kind uint16, request proto.Message, each func(body []byte) error) error {
	body, err := proto.Encode(request)
	if err != nil {
		return err
	}
	w := work{kind: kind, body: body, row: proto.RequestOf(kind), until: time.Now().Add(Patience)}
	w.wait = AnswerTimeout + time.Duration(w.row.WaitS)*time.Second
	longest := time.Now().Add(w.wait + AnswerTimeout)
	if c.within > 0 {
		w.until, w.wait, longest = time.Now().Add(c.within/2), c.within, time.Now().Add(c.within)
	}
	byID := w.row.ByID()
	if byID {
		if err := w.giveID(); err != nil {
			return err
		}
	}
	for {
		tried := time.Now()
		err := c.try(&w, each)
		var again retry
		if answered := (*rpc.Error)(nil); byID && errors.As(err, &answered) && ofOldLeader(answered) {
			if w.lost {
				return rpc.Errorf(proto.CodeUnknown, "%s", w.row.Unknown("the controller that leads now is of an older version"))
			}
			byID = false
			w.kind, w.body, w.row = kind, body, proto.RequestOf(kind)
			continue
		}
		if !errors.As(err, &again) {
			return err
		}
		if again.why.Code == proto.CodeNoController && w.row.Effect != proto.Changes && w.row.WaitS == 0 && c.old != nil {
			if err := c.tryOld(&w, each); !errors.As(err, &again) {
				return err
			}
		}
		c.Close()
		w.lost = w.lost || again.lost && w.row.Effect == proto.Changes
		if w.lost && w.row.Repeats && time.Since(tried) > Patience/2 { // it has waited, and not tried again yet
			w.until = longest
		}
		if w.lost && !w.row.Repeats || time.Now().After(w.until) {
			if w.lost {
				return rpc.Errorf(proto.CodeUnknown, "%s", w.row.Unknown(strings.TrimSuffix(again.why.Text, w.row.Unknown(""))))
			}
			return again.why
		}
		if again.busy {
			w.until = longest
			time.Sleep(w.backOff())
		} else {
			time.Sleep(retryPace)
		}
		w.wait = min(w.wait, max(time.Second, time.Until(longest)))
	}
}

// work is a request in the making.
type work struct {
	kind  uint16
	body  []byte
	row   proto.Request
	lost  bool          // it is a change, and a try may have been carried out
	until time.Time     // no further try begins after it
	wait  time.Duration // for the next answer, and for each further part of one
	busy  int           // refusals of a busy daemon
}

// backOff gives the pause after a busy daemon's refusal: longer each time, and not the same for all who were refused.
func (w *work) backOff() time.Duration {
	w.busy++
	pause := min(busyPace<<min(w.busy-1, 8), maxBusyPace)
	return pause/2 + mathrand.N(pause/2+1)
}

// giveID puts a change into a Once.
func (w *work) giveID() error {
	var id [proto.OnceIDBytes]byte
	_, _ = rand.Read(id[:]) // it never fails
	body, err := proto.Encode(&proto.Once{ID: string(id[:]), Kind: w.kind, Body: w.body, AtMS: time.Now().UnixMilli()})
	if err != nil {
		return err
	}
	w.kind, w.body, w.row.Repeats = proto.KindOnce, body, true
	return nil
}

// ofOldLeader reports whether an answer is of a controller that does not know requests with an id: it has done nothing.
func ofOldLeader(e *rpc.Error) bool {
	return e.Code == proto.CodeBadRequest && strings.HasPrefix(e.Text, "this controller does not know request kind ")
}

// retry is the error of a try without an answer. lost says that the request may have been executed nevertheless.
// busy says that the daemon has too much to do just now.
type retry struct {
	why  *rpc.Error
	lost bool
	busy bool
}

func (r retry) Error() string { return r.why.Text }

// try makes a request once.
func (c *Client) try(w *work, each func([]byte) error) error {
	if err := c.dial(); err != nil {
		var why *rpc.Error
		if errors.As(err, &why) && (w.lost || hasLeft(c.dir)) { // a daemon had it, or there was one a moment ago
			return retry{why: why}
		}
		return err
	}
	if !w.row.Repeats {
		// A stopping daemon may still have a queue of connections. A daemon that answers the preface also accepts
		// requests.
		limit := rpc.PrefaceTimeout
		if c.others {
			limit = elsewhereAfter
		}
		if err := c.conn.HandshakeWithin(c.atMost(limit)); err != nil {
			c.isSilent()
			return retry{why: Unreachable(err.Error())}
		}
	}
	parts := 0
	var inEach error
	if err := c.conn.SetReadDeadline(time.Now().Add(w.wait)); err != nil {
		return retry{why: Unreachable(err.Error())}
	}
	err := c.conn.Stream(context.Background(), w.kind, w.body, func(f *rpc.Frame) error {
		parts++
		if err := c.conn.SetReadDeadline(time.Now().Add(w.wait)); err != nil {
			return err
		}
		inEach = each(f.Body)
		return inEach
	})
	var answered *rpc.Error
	var unsent *rpc.Unsent
	switch {
	case err == nil:
		return nil
	case inEach != nil:
		return inEach
	case errors.As(err, &answered) && parts > 0:
		return answered
	case errors.As(err, &answered) && answered.Code == proto.CodeNotHere && c.second != nil:
		// A node may speak for fewer users than the controller, which is away.
		return retry{why: Unreachable(c.second.Error())}
	case errors.As(err, &answered):
		return w.judge(answered)
	case errors.As(err, &unsent):
		return retry{why: Unreachable(err.Error())}
	case errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, rpc.ErrSilent):
		const text = "Socket timed out on send/recv operation"
		why := rpc.Errorf(proto.CodeBusy, text)
		if w.row.Effect == proto.Changes {
			return retry{why: why, lost: true}
		}
		return why
	case parts > 0:
		return Unreachable(err.Error())
	case errors.Is(err, rpc.ErrSilent):
		c.isSilent()
	}
	return retry{why: Unreachable(err.Error()), lost: true}
}

// tryOld asks for the answer to a request as it was when a controller last led. A retry is its error if there is none.
func (c *Client) tryOld(w *work, each func([]byte) error) error {
	if c.conn == nil {
		return retry{why: Unreachable("")}
	}
	body, err := proto.Encode(&proto.Stale{Kind: w.kind, Body: w.body})
	if err != nil {
		return err
	}
	stale := *w
	stale.kind, stale.body = proto.KindStale, body
	var end proto.StaleEnd
	var last []byte // of the parts so far; the one behind them is no part
	parts := 0
	err = c.try(&stale, func(part []byte) error {
		if parts++; parts > 1 {
			if err := each(last); err != nil {
				return err
			}
		}
		last = bytes.Clone(part) // the memory is used again
		return nil
	})
	var answered *rpc.Error
	switch {
	case err != nil && parts > 0:
		return err
	case errors.As(err, &answered): // an older version
		return retry{why: Unreachable("")}
	case err != nil:
		return err
	}
	if err := proto.Decode(last, &end); err != nil {
		return err
	}
	if end.Code != 0 {
		return &rpc.Error{Code: end.Code, Text: end.Text}
	}
	if end.AgeMS > 0 {
		c.old(time.Duration(end.AgeMS)*time.Millisecond, end.From)
	}
	return nil
}

// judge separates errors that answer the request from those that mean the request has no answer.
func (w *work) judge(answered *rpc.Error) error {
	switch {
	case answered.Code == proto.CodeNoController:
		return retry{why: answered}
	case answered.Code == rpc.CodeBusy: // it was not taken
		return retry{why: answered, busy: true}
	case answered.Code == proto.CodeNotLeader:
		return retry{why: Unreachable(answered.Text)}
	case answered.Code == proto.CodeUnknown && w.row.Repeats:
		return retry{why: answered, lost: true}
	case w.lost && !proto.Settled(answered.Code): // this try was not taken; an earlier one may have been
		return retry{why: answered}
	}
	return answered
}
