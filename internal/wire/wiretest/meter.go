package wiretest

import (
	"context"
	"log/slog"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What an input of a fuzz target may cost.
const (
	FuzzFloor  = 16 << 20 // bytes of memory in any case: a daemon's loops, a transaction, an answer
	FuzzFactor = 32       // and for each of its bytes
	FuzzCPU    = 2 * time.Second
)

// Meter holds a fuzz target's inputs to what they may cost, and its daemon to not panicking.
type Meter struct{ crashed atomic.Pointer[string] }

// Log is for the daemon: it notes panics from which the daemon has recovered.
func (m *Meter) Log() *slog.Logger { return slog.New(panicLog{m}) }

// Measure fails the test if f panics, also where the daemon goes on, or costs more than an input of some bytes may.
func (m *Meter) Measure(t *testing.T, size int, f func()) {
	t.Helper()
	mem, cpu := heapBytes(), cpuTime()
	f()
	if n := heapBytes() - mem; n > uint64(FuzzFloor+FuzzFactor*size) {
		t.Errorf("%d bytes cost %d bytes of memory", size, n)
	}
	if d := cpuTime() - cpu; d > FuzzCPU {
		t.Errorf("%d bytes cost %v of CPU time", size, d)
	}
	if text := m.crashed.Swap(nil); text != nil {
		t.Fatal(*text)
	}
}

func heapBytes() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type panicLog struct{ m *Meter }

func (h panicLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (h panicLog) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h panicLog) WithGroup(string) slog.Handler                { return h }
func (h panicLog) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	if !strings.Contains(text, "panic") && !strings.Contains(r.Message, "has failed, and the daemon goes on") {
		return nil
	}
	if old := h.m.crashed.Load(); old != nil {
		text = *old + "\n" + text
	}
	h.m.crashed.Store(&text)
	return nil
}
