package ctld

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// steps.go lists, ends and signals running steps. Only the node of a job's batch script knows the job's steps and
// manages them, so the leader asks that node (see nodeask.go); the batch step comes from the facts.

// Signals that the controller itself uses: sigTerm is the default, sigKill ends remaining processes.
const (
	sigKill = 9
	sigTerm = 15
)

// stepsOf are the steps of one job that a request names; nil: all.
type stepsOf map[int32]bool

// stepJobs gives the running jobs of a request, with the steps it names of each.
func (c *Controller) stepJobs(v *state.View, sees *sight, rq *proto.StepsRequest) (map[model.JobID]stepsOf, error) {
	refs := make([]model.JobRef, 0, len(rq.Steps)+len(rq.Filter.Jobs))
	for _, r := range rq.Steps {
		refs = append(refs, r.Job)
	}
	refs = append(refs, rq.Filter.Jobs...)
	if err := checkRefs(v, refs); err != nil {
		return nil, err
	}
	out := map[model.JobID]stepsOf{}
	f := rq.Filter
	f.Jobs = nil
	runs := func(j *model.Job) bool {
		return j.Run != nil && j.State.HasResources() && sees.job(j.Spec) && picked(&f, j)
	}
	if len(refs) == 0 {
		v.Jobs(func(j *model.Job) bool {
			if runs(j) {
				out[j.ID] = nil
			}
			return true
		})
		return out, nil
	}
	known := false
	for i, ref := range refs {
		for _, j := range sees.only(resolve(v, ref)) {
			known = true
			if !runs(j) {
				continue
			}
			steps, had := out[j.ID]
			if i >= len(rq.Steps) || rq.Steps[i].Step == proto.StepAll || had && steps == nil {
				out[j.ID] = nil
				continue
			}
			if steps == nil {
				steps = stepsOf{}
				out[j.ID] = steps
			}
			steps[rq.Steps[i].Step] = true
		}
	}
	if !known && len(refs) == 1 {
		return nil, refuse(proto.CodeInvalidJob, "")
	}
	return out, nil
}

// steps lists running steps, each node's when it answers, so only one node's steps are in memory.
func (c *Controller) steps(ctx context.Context, who *caller, rq *proto.StepsRequest, send stream) error {
	v := c.machine.View()
	jobs, err := c.stepJobs(v, c.sees(v, who), rq)
	if err != nil {
		return err
	}
	perNode := map[string][]proto.Attempt{}
	for id := range jobs {
		j := v.Job(id)
		node := j.Run.Alloc.Nodes[0].Node
		perNode[node] = append(perNode[node], proto.Attempt{Job: id, Attempt: j.Attempt})
	}
	ctx, cancel := context.WithTimeout(ctx, statWait)
	defer cancel()
	type result struct {
		node string
		m    *proto.NodeAnswer
		err  error
	}
	results := make(chan result, len(perNode))
	for node, list := range perNode {
		go func() { // ends with ctx at the latest
			m, err := c.askNode(ctx, node, proto.NodeAsk{Attempts: list, Steps: true, Ended: rq.Ended})
			results <- result{node, m, err}
		}()
	}
	for range perNode {
		r := <-results
		chunk := &proto.StepsChunk{Now: c.now()}
		if r.err != nil {
			chunk.Missing = append(chunk.Missing,
				fmt.Sprintf("node %s does not answer: %v; its jobs' steps are not listed", r.node, r.err))
		} else {
			chunk.Steps = r.m.Steps
		}
		for _, key := range perNode[r.node] {
			if j := v.Job(key.Job); j.Run.Launched != 0 && !j.Spec.Extra().Interactive && !j.Follows() {
				chunk.Steps = append(chunk.Steps, batchStep(j))
			}
		}
		chunk.Steps = slices.DeleteFunc(chunk.Steps, func(s proto.RunningStep) bool {
			want, ok := jobs[s.Job]
			return !ok || want != nil && !want[s.Step.ID]
		})
		for i := range chunk.Steps {
			describeStep(v.Job(chunk.Steps[i].Job), &chunk.Steps[i])
		}
		slices.SortFunc(chunk.Steps, func(a, b proto.RunningStep) int {
			return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Step.ID, b.Step.ID))
		})
		for len(chunk.Steps) > proto.ChunkJobs {
			part := proto.StepsChunk{Now: chunk.Now, Steps: chunk.Steps[:proto.ChunkJobs]}
			if err := send(&part); err != nil {
				return err
			}
			chunk.Steps = chunk.Steps[proto.ChunkJobs:]
		}
		if err := send(chunk); err != nil {
			return err
		}
	}
	return nil
}

// peers gives the addresses at which nodes' daemons reach each other: the configured address or, if that is only the
// node's name, the address from which the node connects.
func (c *Controller) peers(_ context.Context, who *caller, rq *proto.PeersRequest) (*proto.PeersReply, error) {
	v := c.machine.View()
	if who.UID != 0 { // nodes ask for themselves
		if err := c.sees(v, who).denied("nodes"); err != nil {
			return nil, err
		}
	}
	reply := &proto.PeersReply{}
	for _, name := range rq.Nodes[:min(len(rq.Nodes), proto.MaxTargets)] {
		reply.Addrs = append(reply.Addrs, c.peerAddr(v, name))
	}
	return reply, nil
}

// peerAddr gives the address at which other nodes reach a node's daemon, "" if it is not connected.
func (c *Controller) peerAddr(v *state.View, name string) string {
	s, n := c.nodes.session(name), v.Node(name)
	if s == nil || n == nil || s.port <= 0 {
		return ""
	}
	host := n.Def.Addr
	if host == "" || host == name {
		host = hostOf(s.addr)
	}
	return net.JoinHostPort(host, strconv.Itoa(int(s.port)))
}

// batchStep gives the step of a job's batch script.
func batchStep(j *model.Job) proto.RunningStep {
	n := &j.Run.Alloc.Nodes[0]
	s := model.Step{ID: proto.StepBatch, Name: "batch", Start: j.Run.Launched, Nodes: []string{n.Node}, Tasks: 1,
		CPUs: int32(n.CPUs.Count()), MemMiB: n.MemMiB, SleptMS: j.Run.SleepMS}
	if j.Run.Idles() {
		s.SleepAt = j.Run.SleepAt
	}
	for _, g := range n.Gres {
		s.AddGres(g.Name, g.Type, int64(g.Index.Count()))
	}
	return proto.RunningStep{Job: j.ID, LimitS: model.Unlimited, Step: s, Host: n.Node}
}

// describeStep fills in fields that the node does not know.
func describeStep(j *model.Job, s *proto.RunningStep) {
	s.Het = j.Het
	s.ArrayID, s.Task, s.UID, s.User, s.Account, s.Partition = j.ArrayID, j.Task, j.Spec.UID, j.Spec.User, j.Spec.Account,
		j.Run.Partition
}

// limitSteps gives running steps of jobs another time limit: set has the step's number and the limit.
func (c *Controller) limitSteps(ctx context.Context, v *state.View, set []model.KV, reply *proto.TargetsReply,
	targets []model.JobRef, at []int) error {
	results := reply.Results
	step, limit := int64(proto.StepAll), int64(0)
	for _, kv := range set {
		var err error
		switch strings.ToLower(kv.Key) {
		case "step":
			step, err = strconv.ParseInt(kv.Value, 10, 32)
		case "timelimit":
			if limit, err = ask.ParseLimit(kv.Value); err == nil && limit <= 0 {
				err = errors.New("a step's limit is a minute at least, or UNLIMITED")
			}
		default:
			err = errors.New("of a step TimeLimit can be set")
		}
		if err != nil {
			return refuse(proto.CodeBadRequest, "%s=%s: %v", kv.Key, kv.Value, err)
		}
	}
	if limit == 0 {
		return refuse(proto.CodeBadRequest, "nothing to change: give TimeLimit=T after the step")
	}
	if err := c.begin(ctx); err != nil {
		return err
	}
	var tell tells
	for k, t := range targets {
		runs := false
		for _, j := range resolve(v, t) {
			if j.Run != nil && j.State.HasResources() {
				tell.add(at[k], j, proto.StepTell{Step: int32(step), LimitS: limit})
				runs = true
			}
		}
		if !runs {
			results[at[k]].Code, results[at[k]].Text = proto.CodeAlreadyDone, proto.Text(proto.CodeAlreadyDone)
		}
	}
	c.tellNodes(ctx, &tell, results)
	c.finish(ctx, reply)
	return nil
}
