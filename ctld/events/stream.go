package events

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/state"
	"gbatch/internal/trail"
)

// stream.go serves events as server-sent events. A stream has no queue: it reads the feed's ring at its client's pace,
// and one that the ring has left behind ends with a word.

// Listener is who listens.
type Listener struct {
	UID  uint32
	Most int // streams that this user may hold
	// See gives what the listener may see, as things are now; an error ends the stream with its words. It is called
	// again every seePace.
	See func(ctx context.Context) (func(ev *Event) bool, error)
}

// Limits of streams.
const (
	MaxStreams   = 1000
	MaxStreamsOf = 500 // of one user; administrators may have all
	beatPace     = 15 * time.Second
	seePace      = 30 * time.Second
	sendTime     = 10 * time.Second // for a part of the stream to leave
	catchUp      = 5 * time.Second  // for a controller that is behind to reach the place that a client has seen
	partEvents   = 256              // are sent at a time
	maxValues    = 64               // values of one filter
)

// filter is what a client asks for; empty lists ask for everything.
type filter struct {
	users, kinds, accounts, partitions []string
	jobs                               []uint64
	since                              state.Place
	fromNow                            bool
}

// query parameters of a stream.
const (
	bySince, byUser, byJob, byKind, byAccount, byPartition = "since", "user", "job", "kind", "account", "partition"
)

// filterOf reads a request.
func filterOf(q url.Values, lastID string) (*filter, error) {
	f := &filter{}
	for name, values := range q {
		var words []string
		for w := range strings.SplitSeq(strings.Join(values, ","), ",") {
			if w = strings.TrimSpace(w); w != "" {
				words = append(words, w)
			}
		}
		if len(words) > maxValues {
			return nil, fmt.Errorf("%s has %d values, at most %d are possible", name, len(words), maxValues)
		}
		switch name {
		case bySince:
		case byUser:
			f.users = words
		case byAccount:
			f.accounts = words
		case byPartition:
			f.partitions = words
		case byKind:
			for _, w := range words {
				if !known(w) {
					return nil, fmt.Errorf("kind=%s: there is no such event; there are %s", w, strings.Join(kinds(), ", "))
				}
			}
			f.kinds = words
		case byJob:
			for _, w := range words {
				id, err := strconv.ParseUint(w, 10, 32)
				if err != nil {
					return nil, fmt.Errorf("job=%s: it is no job's number", w)
				}
				f.jobs = append(f.jobs, id)
			}
		default:
			return nil, fmt.Errorf("%s: there is no such parameter; there are since, user, job, kind, account, partition",
				name)
		}
	}
	since, from := q.Get(bySince), "since="
	if lastID != "" { // a client that connects again asks for the same address as before
		since, from = lastID, "Last-Event-ID: "
	}
	if f.fromNow = since == ""; f.fromNow {
		return f, nil
	}
	var err error
	if f.since, err = placeOf(since); err != nil {
		return nil, fmt.Errorf("%s%s: an index is wanted, as the id of an event has it: 120.3, or 120", from, since)
	}
	return f, nil
}

// kinds are the words that kind= takes: events, and kinds of things.
func kinds() []string {
	list := []string{trail.Job, trail.Node, trail.GPU, trail.Account, trail.Reservation, trail.Partition, trail.Config,
		trail.Cluster, trail.Trigger}
	for _, e := range trail.Events() {
		list = append(list, e.Name)
	}
	return list
}

func known(kind string) bool { return slices.Contains(kinds(), kind) }

func has(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }

// wants reports whether an event is asked for.
func (f *filter) wants(ev *Event) bool {
	switch {
	case len(f.kinds) > 0 && !slices.Contains(f.kinds, ev.Kind) && !slices.Contains(f.kinds, ev.What),
		len(f.users) > 0 && !slices.Contains(f.users, ev.User) && !slices.Contains(f.users, ev.By),
		len(f.jobs) > 0 && !slices.Contains(f.jobs, ev.Job) && !(ev.Array != 0 && slices.Contains(f.jobs, ev.Array)),
		!has(f.accounts, ev.Account):
		return false
	case len(f.partitions) > 0:
		return slices.ContainsFunc(strings.Split(ev.Partition, ","), func(p string) bool {
			return slices.Contains(f.partitions, p)
		})
	}
	return true
}

// said writes an object of the stream that is no event of the cluster.
type said struct {
	Text  string `json:"text"`
	Index uint64 `json:"index,omitempty"` // up to here is what this controller knows
	Since string `json:"since,omitempty"` // what the client asked for
	From  string `json:"from,omitempty"`  // before and at this place events are not known any more
}

// Refuse answers with an error.
func Refuse(w http.ResponseWriter, status int, text string) {
	b, _ := json.Marshal(map[string]any{"success": false, "error": text}) // of texts: it can't fail
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // who has gone needs no answer
}

// stream is one client's.
type stream struct {
	feed *Feed
	w    http.ResponseWriter
	out  *http.ResponseController
	want *filter
	buf  []byte
}

// Serve answers a request for the stream.
func (f *Feed) Serve(w http.ResponseWriter, r *http.Request, who *Listener) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		Refuse(w, http.StatusMethodNotAllowed, "the stream of events is for GET")
		return
	}
	want, err := filterOf(r.URL.Query(), r.Header.Get("Last-Event-Id"))
	if err != nil {
		Refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	see, err := who.See(r.Context())
	if err != nil {
		Refuse(w, http.StatusForbidden, err.Error())
		return
	}
	if !f.seats.Take(who.UID, who.Most) {
		w.Header().Set("Retry-After", "10")
		Refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("too many streams are open: a user may hold %d, all together %d",
			who.Most, MaxStreams))
		return
	}
	defer f.seats.Leave(who.UID)
	s := &stream{feed: f, w: w, out: http.NewResponseController(w), want: want}
	_ = s.out.SetReadDeadline(time.Time{}) // a connection without deadlines has none to lift
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // for a proxy: pass on at once
	w.WriteHeader(http.StatusOK)
	_ = s.out.Flush() // a client that has gone ends the stream
	s.run(r.Context(), who, see)
}

// word adds something that is no event of the cluster.
func (s *stream) word(event string, x *said, id string) {
	b, _ := json.Marshal(x) // of texts and numbers: it can't fail
	s.buf = fmt.Appendf(s.buf, "event: %s\ndata: %s\n", event, b)
	if id != "" {
		s.buf = fmt.Appendf(s.buf, "id: %s\n", id)
	}
	s.buf = append(s.buf, '\n')
}

// send sends what is there.
func (s *stream) send() bool {
	if len(s.buf) == 0 {
		return true
	}
	_, err := s.w.Write(s.buf)
	if err == nil {
		_ = s.out.SetWriteDeadline(time.Now().Add(sendTime)) // a connection without deadlines has its own
		err = s.out.Flush()
	}
	s.buf = s.buf[:0]
	return err == nil
}

// begin finds where to start, and greets.
func (s *stream) begin(ctx context.Context) (at state.Place, ok bool) {
	wait := time.NewTimer(catchUp) // for a controller that has only just begun
	defer wait.Stop()
	select {
	case <-s.feed.looked:
	case <-wait.C:
	case <-ctx.Done():
		return at, false
	}
	_, now, lost, _, _ := s.feed.after(state.Place{}, 1<<30)
	if s.want.fromNow {
		at = now
		s.word("hello", &said{Text: "events from now on", Index: now.Index}, idOf(now))
		return at, s.send()
	}
	at = s.want.since
	for end := time.Now().Add(catchUp); now.Index < at.Index && time.Now().Before(end); {
		select {
		case <-time.After(feedPace):
		case <-ctx.Done():
			return at, false
		}
		_, now, lost, _, _ = s.feed.after(state.Place{}, 1<<30)
	}
	s.word("hello", &said{Text: "events after " + idOf(at), Index: now.Index, Since: idOf(at)}, "")
	switch {
	case now.Index < at.Index:
		s.word("gap", &said{Text: "this cluster's log has not come as far as " + idOf(at) +
			": that index is of another life of it. All that is known here follows.", Index: now.Index,
			Since: idOf(at), From: idOf(lost)}, "")
		at = lost
	case at.Index == 0: // all that is known was asked for
		at = lost
	case at.Before(lost):
		s.gap(at, lost)
		at = lost
	}
	return at, s.send()
}

// gap says that events are missing.
func (s *stream) gap(at, lost state.Place) {
	s.word("gap", &said{Text: "events after " + idOf(at) + " up to " + idOf(lost) +
		" are not kept any more: read the lists again", Since: idOf(at), From: idOf(lost)}, idOf(lost))
}

// run sends events until the client goes.
func (s *stream) run(ctx context.Context, who *Listener, see func(*Event) bool) {
	at, ok := s.begin(ctx)
	beat, look := time.NewTicker(beatPace), time.NewTicker(seePace)
	defer beat.Stop()
	defer look.Stop()
	for ok && ctx.Err() == nil {
		list, next, lost, changed, over := s.feed.after(at, partEvents)
		if to, is := s.feed.jump(at); is {
			s.gap(at, to)
			at = to
			ok = s.send()
			continue
		}
		if at.Before(lost) {
			s.word("cut", &said{Text: "the client reads more slowly than things happen; connect again with Last-Event-ID",
				Since: idOf(at), From: idOf(lost)}, "")
			s.send()
			return
		}
		for i := range list {
			if ev := list[i].ev; s.want.wants(ev) && see(ev) {
				s.buf = append(append(append(s.buf, "data: "...), list[i].bytes...), "\nid: "...)
				s.buf = append(append(s.buf, ev.ID...), "\n\n"...)
			}
		}
		at = next
		if ok = s.send(); !ok || len(list) == partEvents {
			continue
		}
		if over {
			s.word("cut", &said{Text: "this controller ends; connect again with Last-Event-ID", Index: at.Index}, "")
			s.send()
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-beat.C:
			// The id moves on even if nothing is sent, so that a client that returns finds its place in the ring.
			s.buf = fmt.Appendf(s.buf, ": beat\nid: %s\n\n", idOf(at))
			ok = s.send()
		case <-look.C:
			var err error
			if see, err = who.See(ctx); err != nil {
				s.word("cut", &said{Text: err.Error()}, "")
				s.send()
				return
			}
		}
	}
}
