package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestTellUnits follows one node's units through its reports and operators' changes.
func TestTellUnits(t *testing.T) {
	fault := func(i int32, stamp uint64) UnitTell {
		return UnitTell{"gpu", i, OutFault, fmt.Sprint("fault ", stamp), stamp}
	}
	spent := func(i int32, stamp uint64) UnitTell { return UnitTell{"gpu", i, OutSpent, "reset it", stamp} }
	lost := func(i int32, stamp uint64) UnitTell {
		return UnitTell{"gpu", i, OutLost, fmt.Sprintf("fault %d; no reset", stamp), stamp}
	}
	used := func(i int32, who string) UnitTell { return UnitTell{"gpu", i, OutInUse, who, 0} }
	var out []UnitOut
	for step, c := range []struct {
		tells  []UnitTell
		drain  []int32 // by an operator, before
		resume []int32
		want   string // units that are out, * fresh
	}{
		{tells: nil, want: ""},
		{tells: []UnitTell{fault(3, 10)}, want: "3 fault 10*"},
		{tells: []UnitTell{fault(3, 10)}, want: "3 fault 10"}, // told again: known
		// the fault stays even if the node no longer reports it
		{tells: nil, want: "3 fault 10"},
		{tells: []UnitTell{fault(3, 10), spent(1, 11)}, want: "3 fault 10 1 reset it"}, // running jobs are spared
		// and now it isn't: the first cause stays
		{tells: []UnitTell{fault(3, 10), fault(1, 12)}, want: "3 fault 10 1 reset it*"},
		// an operator has dealt with it while the node still reports it
		{tells: []UnitTell{fault(3, 10), fault(1, 12)}, resume: []int32{3}, want: "1 reset it"},
		{tells: []UnitTell{fault(3, 20), fault(1, 12)}, want: "3 fault 20* 1 reset it"}, // a new one
		{tells: nil, resume: []int32{1, 3}, want: ""},
		{tells: []UnitTell{used(0, "pid 1")}, want: "0 pid 1"},
		{tells: []UnitTell{used(0, "pid 2")}, want: "0 pid 2"},
		{tells: nil, want: ""}, // over by itself
		{tells: []UnitTell{used(0, "pid 2")}, drain: []int32{0}, want: "0 by hand"},
		{tells: nil, want: "0 by hand"},
		{tells: []UnitTell{fault(0, 30)}, want: "0 by hand*"}, // a job may still hold it
		{tells: nil, resume: []int32{0}, want: ""},
		{tells: []UnitTell{fault(2, 40)}, want: "2 fault 40*"},
		{tells: []UnitTell{lost(2, 40)}, want: "2 fault 40; no reset"}, // GpuRecoverProgram has failed
		{tells: []UnitTell{fault(2, 40)}, want: "2 fault 40; no reset"},
		{tells: []UnitTell{lost(2, 40)}, resume: []int32{2}, want: ""}, // it was replaced
		{tells: []UnitTell{lost(2, 50)}, want: "2 fault 50; no reset*"},
	} {
		if c.drain != nil {
			out = EditUnits(out, "gpu", c.drain, true, "by hand", "me", 1)
		}
		if c.resume != nil {
			out = EditUnits(out, "gpu", c.resume, false, "", "me", 1)
		}
		before := slices.Clone(out)
		next, fresh, changed := TellUnits(out, c.tells, 2, "gbatch")
		if same := slices.Equal(before, next); changed == same {
			t.Errorf("step %d: changed %v\n%+v\n%+v", step, changed, before, next)
		}
		var got []string
		for i, o := range next {
			if o.Kind == OutCleared {
				continue
			}
			star := ""
			if slices.Contains(fresh, i) {
				star = "*"
			}
			got = append(got, fmt.Sprintf("%d %s%s", o.Index, o.Reason, star))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("step %d: %q, want %q", step, s, c.want)
		}
		out = next
	}
}
