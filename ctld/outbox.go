package ctld

import (
	"context"
	"errors"
	"strings"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/state"
)

// ship brings accounting records to gdbd in the order of the outbox, and trims what gdbd has acknowledged. gdbd
// ignores what it has already, so a batch may be sent again after any failure.
func (c *Controller) ship(ctx context.Context) {
	if c.opts.DbdAddr == "" {
		c.dropRecords(ctx)
		return
	}
	retry := outboxRetryMin
	for ctx.Err() == nil {
		err := c.shipOn(ctx)
		if ctx.Err() != nil {
			return
		}
		if c.dbdUp.Swap(false) || retry == outboxRetryMin {
			c.log.Warn("accounting daemon does not take records; they wait", "addr", c.opts.DbdAddr, "waiting", c.machine.View().OutboxLen(), "err", err)
		}
		pause(ctx, retry)
		retry = min(2*retry, outboxRetryMax)
		if c.dbdUp.Load() {
			retry = outboxRetryMin
		}
	}
}

// dropRecords keeps the outbox empty in a cluster without an accounting daemon.
func (c *Controller) dropRecords(ctx context.Context) {
	for ctx.Err() == nil {
		changed := c.machine.Changed()
		last := uint64(0)
		c.machine.View().Outbox(0, func(seq uint64, _ *model.Job, _ *model.Step) bool {
			last = seq
			return true
		})
		if last > 0 {
			if _, err := c.propose(ctx, &state.Trim{Seq: last}); err != nil {
				pause(ctx, time.Second)
				continue
			}
		}
		select {
		case <-changed:
			pause(ctx, time.Second)
		case <-ctx.Done():
		}
	}
}

// shipOn ships over one connection until it fails.
func (c *Controller) shipOn(ctx context.Context) error {
	m, err := c.dialDbd(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }() // its error was returned by the call that failed
	sent := uint64(0)
	for {
		changed := c.machine.Changed()
		v := c.machine.View()
		put := &proto.Put{Cluster: v.Config().Cluster, Instance: v.Instance()}
		v.Outbox(sent, func(seq uint64, j *model.Job, step *model.Step) bool {
			if step != nil {
				put.Records = append(put.Records, stepRecord(v.Config(), seq, j, step))
			} else {
				put.Records = append(put.Records, c.recordOf(v.Config(), seq, j))
			}
			return len(put.Records) < outboxBatch
		})
		if len(put.Records) == 0 {
			c.setDbdUp()
			select {
			case <-changed:
				pause(ctx, outboxPace)
			case <-m.Done():
				return m.Err()
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		body, err := proto.Encode(put)
		if err != nil {
			return err
		}
		f, err := m.Call(ctx, proto.KindPut, body)
		if err != nil {
			return err
		}
		var reply proto.PutReply
		if err := proto.Decode(f.Body, &reply); err != nil {
			return err
		}
		last := put.Records[len(put.Records)-1].Seq
		if reply.Seq < last {
			return errors.New("the accounting daemon acknowledged less than it was sent")
		}
		c.setDbdUp()
		c.counts.shipped.Add(int64(len(put.Records)))
		sent = last
		if _, err := c.propose(ctx, &state.Trim{Seq: last}); err != nil {
			return err
		}
	}
}

func (c *Controller) setDbdUp() {
	if !c.dbdUp.Swap(true) {
		c.log.Info("accounting daemon takes records", "addr", c.opts.DbdAddr)
	}
}

func (c *Controller) dialDbd(ctx context.Context) (*rpc.Mux, error) {
	return c.dialTLS(ctx, c.opts.DbdAddr, pki.RoleDBD)
}

// recordOf gives the accounting record of a job as it was when the event was queued.
func (c *Controller) recordOf(cfg *model.Config, seq uint64, j *model.Job) *model.Record {
	sp := j.Spec
	r := &model.Record{Seq: seq, Cluster: cfg.Cluster, Job: j.ID, Attempt: j.Attempt, ArrayID: j.ArrayID, Task: j.Task,
		Name: sp.Name, User: sp.User, Group: sp.Group, UID: sp.UID, GID: sp.GID, Account: sp.Account, QOS: sp.QOS,
		Partition: strings.Join(sp.Partitions, ","), State: j.State, Reason: j.Reason, Submit: j.Submit, Eligible: j.Eligible,
		LimitS: sp.LimitS, ReqMemMiB: sp.MemPerNode, Priority: j.Priority, Restarts: j.Restarts, WorkDir: sp.WorkDir,
		Command: sp.Command, SubmitLine: sp.Submit, Comment: sp.Comment, AdminComment: j.Comment, StdOut: sp.StdOut,
		StdErr: sp.StdErr, StdIn: sp.StdIn, Constraints: sp.Features, Why: j.Why, NoScript: sp.Extra().Interactive}
	if j.IsArray() {
		r.TaskText = throttled(j.Tasks.String(), j.Throttle)
	}
	tasks := max(1, int64(sp.Tasks), int64(sp.MinNodes))
	r.ReqCPUs = int32(tasks * max(1, int64(sp.CPUsPerTask)))
	r.NumNodes = max(1, sp.MinNodes)
	if sp.MemPerCPU > 0 {
		r.ReqMemMiB = sp.MemPerCPU * int64(r.ReqCPUs) / int64(r.NumNodes)
	}
	for _, g := range sp.Gres {
		n := int64(g.Count)
		switch g.Per {
		case model.PerNode:
			n *= int64(r.NumNodes)
		case model.PerTask:
			n *= tasks
		}
		r.ReqGres = append(r.ReqGres, model.GresCount{Name: g.Name, Type: g.Type, Count: n})
	}
	if j.State == model.Completing { // as Slurm's accounting: it runs until it has ended
		r.State = model.Running
	}
	if names := sp.ReservationNames(); len(names) > 0 {
		r.Reservation = names[0]
	}
	if j.Run != nil {
		r.Reservation = j.Run.Resv
		r.Start, r.LimitS, r.Partition = j.Run.Start, j.Run.LimitS, j.Run.Partition
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
		names := j.Run.Alloc.NodeNames()
		r.Nodes, r.NumNodes = hostlist.Compress(names), int32(len(names))
		cpus, mem, gres := j.Run.Alloc.Totals()
		r.AllocCPUs, r.AllocMemMiB, r.AllocGres = int32(cpus), mem, gres
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
	return &model.Record{Seq: seq, Cluster: cfg.Cluster, Job: j.ID, Attempt: j.Attempt, ArrayID: j.ArrayID, Task: j.Task, Name: j.Spec.Name,
		User: j.Spec.User, Group: j.Spec.Group, UID: j.Spec.UID, GID: j.Spec.GID, Account: j.Spec.Account, Submit: j.Submit, Start: step.Start,
		End: step.End, State: step.State(), Step: step}
}

// throttled gives an array's pending tasks as Slurm shows them: "0-9%2".
func throttled(tasks string, limit int32) string {
	if limit == 0 {
		return tasks
	}
	return tasks + "%" + itoa(limit)
}

// acct answers gacct. The request goes on as it came: gdbd may know more fields than this version.
func (c *Controller) acct(ctx context.Context, a *call) (message, error) {
	if err := a.decode(new(proto.AcctRequest)); err != nil {
		return nil, err
	}
	return &proto.RecordsChunk{}, c.query(ctx, a.body, c.sees(c.machine.View(), a.who).records(a.r.ReplyMore))
}

// query asks gdbd and passes its answer on frame by frame.
func (c *Controller) query(ctx context.Context, body []byte, pass func([]byte) error) error {
	if c.opts.DbdAddr == "" {
		return refuse(proto.CodeNoAccounting, "this cluster has no accounting daemon; name one with AccountingStorageHost= in gbatch.conf")
	}
	m, err := c.dialDbd(ctx)
	if err != nil {
		return refuse(proto.CodeNoAccounting, "the accounting daemon at %s does not answer (%v); jobs go on, and their records arrive once it is back", c.opts.DbdAddr, err)
	}
	defer func() { _ = m.Close() }() // the answer has been passed on, or its error returned
	return m.Stream(ctx, proto.KindQuery, body, func(f *rpc.Frame) error { return pass(f.Body) })
}
