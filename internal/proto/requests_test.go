package proto

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// kinds gives the names of all kinds in requests.go, with their numbers.
func kinds(t *testing.T) map[string]uint16 {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "requests.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint16{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		from, at := uint16(0), 0
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			if !strings.HasPrefix(v.Names[0].Name, "Kind") {
				continue
			}
			if len(v.Values) > 0 {
				from = KindPing
				if v.Names[0].Name == "KindForward" {
					from = KindForward
				}
				if lit, ok := v.Values[0].(*ast.BasicLit); ok {
					n, err := strconv.ParseUint(lit.Value, 10, 16)
					if err != nil {
						t.Fatal(err)
					}
					from = uint16(n)
				}
				at = 0
			}
			out[v.Names[0].Name] = from + uint16(at)
			at++
		}
	}
	return out
}

func TestEveryKindHasARow(t *testing.T) {
	all := kinds(t)
	if all["KindMIG"] != KindMIG || all["KindHeartbeat"] != KindHeartbeat {
		t.Fatalf("the kinds were not read: %v", all)
	}
	names := map[string]string{}
	known := map[uint16]bool{}
	for kind, number := range all {
		known[number] = true
		row := RequestOf(number)
		if row.Name == "REQUEST_OTHER" {
			t.Errorf("%s has no row in requests.go", kind)
			continue
		}
		if other := names[row.Name]; other != "" {
			t.Errorf("%s and %s are both called %s", kind, other, row.Name)
		}
		names[row.Name] = kind
		if row.Effect != Changes && !row.Repeats {
			t.Errorf("%s reads, and may not be repeated", kind)
		}
		if row.Effect == Changes && row.At != AtDaemon && row.Look == "" {
			t.Errorf("%s changes something; what shows whether it was made?", kind)
		}
		if (row.At == AtDaemon) != (number >= KindForward) {
			t.Errorf("%s is answered at %d; users' requests are the kinds below KindForward", kind, row.At)
		}
	}
	for kind := range requests {
		if requests[kind].Name != "" && !known[uint16(kind)] {
			t.Errorf("row %d is of no kind", kind)
		}
	}
}

// A kind without a row counts as a change that must not be repeated.
func TestUnknownKindIsSafe(t *testing.T) {
	for _, kind := range []uint16{0, 99, 999, 65535} {
		if row := RequestOf(kind); row.Repeats || row.Effect != Changes || row.Number != uint32(kind) {
			t.Errorf("%d: %+v", kind, row)
		}
	}
}

func TestSignalsAreCountedAndEndsAreNot(t *testing.T) {
	for _, c := range []struct {
		rq   CancelRequest
		want uint16
	}{
		{CancelRequest{}, KindCancel}, {CancelRequest{Signal: 9}, KindCancel}, {CancelRequest{Signal: 10}, KindSignal},
		{CancelRequest{Signal: 2, Release: true}, KindCancel},
	} {
		if got := c.rq.Kind(); got != c.want {
			t.Errorf("%+v: %d", c.rq, got)
		}
	}
}

// Every change at the leader has an id: its own, or a Once's. A Once of anything else is the careful kind.
func TestEveryChangeHasAnID(t *testing.T) {
	for name, kind := range kinds(t) {
		row := RequestOf(kind)
		body, err := Encode(&Once{Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		in := RequestIn(KindOnce, body)
		switch {
		case kind >= KindForward || row.Effect != Changes || row.At != AtLeader || kind == KindOnce:
			if in.Repeats || in.Effect != Changes {
				t.Errorf("%s is no change at the leader, and may be repeated in a Once", name)
			}
		case row.OwnID == row.ByID() || row.OwnID && !row.Repeats:
			t.Errorf("%s has no id, or two", name)
		case row.ByID() && (!in.Repeats || in.Name != row.Name || in.WaitS != row.WaitS):
			t.Errorf("%s in a Once: %+v", name, in)
		}
	}
	if row := RequestIn(KindOnce, []byte("garbage")); row.Repeats || row.Effect != Changes {
		t.Errorf("garbage: %+v", row)
	}
}

// Without an id these kinds must not be repeated, whatever else changes in the table.
func TestChangesAreNotRepeated(t *testing.T) {
	for _, kind := range []uint16{KindUpdateJob, KindUpdateNode, KindUpdatePartition, KindReserve, KindReconfigure,
		KindEditAccounts, KindMIG, KindSignal} {
		if row := RequestOf(kind); row.Repeats || row.Effect != Changes {
			t.Errorf("%s may be repeated, or counts as a question", row.Name)
		}
	}
}
