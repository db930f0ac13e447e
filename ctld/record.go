package ctld

import (
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
	"gbatch/internal/state"
)

// record.go makes accounting records: a job or step at the moment when the event was queued.

// recordOf gives the accounting record of a job at the moment when the event was queued.
func (c *Controller) recordOf(v *state.View, seq uint64, j *model.Job) *model.Record {
	cfg, sp := v.Config(), j.Spec
	r := &model.Record{Seq: seq, Cluster: cfg.Cluster, Job: j.ID, Attempt: j.Attempt, ArrayID: j.ArrayID, Task: j.Task,
		Name: sp.Name, User: sp.User, Group: sp.Group, UID: sp.UID, GID: sp.GID, Account: sp.Account, QOS: sp.QOS,
		Partition: strings.Join(sp.Partitions, ","), State: j.State, Reason: j.Reason, Submit: j.Submit, Eligible: j.Eligible,
		LimitS: sp.LimitS, ReqMemMiB: sp.MemPerNode, Priority: j.Priority, Restarts: j.Restarts, WorkDir: sp.WorkDir,
		Command: sp.Command, SubmitLine: cut(sp.Submit, proto.MaxFieldBytes), Comment: sp.Comment, AdminComment: j.Comment,
		StdOut: sp.StdOut,
		StdErr: sp.StdErr, StdIn: sp.StdIn, Constraints: sp.Features, Why: j.Why, Het: j.Het,
		NoScript: sp.Extra().Interactive || j.Follows(), Container: sp.Extra().Container.Shown()}
	if j.IsArray() {
		r.TaskText = throttled(j.Tasks.String(), j.Throttle)
	}
	var rules *model.AskRules
	if p := v.Partition(j.Partition()); p != nil {
		of := ask.RulesOf(sched.Lifted(v, sp.QOS, p), &cfg.Params)
		rules = &of
	}
	size := ask.Asked(sp, rules)
	r.ReqCPUs, r.NumNodes, r.ReqGres = int32(size.CPUs), int32(size.Nodes), size.Gres
	if size.MemMiB > 0 {
		r.ReqMemMiB = (size.MemMiB + int64(size.Nodes) - 1) / int64(size.Nodes)
	}
	r.Asked = &model.Asked{Nodes: int32(size.Nodes), MemMiB: size.MemMiB, Bill: size.Bill, Licenses: size.Licenses,
		GPUMemMiB: sp.Extra().GPUMemMiB}
	if j.State == model.Completing { // as in Slurm's accounting: it counts as running until it has ended
		r.State = model.Running
	}
	if names := sp.ReservationNames(); len(names) > 0 {
		r.Reservation = names[0]
	}
	if j.Run != nil {
		r.Reservation = j.Run.Resv
		r.Start, r.LimitS, r.Partition = j.Run.SizedAt(), j.Run.LimitS, j.Run.Partition
		r.Size = j.Run.Sizes
		if j.Run.Priority != 0 {
			r.Priority = j.Run.Priority
		}
		switch {
		case j.End != nil:
			r.SuspendMS = j.Run.SleptMS(j.End.At)
		case j.Run.Idles():
			r.SuspendMS, r.SuspendAt = j.Run.SleepMS, j.Run.SleepAt
		default:
			r.SuspendMS = j.Run.SleepMS
		}
		r.SuspendMS -= j.Run.SizedSleepMS // in the sizes before this one
		names := j.Run.Alloc.NodeNames()
		r.Nodes, r.NumNodes = hostlist.Compress(names), int32(len(names))
		cpus, mem, gres := j.Run.Alloc.Totals()
		r.AllocCPUs, r.AllocMemMiB, r.AllocGres = int32(cpus), mem, gres
		r.Asked.Billed, r.Asked.Held = j.Run.Billing(), j.Run.Licenses
		if r.ReqMemMiB <= 0 {
			r.ReqMemMiB = mem / int64(r.NumNodes)
		}
	}
	if j.Run != nil {
		r.FailedNode = j.Run.FailedNode
	}
	if j.End != nil {
		r.End, r.Exit, r.CancelUID = j.End.At, j.End.Exit, j.End.UID
	}
	return r
}

// stepRecord gives the accounting record of a step of j.
func stepRecord(cfg *model.Config, seq uint64, j *model.Job, step *model.Step) *model.Record {
	return &model.Record{Seq: seq, Cluster: cfg.Cluster, Job: j.ID, Attempt: j.Attempt, ArrayID: j.ArrayID, Task: j.Task,
		Name: j.Spec.Name,
		User: j.Spec.User, Group: j.Spec.Group, UID: j.Spec.UID, GID: j.Spec.GID, Account: j.Spec.Account, Submit: j.Submit,
		Start: step.Start,
		End:   step.End, State: step.State(), Step: step, Het: j.Het}
}

// throttled gives an array's pending tasks as Slurm shows them: "0-9%2".
func throttled(tasks string, limit int32) string {
	if limit == 0 {
		return tasks
	}
	return tasks + "%" + itoa(limit)
}
