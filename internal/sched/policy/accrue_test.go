package policy

import (
	"fmt"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// TestAccrueLimit: the wait of a job that MaxJobsAccruePU keeps from ageing does not count until another job makes
// room.
func TestAccrueLimit(t *testing.T) {
	c := newCluster(t, 4, Default())
	c.cfg.Params.HoldLimits = true
	c.apply(&state.SetConfig{Config: c.cfg, Instance: 1})
	c.apply(&state.Accounts{Edits: []model.AcctEdit{{Op: model.PutQOS,
		QOS: &model.QOS{Name: "normal", UsageFactor: model.FactorOne, MaxAccruePerUser: model.LimitOf(1)}}}})
	submit := func(uid uint32, limitS int64) model.JobID {
		return c.apply(&state.Submit{Priority: 1,
			Spec: &model.Spec{Name: "j", UID: uid, User: fmt.Sprint("u", uid), QOS: "normal", Partitions: []string{"p"},
				LimitS: limitS, Tasks: 4, CPUsPerTask: 1, MinNodes: 1, MaxNodes: 1}}).Job
	}
	first, second, long := submit(1, 600), submit(1, 600), submit(2, 36000)
	c.after(1000)
	c.wantOrder("the second of a user does not age", first, long, second)
	c.apply(&state.Stop{Targets: []model.JobRef{{Job: first, Task: model.NoTask}}, Event: model.EvCancel})
	c.refresh()
	c.wantOrder("it begins to when the first is gone", long, second)
	c.after(500)
	c.wantOrder("and is soon ahead", second, long)
}
