package up

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// pulse_test.go says how slow the machine is at the moment, so that a limit for how long users may notice a fault is
// one for gbatch and not for the machine. Beside the users something runs that has nothing to do with gbatch: it
// writes and flushes a small file and starts a process, as everything there does that is measured, again and again.
//
// A limit is twice the goal, which is the maximum of 20 on an idle machine (faults_test.go), and pulseWeight times the
// longest of these moments while the fault lasted. On an idle machine that is a few tenths of a second; on one that is
// three times slower, three times as much; and where the machine itself stood still for a second, the measurement says
// nothing, and fails nothing.

// pulseWeight is how many such moments in a row a submission with its election and the start of its job takes at most.
const pulseWeight = 20

// pulse is the machine's.
type pulse struct {
	mu    sync.Mutex
	beats []deed
}

// run beats until ctx ends.
func (p *pulse) run(ctx context.Context, t *testing.T, dir string) {
	path := filepath.Join(dir, "pulse")
	for ctx.Err() == nil {
		d := deed{begun: time.Now()}
		f, err := os.Create(path)
		if err == nil {
			_, err = f.WriteString("pulse")
			err = errors.Join(err, f.Sync(), f.Close(), exec.Command("/bin/true").Run())
		}
		if err != nil {
			t.Error(err)
			return
		}
		d.ended = time.Now()
		p.mu.Lock()
		p.beats = append(p.beats, d)
		p.mu.Unlock()
		pause(ctx, 50*time.Millisecond)
	}
}

// worst gives the longest beat since a moment.
func (p *pulse) worst(since time.Time) (most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.beats {
		if d.ended.After(since) {
			most = max(most, d.ended.Sub(d.begun))
		}
	}
	return most
}

// limit is how long users may notice a fault with this goal while the machine's longest beat was worst.
func limit(goal [2]time.Duration, worst time.Duration) time.Duration {
	base := 2 * goal[1]
	if goal == short {
		base = handOver
	}
	return base + pulseWeight*worst
}

// handOver is for how long users may notice that leadership is handed over: less than the heartbeat timeout, which
// everybody waits for when it is not (ControllerHeartbeatTimeout, 500 ms).
const handOver = 400 * time.Millisecond
