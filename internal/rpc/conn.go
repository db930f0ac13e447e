package rpc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Conn sends and receives frames over a byte stream. One goroutine may read; any number may write.
//
// Reading has two deadlines. SetReadDeadline bounds the wait for the first byte of a frame; after it the caller may
// continue to read, and nothing is lost. FrameTimeout bounds a frame that has begun; after it the connection is closed.

// Stream is what a Conn runs on: a net.Conn (TLS or not), or the raw socket that DialUnix opens.
type Stream interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// ConnOptions bound and name a Conn. Zero values mean the defaults.
type ConnOptions struct {
	Name       string // the peer, as errors name it
	ReadLimit  int    // largest body accepted, in bytes; default MaxFrame
	WriteLimit int    // largest body sent, in bytes; default MaxFrame

	// Quiet is called when a Mux has requests under way and nothing has arrived for a while; the peer may be silent for
	// good (see SilentAfter). It may not wait.
	Quiet func()
}

const (
	readBuffer  = 4 << 10  // bytes; larger bodies are read directly into the frame
	writeBuffer = 16 << 10 // bytes; a frame within it goes out in one write
)

// Conn is a framed connection. Make one with Client, Accept or DialUnix.
type Conn struct {
	s          Stream
	name       string
	readLimit  int
	writeLimit int
	server     bool // sends the peer the reason before it closes on a protocol error
	closed     atomic.Bool
	reason     atomic.Pointer[error] // reason if fail closed it; nil if Close did

	// Reading: only for the reader, except deadline, which is set between reads.
	br           *bufio.Reader
	arrived      atomic.Uint64 // reads that gave bytes
	wantPreface  bool          // the server's preface has not been read yet
	deadline     time.Time     // the caller's, for a frame's first byte
	started      bool          // the frame's own deadline is set on the stream
	nextID       uint32        // of Call and Stream
	frameTimeout time.Duration
	probe        func() error // see SetProbe
	quiet        func()

	// Writing.
	wmu       sync.Mutex
	wbuf      []byte
	werr      error     // sticky: after a failed write the stream may end in a partial frame
	wdeadline time.Time // the one set on the stream
}

func newConn(s Stream, o ConnOptions) *Conn {
	if o.ReadLimit == 0 {
		o.ReadLimit = MaxFrame
	}
	if o.WriteLimit == 0 {
		o.WriteLimit = MaxFrame
	}
	c := &Conn{s: s, name: o.Name, readLimit: o.ReadLimit, writeLimit: o.WriteLimit, quiet: o.Quiet,
		frameTimeout: FrameTimeout}
	c.br = bufio.NewReaderSize(arrivals{c}, readBuffer)
	return c
}

// arrivals reads from the stream and counts the reads that gave bytes.
type arrivals struct{ c *Conn }

func (a arrivals) Read(b []byte) (int, error) {
	n, err := a.c.s.Read(b)
	if n > 0 {
		a.c.arrived.Add(1)
	}
	return n, err
}

// Name is the peer as errors name it.
func (c *Conn) Name() string { return c.name }

// SetReadDeadline bounds the wait for the first byte of the following frames; zero means no bound. Call it between
// reads. After it, ReadFrame and Wait return an error that is os.ErrDeadlineExceeded, and the connection stays open.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return c.s.SetReadDeadline(t)
}

// Close ends the connection; a waiting reader and waiting writers get ErrClosed. It is idempotent.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.s.Close()
}

// Wait returns nil once a frame has begun to arrive, without reading it; io.EOF if the peer closed the connection
// between frames.
func (c *Conn) Wait() error {
	if err := c.readPreface(); err != nil {
		return err
	}
	if c.br.Buffered() > 0 {
		return nil
	}
	_, err := c.br.Peek(1)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && !c.closed.Load():
		return fmt.Errorf("%s: nothing arrived in time: %w", c.name, os.ErrDeadlineExceeded)
	case err == io.EOF && !c.closed.Load():
		return io.EOF
	}
	return c.fail(err, "waiting for a message")
}

// ReadFrame reads the next frame into f, reusing f.Body's memory. It returns io.EOF if the peer closed the
// connection between frames. After any error but a passed read deadline the connection is closed; the error is
// ErrLost, ErrProtocol or ErrClosed. If the frame was over the limit, errors.As finds the *Error and f has its id.
func (c *Conn) ReadFrame(f *Frame) error {
	n, err := c.ReadHead(f)
	if err != nil {
		return err
	}
	return c.ReadBody(f, n)
}

// ReadHead reads the head of the next frame into f, and gives the length of the body that the peer claims, bytes. Read
// or skip the body next. Its errors are ReadFrame's.
func (c *Conn) ReadHead(f *Frame) (n int, err error) {
	f.Body = f.Body[:0]
	if err := c.Wait(); err != nil {
		return 0, err
	}
	c.started = false
	if c.br.Buffered() < headerLen {
		c.startFrame(0)
	}
	h, err := c.br.Peek(headerLen)
	if err != nil {
		return 0, c.fail(midFrame(err), fmt.Sprintf("a message stopped after %d of the %d bytes of its header", len(h),
			headerLen))
	}
	if n, err = parseHeader(h, f, c.readLimit); err != nil {
		return 0, c.fail(err, "reading a message")
	}
	// The bytes were peeked, so they can be discarded.
	_, _ = c.br.Discard(headerLen)
	return n, nil
}

// ReadBody reads the body of the frame whose head was read.
func (c *Conn) ReadBody(f *Frame, n int) (err error) {
	if c.br.Buffered() < n {
		c.startFrame(n)
	}
	if f.Body, err = readBody(c.br, f.Body, n); err != nil {
		return c.fail(midFrame(err), fmt.Sprintf("a message stopped after %d of its %d bytes", len(f.Body), n))
	}
	return c.endFrame()
}

// SkipBody passes over the body of the frame whose head was read, without keeping it.
func (c *Conn) SkipBody(n int) error {
	if c.br.Buffered() < n {
		c.startFrame(n)
	}
	if at, err := c.br.Discard(n); err != nil {
		return c.fail(midFrame(err), fmt.Sprintf("a message stopped after %d of its %d bytes", at, n))
	}
	return c.endFrame()
}

// endFrame puts the caller's deadline back.
func (c *Conn) endFrame() error {
	if !c.started {
		return nil
	}
	if err := c.s.SetReadDeadline(c.deadline); err != nil {
		return c.fail(err, "reading a message")
	}
	return nil
}

// startFrame puts a frame with n more bytes to come under its own deadline.
func (c *Conn) startFrame(n int) {
	c.started = true
	// A stream that refuses a deadline is closed, and the next read returns that error.
	_ = c.s.SetReadDeadline(time.Now().Add(c.frameTimeout + transferTime(n)))
}

// readBody reads n bytes into buf's memory. The buffer grows with the arrived bytes: n is only a claim.
func readBody(r io.Reader, buf []byte, n int) ([]byte, error) {
	buf = buf[:0]
	for len(buf) < n {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(n, max(bodyChunk, 2*len(buf))))
			copy(grown, buf)
			buf = grown
		}
		at := len(buf)
		k, err := io.ReadFull(r, buf[at:min(n, cap(buf))])
		buf = buf[:at+k]
		if err != nil {
			return buf, err
		}
	}
	return buf, nil
}

// midFrame turns an end of stream inside a frame into an unexpected one.
func midFrame(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fail closes the connection and gives the reason; the first reason is kept.
func (c *Conn) fail(err error, doing string) error {
	if errors.Is(err, ErrProtocol) {
		err = fmt.Errorf("%s: %w", c.name, err)
		c.sayWhy(err)
	} else {
		err = fmt.Errorf("%s: %w: %s: %w", c.name, ErrLost, doing, err)
	}
	if !c.closed.Load() {
		c.reason.CompareAndSwap(nil, &err)
	}
	// The returned error is the reason to close.
	_ = c.Close()
	if why := c.reason.Load(); why != nil {
		return *why
	}
	return fmt.Errorf("%s: %w", c.name, ErrClosed)
}

// sayWhy sends a client the reason for the end of its connection, unless it would have to wait for other writers.
func (c *Conn) sayWhy(err error) {
	if !c.server || c.closed.Load() || !c.wmu.TryLock() {
		return
	}
	defer c.wmu.Unlock()
	e := &Error{Code: CodeBadRequest, Text: err.Error()}
	errors.As(err, &e)
	if c.s.SetWriteDeadline(time.Now().Add(time.Second)) != nil || c.queue(0, FlagError, 0, e.Encode()) != nil {
		return
	}
	// The connection ends either way.
	_, _ = c.s.Write(c.wbuf)
	c.wbuf = c.wbuf[:0]
}

// WriteFrame sends one frame, in one system call if it is under 16 KiB. It may be called from many goroutines. A body
// over the limit is refused with an *Error and sends nothing; after any other error nothing more can be sent. It fails
// if the peer has not read the bytes within WriteTimeout plus their length at MinRate.
func (c *Conn) WriteFrame(kind, flags uint16, id uint32, body []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if err := c.queue(kind, flags, id, body); err != nil {
		return err
	}
	return c.flush()
}

// QueueFrame is like WriteFrame, but may leave the frame in a buffer of 16 KiB until Flush or a later write.
func (c *Conn) QueueFrame(kind, flags uint16, id uint32, body []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.queue(kind, flags, id, body)
}

// Flush sends what was queued.
func (c *Conn) Flush() error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.flush()
}

func (c *Conn) queue(kind, flags uint16, id uint32, body []byte) error {
	if len(body) > c.writeLimit {
		return tooLarge(uint64(len(body)), c.writeLimit)
	}
	if c.werr != nil {
		return c.werr
	}
	if len(c.wbuf) > 0 && len(c.wbuf)+headerLen+len(body) > writeBuffer {
		if err := c.flush(); err != nil {
			return err
		}
	}
	c.wbuf = appendHeader(c.wbuf, kind, flags, id, len(body))
	fits := min(len(body), writeBuffer-len(c.wbuf))
	c.wbuf = append(c.wbuf, body[:fits]...)
	if fits == len(body) {
		return nil
	}
	if err := c.flush(); err != nil {
		return err
	}
	return c.write(body[fits:])
}

func (c *Conn) flush() error {
	if c.werr != nil || len(c.wbuf) == 0 {
		return c.werr
	}
	err := c.write(c.wbuf)
	c.wbuf = c.wbuf[:0]
	return err
}

// write sends b under a deadline. Setting a deadline costs more than reading the clock, so a deadline that is far
// enough away is kept.
func (c *Conn) write(b []byte) error {
	if c.closed.Load() {
		c.werr = fmt.Errorf("%s: %w", c.name, ErrClosed)
		return c.werr
	}
	const slack = WriteTimeout / 2
	need := time.Now().Add(WriteTimeout + transferTime(len(b)))
	if c.wdeadline.Before(need.Add(-slack)) {
		c.wdeadline = need
		// A stream that refuses a deadline is closed, and the write returns that error.
		_ = c.s.SetWriteDeadline(need)
	}
	if _, err := c.s.Write(b); err != nil {
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
			// The peer closed it; its last frame may still be unread, so the reader ends this connection.
			c.werr = fmt.Errorf("%s: %w: sending a message: %w", c.name, ErrLost, err)
			return c.werr
		}
		c.werr = c.fail(err, "sending a message")
		return c.werr
	}
	return nil
}
