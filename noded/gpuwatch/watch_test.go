package gpuwatch

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"gbatch/noded/gpu"
)

// fakeGPUs are read once.
type fakeGPUs struct {
	devices []gpu.Device
	err     error
}

func (f *fakeGPUs) Devices() ([]gpu.Device, error) { return f.devices, f.err }

func (f *fakeGPUs) Watch(ctx context.Context, _ time.Duration, _ <-chan struct{}, got func([]gpu.Reading, error)) {
	var readings []gpu.Reading
	for i := range f.devices {
		readings = append(readings, gpu.Reading{UUID: f.devices[i].UUID, Index: i})
	}
	got(readings, f.err)
	<-ctx.Done()
}

func TestGPUWatch(t *testing.T) {
	source := &fakeGPUs{devices: []gpu.Device{{UUID: "GPU-1"}}}
	w := New(source, time.Millisecond, slog.New(slog.DiscardHandler))
	rounds := make(chan Round, 1)
	cancel := w.Subscribe(func(r Round) {
		select {
		case rounds <- r:
		default:
		}
	})
	other := make(chan Round, 1000)
	cancelOther := w.Subscribe(func(r Round) { other <- r })
	cancelOther()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.Run(ctx); close(ended) }()
	if r := <-rounds; r.Err != nil || len(r.Readings) != 1 || r.Readings[0].UUID != "GPU-1" ||
		len(w.Last().Readings) != 1 {
		t.Errorf("%+v", r)
	}
	stop()
	<-ended
	if len(other) != 0 {
		t.Error("a subscriber that left was told")
	}
	cancel()
	w.tell(Round{Err: errors.New("gone"), Readings: []gpu.Reading{{}}})
	if r := w.Last(); r.Err == nil || r.Readings != nil {
		t.Errorf("%+v", r)
	}
}

// openGPUs records whether they are open.
type openGPUs struct {
	fakeGPUs
	open atomic.Bool
}

func (o *openGPUs) Watch(ctx context.Context, every time.Duration, now <-chan struct{},
	got func([]gpu.Reading, error)) {
	o.open.Store(true)
	defer o.open.Store(false)
	o.fakeGPUs.Watch(ctx, every, now, got)
}

// TestGPUWatchPause tests that the source is closed during a pause.
func TestGPUWatchPause(t *testing.T) {
	source := &openGPUs{}
	w := New(source, time.Millisecond, slog.New(slog.DiscardHandler))
	rounds := make(chan Round, 100)
	w.Subscribe(func(r Round) { rounds <- r })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.Run(ctx); close(ended) }()
	<-rounds
	for range 3 {
		resume, err := w.Pause(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if source.open.Load() || len(rounds) != 0 {
			t.Error("the GPUs are watched during the pause")
		}
		resume()
		<-rounds // the source gives one each time that it is opened
	}
	if _, err := w.Pause(ctx); err != nil { // gnoded ends meanwhile
		t.Fatal(err)
	}
	stop()
	<-ended
	if _, err := w.Pause(ctx); err == nil {
		t.Error("a watcher that has ended was paused")
	}
	if _, err := New(nil, 0, slog.New(slog.DiscardHandler)).Pause(ctx); err != nil {
		t.Errorf("a node without GPUs: %v", err)
	}
}

// askedGPUs have one more process each time that they are read.
type askedGPUs struct{ fakeGPUs }

func (f *askedGPUs) Watch(ctx context.Context, _ time.Duration, now <-chan struct{}, got func([]gpu.Reading, error)) {
	for n := 1; ; n++ {
		got([]gpu.Reading{{Index: 0, Processes: make([]gpu.Process, n)}}, nil)
		select {
		case <-now:
		case <-ctx.Done():
			return
		}
	}
}

// TestLook: who looks gets a round that is new enough, as do all who look meanwhile; a source that says nothing keeps
// nobody for long.
func TestLook(t *testing.T) {
	w := New(&askedGPUs{}, time.Hour, slog.New(slog.DiscardHandler))
	first := make(chan Round, 1)
	cancel := w.Subscribe(func(r Round) { first <- r })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.Run(ctx); close(ended) }()
	<-first
	cancel()
	processes := func(r Round) int { return len(r.Readings[0].Processes) }
	if n := processes(w.Look(ctx)); n != 1 {
		t.Errorf("round %d, and the first was new enough", n)
	}
	old := func() {
		w.mu.Lock()
		w.latest.At = w.latest.At.Add(-freshFor)
		w.mu.Unlock()
	}
	old()
	if n := processes(w.Look(ctx)); n != 2 {
		t.Errorf("round %d is not a new one", n)
	}
	stop()
	<-ended
	old()
	if n := processes(w.Look(t.Context())); n != 2 {
		t.Errorf("round %d comes from nowhere", n)
	}
}
