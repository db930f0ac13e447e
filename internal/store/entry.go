package store

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// An entry of the raft log holds several commands:
//
//	byte     version, 1
//	uvarint  number of commands, 1 or more
//	         each: uvarint length, bytes
//
// The format never changes: old logs must decode. testdata/entry.txt holds its bytes.

const entryVersion = 1

const (
	// entryCommands and entryBytes limit an entry that is gathered from concurrent Proposes. A larger batch gets an
	// entry of its own.
	entryCommands = 512
	entryBytes    = 1 << 20

	// MaxCommandBytes is the largest command, MaxBatchCommands and MaxBatchBytes the largest ProposeBatch.
	MaxCommandBytes  = 8 << 20
	MaxBatchCommands = 1 << 16
	MaxBatchBytes    = 16 << 20
)

var errEntry = errors.New("undecodable log entry")

// encodeEntry writes the commands of all requests, in order.
func encodeEntry(rs []*request) []byte {
	n, size := 0, 1+binary.MaxVarintLen64
	for _, r := range rs {
		n += len(r.cmds)
		size += r.bytes + len(r.cmds)*binary.MaxVarintLen32
	}
	b := append(make([]byte, 0, size), entryVersion)
	b = binary.AppendUvarint(b, uint64(n))
	for _, r := range rs {
		for _, c := range r.cmds {
			b = binary.AppendUvarint(b, uint64(len(c)))
			b = append(b, c...)
		}
	}
	return b
}

// decodeEntry splits an entry into its commands, which share b's memory.
func decodeEntry(b []byte) ([][]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: empty", errEntry)
	}
	if b[0] != entryVersion {
		return nil, fmt.Errorf("%w: version %d, this program knows %d", errEntry, b[0], entryVersion)
	}
	n, b, err := cutUvarint(b[1:])
	if err != nil {
		return nil, err
	}
	if n == 0 || n > uint64(len(b)) { // each command's length takes at least a byte
		return nil, fmt.Errorf("%w: %d commands in %d bytes", errEntry, n, len(b))
	}
	cmds := make([][]byte, n)
	for i := range cmds {
		var size uint64
		if size, b, err = cutUvarint(b); err != nil {
			return nil, err
		}
		if size > uint64(len(b)) {
			return nil, fmt.Errorf("%w: command %d of %d has %d bytes, %d are left", errEntry, i, n, size, len(b))
		}
		cmds[i], b = b[:size:size], b[size:]
	}
	if len(b) != 0 {
		return nil, fmt.Errorf("%w: %d bytes after the last command", errEntry, len(b))
	}
	return cmds, nil
}

func cutUvarint(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: broken number", errEntry)
	}
	return v, b[n:], nil
}
