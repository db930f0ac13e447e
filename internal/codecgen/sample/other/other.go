// Package other is the second package of the codecgen sample: types seen from outside.
package other

import "github.com/vmihailenco/msgpack/v5"

//go:generate go run gbatch/internal/codecgen

// ID is a named integer.
type ID uint32

// Set is a named slice.
type Set []uint64

// IDs is a named slice of a named type.
type IDs []ID

// Point is a codec struct.
//
//gbatch:codec
type Point struct {
	X, Y int32
}

// Hand has a codec written by hand.
type Hand struct{ Word string }

// EncodeMsgpack implements msgpack.CustomEncoder.
func (h *Hand) EncodeMsgpack(e *msgpack.Encoder) error { return e.EncodeString(h.Word) }

// DecodeMsgpack implements msgpack.CustomDecoder.
func (h *Hand) DecodeMsgpack(d *msgpack.Decoder) (err error) {
	h.Word, err = d.DecodeString()
	return err
}
