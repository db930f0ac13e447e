package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// disk is raft's storage: log, votes, snapshots.
type disk struct {
	logs   raft.LogStore
	stable raft.StableStore
	snaps  raft.SnapshotStore
	close  func() error
	empty  bool // it has neither log nor snapshot
}

// openDisk opens Dir, or storage in memory if Dir is empty. Before anything is used, all of it is checked.
func openDisk(o Options, lg hclog.Logger) (*disk, error) {
	if o.Dir == "" {
		mem := raft.NewInmemStore()
		return &disk{logs: mem, stable: mem, snaps: raft.NewInmemSnapshotStore(), close: func() error { return nil },
			empty: true}, mem.Set(keyJoining, joiningYes)
	}
	snapDir := filepath.Join(o.Dir, snapshotsDir)
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
	f, err := checkDisk(o)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(o.Dir, logFileName)
	if f.fresh {
		if len(o.Peers) == 1 && !o.toBegin() {
			return nil, fmt.Errorf("this controller has no state in %s. If there should be some, is the disk mounted, is "+
				"StateSaveLocation right? To begin a new cluster, without jobs and accounts: gctld --begin, then start it", o.Dir)
		}
		if err := createLog(path, votes{}, true); err != nil {
			return nil, fmt.Errorf("making the raft log %s: %w", path, err)
		}
		f = found{seal: seal{first: 1}}
	}
	if f.old {
		if f, err = adopt(path, f, o.Logger); err != nil {
			return nil, err
		}
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(o.Dir, snapshotsKept, lg)
	if err != nil {
		return nil, fmt.Errorf("opening snapshots in %s: %w", o.Dir, err)
	}
	l, err := openLog(path, f, o.Logger, o.Broken)
	if err != nil {
		return nil, err
	}
	sealed := &sealedSnapshots{snaps, o.Dir, l}
	l.keep = sealed.oldestKept
	cached, err := raft.NewLogCache(cachedEntries, l)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	list, err := snaps.List()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &disk{logs: cached, stable: l, snaps: sealed, close: l.Close,
		empty: f.seal.last < f.seal.first && len(list) == 0}, nil
}

var joiningYes = []byte{1}

// joining reports whether the voter has not joined yet.
func (d *disk) joining() (bool, error) {
	v, err := d.stable.Get(keyJoining)
	// raft's own store in memory has an error of its own with the same text.
	if err != nil && err.Error() != raftboltdb.ErrKeyNotFound.Error() {
		return false, err
	}
	return err == nil && len(v) > 0, nil
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
