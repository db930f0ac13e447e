// Package x11 is what both sides of a display that is forwarded share (grun --x11): what X clients prove their rights
// with (auth.go), and the copying between a client's connection and the frames of a step's (splice.go).
//
// A forwarded display has a cookie of its own at the tasks' side (Cookie): whoever reads it on a node can use it
// through the command only, as long as the command lives, and never learns the real one.
//
// It owns neither files nor sockets, and stays as light as package stepio. Formats: Xauthority after Xau's manual, the
// setup after the X Window System Protocol, version 11, chapter 8.
package x11

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Name is the way of proving that is known here.
const Name = "MIT-MAGIC-COOKIE-1"

const (
	// CookieBytes is the length of a cookie.
	CookieBytes = 16
	// FirstPort is the TCP port of display 0.
	FirstPort = 6000
	// MaxFile bounds a file of cookies, bytes.
	MaxFile = 1 << 20

	maxField = 1 << 10 // of a connection's first bytes: the name, and the proof
)

// Kinds of an entry's address.
const (
	familyLocal = 256
	familyWild  = 65535
)

// Cookie gives the cookie of a display that is forwarded with a key.
func Cookie(key []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("x11")) // a hash never fails
	return h.Sum(nil)[:CookieBytes]
}

// File makes an Xauthority file with one cookie, for the display with that number on every host.
func File(number int, cookie []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, familyWild)
	for _, field := range [][]byte{nil, fmt.Append(nil, number), []byte(Name), cookie} {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(field))), field...)
	}
	return b
}

// Find gives the cookie of a display of this host in an Xauthority file; nil: there is none. An entry that names the
// host comes before one for an address or any host, and that before one that names another host.
func Find(file []byte, host string, number int) []byte {
	var other, far []byte
	want := fmt.Append(nil, number)
	for len(file) >= 2 {
		family := binary.BigEndian.Uint16(file)
		file = file[2:]
		var fields [4][]byte // address, number, name, data
		for i := range fields {
			if len(file) < 2 || len(file) < 2+int(binary.BigEndian.Uint16(file)) {
				return orElse(other, far) // it is cut off
			}
			n := int(binary.BigEndian.Uint16(file))
			fields[i], file = file[2:2+n], file[2+n:]
		}
		if string(fields[2]) != Name || len(fields[1]) > 0 && !bytes.Equal(fields[1], want) {
			continue
		}
		switch {
		case family == familyLocal && string(fields[0]) == host:
			return fields[3]
		case family == familyLocal:
			far = orElse(far, fields[3])
		default:
			other = orElse(other, fields[3])
		}
	}
	return orElse(other, far)
}

func orElse(a, b []byte) []byte {
	if a != nil {
		return a
	}
	return b
}

// ErrProof says that a client has not the display's cookie.
var ErrProof = errors.New("an X client without the display's cookie")

// Exchange reads the first bytes of a client's connection, checks that it has the cookie, and gives what the X server
// is to get in their place: the same with the cookie real; none if real is empty.
func Exchange(r io.Reader, cookie, real []byte) ([]byte, error) {
	head := make([]byte, 12) // order, -, version (2, 2), length of name, of data, -, -
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	var order interface {
		binary.ByteOrder
		binary.AppendByteOrder
	}
	switch head[0] {
	case 'B':
		order = binary.BigEndian
	case 'l':
		order = binary.LittleEndian
	default:
		return nil, errors.New("this is no X client")
	}
	names, datas := int(order.Uint16(head[6:])), int(order.Uint16(head[8:]))
	if names > maxField || datas > maxField {
		return nil, ErrProof
	}
	rest := make([]byte, padded(names)+padded(datas))
	if _, err := io.ReadFull(r, rest); err != nil {
		return nil, err
	}
	data := rest[padded(names):][:datas]
	if string(rest[:names]) != Name || subtle.ConstantTimeCompare(data, cookie) != 1 {
		return nil, ErrProof
	}
	name := Name
	if len(real) == 0 {
		name = ""
	}
	out := order.AppendUint16(append([]byte{}, head[:6]...), uint16(len(name)))
	out = append(order.AppendUint16(out, uint16(len(real))), 0, 0)
	for _, field := range []string{name, string(real)} {
		out = append(append(out, field...), make([]byte, padded(len(field))-len(field))...)
	}
	return out, nil
}

func padded(n int) int { return (n + 3) &^ 3 }
