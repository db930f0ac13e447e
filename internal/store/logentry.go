package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"
)

// An entry of raft's log in its file, under its index in 8 bytes:
//
//	byte     0xc1, which no msgpack begins with
//	byte     version, 1
//	4 bytes  checksum (CRC-32C) of the index and all that follows
//	4 bytes  checksum of the entry before it, 0 if there is none: entries form a chain
//	uvarint  term
//	byte     type
//	varint   time in Unix nanoseconds at which the leader got it, 0 for none
//	uvarint  length of raft's extensions, then these
//	         data, to the end
//
// raft-boltdb, which wrote the log in earlier versions, has msgpack without a checksum; see adopt.go.
const (
	logMark    = 0xc1
	logVersion = 1
	logHead    = 2 + 4 // mark, version, checksum
)

// marked reports whether an entry has a checksum.
func marked(b []byte) bool { return len(b) > 0 && b[0] == logMark }

// encodeLog gives an entry's bytes and its checksum; before is the checksum of the entry before it.
func encodeLog(before uint32, e *raft.Log) ([]byte, uint32) {
	b := make([]byte, logHead, logHead+4+3*binary.MaxVarintLen64+1+len(e.Extensions)+len(e.Data))
	b[0], b[1] = logMark, logVersion
	b = binary.BigEndian.AppendUint32(b, before)
	b = binary.AppendUvarint(b, e.Term)
	b = append(b, byte(e.Type))
	at := int64(0)
	if !e.AppendedAt.IsZero() {
		at = e.AppendedAt.UnixNano()
	}
	b = binary.AppendVarint(b, at)
	b = binary.AppendUvarint(b, uint64(len(e.Extensions)))
	b = append(append(b, e.Extensions...), e.Data...)
	sum := logSum(e.Index, b[logHead:])
	binary.BigEndian.PutUint32(b[2:], sum)
	return b, sum
}

func logSum(index uint64, b []byte) uint32 {
	var i [8]byte
	binary.BigEndian.PutUint64(i[:], index)
	return crc32.Update(crc32.Checksum(i[:], castagnoli), castagnoli, b)
}

// decodeLog checks an entry's bytes and reads them into e, which shares no memory with them. It gives its checksum.
func decodeLog(index uint64, b []byte, e *raft.Log) (sum uint32, err error) {
	if !marked(b) {
		return 0, errors.New("it has no checksum")
	}
	if _, sum, err = logSums(index, b); err != nil {
		return 0, err
	}
	rest := b[logHead+4:]
	term, rest, err := cutUvarint(rest)
	if err != nil || len(rest) == 0 {
		return 0, errLog
	}
	kind := rest[0]
	at, n := binary.Varint(rest[1:])
	if n <= 0 {
		return 0, errLog
	}
	ext, rest, err := cutUvarint(rest[1+n:])
	if err != nil || ext > uint64(len(rest)) {
		return 0, errLog
	}
	*e = raft.Log{Index: index, Term: term, Type: raft.LogType(kind), Data: append([]byte(nil), rest[ext:]...)}
	if ext > 0 {
		e.Extensions = append([]byte(nil), rest[:ext]...)
	}
	if at != 0 {
		e.AppendedAt = time.Unix(0, at)
	}
	return sum, nil
}

var errLog = errors.New("it ends too early")

// logSums checks the checksum of an entry with one, and gives that of the entry before it and its own.
func logSums(index uint64, b []byte) (before, sum uint32, err error) {
	if len(b) < logHead+4 {
		return 0, 0, errLog
	}
	if b[1] != logVersion {
		return 0, 0, fmt.Errorf("its version is %d, this program knows %d", b[1], logVersion)
	}
	if sum = binary.BigEndian.Uint32(b[2:]); sum != logSum(index, b[logHead:]) {
		return 0, 0, errors.New("its checksum is wrong")
	}
	return binary.BigEndian.Uint32(b[logHead:]), sum, nil
}
