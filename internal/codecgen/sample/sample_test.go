package sample

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
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"gbatch/internal/codecgen/sample/other"
	"gbatch/internal/codecgen/wire"
)

// full has a value in every field, at the edges of the integers.
func full() *All {
	u, n := uint32(7), Name("opt")
	return &All{
		Bool: true, I: math.MinInt, I8: -128, I16: -32768, I32: math.MinInt32, I64: math.MinInt64,
		U: math.MaxUint, U8: 255, U16: 65535, U32: math.MaxUint32, U64: math.MaxUint64, F: -0.5, S: "söme\x00",
		Level: -3, Alias: 4, Flags: 0xffff, Name: "n", hidden: 9,
		Bytes: []byte{0, 1, 255}, Hash: Hash{1, 2, 3, 4, 5, 6, 7, 8}, Four: [4]uint32{1, 2, 3, 4},
		Strings: []string{"a", "", "c"}, U64s: []uint64{0, math.MaxUint64}, U32s: []uint32{1}, Matrix: [][]int16{{1, -1}, nil, {2}},
		Bits: Bits{1 << 63}, Names: Names{"x", "y"},
		Inner: Inner{1, []string{"q"}}, InnerPtr: &Inner{A: 2}, Inners: []Inner{{A: 1}, {}, {B: []string{"z"}}},
		InnerPtrs: []*Inner{{A: 3}, nil}, Optional: &u, OptName: &n,
		Env: Env{"PATH": "/bin", "A": "", "Z": "z"}, Counts: map[string]int64{"b": -1, "a": math.MaxInt64},
		Sizes: map[string]uint64{"m": math.MaxUint64}, ByName: map[Name]Inner{"i": {A: 5}, "h": {}},
		Lists: map[string][]string{"l": {"1", "2"}, "k": nil},
		Wait:  time.Hour, Waits: []time.Duration{-1, 1}, Month: time.May,
		ID: 11, IDs: other.IDs{1, 2}, Set: other.Set{3}, Point: other.Point{X: 1, Y: -1}, PointPtr: &other.Point{X: 4},
		Points: []other.Point{{X: 9}}, Hand: other.Hand{Word: "w"}, OtherID: 12, YetOtherID: 13,
	}
}

func encode(t testing.TB, x wire.Codec) []byte {
	t.Helper()
	b, err := wire.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	for name, in := range map[string]*All{"full": full(), "zero": {}} {
		b := encode(t, in)
		got := full() // decoding must replace all of it
		if err := wire.Unmarshal(b, got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, in) {
			t.Errorf("%s: got %+v, want %+v", name, got, in)
		}
	}
}

// TestFullHasEveryField keeps full() honest: a field added to All must be added there.
func TestFullHasEveryField(t *testing.T) {
	v := reflect.ValueOf(full()).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Tag.Get("codec") != "-" && f.Name != "_" && v.Field(i).IsZero() {
			t.Errorf("full() leaves %s zero", f.Name)
		}
	}
}

func TestSkippedFieldIsZeroAfterDecoding(t *testing.T) {
	in := full()
	in.Cache = map[int]int{1: 1}
	got := &All{Cache: map[int]int{2: 2}}
	if err := wire.Unmarshal(encode(t, in), got); err != nil {
		t.Fatal(err)
	}
	if got.Cache != nil {
		t.Errorf("Cache is %v", got.Cache)
	}
}

func TestEqualValuesGiveEqualBytes(t *testing.T) {
	a, b := &All{Env: Env{}}, &All{Env: Env{}, Strings: []string{}, Bytes: []byte{}, Counts: map[string]int64{}}
	for i := range 100 {
		k := string(rune('a'+i%26)) + strings.Repeat("x", i)
		a.Env[k] = k
	}
	for k, v := range a.Env {
		b.Env[k] = v
	}
	if !bytes.Equal(encode(t, a), encode(t, b)) {
		t.Error("equal values, different bytes")
	}
}

func TestOldAndNewRecords(t *testing.T) {
	v1, v2 := &V1{1, "one"}, &V2{2, "two", []string{"t"}, Inner{A: 3}}

	var got2 V2
	if err := wire.Unmarshal(encode(t, v1), &got2); err != nil {
		t.Fatal(err)
	}
	if want := (V2{ID: 1, Name: "one"}); !reflect.DeepEqual(got2, want) {
		t.Errorf("old record in new struct: %+v, want %+v", got2, want)
	}
	var got1 V1
	if err := wire.Unmarshal(encode(t, v2), &got1); err != nil {
		t.Fatal(err)
	}
	if want := (V1{2, "two"}); got1 != want {
		t.Errorf("new record in old struct: %+v, want %+v", got1, want)
	}
	var got3 V3
	if err := wire.Unmarshal(encode(t, v2), &got3); err != nil {
		t.Fatal(err)
	}
	if want := (V3{ID: 2, Tags: []string{"t"}, Inner: Inner{A: 3}}); !reflect.DeepEqual(got3, want) {
		t.Errorf("retired field: %+v, want %+v", got3, want)
	}
	if err := wire.Unmarshal(encode(t, &got3), &got2); err != nil {
		t.Fatal(err)
	}
	if got2.ID != 2 || got2.Name != "" || got2.Inner.A != 3 {
		t.Errorf("record with a retired field in the older struct: %+v", got2)
	}
	for _, b := range [][]byte{{0xc0}, {0x90}} {
		got1 = V1{1, "x"}
		if err := wire.Unmarshal(b, &got1); err != nil || got1 != (V1{}) {
			t.Errorf("% x: %+v, %v; want the zero value", b, got1, err)
		}
	}
	var e Empty
	if err := wire.Unmarshal(encode(t, v2), &e); err != nil {
		t.Error(err)
	}
}

func TestEveryTruncationIsAnError(t *testing.T) {
	b := encode(t, full())
	for n := range b {
		var x All
		if err := wire.Unmarshal(b[:n], &x); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d of %d bytes: %v, want an unexpected end", n, len(b), err)
		}
	}
	var x All
	if err := wire.Unmarshal(append(b, 0), &x); !errors.Is(err, wire.ErrTrailing) {
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
		x    wire.Codec
		want string
	}{
		{enc(true, 1, 128), &All{}, "All.I8: integer out of range: 128"},
		{enc(uint64(math.MaxUint32) + 1), &Inner{}, "Inner.A: integer out of range: 4294967296"},
		{enc(-1), &Inner{}, "Inner.A: integer out of range"},
		{enc(1, "x"), &Inner{}, "Inner.B: msgpack: invalid code"},
		{enc(1, "n", nil, []any{"x"}), &V2{}, "V2.Inner: Inner.A: msgpack: invalid code"},
	} {
		err := wire.Unmarshal(c.in, c.x)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("% x: %v, want %q", c.in, err, c.want)
		}
	}
}

// TestHostileLengths: a few bytes must not make the decoder allocate much or recurse deep.
func TestHostileLengths(t *testing.T) {
	deep := append([]byte{0x93, 0x01, 0xa0}, bytes.Repeat([]byte{0x91}, 16<<20)...) // V1 with a third field: 16 Mi arrays deep
	maps := append([]byte{0x93, 0x01, 0xa0}, bytes.Repeat([]byte{0x81}, 16<<20)...)
	upTo := func(field int, tail ...byte) []byte { // All with the fields before field nil
		b := []byte{0xdc, 0, 51}
		return append(append(b, bytes.Repeat([]byte{0xc0}, field)...), tail...)
	}
	index := func(name string) int {
		n := 0
		for f := range reflect.TypeFor[All]().Fields() {
			if f.Name == name {
				return n
			}
			if f.Tag.Get("codec") != "-" {
				n++
			}
		}
		t.Fatalf("no field %s", name)
		return 0
	}
	for name, c := range map[string]struct {
		in []byte
		x  wire.Codec
	}{
		"array of 4 Gi strings": {upTo(index("Strings"), 0xdd, 0xff, 0xff, 0xff, 0xff, 0xa1), &All{}},
		"array of 4 Gi structs": {upTo(index("Inners"), 0xdd, 0xff, 0xff, 0xff, 0xff, 0x90), &All{}},
		"array of arrays":       {upTo(index("Matrix"), 0xdd, 0xff, 0xff, 0xff, 0xff, 0xdd, 0xff, 0xff, 0xff, 0xff), &All{}},
		"bytes of 4 GiB":        {upTo(index("Bytes"), 0xc6, 0xff, 0xff, 0xff, 0xff, 1, 2, 3), &All{}},
		"string of 4 GiB":       {upTo(index("S"), 0xdb, 0xff, 0xff, 0xff, 0xff, 1, 2, 3), &All{}},
		"map of 4 Gi":           {upTo(index("Env"), 0xdf, 0xff, 0xff, 0xff, 0xff, 0xa0, 0xa0), &All{}},
		"4 Gi fields":           {[]byte{0xdd, 0xff, 0xff, 0xff, 0xff}, &Empty{}},
		"4 Gi fields in a map":  {[]byte{0x91, 0xdf, 0xff, 0xff, 0xff, 0xff, 0x91, 0xdf, 0xff, 0xff, 0xff, 0xff}, &Empty{}},
		"hash too long":         {upTo(index("Hash"), 0xc4, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0), &All{}},
		"deep arrays":           {deep, &V1{}},
		"deep maps":             {maps, &V1{}},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := wire.Unmarshal(c.in, c.x)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Error("no error")
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
				t.Errorf("allocated %d KiB for %d bytes of input", got>>10, len(c.in))
			}
		})
	}
}

func TestLongByteString(t *testing.T) {
	in := &All{Bytes: make([]byte, 1<<20+3)}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range in.Bytes {
		in.Bytes[i] = byte(r.Uint32())
	}
	var got All
	if err := wire.Unmarshal(encode(t, in), &got); err != nil || !bytes.Equal(got.Bytes, in.Bytes) {
		t.Errorf("%d bytes came back as %d: %v", len(in.Bytes), len(got.Bytes), err)
	}
}

// TestStream: values follow each other in one stream, and the end between two is a plain io.EOF.
func TestStream(t *testing.T) {
	b := append(encode(t, &V1{1, "a"}), encode(t, &V1{2, "b"})...)
	d := msgpack.NewDecoder(bytes.NewReader(b))
	for want := range uint64(2) {
		var x V1
		if err := x.DecodeMsgpack(d); err != nil || x.ID != want+1 {
			t.Fatalf("%+v, %v", x, err)
		}
	}
	if err := new(V1).DecodeMsgpack(d); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(f, full()))
	f.Add(encode(f, &All{}))
	f.Add(encode(f, &V2{1, "a", []string{"b"}, Inner{}}))
	f.Add([]byte{0xc0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var x All
		if wire.Unmarshal(b, &x) != nil {
			return
		}
		// What decodes, encodes to a form that decodes to the same bytes again.
		one := encode(t, &x)
		var y All
		if err := wire.Unmarshal(one, &y); err != nil {
			t.Fatalf("can't decode our own bytes: %v", err)
		}
		if !bytes.Equal(one, encode(t, &y)) {
			t.Fatal("not a fixed point")
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	x := full()
	e := msgpack.NewEncoder(io.Discard)
	b.ReportAllocs()
	for b.Loop() {
		if err := x.EncodeMsgpack(e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	in := encode(b, full())
	var x All
	b.ReportAllocs()
	for b.Loop() {
		if err := wire.Unmarshal(in, &x); err != nil {
			b.Fatal(err)
		}
	}
}
