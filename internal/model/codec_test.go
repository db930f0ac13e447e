package model

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"gbatch/internal/codecgen/wire"
)

// all lists one value of every struct with a codec.
func all() []wire.Codec {
	return []wire.Codec{new(Alloc), new(NodeAlloc), new(GresAlloc), new(GresCount), new(Config), new(Params), new(Partition),
		new(Job), new(Run), new(End), new(Exit), new(NodeDef), new(GresDef), new(Node), new(Plan), new(Start), new(ReasonSet),
		new(Record), new(Spec), new(RLimit), new(GresReq), new(Dep), new(Blob), new(Range), new(KV),
		new(TRESLimit), new(Account), new(User), new(Association), new(QOS), new(TRESCount), new(TRESWeight), new(Priority)}
}

// TestCodecs: what is written is read back equal, equal values give equal bytes, and no truncation is taken for whole.
func TestCodecs(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, sample := range all() {
		typ := reflect.TypeOf(sample).Elem()
		for range 50 {
			x := reflect.New(typ)
			fill(rng, x.Elem(), 0)
			data, err := wire.Marshal(x.Interface().(wire.Codec))
			if err != nil {
				t.Fatalf("%s: %v", typ, err)
			}
			y := reflect.New(typ)
			if err := wire.Unmarshal(data, y.Interface().(wire.Codec)); err != nil {
				t.Fatalf("%s: %v", typ, err)
			}
			if !reflect.DeepEqual(x.Interface(), y.Interface()) {
				t.Fatalf("%s:\nwrote %+v\nread  %+v", typ, x.Elem(), y.Elem())
			}
			again, err := wire.Marshal(y.Interface().(wire.Codec))
			if err != nil || !bytes.Equal(data, again) {
				t.Fatalf("%s: equal values, other bytes (%v)", typ, err)
			}
			if cut := rng.IntN(len(data)); wire.Unmarshal(data[:cut], y.Interface().(wire.Codec)) == nil {
				t.Fatalf("%s: %d of %d bytes are taken for whole", typ, cut, len(data))
			}
		}
	}
}

// fill sets every field to something random; slices and pointers may be nil, but never empty.
func fill(rng *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(rng, v.Field(i), depth+1)
		}
	case reflect.Pointer:
		if rng.IntN(3) > 0 && depth < 6 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(rng, v.Elem(), depth+1)
		}
	case reflect.Slice:
		n := rng.IntN(3)
		if n == 0 || depth >= 8 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(rng, v.Index(i), depth+1)
			if v.Index(i).Kind() == reflect.Pointer && v.Index(i).IsNil() { // lists of pointers hold no nil
				v.Index(i).Set(reflect.New(v.Index(i).Type().Elem()))
			}
		}
	case reflect.String:
		v.SetString([]string{"", "a", "gpu", "a longer text with ünïcode"}[rng.IntN(4)])
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		n := int64(rng.Uint64()) >> rng.IntN(64)
		v.SetInt(n >> (64 - min(64, v.Type().Bits())))
	default:
		n := rng.Uint64() >> rng.IntN(64)
		v.SetUint(n >> (64 - min(64, v.Type().Bits())))
	}
}
