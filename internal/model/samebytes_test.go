package model

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
		new(Account),
		new(Alloc),
		new(AskRules),
		new(Association),
		new(Backfill),
		new(BindWish),
		new(Blob),
		new(CPUShare),
		new(Cause),
		new(Claim),
		new(ClaimSet),
		new(Config),
		new(Dep),
		new(End),
		new(Exit),
		new(Expect),
		new(Explanation),
		new(GPUIdle),
		new(GPUSelect),
		new(GPUShare),
		new(GPUUsage),
		new(GresAlloc),
		new(GresCount),
		new(GresDef),
		new(GresReq),
		new(GresUnit),
		new(Job),
		new(KV),
		new(LicenseCount),
		new(MailWish),
		new(Needs),
		new(Node),
		new(NodeAlloc),
		new(NodeDef),
		new(NodeRules),
		new(NodeUsage),
		new(Params),
		new(Partition),
		new(Plan),
		new(Preempt),
		new(Preemption),
		new(Priority),
		new(QOS),
		new(QueuePlace),
		new(RLimit),
		new(Range),
		new(ReasonSet),
		new(Record),
		new(Reservation),
		new(ResvPart),
		new(Run),
		new(Share),
		new(SharedGPU),
		new(Spec),
		new(Start),
		new(Step),
		new(Switch),
		new(TRESCount),
		new(TRESLimit),
		new(TRESWeight),
		new(Turn),
		new(UnitOut),
		new(UnitTell),
		new(Usage),
		new(User),
		new(Warning),
		new(WhatIf),
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
