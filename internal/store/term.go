package store

import (
	"errors"
	"fmt"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// term.go keeps raft's term and vote in the log's seal, so that a vote is one write and not three, and entries bring
// their term with them. raft tells them one by one and waits for each.
//
// A term alone is not written: it goes to the disk with the vote that is given in it or the entries that come in it,
// whichever is first. Until then a crash may forget it, which no other voter can notice: whoever leads in a term has
// the votes of a majority, and those are on their disks. In particular a voter whose disk is full or hangs takes a new
// term, and follows its leader, as far as that goes without a disk; raft would panic if it could not keep a term.

// raft's own keys.
const (
	keyTerm      = "CurrentTerm"
	keyVoteTerm  = "LastVoteTerm"
	keyCandidate = "LastVoteCand"
)

// votes is what raft keeps beside the entries.
type votes struct {
	term      uint64 // the highest that was seen
	voted     uint64 // the last one in which this voter has voted; 0: none
	candidate string // for whom, in raft's encoding; raft tells it after the term
}

// maxCandidate bounds a candidate, bytes.
const maxCandidate = 1024

// SetUint64 takes raft's term, or the term of a vote that it tells next. Nothing is written.
func (l *logFile) SetUint64(k []byte, n uint64) error {
	l.told.Lock()
	defer l.told.Unlock()
	switch string(k) {
	case keyTerm:
		l.votes.term = n
	case keyVoteTerm:
		l.votingIn = n
	default:
		return fmt.Errorf("%q is not a number of raft's", k)
	}
	return nil
}

// GetUint64 gives what SetUint64 took; of a vote, when it is complete. The error for none is raft's.
func (l *logFile) GetUint64(k []byte) (uint64, error) {
	l.told.Lock()
	defer l.told.Unlock()
	var n uint64
	switch string(k) {
	case keyTerm:
		n = l.votes.term
	case keyVoteTerm:
		n = l.votes.voted
	default:
		return 0, fmt.Errorf("%q is not a number of raft's", k)
	}
	if n == 0 {
		return 0, raftboltdb.ErrKeyNotFound
	}
	return n, nil
}

// vote writes for whom this voter votes in the term that raft has just told, with the term.
func (l *logFile) vote(candidate []byte) (err error) {
	if len(candidate) > maxCandidate {
		return fmt.Errorf("a candidate of %d bytes; %d is the limit", len(candidate), maxCandidate)
	}
	defer func() { err = l.said(err) }()
	defer l.guard(&err)()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told.Lock()
	given := votes{term: max(l.votes.term, l.votingIn), voted: l.votingIn, candidate: string(candidate)}
	l.told.Unlock()
	s := l.seal
	s.votes = given
	if err := l.write(s); err != nil {
		return err // raft then does not vote
	}
	l.told.Lock()
	defer l.told.Unlock()
	l.votes.voted, l.votes.candidate = given.voted, given.candidate
	return nil
}

// present gives term and vote as raft knows them.
func (l *logFile) present() votes {
	l.told.Lock()
	defer l.told.Unlock()
	return l.votes
}

// getter is a store of raft's values.
type getter interface {
	Get(key []byte) ([]byte, error)
	GetUint64(key []byte) (uint64, error)
}

// votesIn reads term and vote as raft keeps them in a store.
func votesIn(g getter) (v votes, err error) {
	var errs [3]error
	v.term, errs[0] = g.GetUint64([]byte(keyTerm))
	v.voted, errs[1] = g.GetUint64([]byte(keyVoteTerm))
	candidate, e := g.Get([]byte(keyCandidate))
	errs[2] = e
	for _, e := range errs {
		if !errors.Is(e, raftboltdb.ErrKeyNotFound) {
			err = errors.Join(err, e)
		}
	}
	if len(candidate) > maxCandidate {
		err = errors.Join(err, fmt.Errorf("its last vote is for a candidate of %d bytes", len(candidate)))
	}
	v.candidate = string(candidate)
	return v, err
}
