package wiretest

import (
	"bytes"
	"encoding/binary"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/wire"
)

// Package tests all structs with a Wire method in the directory of the test: those in roots and the structs within
// them.
func Package(t *testing.T, roots ...wire.Coder) {
	all := reached(roots)
	t.Run("EveryStruct", func(t *testing.T) { everyStruct(t, all) })
	Structs(t, roots...)
}

// Structs tests the structs in roots, and the structs of the same package within them.
func Structs(t *testing.T, roots ...wire.Coder) {
	all := reached(roots)
	for _, typ := range all {
		t.Run(typ.Name(), func(t *testing.T) {
			eachField(t, typ)
			random(t, typ)
			emptyList(t, typ)
			hostile(t, typ)
		})
	}
}

// reached gives the types of roots, and of all structs of the same package within.
func reached(roots []wire.Coder) []reflect.Type {
	var all []reflect.Type
	var walk func(t reflect.Type, home string)
	walk = func(t reflect.Type, home string) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice:
			walk(t.Elem(), home)
		case reflect.Struct:
			if t.PkgPath() != home || slices.Contains(all, t) {
				return
			}
			all = append(all, t)
			for i := range t.NumField() {
				walk(t.Field(i).Type, home)
			}
		}
	}
	for _, x := range roots {
		t := reflect.TypeOf(x).Elem()
		walk(t, t.PkgPath())
	}
	return all
}

// everyStruct compares the list of types with the Wire methods in the source.
func everyStruct(t *testing.T, all []reflect.Type) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || fn.Name.Name != "Wire" {
				continue
			}
			star, ok := fn.Recv.List[0].Type.(*ast.StarExpr)
			if !ok {
				t.Errorf("%s: Wire needs a pointer as its receiver", file.Name())
				continue
			}
			name := star.X.(*ast.Ident).Name
			at := slices.IndexFunc(all, func(t reflect.Type) bool { return t.Name() == name })
			if at < 0 {
				t.Errorf("%s: %s has a Wire method, and none of the test's structs holds it; name it there", file.Name(), name)
				continue
			}
			lines(t, all[at], fn)
		}
	}
	for _, typ := range all {
		if holds(typ, typ) {
			t.Errorf("%s contains itself: nothing would bound how deep a message nests", typ)
		}
	}
}

// lines checks that a Wire method has one line per field, in the order of declaration.
func lines(t *testing.T, typ reflect.Type, fn *ast.FuncDecl) {
	body := slices.DeleteFunc(slices.Clone(fn.Body.List), blames)
	for i, line := range body {
		if i >= typ.NumField() {
			t.Errorf("%s has %d fields, its Wire method %d lines", typ, typ.NumField(), len(body))
			return
		}
		field, named := typ.Field(i).Name, false
		ast.Inspect(line, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				named = named || sel.Sel.Name == field || field == "_" && sel.Sel.Name == "Retired"
			}
			return true
		})
		if !named {
			t.Errorf("line %d of %s's Wire method is not for %s: lines stand in the order of the fields", i+1, typ, field)
			return
		}
	}
}

// blames reports whether a line is a call of Blame, which reads nothing.
func blames(line ast.Stmt) bool {
	if x, ok := line.(*ast.ExprStmt); ok {
		if call, ok := x.X.(*ast.CallExpr); ok {
			sel, ok := call.Fun.(*ast.SelectorExpr)
			return ok && sel.Sel.Name == "Blame"
		}
	}
	return false
}

// holds reports whether typ contains target, directly or within other types.
func holds(typ, target reflect.Type) bool {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice:
		return typ.Elem() == target || holds(typ.Elem(), target)
	case reflect.Struct:
		for i := range typ.NumField() {
			if f := typ.Field(i).Type; f == target || holds(f, target) {
				return true
			}
		}
	}
	return false
}

// fresh makes an empty value of a struct, and gives it as a Coder too.
func fresh(typ reflect.Type) (reflect.Value, wire.Coder) {
	v := reflect.New(typ)
	return v.Elem(), v.Interface().(wire.Coder)
}

// eachField sets one field at a time: writing and reading must give that field and no other.
func eachField(t *testing.T, typ reflect.Type) {
	rng := rand.New(rand.NewPCG(1, uint64(typ.NumField())))
	for i := range typ.NumField() {
		if typ.Field(i).Name == "_" {
			continue
		}
		v, x := fresh(typ)
		for n := 0; v.Field(i).IsZero(); n++ {
			if n == 1000 {
				t.Fatalf("%s can't be set", typ.Field(i).Name)
			}
			Fill(rng, settable(v.Field(i)), 0)
		}
		got, y := fresh(typ)
		Fill(rng, got, 0) // reading replaces everything
		if err := wire.Unmarshal(marshal(t, x), y); err != nil {
			t.Errorf("%s: %v", typ.Field(i).Name, err)
		} else if !reflect.DeepEqual(x, y) {
			t.Errorf("the Wire method has no line for %s, or one in another place:\nwrote %+v\nread  %+v",
				typ.Field(i).Name, v, got)
		}
	}
}

// random writes and reads random values: whole, truncated, with a later version's fields, and into a reused value.
func random(t *testing.T, typ reflect.Type) {
	rng := rand.New(rand.NewPCG(3, uint64(typ.NumField())))
	_, again := fresh(typ)
	for range 20 {
		v, x := fresh(typ)
		Fill(rng, v, 0)
		data := marshal(t, x)
		_, y := fresh(typ)
		if err := wire.Unmarshal(data, y); err != nil {
			t.Fatalf("%v of %+v", err, v)
		}
		if !reflect.DeepEqual(x, y) {
			t.Fatalf("wrote %+v\nread  %+v", x, y)
		}
		if !bytes.Equal(data, marshal(t, y)) {
			t.Fatal("equal values give other bytes")
		}
		if cut := rng.IntN(len(data)); wire.Unmarshal(data[:cut], y) == nil {
			t.Fatalf("%d of %d bytes are taken for whole", cut, len(data))
		}
		if err := wire.Unmarshal(later(data), y); err != nil || !reflect.DeepEqual(x, y) {
			t.Fatalf("with a field of a later version: %v\nwrote %+v\nread  %+v", err, x, y)
		}
		if err := wire.ReadAgain(data, again, wire.AsIs); err != nil || !bytes.Equal(data, marshal(t, again)) {
			t.Fatalf("used again: %v\nwrote %+v\nread  %+v", err, x, again)
		}
		message(t, x, y)
	}
}

// later appends a field to the struct in data.
func later(data []byte) []byte {
	n, fields := int(data[0]&0x0f), data[1:]
	if data[0] == 0xdc {
		n, fields = int(binary.BigEndian.Uint16(data[1:])), data[3:]
	}
	out := binary.BigEndian.AppendUint16([]byte{0xdc}, uint16(n+2))
	out = append(out, fields...)
	return append(out, 0x92, 0xa1, 'x', 0x81, 0x01, 0xc4, 0x01, 0x00, 0xc0)
}

// message sends x as a message and reads it into y.
func message(t *testing.T, x, y wire.Coder) {
	data, err := wire.AppendMessage(nil, x)
	if err != nil {
		t.Fatal(err)
	}
	used := math.MaxInt
	for range 3 { // a collection in between empties the pool of decoders, and one more is made
		if used = min(used, allocated(func() { err = wire.ReadMessage(data, y) })); err != nil {
			t.Fatalf("a message that was sent is refused: %v", err)
		}
		if used <= wire.Worth(len(data), x)+slack {
			break
		}
	}
	if used > wire.Worth(len(data), x)+slack {
		t.Fatalf("reading %d bytes allocated %d", len(data), used)
	}
	if !bytes.Equal(marshal(t, x), marshal(t, y)) {
		t.Fatalf("wrote %+v\nread  %+v", x, y)
	}
}

// emptyList sends a thousand empty entries in every list of the struct: the most memory that honest bytes can cost.
func emptyList(t *testing.T, typ reflect.Type) {
	for i := range typ.NumField() {
		if typ.Field(i).Type.Kind() != reflect.Slice || typ.Field(i).Name == "_" {
			continue
		}
		v, x := fresh(typ)
		list := reflect.MakeSlice(typ.Field(i).Type, 1000, 1000)
		if el := list.Type().Elem(); el.Kind() == reflect.Pointer {
			for k := range list.Len() {
				list.Index(k).Set(reflect.New(el.Elem()))
			}
		}
		settable(v.Field(i)).Set(list)
		_, y := fresh(typ)
		message(t, x, y)
	}
}

// hostile reads messages that claim more than they contain: the reader must not allocate more than they are worth.
func hostile(t *testing.T, typ reflect.Type) {
	heads := [][]byte{ // of arrays, texts, bytes, a map and an extension
		{0xdd, 0xff, 0xff, 0xff, 0xff}, {0xdd, 0, 0, 4, 0}, {0xdc, 0xff, 0xff}, {0xdb, 0xff, 0xff, 0xff, 0xff},
		{0xc6, 0xff, 0xff, 0xff, 0xff}, {0xdf, 0xff, 0xff, 0xff, 0xff}, {0xc9, 0xff, 0xff, 0xff, 0xff, 0},
	}
	for i := range typ.NumField() + 1 {
		start := binary.BigEndian.AppendUint16([]byte{0xdc}, uint16(typ.NumField()+1))
		start = append(start, bytes.Repeat([]byte{0xc0}, i)...) // the earlier fields are missing
		for _, head := range heads {
			for _, rest := range []byte{0xc0, 0x90, 0x91, 0xa0, 0xa1, 0x01, 0x81, 0xcf} {
				data := append(slices.Concat(start, head), bytes.Repeat([]byte{rest}, 2000)...)
				_, x := fresh(typ)
				if Cost(t, data, x); t.Failed() {
					t.Fatalf("field %d, % x and 2000 times %x", i, head, rest)
				}
			}
		}
	}
}

// Cost reads data as a message into x, with or without an error, and checks that the cost is within a message's limit.
func Cost(t *testing.T, data []byte, x wire.Coder) {
	used := allocated(func() { _ = wire.ReadMessage(data, x) })
	if used > wire.Worth(len(data), x)+slack {
		t.Errorf("reading %d bytes allocated %d", len(data), used)
	}
}

// slack is the memory for an error's text and a decoder's first use, besides the message.
const slack = 4 << 10

// allocated gives the number of bytes that f allocates.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

func marshal(t *testing.T, x wire.Coder) []byte {
	t.Helper()
	data, err := wire.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// settable makes unexported fields settable.
func settable(v reflect.Value) reflect.Value {
	if v.CanSet() {
		return v
	}
	return reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
}

// Fill sets every field to a random value; lists and pointers may be nil, but never empty.
func Fill(rng *rand.Rand, v reflect.Value, depth int) {
	if v.Type() == reflect.TypeFor[wire.Raw]() {
		v.SetBytes([]byte{0x92, 0x01, 0xa1, 'x'}) // what has a form: a list of a number and a text
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "_" {
				Fill(rng, settable(v.Field(i)), depth+1)
			}
		}
	case reflect.Pointer:
		v.SetZero()
		if rng.IntN(3) > 0 && depth < 6 {
			v.Set(reflect.New(v.Type().Elem()))
			Fill(rng, v.Elem(), depth+1)
		}
	case reflect.Slice:
		v.SetZero()
		n := rng.IntN(3)
		if n == 0 || depth >= 8 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			Fill(rng, v.Index(i), depth+1)
			if v.Index(i).Kind() == reflect.Pointer && v.Index(i).IsNil() { // lists of pointers hold no nil
				v.Index(i).Set(reflect.New(v.Index(i).Type().Elem()))
			}
		}
	case reflect.String:
		v.SetString([]string{"", "a", "gpu", "a longer text with ünïcode, over 31 bytes"}[rng.IntN(4)])
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat(rng.NormFloat64())
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		n := int64(rng.Uint64()) >> rng.IntN(64)
		v.SetInt(n >> (64 - min(64, v.Type().Bits())))
	default:
		n := rng.Uint64() >> rng.IntN(64)
		v.SetUint(n >> (64 - min(64, v.Type().Bits())))
	}
}
