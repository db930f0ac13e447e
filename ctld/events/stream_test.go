package events

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// facts is a state to which a test applies commands.
type facts struct {
	mu      sync.Mutex
	st      *state.State
	index   uint64
	changed chan struct{}
}

func newFacts(first uint64) *facts {
	return &facts{st: state.New(), index: first - 1, changed: make(chan struct{})}
}

func (f *facts) View() *state.View {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.st.View()
}

func (f *facts) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// tell applies an entry with some events.
func (f *facts) tell(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index++
	f.st.Entry(f.index)
	x := &state.Audits{}
	for _, name := range names {
		kind := "node_changed"
		if strings.HasPrefix(name, "p") {
			kind = "partition_changed"
		}
		x.List = append(x.List, &model.Audit{Event: kind, What: kind[:strings.IndexByte(kind, '_')], Name: name, By: "root"})
	}
	b, err := state.Encode(1000, x)
	if err != nil {
		panic(err)
	}
	c, err := state.Decode(b)
	if err != nil {
		panic(err)
	}
	f.st.Apply(c)
	close(f.changed)
	f.changed = make(chan struct{})
}

// open listens to a feed.
func open(t *testing.T, f *Feed, query, last string) *listener {
	const most = 8
	all := func(context.Context) (func(*Event) bool, error) { return func(*Event) bool { return true }, nil }
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.Serve(w, r, &Listener{Most: most, See: all})
	}))
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(srv.Close)
	t.Cleanup(cancel)
	rq, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		rq.Header.Set("Last-Event-ID", last)
	}
	got, err := http.DefaultClient.Do(rq)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = got.Body.Close() })
	return &listener{t: t, r: got, leave: cancel}
}

type listener struct {
	t     *testing.T
	r     *http.Response
	text  string
	leave func()
}

// until reads until a text has come.
func (l *listener) until(want string) string {
	l.t.Helper()
	end := time.AfterFunc(20*time.Second, func() { _ = l.r.Body.Close() })
	defer end.Stop()
	for b := make([]byte, 4096); !strings.Contains(l.text, want); {
		n, err := l.r.Body.Read(b)
		l.text += string(b[:n])
		if err != nil && !strings.Contains(l.text, want) {
			l.t.Fatalf("%v before %q:\n%s", err, want, l.text)
		}
	}
	return l.text
}

// started runs a feed.
func started(t *testing.T, f *facts) *Feed {
	feed := NewFeed(f)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { feed.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, at, _, _, _ := feed.after(state.Place{}, 1); at.Index == f.View().LastEntry() {
			return feed
		}
		if time.Now().After(end) {
			t.Fatal("the feed does not follow")
		}
	}
}

// TestStream: a client goes on where it was, in the middle of an entry too, and at another controller whose facts begin
// with a snapshot; what is not known any more is said.
func TestStream(t *testing.T) {
	f, late := newFacts(1), newFacts(3)
	feed := started(t, f)
	f.tell("n1", "n2", "n3")
	f.tell("p1")
	f.tell("n4")
	late.tell("n4")
	other := started(t, late)
	l := open(t, feed, "since=1.1", "")
	if text := l.until("id: 3.1\n\n"); strings.Contains(text, `"n1"`) || !strings.Contains(text, `"n2"`) ||
		strings.Contains(text, "event: gap") {
		t.Errorf("after 1.1:\n%s", text)
	}
	if text := open(t, feed, "since=0&kind=partition", "1.1").until("id: 2.1\n\n"); strings.Contains(text, `"n2"`) {
		t.Errorf("partitions only:\n%s", text)
	}
	if text := open(t, other, "since=2", "").until(`"n4"`); strings.Contains(text, "event: gap") {
		t.Errorf("nothing is missing after entry 2:\n%s", text)
	}
	if text := open(t, other, "since=0", "").until(`"n4"`); strings.Contains(text, "event: gap") {
		t.Errorf("all that is known was asked for:\n%s", text)
	}
	for _, since := range []string{"1.1", "2.1"} { // the snapshot may hold more of entry 2
		text := open(t, other, "", since).until(`"n4"`)
		if !strings.Contains(text, "event: gap") {
			t.Errorf("a gap after %s is not said:\n%s", since, text)
		}
	}
	if text := open(t, feed, "since=3", "").until("hello"); strings.Contains(text, "gap") {
		t.Errorf("the end is no gap:\n%s", text)
	}
	f.tell("n5")
	if text := l.until(`"n5"`); strings.Count(text, `"n4"`) != 1 {
		t.Errorf("an event came again:\n%s", text)
	}
}

// TestRing: the ring is bounded; a client that it has left behind is told.
func TestRing(t *testing.T) {
	f := newFacts(1)
	feed := NewFeed(f)
	names := make([]string, 5000)
	for i := range names {
		names[i] = "n1"
	}
	for range 2*maxKept/len(names) + 1 {
		f.tell(names...)
		feed.take(f.View())
	}
	_, _, lost, _, _ := feed.after(state.Place{}, 1)
	if len(feed.ring) > maxKept || feed.bytes > maxKeptBytes || lost.Index == 0 {
		t.Errorf("%d events, %d bytes, lost up to %v", len(feed.ring), feed.bytes, lost)
	}
	open(t, feed, "since=1", "").until("event: gap")
}

// TestFeedComesFromFar: who listens before the feed's first look, or while its controller takes up a snapshot, is not
// slow: the first misses nothing, and the second hears of the gap and goes on.
func TestFeedComesFromFar(t *testing.T) {
	f := newFacts(3)
	feed := NewFeed(f)
	look := func() { feed.take(f.View()) }
	l := open(t, feed, "", "")
	f.tell("n1")
	look()
	l.until("hello")
	f.tell("n2")
	look()
	if text := l.until(`"n2"`); strings.Contains(text, "event: cut") || strings.Contains(text, "event: gap") {
		t.Errorf("from the first look:\n%s", text)
	}
	f.mu.Lock()
	f.st, f.index = state.New(), 99
	f.mu.Unlock()
	f.tell("n3")
	look()
	l.until("event: gap")
	f.tell("n4")
	look()
	if text := l.until(`"n4"`); strings.Contains(text, "event: cut") {
		t.Errorf("after a snapshot:\n%s", text)
	}
}

// TestBadStream: what is wrong is said, and too many streams are refused.
func TestBadStream(t *testing.T) {
	f := newFacts(1)
	f.tell("n1")
	feed := started(t, f)
	for query, want := range map[string]string{"since=x": "since=x", "kind=nothing": "there is no such event",
		"job=a": "no job's number", "color=red": "there is no such parameter", "since=1.2.3": "an index is wanted"} {
		l := open(t, feed, query, "")
		if l.until(want); l.r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", query, l.r.StatusCode)
		}
	}
	first := open(t, feed, "", "")
	first.until("hello")
	for range 7 {
		open(t, feed, "", "").until("hello")
	}
	more := open(t, feed, "", "")
	if more.until("too many streams"); more.r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%d", more.r.StatusCode)
	}
	first.leave()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if open(t, feed, "", "").r.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a place did not get free")
		}
	}
}
