//go:build linux && (amd64 || arm64)

package shim

// launchers.go bounds how many launches are in progress at once. Those that wait hold no threads, and no descriptors,
// which every fork would copy and every exec close.

import (
	"os"
	"runtime"
	"sync"
	"time"
)

const (
	stuckAfter = time.Second // a launch that takes longer lets another in: it waits for a file server, not for a CPU
	maxForking = 256         // launches at once, stuck ones included; each holds a thread
	// maxUserForking is how many of them are one user's: their files, directory and program may hang as they like.
	maxUserForking = 8
)

// launchers is a queue of launches and the goroutines that work on it, which exist only while there is work. The queue
// is bounded by maxEntries. Behind it each user has a queue of their own, for what is beyond their share.
type launchers struct {
	wg   *sync.WaitGroup
	most int    // at once, beside those that are stuck
	own  uint32 // gshim's user, whose launches have no share: their files are the site's
	// late reports whether a user's launches wait until files of earlier ones are closed; nil: nobody's do
	late func(uid uint32) bool

	mu      sync.Mutex
	queue   []turn
	users   map[uint32]*turns // who has launches
	running int               // stuck ones included
	stuck   int
}

// turn is one launch.
type turn struct {
	uid uint32
	f   func()
}

// turns are the launches of one user.
type turns struct {
	taken int // under way or in the common queue
	wait  []turn
}

func newLaunchers(wg *sync.WaitGroup) *launchers {
	return &launchers{wg: wg, most: max(4, 2*runtime.NumCPU()), own: uint32(os.Geteuid()), users: map[uint32]*turns{}}
}

// do queues f, a launch of a user's. hangs is called if f takes longer than stuckAfter.
func (p *launchers) do(uid uint32, f, hangs func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := turn{uid, func() { p.watch(f, hangs) }}
	u := p.users[uid]
	if u == nil {
		u = &turns{}
		p.users[uid] = u
	}
	u.wait = append(u.wait, t)
	p.next(uid, u)
	p.more()
}

// over is called at the end of a launch: the user's next one takes its place in the common queue. Callers hold mu.
func (p *launchers) over(uid uint32) {
	u := p.users[uid]
	u.taken--
	p.next(uid, u)
}

// next puts launches of a user into the common queue, as many as may be there. Callers hold mu.
func (p *launchers) next(uid uint32, u *turns) {
	for len(u.wait) > 0 && (uid == p.own || u.taken < maxUserForking && (p.late == nil || !p.late(uid))) {
		p.queue = append(p.queue, u.wait[0])
		u.wait[0] = turn{}
		u.wait = u.wait[1:]
		u.taken++
	}
	if u.taken == 0 && len(u.wait) == 0 {
		delete(p.users, uid)
	}
}

// wake has a user's launches go on that may have waited for files to be closed.
func (p *launchers) wake(uid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u := p.users[uid]; u != nil {
		p.next(uid, u)
		p.more()
	}
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
		t := p.queue[0]
		p.queue[0] = turn{}
		p.queue = p.queue[1:]
		p.mu.Unlock()
		t.f()
		p.mu.Lock()
		p.over(t.uid)
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
