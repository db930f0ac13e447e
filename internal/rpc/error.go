package rpc

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// Sentinels: every error of a Conn or Mux that ends its connection is one of these, for errors.Is.
var (
	// ErrLost says that the connection ended: closed by the peer, reset, or too slow. Whether an outstanding request
	// was executed is unknown.
	ErrLost = errors.New("connection lost")
	// ErrProtocol says that the peer does not use the gbatch protocol, or uses another version.
	ErrProtocol = errors.New("not the gbatch protocol")
	// ErrClosed says that this side closed the connection.
	ErrClosed = errors.New("connection is closed")
)

// Unsent is the error of a request that did not reach its peer completely: it was not and will not be executed, so any
// such request is safe to repeat. After an error that is neither an Unsent nor an *Error, the answer is lost and this
// side can't know whether the request was executed.
type Unsent struct{ Err error }

// Error gives only the reason.
func (u *Unsent) Error() string { return u.Err.Error() }

// Unwrap gives the reason.
func (u *Unsent) Unwrap() error { return u.Err }

// unsent marks err, unless it is the peer's own error, which says more.
func unsent(err error) error {
	var e *Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return &Unsent{err}
}

// Codes that the transport itself answers with. They are at the top of the range; internal/proto has those below.
const (
	// CodeInternal is any failure whose text is for the daemon's log and not for the user.
	CodeInternal uint16 = 0xff00 + iota
	// CodeBusy is a limit on connections or on concurrent requests; trying again later may succeed.
	CodeBusy
	// CodeTooLarge is a message over the limit of its connection.
	CodeTooLarge
	// CodeBadRequest is a frame that is no request, or a request that is not possible on its connection.
	CodeBadRequest
)

// maxErrorText is the most bytes of an Error's text on the wire; longer text is cut.
const maxErrorText = 64 << 10

// Error is an answer that is an error: a code for programs and a sentence for people. A client gets it for a failed
// request, and a handler passes it to Request.Fail for the user.
type Error struct {
	Code uint16
	Text string
}

// Error gives only the sentence, which users see unchanged.
func (e *Error) Error() string { return e.Text }

// Errorf makes an Error whose text users will see.
func Errorf(code uint16, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Encode is the body of a FlagError frame: a msgpack array of code and text.
func (e *Error) Encode() []byte {
	text := e.Text
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	// These three calls fail only if a write fails, and writes to a bytes.Buffer do not.
	_ = enc.EncodeArrayLen(2)
	_ = enc.EncodeUint16(e.Code)
	_ = enc.EncodeString(text)
	return b.Bytes()
}

// DecodeError reads the body of a FlagError frame. Fields after the second are skipped, so that they can be added.
func DecodeError(body []byte) (*Error, error) {
	dec := msgpack.NewDecoder(bytes.NewReader(body))
	n, err := dec.DecodeArrayLen()
	if err != nil {
		return nil, fmt.Errorf("%w: error answer: %w", ErrProtocol, err)
	}
	if n < 2 {
		return nil, fmt.Errorf("%w: error answer has %d fields, not 2", ErrProtocol, n)
	}
	code, err := dec.DecodeUint16()
	if err != nil {
		return nil, fmt.Errorf("%w: error answer's code: %w", ErrProtocol, err)
	}
	text, err := dec.DecodeString()
	if err != nil {
		return nil, fmt.Errorf("%w: error answer's text: %w", ErrProtocol, err)
	}
	return &Error{Code: code, Text: text}, nil
}

// asError turns an answer with FlagError into the error it carries.
func (f *Frame) asError() error {
	e, err := DecodeError(f.Body)
	if err != nil {
		return err
	}
	return e
}
