package request

import (
	"fmt"
	"testing"

	"gbatch/internal/cli/clitest"
	"gbatch/internal/cli/env"
	"gbatch/internal/model"
)

func TestSubmitOptions(t *testing.T) {
	clitest.CheckOptions(t, "gsubmit", (&Submission{}).Options((&env.Env{}).ReadDate))
}

// TestGresAgain: of one option for GPUs the last value counts; others stay.
func TestGresAgain(t *testing.T) {
	var got []model.GresReq
	gres, perTask := Gres(&got, nil, "", model.PerNode), Gres(&got, nil, model.GPUName, model.PerTask)
	for _, step := range []struct {
		set   func(string) error
		value string
		want  string
	}{
		{gres, "gpu:1,shard:2", "[gpu 1 shard 2]"}, {perTask, "3", "[gpu 1 shard 2 gpu 3]"}, {gres, "gpu:4", "[gpu 3 gpu 4]"},
		{perTask, "1", "[gpu 4 gpu 1]"}, {gres, "none", "[gpu 1]"}, {gres, "gpu:2", "[gpu 1 gpu 2]"},
	} {
		if err := step.set(step.value); err != nil {
			t.Fatal(err)
		}
		var text []string
		for _, g := range got {
			text = append(text, fmt.Sprint(g.Name, " ", g.Count))
		}
		if fmt.Sprint(text) != step.want {
			t.Errorf("after %s: %v, want %s", step.value, text, step.want)
		}
	}
}
