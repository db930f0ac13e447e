package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/hashicorp/raft"

	"gbatch/internal/boltcheck"
)

// found is what checkLog has seen in a log.
type found struct {
	seal  seal // what it has, and should have from now on
	fresh bool // it has never been used: a crash interrupted its creation
	old   bool // raft-boltdb wrote it: it has no checksums
	stale bool // it has entries before seal.first: old versions left them behind when a snapshot replaced them
}

// checkLog checks all of a raft log in one pass: every page, every entry's checksum and its link to the one before,
// and the seal. Its error says what is damaged. A file that only lacks unused pages at its end gets them back.
func checkLog(f *os.File) (found, error) {
	w := logWalk{}
	head, err := boltcheck.File(f, w.entry)
	switch {
	case err != nil:
		return found{}, err
	case head.Lost:
		return found{}, errors.New("one of its two head pages is damaged, so the last change may be missing")
	case head.Commits <= 1:
		return found{fresh: true}, nil
	}
	got := w.found()
	if err := w.agrees(got.seal); err != nil {
		return found{}, err
	}
	if info, err := f.Stat(); err != nil || info.Size() < head.Size {
		return got, errors.Join(err, f.Truncate(head.Size))
	}
	return got, nil
}

// logWalk collects what the entries of a log's file say.
type logWalk struct {
	first, last uint64 // of the entries without a gap that end at last
	any         bool
	gap         bool
	sum         uint32
	term        uint64
	sealed      bool // a checksum was seen in a file without a seal
	conf        uint32
	sealBytes   []byte
}

func (w *logWalk) entry(bucket string, k, v []byte) error {
	switch bucket {
	case string(bucketLogs):
		return w.log(k, v)
	case string(bucketConf):
		if string(k) == string(keySeal) {
			w.sealBytes = append([]byte{}, v...)
		} else {
			w.conf = addPair(w.conf, k, v)
		}
		return nil
	}
	return fmt.Errorf("it has %q, which no raft log has", bucket)
}

func (w *logWalk) log(k, v []byte) error {
	if len(k) != 8 {
		return fmt.Errorf("it has an entry with a key of %d bytes", len(k))
	}
	index := binary.BigEndian.Uint64(k)
	follows := w.any && index == w.last+1
	if !follows {
		w.first, w.gap = index, w.any
	}
	before := w.last
	w.last, w.any = index, true
	if w.sealBytes == nil { // the keys of bucketConf come first
		w.sealed = w.sealed || marked(v)
		return nil
	}
	var e raft.Log
	sum, err := decodeLog(index, v, &e)
	switch {
	case err != nil:
		return fmt.Errorf("entry %d: %w", index, err)
	case w.gap:
		return fmt.Errorf("entries %d to %d are missing", before+1, index-1)
	case follows && binary.BigEndian.Uint32(v[logHead:]) != w.sum:
		return fmt.Errorf("entry %d does not follow on entry %d", index, before)
	case e.Term < w.term:
		return fmt.Errorf("entry %d is of term %d, the one before it of term %d", index, e.Term, w.term)
	}
	w.sum, w.term = sum, e.Term
	return nil
}

// found gives the seal that fits what is there.
func (w *logWalk) found() found {
	s := seal{first: 1, conf: w.conf}
	if w.any {
		s.first, s.last, s.sum = w.first, w.last, w.sum
	}
	if have, err := parseSeal(w.sealBytes); err == nil {
		s.snapshot = have.snapshot
		if !w.any {
			s.first, s.last = have.first, have.first-1
		}
	}
	return found{seal: s, old: w.sealBytes == nil, stale: w.gap}
}

// agrees compares the file's seal with what is there. A log of an old version has none.
func (w *logWalk) agrees(is seal) error {
	if w.sealBytes == nil && !w.sealed {
		return nil
	}
	should, err := parseSeal(w.sealBytes)
	switch {
	case err != nil:
		return err
	case should.first != is.first || should.last != is.last:
		return fmt.Errorf("it has entries %d to %d and should have %d to %d", is.first, is.last, should.first, should.last)
	case w.any && should.sum != is.sum:
		return fmt.Errorf("entry %d is not the one that was written last", is.last)
	case should.conf != is.conf:
		return errors.New("its term or its vote has changed")
	}
	return nil
}
