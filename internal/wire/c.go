package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Coder is a struct with a list of its fields.
type Coder interface{ Wire(*C) }

// Errors of the input, besides its early end (io.ErrUnexpectedEOF) and msgpack's own errors.
var (
	ErrTrailing = errors.New("bytes left over after the encoded value")
	ErrRange    = errors.New("integer out of range")
	ErrLimit    = errors.New("over the limit")
	ErrCost     = errors.New("the message takes more memory than its length allows")
	ErrNil      = errors.New("an entry of a list is missing")
)

// C is one pass over values, to write or to read them. After an error everything reads as zero.
type C struct {
	writing  bool
	reuse    bool // reuse the memory of lists and pointers
	n        int  // fields of the struct, or entries of the list, passed so far
	fields   int  // reading: its number of fields or entries; 0 after an error
	out      output
	in       input
	care     Care   // for texts that are read
	replaced bool   // a text was
	text     string // the whole input, if texts share its memory; otherwise ""
	message  bool   // count its cost
	cost     int    // bytes of memory charged so far
	allowed  int    // the limit of cost
	err      error
	wrongN   int    // n of the current struct when err happened
	path     string // of the field at which err happened, as far as it is known
	enc      *msgpack.Encoder
	dec      *msgpack.Decoder
	scratch  []byte
}

func newC() *C {
	c := &C{}
	c.enc = msgpack.NewEncoder(&c.out)
	c.dec = msgpack.NewDecoder(&c.in)
	return c
}

// output collects msgpack's output.
type output struct{ b []byte }

func (o *output) Write(p []byte) (int, error) {
	o.b = append(o.b, p...)
	return len(p), nil
}

func (o *output) WriteByte(b byte) error {
	o.b = append(o.b, b)
	return nil
}

// input is msgpack's input. from continues b; nil: b is the whole input.
type input struct {
	b    []byte
	at   int
	from io.Reader
}

func (i *input) Read(p []byte) (int, error) {
	if !i.has(len(p)) {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(p, i.b[i.at:])
	i.at += n
	return n, nil
}

func (i *input) ReadByte() (byte, error) {
	if i.at >= len(i.b) && !i.has(1) {
		return 0, io.EOF
	}
	b := i.b[i.at]
	i.at++
	return b, nil
}

func (i *input) UnreadByte() error {
	i.at--
	return nil
}

// streamBytes is the size of one read from a stream, and the most memory allocated before that much has arrived.
const streamBytes = 256 << 10

// has reports whether n more bytes are there; it reads them from the stream if there is one.
func (i *input) has(n int) bool {
	for len(i.b)-i.at < n {
		if i.from == nil {
			return false
		}
		// Keep the last byte that was read, for UnreadByte.
		if keep := max(i.at-1, 0); keep > 0 {
			i.b = i.b[:copy(i.b, i.b[keep:])]
			i.at -= keep
		}
		if len(i.b) == cap(i.b) {
			i.b = append(make([]byte, 0, max(streamBytes, 2*len(i.b))), i.b...)
		}
		got, err := i.from.Read(i.b[len(i.b):cap(i.b)])
		i.b = i.b[:len(i.b)+got]
		if err != nil && got == 0 {
			return false
		}
	}
	return true
}

// peek gives the next byte, or one that begins no value if the buffer is empty.
func (i *input) peek() byte {
	if i.at < len(i.b) {
		return i.b[i.at]
	}
	return 0xc1
}

// unsigned reads the number after code, if it is a plain one and within the buffer.
func (i *input) unsigned(code byte) (uint64, bool) {
	b := i.b[min(i.at+1, len(i.b)):]
	switch {
	case code == msgpcode.Uint8 && len(b) >= 1:
		i.at += 2
		return uint64(b[0]), true
	case (code == msgpcode.Uint16 || code == msgpcode.Array16) && len(b) >= 2:
		i.at += 3
		return uint64(binary.BigEndian.Uint16(b)), true
	case code == msgpcode.Uint32 && len(b) >= 4:
		i.at += 5
		return uint64(binary.BigEndian.Uint32(b)), true
	case code == msgpcode.Uint64 && len(b) >= 8:
		i.at += 9
		return binary.BigEndian.Uint64(b), true
	}
	return 0, false
}

// left is the most entries that the rest of the input can hold.
func (i *input) left() int {
	if i.from != nil {
		return math.MaxInt
	}
	return len(i.b) - i.at
}

// Fail makes the pass fail; for Wire methods that check what they read.
func (c *C) Fail(err error) { c.fail(err) }

// Failed reports whether the pass has failed.
func (c *C) Failed() bool { return c.err != nil }

func (c *C) fail(err error) {
	if c.err == nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		c.err, c.fields, c.wrongN = err, 0, c.n
	}
}

// next begins a field of a struct, or an entry of a list; false: there is none, and the value is zero.
func (c *C) next() bool {
	if c.n >= c.fields {
		return false
	}
	c.n++
	return true
}

// charge counts memory, in bytes, that the reader of a message allocates.
func (c *C) charge(n int) {
	if c.message {
		c.chargeMessage(n)
	}
}

func (c *C) chargeMessage(n int) {
	if c.cost += allocated(n); c.cost > c.allowed {
		c.fail(fmt.Errorf("%w (%d bytes)", ErrCost, c.allowed))
	}
}

// allocated is an upper bound of the memory that Go's allocator uses for n bytes: its size classes are at most a fifth
// apart, and from 32 KiB on it uses whole pages.
func allocated(n int) int {
	switch {
	case n == 0:
		return 0
	case n <= 8:
		return 8
	case n <= 16:
		return 16
	case n <= 32<<10:
		return n + n/5 + 16
	}
	const page = 8 << 10
	return (n + page - 1) &^ (page - 1)
}

// fit checks a limit.
func (c *C) fit(n, limit int, of string) bool {
	if n > limit {
		c.fail(fmt.Errorf("%w: %d %s, at most %d", ErrLimit, n, of, limit))
		return false
	}
	return true
}

// structure passes over one struct.
func (c *C) structure(x Coder) {
	if c.err != nil {
		return
	}
	n, fields := c.n, c.fields
	c.n = 0
	if c.writing {
		at := len(c.out.b)
		c.out.b = append(c.out.b, msgpcode.FixedArrayLow)
		x.Wire(c)
		if c.n < 16 {
			c.out.b[at] |= byte(c.n)
		} else { // a longer head: make room
			c.out.b = append(c.out.b, 0, 0)
			copy(c.out.b[at+3:], c.out.b[at+1:])
			c.out.b[at], c.out.b[at+1], c.out.b[at+2] = msgpcode.Array16, byte(c.n>>8), byte(c.n)
		}
	} else {
		c.fields = c.head()
		x.Wire(c)
		if c.fields > c.n {
			c.skip(c.fields - c.n)
		}
	}
	if c.err != nil {
		c.at(fieldName(x, c.wrongN-1), n)
		fields = 0
	}
	c.n, c.fields = n, fields
}

// at adds a step to the path of an error, from the inside out. outer is the field's number in the enclosing struct.
func (c *C) at(step string, outer int) { c.path, c.wrongN = step+c.path, outer }

func fieldName(x Coder, i int) string {
	t := structType(x)
	if t.Kind() != reflect.Struct || i < 0 || i >= t.NumField() {
		return ""
	}
	return "." + t.Field(i).Name
}

func structType(x Coder) reflect.Type {
	t := reflect.TypeOf(x)
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// head reads the length of an array; nil is 0.
func (c *C) head() int {
	if b := c.in.peek(); b&0xf0 == msgpcode.FixedArrayLow {
		c.in.at++
		return int(b & 0x0f)
	} else if b == msgpcode.Array16 {
		if n, ok := c.in.unsigned(b); ok {
			return int(n)
		}
	}
	n, err := c.dec.DecodeArrayLen()
	if err != nil {
		c.fail(err)
		return 0
	}
	return max(n, 0)
}

// list reads the length of a list that is the next value.
func (c *C) list(limit int) int {
	if !c.next() {
		return 0
	}
	n := c.head()
	if n > c.in.left() {
		c.fail(io.ErrUnexpectedEOF)
		return 0
	}
	if !c.fit(n, limit, "entries") {
		return 0
	}
	return n
}

// putList writes the length of a list that is the next value.
func (c *C) putList(n, limit int) bool {
	c.n++
	if !c.fit(n, limit, "entries") {
		return false
	}
	c.putHead(n)
	return true
}

func (c *C) putHead(n int) {
	if n < 16 {
		c.out.b = append(c.out.b, msgpcode.FixedArrayLow|byte(n))
		return
	}
	c.must(c.enc.EncodeArrayLen(n))
}

// must checks calls of the encoder, which can't fail because it writes into memory.
func (c *C) must(err error) {
	if err != nil {
		c.fail(err)
	}
}

// skip passes over n values of any kind, however deep they nest, without recursion.
func (c *C) skip(n int) {
	for left := n; left > 0 && c.err == nil; left-- {
		held, err := c.in.over()
		if err != nil {
			c.fail(err)
		}
		left += held // each container in the input adds at most 2^33; an int holds 2^30 of them
	}
}

// over passes over a value, and gives the number of those that it holds, which come next.
func (i *input) over() (held int, err error) {
	if !i.has(1) {
		return 0, io.ErrUnexpectedEOF
	}
	code := i.b[i.at]
	i.at++
	switch {
	case msgpcode.IsFixedNum(code):
		return 0, nil
	case msgpcode.IsFixedMap(code):
		return 2 * int(code&msgpcode.FixedMapMask), nil
	case msgpcode.IsFixedArray(code):
		return int(code & msgpcode.FixedArrayMask), nil
	case msgpcode.IsFixedString(code):
		return 0, i.pass(int(code & msgpcode.FixedStrMask))
	}
	switch code {
	case msgpcode.Nil, msgpcode.False, msgpcode.True:
		return 0, nil
	case msgpcode.Uint8, msgpcode.Int8:
		return 0, i.pass(1)
	case msgpcode.Uint16, msgpcode.Int16:
		return 0, i.pass(2)
	case msgpcode.Uint32, msgpcode.Int32, msgpcode.Float:
		return 0, i.pass(4)
	case msgpcode.Uint64, msgpcode.Int64, msgpcode.Double:
		return 0, i.pass(8)
	case msgpcode.FixExt1, msgpcode.FixExt2, msgpcode.FixExt4, msgpcode.FixExt8, msgpcode.FixExt16:
		return 0, i.pass(1 + 1<<(code-msgpcode.FixExt1))
	}
	var width int // of the length or number behind the code
	switch code {
	case msgpcode.Str8, msgpcode.Bin8, msgpcode.Ext8:
		width = 1
	case msgpcode.Str16, msgpcode.Bin16, msgpcode.Ext16, msgpcode.Array16, msgpcode.Map16:
		width = 2
	case msgpcode.Str32, msgpcode.Bin32, msgpcode.Ext32, msgpcode.Array32, msgpcode.Map32:
		width = 4
	default:
		return 0, fmt.Errorf("%#x begins no value", code)
	}
	if !i.has(width) {
		return 0, io.ErrUnexpectedEOF
	}
	n := 0
	for range width {
		n = n<<8 | int(i.b[i.at])
		i.at++
	}
	switch code {
	case msgpcode.Array16, msgpcode.Array32:
		return n, nil
	case msgpcode.Map16, msgpcode.Map32:
		return 2 * n, nil
	case msgpcode.Ext8, msgpcode.Ext16, msgpcode.Ext32:
		n++ // the kind of extension
	}
	return 0, i.pass(n)
}

// pass skips n bytes, a piece at a time.
func (i *input) pass(n int) error {
	for n > 0 {
		step := min(n, streamBytes)
		if !i.has(step) {
			return io.ErrUnexpectedEOF
		}
		i.at += step
		n -= step
	}
	return nil
}
