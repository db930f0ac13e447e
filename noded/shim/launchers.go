//go:build linux && (amd64 || arm64)

package shim

// launchers.go bounds how many launches are in progress at once. Those that wait hold no threads, and no descriptors,
// which every fork would copy and every exec close.

import (
	"runtime"
	"sync"
	"time"
)

const (
	stuckAfter = time.Second // a launch that takes longer lets another in: it waits for a file server, not for a CPU
	maxForking = 256         // launches at once, stuck ones included; each holds a thread
)

// launchers is a queue of launches and the goroutines that work on it, which exist only while there is work. The queue
// is bounded by maxEntries.
type launchers struct {
	wg   *sync.WaitGroup
	most int // at once, beside those that are stuck

	mu      sync.Mutex
	queue   []func()
	running int // stuck ones included
	stuck   int
}

func newLaunchers(wg *sync.WaitGroup) *launchers {
	return &launchers{wg: wg, most: max(4, 2*runtime.NumCPU())}
}

// do queues f. hangs is called if f takes longer than stuckAfter.
func (p *launchers) do(f, hangs func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, func() { p.watch(f, hangs) })
	p.more()
}

// more starts another goroutine if there is work for it and the limit allows it. Callers hold mu.
func (p *launchers) more() {
	if len(p.queue) > 0 && p.running-p.stuck < p.most && p.running < maxForking {
		p.running++
		p.wg.Go(p.work)
	}
}

func (p *launchers) work() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > 0 && p.running-p.stuck <= p.most { // else others came while this one was stuck
		f := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.mu.Unlock()
		f()
		p.mu.Lock()
	}
	p.running--
}

// watch runs f. If f hangs, another launch may start.
func (p *launchers) watch(f, hangs func()) {
	var over, counted bool
	timer := time.AfterFunc(stuckAfter, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if over {
			return
		}
		hangs()
		counted = true
		p.stuck++
		p.more()
	})
	f()
	timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	if over = true; counted {
		p.stuck--
	}
}
