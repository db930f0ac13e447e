package dbd

import (
	"bytes"
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"gbatch/dbd/jobstats"
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// entry.go is a record on its way into the file: its history, its bytes, what was changed of it since, and its end if
// nobody else knows it.

// entry is one record, encoded before the writer gets it.
type entry struct {
	seq uint64
	ref ref // series is still 0: the writer sets it
	head
	row   []byte // not sealed
	js1   []byte // its summary for jobstats; nil: none
	purge bool
	step  *model.Step // set if the record is of this step
	rec   *model.Record
	audit *model.Audit // set if it is an entry of the trail

	noted   bool   // rec has what was changed of the record that it replaces
	cluster string // of an entry of the trail that changes a record
}

// series is one history of a cluster: the era and the last sequence number that are on record.
type series struct {
	number uint16
	seq    uint64
	era    uint64
}

// append gives a series' bytes. An era is written only if it is not the first: an older gdbd reads those.
func (s series) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint16(b, s.number), s.seq)
	if s.era == 0 {
		return b
	}
	return binary.BigEndian.AppendUint64(b, s.era)
}

// enter takes a series to the last of its eras. What the eras in between and their predecessors have in common with
// what is on record ends where the first of them began; the numbers from there on are of other records. It gives the
// eras that are new.
func (s *series) enter(eras []model.Era) (fresh []model.Era, err error) {
	last := uint64(0)
	if n := len(eras); n > 0 {
		last = eras[n-1].Number
	}
	if last < s.era {
		return nil, badRequest("accounting records of a controller that is older than a restored snapshot (era %d, gdbd has "+
			"records of era %d); end the gctld that sends them and let it join the others with an empty directory", last, s.era)
	}
	for _, e := range eras {
		if e.Number > s.era {
			s.seq = min(s.seq, max(e.From, 1)-1)
			fresh = append(fresh, e)
		}
	}
	s.era = last
	return fresh, nil
}

// knownSeries reads a series.
func knownSeries(known *bolt.Bucket, name string) (s series, ok bool) {
	v := known.Get([]byte(name))
	if len(v) < 10 {
		return series{}, false
	}
	s.number, s.seq = binary.BigEndian.Uint16(v), binary.BigEndian.Uint64(v[2:])
	if len(v) >= 18 {
		s.era = binary.BigEndian.Uint64(v[10:])
	}
	return s, true
}

// openSeries finds a series, or makes one with the next number. Numbers grow, so a cluster's later history sorts after
// its earlier one.
func openSeries(known *bolt.Bucket, name string) (s series, found bool, err error) {
	if s, ok := knownSeries(known, name); ok {
		return s, true, nil
	}
	n, err := known.NextSequence()
	if err != nil {
		return series{}, false, err
	}
	if n > maxSeries {
		return series{}, false, fmt.Errorf("the database has %d histories of clusters and can't begin another", maxSeries)
	}
	return series{number: uint16(n)}, false, nil
}

// encode makes an entry's row, and its summary, from its record.
func (e *entry) encode() error {
	record, err := wire.Marshal(e.rec)
	if err != nil {
		return fmt.Errorf("encoding the record of job %d: %w", e.rec.Job, err)
	}
	e.head = headOf(e.rec)
	e.row = newRow(&e.head, record)
	if e.step != nil {
		return nil
	}
	if e.js1, err = jobstats.Summary(e.rec); err != nil {
		return fmt.Errorf("the summary of job %d: %w", e.rec.Job, err)
	}
	return nil
}

// note makes the entry one of the record with further changes.
func (e *entry) note(set []model.KV) error {
	n := *e.rec
	n.Note(set)
	e.rec, e.noted = &n, true
	return e.encode()
}

// applyNotes changes records of jobs that have ended, as entries of the trail say (model.Noted). Entries and records
// come in the order of their numbers, each once, so every gdbd makes the same changes. A record keeps what was changed
// (Record.Noted): a later version of it, as of a node that reports late, gets the same changes when it is stored. The
// change of a record that is not here, since it was forgotten, is only kept in the trail.
func applyNotes(tx *bolt.Tx, latest map[ref]*entry, changes []*entry) error {
	if len(changes) == 0 {
		return nil
	}
	all := openShelves(tx)
	numbers, err := seriesNumbers(tx)
	if err != nil {
		return err
	}
	for _, c := range changes {
		n := c.audit.Noted
		own := refOf(&model.Record{Job: c.audit.Job, Attempt: n.Attempt, Size: n.Size})
		own.series = c.ref.series
		e, err := notedEntry(all, latest, own, n.Submit)
		for number, name := range numbers { // of an earlier history of the cluster, or imported
			if own.series = number; err == nil && e == nil && name == c.cluster {
				e, err = notedEntry(all, latest, own, n.Submit)
			}
		}
		if err != nil {
			return err
		}
		if e == nil {
			continue
		}
		if err := e.note(n.Set); err != nil {
			return err
		}
		latest[e.ref] = e
	}
	return nil
}

// notedEntry gives the version of a record that a change is made to: the one that is about to be stored, with the
// changes of the one that it replaces, or the stored one; nil if there is none of an ended job that was submitted then.
func notedEntry(all *shelves, latest map[ref]*entry, r ref, submit model.Time) (*entry, error) {
	e := latest[r]
	var old *model.Record
	if row, _ := all.find(r); row != nil {
		if h, record, ok := parseRow(row, r); ok {
			old = ended(&h, bytes.Clone(record))
		}
	}
	switch {
	case e != nil && (e.purge || e.rec.Submit != submit || !e.ended()):
		return nil, nil
	case e != nil && !e.noted && old != nil && len(old.Noted) > 0:
		return e, e.note(old.Noted)
	case e != nil:
		return e, nil
	case old == nil || old.Submit != submit:
		return nil, nil
	}
	return &entry{seq: old.Seq, ref: r, rec: old}, nil
}

// After the controllers went on from a snapshot, forget and endOvertaken end records that nobody else ends: of jobs
// that the snapshot does not know, and of runs of known jobs that began after it. Nodes end what runs of them when they
// register with the restored controllers, which don't know how.

const (
	whyForgotten = "the controllers went on from a snapshot of before this job, and do not know it"
	whyOvertaken = "the controllers went on from a snapshot of before this run, and do not know it"
)

// enterEras takes a series to the last of its eras, and ends the records of what the new ones begin without; restored
// gets the moment of the last one. The refusal is for who sent them.
func enterEras(tx *bolt.Tx, s *series, eras []model.Era, latest map[ref]*entry, restored map[uint16]model.Time) (
	ended bool, refusal, err error) {
	fresh, refusal := s.enter(eras)
	if refusal != nil {
		return false, refusal, nil
	}
	for k := range fresh {
		n, err := forget(tx, s.number, &fresh[k], latest)
		if err != nil {
			return false, nil, err
		}
		ended = ended || n > 0
	}
	if n := len(eras); n > 0 && eras[n-1].At > 0 {
		restored[s.number] = eras[n-1].At
	}
	return ended, nil, nil
}

// forget ends the open records of the jobs that an era begins without, and gives their number.
func forget(tx *bolt.Tx, number uint16, era *model.Era, latest map[ref]*entry) (n int, err error) {
	if era.At == 0 || era.Unknown >= era.Next {
		return 0, nil
	}
	live := tx.Bucket(keyLive).Bucket(keyRec)
	if live == nil {
		return 0, nil // it has never had a record
	}
	c := live.Cursor()
	for k, row := c.Seek(jobPrefix(number, era.Unknown)); k != nil; k, row = c.Next() {
		r, ok := lastRef(k)
		if !ok || r.series != number || r.job >= era.Next {
			break
		}
		if err := endOpen(r, row, era.At, whyForgotten, latest); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// endOvertaken ends the open records of attempts before one that is about to be stored. A controller ends an attempt
// before it begins the next one; only an attempt that it does not know is still open then. at is when the controllers
// of a series went on from a snapshot.
func endOvertaken(tx *bolt.Tx, latest map[ref]*entry, at map[uint16]model.Time) error {
	live := tx.Bucket(keyLive).Bucket(keyRec)
	if live == nil {
		return nil
	}
	var later []*entry
	for r, e := range latest {
		if at[r.series] > 0 && r.ofAttempt().attempt > 1 && e.rec != nil && !e.purge {
			later = append(later, e)
		}
	}
	for _, e := range later {
		prefix := jobPrefix(e.ref.series, e.ref.job)
		c := live.Cursor()
		for k, row := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, row = c.Next() {
			r, ok := lastRef(k)
			if !ok || r.ofAttempt().attempt >= e.ref.ofAttempt().attempt || latest[r] != nil {
				continue
			}
			if err := endOpen(r, row, at[r.series], whyOvertaken, latest); err != nil {
				return err
			}
		}
	}
	return nil
}

// endOpen adds an entry that ends an open record. A damaged one is left to whoever reads it.
func endOpen(r ref, row []byte, at model.Time, why string, latest map[ref]*entry) error {
	h, record, ok := parseRow(row, r)
	if !ok || h.ended() {
		return nil
	}
	rec := new(model.Record)
	if err := wire.Unmarshal(bytes.Clone(record), rec); err != nil {
		return fmt.Errorf("the record of job %d: %w", r.job, err)
	}
	rec.State, rec.Reason, rec.Why = model.Cancelled, model.ReasonNone, why
	rec.Exit = model.Exit{Unknown: true, Text: why}
	rec.End = max(at, rec.Start, rec.Submit)
	e := &entry{seq: rec.Seq, ref: r, rec: rec}
	if err := e.encode(); err != nil {
		return err
	}
	latest[r] = e
	return nil
}
