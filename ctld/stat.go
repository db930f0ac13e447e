package ctld

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// stat.go answers requests for the usage of running jobs. Usage is neither replicated nor sent regularly, so the leader
// asks the jobs' nodes, waits a little, and says which node did not answer.

const statWait = 5 * time.Second // for all nodes together

// statJobs gives the running jobs of a request, and refuses other users' jobs.
func (c *Controller) statJobs(v *state.View, who *caller,
	rq *proto.StatRequest) (map[model.JobID]*model.Job, error) {
	if len(rq.Jobs) > proto.MaxStatJobs {
		return nil, refuse(proto.CodeBadRequest, "%d jobs at once, the limit is %d", len(rq.Jobs), proto.MaxStatJobs)
	}
	if err := checkRefs(v, rq.Jobs); err != nil {
		return nil, err
	}
	jobs := map[model.JobID]*model.Job{}
	known := 0
	sees := c.sees(v, who)
	for _, ref := range rq.Jobs {
		for _, j := range resolve(v, ref) {
			if !sees.job(j.Spec) {
				continue // as if it were not there
			}
			known++
			switch {
			case !c.may(proto.KindStat, who, j):
				return nil, refuse(proto.CodeAccess, "job %d is not yours", j.ID)
			case j.Run == nil || !j.State.HasResources():
			case len(jobs) >= proto.MaxStatJobs:
				return nil, refuse(proto.CodeBadRequest, "more than %d running jobs; name fewer", proto.MaxStatJobs)
			default:
				jobs[j.ID] = j
			}
		}
	}
	if known == 0 && len(rq.Jobs) == 1 {
		return nil, refuse(proto.CodeInvalidJob, "")
	}
	return jobs, nil
}

// stat asks the nodes of running jobs.
func (c *Controller) stat(ctx context.Context, who *caller, rq *proto.StatRequest) (*proto.StatReply, error) {
	jobs, err := c.statJobs(c.machine.View(), who, rq)
	if err != nil {
		return nil, err
	}
	perNode := map[string][]proto.Attempt{}
	for _, j := range jobs {
		for i := range j.Run.Alloc.Nodes {
			name := j.Run.Alloc.Nodes[i].Node
			perNode[name] = append(perNode[name], proto.Attempt{Job: j.ID, Attempt: j.Attempt})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, statWait)
	defer cancel()
	type result struct {
		node string
		list []proto.StatOf
		err  error
	}
	results := make(chan result, len(perNode))
	for node, list := range perNode {
		go func() { // ends with ctx at the latest
			got, err := c.askNode(ctx, node, proto.NodeAsk{Attempts: list})
			if err != nil {
				got = &proto.NodeAnswer{}
			}
			results <- result{node, got.List, err}
		}()
	}
	reply := &proto.StatReply{Now: c.now()}
	type stepKey struct {
		job  model.JobID
		step int32
	}
	steps := map[stepKey]*proto.StepStat{}
	nodes := map[stepKey][]string{}
	for range perNode {
		r := <-results
		if r.err != nil {
			reply.Missing = append(reply.Missing, fmt.Sprintf("node %s does not answer: %v", r.node, r.err))
			continue
		}
		for i := range r.list {
			of := &r.list[i]
			j := jobs[of.Job]
			if j == nil || of.Use == nil || j.Attempt != of.Attempt {
				continue
			}
			key := stepKey{of.Job, of.Step}
			s := steps[key]
			if s == nil {
				s = &proto.StepStat{Job: of.Job, ArrayID: j.ArrayID, Task: j.Task, Step: of.Step, Use: &model.Usage{}}
				steps[key] = s
			}
			s.Use.Add(&model.Usage{Nodes: []model.NodeUsage{*of.Use}})
			s.Pids = append(s.Pids, proto.NodePids{Node: r.node, Pids: of.Pids})
			nodes[key] = append(nodes[key], r.node)
		}
	}
	for key, s := range steps {
		s.Nodes = hostlist.Compress(nodes[key])
		slices.SortFunc(s.Pids, func(a, b proto.NodePids) int { return cmp.Compare(a.Node, b.Node) })
		reply.Steps = append(reply.Steps, *s)
	}
	slices.SortFunc(reply.Steps, func(a, b proto.StepStat) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Step, b.Step))
	})
	slices.Sort(reply.Missing)
	return reply, nil
}
