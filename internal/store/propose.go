package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// What Propose and its kin return instead of a result. Anything else is a context's error, see Propose.
var (
	// ErrNotLeader: this voter doesn't lead. The command was not applied and will not be; ask the leader (Leader).
	ErrNotLeader = errors.New("this controller is not the leader")

	// ErrLeadershipLost: leadership ended, or the log could not be written, while the command was on its way. It may
	// yet be applied, or not: the outcome is unknown. A command that may be repeated safely can be sent to the new leader.
	ErrLeadershipLost = errors.New("leadership lost while the command was on its way: outcome unknown")

	// ErrQueueFull: the context ended while the command still waited to be put into the log. It was not applied and will
	// not be.
	ErrQueueFull = errors.New("too many commands are waiting")

	// ErrClosed: the store is closed or closing. The command was not applied and will not be.
	ErrClosed = errors.New("the store is closed")

	// ErrTooLarge: a command or a batch is over its limit.
	ErrTooLarge = errors.New("command too large")
)

// inFlight is the number of entries that may be on their way at once: one being written while the next is replicated
// and a third gathered. More would only make the groups smaller.
const inFlight = 3

// entry is a group of requests in the hands of raft.
type entry struct {
	requests []*request
	future   raft.ApplyFuture
}

// Propose has one command replicated and applied, and returns the machine's result for it. Concurrent calls share log
// entries. cmd must not be changed afterwards, whatever is returned. When ctx ends first it returns ctx's error,
// together with ErrQueueFull if the command was still waiting; without that the outcome is unknown.
func (s *Store) Propose(ctx context.Context, cmd []byte) (any, error) {
	results, err := s.ProposeBatch(ctx, [][]byte{cmd})
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

// ProposeBatch is Propose for several commands that stay together and in order in one log entry: all of them are
// applied, one after the other with nothing in between, or none. It returns one result for each.
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

// gather puts waiting requests into entries, while a place in flight is free. It ends when the queue is closed.
//
// The naive way is one entry per command: raft writes several entries in one transaction, but each costs an encoding,
// a future, a message part and a key in the log. The other naive way waits a few milliseconds for company: then a lone
// submission is slow. Here the first command goes at once, and what comes while entries are on their way is gathered
// for the next: alone it is as fast as can be, in a crowd the groups grow by themselves.
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
		// Blocks until raft's main loop takes it, or raft is shut down.
		s.flying <- entry{rs, s.raft.Apply(encodeEntry(rs), 0)}
	}
}

// deliver hands out results in the order of the entries.
func (s *Store) deliver() {
	defer s.wg.Done()
	for e := range s.flying {
		err := e.future.Error()
		<-s.places
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

// outcomeError says in our words what raft says of an entry.
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

// notLeader is ErrNotLeader with the leader's name, where there is one.
func (s *Store) notLeader() error {
	if id, addr := s.Leader(); id != "" {
		return fmt.Errorf("%w; %s at %s is", ErrNotLeader, id, addr)
	}
	return fmt.Errorf("%w, and at the moment there is none", ErrNotLeader)
}
