package ctld

import (
	"context"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// het.go takes heterogeneous jobs: each component is validated like a job of its own, and all go into the log in one
// command. How they start, end and go back together is the state's matter (internal/state/het.go).

// hetHolder is the script of the components that don't run the user's: it holds their resources until they are ended.
const hetHolder = "#!/bin/sh\n# Holds the resources of a component of a heterogeneous job.\n" +
	"while :; do sleep 86400; done\n"

// submitHet is submit for a request with several components.
func (c *Controller) submitHet(ctx context.Context, v *state.View, who *caller,
	rq *proto.SubmitRequest) (*proto.SubmitReply, error) {
	cmd, specs, reply, err := c.prepareHet(v, who, rq)
	if again := taken(v, who, rq, reply, err); again != nil {
		return again, nil
	}
	if err != nil {
		return nil, err
	}
	if rq.TestOnly {
		return c.testHet(ctx, v, specs, reply)
	}
	whole := *cmd
	for _, b := range [...]*model.Blob{&cmd.Script, &cmd.Holder, &cmd.Env} {
		if v.HasBlob(b.Key) {
			b.Data = nil
		}
	}
	res, err := c.propose(ctx, cmd)
	if err == nil && res.Refusal == state.ContentMissing { // the state has dropped the content meanwhile
		cmd.Script, cmd.Holder, cmd.Env = whole.Script, whole.Holder, whole.Env
		res, err = c.propose(ctx, cmd)
	}
	if err == nil {
		err = refusedBy(v, specs[0], res)
	}
	if err != nil {
		return nil, err
	}
	reply.Job = res.Job
	return reply, nil
}

// prepareHet makes the command for components that are each valid and can run, and the beginning of the answer.
func (c *Controller) prepareHet(v *state.View, who *caller, rq *proto.SubmitRequest) (*state.SubmitHet, []*model.Spec,
	*proto.SubmitReply, error) {
	n := 1 + len(rq.Rest)
	if n > model.MaxHet {
		return nil, nil, nil, refuse(proto.CodeBadRequest, "%d components, a heterogeneous job has at most %d", n,
			model.MaxHet)
	}
	out := &state.SubmitHet{RequestID: requestKey(who.UID, rq.RequestID)}
	var specs []*model.Spec
	reply := accepted(v, 0)
	hold := model.NotHeld
	for i := range n {
		one := *rq
		one.Rest = nil
		if i > 0 {
			one.Spec, one.Script = rq.Rest[i-1], []byte(hetHolder)
		}
		if one.Spec == nil || len(one.Spec.Tasklist) > 0 {
			return nil, nil, nil, refuse(proto.CodeArray,
				"a heterogeneous job can't be an array, as in Slurm; submit several, or an array of jobs of one component")
		}
		cmd, answer, err := c.prepare(v, *who, &one)
		if err != nil {
			return nil, nil, nil, err
		}
		if reply.Notes = append(reply.Notes, answer.Notes...); i == 0 {
			out.Script, out.Env = cmd.Script, cmd.Env
		} else {
			out.Holder = cmd.Script
			forComponent(cmd.Spec)
		}
		hold = max(hold, cmd.Hold)
		out.Parts, specs = append(out.Parts, state.HetPart{Spec: cmd.Spec, Priority: cmd.Priority}), append(specs, cmd.Spec)
	}
	for i := range out.Parts {
		out.Parts[i].Hold = hold
	}
	return out, specs, reply, nil
}

// forComponent drops what is of the first component only: mail, and a signal to the script.
func forComponent(sp *model.Spec) {
	if sp.Warning != nil && sp.Warning.Batch {
		sp.Warning = nil
	}
	if sp.More != nil && sp.More.Mail != nil {
		m := *sp.More
		m.Mail = nil
		sp.More = &m
	}
}

// testHet is testOnly for each component: the job starts when the last of them could.
func (c *Controller) testHet(ctx context.Context, v *state.View, specs []*model.Spec,
	reply *proto.SubmitReply) (*proto.SubmitReply, error) {
	var last *proto.SubmitReply
	for _, sp := range specs {
		one := *reply
		r, err := c.testOnly(ctx, v, sp, &one)
		if err != nil {
			return nil, err
		}
		if last == nil || r.TestStart > last.TestStart {
			last = r
		}
	}
	return last, nil
}

// components gives for each target that is a whole heterogeneous job its components that have not ended: what is made
// of a job's own description is made for each.
func components(v *state.View, targets []model.JobRef, at []int) (out []model.JobRef, places []int) {
	for k, t := range targets {
		all := v.Components(t.Job)
		if t.Het > 0 || all == nil {
			out, places = append(out, t), append(places, at[k])
			continue
		}
		n := len(out)
		for _, j := range all {
			if !j.State.Finished() {
				out = append(out, model.JobRef{Job: t.Job, Task: model.NoTask, Het: 1 + j.Het.Offset})
				places = append(places, at[k])
			}
		}
		if len(out) == n {
			out, places = append(out, t), append(places, at[k])
		}
	}
	return out, places
}

// awaits reports whether the script of a heterogeneous job has to wait: it begins when all other components have.
func awaits(v *state.View, j *model.Job) bool {
	if !j.Leads() {
		return false
	}
	for _, o := range v.Components(j.ID)[1:] {
		if o.State == model.Configuring {
			return true
		}
	}
	return false
}

// otherParts gives what the script of a heterogeneous job is told of the other components.
func otherParts(v *state.View, j *model.Job) (out []proto.HetPart) {
	if !j.Leads() {
		return nil
	}
	for _, o := range v.Components(j.ID)[1:] {
		if o.State.HasResources() {
			out = append(out, proto.HetPart{Job: o.ID, Offset: o.Het.Offset, Spec: o.Spec, Part: o.Run.Partition,
				LimitS: o.Run.LimitS, Start: o.Run.Start, Alloc: o.Run.Alloc, Resv: o.Run.Resv})
		}
	}
	return out
}

// leaderOf gives the first component of a job's, or the job itself.
func leaderOf(v *state.View, j *model.Job) *model.Job {
	if j.Follows() {
		if first := v.Component(j.Het.ID, 0); first != nil {
			return first
		}
	}
	return j
}
