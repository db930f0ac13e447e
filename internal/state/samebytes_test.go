package state

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
		new(Accounts),
		new(AcctEdit),
		new(Array),
		new(Edit),
		new(Join),
		new(Lost),
		new(Mailed),
		new(Meter),
		new(NodeEdit),
		new(NodeHealth),
		new(Report),
		new(Reports),
		new(Reserve),
		new(SetConfig),
		new(Starts),
		new(Stop),
		new(Submit),
		new(Suspend),
		new(TRESUse),
		new(Target),
		new(Tick),
		new(Trim),
		new(Units),
		new(Usage),
		new(snapEvent),
		new(snapHead),
		new(snapJob),
		new(snapMail),
		new(snapRequest),
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
