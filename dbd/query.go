package dbd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	bolt "go.etcd.io/bbolt"

	"gbatch/internal/proto"
)

// This file owns reading. A query goes through the shelves, the live one first and then the months from the latest
// back. In each shelf it chooses the index ranges that can have matching records, reads them and remembers the refs of
// the records that fit; at the end it gives these records in order. It works in pages, each with its own read
// transaction, and none is open while a slow reader takes its answer: an open transaction would keep every page written
// since from being used again.
//
// Between pages, records change. A record only moves from the live shelf to a month, and a shelf's ranges are chosen
// when its turn comes, so no record is missed; a record seen in both places is given once, in its present version.

const (
	// scanPage is how many index entries one transaction looks at.
	scanPage = 8192
	// maxHits bounds the records of one answer; each takes 12 bytes while the answer is made.
	maxHits = 4 << 20
	// maxQueries bounds the queries that scan; further ones wait on their connections. A query gives its slot back
	// before it sends its answer, so a slow reader keeps no other query waiting.
	maxQueries = 4
	// maxHeld bounds the hits of all answers that are being read.
	maxHeld = 16 << 20
	// maxUserScopes is the number of users up to which the users' index is better than the window's.
	maxUserScopes = 100
	// maxChunkBytes ends a chunk of the answer before proto.ChunkJobs if records are large.
	maxChunkBytes = 1 << 20
)

// hit is a record that fits, with the index of its shelf among the query's shelves.
type hit struct {
	ref
	shelf uint16
}

// scope is a range of keys in one index of a shelf; to is not part of it, nil is no bound.
type scope struct {
	index    []byte
	from, to []byte
}

// query gives emit the records that fit req as stored (msgpack), in order of job and attempt, in chunks of at most
// proto.ChunkJobs. A chunk is valid until emit returns.
func (d *db) query(ctx context.Context, req *proto.AcctRequest, emit func(records [][]byte) error) error {
	return d.queryWith(ctx, req, func(records [][]byte, _ []string) error { return emit(records) })
}

// queryWith is query whose chunks also have the records' summaries, if the request asks for them.
func (d *db) queryWith(ctx context.Context, req *proto.AcctRequest,
	emit func(records [][]byte, summaries []string) error) error {
	return d.queryAs(ctx, req, nil, emit)
}

// queryAs is queryWith for a user who may not see everything; nil may.
func (d *db) queryAs(ctx context.Context, req *proto.AcctRequest, see *eye,
	emit func(records [][]byte, summaries []string) error) error {
	f, err := newFilter(req)
	if err != nil {
		return err
	}
	f.seenBy(see)
	hits, err := d.find(ctx, f)
	if err != nil {
		return err
	}
	held := int64(len(hits.list))
	if d.held.Add(held) > maxHeld {
		d.held.Add(-held)
		return &BusyError{}
	}
	defer d.held.Add(-held)
	return d.give(ctx, f, hits, req, emit)
}

// find scans for the records that fit, in order.
func (d *db) find(ctx context.Context, f *filter) (*hits, error) {
	select {
	case d.querying <- struct{}{}:
		defer func() { <-d.querying }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	q := &query{db: d, filter: f}
	if err := q.scan(ctx); err != nil {
		return nil, err
	}
	if err := q.order(); err != nil {
		return nil, err
	}
	return &q.hits, nil
}

// BusyError says that there are too many queries: try again later.
type BusyError struct{}

func (*BusyError) Error() string {
	return "the accounting daemon holds too many large answers that are still being read; try again in a moment or ask " +
		"for a shorter time"
}

// hits are the records that fit, and the shelves that they refer to.
type hits struct {
	list    []hit
	shelves []string
}

// query is a query in progress.
type query struct {
	*db
	*filter
	hits           // the last of its shelves is being scanned
	scopes []scope // ranges of that shelf that are not scanned yet
	looked int     // index entries looked at

	each func(row []byte, r ref) // nil: what fits is put into the list; the row is valid in its transaction
}

// scan visits all shelves.
func (q *query) scan(ctx context.Context) error {
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := q.view(func(tx *bolt.Tx) (err error) {
			done, err = q.scanSome(tx)
			return err
		})
		if err != nil {
			return err
		}
		if len(q.list) > maxHits {
			return badRequest("more than %d records fit; ask for a shorter time (-S, -E) or for fewer users", maxHits)
		}
	}
	return nil
}

// scanSome scans for one transaction.
func (q *query) scanSome(tx *bolt.Tx) (done bool, err error) {
	all := openShelves(tx)
	for left := scanPage; left > 0; {
		if len(q.scopes) == 0 {
			if done, err = q.nextShelf(tx, all); done || err != nil {
				return done, err
			}
			left-- // an empty shelf has a cost too
			continue
		}
		left = q.scanScope(all, left)
	}
	return false, nil
}

// nextShelf moves to the next shelf that can have matching records and chooses its ranges.
func (q *query) nextShelf(tx *bolt.Tx, all *shelves) (done bool, err error) {
	var sh *shelf
	switch n := len(q.shelves); {
	case n == 0:
		sh = all.get(liveShelf)
	case n > math.MaxUint16:
		return false, fmt.Errorf("the database has more than %d months", math.MaxUint16)
	default:
		for _, s := range all.all { // the months, from the latest back
			if s.name > q.shelves[n-1] && s.name >= monthOf(q.from) {
				sh = s
			}
		}
	}
	if sh == nil {
		return true, nil
	}
	q.shelves = append(q.shelves, sh.name)
	return false, q.plan(tx, all, sh)
}

// plan chooses a shelf's ranges: by job if the request names jobs, else by user, else the whole window.
func (q *query) plan(tx *bolt.Tx, all *shelves, sh *shelf) error {
	live := sh.name == liveShelf
	switch {
	case sh.rec == nil || live && q.states.final():
	case q.jobs != nil:
		numbers, err := seriesNumbers(tx)
		if err != nil {
			return err
		}
		for n := range numbers {
			q.planJobs(all, sh, n)
		}
	case live && q.byUser():
		for uid := range q.users {
			prefix := binary.BigEndian.AppendUint32(nil, uid)
			q.scopes = append(q.scopes, scope{keyUser, prefix, after(prefix)})
		}
	case live:
		q.scopes = append(q.scopes, scope{keyRec, nil, nil})
	case q.byUser():
		for uid := range q.users {
			q.planWindow(sh.name, keyUser, binary.BigEndian.AppendUint32(nil, uid))
		}
	case q.each != nil && q.mostOf(sh.name):
		q.scopes = append(q.scopes, scope{keyRec, nil, nil})
	default:
		q.planWindow(sh.name, keyEnd, nil)
	}
	slices.SortFunc(q.scopes, func(a, b scope) int {
		return cmp.Or(bytes.Compare(a.index, b.index), bytes.Compare(a.from, b.from))
	})
	return nil
}

// mostOf reports whether the window has a good part of a month: then all of its records are read in their order, which
// costs less than to find each one by the index.
func (q *query) mostOf(month string) bool {
	first, next, err := monthSpan(month)
	const part = 8
	return err == nil && min(q.to, next)-max(q.from, first) > (next-first)/part
}

func (q *query) byUser() bool { return q.users != nil && len(q.users) <= maxUserScopes }

// seriesNumbers gives each series' cluster.
func seriesNumbers(tx *bolt.Tx) (map[uint16]string, error) {
	m := map[uint16]string{}
	err := tx.Bucket(keySeries).ForEach(func(k, v []byte) error {
		if name, _, ok := bytes.Cut(k, []byte{0}); ok && len(v) >= 2 {
			m[binary.BigEndian.Uint16(v)] = string(name)
		}
		return nil
	})
	return m, err
}

// importedSeries gives the series that were imported; nil: none was.
func importedSeries(tx *bolt.Tx) map[uint16]bool {
	var out map[uint16]bool
	c := tx.Bucket(keySeries).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		_, instance, ok := bytes.Cut(k, []byte{0})
		if ok && len(instance) == 8 && len(v) >= 2 && binary.BigEndian.Uint64(instance) == proto.ImportInstance {
			if out == nil {
				out = map[uint16]bool{}
			}
			out[binary.BigEndian.Uint16(v)] = true
		}
	}
	return out
}

// planWindow adds the ranges of an index with the window's records: they end in the window, or after it by less than
// their span.
func (q *query) planWindow(month string, index, prefix []byte) {
	first, next, err := monthSpan(month)
	if err != nil {
		q.leaveOut(ref{}, err.Error())
		return
	}
	for k := range byte(maxSpan + 1) {
		from, to := max(q.from, first), next
		if q.to < maxTime {
			last := q.to + 1
			if !q.states.final() {
				last = q.to + spanMS(k)
			}
			to = min(to, last)
		}
		if from >= to {
			continue
		}
		lo := append(bytes.Clone(prefix), k)
		q.scopes = append(q.scopes, scope{index,
			binary.BigEndian.AppendUint64(bytes.Clone(lo), uint64(from)),
			binary.BigEndian.AppendUint64(lo, uint64(to))})
	}
}

// planJobs adds the named jobs and the tasks of the named arrays, if the shelf can have them.
func (q *query) planJobs(all *shelves, sh *shelf, number uint16) {
	for id := range q.jobs {
		prefix := jobPrefix(number, id)
		if all.mayHold(sh.rec, number, id) {
			q.scopes = append(q.scopes, scope{keyRec, prefix, after(prefix)})
		}
		if all.mayHold(sh.array, number, id) {
			q.scopes = append(q.scopes, scope{keyArray, prefix, after(prefix)})
		}
	}
}

// scanScope looks at up to left entries of the first scope, drops the scope when it is done, and gives the rest of
// left.
func (q *query) scanScope(all *shelves, left int) int {
	s := &q.scopes[0]
	at := len(q.shelves) - 1
	if sh := all.get(q.shelves[at]); sh != nil { // otherwise the month has been forgotten meanwhile
		isRec := s.index[0] == keyRec[0]
		c := sh.index(s.index).Cursor()
		for k, v := c.Seek(s.from); k != nil && (s.to == nil || bytes.Compare(k, s.to) < 0); k, v = c.Next() {
			if left <= 0 {
				s.from = bytes.Clone(k)
				return 0
			}
			left--
			q.looked++
			r, ok := lastRef(k)
			if !ok {
				q.leaveOut(r, "its index is damaged")
				continue
			}
			if !isRec {
				v = sh.rec.Get(k[len(k)-refLen:])
			}
			if v != nil && q.each != nil {
				q.each(v, r)
				continue
			}
			if v != nil && q.check(q.filter, v, r) {
				q.list = append(q.list, hit{r, uint16(at)})
			}
		}
	}
	q.scopes = q.scopes[1:]
	return left - 1 // an empty scope has a cost too
}

// check reports whether a row fits.
func (d *db) check(f *filter, row []byte, r ref) bool {
	h, record, ok := parseRow(row, r)
	if !ok {
		d.leaveOut(r, "its checksum is wrong")
		return false
	}
	fits, err := f.fits(&h, r, record)
	if err != nil {
		d.leaveOut(r, err.Error())
		return false
	}
	return fits
}

// leaveOut counts a record that can't be given, and logs it the first time and then less and less often.
func (d *db) leaveOut(r ref, why string) {
	if n := d.damaged.Add(1); n&(n-1) == 0 {
		d.log.Error("an accounting record is damaged and left out of an answer; restore the database from a backup",
			"file", d.path, "job", r.job, "attempt", r.attempt, "why", why, "times", n)
	}
}

// order sorts the hits and drops repeated ones and, unless duplicates are asked for, all but the last of each job, or
// with sizes all but those of its last run.
func (q *query) order() error {
	var clusters map[uint16]string
	var imported map[uint16]bool
	err := q.view(func(tx *bolt.Tx) (err error) {
		imported = importedSeries(tx)
		clusters, err = seriesNumbers(tx)
		return err
	})
	if err != nil {
		return err
	}
	rank := func(series uint16) int { // what was imported was before the rest
		if imported[series] {
			return int(series)
		}
		return int(series) + 1<<16
	}
	slices.SortFunc(q.list, func(a, b hit) int {
		return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(rank(a.series), rank(b.series)),
			cmp.Compare(a.order(), b.order()))
	})
	q.list = slices.CompactFunc(q.list, func(a, b hit) bool { return a.ref == b.ref })
	if q.duplicates || len(q.list) == 0 {
		return nil
	}
	kept := q.list[:0]
	for i, h := range q.list {
		last := true
		for _, later := range q.list[i+1:] {
			if later.job != h.job {
				break
			}
			if q.sizes && later.ofAttempt() == h.ofAttempt() {
				continue
			}
			if later.series == h.series || clusters[later.series] == clusters[h.series] {
				last = false
				break
			}
		}
		if last {
			kept = append(kept, h)
		}
	}
	q.list = kept
	return nil
}

// give reads the hits and emits them, a chunk per transaction.
func (d *db) give(ctx context.Context, f *filter, h *hits, req *proto.AcctRequest,
	emit func([][]byte, []string) error) error {
	var buf []byte
	var summaries []string
	var ends []int
	var mark *stepMark // position in the steps of the first hit of rest
	chunk := make([][]byte, 0, min(len(h.list), proto.ChunkJobs))
	for rest := h.list; len(rest) > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := d.view(func(tx *bolt.Tx) error {
			chunk, buf, ends, summaries = chunk[:0], buf[:0], ends[:0], nil
			n, next := d.read(tx, f, h.shelves, rest, req.Steps, mark, func(record []byte, summary func() string) bool {
				buf = append(buf, record...)
				ends = append(ends, len(buf))
				if req.Summaries {
					summaries = append(summaries, summary())
				}
				return len(ends) < proto.ChunkJobs && len(buf) < maxChunkBytes
			})
			rest, mark = rest[n:], next
			return nil
		})
		if err != nil {
			return err
		}
		at := 0
		for _, end := range ends {
			chunk = append(chunk, buf[at:end:end])
			at = end
		}
		if len(chunk) == 0 {
			continue
		}
		if err := emit(chunk, summaries); err != nil {
			return err
		}
	}
	return nil
}
