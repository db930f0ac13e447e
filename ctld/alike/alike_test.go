package alike

import (
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// TestDivideUnknown leaves what is no array as it is.
func TestDivideUnknown(t *testing.T) {
	v := state.New().View()
	ref := model.JobRef{Job: 5, Task: model.NoTask, Tasks: model.TaskSet{{Lo: 1, Hi: 3, Step: 1}}}
	got := Divide(v, []model.JobRef{ref, {Job: 6, Task: model.NoTask}}, proto.ActHold)
	if len(got) != 2 || got[0].Tasks.Count() != 3 || got[1].Job != 6 {
		t.Errorf("%+v", got)
	}
}
