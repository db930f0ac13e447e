package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"gbatch/internal/boltcheck"
)

// found is what checkLog has seen in a log.
type found struct {
	seal  seal // what it should have
	fresh bool // it has never been used: a crash interrupted its creation
	stale bool // it has entries that its seal doesn't count
	old   bool // an earlier version wrote it
	// former: it has the format of formerLog; else an old one has no checksums.
	former bool
}

// Names in the file, which are raft-boltdb's.
const (
	bucketLogs = "logs"
	bucketConf = "conf"
)

// checkPages checks every page of a log's file, and collects its keys. Its error says what is damaged. A file that only
// lacks unused pages at its end gets them back.
func checkPages(f *os.File) (*logWalk, error) {
	w := &logWalk{}
	head, err := boltcheck.File(f, w.entry)
	switch {
	case err != nil:
		return nil, err
	case head.Lost:
		return nil, errors.New("one of its two head pages is damaged, so the last change may be missing")
	case head.Commits <= 1:
		w.fresh = true
		return w, nil
	}
	if info, err := f.Stat(); err != nil || info.Size() < head.Size {
		return w, errors.Join(err, f.Truncate(head.Size))
	}
	return w, nil
}

// logWalk is what the keys of a log's file say.
type logWalk struct {
	fresh   bool
	sealed  bool  // there is a seal
	marked  bool  // it is in our own former format (adopt.go)
	runs    []run // of entries without a gap
	badPair error // of a value beside the log whose checksum is wrong
}

type run struct{ first, last uint64 }

func (w *logWalk) entry(bucket string, k, v []byte) error {
	switch bucket {
	case bucketLogs:
		return w.log(k)
	case bucketConf:
		if string(k) == formerSeal {
			w.marked = true
		} else if _, err := checkPair(k, v); err != nil && w.badPair == nil {
			w.badPair = err
		}
		return nil
	}
	return fmt.Errorf("it has %q, which no raft log has", bucket)
}

func (w *logWalk) log(k []byte) error {
	if len(k) != 8 {
		return fmt.Errorf("it has an entry with a key of %d bytes", len(k))
	}
	index := binary.BigEndian.Uint64(k)
	if index == sealIndex {
		w.sealed = true
		return nil
	}
	if n := len(w.runs); n > 0 && w.runs[n-1].last+1 == index {
		w.runs[n-1].last = index
	} else {
		w.runs = append(w.runs, run{index, index})
	}
	return nil
}

// checkLog checks all entries of a log whose pages are good: each one's checksum, its link to the one before, and the
// seal.
func checkLog(path string, w *logWalk) (f found, err error) {
	if w.fresh {
		return found{fresh: true}, nil
	}
	if w.marked {
		return checkFormer(path)
	}
	l := &logFile{}
	defer l.guard(&err)()
	if l.db, err = openBolt(path, true); err != nil {
		return found{}, err
	}
	// It was only read.
	defer func() { _ = l.db.Close() }()
	if !w.sealed {
		return w.unsealed(l)
	}
	if w.badPair != nil {
		return found{}, w.badPair
	}
	var e raft.Log
	if err := l.db.GetLog(sealIndex, &e); err != nil {
		return found{}, fmt.Errorf("its seal is damaged: %w", err)
	}
	s, apart, err := parseSeal(&e)
	var newer *newerError
	switch {
	case errors.As(err, &newer):
		return found{}, &busyError{fmt.Errorf("the raft log %s can't be read: %w", path, err)}
	case err != nil:
		return found{}, err
	}
	if apart {
		if s.votes, err = votesIn(pairs{l.db}); err != nil {
			return found{}, err
		}
	}
	stale, err := w.holds(s)
	if err != nil {
		return found{}, err
	}
	return found{seal: s, stale: stale}, l.checkChain(s)
}

// unsealed accepts a log of a version before checksums.
func (w *logWalk) unsealed(l *logFile) (found, error) {
	s := seal{first: 1}
	if n := len(w.runs); n > 0 {
		s.first, s.last = w.runs[n-1].first, w.runs[n-1].last
		var e raft.Log
		if err := l.db.GetLog(s.last, &e); err != nil {
			return found{}, fmt.Errorf("entry %d: %w", s.last, err)
		}
		if _, _, err := checkWitness(s.last, &e); err == nil {
			return found{}, errors.New("its seal is missing")
		}
	}
	return found{seal: s, old: true, stale: len(w.runs) > 1}, nil
}

// holds checks that the file has the entries that the seal counts, and reports whether it has others.
func (w *logWalk) holds(s seal) (stale bool, err error) {
	if s.last+1 < s.first {
		return false, errors.New("its seal is damaged")
	}
	if s.last < s.first {
		return len(w.runs) > 0, nil
	}
	for _, r := range w.runs {
		stale = stale || r.first < s.first || r.last > s.last
		if r.first <= s.first && r.last >= s.last {
			return stale || len(w.runs) > 1, nil
		}
	}
	var have []run // of what is counted
	for _, r := range w.runs {
		if r = (run{max(r.first, s.first), min(r.last, s.last)}); r.first <= r.last {
			have = append(have, r)
		}
	}
	switch {
	case len(have) == 0:
		return false, fmt.Errorf("it has no entries and should have %d to %d", s.first, s.last)
	case len(have) > 1:
		return false, fmt.Errorf("entries %d to %d are missing", have[0].last+1, have[1].first-1)
	}
	return false, fmt.Errorf("it has entries %d to %d and should have %d to %d", have[0].first, have[0].last, s.first,
		s.last)
}

// checkChain checks all entries that the seal counts.
func (l *logFile) checkChain(s seal) error {
	var sum uint32
	var term uint64
	for i := s.first; i <= s.last; i++ {
		var e raft.Log
		before, own, err := l.read(i, &e)
		switch {
		case err != nil:
			return fmt.Errorf("entry %d: %w", i, err)
		case i > s.first && before != sum:
			return fmt.Errorf("entry %d does not follow on entry %d", i, i-1)
		case e.Term < term:
			return fmt.Errorf("entry %d is of term %d, the one before it of term %d", i, e.Term, term)
		}
		sum, term = own, e.Term
	}
	if s.last >= s.first && sum != s.sum {
		return fmt.Errorf("entry %d is not the one that was written last", s.last)
	}
	return nil
}

// pairs reads the values of a file that keeps term and vote beside its log, each with its checksum.
type pairs struct{ db *raftboltdb.BoltStore }

func (p pairs) Get(k []byte) ([]byte, error) {
	b, err := p.db.Get(k)
	if err != nil {
		return nil, err
	}
	return checkPair(k, b)
}

func (p pairs) GetUint64(k []byte) (uint64, error) {
	b, err := p.Get(k)
	return number(k, b, err)
}

// number reads one of raft's numbers.
func number(k, b []byte, err error) (uint64, error) {
	switch {
	case err != nil:
		return 0, err
	case len(b) != 8:
		return 0, fmt.Errorf("%q has %d bytes and should have 8", k, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}
