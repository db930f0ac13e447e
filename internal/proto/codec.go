package proto

import (
	"bytes"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// Message is anything in this package that travels in a frame.
type Message interface {
	msgpack.CustomEncoder
	msgpack.CustomDecoder
}

// Encode gives a message's bytes.
func Encode(m Message) ([]byte, error) { return Append(nil, m) }

// Append adds a message's bytes to buf, which a sender may use again.
func Append(buf []byte, m Message) ([]byte, error) {
	b := bytes.NewBuffer(buf)
	e := msgpack.GetEncoder()
	defer msgpack.PutEncoder(e)
	e.Reset(b)
	if err := m.EncodeMsgpack(e); err != nil {
		return nil, fmt.Errorf("encode %T: %w", m, err)
	}
	return b.Bytes(), nil
}

// Decode reads a message. Hostile bytes give an error.
func Decode(body []byte, m Message) error {
	d := msgpack.GetDecoder()
	defer msgpack.PutDecoder(d)
	d.Reset(bytes.NewReader(body))
	if err := m.DecodeMsgpack(d); err != nil {
		return fmt.Errorf("decode %T: %w", m, err)
	}
	return nil
}
