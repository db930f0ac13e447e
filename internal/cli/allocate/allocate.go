package allocate

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/request"
	"gbatch/internal/client"
	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// allocate.go gets resources for a command that runs outside of a job: galloc's, and grun's own step. A job whose
// script only waits holds the resources; they are released with an exit code.

// holder is that script.
const holder = "#!/bin/sh\n# Holds the resources of galloc and grun until they give them back.\n" +
	"while :; do sleep 86400; done\n"

const (
	askFirst = 50 * time.Millisecond // between two checks whether the job has its resources, doubling to askSlow
	askSlow  = 2 * time.Second
	sayQueue = 300 * time.Millisecond // a job that starts sooner was not queued
)

// Allocation is resources asked for.
type Allocation struct {
	*env.Env
	Submission *request.Submission
	Rest       []*request.Submission // the other components of a heterogeneous job
	Quiet      bool
	Immediate  int64  // seconds
	Tell       string // the last message, with the job's number
	Keep       bool   // the job outlives this process

	Components []*model.Job // of a heterogeneous job, with their resources
	ShellStep  string       // options of the step in which the cluster wants a shell; "": it runs here

	attendance attendance
	heard      *hearing // nil before the job is there
}

func (a *Allocation) say(format string, args ...any) {
	if !a.Quiet {
		fmt.Fprintf(a.Stderr, "%s: %s\n", a.Program, fmt.Sprintf(format, args...))
	}
}

// Get submits and waits until the job has its resources. Without a job, rc is the exit code; a signal cancels. With
// --test-only it says when they could be had.
func (a *Allocation) Get(signals <-chan os.Signal) (job *model.Job, rc int) {
	fail := func(err error) (*model.Job, int) {
		what := "Job submit/allocate failed"
		if a.Submission.TestOnly {
			fmt.Fprintf(a.Stderr, "allocation failure: %s\n", env.Text(err))
			return nil, 1
		}
		if a.Tell == "" { // as srun says it
			what = "Unable to allocate resources"
		}
		a.Errorf("%s: %s", what, env.Text(err))
		return nil, 1
	}
	all := append([]*request.Submission{a.Submission}, a.Rest...)
	for _, s := range all {
		s.Export = "NONE"
	}
	rq, err := request.Whole(a.Env, all, []byte(holder))
	if err != nil {
		a.Errorf("%s", err.Error())
		return nil, 1
	}
	a.remark(all)
	if !a.holds(rq, all) {
		return nil, 1
	}
	c, err := a.Connect()
	if err != nil {
		return fail(err)
	}
	defer c.Close()
	if err := a.CheckClusters(c, a.Submission.Clusters); err != nil {
		return fail(err)
	}
	if !a.Keep && !rq.TestOnly {
		a.attend(rq.RequestID)
		defer func() {
			if job == nil {
				a.attendance.leave()
			}
		}()
	}
	var reply proto.SubmitReply
	if err := env.Submit(c, rq, &reply); err != nil {
		a.Preamble(err, rq.Spec.Partitions)
		return fail(err)
	}
	a.accepted(&reply)
	if rq.TestOnly {
		a.say("%s", request.ToStart(&reply))
		return nil, 0
	}
	a.hear(reply.Job)
	begin, pace, queued := time.Now(), askFirst, false
	for {
		job, err := oneJob(c, reply.Job)
		if err == nil && job != nil && len(a.Rest) > 0 && !queued {
			queued = true // Slurm's never begin at once, and tools wait for the words
			a.sayPending(job)
		}
		switch {
		case err != nil:
			return fail(err)
		case job == nil || job.State.Finished():
			a.Errorf("Job allocation %d has been revoked%s", reply.Job, whyRevoked(job))
			return nil, 1
		case job.State == model.Running && job.Run.Launched != 0:
			if queued {
				a.say("job %d has been allocated resources", reply.Job)
			}
			if a.Tell != "" {
				a.say(a.Tell, reply.Job)
			}
			if len(a.Rest) > 0 {
				if a.Components, err = Components(c, reply.Job); err != nil {
					return fail(err)
				}
			}
			a.begins(reply.Job)
			return job, 0
		}
		if job.State == model.Pending && !queued && time.Since(begin) > sayQueue {
			queued = true
			a.sayPending(job)
		}
		if a.Immediate > 0 && time.Since(begin) > time.Duration(a.Immediate)*time.Second {
			a.cancel(c, reply.Job)
			a.Errorf("Unable to allocate resources: Requested nodes are busy")
			return nil, a.TooLate()
		}
		select {
		case <-signals:
			a.cancel(c, reply.Job)
			a.say("Job allocation %d has been revoked.", reply.Job)
			return nil, 1
		case <-time.After(pace):
			pace = min(2*pace, askSlow)
		}
	}
}

// begins goes on with a job that has its resources.
func (a *Allocation) begins(id model.JobID) {
	go a.present(id)
	a.heard.quiet.Store(a.Tell == "") // grun's step hears what is said
}

// accepted takes the answer to the submission.
func (a *Allocation) accepted(reply *proto.SubmitReply) {
	for _, n := range reply.Notes {
		a.say("%s", n)
	}
	a.ShellStep = reply.Shell
}

// remark says what has no effect, and what was changed.
func (a *Allocation) remark(all []*request.Submission) {
	for _, text := range a.Submission.Remarks {
		a.say("note: %s", text)
	}
	for _, s := range all {
		for _, text := range s.Warnings {
			a.say("warning: %s", text)
		}
	}
}

// holds makes each component one that only holds its resources; false: one of them can't.
func (a *Allocation) holds(rq *proto.SubmitRequest, all []*request.Submission) bool {
	for i, s := range all {
		sp := rq.Spec
		if i > 0 {
			sp = rq.Rest[i-1]
		}
		if sp.More == nil {
			sp.More = &s.More
		}
		sp.More.Interactive, sp.More.Attended = true, !a.Keep
		if sp.Warning != nil && sp.Warning.Batch {
			a.Errorf("--signal=B: is for batch scripts; here the signal goes to the steps, without B:")
			return false
		}
		if el := sp.Elastic(); el != nil && el.Batch {
			if s.Elastic.HasSignal {
				a.Errorf("--elastic-signal=B: is for batch scripts; here the signal goes to the steps, without B:")
				return false
			}
			el.Batch = false
		}
		sp.StdOut, sp.Requeue, sp.NoRequeue = os.DevNull, false, true
	}
	return true
}

// whyRevoked says why an allocation ended, as far as its job's record does.
func whyRevoked(j *model.Job) string {
	if j == nil {
		return ""
	}
	if text := j.EndText(); text != "" {
		return ": " + text
	}
	if text := j.StopText(); text != "" {
		return ": " + text
	}
	return ""
}

// WhyRevoked asks why an allocation ended.
func (a *Allocation) WhyRevoked(id model.JobID) string {
	c, err := a.Connect()
	if err != nil {
		return "" // the reason is a courtesy: that it was revoked is said anyway
	}
	defer c.Close()
	job, err := oneJob(c, id)
	if err != nil {
		return ""
	}
	return whyRevoked(job)
}

// oneJob asks for a job; nil if the controllers have forgotten it.
func oneJob(c *client.Client, id model.JobID) (found *model.Job, err error) {
	rq := &proto.JobsRequest{Filter: proto.JobFilter{Jobs: []model.JobRef{{Job: id, Task: model.NoTask}}}}
	err = c.Stream(proto.KindJobs, rq, func(body []byte) error {
		var chunk proto.JobsChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		for _, j := range chunk.Jobs {
			if j.ID == id {
				found = j
			}
		}
		return nil
	})
	return found, err
}

// Components asks for the components of a heterogeneous job that have their resources, in order.
func Components(c *client.Client, id model.JobID) (all []*model.Job, err error) {
	rq := &proto.JobsRequest{Filter: proto.JobFilter{Jobs: []model.JobRef{{Job: id, Task: model.NoTask}}}}
	err = c.Stream(proto.KindJobs, rq, func(body []byte) error {
		var chunk proto.JobsChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		for _, j := range chunk.Jobs {
			if j.Het != nil && j.State.HasResources() {
				all = append(all, j)
			}
		}
		return nil
	})
	return all, err
}

func (a *Allocation) cancel(c *client.Client, id model.JobID) {
	rq := &proto.CancelRequest{Targets: []model.JobRef{{Job: id, Task: model.NoTask}}}
	if err := c.Call(rq.Kind(), rq, new(proto.TargetsReply)); err != nil {
		a.Errorf("job %d could not be cancelled: %s; use gcancel %[1]d", id, env.Text(err))
	}
}

// Release releases the resources; rc becomes the job's exit code.
func (a *Allocation) Release(id model.JobID, rc int) {
	if a.Tell != "" {
		a.say("Relinquishing job allocation %d", id)
	}
	c, err := a.Connect()
	if err != nil {
		a.Errorf("job %d could not be given back: %s; use gcancel %[1]d", id, env.Text(err))
		return
	}
	defer c.Close()
	rq := &proto.CancelRequest{Targets: []model.JobRef{{Job: id, Task: model.NoTask}}, Release: true,
		Code: int32(rc)}
	var reply proto.TargetsReply
	if err := c.Call(rq.Kind(), rq, &reply); err != nil {
		a.Errorf("job %d could not be given back: %s; this host's daemon goes on trying", id, env.Text(err))
		return
	}
	a.attendance.leave()
}

// Environment gives the job's variables, as its batch script would have them, to a command on this host.
func (a *Allocation) Environment(job *model.Job) []string {
	spec, run := *job.Spec, job.Run
	spec.WorkDir, spec.UID, spec.GID = a.Dir, uint32(os.Getuid()), uint32(os.Getgid())
	if host, err := os.Hostname(); err == nil {
		spec.Host = host
	}
	cluster, err := a.Cluster()
	if err != nil {
		cluster = "" // the variable is left out
	}
	var others []proto.HetPart
	for _, o := range a.Components {
		if o.ID != job.ID {
			others = append(others, proto.HetPart{Job: o.ID, Offset: o.Het.Offset, Spec: o.Spec, Part: o.Run.Partition,
				LimitS: o.Run.LimitS, Start: o.Run.Start, Alloc: o.Run.Alloc, Resv: o.Run.Resv})
		}
	}
	return jobenv.Allocation(&proto.Launch{Het: job.Het, Others: others, Job: job.ID, ArrayID: job.ArrayID,
		Task: job.Task, Spec: &spec, Part: run.Partition, Alloc: run.Alloc,
		Resv: run.Resv, Start: run.Start, LimitS: run.LimitS, Restarts: job.Restarts}, cluster)
}

// Inherited gives what a command in the allocation has of its user's variables: not those that describe another job or
// step.
func Inherited(environ []string, inStep bool, job *model.Job) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return jobenv.OfOther(name, inStep, job.Spec)
	})
}

// OfComponents gives those of a heterogeneous job's variables that describe its components; job is the first one.
func (a *Allocation) OfComponents(job *model.Job) []string {
	return slices.DeleteFunc(a.Environment(job), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return !jobenv.IsHet(name)
	})
}

// Counts writes numbers of tasks on nodes as SLURM_TASKS_PER_NODE has them: 4(x2),2.
func Counts(tasks []int) string { return jobenv.Counts(tasks) }

// CPUsPerNode counts an allocation's CPUs on its nodes: 4(x2),2.
func CPUsPerNode(a *model.Alloc) string {
	return jobenv.PerNode(a, func(n *model.NodeAlloc) int { return n.CPUs.Count() })
}

// sayPending says that a job waits and, where it is more than its turn, why.
func (a *Allocation) sayPending(job *model.Job) {
	if a.Tell != "" {
		a.say("Pending job allocation %d", job.ID)
	}
	switch job.Reason {
	case model.ReasonPartitionDown:
		a.say("Partition in DOWN state")
	case model.ReasonPartitionInactive:
		a.say("Requested partition configuration not available now")
	case model.ReasonReqNodeNotAvail:
		a.say("Required node not available (down, drained or reserved)")
	}
	a.say("job %d queued and waiting for resources", job.ID)
}
