package noded

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"gbatch/noded/gpu"
)

func TestGPUWatch(t *testing.T) {
	source := &fakeGPUs{devices: []gpu.Device{{UUID: "GPU-1"}}}
	w := newGPUWatch(source, time.Millisecond, slog.New(slog.DiscardHandler))
	rounds := make(chan gpuRound, 1)
	cancel := w.subscribe(func(r gpuRound) {
		select {
		case rounds <- r:
		default:
		}
	})
	other := make(chan gpuRound, 1000)
	cancelOther := w.subscribe(func(r gpuRound) { other <- r })
	cancelOther()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.run(ctx); close(ended) }()
	if r := <-rounds; r.Err != nil || len(r.Readings) != 1 || r.Readings[0].UUID != "GPU-1" || len(w.last().Readings) != 1 {
		t.Errorf("%+v", r)
	}
	stop()
	<-ended
	if len(other) != 0 {
		t.Error("a subscriber that left was told")
	}
	cancel()
	w.tell(gpuRound{Err: errors.New("gone"), Readings: []gpu.Reading{{}}})
	if r := w.last(); r.Err == nil || r.Readings != nil {
		t.Errorf("%+v", r)
	}
}
