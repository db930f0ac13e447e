package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

var errFull = errors.New("no space left on device")

// hangingLog is a log on a disk that hangs while hung is open.
type hangingLog struct {
	raft.LogStore
	hung *atomic.Pointer[chan struct{}]
}

func (l *hangingLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l *hangingLog) StoreLogs(es []*raft.Log) error {
	if hung := l.hung.Load(); hung != nil {
		<-*hung
	}
	return l.LogStore.StoreLogs(es)
}

// TestLeaderWhoseDiskHangs: a leader whose write of the log does not return loses leadership, and says so; what was in
// flight is answered as lost; the others go on, and it follows them when its disk works again.
func TestLeaderWhoseDiskHangs(t *testing.T) {
	logs := make(chan *atomic.Pointer[chan struct{}], 3)
	opts := Options{Logger: testLogger(t), HeartbeatTimeout: time.Second}
	opts.wrapLog = func(l raft.LogStore) raft.LogStore {
		hung := new(atomic.Pointer[chan struct{}])
		logs <- hung
		return &hangingLog{l, hung}
	}
	g := newGroup(t, 3, opts)
	base, hangs := t.TempDir(), map[string]*atomic.Pointer[chan struct{}]{}
	for i, p := range g.peers {
		g.start(p, fmt.Sprint(base, "/", i))
		hangs[p.ID] = <-logs
	}
	lead := g.leader()
	propose(t, lead.Store, "a0")
	term, repaired := lead.Term(), make(chan struct{})
	hangs[lead.peer.ID].Store(&repaired)
	repair := sync.OnceFunc(func() {
		hangs[lead.peer.ID].Store(nil)
		close(repaired)
	})
	t.Cleanup(repair) // before the group's end, which waits for the disk
	begin := time.Now()
	if _, err := lead.Propose(t.Context(), []byte("stuck")); !errors.Is(err, ErrLeadershipLost) {
		t.Errorf("what is in flight gets %v, want ErrLeadershipLost", err)
	}
	if took := time.Since(begin); took > 2*stallAfter {
		t.Errorf("it took %v", took)
	}
	if lead.IsLeader() {
		t.Error("it leads although its disk hangs")
	}
	if _, err := lead.Propose(t.Context(), []byte("refused")); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a new command gets %v, want ErrNotLeader", err)
	}
	await(t, "its LeaderCh says so", func() bool {
		for {
			select {
			case is := <-lead.LeaderCh():
				if !is {
					return true
				}
			default:
				return false
			}
		}
	})
	await(t, "another one leads", func() bool {
		for _, m := range g.members {
			if m != lead && m.IsLeader() && m.Term() > term {
				return true
			}
		}
		return false
	})
	t.Logf("another one leads %v after the disk began to hang", time.Since(begin).Round(time.Millisecond))
	for _, m := range g.members {
		if m != lead && m.IsLeader() {
			propose(t, m.Store, "a1")
		}
	}
	repair()
	g.agree(2)
	if lead.IsLeader() {
		t.Error("it leads again without an election")
	}
}

// fullLog is a log on a disk that may be full.
type fullLog struct {
	raft.LogStore
	full *atomic.Bool
}

func (l *fullLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l *fullLog) StoreLogs(es []*raft.Log) error {
	if l.full.Load() {
		return errFull
	}
	return l.LogStore.StoreLogs(es)
}

// TestLeaderWhoseDiskIsFull: a leader that can't write its log loses leadership and does not win it again, as long as
// there is no room: another one leads after one election, not after some that fail. All lead again when all have been
// full.
func TestLeaderWhoseDiskIsFull(t *testing.T) {
	logs := make(chan *atomic.Bool, 3)
	opts := Options{Logger: testLogger(t), HeartbeatTimeout: 200 * time.Millisecond}
	opts.wrapLog = func(l raft.LogStore) raft.LogStore {
		full := new(atomic.Bool)
		logs <- full
		return &fullLog{l, full}
	}
	g := newGroup(t, 3, opts)
	base, full := t.TempDir(), map[string]*atomic.Bool{}
	won := make(chan raft.Observation, 64)
	for i, p := range g.peers {
		m := g.start(p, fmt.Sprint(base, "/", i))
		full[p.ID] = <-logs
		m.raft.RegisterObserver(raft.NewObserver(won, false, func(o *raft.Observation) bool {
			is, ok := o.Data.(raft.RaftState)
			return ok && is == raft.Leader
		}))
	}
	g.joined()
	said := 0
	for round := range 6 { // the one without room would win half of the elections
		lead := g.leader()
		propose(t, lead.Store, fmt.Sprint("a", round))
		g.agree(round + 1)
		for len(won) > 0 {
			<-won
		}
		full[lead.peer.ID].Store(true)
		if _, err := lead.Propose(t.Context(), []byte("no room")); err == nil {
			t.Fatal("a command without room was accepted")
		}
		next := g.leader()
		if next == lead {
			t.Fatalf("round %d: %s leads, and has no room", round, lead.peer.ID)
		}
		if !lead.Stalled() || next.Stalled() {
			t.Errorf("round %d: no room: %v; room: %v", round, lead.Stalled(), next.Stalled())
		}
		for len(won) > 0 {
			if o := <-won; o.Raft == lead.raft {
				said++
			}
		}
		full[lead.peer.ID].Store(false)
	}
	if said > 0 {
		t.Errorf("those without room won %d elections", said)
	}
	for _, f := range full {
		f.Store(true)
	}
	await(t, "nobody leads", func() bool {
		for _, m := range g.members {
			_, err := m.Propose(short(t), []byte("no room"))
			if err == nil {
				t.Fatal("a command without room was accepted")
			}
		}
		return true
	})
	for _, f := range full {
		f.Store(false)
	}
	propose(t, g.leader().Store, "at last")
	g.agree(7)
}

// TestHandOverWaits: commands that come during a hand-over wait for its outcome, and nobody's outcome is unknown.
func TestHandOverWaits(t *testing.T) {
	g := newGroup(t, 3, Options{Logger: testLogger(t), HeartbeatTimeout: time.Second})
	g.startAll(t.TempDir())
	lead := g.leader()
	propose(t, lead.Store, "a0")
	stop, outcomes := make(chan struct{}), make(chan error, 4)
	for range cap(outcomes) {
		go func() {
			for i := 0; ; i++ {
				if _, err := lead.Propose(t.Context(), fmt.Appendf(nil, "b%d", i)); err != nil {
					outcomes <- err
					return
				}
				select {
				case <-stop:
					outcomes <- nil
					return
				default:
				}
			}
		}()
	}
	if err := lead.TransferLeadership(t.Context(), "nobody"); err == nil {
		t.Error("leadership was given to nobody")
	}
	to := ""
	for id := range g.members {
		if id != lead.peer.ID {
			to = id
		}
	}
	if err := lead.TransferLeadership(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	close(stop)
	for range cap(outcomes) {
		if err := <-outcomes; err != nil && !errors.Is(err, ErrNotLeader) {
			t.Errorf("a command during a hand-over got %v", err)
		}
	}
	await(t, to+" leads", func() bool { return g.members[to].IsLeader() })
}
