package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// Errors of Propose, ProposeBatch, Barrier and the like. All others are a context's errors, see Propose.
var (
	// ErrNotLeader: this voter doesn't lead. The command was not applied and will not be; ask the leader (Leader).
	ErrNotLeader = errors.New("this controller is not the leader")

	// ErrLeadershipLost: leadership ended, or the log could not be written, while the command was in flight. It may or
	// may not be applied: the outcome is unknown. A command that is safe to repeat can be sent to the new leader.
	ErrLeadershipLost = errors.New("leadership lost while the command was on its way: outcome unknown")

	// ErrQueueFull: the context ended while the command was still queued. It was not applied and will not be.
	ErrQueueFull = errors.New("too many commands are waiting")

	// ErrClosed: the store is closed or closing. The command was not applied and will not be.
	ErrClosed = errors.New("the store is closed")

	// ErrTooLarge: a command or a batch is over its limit.
	ErrTooLarge = errors.New("command too large")
)

// inFlight is the most entries in flight at once: one is written, one replicated and one gathered. More would only
// make the entries smaller.
const inFlight = 3

// entry is a group of requests that raft has.
type entry struct {
	requests []*request
	future   raft.ApplyFuture
}

// Propose replicates and applies one command, and returns the machine's result for it. Concurrent calls share log
// entries. The caller must never change cmd afterwards. If ctx ends first, Propose returns ctx's error, with
// ErrQueueFull if the command was still queued; without ErrQueueFull the outcome is unknown.
func (s *Store) Propose(ctx context.Context, cmd []byte) (any, error) {
	results, err := s.ProposeBatch(ctx, [][]byte{cmd})
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

// ProposeBatch is Propose for several commands that stay together and in order in one log entry: all are applied
// consecutively, or none. It returns one result for each.
func (s *Store) ProposeBatch(ctx context.Context, cmds [][]byte) ([]any, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	r := &request{cmds: cmds, done: make(chan outcome, 1)}
	for _, c := range cmds {
		if len(c) > MaxCommandBytes {
			return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(c), MaxCommandBytes)
		}
		r.bytes += len(c)
	}
	if len(cmds) > MaxBatchCommands || r.bytes > MaxBatchBytes {
		return nil, fmt.Errorf("%w: a batch of %d commands with %d bytes, the limits are %d and %d",
			ErrTooLarge, len(cmds), r.bytes, MaxBatchCommands, MaxBatchBytes)
	}
	if !s.IsLeader() {
		return nil, s.notLeader()
	}
	if err := s.queue.push(ctx, r); err != nil {
		return nil, err
	}
	select {
	case o := <-r.done:
		return o.results, o.err
	case <-ctx.Done():
		if s.queue.withdraw(r) {
			return nil, fmt.Errorf("%w: %w", ErrQueueFull, context.Cause(ctx))
		}
		return nil, fmt.Errorf("waiting for the command to be replicated: %w", context.Cause(ctx))
	case <-s.writes.during():
		if s.queue.withdraw(r) {
			return nil, fmt.Errorf("%w: %w", ErrNotLeader, errStalled)
		}
		return nil, fmt.Errorf("%w: %w", ErrLeadershipLost, errStalled)
	case <-s.dead:
		// The answer may have come at the same moment.
		select {
		case o := <-r.done:
			return o.results, o.err
		default:
			return nil, ErrLeadershipLost
		}
	}
}

// gather puts queued requests into entries, while fewer than inFlight are in flight. It ends when the queue is closed.
//
// One entry per command would be simple: raft writes several entries in one transaction, but each costs an encoding, a
// future, a message part and a key in the log. To wait a few milliseconds for more commands would delay a single
// submission. Instead the first command is sent at once, and commands that come while entries are in flight are
// gathered for the next entry: a single command is fast, and under load entries grow by themselves.
func (s *Store) gather() {
	defer s.wg.Done()
	defer close(s.flying)
	for {
		s.places <- struct{}{}
		rs := s.queue.take()
		if rs == nil {
			return
		}
		s.entries.Add(1)
		for _, r := range rs {
			s.commands.Add(uint64(len(r.cmds)))
		}
		// Blocks until raft's main loop accepts it, or raft is shut down.
		s.flying <- entry{rs, s.raft.Apply(encodeEntry(rs), 0)}
	}
}

// deliver gives results to callers in the order of the entries.
func (s *Store) deliver() {
	defer s.wg.Done()
	for e := range s.flying {
		err := e.future.Error()
		<-s.places
		s.queue.done()
		if err != nil {
			err = s.outcomeError(err)
			for _, r := range e.requests {
				r.done <- outcome{err: err}
			}
			continue
		}
		results := e.future.Response().([]any)
		for _, r := range e.requests {
			n := len(r.cmds)
			r.done <- outcome{results: results[:n:n]}
			results = results[n:]
		}
	}
}

// outcomeError translates raft's error for an entry.
func (s *Store) outcomeError(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return s.notLeader()
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrAbortedByRestore):
		return ErrLeadershipLost
	case errors.Is(err, raft.ErrRaftShutdown):
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrLeadershipLost, err)
}

// notLeader is ErrNotLeader with the leader's name, if there is a leader.
func (s *Store) notLeader() error {
	if id, addr := s.Leader(); id != "" {
		return fmt.Errorf("%w; %s at %s is", ErrNotLeader, id, addr)
	}
	return fmt.Errorf("%w, and at the moment there is none", ErrNotLeader)
}
