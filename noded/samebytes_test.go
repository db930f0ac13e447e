package noded

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	old "gbatch/internal/codecgen/wire"
	"gbatch/internal/wire"
	"gbatch/internal/wire/wiretest"
)

// TestSameBytes: the lists of fields write what the generated codec writes, and read what it reads, for every struct.
func TestSameBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, s := range []wire.Coder{
		new(ackedSeqs),
		new(facts),
		new(finalRec),
		new(lateFor),
		new(launched),
		new(leaderEpoch),
		new(opened),
		new(orderedTo),
		new(placedStep),
		new(sampledUse),
		new(staged),
		new(stepOver),
		new(warnedOf),
	} {
		typ := reflect.TypeOf(s).Elem()
		for range 200 {
			x, y, z := reflect.New(typ), reflect.New(typ), reflect.New(typ)
			wiretest.Fill(rng, x.Elem(), 0)
			theirs, err := old.Marshal(x.Interface().(old.Codec))
			if err != nil {
				t.Fatal(err)
			}
			ours, err := wire.Marshal(x.Interface().(wire.Coder))
			if err != nil || !bytes.Equal(theirs, ours) {
				t.Fatalf("%s: %+v, %v\n% x\n% x", typ, x.Elem(), err, theirs, ours)
			}
			if err := old.Unmarshal(ours, y.Interface().(old.Codec)); err != nil {
				t.Fatal(err)
			}
			if err := wire.Unmarshal(theirs, z.Interface().(wire.Coder)); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(y.Interface(), z.Interface()) || !reflect.DeepEqual(x.Interface(), z.Interface()) {
				t.Fatalf("%s: %+v\n%+v", typ, y.Elem(), z.Elem())
			}
		}
	}
}
