package store

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// stall.go makes a leader whose disk hangs lose leadership. raft's main loop waits for the log's write, but its
// heartbeats need no disk: the leader would go on leading, and nobody could change anything for as long as the disk
// hangs. So while a write takes longer than stallAfter, heartbeats fail, as if the network were cut, and this voter
// does not call itself the leader. What is being written then is not in the log of any other voter.
//
// A voter whose log can't be written, as its disk is full or broken, loses leadership by that. It does not stand for
// election for a while: its log is as long as the others', so it would win again and again, and fail each time.

const (
	stallAfter = 2 * time.Second        // longer than a slow disk's worst flush
	standAgain = 3 * time.Second        // after the last write that failed: some elections of the others
	stallLook  = 100 * time.Millisecond // between two looks
	slowLasts  = time.Minute            // for how long a slow write is remembered
)

// errStalled is the error of what needs a leader while its disk hangs.
var errStalled = errors.New("the disk with the raft log hangs")

// errUnwritten keeps a voter from standing for election.
var errUnwritten = errors.New("the raft log could not be written a moment ago")

// writes knows how long the present write of the log has taken. raft writes from one goroutine.
type writes struct {
	since   atomic.Int64 // ns since begin plus 1; 0: none
	failed  atomic.Int64 // when the last write failed, ns since begin plus 1; 0: it did not
	why     atomic.Pointer[error]
	begin   time.Time
	stalled atomic.Bool

	mu     sync.Mutex
	on     chan struct{} // closed while stalled
	slow   time.Duration // the slowest write of the last slowLasts
	slowAt time.Time

	told func(time.Duration) // of each write
}

func newWrites(told func(time.Duration)) *writes {
	if told == nil {
		told = func(time.Duration) {}
	}
	return &writes{begin: time.Now(), on: make(chan struct{}), told: told}
}

// during gives a channel that is closed when the disk begins to hang.
func (w *writes) during() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.on
}

// look updates stalled, and reports whether it has changed.
func (w *writes) look() bool {
	since := w.since.Load()
	now := since != 0 && time.Since(w.begin)-time.Duration(since-1) > stallAfter
	if w.stalled.Swap(now) == now {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now {
		close(w.on)
	} else {
		w.on = make(chan struct{})
	}
	return true
}

// mayStand reports whether the log could be written lately.
func (w *writes) mayStand() bool {
	failed := w.failed.Load()
	return failed == 0 || time.Since(w.begin)-time.Duration(failed-1) > standAgain
}

// took notes how long a write has taken.
func (w *writes) took(d time.Duration) {
	w.told(d)
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); d >= w.slow || now.Sub(w.slowAt) > slowLasts {
		w.slow, w.slowAt = d, now
	}
}

// SlowestWrite gives how long the slowest write of the log has taken within the last minute; the present one counts.
func (s *Store) SlowestWrite() time.Duration {
	w := s.writes
	w.mu.Lock()
	defer w.mu.Unlock()
	slow := w.slow
	if time.Since(w.slowAt) > slowLasts {
		slow = 0
	}
	if since := w.since.Load(); since != 0 {
		slow = max(slow, time.Since(w.begin)-time.Duration(since-1))
	}
	return slow
}

// WriteError gives why the last write of the log failed; nil: it did not.
func (s *Store) WriteError() error {
	if why := s.writes.why.Load(); why != nil && s.writes.failed.Load() != 0 {
		return *why
	}
	return nil
}

// timedLog is a log whose writes are timed.
type timedLog struct {
	raft.LogStore
	w *writes
}

func (l *timedLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l *timedLog) StoreLogs(es []*raft.Log) error {
	since := time.Since(l.w.begin)
	l.w.since.Store(int64(since) + 1)
	defer func() {
		l.w.since.Store(0)
		l.w.took(time.Since(l.w.begin) - since)
	}()
	err := l.LogStore.StoreLogs(es)
	if err == nil {
		l.w.failed.Store(0)
	} else {
		l.w.why.Store(&err)
		l.w.failed.Store(int64(time.Since(l.w.begin)) + 1)
	}
	return err
}

// mutedTransport sends nothing to followers while the disk hangs, and asks for no votes if the log can't be written.
type mutedTransport struct {
	transport
	w *writes
}

// transport is what both of raft's transports have.
type transport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

func (t *mutedTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, rq *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	if t.w.stalled.Load() {
		return errStalled
	}
	return t.transport.AppendEntries(id, target, rq, resp)
}

func (t *mutedTransport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline,
	error) {
	if t.w.stalled.Load() {
		return nil, errStalled
	}
	p, err := t.transport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return &boundedPipeline{&mutedPipeline{p, t.w}}, nil
}

func (t *mutedTransport) RequestVote(id raft.ServerID, target raft.ServerAddress, rq *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	if !t.w.mayStand() {
		return errUnwritten
	}
	return t.transport.RequestVote(id, target, rq, resp)
}

func (t *mutedTransport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, rq *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse) error {
	if !t.w.mayStand() {
		return errUnwritten
	}
	return t.transport.RequestPreVote(id, target, rq, resp)
}

type mutedPipeline struct {
	raft.AppendPipeline
	w *writes
}

func (p *mutedPipeline) AppendEntries(rq *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.w.stalled.Load() {
		return nil, errStalled
	}
	return p.AppendPipeline.AppendEntries(rq, resp)
}

// Stalled reports whether the disk takes nothing of what is written to the log, now or in the last write: it hangs, is
// full or broken. Such a voter should not be asked to lead.
func (s *Store) Stalled() bool { return s.writes.stalled.Load() || !s.writes.mayStand() }

// lead passes on changes of leadership, those included that a hanging disk makes, until the store closes.
func (s *Store) lead() {
	defer s.wg.Done()
	tick := time.NewTicker(stallLook)
	defer tick.Stop()
	leads := false
	for {
		now := leads
		again := false
		select {
		case now = <-s.raft.LeaderCh():
			again = now // a new term of the same leader counts
			now = now && !s.writes.stalled.Load()
		case <-tick.C:
			if s.roll.alone() || !s.writes.look() {
				continue
			}
			if now = s.IsLeader(); leads && !now {
				s.opts.Logger.Error("the disk with the raft log hangs: another controller has to lead", "for", stallAfter)
			}
			s.news.tell()
		case <-s.stop:
			return
		}
		if now == leads && !again {
			continue
		}
		leads = now
		select { // only the latest counts
		case <-s.leaderCh:
		default:
		}
		s.leaderCh <- leads // this goroutine alone sends
	}
}
