// Package snapfile is the file of `gcontrol snapshot save`: a controller's state at one moment, for `gctld --restore`.
//
// The file begins with a line that names its format. Blocks follow: 4 bytes length, the data, 4 bytes checksum
// (CRC-32C) of the data and of all blocks before it. The first block is the Header as JSON, the last one is empty. So
// what is changed, exchanged or missing is found, and named by its place in the file.
//
// It doesn't know what a state is: that is package state's.
package snapfile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

const (
	magic    = "gbatch-snapshot"
	format   = 1
	maxBlock = 1 << 20 // bytes of data in a block
	maxLine  = 64
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header says what is in a snapshot.
type Header struct {
	Version    string // of the gbatch that wrote it
	Cluster    string
	Instance   uint64 // of the cluster's history: another cluster of the same name has another one
	Controller string // that wrote it
	SavedMS    int64  // the cluster's time, Unix milliseconds
	Index      uint64 // of the last entry of the log that is in it
	Epoch      uint64 // the term of the leader
	NextJob    uint32 // the number of the next submission
	NextRecord uint64 // of accounting

	Nodes, Jobs, Pending, Running, Accounts, Users, Reservations int
	Waiting                                                      int   // accounting records that gdbd does not have yet
	Kept                                                         int64 // that it has
}

// Writer writes a snapshot's file.
type Writer struct {
	to  io.Writer
	sum uint32
	buf []byte
	err error
}

// NewWriter writes the header. What is then written to it is the content; Close ends the file.
func NewWriter(to io.Writer, h Header) (*Writer, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(to, "%s %d\n", magic, format); err != nil {
		return nil, err
	}
	w := &Writer{to: to}
	return w, w.block(text)
}

func (w *Writer) block(data []byte) error {
	if w.err != nil {
		return w.err
	}
	w.sum = crc32.Update(w.sum, castagnoli, data)
	b := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
	b = append(b, data...)
	_, w.err = w.to.Write(binary.BigEndian.AppendUint32(b, w.sum))
	return w.err
}

// Write adds content.
func (w *Writer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && w.err == nil {
		k := min(len(p), maxBlock-len(w.buf))
		w.buf = append(w.buf, p[:k]...)
		if p = p[k:]; len(w.buf) == maxBlock {
			_ = w.block(w.buf) // it is in w.err too
			w.buf = w.buf[:0]
		}
	}
	return n - len(p), w.err
}

// Close ends the file; it does not close what it writes to.
func (w *Writer) Close() error {
	if len(w.buf) > 0 {
		_ = w.block(w.buf) // it is in w.err too
	}
	return w.block(nil)
}

// ErrNot says that a file is something else.
var ErrNot = errors.New("this is no snapshot of a cluster: gcontrol snapshot save FILE makes one")

// Reader reads a snapshot's content and checks all of it: a Read fails where the file is damaged.
type Reader struct {
	Header Header

	from  io.Reader
	at    int64 // bytes read from the file
	sum   uint32
	block []byte // what is left of the last one
	buf   []byte
	err   error
}

// NewReader reads and checks the header.
func NewReader(from io.Reader) (*Reader, error) {
	r := &Reader{from: from}
	var line []byte
	for len(line) < maxLine && !bytes.HasSuffix(line, []byte("\n")) {
		var b [1]byte
		if _, err := io.ReadFull(from, b[:]); err != nil {
			return nil, ErrNot
		}
		line = append(line, b[0])
	}
	words := strings.Fields(string(line))
	if len(words) != 2 || words[0] != magic {
		return nil, ErrNot
	}
	if words[1] != fmt.Sprint(format) {
		return nil, fmt.Errorf("the snapshot has format %q, this version reads %d: use the gbatch that wrote it", words[1],
			format)
	}
	r.at = int64(len(line))
	if err := r.next(); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(r.block, &r.Header); err != nil {
		return nil, r.damaged("its head can't be read: %v", err)
	}
	r.block = nil
	return r, nil
}

func (r *Reader) damaged(format string, args ...any) error {
	return fmt.Errorf("the snapshot is damaged at byte %d: %s", r.at, fmt.Sprintf(format, args...))
}

// next reads a block; the last one gives io.EOF.
func (r *Reader) next() error {
	var n [4]byte
	if _, err := io.ReadFull(r.from, n[:]); err != nil {
		return r.short(err)
	}
	size := int(binary.BigEndian.Uint32(n[:]))
	if size > maxBlock {
		return r.damaged("a block of %d bytes; there are none of more than %d", size, maxBlock)
	}
	if cap(r.buf) < size+4 {
		r.buf = make([]byte, size+4)
	}
	b := r.buf[:size+4]
	if _, err := io.ReadFull(r.from, b); err != nil {
		return r.short(err)
	}
	r.sum = crc32.Update(r.sum, castagnoli, b[:size])
	if binary.BigEndian.Uint32(b[size:]) != r.sum {
		return r.damaged("the checksum of the %d bytes there is wrong", size)
	}
	r.at += int64(len(n) + len(b))
	if r.block = b[:size]; size > 0 {
		return nil
	}
	if k, err := r.from.Read(n[:1]); k > 0 || err != io.EOF {
		return r.damaged("bytes follow after its end")
	}
	return io.EOF
}

func (r *Reader) short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return r.damaged("it ends too early")
	}
	return fmt.Errorf("reading the snapshot: %w", err)
}

// Read gives content.
func (r *Reader) Read(p []byte) (int, error) {
	for len(r.block) == 0 && r.err == nil {
		r.err = r.next()
	}
	if r.err != nil {
		return 0, r.err
	}
	n := copy(p, r.block)
	r.block = r.block[n:]
	return n, nil
}

// Check reads and checks all that is left, and gives the number of bytes of the file.
func (r *Reader) Check() (int64, error) {
	for r.err == nil {
		r.err = r.next()
	}
	if r.err == io.EOF {
		return r.at, nil
	}
	return r.at, r.err
}
