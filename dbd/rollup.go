package dbd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"gbatch/dbd/usage"
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// rollup.go keeps sums of usage by hour, day and month, so that a report of a year needs no look at its jobs. A row has
// the sum of all records that have ended. It changes in the transaction that stores a record: the part of the version
// that is replaced is taken away. So there is nothing to recompute, and no row is ever behind; jobs that have not ended
// are added by the report itself (report.go).
//
//	usage/of/<properties>    -> number(4)
//	usage/name/<number(4)>   -> properties
//	usage/row/<table(1) hour(4) number(4)>  -> sum; hour is the span's first, in hours since 1970 (UTC)
//	usage/form               -> what is summed; rows of another form are made anew, as far as their records are there
//	usage/from               -> first hour(4) of the rows of this form; no record changes those before it any more
//	usage/mark               -> the last record, in the order of shelves and keys, that is in the rows; empty: all
//
// A database of before there were rows gets them bit by bit, between batches: a record that the mark has not reached is
// not in them, whatever happens to it.

var (
	keyUsage = []byte("usage")
	keyName  = []byte("name")
	keyRow   = []byte("row")
	keyMark  = []byte("mark")
	keyForm  = []byte("form")
	keyFrom  = []byte("from")
)

// rowsForm is what rows have: 2, licenses and energy too.
var rowsForm = []byte{2}

// The tables of rows.
const (
	tableHour    = 'h'
	tableDay     = 'd' // days of UTC
	tableMonth   = 'm' // months of UTC
	tableCluster = 'c' // by hour, of all jobs of a cluster
	tableWaiting = 'w' // by hour, what a cluster's jobs waited for
)

// rowKey names a row.
type rowKey struct {
	table  byte
	hour   uint32
	number uint32
}

func (k rowKey) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, k.table), k.hour)
	return binary.BigEndian.AppendUint32(b, k.number)
}

func hourOf(s usage.Second) uint32 { return uint32(min(max(0, s/usage.Hour), 1<<32-1)) }

// dayOf and monthStart give the first hour of the day or month (UTC) that has an hour.
func dayOf(hour uint32) uint32 { return hour / 24 * 24 }

func monthStart(hour uint32) uint32 {
	y, m, _ := time.Unix(int64(hour)*usage.Hour, 0).UTC().Date()
	return hourOf(time.Date(y, m, 1, 0, 0, 0, 0, time.UTC).Unix())
}

func monthEnd(hour uint32) uint32 {
	y, m, _ := time.Unix(int64(hour)*usage.Hour, 0).UTC().Date()
	return hourOf(time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC).Unix())
}

// rollup changes rows in one transaction.
type rollup struct {
	of, name, row *bolt.Bucket
	mark          []byte
	all           bool   // the mark is at the end
	from          uint32 // first hour of the rows that change
	numbers       map[usage.Of]uint32
	sums          map[rowKey]*usage.Sum
}

// maxRowHours bounds the hours that one record adds to: a hundred years.
const maxRowHours = 100 * 366 * 24

// openRollup opens the rows, and makes their buckets.
func openRollup(tx *bolt.Tx) (*rollup, error) {
	top, err := tx.CreateBucketIfNotExists(keyUsage)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(top.Get(keyForm), rowsForm) {
		if err := renewRows(tx, top); err != nil {
			return nil, err
		}
	}
	r := &rollup{numbers: map[usage.Of]uint32{}, sums: map[rowKey]*usage.Sum{}}
	if v := top.Get(keyFrom); len(v) == 4 {
		r.from = binary.BigEndian.Uint32(v)
	}
	for name, b := range map[string]**bolt.Bucket{"of": &r.of, "name": &r.name, "row": &r.row} {
		var err error
		if *b, err = top.CreateBucketIfNotExists([]byte(name)); err != nil {
			return nil, err
		}
	}
	r.mark = bytes.Clone(top.Get(keyMark))
	r.all = len(r.mark) == 0
	return r, nil
}

// renewRows drops the rows of another form that will be made anew. What is older than the oldest shelf stays: its
// records were purged.
func renewRows(tx *bolt.Tx, top *bolt.Bucket) error {
	mark, from := []byte{}, uint32(0)
	if shelf, _ := tx.Bucket(keyDone).Cursor().First(); shelf != nil {
		mark = []byte{0} // before every shelf
		if rows := top.Bucket(keyRow); rows != nil {
			month, err := time.Parse("2006-01", string(shelf))
			if err != nil {
				return fmt.Errorf("the records of month %q: %w", shelf, err)
			}
			from = hourOf(month.Unix())
			for _, table := range []byte{tableHour, tableDay, tableMonth, tableCluster, tableWaiting} {
				for n := purgeAtOnce; n == purgeAtOnce; {
					n = 0
					err := dropFrom(rows, rowKey{table, from, 0}.append(nil), &n, func(k []byte) bool { return k[0] == table })
					if err != nil {
						return err
					}
				}
			}
		}
	}
	return errors.Join(top.Put(keyFrom, binary.BigEndian.AppendUint32(nil, from)), top.Put(keyMark, mark),
		top.Put(keyForm, rowsForm))
}

// place gives the position of a record in the order in which the mark goes on.
func place(shelf string, r ref) []byte { return r.append(append([]byte(shelf), 0)) }

// has reports whether a record of a shelf is in the rows.
func (r *rollup) has(shelf string, of ref) bool {
	return shelf != liveShelf && (r.all || bytes.Compare(place(shelf, of), r.mark) <= 0)
}

// change adds a record that has ended to the rows, or takes it away (by -1).
func (r *rollup) change(rec *model.Record, by int64) error {
	of := usage.OfRecord(rec)
	from, to := usage.Run(rec)
	now := to + 1
	if from > 0 && (to-from)/usage.Hour < maxRowHours {
		number, err := r.number(&of)
		if err != nil {
			return err
		}
		cluster, err := r.number(&usage.Of{Cluster: of.Cluster})
		if err != nil {
			return err
		}
		span := func(table byte, number, first, next uint32) {
			s := usage.Within(rec, int64(first)*usage.Hour, int64(next)*usage.Hour, now)
			r.add(rowKey{table, first, number}, &s, by)
		}
		first, last := max(hourOf(from), r.from), hourOf(to)
		for h := first; h <= last; h++ {
			span(tableHour, number, h, h+1)
			span(tableCluster, cluster, h, h+1)
		}
		for h := dayOf(first); h <= last; h += 24 {
			span(tableDay, number, h, h+24)
		}
		for h := monthStart(first); h <= last; h = monthEnd(h) {
			span(tableMonth, number, h, monthEnd(h))
		}
	}
	if from, to = usage.Wait(rec); from > 0 && from < to && (to-from)/usage.Hour < maxRowHours {
		cluster, err := r.number(&usage.Of{Cluster: of.Cluster})
		if err != nil {
			return err
		}
		for h := max(hourOf(from), r.from); h <= hourOf(to); h++ {
			s := usage.Waiting(rec, int64(h)*usage.Hour, int64(h+1)*usage.Hour, now)
			r.add(rowKey{tableWaiting, h, cluster}, &s, by)
		}
	}
	return nil
}

func (r *rollup) add(k rowKey, s *usage.Sum, by int64) {
	if s.Zero() {
		return
	}
	sum := r.sums[k]
	if sum == nil {
		sum = &usage.Sum{}
		r.sums[k] = sum
	}
	sum.Add(s, by)
}

// number gives the number of properties, and a new one if they are new.
func (r *rollup) number(of *usage.Of) (uint32, error) {
	if n, ok := r.numbers[*of]; ok {
		return n, nil
	}
	key := usage.AppendOf(nil, of)
	var n uint32
	if v := r.of.Get(key); len(v) == 4 {
		n = binary.BigEndian.Uint32(v)
	} else {
		next, err := r.of.NextSequence()
		if err != nil {
			return 0, err
		}
		if next > 1<<32-1 {
			return 0, errors.New("there are no more numbers for rows of usage")
		}
		n = uint32(next)
		v := binary.BigEndian.AppendUint32(nil, n)
		if err := errors.Join(r.of.Put(key, v), r.name.Put(v, key)); err != nil {
			return 0, err
		}
	}
	r.numbers[*of] = n
	return n, nil
}

// save writes what was added.
func (r *rollup) save() error {
	keys := make([]rowKey, 0, len(r.sums))
	for k := range r.sums {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b rowKey) int { return bytes.Compare(a.append(nil), b.append(nil)) })
	r.row.FillPercent = fillPercent
	for _, k := range keys {
		s, key := r.sums[k], k.append(nil)
		if old := r.row.Get(key); old != nil {
			if err := s.AddBytes(old); err != nil {
				return fmt.Errorf("row %x: %w", key, err)
			}
		}
		var err error
		if s.Zero() {
			err = r.row.Delete(key)
		} else {
			err = r.row.Put(key, s.Append(nil))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ended gives the record of a row that has ended; nil if it has not, or can't be read.
func ended(h *head, record []byte) *model.Record {
	if !h.ended() {
		return nil
	}
	r := &model.Record{}
	if err := wire.Unmarshal(record, r); err != nil {
		return nil
	}
	if r.End == 0 { // a final state without an end
		r.End = h.end
	}
	return r
}

const (
	// rollPace is from one bit of an older database's rows to the next.
	rollPace = 20 * time.Millisecond
	// rollStep is how many records a bit has.
	rollStep = 2000
)

// rollSome adds the next records of an older database to the rows. done: there are no more.
func (w *writer) rollSome() (done bool, err error) {
	err = w.change(func() error {
		return w.bolt.Update(func(tx *bolt.Tx) error {
			r, err := openRollup(tx)
			if err != nil || r.all {
				done = true
				return err
			}
			var last []byte
			n := 0
			shelves := openShelves(tx).all
			slices.Reverse(shelves) // months in order
			for _, sh := range shelves {
				if sh.rec == nil || sh.name == liveShelf {
					continue
				}
				c := sh.rec.Cursor()
				var from []byte
				switch prefix := append([]byte(sh.name), 0); {
				case bytes.HasPrefix(r.mark, prefix):
					from = r.mark[len(prefix):]
				case bytes.Compare(r.mark, prefix) > 0:
					continue
				}
				for k, v := c.Seek(from); k != nil && n < rollStep; k, v = c.Next() {
					of, ok := lastRef(k)
					if !ok || bytes.Equal(k, from) {
						continue
					}
					n++
					last = place(sh.name, of)
					if h, record, ok := parseRow(v, of); ok {
						if rec := ended(&h, record); rec != nil {
							if err := r.change(rec, 1); err != nil {
								return err
							}
						}
					}
				}
				if n >= rollStep {
					break
				}
			}
			done = n < rollStep
			if done {
				last = []byte{}
			}
			if err := r.save(); err != nil {
				return err
			}
			return tx.Bucket(keyUsage).Put(keyMark, last)
		})
	})
	if errors.Is(err, errFull) {
		return false, nil
	}
	return done, err
}
