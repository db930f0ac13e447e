package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// machineFSM puts a Machine under raft.
type machineFSM struct {
	machine Machine
	closing atomic.Bool
	bytes   int           // of the log's file since the last snapshot; only raft's FSM goroutine touches it
	full    chan struct{} // holds one: a snapshot is due
	size    atomic.Int64  // of the last snapshot that was written, bytes
}

// Apply hands one entry to the machine. An entry that can't be decoded means that the log is corrupt or newer than this
// program: going on would make this replica differ from the others, so it stops the process.
func (f *machineFSM) Apply(l *raft.Log) any {
	cmds, err := decodeEntry(l.Data)
	if err != nil {
		panic(fmt.Sprintf("raft log entry %d of term %d, %d bytes: %v", l.Index, l.Term, len(l.Data), err))
	}
	results := f.machine.Apply(l.Index, cmds)
	if len(results) != len(cmds) {
		panic(fmt.Sprintf("raft log entry %d: the machine gave %d results for %d commands", l.Index, len(results), len(cmds)))
	}
	if f.bytes += max(len(l.Data), logPage); f.bytes > snapshotDue(f.size.Load()) {
		f.bytes = 0
		select {
		case f.full <- struct{}{}:
		default: // already asked for
		}
	}
	return results
}

// snapshotDue says after how many bytes of log a state whose snapshot has size bytes is written again. The log's file
// is mapped into memory, so it is kept small; and what snapshots write is never more than what the log does, however
// large the state.
func snapshotDue(size int64) int {
	return int(min(max(size, snapshotMinBytes), snapshotMaxBytes))
}

func (f *machineFSM) Snapshot() (raft.FSMSnapshot, error) {
	f.bytes = 0
	return &frozen{write: f.machine.Freeze(), closing: &f.closing, size: &f.size}, nil
}

func (f *machineFSM) Restore(r io.ReadCloser) error {
	f.bytes = 0
	if err := f.machine.Restore(r); err != nil {
		return fmt.Errorf("restoring the state from a snapshot: %w", err)
	}
	return nil
}

// frozen is a state about to be written.
type frozen struct {
	write   func(io.Writer) error
	closing *atomic.Bool
	size    *atomic.Int64
}

const snapshotBuffer = 256 << 10

// errClosing ends a snapshot early, so that closing doesn't wait for a large one.
var errClosing = errors.New("snapshot abandoned: the store is closing")

func (f *frozen) Persist(sink raft.SnapshotSink) error {
	out := &stoppable{w: sink, stop: f.closing}
	w := bufio.NewWriterSize(out, snapshotBuffer)
	err := f.write(w)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	f.size.Store(out.written)
	return nil
}

func (f *frozen) Release() {}

type stoppable struct {
	w       io.Writer
	stop    *atomic.Bool
	written int64
}

func (s *stoppable) Write(b []byte) (int, error) {
	if s.stop.Load() {
		return 0, errClosing
	}
	n, err := s.w.Write(b)
	s.written += int64(n)
	return n, err
}
