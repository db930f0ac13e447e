package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// ProtocolVersion is the version of the frames and of how a connection opens. Messages have their own rules for
// growing (internal/proto), so this changes only when an old peer could not even be told what is wrong.
const ProtocolVersion = 1

const (
	magic      = "GBATCH"
	prefaceLen = len(magic) + 2
)

func preface() []byte { return binary.BigEndian.AppendUint16([]byte(magic), ProtocolVersion) }

// Client makes the client's side of a connection. Its preface goes out with the first frame, and the server's is read
// before the first answer; Handshake does both at once.
func Client(s Stream, o ConnOptions) *Conn {
	c := newConn(s, o)
	c.wantPreface = true
	c.wbuf = preface()
	return c
}

// Handshake sends the client's preface and waits for the server's, at most PrefaceTimeout. It is for connections that
// are opened before there is something to ask.
func (c *Conn) Handshake() error {
	if err := c.Flush(); err != nil {
		// The server may have said why before it closed; that is the better error.
		if perr := c.readPreface(); errors.Is(perr, ErrProtocol) {
			return perr
		}
		return err
	}
	if err := c.s.SetReadDeadline(time.Now().Add(PrefaceTimeout)); err != nil {
		return c.fail(err, "opening the connection")
	}
	if err := c.readPreface(); err != nil {
		return err
	}
	return c.s.SetReadDeadline(c.deadline)
}

// readPreface reads the server's preface if it is still due. It is under the deadline that is set: a server may send
// it with its first answer.
func (c *Conn) readPreface() error {
	if !c.wantPreface {
		return nil
	}
	if _, err := c.peekPreface(); err != nil {
		return c.fail(midFrame(err), "the peer did not answer")
	}
	// The bytes were peeked, so they are there to discard.
	_, _ = c.br.Discard(prefaceLen)
	c.wantPreface = false
	return nil
}

// Accept makes the server's side of a connection: it reads the client's preface, for at most PrefaceTimeout, and
// answers it, together with the first answer if a request has already arrived. It returns io.EOF for a peer that
// connected and left. The stream is closed if it fails.
func Accept(s Stream, o ConnOptions) (*Conn, error) {
	return accept(s, o, PrefaceTimeout)
}

func accept(s Stream, o ConnOptions, timeout time.Duration) (*Conn, error) {
	c := newConn(s, o)
	if err := s.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return nil, c.fail(err, "opening the connection")
	}
	n, err := c.peekPreface()
	if errors.Is(err, errVersion) {
		// So that the client can say which versions met; it learns of the end either way.
		_, _ = s.Write(preface())
	}
	if err == io.EOF && n == 0 {
		// Nothing was said, nothing to report.
		_ = c.Close()
		return nil, io.EOF
	}
	if err != nil {
		return nil, c.fail(midFrame(err), fmt.Sprintf("it sent %d of the %d bytes that open a connection", n, prefaceLen))
	}
	// The bytes were peeked, so they are there to discard.
	_, _ = c.br.Discard(prefaceLen)
	if err := s.SetReadDeadline(time.Time{}); err != nil {
		return nil, c.fail(err, "opening the connection")
	}
	c.server = true
	c.wbuf = preface()
	if c.br.Buffered() == 0 {
		if err := c.Flush(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Refuse tells a client on a fresh connection why it isn't served. The caller closes the stream.
func Refuse(s Stream, reason *Error) error {
	body := reason.Encode()
	b := appendHeader(preface(), 0, FlagError, 0, len(body))
	if err := s.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err := s.Write(append(b, body...))
	return err
}

// peekPreface waits until the peer's preface is in the buffer, or a wrong byte of one. n is how much there is of it.
func (c *Conn) peekPreface() (n int, err error) {
	for n < prefaceLen && err == nil {
		_, err = c.br.Peek(n + 1)
		n = min(c.br.Buffered(), prefaceLen)
		b, _ := c.br.Peek(n) // they are buffered
		if perr := checkPreface(b); perr != nil {
			return n, perr
		}
	}
	return n, err
}

var errVersion = fmt.Errorf("%w: another version", ErrProtocol)

// checkPreface judges as many bytes as there are: a stranger is told apart at its first wrong byte.
func checkPreface(b []byte) error {
	n := min(len(b), len(magic))
	if string(b[:n]) != magic[:n] {
		return fmt.Errorf("%w: it opened with %q", ErrProtocol, b[:min(len(b), prefaceLen)])
	}
	if len(b) < prefaceLen {
		return nil
	}
	if v := binary.BigEndian.Uint16(b[len(magic):]); v != ProtocolVersion {
		return fmt.Errorf("%w of it: the peer speaks %d, this side %d; install the same gbatch on both", errVersion, v,
			ProtocolVersion)
	}
	return nil
}
