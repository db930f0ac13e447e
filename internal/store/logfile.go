package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// logFile is raft's log and its votes in one bbolt file. Every entry has a checksum (logentry.go), and every
// transaction renews the seal, which says what the file must have: so neither a changed nor a missing entry goes
// unnoticed, at the start (logcheck.go) or when it is read.
type logFile struct {
	db     *bbolt.DB
	log    *slog.Logger
	broken func(error) // told of damage that is found while the store runs

	// keep gives the index up to which entries may go when raft compacts the log.
	keep func() uint64

	mu   sync.Mutex // one change at a time
	seal seal       // as in the file
}

// Names in the file. The buckets are those of raft-boltdb, which wrote it in earlier versions.
var (
	bucketLogs = []byte("logs")
	bucketConf = []byte("conf")
	keySeal    = []byte("gbatch.seal")
)

const (
	logFileName = "raft.db"
	logFill     = 0.9 // entries are appended: pages need little room for later ones
)

// errNotFound has the text that raft expects for a missing key.
var errNotFound = errors.New("not found")

// seal says what the file must have. It is written in every transaction, with its own checksum.
type seal struct {
	first, last uint64 // entries in the file; last is first-1 if there are none
	sum         uint32 // of the last entry
	conf        uint32 // of all other keys and values of bucketConf
	snapshot    uint64 // index of the latest complete snapshot
}

const (
	sealFormat = 1
	sealLen    = 1 + 3*8 + 3*4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (s seal) bytes() []byte {
	b := append(make([]byte, 0, sealLen), sealFormat)
	b = binary.BigEndian.AppendUint64(b, s.first)
	b = binary.BigEndian.AppendUint64(b, s.last)
	b = binary.BigEndian.AppendUint64(b, s.snapshot)
	b = binary.BigEndian.AppendUint32(b, s.sum)
	b = binary.BigEndian.AppendUint32(b, s.conf)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func parseSeal(b []byte) (seal, error) {
	if len(b) != sealLen || crc32.Checksum(b[:sealLen-4], castagnoli) != binary.BigEndian.Uint32(b[sealLen-4:]) {
		return seal{}, errors.New("its seal is damaged")
	}
	if b[0] != sealFormat {
		return seal{}, fmt.Errorf("its seal has format %d, written by a newer version; this one knows %d", b[0], sealFormat)
	}
	at := func(i int) uint64 { return binary.BigEndian.Uint64(b[i:]) }
	return seal{first: at(1), last: at(9), snapshot: at(17), sum: binary.BigEndian.Uint32(b[25:]),
		conf: binary.BigEndian.Uint32(b[29:])}, nil
}

// addPair adds a pair of bucketConf to a checksum of all of them, in their order.
func addPair(sum uint32, k, v []byte) uint32 {
	var n [8]byte
	binary.BigEndian.PutUint32(n[:], uint32(len(k)))
	binary.BigEndian.PutUint32(n[4:], uint32(len(v)))
	return crc32.Update(crc32.Update(crc32.Update(sum, castagnoli, n[:]), castagnoli, k), castagnoli, v)
}

func boltOptions() *bbolt.Options {
	// The list of free pages is not written with each commit; it is rebuilt at the start (0.2 s for 400 MB).
	return &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, Timeout: fileLockTimeout}
}

// createLog makes an empty log with the given keys, under another name first: a crash leaves a whole file or none.
func createLog(path string, conf map[string][]byte) error {
	fresh := path + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	db, err := bbolt.Open(fresh, 0o600, boltOptions())
	if err != nil {
		return err
	}
	l := &logFile{db: db, seal: seal{first: 1}}
	err = l.update(func(tx *bbolt.Tx, s *seal) error {
		if _, err := tx.CreateBucket(bucketLogs); err != nil {
			return err
		}
		b, err := tx.CreateBucket(bucketConf)
		if err != nil {
			return err
		}
		for k, v := range conf {
			if err := b.Put([]byte(k), v); err != nil {
				return err
			}
		}
		return s.sumConf(b)
	})
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

// openLog opens a file that checkLog has accepted, with the seal that it should have. stale counts the entries before
// seal.first, which it removes.
func openLog(path string, s seal, stale bool, lg *slog.Logger, broken func(error)) (l *logFile, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			l, err = nil, fmt.Errorf("opening %s: %v", path, p)
		}
	}()
	db, err := bbolt.Open(path, 0o600, boltOptions())
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, inUse(path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	l = &logFile{db: db, log: lg.With("file", path), broken: broken, seal: s}
	if stale {
		err = l.update(func(tx *bbolt.Tx, s *seal) error {
			return deleteEntries(tx.Bucket(bucketLogs), 0, s.first-1)
		})
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return l, nil
}

func inUse(path string) error {
	return fmt.Errorf("%s is in use by another process: is a controller already running on this directory?", path)
}

// update makes one change and seals it.
func (l *logFile) update(change func(*bbolt.Tx, *seal) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer l.caught(&err)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seal
	tx, err := l.db.Begin(true)
	if err != nil {
		return err
	}
	// After a commit it does nothing.
	defer func() { _ = tx.Rollback() }()
	if err := change(tx, &s); err != nil {
		return err
	}
	if err := tx.Bucket(bucketConf).Put(keySeal, s.bytes()); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	l.seal = s
	return nil
}

// view reads. Damage of the file becomes an error.
func (l *logFile) view(read func(*bbolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer l.caught(&err)
	return l.db.View(read)
}

// caught makes an error of bbolt's panics about pages and of faults of the mapped file.
func (l *logFile) caught(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", errDamaged, p)
	}
	if errors.Is(*err, errDamaged) && l.broken != nil {
		l.broken(*err)
	}
}

// errDamaged is in the error of every read that finds damage.
var errDamaged = errors.New("damaged")

// said logs an error when the log can't be written: raft stops the process on some of these errors.
func (l *logFile) said(err error) error {
	if err != nil && !errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
		l.log.Error("can't write the raft log; is the disk full or broken?", "error", err)
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
func (l *logFile) GetLog(index uint64, e *raft.Log) error {
	return l.view(func(tx *bbolt.Tx) error {
		v := tx.Bucket(bucketLogs).Get(indexKey(index))
		if v == nil {
			return raft.ErrLogNotFound
		}
		if _, err := decodeLog(index, v, e); err != nil {
			return fmt.Errorf("entry %d of the raft log is %w: %v", index, errDamaged, err)
		}
		return nil
	})
}

// StoreLog appends an entry.
func (l *logFile) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs appends entries in one transaction. What it finds from the first one's index on gives way. If that index
// leaves a gap, a snapshot has replaced everything before it, and all older entries go.
func (l *logFile) StoreLogs(es []*raft.Log) error {
	if len(es) == 0 {
		return nil
	}
	return l.said(l.update(func(tx *bbolt.Tx, s *seal) error {
		b := tx.Bucket(bucketLogs)
		b.FillPercent = logFill
		from := es[0].Index
		switch {
		case s.last < s.first, from < s.first, from > s.last+1:
			if err := deleteEntries(b, s.first, s.last); err != nil {
				return err
			}
			s.first, s.last, s.sum = from, from-1, 0
		case from <= s.last:
			if err := s.cutTail(b, from); err != nil {
				return err
			}
		}
		for _, e := range es {
			if e.Index != s.last+1 {
				return fmt.Errorf("entry %d of the raft log after entry %d", e.Index, s.last)
			}
			v, sum := encodeLog(s.sum, e)
			if err := b.Put(indexKey(e.Index), v); err != nil {
				return err
			}
			s.last, s.sum = e.Index, sum
		}
		return nil
	}))
}

// DeleteRange removes the entries from one index to another. When raft compacts the log, entries after the oldest
// snapshot that is kept stay: with them it can take the place of the newest.
func (l *logFile) DeleteRange(from, to uint64) error {
	var kept uint64
	if l.keep != nil {
		kept = l.keep() // reads the directory: not under the lock
	}
	return l.said(l.update(func(tx *bbolt.Tx, s *seal) error {
		b := tx.Bucket(bucketLogs)
		switch {
		case from <= s.first && to >= s.last: // everything
			if err := deleteEntries(b, from, to); err != nil {
				return err
			}
			s.first, s.sum = s.last+1, 0
			return nil
		case from <= s.first:
			if l.keep != nil {
				to = min(to, kept)
			}
			if to < s.first {
				return nil
			}
			s.first = to + 1
			return deleteEntries(b, from, to)
		case to >= s.last && from <= s.last:
			return s.cutTail(b, from)
		}
		return fmt.Errorf("the raft log can't lose entries %d to %d of %d to %d", from, to, s.first, s.last)
	}))
}

// cutTail removes the entries from an index on.
func (s *seal) cutTail(b *bbolt.Bucket, from uint64) error {
	if err := deleteEntries(b, from, s.last); err != nil {
		return err
	}
	s.last, s.sum = from-1, 0
	if s.last < s.first {
		return nil
	}
	sum, err := decodeLog(s.last, b.Get(indexKey(s.last)), &raft.Log{})
	if err != nil {
		return fmt.Errorf("entry %d of the raft log is %w: %v", s.last, errDamaged, err)
	}
	s.sum = sum
	return nil
}

// deleteEntries removes entries. It collects their keys first: a cursor that deletes as it goes may skip some.
func deleteEntries(b *bbolt.Bucket, from, to uint64) error {
	if to < from {
		return nil
	}
	c := b.Cursor()
	for k, _ := c.Seek(indexKey(from)); k != nil && binary.BigEndian.Uint64(k) <= to; k, _ = c.Seek(indexKey(from)) {
		from = binary.BigEndian.Uint64(k) + 1
		if err := c.Delete(); err != nil {
			return err
		}
	}
	return nil
}

// Get reads a value of raft's; the error for none is raft's.
func (l *logFile) Get(k []byte) (v []byte, err error) {
	err = l.view(func(tx *bbolt.Tx) error {
		found := tx.Bucket(bucketConf).Get(k)
		if found == nil {
			return errNotFound
		}
		v = append([]byte{}, found...)
		return nil
	})
	return v, err
}

// Set writes a value of raft's; nil removes it.
func (l *logFile) Set(k, v []byte) error {
	return l.said(l.update(func(tx *bbolt.Tx, s *seal) error {
		b := tx.Bucket(bucketConf)
		var err error
		if v == nil {
			err = b.Delete(k)
		} else {
			err = b.Put(k, v)
		}
		return errors.Join(err, s.sumConf(b))
	}))
}

// sumConf renews the checksum of bucketConf.
func (s *seal) sumConf(b *bbolt.Bucket) error {
	s.conf = 0
	return b.ForEach(func(k, v []byte) error {
		if string(k) != string(keySeal) {
			s.conf = addPair(s.conf, k, v)
		}
		return nil
	})
}

// SetUint64 is Set for a number.
func (l *logFile) SetUint64(k []byte, v uint64) error { return l.Set(k, indexKey(v)) }

// GetUint64 is Get for a number.
func (l *logFile) GetUint64(k []byte) (uint64, error) {
	v, err := l.Get(k)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("%q in the raft log is %w: it has %d bytes and should have 8", k, errDamaged, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// snapshotDone notes that a complete snapshot is there.
func (l *logFile) snapshotDone(index uint64) error {
	return l.said(l.update(func(_ *bbolt.Tx, s *seal) error {
		s.snapshot = max(s.snapshot, index)
		return nil
	}))
}

func indexKey(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i) }
