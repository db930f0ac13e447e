package jobevents

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

const (
	// maxWaiting bounds the events in memory. The state remembers more.
	maxWaiting = 4096
	// pace is from one look at what has happened to the next.
	pace = 50 * time.Millisecond
	// sayPace is how often the log says that the program is behind, or fails.
	sayPace = time.Minute
)

// Facts is what a teller follows.
type Facts interface {
	View() *state.View
	Changed() <-chan struct{}
}

// Call is one call of the program.
type Call struct {
	Program string
	Job     *model.Job
	Env     []string // besides what all programs of the controller get about a job
	Input   []byte
	Limit   time.Duration
}

// Counts are a teller's counts since the controller started.
type Counts struct {
	Told, Failed, Lost, Waiting int64
}

// Teller calls the program. Run is called while the controller leads.
type Teller struct {
	Facts Facts
	Run   func(ctx context.Context, c *Call) error // runs the program once, and kills it at its limit
	Log   *slog.Logger

	told               atomic.Uint64
	done, failed, lost atomic.Int64
	waiting            atomic.Int64
}

// Told gives the entry of the log up to which all events were told, as far as this controller knows; 0: it knows none.
func (t *Teller) Told() uint64 { return t.told.Load() }

// Heard takes what another controller knows of it.
func (t *Teller) Heard(index uint64) {
	for {
		have := t.told.Load()
		if index <= have || t.told.CompareAndSwap(have, index) {
			return
		}
	}
}

// Counts gives the counts.
func (t *Teller) Counts() Counts {
	return Counts{t.done.Load(), t.failed.Load(), t.lost.Load(), t.waiting.Load()}
}

// queue has the events that are to be told.
type queue struct {
	mu      sync.Mutex
	order   []*item // as they happened; those in front that are done go
	of      map[model.JobID][]*item
	ready   []model.JobID // jobs with events of which none is being told
	running int
	at      state.Place // up to here all that has happened was looked at
	freed   chan struct{}
}

type item struct {
	*Event
	done bool
}

// Lead tells what happens until ctx ends, and returns when no program runs any more. It begins behind what the last
// leader is known to have told; if nothing is known, with what happens from now on.
func (t *Teller) Lead(ctx context.Context) {
	v := t.Facts.View()
	q := &queue{of: map[model.JobID][]*item{}, freed: make(chan struct{}, 1),
		at: state.Place{Index: v.LastEntry(), N: state.EntryEnd}}
	if told := t.told.Load(); told != 0 && told < q.at.Index {
		q.at.Index = told
	}
	defer t.waiting.Store(0)
	var wg sync.WaitGroup
	defer wg.Wait()
	var said time.Time
	for ctx.Err() == nil {
		changed := t.Facts.Changed()
		v := t.Facts.View()
		rules := &v.Config().Params.JobEvents
		if gap := t.take(q, v, rules); gap && time.Since(said) > sayPace {
			said = time.Now()
			t.Log.Error("events of jobs were not told to JobEventProgram: it is slower than they happen, or this "+
				"controller did not know them", "program", rules.Program, "up_to", q.at.Index)
		}
		for {
			e := q.next(int(max(rules.Parallel, 1)))
			if e == nil {
				break
			}
			wg.Go(func() {
				if t.tell(ctx, rules, e.Event); ctx.Err() != nil {
					return // the next leader tells it
				}
				q.over(e)
				t.Heard(q.told())
				t.waiting.Store(q.len())
			})
		}
		t.Heard(q.told())
		t.waiting.Store(q.len())
		select {
		case <-changed:
		case <-q.freed:
		case <-ctx.Done():
		}
		select { // many changes are looked at together
		case <-time.After(pace):
		case <-ctx.Done():
		}
	}
}

// take adds what has happened; gap is true if some of it is not known any more.
func (t *Teller) take(q *queue, v *state.View, rules *model.JobEvents) (gap bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.order) >= maxWaiting {
		return false
	}
	end := state.Place{Index: v.LastEntry(), N: state.EntryEnd}
	if rules.Program == "" { // nobody wants to know
		q.at = end
		return false
	}
	list, lost := v.HappenedAfter(q.at)
	if q.at.Before(lost) {
		gap = true
		t.lost.Add(1)
	}
	for i := range list {
		if len(q.order) >= maxWaiting {
			q.at = list[i-1].Place
			return gap
		}
		if e := of(v, &list[i], rules.Kinds); e != nil {
			q.add(&item{Event: e})
		}
	}
	if q.at.Before(end) {
		q.at = end
	}
	return gap
}

func (q *queue) add(e *item) {
	q.order = append(q.order, e)
	if q.of[e.Job] = append(q.of[e.Job], e); len(q.of[e.Job]) == 1 {
		q.ready = append(q.ready, e.Job)
	}
}

// next gives an event to be told now; nil: there is none, or enough programs run.
func (q *queue) next(parallel int) *item {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running >= parallel || len(q.ready) == 0 {
		return nil
	}
	id := q.ready[0]
	q.ready = q.ready[1:]
	q.running++
	return q.of[id][0]
}

// over takes note that an event was told.
func (q *queue) over(e *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	e.done = true
	if rest := q.of[e.Job][1:]; len(rest) > 0 {
		q.of[e.Job] = rest
		q.ready = append(q.ready, e.Job)
	} else {
		delete(q.of, e.Job)
	}
	for len(q.order) > 0 && q.order[0].done {
		q.order[0] = nil
		q.order = q.order[1:]
	}
	select {
	case q.freed <- struct{}{}:
	default:
	}
}

// told gives the entry up to which all was told.
func (q *queue) told() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.order) > 0 {
		return q.order[0].at.Index - 1
	}
	if q.at.N == state.EntryEnd {
		return q.at.Index
	}
	return q.at.Index - 1
}

func (q *queue) len() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int64(len(q.order))
}

// tell calls the program for one event. A failure concerns nobody else.
func (t *Teller) tell(ctx context.Context, rules *model.JobEvents, e *Event) {
	input, err := json.Marshal(e)
	if err == nil {
		err = t.Run(ctx, &Call{Program: rules.Program, Job: e.job, Env: e.env(), Input: append(input, '\n'),
			Limit: time.Duration(max(rules.LimitS, 1)) * time.Second})
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		t.failed.Add(1)
		t.Log.Warn("JobEventProgram failed; it is not called again for this event", "program", rules.Program, "event",
			e.Event, "job", e.Job, "err", err)
	default:
		t.done.Add(1)
	}
}
