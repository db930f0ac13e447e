package noded

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"gbatch/noded/gpu"
)

// gpuwatch.go reads the node's GPUs for everyone who has to know how they are: one watcher, and subscribers that get
// each round.

const (
	gpuWatchEvery = 5 * time.Second // between rounds; what the driver reports by itself comes at once
	maxGPUWatcher = 16              // subscribers
)

// gpuRound is one look at all GPUs. Err: there is no reading this time, and Readings is nil.
type gpuRound struct {
	At       time.Time
	Readings []gpu.Reading
	Err      error
}

// gpuWatch is the one watcher of a gnoded. Where no GPUs are looked for it has nothing to tell.
type gpuWatch struct {
	source gpu.Source
	log    *slog.Logger
	pauses chan gpuPause
	paced  chan struct{} // holds one: every has changed

	mu     sync.Mutex
	every  time.Duration
	subs   []*gpuSub
	latest gpuRound
	said   string
}

// gpuPause is a time without readings: nothing of gnoded's has the GPUs open between stopped and over.
type gpuPause struct{ stopped, over chan struct{} }

type gpuSub struct{ got func(gpuRound) }

func newGPUWatch(source gpu.Source, every time.Duration, log *slog.Logger) *gpuWatch {
	if every <= 0 {
		every = gpuWatchEvery
	}
	return &gpuWatch{source: source, every: every, log: log, pauses: make(chan gpuPause), paced: make(chan struct{}, 1)}
}

// setEvery changes the time between rounds.
func (w *gpuWatch) setEvery(every time.Duration) {
	if every <= 0 {
		every = gpuWatchEvery
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
	default: // it will read every
	}
}

func (w *gpuWatch) pace() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.every
}

// subscribe has got called with each round, from the watcher's goroutine: it must not wait for anything, and must not
// change the readings, which others see too. cancel ends that; a round may be on its way still.
func (w *gpuWatch) subscribe(got func(gpuRound)) (cancel func()) {
	s := &gpuSub{got}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.subs) == maxGPUWatcher {
		panic("too many subscribers to the GPUs' readings") // each is a part of gnoded, not a job
	}
	w.subs = append(w.subs, s)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.subs = slices.DeleteFunc(w.subs, func(x *gpuSub) bool { return x == s })
	}
}

// last gives the latest round, zero before the first.
func (w *gpuWatch) last() gpuRound {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest
}

// run watches until ctx ends.
func (w *gpuWatch) run(ctx context.Context) {
	if w.source == nil {
		<-ctx.Done()
		return
	}
	for {
		turn, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.source.Watch(turn, w.pace(), func(readings []gpu.Reading, err error) {
				w.tell(gpuRound{At: time.Now(), Readings: readings, Err: err})
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
		case <-w.paced: // the source begins again with the new pace
			cancel()
			<-done
		case <-done:
			cancel()
			return
		}
	}
}

// pause ends the readings until resume is called: the driver changes a GPU only when nobody has it open. It fails
// when ctx ends before the watcher has stopped.
func (w *gpuWatch) pause(ctx context.Context) (resume func(), err error) {
	if w.source == nil {
		return func() {}, nil
	}
	p := gpuPause{make(chan struct{}), make(chan struct{})}
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

// tell passes a round on. A trouble is logged when it begins and when it is over.
func (w *gpuWatch) tell(r gpuRound) {
	if r.Err != nil {
		r.Readings = nil
	}
	w.mu.Lock()
	w.latest = r
	subs := slices.Clone(w.subs)
	said, now := w.said, ""
	if r.Err != nil {
		now = r.Err.Error()
	}
	w.said = now
	w.mu.Unlock()
	switch {
	case now != "" && now != said:
		w.log.Error("the GPUs can't be read; jobs go on", "err", now)
	case now == "" && said != "":
		w.log.Info("the GPUs can be read again")
	}
	for _, s := range subs {
		s.got(r)
	}
}
