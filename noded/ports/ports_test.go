package ports

import (
	"errors"
	"testing"

	"gbatch/internal/model"
)

// TestChoose: what is held is passed over, the end is followed by the beginning, and what is chosen clashes with
// nothing.
func TestChoose(t *testing.T) {
	sets := func(texts ...string) (out []model.TaskSet) {
		for _, text := range texts {
			s, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, s)
		}
		return out
	}
	r := Range{12000, 12009}
	for _, c := range []struct {
		n    int
		held []model.TaskSet
		from int32
		want string
	}{
		{2, nil, 0, "12000-12001"},
		{2, nil, 9, "12000,12009"},
		{3, sets("12001", "12003-12005"), 0, "12000,12002,12006"},
		{10, nil, 3, "12000-12009"},
		{4, sets("12000-12005"), 8, "12006-12009"},
	} {
		got, err := Choose(r, c.n, c.held, c.from)
		if err != nil || got != c.want {
			t.Errorf("%d from %d beside %v: %q %v, want %q", c.n, c.from, c.held, got, err, c.want)
		}
		if set := sets(got)[0]; set.Count() != c.n || Clash(set, c.held) != 0 || Clash(set, append(c.held, set)) == 0 {
			t.Errorf("%q is not what was asked for", got)
		}
	}
	if _, err := Choose(r, 5, sets("12000-12005"), 0); !errors.Is(err, ErrHeld) {
		t.Error(err)
	}
	if _, err := Choose(r, 11, nil, 0); err == nil || errors.Is(err, ErrHeld) {
		t.Error(err)
	}
	if _, err := Choose(Range{}, 1, nil, 0); err == nil || errors.Is(err, ErrHeld) {
		t.Error(err)
	}
}
