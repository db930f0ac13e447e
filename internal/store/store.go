package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// closeGrace is the longest time that Close waits for entries in flight. They end by commit or by the loss of
// leadership, unless the machine hangs.
const closeGrace = 3 * time.Second

// Store is one voter. All methods may be called from any goroutine.
type Store struct {
	opts  Options
	raft  *raft.Raft
	fsm   *machineFSM
	disk  *disk
	leave func() error // closes the transport
	roll  *roll        // who the controllers are
	join  *joiner
	hold  *holding

	stopJoin context.CancelFunc // nil: it had joined before

	queue  *queue
	places chan struct{} // one for each entry in flight
	flying chan entry
	wg     sync.WaitGroup // gather, deliver, snapshots, observe, lead

	mu      sync.Mutex // guards closing against calls.Add
	closing bool
	calls   sync.WaitGroup // requests to raft without an answer yet
	closed  sync.Once
	err     error         // of Close
	stop    chan struct{} // closed when Close begins
	dead    chan struct{} // closed when raft has stopped

	news     *leaderNews
	writes   *writes
	leaderCh chan bool

	entries, commands atomic.Uint64
}

// Open opens or begins a log and starts the voter. It returns when the latest snapshot is restored. Later entries are
// applied once a leader is known; the leader waits for that with Barrier.
func Open(o Options) (_ *Store, err error) {
	if o.Layer != nil {
		defer func() {
			if err != nil {
				// The caller gets the first error; the listener is closed anyway.
				_ = o.Layer.Close()
			}
		}()
	}
	if o, err = o.checked(); err != nil {
		return nil, err
	}
	lg := newLogger(o.Logger)
	d, err := openDisk(o, lg)
	if err != nil {
		return nil, err
	}
	s := &Store{
		opts: o, disk: d, roll: &roll{file: o.Peers},
		fsm:   &machineFSM{machine: o.Machine, full: make(chan struct{}, 1)},
		queue: newQueue(), places: make(chan struct{}, inFlight), flying: make(chan entry, inFlight),
		stop: make(chan struct{}), dead: make(chan struct{}), news: &leaderNews{changed: make(chan struct{})},
		writes: newWrites(o.Wrote), leaderCh: make(chan bool, 1),
	}
	s.join = &joiner{store: s, judging: make(chan struct{}, maxJudging)}
	n := newNetwork(o, s.roll, lg, s.join.standing)
	s.leave, s.join.ask = n.leave, n.ask
	s.hold = newHolding(n, s.join)
	if err := s.start(s.hold, lg); err != nil {
		return nil, errors.Join(err, s.hold.Close(), n.leave(), d.close())
	}
	n.admit()
	if s.join.joining.Load() {
		ctx, cancel := context.WithCancel(context.Background())
		s.stopJoin = cancel
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			s.join.run(ctx)
		}()
	}
	s.wg.Add(5)
	go s.observe()
	go s.lead()
	go s.gather()
	go s.deliver()
	go s.snapshots()
	return s, nil
}

// start starts raft on an opened disk.
func (s *Store) start(trans transport, lg *logger) error {
	o := s.opts
	c := raft.DefaultConfig()
	c.LocalID, c.Logger, c.NoLegacyTelemetry = raft.ServerID(o.ID), lg, true
	c.HeartbeatTimeout, c.ElectionTimeout = o.HeartbeatTimeout, o.ElectionTimeout
	c.LeaderLeaseTimeout = o.HeartbeatTimeout / 2
	c.MaxAppendEntries, c.CommitTimeout = appendEntriesMax, commitTimeout
	c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = o.SnapshotThreshold, o.TrailingLogs, snapshotCheckPeriod

	joining, err := s.disk.joining()
	if err != nil {
		return err
	}
	if joining && s.disk.empty && len(o.Peers) == 1 && o.toBegin() {
		joining = false // nobody else to ask
		if err := s.disk.stable.Set(keyJoining, nil); err != nil {
			return err
		}
	}
	if s.disk.empty && !joining { // also after a crash in the midst of a beginning
		if err := s.disk.bootstrap(c, trans, o.voters()); err != nil {
			return fmt.Errorf("beginning the raft log in %s: %w", o.Dir, err)
		}
	}
	if !s.disk.empty || !joining {
		if err := o.forgetBegin(); err != nil { // it has begun
			return err
		}
	}
	s.join.joining.Store(joining)
	s.join.begin.Store(joining && o.toBegin())
	if o.wrapLog != nil {
		s.disk.logs = o.wrapLog(s.disk.logs)
	}
	s.disk.logs = &timedLog{s.disk.logs, s.writes}
	r, err := newRaft(c, s.fsm, s.disk, &mutedTransport{trans, s.writes})
	if err != nil {
		return fmt.Errorf("starting from the raft log in %s: %w", o.Dir, err)
	}
	f := r.GetConfiguration()
	err = f.Error()
	if err == nil && len(f.Configuration().Servers) > 0 {
		err = checkMembers(o, f.Configuration())
	}
	if err != nil {
		return errors.Join(err, r.Shutdown().Error())
	}
	s.raft = r
	s.roll.opened(r, f.Configuration())
	if len(f.Configuration().Servers) > 0 && s.roll.alone() && !joining {
		s.hold.elect() // there is nobody to wait for
	}
	return nil
}

// newRaft is raft.NewRaft, but returns an error instead of panicking if log and snapshot don't match, as after disk
// damage.
func newRaft(c *raft.Config, f raft.FSM, d *disk, t raft.Transport) (r *raft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("log and snapshots don't fit together or are damaged: %v", p)
		}
	}()
	return raft.NewRaft(c, f, d.logs, d.stable, d.snaps, t)
}

// snapshots writes a snapshot when the log's file has grown enough (snapshotDue); raft itself only counts entries.
func (s *Store) snapshots() {
	defer s.wg.Done()
	for {
		select {
		case <-s.fsm.full:
			if err := s.Snapshot(); err != nil && !errors.Is(err, ErrClosed) {
				s.opts.Logger.Warn("could not write a snapshot; the log keeps growing", "error", err)
			}
		case <-s.stop:
			return
		}
	}
}

// Close stops the voter. A leader with other voters transfers leadership first, so that they needn't wait for a
// timeout. Queued commands get ErrClosed. Later calls return the first call's result.
func (s *Store) Close() error {
	s.closed.Do(func() { s.err = s.shutdown() })
	return s.err
}

func (s *Store) shutdown() error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.fsm.closing.Store(true)
	close(s.stop)
	if s.stopJoin != nil {
		s.stopJoin()
	}
	s.queue.close()

	// A shutdown of raft leaves some requests without an answer: let them end before.
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		s.wg.Wait()
		s.calls.Wait()
	}()
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-idle:
	case <-grace.C:
		s.opts.Logger.Warn("closing while commands are on their way: is the state machine stuck?")
	}
	if s.IsLeader() && !s.roll.alone() {
		if err := s.raft.LeadershipTransfer().Error(); err != nil {
			s.opts.Logger.Info("could not hand leadership over before closing", "error", err)
		}
	}
	err := s.raft.Shutdown().Error()
	close(s.dead)
	return errors.Join(err, s.hold.Close(), s.leave(), s.disk.close())
}

// ask sends one request to raft; the answer may come after ctx has ended, but not after Close.
func (s *Store) ask(ctx context.Context, doing string, request func() raft.Future) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return ErrClosed
	}
	s.calls.Add(1)
	s.mu.Unlock()
	answer := make(chan error, 1)
	go func() {
		defer s.calls.Done()
		answer <- request().Error()
	}()
	select {
	case err := <-answer:
		switch {
		case err == nil, errors.Is(err, raft.ErrNothingNewToSnapshot):
			return nil
		case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
			return s.notLeader()
		case errors.Is(err, raft.ErrLeadershipLost):
			return ErrLeadershipLost
		case errors.Is(err, raft.ErrRaftShutdown):
			return ErrClosed
		}
		return fmt.Errorf("%s: %w", doing, err)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case <-s.writes.during():
		return fmt.Errorf("%s: %w", doing, errStalled)
	case <-s.dead:
		return ErrClosed
	}
}

// Barrier returns when all entries committed before it are applied here. Only the leader can do this; a new leader
// calls it before it reads its state. Errors as for Propose.
func (s *Store) Barrier(ctx context.Context) error {
	return s.ask(ctx, "waiting for the log to be applied", func() raft.Future { return s.raft.Barrier(0) })
}

// VerifyLeader returns nil when a majority confirms that this voter leads now: a later read of the state is not older
// than the call.
func (s *Store) VerifyLeader(ctx context.Context) error {
	return s.ask(ctx, "asking the other controllers who leads", s.raft.VerifyLeader)
}

// Snapshot writes a snapshot and truncates the log before it. Without new entries it does nothing and returns nil.
func (s *Store) Snapshot() error {
	return s.ask(context.Background(), "writing a snapshot", func() raft.Future { return s.raft.Snapshot() })
}

// TransferLeadership makes a follower the leader: the one with that id, or with "" the most up-to-date one. New
// commands wait meanwhile; entries in flight are committed first, so nobody's outcome is unknown. Afterwards waiting
// commands get ErrNotLeader, and if it fails they go on.
func (s *Store) TransferLeadership(ctx context.Context, to string) error {
	if !s.IsLeader() {
		return s.notLeader()
	}
	release, err := s.queue.hold(ctx)
	if err != nil {
		return fmt.Errorf("handing leadership over: %w", err)
	}
	defer func() {
		var refuse error
		if !s.IsLeader() {
			refuse = s.notLeader()
		}
		release(refuse)
	}()
	if to == "" {
		return s.ask(ctx, "handing leadership over", s.raft.LeadershipTransfer)
	}
	addr := s.roll.addr(to)
	if addr == "" {
		return fmt.Errorf("%q is not a controller", to)
	}
	return s.ask(ctx, "handing leadership over to "+to, func() raft.Future {
		return s.raft.LeadershipTransferToServer(raft.ServerID(to), raft.ServerAddress(addr))
	})
}

// LeaseTime is for how long after a majority has confirmed this leader (VerifyLeader's beginning) no other voter can
// lead, unless this one hands leadership over.
func (s *Store) LeaseTime() time.Duration { return s.opts.HeartbeatTimeout - s.opts.HeartbeatTimeout/5 }

// Leader gives the name and address of the leader, both "" if unknown.
func (s *Store) Leader() (id, addr string) {
	_, sid := s.raft.LeaderWithID()
	if string(sid) == s.opts.ID && s.writes.stalled.Load() {
		return "", ""
	}
	return string(sid), s.roll.addr(string(sid))
}

// IsLeader reports whether this voter leads, as far as it knows.
func (s *Store) IsLeader() bool { return s.raft.State() == raft.Leader && !s.writes.stalled.Load() }

// LeaderCh sends changes: true when this voter becomes the leader, false when it loses leadership. It is one channel,
// for one reader, and keeps only the latest change: a slow reader may see true after true, and finds a new leadership
// by its Term.
func (s *Store) LeaderCh() <-chan bool { return s.leaderCh }

// Joining reports whether this voter began without state and doesn't yet have everything that the others have. It then
// neither votes nor leads.
func (s *Store) Joining() bool { return s.join.joining.Load() }

// Term is the current term: it grows with every election, and each term has at most one leader.
func (s *Store) Term() uint64 { return s.raft.CurrentTerm() }

// Progress is how far a voter's log is, as indexes of entries.
type Progress struct{ Last, Commit, Applied uint64 }

// Progress gives it. It does not read the disk.
func (s *Store) Progress() Progress {
	return Progress{s.raft.LastIndex(), s.raft.CommitIndex(), s.raft.AppliedIndex()}
}

// LastContact is when the leader was last heard; zero if never, and on the leader itself.
func (s *Store) LastContact() time.Time { return s.raft.LastContact() }

// CommitLag bounds by how much a follower's facts are older than its last contact: a heartbeat does not say what is
// committed; what follows on a new entry does, after at most twice raft's CommitTimeout.
func (s *Store) CommitLag() time.Duration { return 2 * commitTimeout }

// Stats has the store's statistics.
type Stats struct {
	State         string // Leader, Follower, Candidate, Shutdown
	Leader        string // ID, "" if unknown
	Term          uint64
	LastIndex     uint64 // last entry in the log
	Commit        uint64 // last entry known to be on a majority
	Applied       uint64 // last entry passed to the machine
	Voters        []Member
	LastContact   time.Duration // time since the leader's last message; 0 on the leader, -1 if never
	Entries       uint64        // entries proposed here since Open
	Commands      uint64        // commands in them
	Queued        int           // commands in the queue
	SnapshotIndex uint64        // last entry in the latest snapshot
}

// Stats gives the store's current statistics.
func (s *Store) Stats() Stats {
	leader, _ := s.Leader()
	st := Stats{
		State: s.raft.State().String(), Leader: leader, Term: s.Term(), LastIndex: s.raft.LastIndex(),
		Commit: s.raft.CommitIndex(), Applied: s.raft.AppliedIndex(), Voters: s.roll.all(),
		Entries: s.entries.Load(), Commands: s.commands.Load(), Queued: s.queue.len(),
	}
	if !s.IsLeader() {
		st.LastContact = -1
		if t := s.raft.LastContact(); !t.IsZero() {
			st.LastContact = time.Since(t)
		}
	}
	if snaps, err := s.disk.snaps.List(); err == nil && len(snaps) > 0 {
		st.SnapshotIndex = snaps[0].Index
	}
	return st
}
