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

// closeGrace is how long Close waits for entries on their way. They end by themselves, by commit or by the loss of
// leadership, unless the machine is stuck.
const closeGrace = 3 * time.Second

// Store is one voter. All methods may be called from any goroutine.
type Store struct {
	opts  Options
	raft  *raft.Raft
	fsm   *machineFSM
	disk  *disk
	leave func() error // closes the transport

	queue  *queue
	places chan struct{} // one for each entry in flight
	flying chan entry
	wg     sync.WaitGroup // gather, deliver, snapshots

	mu      sync.Mutex // guards closing against calls.Add
	closing bool
	calls   sync.WaitGroup // requests to raft that have no answer yet
	closed  sync.Once
	err     error         // of Close
	stop    chan struct{} // closed when Close begins
	dead    chan struct{} // closed when raft has stopped

	entries, commands atomic.Uint64
}

// Open opens or begins a log and starts to take part. It returns when the latest snapshot is restored; what is in the
// log after it is applied once a leader is known, for which the leader waits with Barrier.
func Open(o Options) (_ *Store, err error) {
	if o.Layer != nil {
		defer func() {
			if err != nil {
				// The caller gets the first error; the listener is lost either way.
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
	// Nobody gets through before it is clear that the log is ours (checkVoters).
	trans, admit, leave := newTransport(o, lg)
	s := &Store{
		opts: o, disk: d, leave: leave,
		fsm:   &machineFSM{machine: o.Machine, full: make(chan struct{}, 1)},
		queue: newQueue(), places: make(chan struct{}, inFlight), flying: make(chan entry, inFlight),
		stop: make(chan struct{}), dead: make(chan struct{}),
	}
	if err := s.start(trans, lg); err != nil {
		return nil, errors.Join(err, leave(), d.close())
	}
	admit()
	s.wg.Add(3)
	go s.gather()
	go s.deliver()
	go s.snapshots()
	return s, nil
}

// start brings raft up on an opened disk.
func (s *Store) start(trans raft.Transport, lg *logger) error {
	o := s.opts
	c := raft.DefaultConfig()
	c.LocalID, c.Logger, c.NoLegacyTelemetry = raft.ServerID(o.ID), lg, true
	c.HeartbeatTimeout, c.ElectionTimeout = o.HeartbeatTimeout, o.ElectionTimeout
	c.LeaderLeaseTimeout = o.HeartbeatTimeout / 2
	if len(o.Peers) == 1 {
		c.LeaderLeaseTimeout = o.HeartbeatTimeout // nobody to hear from: look less often
	}
	c.MaxAppendEntries = appendEntriesMax
	c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = o.SnapshotThreshold, o.TrailingLogs, snapshotCheckPeriod

	var voters raft.Configuration
	for _, p := range o.Peers {
		voters.Servers = append(voters.Servers, raft.Server{ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Addr)})
	}
	if err := s.disk.bootstrap(c, trans, voters); err != nil {
		return fmt.Errorf("beginning the raft log in %s: %w", o.Dir, err)
	}
	r, err := newRaft(c, s.fsm, s.disk, trans)
	if err != nil {
		return fmt.Errorf("starting from the raft log in %s: %w", o.Dir, err)
	}
	f := r.GetConfiguration()
	err = f.Error()
	if err == nil {
		err = checkVoters(o, f.Configuration())
	}
	if err != nil {
		return errors.Join(err, r.Shutdown().Error())
	}
	s.raft = r
	return nil
}

// newRaft is raft.NewRaft, which panics where log and snapshot don't fit together, as after a damaged disk.
func newRaft(c *raft.Config, f raft.FSM, d *disk, t raft.Transport) (r *raft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("log and snapshots don't fit together or are damaged: %v", p)
		}
	}()
	return raft.NewRaft(c, f, d.logs, d.stable, d.snaps, t)
}

// snapshots writes one when the log's file has grown enough (snapshotDue); raft itself counts entries only.
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

// Close stops taking part. A leader with other voters hands over first, so that they needn't wait for a timeout.
// Commands that are still queued get ErrClosed. Later calls return what the first did.
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
	s.queue.close()

	// Raft leaves some requests without an answer when it is shut down under them: let them end before.
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
	if s.IsLeader() && len(s.opts.Peers) > 1 {
		if err := s.raft.LeadershipTransfer().Error(); err != nil {
			s.opts.Logger.Info("could not hand leadership over before closing", "error", err)
		}
	}
	err := s.raft.Shutdown().Error()
	close(s.dead)
	return errors.Join(err, s.leave(), s.disk.close())
}

// ask runs one request to raft; the answer may outlive ctx, but not Close.
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
	case <-s.dead:
		return ErrClosed
	}
}

// Barrier returns when everything committed before it is applied here. Only the leader can; a new leader calls it
// before it reads its state. Errors as for Propose.
func (s *Store) Barrier(ctx context.Context) error {
	return s.ask(ctx, "waiting for the log to be applied", func() raft.Future { return s.raft.Barrier(0) })
}

// VerifyLeader returns nil when a majority confirms, now, that this is the leader: a read of the state after that is
// not older than the call.
func (s *Store) VerifyLeader(ctx context.Context) error {
	return s.ask(ctx, "asking the other controllers who leads", s.raft.VerifyLeader)
}

// Snapshot writes a snapshot and cuts the log behind it. It is nothing, and no error, if there is nothing new.
func (s *Store) Snapshot() error {
	return s.ask(context.Background(), "writing a snapshot", func() raft.Future { return s.raft.Snapshot() })
}

// TransferLeadership makes the most up-to-date follower the leader. It fails where there is none.
func (s *Store) TransferLeadership() error {
	return s.ask(context.Background(), "handing leadership over", s.raft.LeadershipTransfer)
}

// Leader gives the name and address (as in Peers) of the leader, both "" where none is known.
func (s *Store) Leader() (id, addr string) {
	_, sid := s.raft.LeaderWithID()
	return string(sid), s.opts.addr(string(sid))
}

// IsLeader reports whether this voter leads, as far as it knows.
func (s *Store) IsLeader() bool { return s.raft.State() == raft.Leader }

// LeaderCh tells of changes: true when this voter becomes the leader, false when it ceases to be. It is one channel,
// for one reader, and keeps only the latest change: a reader that is late sees true after true, and learns from Term
// that the leadership is another.
func (s *Store) LeaderCh() <-chan bool { return s.raft.LeaderCh() }

// Term is the current term: it grows with every election, and no two leaders have the same.
func (s *Store) Term() uint64 { return s.raft.CurrentTerm() }

// Stats is a glance at the store.
type Stats struct {
	State         string // Leader, Follower, Candidate, Shutdown
	Leader        string // ID, "" if unknown
	Term          uint64
	LastIndex     uint64 // last entry in the log
	Commit        uint64 // last entry known to be on a majority
	Applied       uint64 // last entry given to the machine
	Voters        []Peer
	LastContact   time.Duration // since this follower heard from its leader; 0 on the leader, -1 if never
	Entries       uint64        // entries proposed here since Open
	Commands      uint64        // commands in them
	Queued        int           // commands that wait
	SnapshotIndex uint64        // last entry in the latest snapshot
}

// Stats collects a glance at the store.
func (s *Store) Stats() Stats {
	leader, _ := s.Leader()
	st := Stats{
		State: s.raft.State().String(), Leader: leader, Term: s.Term(), LastIndex: s.raft.LastIndex(),
		Commit: s.raft.CommitIndex(), Applied: s.raft.AppliedIndex(), Voters: s.opts.Peers,
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
