package rest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/share"
	"gbatch/internal/slurmjson"
	"gbatch/internal/version"
)

// request is one request of an operation.
type request struct {
	ctx   context.Context
	s     *Server
	op    *op
	r     *http.Request
	w     *answer
	who   *proto.Caller
	ver   string // v0.0.44
	name  string // the last part of the path, where the operation has one
	query url.Values
	facts Facts
	form  form // of the answer

	out      parts
	j        *slurmjson.Writer // writes to out, inside of the answer's object
	faults   []*fault
	warnings []warning
	age      time.Duration
	same     *share.Answer // holds parts that others share, until the answer is sent
	held     *held         // memory for what the answer is made of
	rowSink  rowSink       // of what is shared, while it is made; nil: nothing is
}

type warning struct{ text, source string }

// warn adds a sentence to the answer's warnings.
func (q *request) warn(text string) { q.warnings = append(q.warnings, warning{text, q.op.id(q.ver)}) }

// ask makes a request with one answer.
func (q *request) ask(kind uint16, rq, reply proto.Message) error {
	return q.together(kind, rq, func(part []byte) error { return proto.Decode(part, reply) })
}

// stream makes a request with an answer in parts, of which one is looked at after the other.
func (q *request) stream(kind uint16, rq proto.Message, each func(part []byte) error) error {
	return q.asked(kind, rq, each, false)
}

// together is stream for an answer whose parts are needed together, until the end.
func (q *request) together(kind uint16, rq proto.Message, each func(part []byte) error) error {
	return q.asked(kind, rq, each, true)
}

func (q *request) asked(kind uint16, rq proto.Message, each func(part []byte) error, keep bool) error {
	age, err := q.s.o.Cluster.Ask(q.ctx, q.who, kind, rq, func(part []byte) error {
		need := decodedAs * len(part)
		if err := q.holds(need); err != nil {
			return err
		}
		if keep {
			q.held.kept += need
		}
		return each(part)
	})
	q.age = max(q.age, age)
	return err
}

// shared writes members of the answer that equal requests get too, as long as nothing has changed.
func (q *request) shared(key string, write func(own *request, j *slurmjson.Writer) error) error {
	return q.sharedAt(key, nil, write)
}

// sharedAt is shared for what does not follow from the facts: it is true as long as at is the same.
func (q *request) sharedAt(key string, at any, write func(own *request, j *slurmjson.Writer) error) error {
	stamp, zipped := at, false
	if at == nil { // it is a list
		stamp, zipped = q.facts.Stamp, q.form.gzip
	}
	if key = q.ver + " " + key; zipped {
		key = "gzip " + key
	}
	key = q.s.o.Cluster.Sees(q.who) + " " + key
	got, err := q.s.same.Get(q.ctx, key, stamp, func(ctx context.Context, put func([]byte) error) (any, error) {
		own := *q
		own.ctx, own.facts, own.warnings, own.same, own.held = ctx, q.s.o.Cluster.Facts(), nil, nil, new(held)
		defer own.held.free()
		var to interface {
			io.Writer
			rowSink
		} = putter(put)
		var zip *zipper
		if zipped {
			zip = newZipper(put)
			defer zip.free()
			to = zip
		}
		own.rowSink = to
		j := slurmjson.New(to, q.ver)
		j.Started()
		if err := write(&own, j); err != nil {
			return nil, err
		}
		j.Flush(true)
		if zip != nil && j.Err == nil {
			j.Err = zip.end()
		}
		if own.age > 0 || j.Err != nil {
			return share.Passing{Says: own.age}, j.Err
		}
		if at != nil {
			return at, nil
		}
		return own.facts.Stamp, nil
	})
	if errors.Is(err, share.ErrTooMuch) {
		return write(q, q.j)
	}
	if err != nil {
		return err
	}
	q.same = got
	if age, ok := got.Says().(time.Duration); ok {
		q.age = max(q.age, age)
	}
	q.j.Flush(true)
	q.out.shared(got.Parts, zipped)
	q.j.Continue()
	return got.Err
}

// rowsAtOnce is how many rows are written before others have their turn: some 200 microseconds.
const rowsAtOnce = 16

// wrote lets others go first, after each few rows of a list: the controller has few threads, and a list of thousands of
// rows would keep submissions waiting for as long as the Go scheduler lets a goroutine run, 10 ms at a time.
func (q *request) wrote(row int) {
	if row%rowsAtOnce == rowsAtOnce-1 {
		runtime.Gosched()
	}
}

// putter passes on copies: what is put is kept, and the writer uses its bytes again.
type putter func([]byte) error

func (p putter) Write(b []byte) (int, error) {
	return len(b), p(append([]byte(nil), b...))
}

// updated writes when the answer's list was as it is.
func (q *request) updated(j *slurmjson.Writer) { j.Count("last_update", q.facts.Now.Seconds()) }

// send sends the answer.
func (q *request) send(err error) {
	defer func() {
		if q.same != nil {
			q.same.Done()
			q.same = nil
		}
	}()
	status := http.StatusOK
	if cause := context.Cause(q.ctx); cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	if err != nil {
		f := asFault(err, q.op.id(q.ver))
		q.faults, status = append(q.faults, f), f.Status
		if q.op.Blank != nil && q.out.to == nil { // what the specification requires is there in any case
			q.out = parts{}
			q.j = slurmjson.New(&q.out, q.ver)
			q.j.Open("", '{')
			q.op.Blank(q, q.j)
		}
	} else if len(q.faults) > 0 {
		status = q.faults[0].Status
	}
	if status == http.StatusNotModified {
		q.w.WriteHeader(status)
		return
	}
	if q.facts.Leaderless && q.age > 0 {
		q.warn("no controller leads: this is what controller " + q.s.o.Name + " knew " +
			q.age.Round(time.Second).String() + " ago")
	}
	q.tail()
	if q.out.to == nil && status == http.StatusOK && q.form.yaml && q.out.bytes() > mostWaits { // its copy is its own
		_ = q.begin() // the end knows
	}
	if q.out.to != nil {
		q.out.to.end(err)
		return
	}
	h := q.w.Header()
	list, total := q.form.encode(h, &q.out)
	if err == nil {
		if err := q.s.flows(q.ctx, q.who, total); err != nil {
			h.Del("Content-Encoding")
			q.send(err)
			return
		}
	}
	h.Set("Content-Length", strconv.Itoa(total))
	q.aged()
	q.w.WriteHeader(status)
	out := gathers.Get().(*bufio.Writer) //nolint:forcetypeassert // it holds nothing else
	defer func() {
		out.Reset(nil)
		gathers.Put(out)
	}()
	out.Reset(q.w)
	defer func() { _ = out.Flush() }() // who has gone needs no answer
	for _, p := range list {
		if _, err := out.Write(p); err != nil {
			return
		}
	}
}

// gathers put the pieces of an answer together: a list that was compressed in groups has dozens.
var gathers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 64<<10) }}

// tail ends the object with what every answer has.
func (q *request) tail() {
	j := q.j
	j.Open("meta", '{')
	j.Open("plugin", '{')
	plugin := "slurmctld"
	if strings.HasPrefix(q.op.Path, "/slurmdb/") {
		plugin = "slurmdbd"
	}
	j.Str("type", "openapi/"+plugin)
	j.Str("name", "Slurm OpenAPI "+plugin)
	j.Str("data_parser", "data_parser/"+q.ver)
	j.Str("accounting_storage", "accounting_storage/slurmdbd")
	j.Close('}')
	j.Open("client", '{')
	j.Str("source", q.r.RemoteAddr)
	j.Str("user", q.who.User)
	j.Str("group", q.who.Group)
	j.Close('}')
	j.List("command", nil)
	j.Open("slurm", '{')
	major, rest, _ := strings.Cut(version.Slurm, ".")
	minor, micro, _ := strings.Cut(rest, ".")
	j.Open("version", '{')
	j.Str("major", major)
	j.Str("micro", micro)
	j.Str("minor", minor)
	j.Close('}')
	j.Str("release", version.Slurm)
	j.Str("cluster", q.facts.Config().Cluster)
	j.Close('}')
	j.Close('}')
	j.Open("errors", '[')
	for _, f := range q.faults {
		j.Open("", '{')
		j.Str("description", f.Detail)
		j.Num("error_number", int64(f.Number))
		j.Str("error", f.Text)
		j.Str("source", f.Source)
		j.Close('}')
	}
	j.Close(']')
	j.Open("warnings", '[')
	for _, w := range q.warnings {
		j.Open("", '{')
		j.Str("description", w.text)
		j.Str("source", w.source)
		j.Close('}')
	}
	j.Close(']')
	j.Close('}')
	j.Flush(true)
}

// planned writes when the planner last looked at the whole queue: it does so whenever something has changed.
func (q *request) planned(j *slurmjson.Writer) { j.Count("last_backfill", q.facts.Now.Seconds()) }

// tags number the facts that lists were made from, for ETag.
type tags struct {
	mu    sync.Mutex
	stamp any
	n     uint64
}

func (t *tags) of(stamp any) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == 0 || t.stamp != stamp {
		t.stamp, t.n = stamp, t.n+1
	}
	return t.n
}

// tagged says in ETag which facts the answer is made from, and answers a client that has it already. key names what the
// answer depends on beside the facts.
func (q *request) tagged(key string) error {
	sum := fnv.New64a()
	_, _ = fmt.Fprint(sum, q.ver, q.form.yaml, q.s.o.Cluster.Sees(q.who), " ", key) // it never fails
	tag := fmt.Sprintf(`W/"%x-%x-%x"`, q.s.begun, q.s.counts.tags.of(q.facts.Stamp), sum.Sum64())
	h := q.w.Header()
	h.Set("ETag", tag)
	h.Set("Cache-Control", "private, no-cache")
	for known := range strings.SplitSeq(q.r.Header.Get("If-None-Match"), ",") {
		if strings.TrimSpace(known) == tag {
			return errUnchanged
		}
	}
	return nil
}

// lastChange is when the facts last changed, as far as requests have seen.
type lastChange struct {
	mu  sync.Mutex
	gen uint64
	at  model.Time
}

// unchanged reports whether nothing has changed since a moment, in seconds since 1970.
func (l *lastChange) unchanged(f *Facts, since int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gen := f.Gen(); gen != l.gen || l.at == 0 {
		l.gen, l.at = gen, f.Now
	}
	return since > l.at.Seconds()
}

// errUnchanged is the answer to a question for what has changed since update_time.
var errUnchanged = &fault{Number: 1900, Text: "Data has not changed since time specified",
	Status: http.StatusNotModified}

// since answers a question with update_time, if nothing has changed since.
func (q *request) since() error {
	text := q.get("update_time")
	if text == "" {
		q.s.counts.changes.unchanged(&q.facts, 0)
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return &fault{Number: errConversion,
			Detail: "update_time=" + strconv.Quote(text) + " is no number of seconds since 1970",
			Status: http.StatusBadRequest}
	}
	if q.s.counts.changes.unchanged(&q.facts, n) {
		return errUnchanged
	}
	return nil
}

// How many bytes of answers and bodies a user moves is bounded. What equal requests share costs no more than its
// way out, and so it is not among the rows of QueryRateLimit; but a list of thousands of jobs is ten times as long as a
// command's, and copying without end takes the memory from everybody's requests, on whichever CPU it is done.

const (
	flowBytes  = 64 << 20  // a second, for each user
	flowBurstS = 2         // seconds' worth at once
	flowUsers  = 4         // users who may move so much together
	flowLeast  = 128 << 10 // shorter answers and bodies count with the requests
)

// serverKey is of the context of a request that rooms or pages answer: its server.
type serverKey struct{}

// Moves is for rooms and pages, before they answer with so many bytes: it waits until the user may move them. StatusOf
// knows its error.
func Moves(ctx context.Context, who *proto.Caller, bytes int) error {
	if s, ok := ctx.Value(serverKey{}).(*Server); ok && who != nil {
		return s.flows(ctx, who, bytes)
	}
	return nil
}

func newFlow() *share.Limits {
	return &share.Limits{Total: flowUsers, BurstS: flowBurstS, Refuse: true}
}

// flows waits until a user may move so many more bytes. The monitoring of an administrator, who is root, never waits.
func (s *Server) flows(ctx context.Context, who *proto.Caller, bytes int) error {
	if bytes < flowLeast || who.UID == 0 {
		return nil
	}
	err := s.flow.Pay(ctx, strconv.FormatUint(uint64(who.UID), 10), float64(bytes), flowBytes)
	if errors.Is(err, share.ErrOwes) {
		return &fault{Number: 1801, Text: "Controller is busy", Status: http.StatusTooManyRequests,
			Detail: fmt.Sprintf("a user may move %d MiB a second over HTTP; ask for less at once, compressed "+
				"(Accept-Encoding: gzip), or only for what has changed (If-None-Match)", flowBytes>>20)}
	}
	return err
}
