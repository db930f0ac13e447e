package dbd

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"gbatch/dbd/backup"
	"gbatch/internal/become"
	"gbatch/internal/boltcheck"
)

// This file owns what is done to database files while no gdbd runs: looking into a backup, putting one back, and
// compaction. A file that takes the place of another one is complete and on disk before, and the one that was there is
// kept under another name, or, after compaction, has the same content.

const (
	// compactTx is how many bytes of keys and values one transaction of the new file takes.
	compactTx = 64 << 20
	keptStamp = "20060102-150405"
)

// Progress is told how far a piece of work is; total 0: not known.
type Progress func(what string, done, total int64)

func (p Progress) of(what string) func(done, total int64) {
	return func(done, total int64) {
		if p != nil {
			p(what, done, total)
		}
	}
}

// VerifyBackup reads a whole backup: its checksum, every page of the database in it, and every record. It gives what
// the backup has.
func VerifyBackup(path string, progress Progress) (*backup.Header, error) {
	f, err := backup.Open(path)
	if err != nil {
		return nil, err
	}
	err = f.Check(nil, progress.of("reading"))
	if err == nil {
		err = verifyImage(path, f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return &f.Header, nil
}

// verifyImage looks into the database of a backup whose checksum is right.
func verifyImage(path string, f *backup.File) error {
	var c content
	head, err := boltcheck.Reader(f.Database(), f.Header.Bytes, c.entry)
	h := &f.Header
	switch {
	case err != nil:
	case head.Lost:
		err = errors.New("one of its head pages is damaged")
	case !c.format:
		err = errNoDatabase
	case c.jobs != h.Jobs || c.steps != h.Steps || c.unfinished != h.Unfinished || len(c.series) != len(h.Series):
		err = fmt.Errorf("it has %d records of jobs and %d of steps, and its head says %d and %d", c.jobs, c.steps, h.Jobs,
			h.Steps)
	}
	if err != nil {
		return &backup.DamagedError{Path: path, Why: "the database in it: " + err.Error()}
	}
	return nil
}

// Restored says what RestoreBackup has done.
type Restored struct {
	Header *backup.Header
	Path   string // of the database
	Kept   string // where the database that was there is now; "": there was none
}

// RestoreBackup puts a backup in the place of the database in dir, of which no gdbd may run. A backup of other clusters
// than cluster is refused, unless cluster is "". The file that was there is kept beside it.
func RestoreBackup(path, dir, cluster string, now time.Time, progress Progress) (*Restored, error) {
	f, err := backup.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it is only read
	if names := f.Header.Clusters(); cluster != "" && len(names) > 0 && !slices.Contains(names, cluster) {
		return nil, fmt.Errorf("%s is a backup of cluster %s, and the configuration here is that of cluster %s; give the "+
			"backup of %s, or name the other cluster's configuration with -f", path, strings.Join(names, ", "), cluster, cluster)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the database directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // nothing important was written to it
	at := filepath.Join(dir, fileName)
	fresh := at + ".restore"
	if err := writeOut(fresh, at, func(to io.Writer) error { return f.Check(to, progress.of("restoring")) }); err != nil {
		return nil, err
	}
	if err := verifyImage(path, f); err != nil {
		return nil, errors.Join(err, os.Remove(fresh))
	}
	r := &Restored{Header: &f.Header, Path: at}
	if _, err := os.Lstat(at); err == nil {
		r.Kept = at + ".before-" + now.Format(keptStamp)
		if err := os.Link(at, r.Kept); err != nil {
			return nil, fmt.Errorf("keeping the database that is there: %w", errors.Join(err, os.Remove(fresh)))
		}
	}
	return r, swap(fresh, at)
}

// writeOut writes a file that only this user can read, or that belongs to whom the file at like belongs, and syncs it.
func writeOut(path, like string, fill func(io.Writer) error) (err error) {
	if err := os.RemoveAll(path); err != nil { // of a try that was cut off
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = os.Remove(path) // it is not complete; err says why
		}
	}()
	if err := become.OwnAs(path, like); err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 1<<20)
	if err := fill(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return out.Sync()
}

// swap renames fresh to at and syncs the directory.
func swap(fresh, at string) error {
	if err := os.Rename(fresh, at); err != nil {
		return err
	}
	return syncDir(filepath.Dir(at))
}

// saveOffline writes a backup of the database in dir, of which no gdbd may run.
func saveOffline(ctx context.Context, dir, cluster string, w io.Writer) error {
	d, err := openOffline(dir)
	if err != nil {
		return err
	}
	err = d.save(ctx, cluster, w)
	return errors.Join(err, d.Close())
}

// openOffline opens the database of a gdbd that does not run. It makes none.
func openOffline(dir string) (*db, error) {
	if _, err := os.Stat(filepath.Join(dir, fileName)); err != nil {
		return nil, fmt.Errorf("looking for the accounting database: %w; --dir names its directory", err)
	}
	return openDB(dir, slog.New(slog.DiscardHandler), time.Now)
}

// Compacted says what CompactFile has done.
type Compacted struct {
	Path          string
	Before, After int64 // bytes
}

// CompactFile writes the database in dir, of which no gdbd may run, anew without the room that deleted records have
// left. The new file takes the place of the old one when both have been found to have the same content.
func CompactFile(dir string, progress Progress) (*Compacted, error) {
	d, err := openOffline(dir)
	if err != nil {
		return nil, err
	}
	c, err := compact(d, progress)
	if err = errors.Join(err, d.Close()); err != nil {
		return nil, err
	}
	return c, nil
}

func compact(d *db, progress Progress) (*Compacted, error) {
	fresh := d.path + ".compact"
	if err := os.RemoveAll(fresh); err != nil { // of a try that was cut off
		return nil, err
	}
	to, err := openBolt(fresh)
	if err != nil {
		return nil, err
	}
	to.NoSync = true // it is synced at the end
	progress.of("compacting")(0, 0)
	err = guard(func() error { return bolt.Compact(to, d.bolt, compactTx) })
	if err == nil {
		err = to.Sync()
	}
	err = errors.Join(err, to.Close())
	if err == nil {
		progress.of("comparing")(0, 0)
		err = sameContent(d.path, fresh)
	}
	if err == nil {
		err = become.OwnAs(fresh, d.path)
	}
	c := &Compacted{Path: d.path}
	if err == nil {
		c.Before, err = sizeOf(d.path)
	}
	if err == nil {
		c.After, err = sizeOf(fresh)
	}
	if err != nil {
		return nil, fmt.Errorf("compacting %s: %w (it is as it was)", d.path, errors.Join(err, os.RemoveAll(fresh)))
	}
	return c, swap(fresh, d.path)
}

func sizeOf(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// sameContent compares two database files, key by key.
func sameContent(a, b string) error {
	x, err := digest(a)
	if err != nil {
		return err
	}
	y, err := digest(b)
	if err != nil {
		return err
	}
	if x != y {
		return errors.New("the new file does not have the same content")
	}
	return nil
}

// digest gives a checksum of all buckets, keys and values of a file whose pages and records are whole.
func digest(path string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	var c content
	h := sha256.New()
	_, err = boltcheck.File(f, func(bucket string, key, value []byte) error {
		addPart(h, []byte(bucket))
		addPart(h, key)
		addPart(h, value)
		return c.entry(bucket, key, value)
	})
	if err = errors.Join(err, f.Close()); err != nil {
		return sum, err
	}
	if !c.format {
		return sum, errNoDatabase
	}
	h.Sum(sum[:0])
	return sum, nil
}

func addPart(h hash.Hash, b []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	h.Write(n[:])
	h.Write(b)
}
