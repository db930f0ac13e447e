package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"
)

const (
	magic    = "gbatch accounting backup 1\n"
	maxHead  = 1 << 20
	sumLabel = "sha256 "
	tailLen  = len(sumLabel) + 2*sha256.Size + 1
	copyStep = 1 << 20 // bytes between two reports of progress
)

// Header says what a backup has.
type Header struct {
	Cluster string    `json:"cluster"` // "": it was made without a configuration
	Version string    `json:"version"` // of the gbatch that made it
	At      time.Time `json:"time"`    // its content is that of this moment
	Bytes   int64     `json:"bytes"`   // of the database in it

	Jobs       int64    `json:"job_records"`        // of all attempts of all jobs, the unfinished ones too
	Unfinished int64    `json:"unfinished_records"` // of jobs that had not ended
	Steps      int64    `json:"step_records"`
	Series     []Series `json:"series"`
}

// Series is one history of a cluster: every record up to Seq is in the backup.
type Series struct {
	Cluster  string `json:"cluster"`
	Instance uint64 `json:"instance"`
	Seq      uint64 `json:"last_record"`
	Era      uint64 `json:"era,omitempty"`
}

// Clusters names the clusters whose records are in the backup, or that it was made for.
func (h *Header) Clusters() []string {
	var names []string
	seen := map[string]bool{"": true}
	for _, s := range append([]Series{{Cluster: h.Cluster}}, h.Series...) {
		if !seen[s.Cluster] {
			seen[s.Cluster] = true
			names = append(names, s.Cluster)
		}
	}
	return names
}

// read reads the head that r begins with, and gives its length.
func (h *Header) read(r io.Reader) (n int64, err error) {
	in := bufio.NewReader(io.LimitReader(r, int64(len(magic))+maxHead))
	first := make([]byte, len(magic))
	if _, err := io.ReadFull(in, first); err != nil || string(first) != magic {
		return 0, fmt.Errorf("it doesn't begin with %q", magic[:len(magic)-1])
	}
	text, err := in.ReadBytes('\n')
	if err != nil {
		return 0, errors.New("its head has no end")
	}
	if err := json.Unmarshal(text, h); err != nil {
		return 0, fmt.Errorf("its head can't be read: %w", err)
	}
	return int64(len(magic) + len(text)), nil
}

// Size gives the size of the backup whose first bytes are head, with the whole of its Header.
func Size(head []byte) (int64, error) {
	var h Header
	n, err := h.read(bytes.NewReader(head))
	if err != nil {
		return 0, err
	}
	return n + h.Bytes + int64(tailLen), nil
}

// Writer writes a backup: the database goes to Write, and Close ends it.
type Writer struct {
	to   io.Writer
	sum  hash.Hash
	left int64
}

// NewWriter writes the head, in one Write.
func NewWriter(to io.Writer, h *Header) (*Writer, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if len(text) >= maxHead {
		return nil, fmt.Errorf("the head of the backup would have %d bytes, more than %d", len(text), maxHead)
	}
	w := &Writer{to: to, sum: sha256.New(), left: h.Bytes}
	head := append(append([]byte(magic), text...), '\n')
	w.sum.Write(head)
	_, err = to.Write(head)
	return w, err
}

// Write writes bytes of the database.
func (w *Writer) Write(p []byte) (int, error) {
	if int64(len(p)) > w.left {
		return 0, errors.New("the database is larger than the head of the backup says")
	}
	n, err := w.to.Write(p)
	w.sum.Write(p[:n])
	w.left -= int64(n)
	return n, err
}

// Close writes the checksum. It does not close what the backup is written to.
func (w *Writer) Close() error {
	if w.left != 0 {
		return fmt.Errorf("the database is %d bytes smaller than the head of the backup says", w.left)
	}
	_, err := io.WriteString(w.to, sumLabel+hex.EncodeToString(w.sum.Sum(nil))+"\n")
	return err
}

// File is a backup that is being read.
type File struct {
	Header Header
	f      *os.File
	head   int64 // bytes before the database
}

// DamagedError says that a file is no whole backup.
type DamagedError struct {
	Path string
	Why  string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is no whole backup (%s); use another one", e.Path, e.Why)
}

// Open reads the head of a backup. Close must follow.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the backup: %w", err)
	}
	b, err := openFile(f)
	if err != nil {
		_ = f.Close() // it was only read
		return nil, err
	}
	return b, nil
}

func openFile(f *os.File) (*File, error) {
	damaged := func(format string, a ...any) error { return &DamagedError{f.Name(), fmt.Sprintf(format, a...)} }
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", f.Name())
	}
	b := &File{f: f}
	if b.head, err = b.Header.read(f); err != nil {
		return nil, damaged("%v", err)
	}
	if want := b.head + b.Header.Bytes + int64(tailLen); b.Header.Bytes < 0 || info.Size() != want {
		return nil, damaged("it has %d bytes and should have %d", info.Size(), want)
	}
	return b, nil
}

// Close closes the file.
func (b *File) Close() error { return b.f.Close() }

// Database is the database in the backup.
func (b *File) Database() *io.SectionReader { return io.NewSectionReader(b.f, b.head, b.Header.Bytes) }

// Check reads the whole file and compares its checksum. The database is written to copyTo, unless that is nil; it is
// good only if Check returns no error. progress, unless nil, is told of bytes read.
func (b *File) Check(copyTo io.Writer, progress func(done, total int64)) error {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(b.f, 0, b.head)); err != nil {
		return fmt.Errorf("reading the backup: %w", err)
	}
	to := io.Writer(sum)
	if copyTo != nil {
		to = io.MultiWriter(sum, copyTo)
	}
	r, buf := b.Database(), make([]byte, copyStep)
	for done := int64(0); done < b.Header.Bytes; {
		n, err := io.ReadFull(r, buf[:min(copyStep, b.Header.Bytes-done)])
		if err != nil {
			return fmt.Errorf("reading the backup: %w", err)
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return err
		}
		done += int64(n)
		if progress != nil {
			progress(done, b.Header.Bytes)
		}
	}
	tail := make([]byte, tailLen)
	if _, err := b.f.ReadAt(tail, b.head+b.Header.Bytes); err != nil {
		return fmt.Errorf("reading the backup: %w", err)
	}
	if want := sumLabel + hex.EncodeToString(sum.Sum(nil)) + "\n"; !bytes.Equal(tail, []byte(want)) {
		return &DamagedError{b.f.Name(), "its checksum is wrong: bytes of it were changed"}
	}
	return nil
}
