package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// ProtocolVersion is the version of the frames and of the opening of a connection. Messages have their own rules for
// changes (internal/proto), so this changes only if an old peer could not even read an error.
const ProtocolVersion = 1

const (
	magic      = "GBATCH"
	prefaceLen = len(magic) + 2
)

func preface() []byte { return binary.BigEndian.AppendUint16([]byte(magic), ProtocolVersion) }

// Client makes the client's side of a connection. The first frame carries its preface, and the server's is read before
// the first answer; Handshake does both at once.
func Client(s Stream, o ConnOptions) *Conn {
	c := newConn(s, o)
	c.wantPreface = true
	c.wbuf = preface()
	return c
}

// Handshake sends the client's preface and waits for the server's, at most PrefaceTimeout. It is for connections that
// open before their first request.
func (c *Conn) Handshake() error { return c.HandshakeWithin(PrefaceTimeout) }

// HandshakeWithin is Handshake with another limit.
func (c *Conn) HandshakeWithin(limit time.Duration) error {
	if err := c.Flush(); err != nil {
		// The server may have sent its reason before it closed; that is the better error.
		if perr := c.readPreface(); errors.Is(perr, ErrProtocol) {
			return perr
		}
		return err
	}
	if err := c.s.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return c.fail(err, "opening the connection")
	}
	if err := c.readPreface(); err != nil {
		return err
	}
	return c.s.SetReadDeadline(c.deadline)
}

// readPreface reads the server's preface if it is still due, under the current deadline: a server may send it with its
// first answer.
func (c *Conn) readPreface() error {
	if !c.wantPreface {
		return nil
	}
	if _, err := c.peekPreface(); err != nil {
		return c.fail(midFrame(err), "the peer did not answer")
	}
	// The bytes were peeked, so they can be discarded.
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
		// The peer has sent nothing, so there is nothing to report.
		_ = c.Close()
		return nil, io.EOF
	}
	if err != nil {
		return nil, c.fail(midFrame(err), fmt.Sprintf("it sent %d of the %d bytes that open a connection", n, prefaceLen))
	}
	// The bytes were peeked, so they can be discarded.
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

// Refuse sends a client on a new connection the reason why it isn't served. The caller closes the stream.
func Refuse(s Stream, reason *Error) error {
	body := reason.Encode()
	b := appendHeader(preface(), 0, FlagError, 0, len(body))
	if err := s.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err := s.Write(append(b, body...))
	return err
}

// peekPreface waits until the buffer has the peer's preface, or a wrong byte. n is the number of buffered bytes.
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

// checkPreface checks the available bytes: the first wrong byte is an error.
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
