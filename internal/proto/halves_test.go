package proto

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestLongPartsAreHalved: the halves of a part, halved until each is short or has one entry, have all entries in order.
func TestLongPartsAreHalved(t *testing.T) {
	const n = 9
	long := strings.Repeat("x", 200)
	jobs, nodes, prio, steps, accts := &JobsChunk{}, &NodesChunk{}, &PrioChunk{}, &StepsChunk{Missing: []string{"n1"}},
		&AccountsChunk{}
	var want []string
	for i := range n {
		name := fmt.Sprint(i, long)
		want = append(want, name)
		jobs.Jobs = append(jobs.Jobs, &model.Job{Spec: &model.Spec{Name: name}})
		nodes.Nodes = append(nodes.Nodes, &NodeInfo{Resv: name})
		prio.Rows = append(prio.Rows, PrioRow{Account: name})
		steps.Steps = append(steps.Steps, RunningStep{User: name})
		accts.Accounts = append(accts.Accounts, &model.Account{Name: name})
		if i < 2 {
			accts.QOS = append(accts.QOS, &model.QOS{Name: name})
		}
	}
	for _, whole := range []Halver{jobs, nodes, prio, steps, accts} {
		var got, missing, qos []string
		parts := 0
		var walk func(Halver)
		walk = func(h Halver) {
			body, err := Encode(h)
			if err != nil {
				t.Fatal(err)
			}
			if first, second := h.Halves(); len(body) > 500 && second != nil {
				walk(first.(Halver))
				walk(second.(Halver))
				return
			}
			parts++
			switch x := h.(type) {
			case *JobsChunk:
				for _, j := range x.Jobs {
					got = append(got, j.Spec.Name)
				}
			case *NodesChunk:
				for _, n := range x.Nodes {
					got = append(got, n.Resv)
				}
			case *PrioChunk:
				for i := range x.Rows {
					got = append(got, x.Rows[i].Account)
				}
			case *StepsChunk:
				for i := range x.Steps {
					got = append(got, x.Steps[i].User)
				}
				missing = append(missing, x.Missing...)
			case *AccountsChunk:
				for _, a := range x.Accounts {
					got = append(got, a.Name)
				}
				for _, q := range x.QOS {
					qos = append(qos, q.Name)
				}
			}
		}
		walk(whole)
		if !slices.Equal(got, want) || parts < 3 {
			t.Errorf("%T: %d parts with %d of %d entries", whole, parts, len(got), n)
		}
		if _, is := whole.(*StepsChunk); is && len(missing) != 1 {
			t.Errorf("missing nodes are told %d times", len(missing))
		}
		if _, is := whole.(*AccountsChunk); is && !slices.Equal(qos, want[:2]) {
			t.Errorf("%d QOS", len(qos))
		}
	}
}
