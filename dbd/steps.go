package dbd

import (
	"bytes"
	"encoding/binary"
	"time"

	bolt "go.etcd.io/bbolt"

	"gbatch/internal/model"
)

// steps.go keeps the records of jobs' steps. They are stored apart from the jobs' records, by the month in which the
// step ended, and are deleted with that month. No query looks for a single step: steps follow their job's record if the
// request asks for them.
//
//	steps/<month>    ref step(4)                -> row
//
// A step that is reported again has the same end, so it replaces itself.

var keySteps = []byte("steps")

// stepRef names a step's record.
type stepRef struct {
	ref
	id int32
}

func (r stepRef) append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(r.ref.append(b), uint32(r.id))
}

// applySteps stores steps' records.
func applySteps(tx *bolt.Tx, steps map[stepRef]*entry) error {
	if len(steps) == 0 {
		return nil
	}
	top, err := tx.CreateBucketIfNotExists(keySteps)
	if err != nil {
		return err
	}
	changes, months := edits{}, map[string]*bolt.Bucket{}
	for r, e := range steps {
		name := monthOf(e.end)
		b := months[name]
		if b == nil {
			if b, err = top.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
			months[name] = b
		}
		seal(e.row, r.ref)
		changes.add(b, r.append(nil), e.row)
	}
	return changes.apply()
}

// purgeSteps forgets the steps that ended in months before oldest.
func purgeSteps(tx *bolt.Tx, oldest string) error {
	top := tx.Bucket(keySteps)
	if top == nil {
		return nil
	}
	for {
		name, _ := top.Cursor().First()
		if name == nil || string(name) >= oldest {
			return nil
		}
		if err := top.DeleteBucket(bytes.Clone(name)); err != nil {
			return err
		}
	}
}

// stepMark is the position at which reading a job's steps continues: in this month, after this key.
type stepMark struct {
	month string
	key   []byte // nil: from that month's first step
}

// stepSlack is how much later than its job a step may end: clocks differ, and a lost node reports its steps late.
const stepSlack = 32 * 24 * time.Hour

// stepsOf calls take for the records of a job's steps after from, until take has enough; more is then the position at
// which to continue.
func (d *db) stepsOf(tx *bolt.Tx, h *head, r ref, from *stepMark, take func(record []byte) bool) (more *stepMark) {
	top := tx.Bucket(keySteps)
	if top == nil {
		return nil
	}
	first, last := monthOf(h.submit), ""
	if h.ended() {
		last = monthOf(h.end + model.Time(stepSlack.Milliseconds()))
	}
	if from != nil {
		first = from.month
	}
	own := r // of a run that changed its size, each record has the steps that began in it
	r = r.ofAttempt()
	prefix := r.append(nil)
	months := top.Cursor()
	for name, _ := months.Seek([]byte(first)); name != nil && (last == "" || string(name) <= last); name,
		_ = months.Next() {
		c := top.Bucket(name).Cursor()
		k, v := c.Seek(prefix)
		if from != nil && from.key != nil && string(name) == from.month {
			if k, v = c.Seek(from.key); bytes.Equal(k, from.key) {
				k, v = c.Next()
			}
		}
		for ; bytes.HasPrefix(k, prefix); k, v = c.Next() {
			sh, record, ok := parseRow(v, r)
			if !ok {
				d.leaveOut(r, "the checksum of one of its steps is wrong")
				continue
			}
			if own != r && sh.start < h.start || h.state == model.Resizing && sh.start >= h.end {
				continue
			}
			if !take(record) {
				return &stepMark{string(name), bytes.Clone(k)}
			}
		}
	}
	return nil
}

// read calls take for the records of hits, and with steps for each job's steps after it, until take has enough. It
// gives the number of hits that are done. from is the position in the first hit's steps at which it begins, next the
// position at which it has stopped.
func (d *db) read(tx *bolt.Tx, f *filter, in []string, list []hit, steps bool, from *stepMark,
	take func(record []byte, summary func() string) bool) (n int, next *stepMark) {
	none := func() string { return "" }
	all, names := openShelves(tx), renamesOf(tx)
	var key [refLen]byte
	for i, h := range list {
		begin := from
		from = nil
		var row []byte
		if sh := all.get(in[h.shelf]); sh != nil && sh.rec != nil {
			row = sh.rec.Get(h.append(key[:0]))
		}
		if row == nil { // the job has ended since, or is forgotten
			row, _ = all.find(h.ref)
			if row == nil || !d.check(f, row, h.ref) {
				continue
			}
		}
		hd, record, ok := parseRow(row, h.ref)
		if !ok {
			d.leaveOut(h.ref, "its checksum is wrong")
			continue
		}
		summary := func() string {
			for _, sh := range all.all {
				if sh.js1 == nil {
					continue
				}
				if text := sh.js1.Get(h.append(nil)); text != nil {
					return string(text)
				}
			}
			return ""
		}
		if begin == nil {
			full := !take(names.record(record), summary)
			switch {
			case full && steps:
				return i, &stepMark{month: monthOf(hd.submit)}
			case full:
				return i + 1, nil
			}
		}
		if steps {
			more := d.stepsOf(tx, &hd, h.ref, begin, func(record []byte) bool { return take(record, none) })
			if more != nil {
				return i, more
			}
		}
	}
	return len(list), nil
}
