package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// adopt.go takes over the logs of earlier versions, which raft-boltdb wrote: its file has no place for checksums.

const (
	adoptSuffix = ".sealed" // of the new file until it is whole
	adoptBatch  = 512       // entries in one transaction
)

// adopt copies entries first to last of an old log, and raft's term and vote, into a file with checksums, which then
// takes its place. A crash leaves the old file or the new one.
func adopt(path string, first, last uint64, lg *slog.Logger) (found, error) {
	fresh := path + adoptSuffix
	if err := os.RemoveAll(fresh); err != nil {
		return found{}, err
	}
	old, err := raftboltdb.New(raftboltdb.Options{Path: path,
		BoltOptions: &bbolt.Options{ReadOnly: true, Timeout: fileLockTimeout}})
	if err != nil {
		return found{}, fmt.Errorf("opening %s: %w", path, err)
	}
	err = copyLog(old, fresh, first, last, lg)
	if err = errors.Join(err, old.Close()); err != nil {
		return found{}, fmt.Errorf("taking over %s: %w", path, err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return found{}, err
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return found{}, err
	}
	lg.Info("the raft log has checksums now", "file", path, "entries", last+1-first)
	return lockAndCheck(path)
}

func copyLog(old *raftboltdb.BoltStore, path string, first, last uint64, lg *slog.Logger) error {
	conf := map[string][]byte{}
	for _, key := range []string{"CurrentTerm", "LastVoteTerm", "LastVoteCand"} { // all that raft keeps
		switch v, err := old.Get([]byte(key)); {
		case err == nil:
			conf[key] = v
		case !errors.Is(err, raftboltdb.ErrKeyNotFound):
			return err
		}
	}
	if err := createLog(path, conf); err != nil {
		return err
	}
	f, err := lockAndCheck(path)
	if err != nil {
		return err
	}
	l, err := openLog(path, f.seal, false, lg, nil)
	if err != nil {
		return err
	}
	return errors.Join(copyEntries(old, l, first, last), l.Close())
}

func copyEntries(old *raftboltdb.BoltStore, l *logFile, first, last uint64) error {
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
