package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/crc64"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"
)

// Raft keeps a snapshot in a folder "term-index-milliseconds" with state.bin and meta.json, which has a checksum of
// the first but none of itself. sumFile has one of meta.json.
const (
	snapshotsDir = "snapshots"
	metaFile     = "meta.json"
	stateFile    = "state.bin"
	sumFile      = "meta.crc32c"
	maxMetaBytes = 1 << 20
)

// badSnapshot is a snapshot that can't be used.
type badSnapshot struct {
	name  string
	index uint64 // of its name, 0 if unreadable
	err   error
}

// checkSnapshots reads all snapshots. The good ones' indexes come newest first.
func checkSnapshots(dir string) (good []uint64, bad []badSnapshot, err error) {
	es, err := os.ReadDir(filepath.Join(dir, snapshotsDir))
	if err != nil {
		return nil, nil, err
	}
	for _, e := range es {
		if !e.IsDir() || strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		index, err := checkSnapshot(filepath.Join(dir, snapshotsDir, e.Name()))
		if err != nil {
			bad = append(bad, badSnapshot{e.Name(), index, err})
		} else {
			good = append(good, index)
		}
	}
	slices.Sort(good)
	slices.Reverse(good)
	return good, bad, nil
}

// checkSnapshot checks one snapshot and gives its index, as far as its name has it also with an error.
func checkSnapshot(dir string) (index uint64, err error) {
	name := filepath.Base(dir)
	if parts := strings.Split(name, "-"); len(parts) == 3 {
		index, _ = strconv.ParseUint(parts[1], 10, 64) // 0 if it is none: the comparison below refuses it
	}
	b, err := readLimited(filepath.Join(dir, metaFile), maxMetaBytes)
	if err != nil {
		return index, err
	}
	var meta struct {
		raft.SnapshotMeta
		CRC []byte
	}
	if err := json.Unmarshal(b, &meta); err != nil {
		return index, fmt.Errorf("%s: %w", metaFile, err)
	}
	if meta.ID != name || !strings.HasPrefix(name, fmt.Sprintf("%d-%d-", meta.Term, meta.Index)) {
		return index, fmt.Errorf("%s is of snapshot %q, entry %d of term %d", metaFile, meta.ID, meta.Index, meta.Term)
	}
	sum, err := os.ReadFile(filepath.Join(dir, sumFile))
	switch {
	case errors.Is(err, os.ErrNotExist): // of an old version, or a crash came in between
	case err != nil:
		return index, err
	case !bytes.Equal(sum, metaSum(b)):
		return index, fmt.Errorf("the checksum of %s is wrong", metaFile)
	}
	f, err := os.Open(filepath.Join(dir, stateFile))
	if err != nil {
		return index, err
	}
	h := crc64.New(crc64.MakeTable(crc64.ECMA))
	n, err := io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 1<<20))
	if err := errors.Join(err, f.Close()); err != nil {
		return index, err
	}
	if n != meta.Size {
		return index, fmt.Errorf("%s has %d bytes and should have %d", stateFile, n, meta.Size)
	}
	if !bytes.Equal(h.Sum(nil), meta.CRC) {
		return index, fmt.Errorf("the checksum of %s is wrong", stateFile)
	}
	return index, nil
}

func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return b, nil
}

func metaSum(b []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, crc32.Checksum(b, castagnoli))
}

// sealedSnapshots is raft's store of snapshots. It closes each one's files to others, which raft leaves to the
// directory, adds a checksum of meta.json to each, and notes it in the log's seal.
type sealedSnapshots struct {
	raft.SnapshotStore
	dir string
	log *logFile
}

// Create begins a snapshot.
func (s *sealedSnapshots) Create(v raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64,
	t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(v, index, term, conf, confIndex, t)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, snapshotsDir, sink.ID()+".tmp") // meta.json keeps its mode when it is written again
	for _, name := range []string{metaFile, stateFile} {
		if err := os.Chmod(filepath.Join(dir, name), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("closing a snapshot to others: %w", err), sink.Cancel())
		}
	}
	return &sealedSink{sink, s, index}, nil
}

type sealedSink struct {
	raft.SnapshotSink
	store *sealedSnapshots
	index uint64
}

// Close completes the snapshot.
func (s *sealedSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	dir := filepath.Join(s.store.dir, snapshotsDir, s.ID())
	b, err := readLimited(filepath.Join(dir, metaFile), maxMetaBytes)
	if err == nil {
		err = writeWhole(filepath.Join(dir, sumFile), metaSum(b))
	}
	if err != nil {
		return fmt.Errorf("writing the checksum of a snapshot: %w", err)
	}
	return s.store.log.snapshotDone(s.index)
}

// writeWhole writes a small file: after a crash it is there as a whole or not at all.
func writeWhole(path string, b []byte) error {
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// oldestKept gives the index of the oldest of the snapshots that are kept, 0 if there are not yet so many: until then
// the whole log is kept.
func (s *sealedSnapshots) oldestKept() uint64 {
	list, err := s.List()
	if err != nil || len(list) < snapshotsKept {
		return 0
	}
	return list[len(list)-1].Index
}
