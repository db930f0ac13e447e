package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// logFile is raft's log and its votes, in the file of raft-boltdb. Every entry has a checksum, and every change of the
// log renews the seal, which says what the file must have (logentry.go): so neither a changed nor a missing entry goes
// unnoticed, at the start (logcheck.go) or when it is read.
type logFile struct {
	db     *raftboltdb.BoltStore
	dir    string // where it is
	log    *slog.Logger
	broken func(error) // told of damage that is found while the store runs

	// keep gives the index up to which entries may go when raft compacts the log.
	keep func() uint64

	mu   sync.Mutex // one change at a time
	seal seal       // as in the file

	told     sync.Mutex // term.go
	votes    votes      // as raft has told
	votingIn uint64     // the term of a vote whose candidate raft tells next
}

const logFileName = "raft.db"

// openBolt opens a file of raft-boltdb, or makes it.
func openBolt(path string, readOnly bool) (*raftboltdb.BoltStore, error) {
	// The list of free pages is not written with each commit; it is rebuilt at the start (0.2 s for 400 MB).
	db, err := raftboltdb.New(raftboltdb.Options{Path: path, MsgpackUseNewTimeFormat: true,
		BoltOptions: &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, Timeout: fileLockTimeout,
			ReadOnly: readOnly}})
	if err != nil {
		return nil, cantOpen(path, err)
	}
	return db, nil
}

// cantOpen is for a file whose pages are good: it is in use, or the host lacks something.
func cantOpen(path string, err error) error {
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return &busyError{inUse(path)}
	}
	return &busyError{fmt.Errorf("opening %s: %w", path, err)}
}

// createLog makes an empty log, of a voter that has yet to join or not. It has another name first: a crash leaves a
// whole file or none.
func createLog(path string, v votes, joining bool) error {
	fresh := path + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	db, err := openBolt(fresh, false)
	if err != nil {
		return err
	}
	l := &logFile{db: db, votes: v}
	err = l.store(seal{first: 1})
	if joining {
		err = errors.Join(err, l.db.Set(keyJoining, sumPair(keyJoining, joiningYes)))
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openLog opens a file that checkLog has accepted. Entries that its seal doesn't count go: a crash came before their
// removal was complete.
func openLog(path string, f found, lg *slog.Logger, broken func(error)) (l *logFile, err error) {
	l = &logFile{dir: filepath.Dir(path), log: lg.With("file", path), broken: broken, seal: f.seal, votes: f.seal.votes}
	defer l.guard(&err)()
	if l.db, err = openBolt(path, false); err != nil {
		return nil, err
	}
	if f.stale {
		err = l.store(l.seal)
		if l.seal.first > 0 {
			err = errors.Join(err, l.db.DeleteRange(0, l.seal.first-1))
		}
		if err = errors.Join(err, l.db.DeleteRange(l.seal.last+1, sealIndex-1)); err != nil {
			return nil, errors.Join(err, l.db.Close())
		}
	}
	return l, nil
}

func inUse(path string) error {
	return fmt.Errorf("%s is in use by another process: is a controller already running on this directory?", path)
}

// store writes entries and the seal, with raft's present term, in one transaction.
func (l *logFile) store(s seal, es ...*raft.Log) error {
	s.votes = l.present()
	return l.write(s, es...)
}

// write is store with the votes that s has.
func (l *logFile) write(s seal, es ...*raft.Log) error {
	if err := l.db.StoreLogs(append(es, s.entry())); err != nil {
		return err
	}
	l.seal = s
	return nil
}

// guard makes errors of bbolt's panics about pages and of faults of the mapped file. Its function is to be deferred:
//
//	defer l.guard(&err)()
func (l *logFile) guard(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil {
			*err = fmt.Errorf("%w: %v", errDamaged, p)
		}
		if errors.Is(*err, errDamaged) && l.broken != nil {
			l.broken(*err)
		}
	}
}

// errDamaged is in the error of every read that finds damage.
var errDamaged = errors.New("damaged")

// said logs an error when the log can't be written: raft stops the process on some of these errors.
func (l *logFile) said(err error) error {
	if err != nil && !errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
		text := "can't write the raft log; is the disk full or broken?"
		if errors.Is(err, syscall.EROFS) {
			text = "can't write the raft log: its disk has turned read-only; see the kernel's log, stop gctld, mend and mount " +
				"the disk, and start gctld again; or let it begin with an empty one"
		}
		l.log.Error(text, "error", err)
		if errors.Is(err, syscall.ENOSPC) {
			makeRoom(l.log, l.dir)
		}
	}
	return err
}

// Close closes the file.
func (l *logFile) Close() error { return l.db.Close() }

// IsMonotonic: there are no gaps in the log. raft then removes old entries when it gets a snapshot.
func (l *logFile) IsMonotonic() bool { return true }

// FirstIndex gives the first entry's index, 0 if there are none.
func (l *logFile) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seal.last < l.seal.first {
		return 0, nil
	}
	return l.seal.first, nil
}

// LastIndex gives the last entry's index, 0 if there are none.
func (l *logFile) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seal.last < l.seal.first {
		return 0, nil
	}
	return l.seal.last, nil
}

// GetLog reads an entry and checks it.
func (l *logFile) GetLog(index uint64, e *raft.Log) (err error) {
	defer l.guard(&err)()
	l.mu.Lock()
	there := index >= l.seal.first && index <= l.seal.last
	l.mu.Unlock()
	if !there {
		return raft.ErrLogNotFound
	}
	_, _, err = l.read(index, e)
	if errors.Is(err, raft.ErrLogNotFound) { // it went in this moment
		return err
	}
	return wrapDamage(index, err)
}

// read gives an entry, and the checksums of the one before it and its own.
func (l *logFile) read(index uint64, e *raft.Log) (before, sum uint32, err error) {
	*e = raft.Log{}
	if err := l.db.GetLog(index, e); err != nil {
		return 0, 0, err
	}
	return checkWitness(index, e)
}

func wrapDamage(index uint64, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("entry %d of the raft log is %w: %v", index, errDamaged, err)
}

// StoreLog appends an entry.
func (l *logFile) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs appends entries in one transaction. What it finds from the first one's index on gives way. If that index
// leaves a gap, a snapshot has replaced everything before it, and all older entries go.
func (l *logFile) StoreLogs(es []*raft.Log) (err error) {
	if len(es) == 0 {
		return nil
	}
	defer func() { err = l.said(err) }()
	defer l.guard(&err)()
	l.mu.Lock()
	defer l.mu.Unlock()
	from := es[0].Index
	switch s := l.seal; {
	case s.last < s.first:
		l.seal.first, l.seal.last, l.seal.sum = from, from-1, 0
	case from < s.first, from > s.last+1:
		err = l.cut(seal{first: from, last: from - 1, snapshot: s.snapshot}, s.first, s.last)
	case from <= s.last:
		err = l.cutTail(from)
	}
	if err != nil {
		return err
	}
	s := l.seal
	with := make([]*raft.Log, 0, len(es)+1)
	for _, e := range es {
		if e.Index != s.last+1 {
			return fmt.Errorf("entry %d of the raft log after entry %d", e.Index, s.last)
		}
		w, sum := witnessed(s.sum, e)
		with = append(with, w)
		s.last, s.sum = e.Index, sum
	}
	return l.store(s, with...)
}

// DeleteRange removes the entries from one index to another. When raft compacts the log, entries after the oldest
// snapshot that is kept stay: with them it can take the place of the newest.
func (l *logFile) DeleteRange(from, to uint64) (err error) {
	var kept uint64
	if l.keep != nil {
		kept = l.keep() // reads the directory: not under the lock
	}
	defer func() { err = l.said(err) }()
	defer l.guard(&err)()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seal
	switch {
	case from <= s.first && to >= s.last: // everything
		return l.cut(seal{first: s.last + 1, last: s.last, snapshot: s.snapshot}, s.first, s.last)
	case from <= s.first:
		if l.keep != nil {
			to = min(to, kept)
		}
		if to < s.first {
			return nil
		}
		from = s.first
		s.first = to + 1
		return l.cut(s, from, to)
	case to >= s.last && from <= s.last:
		return l.cutTail(from)
	}
	return fmt.Errorf("the raft log can't lose entries %d to %d of %d to %d", from, to, s.first, s.last)
}

// cutTail removes the entries from an index on.
func (l *logFile) cutTail(from uint64) error {
	s := l.seal
	s.last, s.sum = from-1, 0
	if s.last >= s.first {
		var err error
		if _, s.sum, err = l.read(s.last, new(raft.Log)); err != nil {
			return wrapDamage(s.last, err)
		}
	}
	return l.cut(s, from, l.seal.last)
}

// cut removes entries, and writes before that the seal that no longer counts them: raft-boltdb does the two in a
// transaction each, and what a crash leaves behind goes at the next start.
func (l *logFile) cut(s seal, from, to uint64) error {
	if err := l.store(s); err != nil || to < from {
		return err
	}
	return l.db.DeleteRange(from, to)
}

// Get reads a value; the error for none is raft's.
func (l *logFile) Get(k []byte) (v []byte, err error) {
	if string(k) == keyCandidate {
		if v := l.present(); v.candidate != "" {
			return []byte(v.candidate), nil
		}
		return nil, raftboltdb.ErrKeyNotFound
	}
	defer l.guard(&err)()
	b, err := l.db.Get(k)
	if err != nil {
		return nil, err
	}
	if v, err = checkPair(k, b); err != nil {
		return nil, fmt.Errorf("the raft log is %w: %v", errDamaged, err)
	}
	return v, nil
}

// Set writes a value, or the rest of a vote.
func (l *logFile) Set(k, v []byte) (err error) {
	if string(k) == keyCandidate {
		return l.vote(v)
	}
	defer l.guard(&err)()
	return l.said(l.db.Set(k, sumPair(k, v)))
}

// snapshotDone notes that a complete snapshot is there.
func (l *logFile) snapshotDone(index uint64) (err error) {
	defer l.guard(&err)()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seal
	s.snapshot = max(s.snapshot, index)
	return l.said(l.store(s))
}
