package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// adopt.go takes over the logs of earlier versions: of raft-boltdb without checksums, and of 0.1.0-dev in November
// 2026, which had checksums in a format of its own in the same buckets (formerLog).

const (
	adoptSuffix = ".sealed" // of the new file until it is whole
	adoptBatch  = 512       // entries in one transaction
)

// oldLog is the log of an earlier version.
type oldLog interface {
	getter
	GetLog(index uint64, e *raft.Log) error
	Close() error
}

// adopt copies entries first to last of an old log, and raft's term and vote, into a file with checksums, which then
// takes its place. A crash leaves the old file or the new one.
func adopt(path string, f found, lg *slog.Logger) (found, error) {
	fresh := path + adoptSuffix
	if err := os.RemoveAll(fresh); err != nil {
		return found{}, err
	}
	var old oldLog
	var err error
	if f.former {
		old, err = openFormer(path)
	} else {
		old, err = openBolt(path, true)
	}
	if err != nil {
		return found{}, err
	}
	err = copyLog(old, fresh, f.seal, lg)
	if err = errors.Join(err, old.Close()); err != nil {
		return found{}, fmt.Errorf("taking over %s: %w", path, err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return found{}, err
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return found{}, err
	}
	lg.Info("the raft log has checksums now", "file", path, "entries", f.seal.last+1-f.seal.first)
	return lockAndCheck(path)
}

func copyLog(old oldLog, path string, s seal, lg *slog.Logger) error {
	v, err := votesIn(old)
	if err != nil {
		return err
	}
	joining, err := old.Get(keyJoining)
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return err
	}
	if err := createLog(path, v, len(joining) > 0); err != nil {
		return err
	}
	f, err := lockAndCheck(path)
	if err != nil {
		return err
	}
	l, err := openLog(path, f, lg, nil)
	if err != nil {
		return err
	}
	err = copyEntries(old, l, s.first, s.last)
	if err == nil && s.snapshot > 0 {
		err = l.snapshotDone(s.snapshot)
	}
	return errors.Join(err, l.Close())
}

func copyEntries(old oldLog, l *logFile, first, last uint64) error {
	if last < first { // entries that come later begin there
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.store(seal{first: first, last: last})
	}
	for at := first; at <= last; {
		var batch []*raft.Log
		for ; at <= last && len(batch) < adoptBatch; at++ {
			e := new(raft.Log)
			if err := old.GetLog(at, e); err != nil {
				return fmt.Errorf("entry %d: %w", at, err)
			}
			batch = append(batch, e)
		}
		if err := l.StoreLogs(batch); err != nil {
			return err
		}
	}
	return nil
}

// formerLog reads the format of November 2026. An entry is
//
//	byte     0xc1, which no msgpack begins with
//	byte     version, 1
//	4 bytes  checksum (CRC-32C) of the index and all that follows
//	4 bytes  checksum of the entry before it
//	uvarint  term
//	byte     type
//	varint   time in Unix nanoseconds, 0 for none
//	uvarint  length of raft's extensions, then these
//	         data, to the end
//
// and its seal, beside term and vote: format 1, first, last, index of the snapshot, the last entry's checksum, one of
// all other values, and its own.
type formerLog struct{ db *bbolt.DB }

const (
	formerSeal    = "gbatch.seal"
	formerMark    = 0xc1
	formerHead    = 2 + 4
	formerSealLen = 1 + 3*8 + 3*4
)

func openFormer(path string) (*formerLog, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: fileLockTimeout})
	if err != nil {
		return nil, cantOpen(path, err)
	}
	return &formerLog{db}, nil
}

func (l *formerLog) Close() error { return l.db.Close() }

// Get gives a value of raft's.
func (l *formerLog) Get(k []byte) (v []byte, err error) {
	err = l.db.View(func(tx *bbolt.Tx) error {
		found := tx.Bucket([]byte(bucketConf)).Get(k)
		if found == nil {
			return raftboltdb.ErrKeyNotFound
		}
		v = append(v, found...)
		return nil
	})
	return v, err
}

// GetUint64 is Get for a number.
func (l *formerLog) GetUint64(k []byte) (uint64, error) {
	b, err := l.Get(k)
	return number(k, b, err)
}

// GetLog reads an entry and checks it.
func (l *formerLog) GetLog(index uint64, e *raft.Log) error {
	return l.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketLogs)).Get(binary.BigEndian.AppendUint64(nil, index))
		if len(b) < formerHead+4 || b[0] != formerMark || b[1] != 1 ||
			binary.BigEndian.Uint32(b[2:]) != formerSum(index, b[formerHead:]) {
			return errors.New("its checksum is wrong")
		}
		b = b[formerHead+4:]
		term, n := binary.Uvarint(b)
		if n <= 0 || len(b) <= n {
			return errFormer
		}
		kind := b[n]
		b = b[n+1:]
		at, n := binary.Varint(b)
		if n <= 0 {
			return errFormer
		}
		b = b[n:]
		ext, n := binary.Uvarint(b)
		if n <= 0 || ext > uint64(len(b)-n) {
			return errFormer
		}
		b = b[n:]
		*e = raft.Log{Index: index, Term: term, Type: raft.LogType(kind), Data: append([]byte(nil), b[ext:]...)}
		if ext > 0 {
			e.Extensions = append([]byte(nil), b[:ext]...)
		}
		if at != 0 {
			e.AppendedAt = time.Unix(0, at)
		}
		return nil
	})
}

var errFormer = errors.New("it ends too early")

func formerSum(index uint64, b []byte) uint32 {
	return crc(binary.BigEndian.AppendUint64(nil, index), b)
}

// checkFormer checks such a log: its seal against its last entry, and every entry. copyLog needs no more.
func checkFormer(path string) (f found, err error) {
	l, err := openFormer(path)
	if err != nil {
		return found{}, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	b, err := l.Get([]byte(formerSeal))
	if err != nil || len(b) != formerSealLen || b[0] != 1 || !sumAtEnd(b) {
		return found{}, errors.Join(errors.New("its seal is damaged"), err)
	}
	at := func(i int) uint64 { return binary.BigEndian.Uint64(b[i:]) }
	f = found{seal: seal{first: at(1), last: at(9), snapshot: at(17)}, old: true, former: true}
	for i := f.seal.first; i <= f.seal.last; i++ {
		if err := l.GetLog(i, new(raft.Log)); err != nil {
			return found{}, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return f, nil
}
