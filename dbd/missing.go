package dbd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"gbatch/dbd/backup"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// This file owns what gdbd knows of records that it should have and has not. The controller says up to which number a
// gdbd has acknowledged records (Put.Acked), and up to which it can't send them again (Put.Dropped).
//
// A database that has nothing of a history with acknowledged records is not the one that acknowledged them: it is lost,
// or its disk is not mounted. Its records are refused, and queries too, until a person restores a backup or says that
// it is to begin empty; they wait in the controller. A database that has a part of them is a restored backup: the
// controller sends again what it keeps, and what lies between is a hole. Holes are kept for good, so that nobody takes
// what is left for everything.
//
//	meta/begin                    when it was allowed to begin empty(8, ms); deleted by its use
//	missing/series(2) from(8)     to(8) noticed at(8, ms)

var (
	keyBegin   = []byte("begin")
	keyMissing = []byte("missing")
)

// maxHoles bounds the holes that are kept; more of them become one.
const maxHoles = 64

// allowEmpty makes a database take the next history of which it has nothing.
func allowEmpty(tx *bolt.Tx, now time.Time) error {
	return tx.Bucket(keyMeta).Put(keyBegin, binary.BigEndian.AppendUint64(nil, uint64(now.UnixMilli())))
}

// LostError says that the database is not the one that acknowledged records.
type LostError struct {
	Path, Cluster  string
	Other          string // address of another gdbd; "": there is none
	Acked, Dropped uint64
	Have           []string // the clusters that it has records of
}

func (e *LostError) Error() string {
	have := ""
	if len(e.Have) > 0 {
		have = fmt.Sprintf(" (it has those of cluster %s: see that ClusterName is right)", strings.Join(e.Have, ", "))
	}
	rest := "the controller still has all of them and sends them again"
	if e.Dropped > 0 {
		rest = fmt.Sprintf("the controller sends again what it still has, from number %d on", e.Dropped+1)
	}
	if e.Other != "" {
		rest += "; as soon as the other gdbd at " + e.Other + " answers, its database is copied here"
	}
	return fmt.Sprintf("the accounting database %s has no records of cluster %s%s, which is not new: %d of its "+
		"records were "+
		"acknowledged. If a disk is not mounted, mount it and start gdbd again. If the database is lost, put a backup "+
		"in its "+
		"place with gdbd stopped (gbatch backup restore FILE), or begin empty on purpose (gbatch backup begin-empty); "+
		"%s. "+
		"Until then records wait in the controller", e.Path, e.Cluster, have, e.Acked, rest)
}

// BehindError says that records are missing here which the controllers no longer have, and another gdbd may have.
type BehindError struct {
	Path, Cluster, Other string
	From, To             uint64
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("the accounting database %s lacks records %d to %d of cluster %s, which the controllers no longer "+
		"have, and takes a copy of the other gdbd's at %s. If that one is lost for good, give gbatch backup "+
		"begin-empty: they are then missing. Until then records wait in the controller",
		e.Path, e.From, e.To, e.Cluster, e.Other)
}

// clustersIn names the clusters of which there are records.
func clustersIn(tx *bolt.Tx) []string {
	series, err := seriesNumbers(tx)
	if err != nil {
		return nil // it is only for a sentence
	}
	return slices.Compact(slices.Sorted(maps.Values(series)))
}

// admit decides about a batch of a history of which known says whether it is on record, at s. It gives the error with
// which the batch is refused, and notes a hole. changed says that something was written.
func (d *db) admit(tx *bolt.Tx, b *pending, s series, known bool) (refusal error, changed bool, err error) {
	if b.acked > 0 && !known {
		meta := tx.Bucket(keyMeta)
		if meta.Get(keyBegin) == nil {
			return d.isWithout(&LostError{d.path, b.cluster, d.other, b.acked, b.dropped, clustersIn(tx)}), false, nil
		}
		if err := meta.Delete(keyBegin); err != nil {
			return nil, false, err
		}
		d.log.Warn("the accounting database begins empty, as was asked, under a cluster that is not new", "cluster",
			b.cluster, "acknowledged before", b.acked, "missing for good up to", b.dropped)
		changed = true
	}
	if s.seq >= b.dropped {
		return nil, changed, nil
	}
	if meta := tx.Bucket(keyMeta); d.other != "" && !changed {
		if meta.Get(keyBegin) == nil {
			return d.isBehind(&BehindError{d.path, b.cluster, d.other, s.seq + 1, b.dropped}), false, nil
		}
		if err := meta.Delete(keyBegin); err != nil {
			return nil, false, err
		}
		changed = true
	}
	fresh, err := noteHole(tx, s, b.dropped, d.now())
	if fresh {
		d.log.Error("accounting records are missing for good: a database of before they came was put in place, and the "+
			"controller does not keep them any more", "cluster", b.cluster, "from number", s.seq+1, "to", b.dropped)
	}
	return nil, changed || fresh, err
}

// isWithout notes that this is not the database that acknowledged records.
func (d *db) isWithout(e *LostError) error {
	if d.isLost.Swap(e) == nil {
		d.log.Error("accounting records are refused: " + e.Error())
	}
	if d.want != nil {
		d.want(e)
	}
	return e
}

// isBehind notes that records are missing here.
func (d *db) isBehind(e *BehindError) error {
	if d.lag.Swap(e) == nil {
		d.log.Error("accounting records are refused: " + e.Error())
	}
	d.want(e)
	return e
}

// noteHole keeps that the records of a history after s.seq up to to are missing. fresh: it was not known.
func noteHole(tx *bolt.Tx, s series, to uint64, now time.Time) (fresh bool, err error) {
	holes, err := tx.CreateBucketIfNotExists(keyMissing)
	if err != nil {
		return false, err
	}
	key := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint16(nil, s.number), s.seq+1)
	if old := holes.Get(key); len(old) == 16 && binary.BigEndian.Uint64(old) >= to {
		return false, nil
	}
	if holes.Get(key) == nil && holes.Stats().KeyN >= maxHoles {
		return false, nil // the log has it
	}
	value := binary.BigEndian.AppendUint64(nil, to)
	return true, holes.Put(key, binary.BigEndian.AppendUint64(value, uint64(now.UnixMilli())))
}

// notes says what administrators have to know of the database.
func notes(tx *bolt.Tx, clusters map[uint16]string) (out []string) {
	if at := tx.Bucket(keyMeta).Get(keyBegin); len(at) == 8 {
		out = append(out, fmt.Sprintf("since %s it may begin empty under a cluster that is not new", when(at)))
	}
	holes := tx.Bucket(keyMissing)
	if holes == nil {
		return out
	}
	_ = holes.ForEach(func(k, v []byte) error { // the function returns no error
		if len(k) == 10 && len(v) == 16 {
			from, to := binary.BigEndian.Uint64(k[2:]), binary.BigEndian.Uint64(v)
			out = append(out, fmt.Sprintf("up to %d accounting records of cluster %s (numbers %d to %d) are missing for "+
				"good: "+
				"they were lost with a database, as was noticed "+
				"%s", to-from+1, clusters[binary.BigEndian.Uint16(k)], from, to,
				when(v[8:])))
		}
		return nil
	})
	return out
}

// holes lists what is missing for good.
func (d *db) holes() (out []proto.DbdHole, err error) {
	err = d.view(func(tx *bolt.Tx) error {
		out = holesIn(tx)
		return nil
	})
	return out, err
}

func holesIn(tx *bolt.Tx) (out []proto.DbdHole) {
	holes, known := tx.Bucket(keyMissing), tx.Bucket(keySeries)
	if holes == nil {
		return nil
	}
	names := map[uint16]backup.Series{}
	_ = known.ForEach(func(k, _ []byte) error { // the function returns no error
		if s, ok := knownSeries(known, string(k)); ok {
			names[s.number], _ = seriesOf(known, k)
		}
		return nil
	})
	_ = holes.ForEach(func(k, v []byte) error { // the function returns no error
		if s, ok := names[binary.BigEndian.Uint16(k)]; ok && len(k) == 10 && len(v) == 16 && len(out) < model.MaxList {
			out = append(out, proto.DbdHole{Cluster: s.Cluster, Instance: s.Instance, From: binary.BigEndian.Uint64(k[2:]),
				To: binary.BigEndian.Uint64(v)})
		}
		return nil
	})
	return out
}

// when writes a moment of the database.
func when(ms []byte) string {
	return time.UnixMilli(int64(min(binary.BigEndian.Uint64(ms), uint64(maxTime)))).Format("2006-01-02T15:04:05")
}

// lost gives the error of a database that is not the one that acknowledged records, or nil.
func (d *db) lost() error {
	if e := d.isLost.Load(); e != nil {
		return e
	}
	if d.heard.Load() {
		return nil
	}
	empty := false
	if err := d.view(func(tx *bolt.Tx) error {
		k, _ := tx.Bucket(keySeries).Cursor().First()
		empty = k == nil
		return nil
	}); err != nil {
		return err
	}
	if empty {
		return errNotHeard
	}
	d.heard.Store(true)
	return nil
}

// errNotHeard is of an empty database before a controller has said whether its cluster is new: an empty answer might be
// wrong.
var errNotHeard = rpc.Errorf(proto.CodeNoAccounting, "the accounting daemon has begun with an empty database, and no "+
	"controller has said yet whether the cluster is new; try again in a moment")

const (
	hearsWithin = 3 * time.Second // for a controller's first word; it tries to send records at once
	hearPace    = 20 * time.Millisecond
)

// lost is of the database, and waits a moment for a controller to say that an empty one is of a new cluster. A copy
// does not wait: the other gdbd may know.
func (d *Daemon) lost(ctx context.Context) error {
	for end := time.Now().Add(hearsWithin); ; {
		err := d.db.lost()
		if err == nil || !errors.Is(err, errNotHeard) || d.follow != nil || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(hearPace):
		case <-ctx.Done():
			return err
		}
	}
}
