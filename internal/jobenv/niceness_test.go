package jobenv

import (
	"slices"
	"testing"

	"gbatch/internal/model"
)

// TestNiceness: who may have which nice value.
func TestNiceness(t *testing.T) {
	for _, x := range []struct {
		mode model.PrioMode
		own  int
		uid  uint32
		env  []string
		want int
	}{
		{model.PrioOfDaemon, 3, 1000, []string{prioVar + "7"}, 3},
		{model.PrioOfSubmit, 0, 1000, []string{prioVar + "7"}, 7},
		{model.PrioOfSubmit, 0, 1000, []string{prioVar + "7", "A=b", prioVar + "9"}, 9},
		{model.PrioOfSubmit, 0, 1000, []string{prioVar + "-15"}, 0},
		{model.PrioOfSubmit, 5, 1000, []string{prioVar + "2"}, 5},
		{model.PrioOfSubmit, 0, 0, []string{prioVar + "-15"}, -15},
		{model.PrioOfSubmit, 0, 0, []string{prioVar + "-99"}, -20},
		{model.PrioOfSubmit, 0, 1000, []string{prioVar + "many"}, 0},
		{model.PrioOfSubmit, 0, 1000, nil, 0},
		{model.PrioNicer, 0, 1000, []string{prioVar + "0"}, 1},
		{model.PrioNicer, 0, 0, []string{prioVar + "-15"}, 1},
		{model.PrioNicer, 4, 1000, []string{prioVar + "7"}, 7},
		{model.PrioNicer, 19, 1000, []string{prioVar + "7"}, 19},
	} {
		got, env := Niceness(x.mode, x.own, x.uid, slices.Clone(x.env))
		if got != x.want {
			t.Errorf("mode %d of a daemon with %d, user %d, %q: %d, want %d", x.mode, x.own, x.uid, x.env, got, x.want)
		}
		if x.mode == model.PrioOfDaemon != (len(env) == len(x.env)) && x.env != nil {
			t.Errorf("mode %d: the environment is %q", x.mode, env)
		}
	}
}
