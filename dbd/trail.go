package dbd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	bolt "go.etcd.io/bbolt"

	"gbatch/dbd/usage"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/trail"
	"gbatch/internal/wire"
)

// trail.go keeps the audit trail, and what it says of nodes, reservations and the cluster's size, which reports need.
//
//	trail/<month>   time(8) series(2) seq(8)                    -> crc(4) model.Audit
//	outages         end(8) cluster\0 node\0 start(8)            -> crc(4) proto.Outage; end is openEnd while it goes on
//	sizes           cluster\0 start(8)                          -> crc(4) proto.Outage without a node
//	renames         time(8) cluster\0 seq(8)                    -> crc(4) model.Audit
//	reserved        cluster\0 name\0 start(8)                   -> crc(4) model.Audit
//
// Entries come in the order of their numbers, each once, as records do. Some change records (applyNotes).

var (
	keyTrail    = []byte("trail")
	keyOutages  = []byte("outages")
	keySizes    = []byte("sizes")
	keyReserved = []byte("reserved")
)

// openEnd is the end of what goes on.
const openEnd = 1<<64 - 1

// maxTrail bounds the entries of the trail; beyond it the oldest month goes, whatever the Purge keys say.
const maxTrail = 20_000_000

func sealed(x wire.Coder) ([]byte, error) {
	body, err := wire.Marshal(x)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, castagnoli)), body...), nil
}

// unseal reads what sealed wrote; false if it is damaged.
func unseal(v []byte, x wire.Coder) bool {
	return len(v) > 4 && binary.BigEndian.Uint32(v) == crc32.Checksum(v[4:], castagnoli) &&
		wire.Unmarshal(v[4:], x) == nil
}

func timeKey(b []byte, t model.Time) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(max(t, 0)))
}

// put stores x, and makes the bucket.
func putSealed(tx *bolt.Tx, bucket, key []byte, x wire.Coder) error {
	b, err := tx.CreateBucketIfNotExists(bucket)
	if err != nil {
		return err
	}
	v, err := sealed(x)
	if err != nil {
		return err
	}
	return b.Put(key, v)
}

// keepAudit stores one entry of the trail.
func keepAudit(tx *bolt.Tx, cluster string, e *entry) error {
	a := e.audit
	top, err := tx.CreateBucketIfNotExists(keyTrail)
	if err != nil {
		return err
	}
	month, err := top.CreateBucketIfNotExists([]byte(monthOf(a.At)))
	if err != nil {
		return err
	}
	v, err := sealed(a)
	if err != nil {
		return fmt.Errorf("encoding an entry of the trail: %w", err)
	}
	key := binary.BigEndian.AppendUint16(timeKey(nil, clampTime(a.At)), e.ref.series)
	if err := month.Put(binary.BigEndian.AppendUint64(key, e.seq), v); err != nil {
		return err
	}
	switch a.What {
	case trail.Node:
		if a.Event == trail.NodeDown || a.Event == trail.NodeDrain || a.Event == trail.NodeUp {
			return keepOutage(tx, cluster, a)
		}
	case trail.Account:
		if a.Renamed != "" {
			return keepRename(tx, cluster, e)
		}
	case trail.Cluster:
		return putSealed(tx, keySizes, timeKey(append([]byte(cluster), 0), a.At),
			&proto.Outage{Cluster: cluster, Start: a.At, TRES: a.TRES})
	case trail.Reservation:
		if a.Event == trail.Reserved || a.Event == trail.ReservationOver {
			return keepReserved(tx, cluster, a)
		}
	}
	return nil
}

func outageKey(end uint64, cluster, node string) []byte {
	b := binary.BigEndian.AppendUint64(nil, end)
	return append(append(append(append(b, cluster...), 0), node...), 0)
}

// keepOutage ends the outage of a node that goes on, and begins the next one.
func keepOutage(tx *bolt.Tx, cluster string, a *model.Audit) error {
	b, err := tx.CreateBucketIfNotExists(keyOutages)
	if err != nil {
		return err
	}
	prefix := outageKey(openEnd, cluster, a.Name)
	if k, v := b.Cursor().Seek(prefix); bytes.HasPrefix(k, prefix) {
		var o proto.Outage
		known := unseal(v, &o)
		if err := b.Delete(bytes.Clone(k)); err != nil {
			return err
		}
		if known && o.Start < a.At {
			o.End = a.At
			key := timeKey(outageKey(uint64(a.At), cluster, a.Name), o.Start)
			if err := putSealed(tx, keyOutages, key, &o); err != nil {
				return err
			}
		}
	}
	if a.State == "" {
		return nil
	}
	return putSealed(tx, keyOutages, timeKey(prefix, a.At), &proto.Outage{Cluster: cluster, Node: a.Name, Start: a.At,
		State: a.State, Reason: a.Text, By: a.By, TRES: a.TRES})
}

// keepReserved keeps a reservation as it is from now on. What it was until now stays, if it had begun.
func keepReserved(tx *bolt.Tx, cluster string, a *model.Audit) error {
	b, err := tx.CreateBucketIfNotExists(keyReserved)
	if err != nil {
		return err
	}
	prefix := append(append(append([]byte(cluster), 0), a.Name...), 0)
	var lastKey []byte
	var last model.Audit
	c := b.Cursor()
	for k, v := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, v = c.Next() {
		var r model.Audit
		if unseal(v, &r) {
			lastKey, last = bytes.Clone(k), r
		}
	}
	n := *a
	if lastKey != nil && last.End > a.At {
		same := !a.Gone && last.Start == a.Start && last.Maint == a.Maint && slices.Equal(last.TRES, a.TRES) &&
			last.Nodes == a.Nodes
		switch {
		case last.Start >= a.At || same:
			err = b.Delete(lastKey)
		default:
			last.End = a.At
			n.Start = max(n.Start, a.At)
			err = putSealed(tx, keyReserved, lastKey, &last)
		}
		if err != nil {
			return err
		}
	}
	if a.Gone || n.Start >= n.End {
		return nil
	}
	return putSealed(tx, keyReserved, timeKey(prefix, n.Start), &n)
}

// Keep says how long gdbd keeps what is not jobs' records, in seconds; 0: for ever.
type Keep struct {
	TrailS, EventsS, UsageS, ResvsS int64
}

// purgeTrail forgets what is too old, in one transaction for each kind, and the oldest months of a trail that is too
// long. It gives how many entries it has forgotten.
func purgeTrail(tx *bolt.Tx, keep *Keep, now model.Time) (n int, err error) {
	since := func(s int64) model.Time { return now - model.Time(s)*1000 }
	if top := tx.Bucket(keyTrail); top != nil {
		entries := 0
		each := map[string]int{}
		if err := top.ForEachBucket(func(name []byte) error {
			each[string(name)] = top.Bucket(name).Stats().KeyN
			entries += each[string(name)]
			return nil
		}); err != nil {
			return n, err
		}
		for {
			name, _ := top.Cursor().First()
			old := name != nil && keep.TrailS > 0 && string(name) < monthOf(since(keep.TrailS))
			if name == nil || !old && entries <= maxTrail {
				break
			}
			month := string(name)
			entries -= each[month]
			n += each[month]
			if err := top.DeleteBucket([]byte(month)); err != nil {
				return n, err
			}
		}
		if name, _ := top.Cursor().First(); name != nil && keep.TrailS > 0 {
			b := top.Bucket(name)
			if err := dropWhile(b, &n, func(k []byte) bool {
				return len(k) >= 8 && model.Time(binary.BigEndian.Uint64(k)) < since(keep.TrailS)
			}); err != nil {
				return n, err
			}
		}
	}
	if b := tx.Bucket(keyOutages); b != nil && keep.EventsS > 0 {
		if err := dropWhile(b, &n, func(k []byte) bool {
			return len(k) >= 8 && binary.BigEndian.Uint64(k) < uint64(max(since(keep.EventsS), 0))
		}); err != nil {
			return n, err
		}
	}
	if b := tx.Bucket(keyReserved); b != nil && keep.ResvsS > 0 {
		var old [][]byte
		if err := b.ForEach(func(k, v []byte) error {
			var a model.Audit
			if len(old) < purgeAtOnce && (!unseal(v, &a) || a.End < since(keep.ResvsS)) {
				old = append(old, bytes.Clone(k))
			}
			return nil
		}); err != nil {
			return n, err
		}
		for _, k := range old {
			if err := b.Delete(k); err != nil {
				return n, err
			}
			n++
		}
	}
	if top := tx.Bucket(keyUsage); top != nil && keep.UsageS > 0 {
		rows, limit := top.Bucket(keyRow), hourOf(int64(since(keep.UsageS))/1000)
		for _, table := range []byte{tableHour, tableDay, tableMonth, tableCluster, tableWaiting} {
			if err := dropFrom(rows, []byte{table}, &n, func(k []byte) bool {
				return len(k) >= 5 && k[0] == table && binary.BigEndian.Uint32(k[1:]) < limit
			}); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// purgeAtOnce bounds the entries of one kind that one purge forgets; the next one goes on.
const purgeAtOnce = 200_000

func dropWhile(b *bolt.Bucket, n *int, old func(k []byte) bool) error {
	return dropFrom(b, nil, n, old)
}

// dropFrom deletes the entries from a key on as long as they are old.
func dropFrom(b *bolt.Bucket, from []byte, n *int, old func(k []byte) bool) error {
	var list [][]byte
	c := b.Cursor()
	for k, _ := c.Seek(from); k != nil && old(k) && len(list) < purgeAtOnce; k, _ = c.Next() {
		list = append(list, bytes.Clone(k))
	}
	for _, k := range list {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	*n += len(list)
	return nil
}

// What was recorded of users who have another name since (gacctmgr modify user set newname=) is shown under the new
// one. Records stay as they are: the names are looked up when they are read, since a user can have any number of
// them, and a node that reports late sends the old name again.

var keyRenames = []byte("renames")

func keepRename(tx *bolt.Tx, cluster string, e *entry) error {
	key := append(append(timeKey(nil, clampTime(e.audit.At)), cluster...), 0)
	return putSealed(tx, keyRenames, binary.BigEndian.AppendUint64(key, e.seq), e.audit)
}

// renames are changes of users' names, in order of time.
type renames []rename

type rename struct {
	cluster, from, to string
	at                model.Time
}

func renamesOf(tx *bolt.Tx) (out renames) {
	scanSealed(tx, keyRenames, nil, func(k []byte, a *model.Audit) bool {
		if cluster, _, ok := bytes.Cut(k[min(8, len(k)):], []byte{0}); ok {
			out = append(out, rename{string(cluster), a.Name, a.Renamed, a.At})
		}
		return true
	})
	return out
}

// now gives the present name of the user who had a name at a moment.
func (n renames) now(cluster, user string, at model.Time) string {
	for i := range n {
		if r := &n[i]; r.from == user && at < r.at && r.cluster == cluster {
			user = r.to
		}
	}
	return user
}

// later gives how many users got another name after a moment.
func (n renames) later(at model.Time) (count int) {
	for i := range n {
		if at < n[i].at {
			count++
		}
	}
	return count
}

// within reports whether a user got another name in the hours [from, to), but for their first moment.
func (n renames) within(from, to uint32) bool {
	first := model.Time(int64(from) * usage.Hour * 1000)
	return slices.ContainsFunc(n, func(r rename) bool {
		return first < r.at && r.at < model.Time(int64(to)*usage.Hour*1000)
	})
}

// record gives a job's record with the user's present name.
func (n renames) record(record []byte) []byte {
	named := false
	for i := range n {
		named = named || bytes.Contains(record, []byte(n[i].from))
	}
	var r model.Record
	if !named || wire.Unmarshal(record, &r) != nil {
		return record
	}
	name := n.now(r.Cluster, r.User, r.Submit)
	if name == r.User {
		return record
	}
	r.User = name
	if out, err := wire.Marshal(&r); err == nil {
		return out
	}
	return record
}
