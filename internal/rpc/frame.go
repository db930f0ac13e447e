package rpc

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Limits on what a peer may send, in bytes of a frame's body.
const (
	// MaxFrame is the largest body between daemons, and the largest answer.
	MaxFrame = 64 << 20
	// MaxRequest is the largest request on a local user socket.
	MaxRequest = 16 << 20
)

// Limits on how long a peer may take.
const (
	// PrefaceTimeout is the time for a peer to send its preface.
	PrefaceTimeout = 10 * time.Second
	// FrameTimeout is the time for a peer to finish a frame that it has begun, plus the body's length at MinRate.
	FrameTimeout = 10 * time.Second
	// WriteTimeout is the time for a peer to read a written frame, plus the body's length at MinRate.
	WriteTimeout = 30 * time.Second
	// MinRate is the slowest accepted transfer, in bytes per second.
	MinRate = 1 << 20
)

// Flags of a frame. A frame with any other bit closes the connection.
const (
	// FlagMore marks an answer that another answer to the same request follows.
	FlagMore uint16 = 1 << iota
	// FlagError marks an answer whose body is an encoded Error; it is the last one.
	FlagError
	// FlagMux marks a request that others may follow before it is answered; the server sends at most StreamWindow
	// unacknowledged FlagMore frames for it.
	FlagMux
	// FlagCredit acknowledges FlagMore frames of a FlagMux request: the body is their number as a uint16.
	FlagCredit
	// FlagCancel says that the client no longer wants the answer to a FlagMux request.
	FlagCancel

	flagsKnown = FlagMore | FlagError | FlagMux | FlagCredit | FlagCancel
)

const (
	lengthLen = 4 // bytes of the length
	fixedLen  = 8 // bytes of kind, flags and id, which the length counts
	headerLen = lengthLen + fixedLen
	bodyChunk = 64 << 10 // first size of a body's buffer, whatever length was claimed
)

// Frame is one unit on the wire. internal/proto defines Kind and Body; this package only carries them.
type Frame struct {
	Kind  uint16
	Flags uint16
	ID    uint32
	Body  []byte
}

// More reports whether another answer to the same request follows.
func (f *Frame) More() bool { return f.Flags&FlagMore != 0 }

// appendHeader appends the header of a frame with a body of bodyLen bytes.
func appendHeader(dst []byte, kind, flags uint16, id uint32, bodyLen int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(bodyLen+fixedLen))
	dst = binary.BigEndian.AppendUint16(dst, kind)
	dst = binary.BigEndian.AppendUint16(dst, flags)
	return binary.BigEndian.AppendUint32(dst, id)
}

// parseHeader fills f from the headerLen bytes of b and returns the body's length in bytes. f is filled even if an
// error is returned.
func parseHeader(b []byte, f *Frame, limit int) (bodyLen int, err error) {
	length := binary.BigEndian.Uint32(b)
	f.Kind = binary.BigEndian.Uint16(b[4:])
	f.Flags = binary.BigEndian.Uint16(b[6:])
	f.ID = binary.BigEndian.Uint32(b[8:])
	switch {
	case length < fixedLen:
		return 0, fmt.Errorf("%w: a frame of %d bytes is shorter than its header", ErrProtocol, length)
	case f.Flags&^flagsKnown != 0:
		return 0, fmt.Errorf("%w: a frame has unknown flags %#x", ErrProtocol, f.Flags&^flagsKnown)
	case uint64(length-fixedLen) > uint64(limit):
		return 0, fmt.Errorf("%w: %w", ErrProtocol, tooLarge(uint64(length-fixedLen), limit))
	}
	return int(length - fixedLen), nil
}

func tooLarge(n uint64, limit int) *Error {
	return &Error{Code: CodeTooLarge, Text: fmt.Sprintf("a message of %d bytes is over the limit of %d bytes (%d MiB)",
		n, limit, limit>>20)}
}

// transferTime is the time for n bytes at MinRate.
func transferTime(n int) time.Duration {
	return time.Duration(n) * time.Second / MinRate
}
