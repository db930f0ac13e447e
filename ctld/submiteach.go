package ctld

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
)

// eachBytes closes a log entry of a SubmitEachRequest: jobs with thousands of named nodes are long.
const eachBytes = 4 << 20

// submitEach is submit for many jobs that differ only in their arguments: it checks the common part once, and the jobs
// go into the log together. If the state refuses a job because of a limit on the number of jobs, it also refuses the
// following jobs, since no job ends in between.
func (c *Controller) submitEach(ctx context.Context, who *caller,
	rq *proto.SubmitEachRequest) (*proto.SubmitEachReply, error) {
	if rq.Submit == nil || len(rq.Args) == 0 || len(rq.Args) > proto.MaxEachJobs || rq.Submit.TestOnly ||
		len(rq.Submit.Rest) > 0 {
		return nil, refuse(proto.CodeBadRequest, "the submission is malformed: no description, a test, or not 1 to %d jobs",
			proto.MaxEachJobs)
	}
	v := c.machine.View()
	reply := &proto.SubmitEachReply{Cluster: v.Config().Cluster}
	for n := range len(rq.Args) { // those that were taken when the request came before
		id := v.Request(stepKey(requestKey(who.UID, rq.Submit.RequestID), n))
		if id == 0 {
			break
		}
		reply.Jobs = append(reply.Jobs, id)
	}
	submitted := rq.Submit
	var said []string
	var err error
	if len(reply.Jobs) < len(rq.Args) {
		who, submitted, said, err = c.hookSubmit(ctx, v, who, rq.Submit)
	}
	var cmd *state.Submit
	var answer *proto.SubmitReply
	if err == nil {
		cmd, answer, err = c.prepare(v, *who, submitted)
	}
	var why *rpc.Error
	switch {
	case err == nil:
		reply.Notes = append(said, answer.Notes...)
	case len(reply.Jobs) == len(rq.Args):
		return reply, nil
	case len(reply.Jobs) > 0 && errors.As(err, &why):
		reply.Code, reply.Refused = why.Code, why.Text
		return reply, nil
	default:
		return nil, err
	}
	common, key, content := cmd.Spec.Args, cmd.RequestID, *cmd
	withoutContent(v, cmd)
	whole := false // the content has been sent again
	for len(reply.Jobs) < len(rq.Args) {
		var entry [][]byte
		bytes := 0
		for i := len(reply.Jobs); i < len(rq.Args) && bytes < eachBytes; i++ {
			if len(common)+len(rq.Args[i]) > maxArgs {
				if len(entry) > 0 {
					break // the jobs before it go first
				}
				reply.Code, reply.Refused = proto.CodeBadRequest,
					fmt.Sprintf("%d arguments, the limit is %d", len(common)+len(rq.Args[i]), maxArgs)
				return reply, nil
			}
			cmd.Spec.Args = append(slices.Clip(common), rq.Args[i]...)
			cmd.RequestID = stepKey(key, i)
			data, err := c.encode(cmd)
			if err != nil {
				return nil, err
			}
			entry, bytes = append(entry, data), bytes+len(data)
			cmd.Script.Data, cmd.Env.Data = nil, nil // the following jobs find it in the state
		}
		results, err := c.proposeAll(ctx, entry)
		if err != nil {
			return nil, err
		}
		for _, res := range results {
			if res.Refusal == state.ContentMissing && !whole { // the state has dropped the content meanwhile
				whole = true
				cmd.Script, cmd.Env = content.Script, content.Env
				break
			}
			var why *rpc.Error
			if errors.As(refusedBy(v, cmd.Spec, res), &why) {
				reply.Code, reply.Refused = why.Code, why.Text
				return reply, nil
			}
			reply.Jobs = append(reply.Jobs, res.Job)
		}
	}
	return reply, nil
}
