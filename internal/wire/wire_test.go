package wire_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"gbatch/internal/wire"
	"gbatch/internal/wire/wiretest"
)

type (
	level int8
	name  string
	words []uint64
)

// all has a field of every kind that wire knows.
type all struct {
	Bool    bool
	I       int
	I8      int8
	I16     int16
	I32     int32
	I64     int64
	U       uint
	U8      uint8
	U16     uint16
	U32     uint32
	U64     uint64
	F       float64
	S       string
	Level   level
	Name    name
	_       uint32
	Bytes   []byte
	Strings []string
	Names   []name
	U32s    []uint32
	Words   words
	Matrix  [][]int16
	Bools   []bool
	Floats  []float64
	Inner   inner
	Ptr     *inner
	List    []inner
	Ptrs    []*inner
}

const most = 1 << 20

func (x *all) Wire(c *wire.C) {
	wire.Bool(c, &x.Bool)
	wire.Int(c, &x.I)
	wire.Int(c, &x.I8)
	wire.Int(c, &x.I16)
	wire.Int(c, &x.I32)
	wire.Int(c, &x.I64)
	wire.Int(c, &x.U)
	wire.Int(c, &x.U8)
	wire.Int(c, &x.U16)
	wire.Int(c, &x.U32)
	wire.Int(c, &x.U64)
	wire.Float(c, &x.F)
	wire.Text(c, &x.S, most)
	wire.Int(c, &x.Level)
	wire.Text(c, &x.Name, most)
	wire.Retired(c)
	wire.Bytes(c, &x.Bytes, 2*most)
	wire.Texts(c, &x.Strings, most, most)
	wire.Texts(c, &x.Names, most, most)
	wire.Ints(c, &x.U32s, most)
	wire.Ints(c, &x.Words, most)
	wire.Each(c, &x.Matrix, most, func(c *wire.C, row *[]int16) { wire.Ints(c, row, most) })
	wire.Each(c, &x.Bools, most, wire.Bool)
	wire.Each(c, &x.Floats, most, wire.Float)
	wire.Struct(c, &x.Inner)
	wire.Ptr(c, &x.Ptr)
	wire.List(c, &x.List, most)
	wire.Ptrs(c, &x.Ptrs, most)
}

type inner struct {
	A uint32
	B []string
}

func (x *inner) Wire(c *wire.C) {
	wire.Int(c, &x.A)
	wire.Texts(c, &x.B, most, most)
}

func TestKinds(t *testing.T) { wiretest.Structs(t, &all{}, &v1{}, &v2{}, &v3{}, &empty{}) }

// v1 is a record of a first version; v2 has two more fields; in v3 Name is retired.
type v1 struct {
	ID   uint64
	Name string
}

func (x *v1) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Text(c, &x.Name, most)
}

type v2 struct {
	ID    uint64
	Name  string
	Tags  []string
	Inner inner
}

func (x *v2) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Text(c, &x.Name, most)
	wire.Texts(c, &x.Tags, most, most)
	wire.Struct(c, &x.Inner)
}

type v3 struct {
	ID    uint64
	_     string
	Tags  []string
	Inner inner
}

func (x *v3) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Retired(c)
	wire.Texts(c, &x.Tags, most, most)
	wire.Struct(c, &x.Inner)
}

// tight has narrow limits.
type tight struct {
	Name string
	B    []string
	List []tighter
	Ptr  *tighter
}

type tighter struct{ B []string }

func (x *tight) Wire(c *wire.C) {
	wire.Text(c, &x.Name, 8)
	wire.Texts(c, &x.B, 3, 4)
	wire.List(c, &x.List, 3)
	wire.Ptr(c, &x.Ptr)
}

func (x *tighter) Wire(c *wire.C) { wire.Texts(c, &x.B, 3, 4) }

type empty struct{}

func (x *empty) Wire(*wire.C) {}

func encode(t testing.TB, x wire.Coder) []byte {
	t.Helper()
	b, err := wire.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOldAndNewRecords(t *testing.T) {
	one, two := &v1{1, "one"}, &v2{2, "two", []string{"t"}, inner{A: 3}}
	for _, c := range []struct{ in, into, want wire.Coder }{
		{one, &v2{5, "x", []string{"y"}, inner{1, []string{"z"}}}, &v2{ID: 1, Name: "one"}},
		{two, &v1{}, &v1{2, "two"}},
		{two, &v3{}, &v3{ID: 2, Tags: []string{"t"}, Inner: inner{A: 3}}},
		{&v3{ID: 2, Tags: []string{"t"}}, &v2{Name: "x"}, &v2{ID: 2, Tags: []string{"t"}}},
		{two, &empty{}, &empty{}},
		{&empty{}, &v1{5, "x"}, &v1{}},
	} {
		if err := wire.Unmarshal(encode(t, c.in), c.into); err != nil || !reflect.DeepEqual(c.into, c.want) {
			t.Errorf("%T %+v reads as %+v, %v; want %+v", c.in, c.in, c.into, err, c.want)
		}
	}
	x := v1{1, "x"}
	if err := wire.Unmarshal([]byte{0xc0}, &x); err != nil || x != (v1{}) {
		t.Errorf("nil reads as %+v, %v; want the zero value", x, err)
	}
}

func TestEveryTruncationIsAnError(t *testing.T) {
	x := &all{}
	wiretest.Fill(rand.New(rand.NewPCG(1, 2)), reflect.ValueOf(x).Elem(), 0)
	b := encode(t, x)
	for n := range b {
		if err := wire.Unmarshal(b[:n], &all{}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d of %d bytes: %v, want an unexpected end", n, len(b), err)
		}
	}
	if err := wire.Unmarshal(append(b, 0), &all{}); !errors.Is(err, wire.ErrTrailing) {
		t.Errorf("a byte too many: %v", err)
	}
}

func TestErrorsNameTheField(t *testing.T) {
	enc := func(v ...any) []byte {
		var buf bytes.Buffer
		e := msgpack.NewEncoder(&buf)
		e.UseCompactInts(true)
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
		return buf.Bytes()
	}
	for _, c := range []struct {
		in   []byte
		x    wire.Coder
		want string
	}{
		{enc(true, 1, 128), &all{}, "all.I8: integer out of range: 128"},
		{enc(uint64(math.MaxUint32) + 1), &inner{}, "inner.A: integer out of range: 4294967296"},
		{enc(-1), &inner{}, "inner.A: integer out of range"},
		{enc(1, "x"), &inner{}, "inner.B: msgpack: invalid code"},
		{enc(1, "n", nil, []any{"x"}), &v2{}, "v2.Inner.A: msgpack: invalid code"},
		{enc(1, "n", nil, []any{1, []any{"a", "b", 3}}), &v2{}, "v2.Inner.B[2]: msgpack: invalid code"},
		{enc("", []any{"a", "bcdef"}), &tight{}, "tight.B[1]: over the limit: 5 bytes, at most 4"},
		{enc("", []any{"a", "b", "c", "d"}), &tight{}, "tight.B: over the limit: 4 entries, at most 3"},
		{enc("nine long"), &tight{}, "tight.Name: over the limit: 9 bytes, at most 8"},
		{enc("", nil, []any{nil, []any{[]any{"bcdef"}}}), &tight{}, "tight.List[1].B[0]: over the limit: 5 bytes, at most 4"},
	} {
		if err := wire.Unmarshal(c.in, c.x); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("% x: %v, want %q", c.in, err, c.want)
		}
	}
	// Writing too much is an error as well.
	for _, c := range []struct {
		x    wire.Coder
		want string
	}{
		{&tight{Name: "nine long", Ptr: &tighter{make([]string, 4)}}, "tight.Name: over the limit: 9 bytes, at most 8"},
		{&tight{List: []tighter{{}, {B: []string{"a", "bcdef"}}}, Ptr: &tighter{}},
			"tight.List[1].B[1]: over the limit: 5 bytes, at most 4"},
		{&tight{Ptr: &tighter{make([]string, 4)}}, "tight.Ptr.B: over the limit: 4 entries, at most 3"},
		{&all{Ptrs: []*inner{{}, nil}}, "all.Ptrs[1]: an entry of a list is missing"},
	} {
		if _, err := wire.Marshal(c.x); err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v, want %q", c.x, err, c.want)
		}
	}
}

// TestHostileNesting checks that a later version's fields may nest to any depth.
func TestHostileNesting(t *testing.T) {
	for name, code := range map[string]byte{"arrays": 0x91, "maps": 0x81} {
		in := append([]byte{0x93, 0x01, 0xa0}, bytes.Repeat([]byte{code}, 16<<20)...) // v1 with a third field
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := wire.Unmarshal(in, &v1{})
		runtime.ReadMemStats(&after)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 64<<10 {
			t.Errorf("%s: allocated %d KiB", name, got>>10)
		}
	}
}

// TestCost checks that a message with a huge claimed length is refused before any allocation, and that a message of
// empty values is padded with nils.
func TestCost(t *testing.T) {
	many := make([]byte, 5+9000)
	copy(many, []byte{0x91, 0xdc, 9000 >> 8, 9000 & 0xff})
	x := &lists{}
	if err := wire.ReadMessage(many[:4+9000], x); !errors.Is(err, wire.ErrCost) {
		t.Errorf("9,000 empty lists in as many bytes: %v, want %v", err, wire.ErrCost)
	}
	b, err := wire.AppendMessage([]byte("head"), &lists{make([]inner, 9000)})
	if err != nil || !bytes.HasPrefix(b, []byte("head")) {
		t.Fatal(err)
	}
	if err := wire.ReadMessage(b[4:], x); err != nil || len(x.List) != 9000 {
		t.Errorf("%d entries, %v", len(x.List), err)
	}
	plain := encode(t, &lists{make([]inner, 9000)})
	if !bytes.HasPrefix(b[4:], plain) || len(bytes.Trim(b[4+len(plain):], "\xc0")) != 0 {
		t.Error("the message is not its value and nils behind it")
	}
	few := &lists{make([]inner, 100)}
	if b, err = wire.AppendMessage(nil, few); err != nil || len(b) != len(encode(t, few)) {
		t.Errorf("a small message is padded to %d bytes, %v", len(b), err)
	}
}

type lists struct{ List []inner }

func (x *lists) Wire(c *wire.C) { wire.List(c, &x.List, most) }

func TestLongByteString(t *testing.T) {
	in := &all{Bytes: make([]byte, 1<<20+3)}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range in.Bytes {
		in.Bytes[i] = byte(r.Uint32())
	}
	var got all
	if err := wire.Unmarshal(encode(t, in), &got); err != nil || !bytes.Equal(got.Bytes, in.Bytes) {
		t.Errorf("%d bytes came back as %d: %v", len(in.Bytes), len(got.Bytes), err)
	}
}

// TestEveryFormOfInteger checks that any integer in any of msgpack's forms is read, or is out of the field's range.
func TestEveryFormOfInteger(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		u := rng.Uint64() >> rng.IntN(64)
		n := int64(u)
		if rng.IntN(2) == 0 {
			n = int64(rng.Uint64()) >> rng.IntN(64)
		}
		var buf bytes.Buffer
		e := msgpack.NewEncoder(&buf)
		forms := []func() error{func() error { return e.EncodeInt(n) }, func() error { return e.EncodeInt64(n) },
			func() error { return e.EncodeInt32(int32(n)) }, func() error { return e.EncodeInt16(int16(n)) },
			func() error { return e.EncodeInt8(int8(n)) }, func() error { return e.EncodeUint8(uint8(n)) },
			func() error { return e.EncodeUint16(uint16(n)) }, func() error { return e.EncodeUint32(uint32(n)) }, e.EncodeNil}
		if err := forms[rng.IntN(len(forms))](); err != nil {
			t.Fatal(err)
		}
		want, err := msgpack.NewDecoder(bytes.NewReader(buf.Bytes())).DecodeInt64()
		if err != nil {
			t.Fatal(err)
		}
		in(t, buf.Bytes(), want)
	}
}

func in(t *testing.T, b []byte, want int64) {
	t.Helper()
	form(t, b, want, int64(int8(want)) == want, new(int8))
	form(t, b, want, int64(int32(want)) == want, new(int32))
	form(t, b, want, true, new(int64))
	if want >= 0 {
		form(t, b, want, int64(uint8(want)) == want, new(uint8))
		form(t, b, want, int64(uint16(want)) == want, new(uint16))
		form(t, b, want, true, new(uint64))
	}
}

func form[T wire.Integer](t *testing.T, b []byte, want int64, fits bool, x *T) {
	t.Helper()
	err := wire.ReadValues(b, func(c *wire.C) { wire.Int(c, x) })
	if fits && (err != nil || int64(*x) != want) || !fits && !errors.Is(err, wire.ErrRange) {
		t.Fatalf("% x as %T: %d, %v; want %d, in range: %v", b, *x, *x, err, want, fits)
	}
	for n := range b {
		if err := wire.ReadValues(b[:n], func(c *wire.C) { wire.Int(c, x) }); err == nil {
			t.Fatalf("% x is taken for whole", b[:n])
		}
	}
}

// dribble gives a few bytes at a time.
type dribble struct{ r io.Reader }

func (d dribble) Read(p []byte) (int, error) { return d.r.Read(p[:min(len(p), 1+len(p)%7)]) }

// TestStream checks that a stream of values is read, in pieces of any size.
func TestStream(t *testing.T) {
	var buf bytes.Buffer
	w := wire.NewWriter(&buf)
	rng := rand.New(rand.NewPCG(3, 4))
	var in []*all
	for range 300 {
		x := &all{}
		wiretest.Fill(rng, reflect.ValueOf(x).Elem(), 0)
		x.Bytes = make([]byte, rng.IntN(10_000))
		if len(x.Bytes) == 0 {
			x.Bytes = nil
		}
		if err := w.Write(x); err != nil {
			t.Fatal(err)
		}
		in = append(in, x)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	whole := buf.Bytes()
	r := wire.NewReader(dribble{bytes.NewReader(whole)})
	for i, want := range in {
		var got all
		if err := r.Read(&got); err != nil || !reflect.DeepEqual(&got, want) {
			t.Fatalf("value %d: %+v, %v; want %+v", i, got, err, want)
		}
	}
	if !r.AtEnd() {
		t.Error("something is left")
	}
	if err := r.Read(&all{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("behind the end: %v", err)
	}
	r = wire.NewReader(bytes.NewReader(whole[:len(whole)-1]))
	for range len(in) - 1 {
		if err := r.Read(&all{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Read(&all{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut short: %v", err)
	}
	boom := errors.New("no space")
	w = wire.NewWriter(failing{boom})
	if err := errors.Join(w.Write(&v1{}), w.Flush()); !errors.Is(err, boom) {
		t.Errorf("a writer that fails: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// pair has structs that are read later.
type pair struct {
	Raws []wire.Raw
	Last int
}

func (x *pair) Wire(c *wire.C) {
	wire.Raws(c, &x.Raws, most)
	wire.Int(c, &x.Last)
}

// structs is a pair whose structs are read at once.
type structs struct {
	List []*v1
	Last int
}

func (x *structs) Wire(c *wire.C) {
	wire.Ptrs(c, &x.List, most)
	wire.Int(c, &x.Last)
}

// TestRaws: structs that are passed over are the ones that were written, and nothing that is cut short is one.
func TestRaws(t *testing.T) {
	want := &structs{Last: 7}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		x := &v1{}
		wiretest.Fill(rng, reflect.ValueOf(x).Elem(), 0)
		want.List = append(want.List, x)
	}
	b, err := wire.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var raw pair
	if err := wire.ReadMessage(b, &raw); err != nil || raw.Last != want.Last {
		t.Fatalf("%+v, %v", raw.Last, err)
	}
	for i, one := range raw.Raws {
		var got v1
		if err := wire.Unmarshal(one, &got); err != nil || !reflect.DeepEqual(&got, want.List[i]) {
			t.Fatalf("struct %d: %+v, %v; want %+v", i, got, err, want.List[i])
		}
		if n, err := wire.FirstInt[uint64](one); err != nil || n != got.ID {
			t.Errorf("the first field of struct %d: %d, %v; want %d", i, n, err, got.ID)
		}
	}
	if again, err := wire.Marshal(&raw); err != nil || !bytes.Equal(again, b) {
		t.Errorf("written again: %x, %v; want %x", again, err, b)
	}
	for n := range b {
		if err := wire.ReadMessage(b[:n], &pair{}); err == nil {
			t.Fatalf("%d of %d bytes were taken for all", n, len(b))
		}
	}
}

// FuzzSkip checks that a struct without fields skips exactly as much as msgpack's own recursive Skip.
func FuzzSkip(f *testing.F) {
	b, err := msgpack.Marshal(map[string]any{"a": []any{1, "x", nil, 2.5, map[string]any{}}, "b": []byte("zz")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0x93, 0xd5, 1, 2, 3, 0xc7, 0, 9, 0xc0})
	f.Fuzz(func(t *testing.T, b []byte) {
		theirs := bytes.NewReader(b)
		left := func(err error) bool { return err == nil || errors.Is(err, wire.ErrTrailing) }
		err1 := wire.Unmarshal(append([]byte{0x91}, b...), &empty{})
		err2 := msgpack.NewDecoder(theirs).Skip()
		if left(err1) != (err2 == nil) {
			t.Fatalf("ours %v, msgpack's %v", err1, err2)
		}
		if err2 == nil && (err1 == nil) != (theirs.Len() == 0) {
			t.Fatalf("ours %v, msgpack leaves %d bytes", err1, theirs.Len())
		}
	})
}

// FuzzRead checks that any bytes give a value or an error, within the allowed cost.
func FuzzRead(f *testing.F) {
	x := &all{}
	wiretest.Fill(rand.New(rand.NewPCG(1, 2)), reflect.ValueOf(x).Elem(), 0)
	f.Add(encode(f, x))
	f.Add(encode(f, &all{}))
	f.Add(encode(f, &v2{1, "a", []string{"b"}, inner{}}))
	f.Add([]byte{0xc0})
	f.Fuzz(func(t *testing.T, b []byte) {
		wiretest.Cost(t, b, &all{})
		var x, y all
		if wire.Unmarshal(b, &x) != nil {
			return
		}
		// A decoded value encodes to a form that decodes and encodes to the same bytes again.
		one := encode(t, &x)
		if err := wire.Unmarshal(one, &y); err != nil {
			t.Fatalf("can't decode our own bytes: %v", err)
		}
		if !bytes.Equal(one, encode(t, &y)) {
			t.Fatal("not a fixed point")
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	x := &all{}
	wiretest.Fill(rand.New(rand.NewPCG(1, 2)), reflect.ValueOf(x).Elem(), 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.Marshal(x); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	x := &all{}
	wiretest.Fill(rand.New(rand.NewPCG(1, 2)), reflect.ValueOf(x).Elem(), 0)
	in := encode(b, x)
	b.ReportAllocs()
	for b.Loop() {
		if err := wire.Unmarshal(in, x); err != nil {
			b.Fatal(err)
		}
	}
}

// letter holds another message; its lines are held to 100 bytes of a message.
type letter struct {
	Body  []byte
	Lines []string
}

func (x *letter) Wire(c *wire.C) {
	wire.Held(c, &x.Body, 1<<20)
	wire.Within(c, 100, func(c *wire.C) { wire.Texts(c, &x.Lines, 1<<20, 1<<20) })
}

// TestPartOfAMessageIsBounded: however long a message is, its parts cost no more than they may; what it holds costs
// nothing.
func TestPartOfAMessageIsBounded(t *testing.T) {
	x := &letter{Body: make([]byte, 1<<20), Lines: make([]string, (wire.Floor+wire.Factor*100)/16/2)}
	data, err := wire.AppendMessage(nil, x)
	if err != nil {
		t.Fatal(err)
	}
	var y letter
	if err := wire.ReadMessage(data, &y); err != nil || len(y.Lines) != len(x.Lines) || len(y.Body) != len(x.Body) {
		t.Fatalf("%d lines, %d bytes, %v", len(y.Lines), len(y.Body), err)
	}
	if data[10] = 7; !bytes.Contains(y.Body[:8], []byte{7}) {
		t.Error("the held message was copied")
	}
	x.Lines = make([]string, 100_000)
	if data, err = wire.AppendMessage(nil, x); err != nil {
		t.Fatal(err)
	}
	if err := wire.ReadMessage(data, &y); !errors.Is(err, wire.ErrCost) {
		t.Errorf("%d lines in a message of %d bytes: %v", len(x.Lines), len(data), err)
	}
}
