package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// disk is raft's storage: log, votes, snapshots.
type disk struct {
	logs   raft.LogStore
	stable raft.StableStore
	snaps  raft.SnapshotStore
	close  func() error
}

// openDisk opens Dir, or storage in memory if Dir is empty.
func openDisk(o Options, lg hclog.Logger) (*disk, error) {
	if o.Dir == "" {
		mem := raft.NewInmemStore()
		return &disk{logs: mem, stable: mem, snaps: raft.NewInmemSnapshotStore(), close: func() error { return nil }}, nil
	}
	snapDir := filepath.Join(o.Dir, "snapshots")
	for _, d := range []string{o.Dir, snapDir} {
		if err := makeDir(d); err != nil {
			return nil, fmt.Errorf("making the directory of the raft log: %w", err)
		}
	}
	// A crash during a snapshot leaves a partial one, which raft never removes.
	left, err := filepath.Glob(filepath.Join(snapDir, "*.tmp"))
	if err != nil {
		return nil, err
	}
	for _, d := range left {
		if err := os.RemoveAll(d); err != nil {
			return nil, fmt.Errorf("removing an unfinished snapshot: %w", err)
		}
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(o.Dir, snapshotsKept, lg)
	if err != nil {
		return nil, fmt.Errorf("opening snapshots in %s: %w", o.Dir, err)
	}
	path := filepath.Join(o.Dir, "raft.db")
	// The list of free pages is not written with each commit; it is rebuilt at the start (0.2 s for 400 MB).
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: path, MsgpackUseNewTimeFormat: true, BoltOptions: &bbolt.Options{
		NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, Timeout: fileLockTimeout,
	}})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%s is in use by another process: is a controller already running on this directory?", path)
	}
	if err != nil {
		if errors.Is(err, bbolterrors.ErrInvalid) || errors.Is(err, bbolterrors.ErrChecksum) ||
			errors.Is(err, bbolterrors.ErrVersionMismatch) {
			return nil, damaged(o, path, err)
		}
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	d := &loggedStore{bolt, o.Logger.With("file", path)}
	cached, err := raft.NewLogCache(cachedEntries, d)
	if err != nil {
		return nil, errors.Join(err, bolt.Close())
	}
	return &disk{logs: cached, stable: d, snaps: snaps, close: bolt.Close}, nil
}

// damaged gives the error for a damaged log, with the way to recover: from another voter, if there is one.
func damaged(o Options, path string, err error) error {
	size := int64(-1)
	if st, err := os.Stat(path); err == nil {
		size = st.Size()
	}
	if len(o.Peers) > 1 {
		return fmt.Errorf("the controller's log %s is damaged (%w; it has %d bytes); the other controllers have all that "+
			"was in it: mv %s %s.damaged, and start this one again: it gets everything from them",
			path, err, size, o.Dir, o.Dir)
	}
	return fmt.Errorf("the controller's log %s is damaged (%w; it has %d bytes), and no other controller has what was "+
		"in it: put a backup of %s in its place, or begin without jobs and accounts: mv %s %s.damaged; ended jobs stay in "+
		"accounting",
		path, err, size, o.Dir, o.Dir, o.Dir)
}

// bootstrap writes the voters as the first entry of an empty log. It also completes the log after a crash between
// raft's two writes (term, then entry): raft itself would treat such a log as an existing one and wait forever.
func (d *disk) bootstrap(conf *raft.Config, trans raft.Transport, voters raft.Configuration) error {
	err := raft.BootstrapCluster(conf, d.logs, d.stable, d.snaps, trans, voters)
	if !errors.Is(err, raft.ErrCantBootstrap) {
		return err
	}
	last, err := d.logs.LastIndex()
	if err != nil || last > 0 {
		return err
	}
	snaps, err := d.snaps.List()
	if err != nil || len(snaps) > 0 {
		return err
	}
	return d.logs.StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(voters)})
}

// checkVoters refuses a log that was made for other voters. To start with it could lose data: two new controllers would
// outvote an old one and overwrite its log.
func checkVoters(o Options, have raft.Configuration) error {
	var old, now []string
	for _, s := range have.Servers {
		old = append(old, string(s.ID))
	}
	for _, p := range o.Peers {
		now = append(now, p.ID)
	}
	slices.Sort(old)
	slices.Sort(now)
	if slices.Equal(old, now) {
		return nil
	}
	return fmt.Errorf("the raft log in %s belongs to the controllers %s, the configuration names %s: "+
		"name the same controllers, or start with an empty directory (the state in this one is then not used)",
		o.Dir, strings.Join(old, ", "), strings.Join(now, ", "))
}

// loggedStore logs an error when the log can't be written: raft stops the process on some of these errors.
type loggedStore struct {
	*raftboltdb.BoltStore
	log *slog.Logger
}

func (s *loggedStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s *loggedStore) StoreLogs(ls []*raft.Log) error { return s.said(s.BoltStore.StoreLogs(ls)) }

func (s *loggedStore) Set(k, v []byte) error { return s.said(s.BoltStore.Set(k, v)) }

func (s *loggedStore) SetUint64(k []byte, v uint64) error { return s.said(s.BoltStore.SetUint64(k, v)) }

func (s *loggedStore) DeleteRange(from, to uint64) error {
	return s.said(s.BoltStore.DeleteRange(from, to))
}

func (s *loggedStore) said(err error) error {
	if err != nil && !errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
		s.log.Error("can't write the raft log; is the disk full or broken?", "error", err)
	}
	return err
}
