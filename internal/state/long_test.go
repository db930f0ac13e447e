package state

import (
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestLongDescriptionsAreRefused: a submission or a change says how long a description may be, and a longer one
// changes nothing. One of a log of before has no limit.
func TestLongDescriptionsAreRefused(t *testing.T) {
	s := New()
	spec := func(n int) *model.Spec {
		return &model.Spec{Name: "x", UID: 7, Args: []string{strings.Repeat("a", n)}, Groups: make([]uint32, 1000)}
	}
	most := int32(SpecBytes(spec(1000)))
	submit := func(n int, most int32) Result {
		return s.Apply(Command{Kind: KindSubmit, At: 1000, Body: &Submit{Spec: spec(n), Most: most}})
	}
	ok, long, old := submit(1000, most), submit(1001, most), submit(100_000, 0)
	if ok.Refusal != OK || long.Refusal != TooLong || long.Changed || old.Refusal != OK || old.Job != ok.Job+1 {
		t.Fatalf("%+v, %+v, %+v", ok, long, old)
	}
	for n, want := range map[int]Refusal{1000: OK, 1001: TooLong} {
		res := s.Apply(Command{Kind: KindEdit, At: 2000, Body: &Edit{Targets: []model.JobRef{{Job: ok.Job,
			Task: model.NoTask}},
			Set: []Field{SetSpec}, Spec: spec(n), Most: most}})
		if res.Each[0] != want {
			t.Errorf("a change to %d bytes: %v", n, res.Each)
		}
	}
}
