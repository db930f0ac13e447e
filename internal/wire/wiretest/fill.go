package wiretest

import (
	"math"
	"reflect"
)

// Filler makes values of a fuzz target's bytes: messages of a kind that no writer of bytes would find. Equal bytes make
// equal values; when they are used up, all is zero.
type Filler struct {
	Bytes []byte
	Texts []string // what texts are taken from
}

// Next takes a byte.
func (f *Filler) Next() byte {
	if len(f.Bytes) == 0 {
		return 0
	}
	c := f.Bytes[0]
	f.Bytes = f.Bytes[1:]
	return c
}

// Text takes a text.
func (f *Filler) Text() string {
	if len(f.Texts) == 0 {
		return ""
	}
	n := int(f.Next())
	if len(f.Texts) > 256 {
		n += int(f.Next()) << 8
	}
	return f.Texts[n%len(f.Texts)]
}

var fillInts = []int64{0, 1, 2, 3, 4, 7, 13, 14, 64, 65, 255, 4096, 65536, 1 << 30, math.MaxInt32, math.MaxInt64, -1,
	-5, math.MinInt32, math.MinInt64}

const fillDepth = 6 // of pointers and lists within each other

// Fill fills what v points to, but for fields that are not exported.
func (f *Filler) Fill(v any) { f.fill(reflect.ValueOf(v).Elem(), 1) }

func (f *Filler) fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(f.Next()&1 != 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if n := fillInts[int(f.Next())%len(fillInts)]; !v.OverflowInt(n) {
			v.SetInt(n)
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if n := uint64(fillInts[int(f.Next())%len(fillInts)]); !v.OverflowUint(n) {
			v.SetUint(n)
		}
	case reflect.Float64:
		v.SetFloat(float64(fillInts[int(f.Next())%len(fillInts)]))
	case reflect.String:
		v.SetString(f.Text())
	case reflect.Slice:
		if n := int(f.Next() % 5); n > 0 && depth < fillDepth {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				f.fill(v.Index(i), depth+1)
			}
		}
	case reflect.Pointer:
		if f.Next()&3 != 0 && depth < fillDepth {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				f.fill(v.Field(i), depth+1)
			}
		}
	}
}
