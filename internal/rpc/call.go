package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Caller makes requests. A Conn makes one request at a time, a Mux many concurrent ones.
type Caller interface {
	// Call sends a request that has one answer and returns it. An error from the server is an *Error; the error of a
	// request that never arrived is an *Unsent.
	Call(ctx context.Context, kind uint16, body []byte) (Frame, error)
	// Stream sends a request and passes every answer to each, in order, the last one without FlagMore. If each fails,
	// Stream returns its error without waiting for the rest. The frame's body is valid only while each runs.
	Stream(ctx context.Context, kind uint16, body []byte, each func(*Frame) error) error
}

var (
	_ Caller = (*Conn)(nil)
	_ Caller = (*Mux)(nil)
)

// Call makes a request and waits for its one answer. It is for a connection with one user at a time: the caller is the
// reader. If ctx ends or the read deadline passes first, the connection is closed, because the answer would be taken
// for that of the next request. An *Error leaves the connection usable.
func (c *Conn) Call(ctx context.Context, kind uint16, body []byte) (Frame, error) {
	var answer Frame
	err := c.Stream(ctx, kind, body, func(f *Frame) error {
		if f.More() {
			return fmt.Errorf("%s: %w", c.name, errStreamed)
		}
		answer = *f
		f.Body = nil
		return nil
	})
	return answer, err
}

var errStreamed = fmt.Errorf("%w: many answers where one was asked for", ErrProtocol)

// Stream makes a request and passes its answers to each as they arrive; see Caller. If each fails, the connection is
// closed, because the remaining answers are still coming.
func (c *Conn) Stream(ctx context.Context, kind uint16, body []byte, each func(*Frame) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() != nil {
		// Only closing wakes a reader on any stream; the connection is of no more use anyway.
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		defer func() {
			if !stop() && errors.Is(err, ErrClosed) {
				err = fmt.Errorf("%s: no answer: %w", c.name, context.Cause(ctx))
			}
		}()
	}
	c.nextID++
	if c.nextID == 0 {
		c.nextID = 1
	}
	id := c.nextID
	if err := c.WriteFrame(kind, 0, id, body); err != nil {
		return unsent(c.lastWord(err)) // the server has no whole frame of it
	}
	var f Frame
	wait := probeFirst
	for {
		err := c.readAnswer(&f, &wait)
		switch {
		case err == io.EOF:
			return c.fail(io.ErrUnexpectedEOF, "the peer closed it before the answer")
		case isTimeout(err):
			_ = c.Close() // the answer may still come
			return err
		case err != nil:
			return err
		case f.Flags&FlagError != 0 && (f.ID == id || f.ID == 0):
			if f.ID == 0 {
				_ = c.Close() // the server has ended the connection
			}
			return f.asError()
		case f.ID != id || f.Flags&^FlagMore != 0:
			return c.fail(fmt.Errorf("%w: an answer to %d with flags %#x where one to %d was due", ErrProtocol, f.ID, f.Flags,
				id), "")
		}
		last := !f.More()
		if err := each(&f); err != nil {
			_ = c.Close() // more answers may be coming
			return err
		}
		if last {
			return nil
		}
	}
}

// isTimeout reports whether a read deadline has passed and the connection is still open.
func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, ErrLost)
}

// lastWord reads, after a failed write, the server's reason for not reading on: a refusal arrives while the client
// still sends. It waits at most a second and closes the connection.
func (c *Conn) lastWord(werr error) error {
	var e *Error
	if errors.As(werr, &e) {
		return werr // over this side's limit: nothing was sent, the connection stays open
	}
	// The connection has ended, and the error to report is known.
	defer func() { _ = c.Close() }()
	if c.closed.Load() || c.SetReadDeadline(time.Now().Add(time.Second)) != nil {
		return werr
	}
	var f Frame
	for c.ReadFrame(&f) == nil {
		if f.Flags&FlagError != 0 { // of the connection, or of this request: its head was enough
			return f.asError()
		}
	}
	return werr
}
