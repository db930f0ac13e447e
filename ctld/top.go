package ctld

import (
	"context"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// top puts a pending job ahead of all jobs of the same user, account, QOS and single partition, with nice values as
// Slurm documents it, in one log entry under key. The other jobs together lose what the job gains, so that the user as
// a whole gains nothing.
func (c *Controller) top(ctx context.Context, key string, who *caller, t state.Target) (proto.Code, string,
	error) {
	v := c.machine.View()
	found := resolve(v, refTo(t))
	if len(found) == 0 {
		return proto.CodeInvalidJob, proto.Text(proto.CodeInvalidJob), nil
	}
	j := leaderOf(v, found[0])
	switch {
	case !c.operator(who) && !v.Config().Params.UserTop:
		return proto.CodeAccess,
			proto.Text(proto.CodeAccess) +
				": top is for operators (SchedulerParameters=enable_user_top lets users put their own jobs first)", nil
	case j.State != model.Pending:
		return proto.CodeNotPending, proto.Text(proto.CodeNotPending), nil
	case j.Hold != model.NotHeld:
		return proto.CodeBadRequest, "the job is held: release it first", nil
	case len(j.Spec.Partitions) != 1:
		return proto.CodeBadRequest, "the job waits for several partitions: top orders the queue of one; set one with " +
			"gcontrol update JobId=N Partition=P", nil
	case v.Config().Params.Priority.Default():
		return proto.CodeBadRequest, "top moves jobs by nice values, which count in multifactor priorities: set " +
				"PriorityType and weights in gbatch.conf, or give the job a priority by hand: gcontrol update JobId=N Priority=P",
			nil
	case j.Direct:
		return proto.CodeBadRequest,
			"the job's priority was set by hand, so nice values don't move it: use gcontrol update JobId=N Priority=P", nil
	}
	order := c.prio.order(v, c.now())
	mine := int64(order.Of(v, j))
	var others []*model.Job
	best := mine
	v.Ready(j.Spec.Partitions[0], func(o *model.Job) bool {
		if o.ID != j.ID && !o.Direct && o.Spec.UID == j.Spec.UID && o.Spec.Account == j.Spec.Account &&
			o.Spec.QOS == j.Spec.QOS && slices.Equal(o.Spec.Partitions, j.Spec.Partitions) {
			others = append(others, o)
			best = max(best, int64(order.Of(v, o)))
		}
		return len(others) < maxTopPeers
	})
	if len(others) == 0 {
		return 0, "", nil // it is the first already
	}
	n := int64(len(others))
	gain := ((best-mine+1)*n + n) / (n + 1) // together with the loss of each other job, enough to pass the best one
	edits := []state.Body{renice(j, -gain)}
	for _, o := range others {
		edits = append(edits, renice(o, (gain+n-1)/n))
	}
	_, err := c.changes(ctx, key, &proto.Empty{}, nil, edits)
	return 0, "", err
}

// maxTopPeers bounds the jobs that one top changes.
const maxTopPeers = 1000

// renice gives the command that changes a pending job's nice value.
func renice(j *model.Job, by int64) *state.Edit {
	sp := *j.Spec
	sp.Nice = int32(min(max(int64(sp.Nice)+by, -2147483645), 2147483645))
	return &state.Edit{Targets: []state.Target{{Job: j.ID, Task: model.NoTask}}, Spec: &sp,
		Set: []state.Field{state.SetSpec, state.SetPriority}, Priority: priorityOf(&sp)}
}
