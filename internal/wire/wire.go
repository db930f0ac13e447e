package wire

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
)

// A message may cost its reader Factor bytes of memory for each of its bytes, plus Floor.
const (
	Factor = 8
	Floor  = 4 << 10
)

// maxScratch is the largest buffer that is kept for the next write.
const maxScratch = 1 << 20

var pool = sync.Pool{New: func() any { return newC() }}

// begin takes a C for reading b, or for writing.
func begin(b []byte, writing bool) *C {
	c := pool.Get().(*C)
	c.writing, c.reuse, c.n, c.fields = writing, false, 0, math.MaxInt
	c.care, c.replaced = AsIs, false
	c.text, c.message, c.cost, c.allowed, c.err, c.path = "", false, 0, math.MaxInt, nil, ""
	c.in.b, c.in.at = b, 0
	return c
}

func (c *C) end() {
	c.in.b, c.in.from, c.out.b, c.text, c.err, c.path = nil, nil, nil, "", nil, ""
	pool.Put(c)
}

// wrong is the error of the pass over x, with the path to the field: Job.Spec.Gres[3].Name.
func (c *C) wrong(x Coder) error {
	if c.err == nil {
		return nil
	}
	if e, ok := c.err.(*NotPlain); ok { //nolint:errorlint // as cared made it
		e.Field = strings.TrimPrefix(c.path, ".")
	}
	if c.path == "" {
		return c.err
	}
	if x == nil {
		return fmt.Errorf("%s: %w", strings.TrimPrefix(c.path, "."), c.err)
	}
	return fmt.Errorf("%s%s: %w", structType(x).Name(), c.path, c.err)
}

// Marshal writes x.
func Marshal(x Coder) ([]byte, error) { return Append(nil, x) }

// Append adds x to buf.
func Append(buf []byte, x Coder) ([]byte, error) { return appendTo(buf, x, false) }

// AppendMessage adds x to buf in a form that ReadMessage accepts.
func AppendMessage(buf []byte, x Coder) ([]byte, error) { return appendTo(buf, x, true) }

func appendTo(buf []byte, x Coder, message bool) ([]byte, error) {
	c := begin(nil, true)
	defer c.end()
	c.message = message
	fresh := cap(buf) == 0
	if c.out.b = buf; fresh {
		c.out.b = c.scratch[:0]
	}
	c.structure(x)
	if message {
		c.pay(len(buf))
	}
	if c.err != nil {
		return nil, c.wrong(x)
	}
	if fresh {
		return c.written(), nil
	}
	return c.out.b, nil
}

// Values writes the values that f passes over, one after the other.
func Values(f func(*C)) ([]byte, error) {
	c := begin(nil, true)
	defer c.end()
	c.out.b = c.scratch[:0]
	if f(c); c.err != nil {
		return nil, c.wrong(nil)
	}
	return c.written(), nil
}

// ReadValues lets f read consecutive values in b. Bytes after them are no error.
func ReadValues(b []byte, f func(*C)) error {
	_, err := ReadValuesWith(b, AsIs, f)
	return err
}

// written gives a copy of the output and keeps the buffer for the next write.
func (c *C) written() []byte {
	if c.scratch = c.out.b; cap(c.scratch) <= maxScratch {
		return bytes.Clone(c.scratch)
	}
	c.scratch = nil
	return c.out.b
}

// pay pads the message that begins at from, until its length covers its cost to the reader.
func (c *C) pay(from int) {
	const nilByte = 0xc0
	for short := (c.cost-Floor+Factor-1)/Factor - (len(c.out.b) - from); short > 0; short-- {
		c.out.b = append(c.out.b, nilByte)
	}
}

// Unmarshal reads all of b into x and replaces x's contents. It returns ErrTrailing if bytes are left over and
// io.ErrUnexpectedEOF (wrapped) if some are missing.
func Unmarshal(b []byte, x Coder) error {
	c := begin(b, false)
	defer c.end()
	if c.structure(x); c.err != nil {
		return c.wrong(x)
	}
	if left := len(b) - c.in.at; left != 0 {
		return fmt.Errorf("%w: %d of %d", ErrTrailing, left, len(b))
	}
	return nil
}

// Unpaid is a message that is sent without padding, because it is assembled from stored data: it may cost its reader
// this many bytes more.
type Unpaid interface{ Unpaid() int }

// Worth is the most memory that reading a message of this length into x may cost.
func Worth(bytes int, x Coder) int {
	worth := Floor + Factor*bytes
	if u, ok := x.(Unpaid); ok {
		worth += u.Unpaid()
	}
	return worth
}

// ReadMessage reads a received message into x and replaces x's contents. Bytes after it are no error.
func ReadMessage(b []byte, x Coder) error { return ReadMessageWith(b, x, AsIs) }

// ReadAgain reads a message into x, with care for its texts, and reuses x's lists and pointers. Texts share the memory
// of one copy of b.
func ReadAgain(b []byte, x Coder, care Care) error {
	c := begin(b, false)
	defer c.end()
	c.reuse, c.text, c.care = true, string(b), care
	c.structure(x)
	return c.wrong(x)
}

// Writer writes values one after the other.
type Writer struct {
	to  io.Writer
	c   *C
	err error
}

// NewWriter makes a Writer. Flush ends it.
func NewWriter(w io.Writer) *Writer {
	c := newC()
	c.writing = true
	return &Writer{to: w, c: c}
}

// Write adds x. After an error it only returns that error again.
func (w *Writer) Write(x Coder) error {
	if w.err != nil {
		return w.err
	}
	w.c.n = 0
	if w.c.structure(x); w.c.err != nil {
		w.err = w.c.wrong(x)
	} else if len(w.c.out.b) >= streamBytes {
		w.err = w.Flush()
	}
	return w.err
}

// Flush passes the written values on to the io.Writer.
func (w *Writer) Flush() error {
	if w.err == nil {
		_, w.err = w.to.Write(w.c.out.b)
		w.c.out.b = w.c.out.b[:0]
	}
	return w.err
}

// Reader reads the output of a Writer.
type Reader struct{ c *C }

// NewReader makes a Reader. It reads ahead.
func NewReader(r io.Reader) *Reader {
	c := newC()
	c.in.from = r
	return &Reader{c}
}

// Read reads the next value into x and replaces x's contents.
func (r *Reader) Read(x Coder) error {
	if r.c.err == nil {
		r.c.n, r.c.fields = 0, math.MaxInt
		r.c.structure(x)
	}
	return r.c.wrong(x)
}

// AtEnd reports whether the input has ended.
func (r *Reader) AtEnd() bool { return !r.c.in.has(1) }
