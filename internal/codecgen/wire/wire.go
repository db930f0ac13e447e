// Package wire holds the few functions that generated codecs (codec_gen.go, written by gbatch/internal/codecgen) call.
//
// It exists because four of msgpack's own calls trust their input too far: DecodeBytes allocates whatever length the
// input claims (up to 4 GiB), Skip recurses once per nesting level and so can be made to overflow the stack, and
// narrow integers are cut off silently. Everything here is bounded by the bytes really received.
//
// It keeps no state and imports no clock, socket or lock, so that the pure packages may use it.
package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// maxPrealloc is the largest number of elements allocated on the word of a length in the input; longer slices grow by append.
const maxPrealloc = 1024

// chunkBytes is how much of a byte string is allocated before its bytes have arrived.
const chunkBytes = 64 << 10

// ErrTrailing says that bytes were left after the value that Unmarshal decoded.
var ErrTrailing = errors.New("bytes left over after the encoded value")

// ErrRange says that an integer doesn't fit the type of its field.
var ErrRange = errors.New("integer out of range")

// Codec is what every type with a generated codec implements on its pointer.
type Codec interface {
	EncodeMsgpack(*msgpack.Encoder) error
	DecodeMsgpack(*msgpack.Decoder) error
}

// Marshal encodes x. Equal values give equal bytes.
func Marshal(x Codec) ([]byte, error) {
	var buf bytes.Buffer
	e := msgpack.GetEncoder()
	defer msgpack.PutEncoder(e)
	e.Reset(&buf)
	if err := x.EncodeMsgpack(e); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Unmarshal decodes b, all of it, into x and replaces what x held. It returns ErrTrailing when bytes are left over and
// io.ErrUnexpectedEOF (wrapped) when some are missing.
func Unmarshal(b []byte, x Codec) error {
	r := bytes.NewReader(b)
	d := msgpack.GetDecoder()
	defer msgpack.PutDecoder(d)
	d.Reset(r)
	if err := x.DecodeMsgpack(d); err != nil {
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	if r.Len() != 0 {
		return fmt.Errorf("%w: %d of %d", ErrTrailing, r.Len(), len(b))
	}
	return nil
}

// In adds the field being decoded to err. An end of input inside a value is unexpected.
func In(field string, err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: %w", field, err)
}

// Range returns the error for an integer that doesn't fit its field.
func Range[T int64 | uint64](field string, v T) error {
	return fmt.Errorf("%s: %w: %d", field, ErrRange, v)
}

// Cap bounds the capacity to allocate for n elements that the input claims to hold.
func Cap(n int) int { return min(max(n, 0), maxPrealloc) }

// Nil reports whether the next value is nil, and takes it if so.
func Nil(d *msgpack.Decoder) (bool, error) {
	c, err := d.PeekCode()
	if err != nil || c != msgpcode.Nil {
		return false, err
	}
	return true, d.DecodeNil()
}

// Bytes encodes b; an empty and a nil slice look the same.
func Bytes(e *msgpack.Encoder, b []byte) error {
	if len(b) == 0 {
		return e.EncodeNil()
	}
	return e.EncodeBytes(b)
}

// DecodeBytes decodes a byte string into memory of its own; empty decodes as nil.
func DecodeBytes(d *msgpack.Decoder) ([]byte, error) {
	n, err := d.DecodeBytesLen()
	if err != nil || n <= 0 {
		return nil, err
	}
	b := make([]byte, min(n, chunkBytes))
	for at := 0; ; {
		if err := d.ReadFull(b[at:]); err != nil {
			return nil, err
		}
		if len(b) == n {
			return b, nil
		}
		at = len(b)
		b = append(b, make([]byte, min(n-len(b), len(b)))...)
	}
}

// DecodeByteArray decodes a byte string of exactly len(dst) bytes, or nil, which leaves dst as it is.
func DecodeByteArray(d *msgpack.Decoder, dst []byte) error {
	n, err := d.DecodeBytesLen()
	if err != nil || n == -1 {
		return err
	}
	if n != len(dst) {
		return fmt.Errorf("%d bytes where %d belong", n, len(dst))
	}
	if n == 0 {
		return nil
	}
	return d.ReadFull(dst)
}

// Skip passes over n values of any kind, however deep they nest, without recursion.
func Skip(d *msgpack.Decoder, n int) error {
	for left := max(n, 0); left > 0; left-- {
		c, err := d.PeekCode()
		if err != nil {
			return err
		}
		held := 0
		switch {
		case msgpcode.IsFixedArray(c), c == msgpcode.Array16, c == msgpcode.Array32:
			held, err = d.DecodeArrayLen()
		case msgpcode.IsFixedMap(c), c == msgpcode.Map16, c == msgpcode.Map32:
			held, err = d.DecodeMapLen()
			held *= 2
		default:
			err = d.Skip()
		}
		if err != nil {
			return err
		}
		left += held // each container in the input adds at most 2^33; an int holds 2^30 of them
	}
	return nil
}
