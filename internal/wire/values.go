package wire

import (
	"errors"
	"fmt"
	"io"
	"unsafe"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Integer is any integer.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// listed is a pointer to a struct with a list of its fields.
type listed[T any] interface {
	*T
	Coder
}

// Int is an integer. A value outside its type's range is an error.
func Int[T Integer](c *C, x *T) {
	if c.writing {
		c.n++
		v := *x
		if v >= 0 && v <= 0x7f {
			c.out.b = append(c.out.b, byte(v))
		} else if v > 0 {
			c.must(c.enc.EncodeUint(uint64(v)))
		} else {
			c.must(c.enc.EncodeInt(int64(v)))
		}
		return
	}
	if !c.next() {
		*x = 0
		return
	}
	if b := c.in.peek(); b <= 0x7f { // one byte, the most frequent form
		*x = T(b)
		c.in.at++
		return
	} else if b >= msgpcode.Uint8 && b <= msgpcode.Uint64 {
		if v, ok := c.in.unsigned(b); ok {
			if *x = T(v); uint64(*x) != v {
				c.fail(fmt.Errorf("%w: %d", ErrRange, v))
			}
			return
		}
	}
	if ^T(0) < 0 {
		v, err := c.dec.DecodeInt64()
		if *x = T(v); err != nil {
			c.fail(err)
		} else if int64(*x) != v {
			c.fail(fmt.Errorf("%w: %d", ErrRange, v))
		}
		return
	}
	v, err := c.dec.DecodeUint64()
	if *x = T(v); err != nil {
		c.fail(err)
	} else if uint64(*x) != v {
		c.fail(fmt.Errorf("%w: %d", ErrRange, v))
	}
}

// Bool is a boolean.
func Bool(c *C, x *bool) {
	if c.writing {
		c.n++
		b := byte(msgpcode.False)
		if *x {
			b = msgpcode.True
		}
		c.out.b = append(c.out.b, b)
		return
	}
	if !c.next() {
		*x = false
		return
	}
	if b := c.in.peek(); b|1 == msgpcode.True { // False is one less
		*x = b == msgpcode.True
		c.in.at++
		return
	}
	v, err := c.dec.DecodeBool()
	if *x = v; err != nil {
		c.fail(err)
	}
}

// Float is a floating-point number.
func Float(c *C, x *float64) {
	if c.writing {
		c.n++
		c.must(c.enc.EncodeFloat64(*x))
		return
	}
	if !c.next() {
		*x = 0
		return
	}
	v, err := c.dec.DecodeFloat64()
	if *x = v; err != nil {
		c.fail(err)
	}
}

// Text is a string of at most limit bytes: a name, a word, a sentence of one line. See Care for what becomes of
// characters that are not plain.
func Text[T ~string](c *C, x *T, limit int) { text(c, x, limit, oneLine) }

// Derived is a Text that a program made of what it was given, as the whole command line: it is never refused.
func Derived[T ~string](c *C, x *T, limit int) { text(c, x, limit, derived) }

// Lines is a Text that may have several lines.
func Lines[T ~string](c *C, x *T, limit int) { text(c, x, limit, lines) }

// Data is a string that programs use and people may be shown: an argument, a path.
func Data[T ~string](c *C, x *T, limit int) { text(c, x, limit, data) }

// ID is a string of any bytes that nobody is shown.
func ID[T ~string](c *C, x *T, limit int) { text(c, x, limit, anyBytes) }

func text[T ~string](c *C, x *T, limit int, is sort) {
	if c.writing {
		c.n++
		c.putText(string(*x), limit)
		return
	}
	if !c.next() {
		*x = ""
		return
	}
	s := c.getText(limit)
	if c.care != AsIs {
		s = c.cared(s, is)
	}
	*x = T(s)
}

func (c *C) putText(s string, limit int) {
	if len(s) < 32 && len(s) <= limit {
		c.charge(len(s))
		c.out.b = append(append(c.out.b, msgpcode.FixedStrLow|byte(len(s))), s...)
	} else if c.fit(len(s), limit, "bytes") {
		c.charge(len(s))
		c.must(c.enc.EncodeString(s))
	}
}

func (c *C) getText(limit int) string {
	n := c.bytes(limit)
	if n == 0 {
		return ""
	}
	at := c.in.at
	if c.in.at += n; c.text != "" {
		return c.text[at:c.in.at]
	}
	if c.charge(n); c.err != nil {
		return ""
	}
	return string(c.in.b[at:c.in.at])
}

// bytes reads the head of a text or of bytes and gives the length.
func (c *C) bytes(limit int) int {
	var n int
	if b := c.in.peek(); b&0xe0 == msgpcode.FixedStrLow {
		n = int(b & msgpcode.FixedStrMask)
		c.in.at++
	} else {
		var err error
		if n, err = c.dec.DecodeBytesLen(); err != nil {
			c.fail(err)
			return 0
		}
	}
	if n <= 0 || !c.fit(n, limit, "bytes") {
		return 0
	}
	if !c.in.has(n) {
		c.fail(io.ErrUnexpectedEOF)
		return 0
	}
	return n
}

// Bytes is a byte string of at most limit bytes.
func Bytes(c *C, x *[]byte, limit int) {
	if c.writing {
		c.n++
		if len(*x) == 0 {
			c.must(c.enc.EncodeNil())
		} else if c.fit(len(*x), limit, "bytes") {
			c.charge(len(*x))
			c.must(c.enc.EncodeBytes(*x))
		}
		return
	}
	*x = nil
	if !c.next() {
		return
	}
	n := c.bytes(limit)
	if n == 0 {
		return
	}
	if c.charge(n); c.err == nil {
		*x = append(make([]byte, 0, n), c.in.b[c.in.at:c.in.at+n]...)
		c.in.at += n
	}
}

// Held is a byte string of at most limit bytes, for a message within a message: what is read shares the memory of the
// message, which costs nothing. Otherwise it is like Bytes.
func Held(c *C, x *[]byte, limit int) {
	if c.writing || !c.message {
		Bytes(c, x, limit)
		return
	}
	*x = nil
	if !c.next() {
		return
	}
	if n := c.bytes(limit); n > 0 {
		*x = c.in.b[c.in.at : c.in.at+n : c.in.at+n]
		c.in.at += n
	}
}

// Within passes over values that cost the reader of a message no more memory than limit bytes of a message may, however
// long theirs is.
func Within(c *C, limit int, f func(*C)) {
	allowed := c.allowed
	if !c.writing && c.message {
		c.allowed = min(allowed, c.cost+Floor+Factor*limit)
	}
	f(c)
	c.allowed = allowed
}

// Struct is a struct, in its place.
func Struct(c *C, x Coder) {
	if c.writing {
		c.n++
		c.structure(x)
		return
	}
	if c.next() {
		c.structure(x)
		return
	}
	n, fields := c.n, c.fields
	c.n, c.fields = 0, 0
	x.Wire(c) // every field is missing
	c.n, c.fields = n, fields
}

// Ptr is a pointer to a struct, or nil.
func Ptr[P listed[T], T any](c *C, x *P) {
	if c.writing {
		c.n++
		if *x == nil {
			c.must(c.enc.EncodeNil())
			return
		}
		c.charge(int(unsafe.Sizeof(**x)))
		c.structure(*x)
		return
	}
	if !c.next() {
		*x = nil
		return
	}
	if c.in.has(1) && c.in.peek() == msgpcode.Nil {
		c.in.at++
		*x = nil
		return
	}
	if *x == nil || !c.reuse {
		var zero T
		if c.charge(int(unsafe.Sizeof(zero))); c.err != nil {
			return
		}
		*x = new(T)
	}
	c.structure(*x)
}

// List is a list of at most limit structs.
func List[S ~[]T, T any, P listed[T]](c *C, x *S, limit int) {
	Each(c, x, limit, func(c *C, e *T) { Struct(c, P(e)) })
}

// Ptrs is a list of at most limit pointers to structs, none of them nil.
func Ptrs[S ~[]P, P listed[T], T any](c *C, x *S, limit int) {
	Each(c, x, limit, func(c *C, e *P) {
		if Ptr(c, e); *e == nil {
			c.fail(ErrNil)
		}
	})
}

// Ints is a list of at most limit integers.
func Ints[S ~[]T, T Integer](c *C, x *S, limit int) { Each(c, x, limit, Int[T]) }

// Texts is a list of at most limit strings, each of at most bytes.
func Texts[S ~[]T, T ~string](c *C, x *S, limit, bytes int) {
	Each(c, x, limit, func(c *C, e *T) { Text(c, e, bytes) })
}

// DataList is a list of at most limit strings that programs use, each of at most bytes.
func DataList[S ~[]T, T ~string](c *C, x *S, limit, bytes int) {
	Each(c, x, limit, func(c *C, e *T) { Data(c, e, bytes) })
}

// Raw is the bytes of a value of any kind, which is read later, with Unmarshal, or not at all; none are nil.
type Raw []byte

// Raws is a list of at most limit values that are passed over. What is read of them shares the memory of the message.
func Raws(c *C, x *[]Raw, limit int) {
	Each(c, x, limit, func(c *C, e *Raw) {
		if c.writing {
			c.n++
			if len(*e) == 0 {
				c.must(c.enc.EncodeNil())
			}
			c.out.b = append(c.out.b, *e...)
			return
		}
		if !c.next() {
			return
		}
		if c.in.from != nil {
			c.fail(errStream)
			return
		}
		from := c.in.at
		if c.skip(1); c.err == nil && c.in.b[from] != msgpcode.Nil {
			*e = c.in.b[from:c.in.at:c.in.at]
		}
	})
}

var errStream = errors.New("a stream's bytes do not stay in memory")

// FirstInt gives the first field of a struct, which is a number.
func FirstInt[T Integer](raw Raw) (n T, err error) {
	c := begin(raw, false)
	defer c.end()
	if c.fields = c.head(); c.err == nil {
		Int(c, &n)
	}
	return n, c.err
}

// Retired is the place of a removed field.
func Retired(c *C) {
	if c.writing {
		c.n++
		c.must(c.enc.EncodeNil())
	} else if c.next() {
		c.skip(1)
	}
}

// firstEntries is the most entries allocated on the claim of an input that is not charged; append adds more.
const firstEntries = 1024

// Each is a list of at most limit values; item writes or reads each one.
func Each[S ~[]T, T any](c *C, x *S, limit int, item func(*C, *T)) {
	if c.writing {
		writeEach(c, *x, limit, item)
	} else {
		readEach(c, x, limit, item)
	}
}

func writeEach[S ~[]T, T any](c *C, s S, limit int, item func(*C, *T)) {
	var zero T
	if c.err != nil || !c.putList(len(s), limit) {
		return
	}
	c.charge(len(s) * int(unsafe.Sizeof(zero)))
	outer := c.n
	for i := range s {
		if item(c, &s[i]); c.err != nil {
			c.at(fmt.Sprintf("[%d]", i), outer)
			break
		}
	}
	c.n = outer
}

func readEach[S ~[]T, T any](c *C, x *S, limit int, item func(*C, *T)) {
	var zero T
	n, s := c.list(limit), (*x)[:0]
	if !c.reuse {
		s = nil
	}
	if *x = s; n == 0 {
		return
	}
	if cap(s) < n {
		if c.charge(n * int(unsafe.Sizeof(zero))); c.err != nil {
			return
		}
		room := n
		if !c.message {
			room = min(n, firstEntries)
		}
		s = make(S, 0, room)
	}
	outer, fields := c.n, c.fields
	c.n, c.fields = 0, n
	for i := range n {
		if i < cap(s) {
			s = s[:i+1] // reused: item sets all of it
		} else {
			s = append(s, zero)
		}
		if item(c, &s[i]); c.err != nil {
			c.at(fmt.Sprintf("[%d]", i), outer)
			c.n = outer
			return
		}
	}
	*x, c.n, c.fields = s, outer, fields
}
