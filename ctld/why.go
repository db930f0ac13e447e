package ctld

import (
	"context"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
)

// why explains jobs from a View: planning goes on beside it. An explanation costs a planning pass, so there is one at a
// time.
func (c *Controller) why(_ context.Context, who *proto.Caller, rq *proto.WhyRequest) (*proto.WhyReply, error) {
	c.explaining.Lock()
	defer c.explaining.Unlock()
	v := c.machine.View()
	if err := checkRefs(v, rq.Jobs); err != nil {
		return nil, err
	}
	sees := c.sees(v, who)
	now := c.now()
	policy, _ := c.policy(v, now, &c.whyRules)
	out := &proto.WhyReply{Now: now}
	seen := map[model.JobID]bool{}
	for _, ref := range rq.Jobs {
		found := sees.only(resolve(v, ref))
		if len(found) == 0 {
			return nil, refuse(proto.CodeInvalidJob, "%d", ref.Job)
		}
		for _, j := range found {
			whole := ref.Task == model.NoTask && len(ref.Tasks) == 0
			switch {
			case seen[j.ID], whole && len(found) > 1 && j.State.Finished():
				continue // of a whole array: what is still to come
			case len(out.List) >= proto.MaxWhy:
				out.Left++
				continue
			}
			seen[j.ID] = true
			out.List = append(out.List, sched.Explain(v, now, policy, j.ID))
		}
	}
	return out, nil
}
