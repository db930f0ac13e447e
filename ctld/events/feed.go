package events

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/rpc/share"
	"gbatch/internal/state"
	"gbatch/internal/trail"
)

// feed.go keeps the last events as the stream sends them, once for all who listen. It follows what the state remembers,
// on every controller alike: an event's place is that of its log entry, so a client can go on at another controller.

// Event is one thing that has happened, as clients get it.
type Event struct {
	ID        string `json:"id"`    // INDEX.N: where in the cluster's log; ?since= and Last-Event-ID take it
	Index     uint64 `json:"index"` // of the log entry
	Time      string `json:"time"`  // RFC 3339, UTC
	Kind      string `json:"kind"`  // task_submitted, node_down ...
	What      string `json:"what"`  // job, node, gpu, reservation, partition, account, config, cluster, trigger
	Name      string `json:"name"`  // of the thing, as users write it: 12_3, n1, physics
	Job       uint64 `json:"job,omitempty"`
	Array     uint64 `json:"array,omitempty"`
	Attempt   uint32 `json:"attempt,omitempty"`
	JobName   string `json:"job_name,omitempty"`
	User      string `json:"user,omitempty"` // whose job it is
	By        string `json:"by,omitempty"`   // who did it
	Account   string `json:"account,omitempty"`
	Partition string `json:"partition,omitempty"`
	QOS       string `json:"qos,omitempty"`
	State     string `json:"state,omitempty"`
	Nodes     string `json:"nodes,omitempty"` // a host list
	ExitCode  *int32 `json:"exit_code,omitempty"`
	Signal    int32  `json:"signal,omitempty"`
	Text      string `json:"text,omitempty"`

	About `json:"-"`
}

// About is what decides who may see an event.
type About struct {
	Deed    bool   // a user did it
	UID     uint32 // who
	Owner   uint32 // of the job
	OwnerOK bool   // Owner is known
}

// kept is an event in the ring.
type kept struct {
	at    state.Place
	bytes []byte // the JSON object
	ev    *Event
}

const (
	// maxKept bounds the ring, in events, and maxKeptBytes in bytes; a full one drops half.
	maxKept      = 1 << 15
	maxKeptBytes = 16 << 20
	// keptExtra is about what an event takes besides its JSON, bytes: its texts are those of the JSON.
	keptExtra = 512
	// feedPace is from one look at what has happened to the next.
	feedPace = 100 * time.Millisecond
)

// Facts is what a feed follows.
type Facts interface {
	View() *state.View
	Changed() <-chan struct{}
}

// Feed is a ring of the last events.
type Feed struct {
	facts Facts

	mu      sync.Mutex
	ring    []kept // oldest first
	bytes   int
	at      state.Place    // up to here the ring is complete
	lost    state.Place    // up to here nothing is known
	jumped  [2]state.Place // the last gap in what the state itself remembered, from and to
	changed chan struct{}
	over    bool

	looked chan struct{} // is closed after the first look
	first  sync.Once
	seats  share.Seats
}

// NewFeed makes a feed.
func NewFeed(facts Facts) *Feed {
	return &Feed{facts: facts, seats: share.Seats{All: MaxStreams}, changed: make(chan struct{}),
		looked: make(chan struct{})}
}

// Run follows the facts until ctx ends, and then ends all streams.
func (f *Feed) Run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := f.facts.Changed()
		f.take(f.facts.View())
		select {
		case <-changed:
		case <-ctx.Done():
		}
		select {
		case <-time.After(feedPace):
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	close(f.changed)
	f.changed = make(chan struct{})
}

// take adds what has happened.
func (f *Feed) take(v *state.View) {
	defer f.first.Do(func() { close(f.looked) })
	since := f.at
	list, lost := v.HappenedAfter(since)
	fresh := make([]kept, 0, len(list))
	for i := range list {
		ev := eventOf(v, &list[i])
		if ev == nil {
			continue
		}
		b, err := json.Marshal(ev)
		if err != nil {
			continue // it has only texts and numbers
		}
		fresh = append(fresh, kept{list[i].Place, b, ev})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	gap := since.Before(lost)
	if gap { // what lies between is not known here
		f.ring, f.bytes, f.lost, f.jumped = nil, 0, lost, [2]state.Place{since, lost}
	}
	for i := range fresh {
		f.bytes += len(fresh[i].bytes) + keptExtra
	}
	f.ring = append(f.ring, fresh...)
	drop, full := 0, len(f.ring) > maxKept || f.bytes > maxKeptBytes
	for full && (len(f.ring)-drop > maxKept/2 || f.bytes > maxKeptBytes/2) {
		f.bytes -= len(f.ring[drop].bytes) + keptExtra
		f.lost = f.ring[drop].at
		drop++
	}
	if drop > 0 {
		f.ring = append(make([]kept, 0, maxKept), f.ring[drop:]...)
	}
	if last := (state.Place{Index: v.LastEntry(), N: state.EntryEnd}); f.at.Before(last) {
		f.at = last
	}
	if len(fresh) > 0 || gap {
		close(f.changed)
		f.changed = make(chan struct{})
	}
}

// after gives the events after a place, at most some; next is where to go on, lost up to where nothing is known.
func (f *Feed) after(since state.Place, most int) (list []kept, next, lost state.Place, changed <-chan struct{},
	over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lo, hi := 0, len(f.ring)
	for lo < hi {
		if mid := (lo + hi) / 2; since.Before(f.ring[mid].at) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	list = f.ring[lo:]
	next = f.at
	if len(list) > most {
		list = list[:most]
		next = list[most-1].at
	}
	if next.Before(since) {
		next = since
	}
	return list, next, f.lost, f.changed, f.over
}

// jump reports whether the feed itself went from a place to another without knowing what lies between: a controller
// that was behind got a snapshot. Whoever listened is not too slow then.
func (f *Feed) jump(at state.Place) (to state.Place, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.jumped[1], !at.Before(f.jumped[0]) && at.Before(f.jumped[1])
}

// idOf writes a place: 120.3, or 120 after all of an entry.
func idOf(p state.Place) string {
	id := strconv.FormatUint(p.Index, 10)
	if p.N != state.EntryEnd {
		id += "." + strconv.FormatUint(uint64(p.N), 10)
	}
	return id
}

// placeOf reads one.
func placeOf(text string) (p state.Place, err error) {
	index, n, parted := strings.Cut(text, ".")
	p.N = state.EntryEnd
	if p.Index, err = strconv.ParseUint(index, 10, 64); err == nil && parted {
		var k uint64
		k, err = strconv.ParseUint(n, 10, 32)
		p.N = uint32(k)
	}
	return p, err
}

// eventOf makes an event; nil: clients don't get it.
func eventOf(v *state.View, h *state.Happening) *Event {
	ev := &Event{ID: idOf(h.Place), Index: h.Index,
		Time: time.UnixMilli(int64(h.At)).UTC().Format("2006-01-02T15:04:05.000Z")}
	if a := h.Audit; a != nil {
		ev.Kind, ev.What, ev.Name, ev.By, ev.Text, ev.State = a.Event, a.What, a.Name, a.By, a.Text, a.State
		ev.Nodes = a.Nodes
		ev.Deed, ev.UID = a.ByUser, a.UID
		if j := v.Job(a.Job); a.Job != 0 && j != nil {
			ev.ofJob(j)
			ev.State = j.State.String()
		} else if a.Job != 0 {
			ev.Job, ev.Owner, ev.OwnerOK = uint64(a.Job), a.Owner, true
		}
		if a.What == trail.Node && ev.State == "" && a.Event == trail.NodeUp {
			ev.State = "UP"
		}
		return ev
	}
	if ev.Kind = nameOf(h); ev.Kind == "" {
		return nil
	}
	j := h.Job
	ev.What, ev.Name, ev.State, ev.Text, ev.Attempt = trail.Job, cut(jobtext.JobID(j)), j.State.String(), j.Why, j.Attempt
	ev.ofJob(j)
	if j.Run != nil && j.Run.Alloc != nil {
		ev.Nodes = cut(hostlist.Compress(j.Run.Alloc.NodeNames()))
	}
	if j.End != nil && j.State.Finished() {
		ev.ExitCode, ev.Signal = &j.End.Exit.Code, j.End.Exit.Signal
	}
	return ev
}

// ofJob notes whose job it is.
func (ev *Event) ofJob(j *model.Job) {
	sp := j.Spec
	ev.Job, ev.Array, ev.JobName = uint64(j.ID), uint64(j.ArrayID), sp.Name
	ev.User, ev.Account, ev.Partition, ev.QOS = sp.User, sp.Account, strings.Join(j.Partitions(), ","), sp.QOS
	ev.Owner, ev.OwnerOK = sp.UID, true
}
