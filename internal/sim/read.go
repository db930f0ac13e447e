package sim

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Limits of the input.
const (
	maxLineBytes = 64 << 10
	maxJobs      = 5_000_000
	maxLines     = 2 * maxJobs // comments, steps and lines that are left out count too
)

// lines reads a file line by line, with where it is.
type lines struct {
	file string
	n    int
	sc   *bufio.Scanner
}

func newLines(file string, r io.Reader) *lines {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 16<<10), maxLineBytes)
	return &lines{file: file, sc: sc}
}

// next gives the next line, or false at the end and on an error (see err).
func (l *lines) next() (string, bool) {
	if l.n >= maxLines || !l.sc.Scan() {
		return "", false
	}
	l.n++
	return strings.TrimRight(l.sc.Text(), " \t\r"), true
}

func (l *lines) err() error {
	switch err := l.sc.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return &LineError{l.file, l.n + 1, fmt.Sprintf("a line of more than %d bytes: this is no trace", maxLineBytes)}
	case err != nil:
		return fmt.Errorf("read %s: %w", l.file, err)
	case l.n >= maxLines:
		return l.bad("more than %d lines: cut the trace into parts", maxLines)
	}
	return nil
}

func (l *lines) bad(format string, args ...any) error {
	return &LineError{l.file, l.n, fmt.Sprintf(format, args...)}
}

// room says whether one more job may be taken.
func (l *lines) room(w *Workload) error {
	if len(w.Jobs) >= maxJobs {
		return l.bad("more than %d jobs: cut the trace into parts", maxJobs)
	}
	return nil
}

// Open reads a trace, plain or gzip, in any of the formats: the Standard Workload Format, a CSV of GPU jobs, a list of
// pods (with the list of nodes beside it), or the output of `gacct -P`.
func Open(path string) (*Workload, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the trace: %w", err)
	}
	defer f.Close()
	r, err := plain(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	w, err := Read(path, r)
	if err != nil {
		return nil, err
	}
	if w.NodesBeside {
		if err := nodesBeside(path, w); err != nil {
			return nil, err
		}
	}
	w.Name = filepath.Base(path)
	return w, nil
}

// plain unpacks gzip.
func plain(r io.Reader) (*bufio.Reader, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	if head, err := br.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, err
		}
		return bufio.NewReaderSize(z, 64<<10), nil
	}
	return br, nil
}

// byteOrderMark begins files that went through some editors.
const byteOrderMark = "\ufeff"

// Read is Open for text that is already unpacked; file names it in errors.
func Read(file string, r *bufio.Reader) (*Workload, error) {
	if mark, err := r.Peek(len(byteOrderMark)); err == nil && string(mark) == byteOrderMark {
		r.Discard(len(byteOrderMark))
	}
	l := newLines(file, r)
	var w *Workload
	var err error
	switch head := firstLine(r); {
	case isPodCSV(head):
		w, err = readPods(l)
	case isJobCSV(head):
		w, err = readGPUCSV(l)
	case isAcct(head):
		w, err = readAcct(l)
	default:
		w, err = readSWF(l)
	}
	if err != nil {
		return nil, err
	}
	if err := l.err(); err != nil {
		return nil, err
	}
	if len(w.Jobs) == 0 {
		return nil, fmt.Errorf("%s has no job that ran: a trace is wanted, in the Standard Workload Format, as CSV of GPU "+
			"jobs or pods, or as `gacct -P` prints it", file)
	}
	w.sort()
	return w, nil
}

// firstLine peeks at the first line that is no comment of a CSV file.
func firstLine(r *bufio.Reader) string {
	head, _ := r.Peek(r.Size())
	for line := range bytes.Lines(head) {
		if len(bytes.TrimSpace(line)) > 0 && line[0] != '#' {
			return string(bytes.TrimSpace(line))
		}
	}
	return ""
}
