package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// machineFSM is a Machine as raft's FSM.
type machineFSM struct {
	machine Machine
	closing atomic.Bool
	bytes   int           // growth of the log's file since the last snapshot; only raft's FSM goroutine uses it
	full    chan struct{} // holds one: a snapshot is due
	size    atomic.Int64  // of the last snapshot that was written or read, bytes
}

// Apply passes one entry to the machine. If an entry can't be decoded, the log is corrupt or newer than this program.
// Apply then stops the process, because this replica would differ from the others.
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
		default: // already requested
		}
	}
	return results
}

// snapshotDue gives the bytes of log after which a new snapshot is due, if the last one has size bytes. The log's file
// is mapped into memory and so must stay small. Snapshots of up to snapshotMaxBytes write no more bytes than the log
// does.
func snapshotDue(size int64) int {
	return int(min(max(size, snapshotMinBytes), snapshotMaxBytes))
}

func (f *machineFSM) Snapshot() (raft.FSMSnapshot, error) {
	f.bytes = 0
	return &frozen{write: f.machine.Freeze(), closing: &f.closing, size: &f.size}, nil
}

func (f *machineFSM) Restore(r io.ReadCloser) error {
	f.bytes = 0
	in := &counted{Reader: r}
	if err := f.machine.Restore(in); err != nil {
		return fmt.Errorf("restoring the state from a snapshot: %w", err)
	}
	f.size.Store(in.n)
	return nil
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	return n, err
}

// frozen is a state to be written.
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
