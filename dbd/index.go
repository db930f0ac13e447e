package dbd

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	bolt "go.etcd.io/bbolt"

	"gbatch/internal/model"
)

// index.go puts records into their shelves and the shelves' indexes.

// edit is one change of a bucket: a nil value deletes.
type edit struct{ key, value []byte }

// edits collects a transaction's changes, so that each bucket is changed in the order of its keys and a page is
// touched once.
type edits map[*bolt.Bucket][]edit

func (e edits) add(b *bolt.Bucket, key, value []byte) { e[b] = append(e[b], edit{key, value}) }

var nothing = []byte{}

// applyEntries replaces each record by its latest version.
func applyEntries(tx *bolt.Tx, latest map[ref]*entry) error {
	refs := make([]ref, 0, len(latest))
	for r := range latest {
		refs = append(refs, r)
	}
	slices.SortFunc(refs, func(a, b ref) int {
		return cmp.Or(cmp.Compare(a.series, b.series), cmp.Compare(a.job, b.job), cmp.Compare(a.attempt, b.attempt))
	})
	all := openShelves(tx)
	changes := edits{}
	sums, err := openRollup(tx)
	if err != nil {
		return err
	}
	for _, r := range refs {
		e := latest[r]
		oldRow, oldShelf := all.find(r)
		var old head
		var was *model.Record // the version of an ended job that is replaced
		known := false
		if oldRow != nil {
			var record []byte
			if old, record, known = parseRow(oldRow, r); known {
				was = ended(&old, record)
			}
		}
		var to *shelf
		if !e.purge {
			if was != nil && len(was.Noted) > 0 && !e.noted {
				if err := e.note(was.Noted); err != nil {
					return err
				}
			}
			seal(e.row, r)
			var err error
			if to, err = all.open(tx, shelfOf(&e.head)); err != nil {
				return err
			}
		}
		if oldRow != nil {
			if known {
				unindex(changes, oldShelf, &old, r, to, &e.head)
			}
			if was != nil && sums.has(oldShelf.name, r) {
				if err := sums.change(was, -1); err != nil {
					return err
				}
			}
			if to != oldShelf {
				changes.add(oldShelf.rec, r.append(nil), nil)
			}
			if oldShelf.js1 != nil && (to != oldShelf || e.js1 == nil) {
				changes.add(oldShelf.js1, r.append(nil), nil)
			}
		}
		if to != nil {
			changes.add(to.rec, r.append(nil), e.row)
			index(changes, to, &e.head, r)
			if sums.has(to.name, r) {
				n := *e.rec
				n.End = e.end
				if err := sums.change(&n, 1); err != nil {
					return err
				}
			}
			if e.js1 != nil {
				b, err := js1In(tx, to)
				if err != nil {
					return err
				}
				changes.add(b, r.append(nil), e.js1)
			}
		}
	}
	return errors.Join(changes.apply(), sums.save())
}

// shelfOf names the shelf of a record.
func shelfOf(h *head) string {
	if h.ended() {
		return monthOf(h.end)
	}
	return liveShelf
}

// indexKeys calls each for a record's entries in its shelf's indexes.
func indexKeys(s *shelf, h *head, r ref, each func(b *bolt.Bucket, key []byte)) {
	each(s.user, userKey(h, r))
	if h.ended() {
		each(s.end, endKey(h, r))
	}
	if h.array != 0 {
		each(s.array, arrayKey(r.series, h.array, r))
	}
}

func index(e edits, s *shelf, h *head, r ref) {
	indexKeys(s, h, r, func(b *bolt.Bucket, key []byte) { e.add(b, key, nothing) })
}

// unindex removes the old version's entries, except for entries that the new version has too.
func unindex(e edits, s *shelf, old *head, r ref, to *shelf, now *head) {
	indexKeys(s, old, r, func(b *bolt.Bucket, key []byte) {
		stays := false
		if to == s {
			indexKeys(s, now, r, func(nb *bolt.Bucket, nkey []byte) {
				stays = stays || nb == b && bytes.Equal(nkey, key)
			})
		}
		if !stays {
			e.add(b, key, nil)
		}
	})
}

func (e edits) apply() error {
	for b, list := range e {
		b.FillPercent = fillPercent
		slices.SortFunc(list, func(x, y edit) int { return bytes.Compare(x.key, y.key) })
		for _, c := range list {
			var err error
			if c.value == nil {
				err = b.Delete(c.key)
			} else {
				err = b.Put(c.key, c.value)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// open gives the shelf with that name and creates it if it is missing.
func (s *shelves) open(tx *bolt.Tx, name string) (*shelf, error) {
	parent, key := tx.Bucket(keyDone), []byte(name)
	if name == liveShelf {
		parent, key = nil, keyLive
	}
	sh := s.get(name)
	if sh != nil && sh.rec != nil {
		return sh, nil
	}
	var b *bolt.Bucket
	var err error
	if parent == nil {
		b = tx.Bucket(key)
	} else if b, err = parent.CreateBucketIfNotExists(key); err != nil {
		return nil, err
	}
	for _, index := range [][]byte{keyRec, keyEnd, keyUser, keyArray} {
		if _, err := b.CreateBucketIfNotExists(index); err != nil {
			return nil, err
		}
	}
	fresh := openShelf(name, b)
	if sh != nil {
		*sh = *fresh
		return sh, nil
	}
	s.all = append(s.all, fresh)
	return fresh, nil
}

// keyJS1 is a shelf's bucket of summaries (package jobstats): ref -> payload. They are kept beside the records, because
// AdminComment belongs to administrators: commands show the summary if it is empty.
var keyJS1 = []byte("js1")

// js1In gives a shelf's bucket of summaries, and creates it if it is missing.
func js1In(tx *bolt.Tx, s *shelf) (*bolt.Bucket, error) {
	if s.js1 != nil {
		return s.js1, nil
	}
	parent := tx.Bucket(keyLive)
	if s.name != liveShelf {
		parent = tx.Bucket(keyDone).Bucket([]byte(s.name))
	}
	var err error
	s.js1, err = parent.CreateBucketIfNotExists(keyJS1)
	return s.js1, err
}
