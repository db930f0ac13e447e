package proto

import (
	"fmt"

	"gbatch/internal/wire"
)

// Message is any struct of this package that is sent in a frame.
type Message = wire.Coder

// Encode gives a message's bytes.
func Encode(m Message) ([]byte, error) { return Append(nil, m) }

// Append adds a message's bytes to buf, which a sender may use again.
func Append(buf []byte, m Message) ([]byte, error) {
	out, err := wire.AppendMessage(buf, m)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", m, err)
	}
	return out, nil
}

// Decode reads a message. Malformed bytes give an error, and take no more memory than package wire allows.
func Decode(body []byte, m Message) error { return DecodeWith(body, m, wire.AsIs) }

// DecodeWith is Decode with care for texts that could harm those who see them.
func DecodeWith(body []byte, m Message, care wire.Care) error {
	if err := wire.ReadMessageWith(body, m, care); err != nil {
		return fmt.Errorf("decode %T: %w", m, err)
	}
	return nil
}
