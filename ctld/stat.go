package ctld

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gbatch/ctld/samples"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
)

// stat.go answers requests for the usage of running jobs. Usage is neither replicated nor sent regularly, so the leader
// asks the jobs' nodes, waits a little, and says which node did not answer.

const (
	statWait = 5 * time.Second // for all nodes together
	tailWait = 3 * time.Second // for a job's output: its file system may hang
)

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
			s.Pids = append(s.Pids, proto.NodePids{Node: r.node, Pids: of.Pids, Tasks: of.Tasks})
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

const (
	// looksPerSample is how often the leader looks for one sample, which is the mean.
	looksPerSample = 3
	// lateLook is how long after a whole minute it looks, so that small steps of the clock do not make it look twice.
	lateLook = 50 * time.Millisecond
	// sampleTimeout bounds sending a part of a sample to gdbd.
	sampleTimeout = 20 * time.Second
	samplesRetry  = 5 * time.Second
)

// takeSamples makes the history's samples and sends them to each gdbd, until ctx ends. Nothing else waits for it.
func (c *Controller) takeSamples(ctx context.Context) {
	if len(c.dbds) == 0 {
		return
	}
	every := cmp.Or(c.opts.SampleEvery, proto.HistoryFineS*time.Second)
	var each sync.WaitGroup
	defer each.Wait()
	var queues []*samples.Queue
	for _, d := range c.dbds {
		q := samples.NewQueue()
		queues = append(queues, q)
		each.Go(func() { c.sendSamples(ctx, d, q) })
	}
	var g samples.Gatherer
	for {
		now := c.now()
		step := every / looksPerSample
		wait := step - time.Duration(int64(now)%max(1, step.Milliseconds()))*time.Millisecond + lateLook
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		g.Look(c.machine.View(), c.lastBeat)
		if int64(c.now())%max(1, every.Milliseconds()) >= step.Milliseconds() {
			continue
		}
		parts := g.Take(c.now())
		for _, q := range queues {
			q.Add(parts)
		}
	}
}

// lastBeat is what a node said last, for samples.
func (c *Controller) lastBeat(node string) *samples.Beat {
	s := c.nodes.session(node)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &samples.Beat{LoadMilli: s.beat.LoadMilli, FreeMemMiB: s.beat.FreeMemMiB, Readings: s.beat.Readings,
		Uses: s.uses}
}

// sendSamples sends what is in a queue to one gdbd, over the connection of questions: records have their own.
func (c *Controller) sendSamples(ctx context.Context, d *dbd, q *samples.Queue) {
	failed := false
	for ctx.Err() == nil {
		minute := q.First()
		if minute == nil {
			select {
			case <-q.Some():
			case <-ctx.Done():
			}
			continue
		}
		err := c.sendMinute(ctx, d, minute)
		var said *rpc.Error
		if err != nil && !errors.As(err, &said) && ctx.Err() == nil { // it may have it, and takes it again
			if !failed {
				c.log.Info("samples for the history wait for gdbd", "addr", d.addr, "dropped", q.Dropped(), "err", err)
			}
			failed = true
			pause(ctx, samplesRetry)
			continue
		}
		if failed = err != nil; failed {
			c.log.Debug("gdbd does not take a sample for the history", "addr", d.addr, "err", err)
		}
		q.Done(minute)
	}
}

func (c *Controller) sendMinute(ctx context.Context, d *dbd, parts []*proto.Samples) error {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	for _, p := range parts {
		body, err := proto.Encode(p)
		if err != nil {
			return rpc.Errorf(proto.CodeInternal, "%v", err)
		}
		m, err := d.link.to(ctx, d.addr, func() (*rpc.Mux, error) { return c.dialDbd(context.Background(), d) })
		if err != nil {
			return err
		}
		if _, err := m.Call(ctx, proto.KindSamples, body); err != nil {
			return err
		}
	}
	return nil
}

// daemon asks a node's daemon what it is. Steps of jobs that the caller may not see are left out.
func (c *Controller) daemon(ctx context.Context, who *caller, rq *proto.DaemonRequest) (*proto.DaemonReply, error) {
	v := c.machine.View()
	sees := c.sees(v, who)
	if err := sees.denied("nodes"); err != nil {
		return nil, err
	}
	if v.Node(rq.Node) == nil {
		return nil, refuse(proto.CodeInvalidNode, "node %s is not defined", rq.Node)
	}
	m, err := c.askNode(ctx, rq.Node, proto.NodeAsk{About: true})
	switch {
	case err != nil:
		return nil, refuse(proto.CodeNodeNotAvail, "node %s: %v", rq.Node, err)
	case m.About == nil:
		return nil, refuse(proto.CodeNodeNotAvail, "node %s: its gnoded is older than the controllers and can't say it",
			rq.Node)
	}
	m.About.Steps = slices.DeleteFunc(m.About.Steps, func(s proto.StepHere) bool {
		j := v.Job(s.Job)
		return j == nil || !sees.job(j.Spec)
	})
	return &proto.DaemonReply{About: *m.About}, nil
}

// tail reads the end of a job's output on the job's first node, as the job's user. Steps of galloc and grun write to
// their command's terminal, so such jobs have none.
func (c *Controller) tail(ctx context.Context, who *caller, rq *proto.TailRequest) (*proto.TailReply, error) {
	v := c.machine.View()
	j := v.Job(rq.Job)
	switch {
	case j == nil || !c.sees(v, who).job(j.Spec):
		return nil, refuse(proto.CodeInvalidJob, "%d", rq.Job)
	case !c.may(proto.KindTail, who, j):
		return nil, refuse(proto.CodeAccess, "job %d is not yours", rq.Job)
	case j.Spec.Extra().Interactive:
		return nil, refuse(proto.CodeBadRequest, "job %d writes to its command's terminal", rq.Job)
	case j.Run == nil || j.Run.Alloc == nil || len(j.Run.Alloc.Nodes) == 0:
		return nil, refuse(proto.CodeBadRequest, "job %d has not started, so it has no output yet", rq.Job)
	}
	out := &proto.TailReply{Node: j.Run.Alloc.Nodes[0].Node}
	file, errFile := j.OutputFiles()
	if out.File = file; rq.Err {
		out.File = errFile
	}
	if v.Node(out.Node) == nil {
		return nil, refuse(proto.CodeInvalidNode, "node %s, which wrote it, is not in the configuration any more", out.Node)
	}
	ctx, cancel := context.WithTimeout(ctx, tailWait)
	defer cancel()
	m, err := c.askNode(ctx, out.Node, proto.NodeAsk{Tail: &proto.TailAsk{File: out.File, UID: j.Spec.UID, GID: j.Spec.GID,
		Groups: j.Spec.Groups}})
	switch {
	case err != nil:
		return nil, refuse(proto.CodeNodeNotAvail, "node %s: %v", out.Node, err)
	case m.Tail == nil:
		return nil, refuse(proto.CodeNodeNotAvail, "node %s: its gnoded is older than the controllers and can't read it",
			out.Node)
	}
	out.End = *m.Tail
	return out, nil
}
