package joblist

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var (
	errShort = errors.New("the list of jobs ends in the middle of a job")
	errKind  = errors.New("the list of jobs holds something else than jobs; is the controller of another version?")
)

// dec walks over msgpack values. After an error everything reads as nothing and at stays at the end.
type dec struct {
	s   string // a string, so that what is cut out of it shares its memory
	at  int
	err error
}

func (d *dec) fail(err error) {
	if d.err == nil {
		d.err = fmt.Errorf("%w (byte %d)", err, d.at)
	}
	d.at = len(d.s)
}

func (d *dec) byte() byte {
	if d.at >= len(d.s) {
		d.fail(errShort)
		return 0xc0
	}
	c := d.s[d.at]
	d.at++
	return c
}

// take gives the next n bytes.
func (d *dec) take(n int) string {
	if n < 0 || n > len(d.s)-d.at {
		d.fail(errShort)
		return ""
	}
	t := d.s[d.at : d.at+n]
	d.at += n
	return t
}

// big reads an unsigned big-endian number of n bytes.
func (d *dec) big(n int) uint64 {
	t := d.take(n)
	if len(t) < n {
		return 0
	}
	switch n {
	case 1:
		return uint64(t[0])
	case 2:
		return uint64(t[0])<<8 | uint64(t[1])
	case 4:
		return uint64(binary.BigEndian.Uint32([]byte(t)))
	}
	return binary.BigEndian.Uint64([]byte(t))
}

// int reads any integer. One over the range of int64 keeps its bits.
func (d *dec) int() int64 {
	switch c := d.byte(); {
	case c <= 0x7f:
		return int64(c)
	case c >= 0xe0:
		return int64(int8(c))
	case c >= 0xcc && c <= 0xcf:
		return int64(d.big(1 << (c - 0xcc)))
	case c == 0xd0:
		return int64(int8(d.big(1)))
	case c == 0xd1:
		return int64(int16(d.big(2)))
	case c == 0xd2:
		return int64(int32(d.big(4)))
	case c == 0xd3:
		return int64(d.big(8))
	case c == 0xc0:
		return 0
	}
	d.fail(errKind)
	return 0
}

func (d *dec) bool() bool {
	switch d.byte() {
	case 0xc3:
		return true
	case 0xc2, 0xc0:
		return false
	}
	d.fail(errKind)
	return false
}

func (d *dec) str() string {
	switch c := d.byte(); {
	case c >= 0xa0 && c <= 0xbf:
		return d.take(int(c & 0x1f))
	case c >= 0xd9 && c <= 0xdb:
		return d.take(int(d.big(1 << (c - 0xd9))))
	case c == 0xc0:
		return ""
	}
	d.fail(errKind)
	return ""
}

// array reads the head of an array; -1 is nil.
func (d *dec) array() int {
	switch c := d.byte(); {
	case c >= 0x90 && c <= 0x9f:
		return int(c & 0x0f)
	case c == 0xdc:
		return int(d.big(2))
	case c == 0xdd:
		return int(d.big(4))
	case c == 0xc0:
		return -1
	}
	d.fail(errKind)
	return -1
}

// skip passes over n values of any kind, however deep they nest.
func (d *dec) skip(n int) {
	for left := n; left > 0 && d.err == nil; left-- {
		switch c := d.byte(); {
		case c <= 0x7f, c >= 0xe0, c == 0xc0, c == 0xc2, c == 0xc3:
		case c >= 0x80 && c <= 0x8f:
			left += 2 * int(c&0x0f)
		case c >= 0x90 && c <= 0x9f:
			left += int(c & 0x0f)
		case c >= 0xa0 && c <= 0xbf:
			d.take(int(c & 0x1f))
		case c >= 0xc4 && c <= 0xc6: // byte strings
			d.take(int(d.big(1 << (c - 0xc4))))
		case c >= 0xc7 && c <= 0xc9: // extensions: a type beside the bytes
			d.take(int(d.big(1<<(c-0xc7))) + 1)
		case c == 0xca:
			d.take(4)
		case c == 0xcb:
			d.take(8)
		case c >= 0xcc && c <= 0xcf:
			d.take(1 << (c - 0xcc))
		case c >= 0xd0 && c <= 0xd3:
			d.take(1 << (c - 0xd0))
		case c >= 0xd4 && c <= 0xd8:
			d.take(1<<(c-0xd4) + 1)
		case c >= 0xd9 && c <= 0xdb:
			d.take(int(d.big(1 << (c - 0xd9))))
		case c == 0xdc:
			left += int(d.big(2))
		case c == 0xdd:
			left += int(d.big(4))
		case c == 0xde:
			left += 2 * int(d.big(2))
		case c == 0xdf:
			left += 2 * int(d.big(4))
		default:
			d.fail(errKind)
		}
	}
}
