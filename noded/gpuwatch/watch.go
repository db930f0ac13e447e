package gpuwatch

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"gbatch/noded/gpu"
)

// watch.go reads the node's GPUs: one watcher, and subscribers that get each round.

const (
	Every          = 5 * time.Second // between rounds; the driver's own events come at once
	maxSubscribers = 16              // subscribers

	freshFor = time.Second // a round so young is as good as a new one
	lookFor  = time.Second // the longest wait for a new one
)

// Round is one reading of all GPUs. With Err there is none this time, and Readings is nil.
type Round struct {
	At       time.Time
	Readings []gpu.Reading
	Err      error
}

// Watch is the one watcher of a gnoded. Without a source it never has a round.
type Watch struct {
	source gpu.Source
	log    *slog.Logger
	pauses chan pauseOf
	paced  chan struct{} // holds one: every has changed
	now    chan struct{} // holds one: somebody wants a round

	mu     sync.Mutex
	every  time.Duration
	subs   []*sub
	latest Round
	looks  []chan Round // who wait for a round; each holds one
	said   string
}

// pauseOf is a time without readings: no process of gnoded has the GPUs open between stopped and over.
type pauseOf struct{ stopped, over chan struct{} }

type sub struct{ got func(Round) }

func New(source gpu.Source, every time.Duration, log *slog.Logger) *Watch {
	if every <= 0 {
		every = Every
	}
	return &Watch{source: source, every: every, log: log, pauses: make(chan pauseOf), paced: make(chan struct{}, 1),
		now: make(chan struct{}, 1)}
}

// SetEvery changes the time between rounds.
func (w *Watch) SetEvery(every time.Duration) {
	if every <= 0 {
		every = Every
	}
	w.mu.Lock()
	same := w.every == every
	w.every = every
	w.mu.Unlock()
	if same {
		return
	}
	select {
	case w.paced <- struct{}{}:
	default: // the watcher will read every
	}
}

func (w *Watch) pace() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.every
}

// Subscribe makes the watcher's goroutine call got with each round: got must not wait, and must not change the
// readings, which all subscribers share. After cancel, one more round may still come.
func (w *Watch) Subscribe(got func(Round)) (cancel func()) {
	s := &sub{got}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.subs) == maxSubscribers {
		panic("too many subscribers to the GPUs' readings") // each is a part of gnoded, not a job
	}
	w.subs = append(w.subs, s)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.subs = slices.DeleteFunc(w.subs, func(x *sub) bool { return x == s })
	}
}

// Last gives the latest round, zero before the first.
func (w *Watch) Last() Round {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest
}

// Look gives a round that is no older than a second. It asks for one where the last is older; if none comes within a
// second, it gives the last one.
func (w *Watch) Look(ctx context.Context) Round {
	w.mu.Lock()
	last := w.latest
	if w.source == nil || time.Since(last.At) < freshFor {
		w.mu.Unlock()
		return last
	}
	c := make(chan Round, 1)
	w.looks = append(w.looks, c)
	w.mu.Unlock()
	select {
	case w.now <- struct{}{}:
	default: // one is on its way
	}
	late := time.NewTimer(lookFor)
	defer late.Stop()
	select {
	case r := <-c:
		return r
	case <-late.C:
	case <-ctx.Done():
	}
	return last
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	if w.source == nil {
		<-ctx.Done()
		return
	}
	for {
		turn, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.source.Watch(turn, w.pace(), w.now, func(readings []gpu.Reading, err error) {
				w.tell(Round{At: time.Now(), Readings: readings, Err: err})
			})
		}()
		select {
		case p := <-w.pauses:
			cancel()
			<-done
			close(p.stopped)
			select {
			case <-p.over:
			case <-ctx.Done():
				return
			}
		case <-w.paced: // the source starts again with the new interval
			cancel()
			<-done
		case <-done:
			cancel()
			return
		}
	}
}

// Pause ends the readings until resume is called: the driver changes a GPU only when no process has it open. It fails
// when ctx ends before the watcher has stopped.
func (w *Watch) Pause(ctx context.Context) (resume func(), err error) {
	if w.source == nil {
		return func() {}, nil
	}
	p := pauseOf{make(chan struct{}), make(chan struct{})}
	select {
	case w.pauses <- p:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-p.stopped:
	case <-ctx.Done():
		close(p.over)
		return nil, ctx.Err()
	}
	return func() { close(p.over) }, nil
}

// tell sends a round to the subscribers. It logs an error when it begins and when it is over.
func (w *Watch) tell(r Round) {
	if r.Err != nil {
		r.Readings = nil
	}
	w.mu.Lock()
	w.latest = r
	subs, looks := slices.Clone(w.subs), w.looks
	w.looks = nil
	said, now := w.said, ""
	if r.Err != nil {
		now = r.Err.Error()
	}
	w.said = now
	w.mu.Unlock()
	switch {
	case now != "" && now != said:
		w.log.Error("the GPUs' readings failed; jobs go on", "err", now)
	case now == "" && said != "":
		w.log.Info("the GPUs can be read again")
	}
	for _, s := range subs { // before those who look: what they do then is said of the same GPUs
		s.got(r)
	}
	for _, c := range looks {
		c <- r
	}
}
