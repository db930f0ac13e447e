package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"
)

// Every entry of raft's log has a witness, which stands before raft's own bytes in its Extensions. raft keeps that
// field for such layers:
//
//	byte     version, 1
//	4 bytes  checksum (CRC-32C) of all that follows and of the entry's index, term, type, time and data
//	4 bytes  checksum of the entry before it, 0 if there is none: entries form a chain
//
// The log is written by raft-boltdb, under each entry's index.
const (
	witnessVersion = 1
	witnessLen     = 1 + 4 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// witnessed gives the entry with a witness, and its checksum; before is the checksum of the entry before it.
func witnessed(before uint32, e *raft.Log) (*raft.Log, uint32) {
	b := make([]byte, witnessLen, witnessLen+len(e.Extensions))
	b[0] = witnessVersion
	binary.BigEndian.PutUint32(b[5:], before)
	b = append(b, e.Extensions...)
	sum := entrySum(e, b[5:])
	binary.BigEndian.PutUint32(b[1:], sum)
	with := *e
	with.Extensions = b
	return &with, sum
}

// entrySum gives the checksum of an entry; rest is its Extensions after the checksum.
func entrySum(e *raft.Log, rest []byte) uint32 {
	var head [8 + 8 + 8 + 8 + 1]byte
	binary.BigEndian.PutUint64(head[:], e.Index)
	binary.BigEndian.PutUint64(head[8:], e.Term)
	binary.BigEndian.PutUint64(head[16:], uint64(len(rest)))
	if !e.AppendedAt.IsZero() {
		binary.BigEndian.PutUint64(head[24:], uint64(e.AppendedAt.UnixNano()))
	}
	head[32] = byte(e.Type)
	return crc(head[:], rest, e.Data)
}

// crc gives the CRC-32C of all parts, one after the other.
func crc(parts ...[]byte) (sum uint32) {
	for _, b := range parts {
		sum = crc32.Update(sum, castagnoli, b)
	}
	return sum
}

// checkWitness checks an entry that was read as the one at index, and takes the witness off. It gives the checksums of
// the entry before it and of this one.
func checkWitness(index uint64, e *raft.Log) (before, sum uint32, err error) {
	x := e.Extensions
	switch {
	case len(x) < witnessLen:
		return 0, 0, errors.New("it has no checksum")
	case x[0] != witnessVersion:
		return 0, 0, fmt.Errorf("its checksum has version %d, this program knows %d", x[0], witnessVersion)
	}
	before, sum = binary.BigEndian.Uint32(x[5:]), binary.BigEndian.Uint32(x[1:])
	if e.Index != index || sum != entrySum(e, x[5:]) {
		return 0, 0, errors.New("its checksum is wrong")
	}
	if e.Extensions = x[witnessLen:]; len(e.Extensions) == 0 {
		e.Extensions = nil
	}
	return before, sum, nil
}

// seal says what the log must have. It is renewed with every entry, in the same transaction, and stands under an index
// that no entry has, as an entry of raft-boltdb: so it lies in the page that is written anyway.
type seal struct {
	first, last uint64 // entries in the file; last is first-1 if there are none
	sum         uint32 // of the last entry
	snapshot    uint64 // index of the latest complete snapshot
	votes       votes
}

const (
	sealIndex  = 1<<64 - 1
	sealFormat = 3
	sealLeast  = 1 + 5*8 + 2*4 // without a candidate
	sealMost   = sealLeast + maxCandidate

	// The format before had term and vote beside the log, as raft gives them.
	sealFormatApart = 2
	sealLenApart    = 1 + 3*8 + 2*4
)

// entry gives the seal as raft-boltdb stores it.
func (s seal) entry() *raft.Log {
	b := append(make([]byte, 0, sealLeast+len(s.votes.candidate)), sealFormat)
	b = binary.BigEndian.AppendUint64(b, s.first)
	b = binary.BigEndian.AppendUint64(b, s.last)
	b = binary.BigEndian.AppendUint64(b, s.snapshot)
	b = binary.BigEndian.AppendUint32(b, s.sum)
	b = binary.BigEndian.AppendUint64(b, s.votes.term)
	b = binary.BigEndian.AppendUint64(b, s.votes.voted)
	b = append(b, s.votes.candidate...)
	b = binary.BigEndian.AppendUint32(b, crc(b))
	return &raft.Log{Index: sealIndex, Data: b}
}

// newerError says that a later version has written the log. It is not damaged, and stays where it is.
type newerError struct{ format byte }

func (e *newerError) Error() string {
	return fmt.Sprintf("its format is %d, written by a newer version of gctld; this one knows %d. Start that version "+
		"again", e.format, sealFormat)
}

// parseSeal reads a seal. apart says that term and vote are not in it.
func parseSeal(e *raft.Log) (s seal, apart bool, err error) {
	b := e.Data
	if len(b) > 1 && b[0] > sealFormat && sumAtEnd(b) {
		return seal{}, false, &newerError{b[0]}
	}
	apart = len(b) == sealLenApart && b[0] == sealFormatApart
	whole := len(b) >= sealLeast && len(b) <= sealMost && b[0] == sealFormat
	if !apart && !whole || !sumAtEnd(b) {
		return seal{}, false, errors.New("its seal is damaged")
	}
	at := func(i int) uint64 { return binary.BigEndian.Uint64(b[i:]) }
	s = seal{first: at(1), last: at(9), snapshot: at(17), sum: binary.BigEndian.Uint32(b[25:])}
	if whole {
		s.votes = votes{term: at(29), voted: at(37), candidate: string(b[45 : len(b)-4])}
	}
	return s, apart, nil
}

// sumAtEnd reports whether the last 4 bytes are the checksum of those before them.
func sumAtEnd(b []byte) bool {
	n := len(b) - 4
	return n >= 0 && crc(b[:n]) == binary.BigEndian.Uint32(b[n:])
}

// A value that is kept beside the log has 4 bytes at its end: the checksum of key and value.

func pairSum(k, v []byte) uint32 {
	return crc([]byte{byte(len(k))}, k, v)
}

func sumPair(k, v []byte) []byte {
	b := append(make([]byte, 0, len(v)+4), v...)
	return binary.BigEndian.AppendUint32(b, pairSum(k, v))
}

// checkPair gives a value without its checksum; the slice is that of b.
func checkPair(k, b []byte) ([]byte, error) {
	n := len(b) - 4
	if n < 0 || pairSum(k, b[:n]) != binary.BigEndian.Uint32(b[n:]) {
		return nil, fmt.Errorf("the checksum of %q, which raft keeps there, is wrong", k)
	}
	return b[:n], nil
}
