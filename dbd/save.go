package dbd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	bolt "go.etcd.io/bbolt"

	"gbatch/dbd/backup"
	"gbatch/internal/version"
)

// This file owns making a backup: the database as it is in one read transaction, so that it has every record up to the
// numbers in its head and none after, while records go on arriving. The transaction is open for as long as the backup
// is written, and pages written since can't be used again until then: the file grows by what arrives meanwhile. A
// reader that takes less than rpc.MinRate loses the connection.

// save writes a backup to w.
func (d *db) save(ctx context.Context, cluster string, w io.Writer) error {
	return d.view(func(tx *bolt.Tx) error {
		h := headerOf(tx, cluster, d.now())
		out, err := backup.NewWriter(w, h)
		if err != nil {
			return err
		}
		if _, err := tx.WriteTo(&untilDone{ctx, out}); err != nil {
			return fmt.Errorf("saving the accounting database: %w", err)
		}
		return out.Close()
	})
}

// headerOf describes the database in a transaction.
func headerOf(tx *bolt.Tx, cluster string, now time.Time) *backup.Header {
	h := &backup.Header{Cluster: cluster, Version: version.Version, At: now.UTC().Truncate(time.Second), Bytes: tx.Size()}
	for _, s := range openShelves(tx).all {
		if s.rec == nil {
			continue
		}
		n := int64(s.rec.Stats().KeyN)
		h.Jobs += n
		if s.name == liveShelf {
			h.Unfinished += n
		}
	}
	if top := tx.Bucket(keySteps); top != nil {
		_ = top.ForEachBucket(func(month []byte) error { // the function returns no error
			h.Steps += int64(top.Bucket(month).Stats().KeyN)
			return nil
		})
	}
	h.Series = seriesIn(tx)
	return h
}

// standing gives where each history stands.
func (d *db) standing() (out []backup.Series, err error) {
	err = d.view(func(tx *bolt.Tx) error {
		out = seriesIn(tx)
		return nil
	})
	return out, err
}

// seriesIn lists where each history stands.
func seriesIn(tx *bolt.Tx) (out []backup.Series) {
	known := tx.Bucket(keySeries)
	_ = known.ForEach(func(k, _ []byte) error { // the function returns no error
		if s, ok := seriesOf(known, k); ok {
			out = append(out, s)
		}
		return nil
	})
	return out
}

func seriesOf(known *bolt.Bucket, key []byte) (backup.Series, bool) {
	s, ok := knownSeries(known, string(key))
	name, instance, cut := bytes.Cut(key, []byte{0})
	if !ok || !cut || len(instance) != 8 {
		return backup.Series{}, false
	}
	return backup.Series{Cluster: string(name), Instance: binary.BigEndian.Uint64(instance), Seq: s.seq, Era: s.era}, true
}

// untilDone fails when its context has ended.
type untilDone struct {
	context.Context
	to io.Writer
}

func (u *untilDone) Write(p []byte) (int, error) {
	if err := u.Err(); err != nil {
		return 0, context.Cause(u)
	}
	return u.to.Write(p)
}

// content is what a database file has, counted while boltcheck goes through it. Each record's checksum is checked.
type content struct {
	jobs, unfinished, steps int64
	format                  bool
	series                  []string // keys
}

// entry takes one key and value (boltcheck.Entry).
func (c *content) entry(bucket string, key, value []byte) error {
	parts := splitBucket(bucket)
	switch {
	case bucket == string(keyMeta) && string(key) == string(keyFormat):
		if string(value) != formatName {
			return fmt.Errorf("it has the format %q, this gdbd knows %q", value, formatName)
		}
		c.format = true
	case bucket == string(keySeries):
		c.series = append(c.series, string(key))
	case parts[0] == string(keySteps):
		if !rowIsWhole(key[:min(refLen, len(key))], value) {
			return errors.New("the checksum of a step's record is wrong")
		}
		c.steps++
	case parts[1] == string(keyRec):
		if !rowIsWhole(key, value) {
			return errors.New("the checksum of a job's record is wrong")
		}
		c.jobs++
		if parts[0] == string(keyLive) {
			c.unfinished++
		}
	}
	return nil
}

// splitBucket gives the first and the last name of a bucket's path.
func splitBucket(path string) [2]string {
	first, last := path, ""
	for i := range len(path) {
		if path[i] == '/' {
			if last == "" {
				first = path[:i]
			}
			last = path[i+1:]
		}
	}
	return [2]string{first, last}
}

func rowIsWhole(key, row []byte) bool {
	r, ok := lastRef(key)
	if !ok {
		return false
	}
	_, _, ok = parseRow(row, r)
	return ok
}

// errNoDatabase says that a bbolt file is something else.
var errNoDatabase = errors.New("it is no accounting database")
