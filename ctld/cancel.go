package ctld

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gbatch/ctld/events"
	"gbatch/ctld/present"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
	"gbatch/internal/state"
	"gbatch/internal/trail"
)

// cancel.go ends and signals jobs and steps: for users, for commands that give their allocations back, and for those on
// this controller's host that are killed, as noded/relay/attend.go does on other hosts.

// cancel ends or signals jobs.
func (c *Controller) cancel(ctx context.Context, who *caller,
	rq *proto.CancelRequest) (*proto.TargetsReply, error) {
	v := c.machine.View()
	if rq.RequestID != "" {
		id := v.Request(requestKey(who.UID, rq.RequestID))
		if id == 0 {
			return nil, refuse(proto.CodeInvalidJob, "no submission with this id is known")
		}
		rq = &proto.CancelRequest{Targets: []model.JobRef{{Job: id, Task: model.NoTask}}}
	}
	if err := checkRefs(v, rq.Targets); err != nil {
		return nil, err
	}
	if rq.Signal < 0 || rq.Signal > model.MaxSignal {
		return nil, refuse(proto.CodeBadRequest, "there is no signal %d; signals are 1 to %d", rq.Signal, model.MaxSignal)
	}
	if len(rq.Steps) > 0 {
		return c.cancelSteps(ctx, v, who, rq)
	}
	refs := rq.Targets
	if len(refs) == 0 {
		whole := map[model.JobID]bool{}
		v.Jobs(func(j *model.Job) bool {
			switch {
			case j.State.Finished() || !picked(&rq.Filter, j) || !c.mine(who, j) || j.Het != nil && whole[j.Het.ID]:
			case j.Leads():
				whole[j.ID] = true
				refs = append(refs, model.JobRef{Job: j.ID, Task: model.NoTask})
			default:
				refs = append(refs, j.Ref())
			}
			return true
		})
	}
	results, targets, at := c.choose(v, who, refs, &rq.Filter)
	if v.Config().Params.CronCancel && !rq.Cron && (rq.Signal == 0 || rq.Signal == sigKill) {
		targets, at = notOfCrontabs(v, len(rq.Targets) > 0, results, targets, at)
	}
	if len(targets) == 0 {
		return &proto.TargetsReply{Results: results}, nil
	}
	reply := &proto.TargetsReply{Results: results}
	if rq.Signal == sigKill && !rq.Release {
		var err error
		if targets, at, err = c.killWaiting(ctx, v, who, reply, targets, at); err != nil || len(targets) == 0 {
			return reply, err
		}
	}
	if rq.Signal != 0 && !rq.Release {
		return reply, c.signal(ctx, v, who, rq, targets, at, reply)
	}
	stop := &state.Stop{Targets: targets, Event: model.EvCancel, UID: who.UID, Keep: true}
	event, text := trail.TaskCancelled, ""
	if rq.Release {
		if err := allocations(v, targets); err != nil {
			return nil, err
		}
		stop.Fate = &model.Fate{Code: rq.Code & 0xff}
		event, text = trail.TaskChanged, fmt.Sprintf("given back with exit code %d", stop.Fate.Code)
	}
	ctx = events.With(ctx, c.by(who).Jobs(event, text, targets, unended(v)))
	res, err := c.change(ctx, reply, at, stop)
	if err != nil {
		return nil, err
	}
	c.report(results, at, res.Each)
	if rq.Kill {
		c.kill(targets)
	}
	return reply, nil
}

// notOfCrontabs leaves out the jobs of crontabs, which ScronParameters=explicit_scancel protects; named ones are
// refused.
func notOfCrontabs(v *state.View, named bool, results []proto.TargetResult, targets []model.JobRef,
	at []int) (keep []model.JobRef, keptAt []int) {
	for k, t := range targets {
		j := unended(v)(t)
		switch r := &results[at[k]]; {
		case j == nil || !j.Recurs():
			keep, keptAt = append(keep, t), append(keptAt, at[k])
		case named:
			r.Code, r.Text = proto.CodeCronCancel, proto.Text(proto.CodeCronCancel)
		default:
			r.Left = true
		}
	}
	return keep, keptAt
}

// killWaiting cancels the jobs that wait, of those that get SIGKILL: that ends them too, as in Slurm. It gives the
// others.
func (c *Controller) killWaiting(ctx context.Context, v *state.View, who *caller, reply *proto.TargetsReply,
	targets []model.JobRef, at []int) (rest []model.JobRef, restAt []int, err error) {
	var waiting []model.JobRef
	var waitingAt []int
	waits := func(j *model.Job) bool { return j.State == model.Pending }
	for k, t := range targets {
		found := resolve(v, t)
		switch n := len(slices.DeleteFunc(slices.Clone(found), waits)); n {
		case 0:
			waiting, waitingAt = append(waiting, t), append(waitingAt, at[k])
		case len(found):
			rest, restAt = append(rest, t), append(restAt, at[k])
		default: // some tasks of an array wait
			for _, j := range found {
				switch one := only(j, t); {
				case waits(j):
					waiting, waitingAt = append(waiting, one), append(waitingAt, at[k])
				case j.State.HasResources():
					rest, restAt = append(rest, one), append(restAt, at[k])
				}
			}
		}
	}
	if len(waiting) == 0 {
		return rest, restAt, nil
	}
	key := keyOf(ctx)
	if len(rest) > 0 {
		key = stepKey(key, 0) // the signals have the request's own
	}
	ctx = events.With(ctx, c.by(who).Jobs(trail.TaskCancelled, "", waiting, unended(v)))
	res, err := c.changes(ctx, key, reply, waitingAt,
		[]state.Body{&state.Stop{Targets: waiting, Event: model.EvCancel, UID: who.UID, Keep: true}})
	switch {
	case errors.Is(err, errRepeated) && len(rest) > 0: // it was made when the request came before
	case err != nil:
		return nil, nil, err
	default:
		c.report(reply.Results, waitingAt, res[0].Each)
	}
	return rest, restAt, nil
}

// allocations refuses to give back jobs that have a script: it says itself how they end.
func allocations(v *state.View, targets []model.JobRef) error {
	for _, t := range targets {
		for _, j := range resolve(v, t) {
			if !j.Spec.Extra().Interactive {
				return refuse(proto.CodeBadRequest, "job %d has a script, whose exit code is the job's: cancel it instead", j.ID)
			}
		}
	}
	return nil
}

// cancelSteps ends or signals steps.
func (c *Controller) cancelSteps(ctx context.Context, v *state.View, who *caller,
	rq *proto.CancelRequest) (*proto.TargetsReply, error) {
	if len(rq.Targets) > 0 || len(rq.Steps) > proto.MaxTargets {
		return nil, refuse(proto.CodeBadRequest, "name jobs or steps, at most %d of them", proto.MaxTargets)
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	reply := &proto.TargetsReply{Results: make([]proto.TargetResult, len(rq.Steps))}
	defer c.finish(ctx, reply)
	var tell tells
	for i, ref := range rq.Steps {
		res := &reply.Results[i]
		res.Ref = ref.Job
		fail := func(code proto.Code) { res.Code, res.Text = code, proto.Text(code) }
		if checkRefs(v, []model.JobRef{ref.Job}) != nil {
			fail(proto.CodeInvalidJob)
			continue
		}
		found := resolve(v, ref.Job)
		if len(found) == 0 {
			fail(proto.CodeInvalidJob)
		}
		for _, j := range found {
			switch {
			case !c.mine(who, j):
				fail(c.sees(v, who).barred(j))
			case !picked(&rq.Filter, j):
			case j.Run == nil || j.State == model.Completing && rq.Signal != sigKill || !j.State.HasResources():
				fail(proto.CodeAlreadyDone)
			case ref.Step == proto.StepBatch:
				sig := rq.Signal
				if sig == 0 {
					sig = sigTerm
				}
				tell.signal(i, j, 1, proto.Stop{Signal: sig, Batch: true})
			default:
				tell.add(i, j, proto.StepTell{Step: ref.Step, Signal: rq.Signal, UID: who.UID})
			}
		}
	}
	c.tellNodes(ctx, &tell, reply.Results)
	return reply, nil
}

// signal sends a signal to running jobs' processes, and waits for the nodes' answers.
func (c *Controller) signal(ctx context.Context, v *state.View, who *caller, rq *proto.CancelRequest,
	targets []model.JobRef, at []int, reply *proto.TargetsReply) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	var t tells
	for k := range targets {
		r := &reply.Results[at[k]]
		r.Code, r.Text = t.signalTarget(v, at[k], targets[k], rq)
	}
	c.tellNodes(ctx, &t, reply.Results)
	sent := targets[:0:0]
	for k := range targets {
		if reply.Results[at[k]].Code == 0 {
			sent = append(sent, targets[k])
		}
	}
	ctx = events.With(ctx, c.by(who).Jobs(trail.TaskSignaled, fmt.Sprintf("signal %d", rq.Signal), sent, unended(v)))
	c.finish(ctx, reply)
	return nil
}

// signalTarget adds a signal for the jobs of a target: without a flag for the processes of their steps, which the node
// knows.
func (t *tells) signalTarget(v *state.View, place int, target model.JobRef, rq *proto.CancelRequest) (proto.Code,
	string) {
	sent, pending := false, false
	for _, j := range resolve(v, target) {
		switch {
		case j.State == model.Pending:
			pending = true
		case rq.Batch && !rq.Full && j.Follows(): // it has no batch shell
		case j.State.HasResources():
			st := proto.Stop{Signal: rq.Signal, Batch: rq.Batch && !rq.Full, Full: rq.Full && !j.Follows()}
			nodes := 1 // the first node passes the signal on to the steps' other nodes
			if rq.Signal == sigKill && !st.Batch {
				nodes = len(j.Run.Alloc.Nodes) // it reaches processes that the first node doesn't know
			}
			t.signal(place, j, nodes, st)
			sent = true
		}
	}
	switch {
	case sent:
		return 0, ""
	case pending:
		return proto.CodeJobPending, proto.Text(proto.CodeJobPending)
	}
	return proto.CodeAlreadyDone, proto.Text(proto.CodeAlreadyDone)
}

// kill sends SIGKILL to all processes of jobs that are being ended: without an answer, because their nodes end them in
// any case.
func (c *Controller) kill(targets []model.JobRef) {
	v, kill := c.machine.View(), &proto.CancelRequest{Signal: sigKill, Full: true}
	var t tells
	for _, target := range targets {
		_, _ = t.signalTarget(v, 0, target, kill) // of a job that has ended, or never ran, nothing is left to signal
	}
	for node, n := range t.asks {
		c.nodes.stop(node, n.signals...)
	}
}

// attend waits for the command's end, and cancels its job if the command ended without a last message.
func (c *Controller) attend(ctx context.Context, r *server.Request, who *caller) {
	var rq proto.AttendRequest
	if err := proto.Decode(r.Body, &rq); err != nil {
		c.end(r, nil, refuse(proto.CodeBadRequest, "malformed request: %v", err))
		return
	}
	vanished, err := server.Attend(ctx, r)
	if err != nil {
		c.end(r, nil, err)
	}
	if !vanished {
		return
	}
	c.log.Info("a command was killed; its allocation is cancelled", "job", rq.Job, "request", rq.RequestID,
		"uid", who.UID)
	cancel, unknown := rq.Cancel(), server.NotYet()
	if err := server.GiveBack(ctx, func() error { return unknown(c.askLeader(ctx, who, cancel)) }); err != nil {
		c.log.Warn("the allocation of a killed command could not be cancelled", "job", rq.Job, "err", err)
	}
}

// present notes that an allocation's command is there, and says when it is to say so again.
func (c *Controller) present(_ context.Context, who *caller, rq *proto.PresentRequest) (*proto.PresentReply, error) {
	v := c.machine.View()
	j := v.Job(rq.Job)
	if j == nil || j.Spec.UID != who.UID && who.UID != 0 {
		return nil, refuse(proto.CodeInvalidJob, "")
	}
	c.roll.Here(j.ID, time.Now())
	return &proto.PresentReply{EveryS: present.EveryS(v.Config().Params.InactiveS)}, nil
}

// endInactive ends the allocations whose commands have fallen silent (InactiveLimit).
func (c *Controller) endInactive(ctx context.Context) {
	c.roll.Begin(time.Now())
	for ctx.Err() == nil {
		v := c.machine.View()
		silent, wait := c.roll.Silent(v, time.Now())
		stop := &state.Stop{Event: model.EvCancel, Limit: model.ReasonInactiveLimit,
			Why: fmt.Sprintf("its command has not been heard of for %d seconds (InactiveLimit)",
				v.Config().Params.InactiveS)}
		for list := range slices.Chunk(silent, proto.MaxTargets) { // those of a host come together
			stop.Targets = stop.Targets[:0]
			for _, j := range list {
				c.log.Info("an allocation is ended", "job", j.ID, "user", j.Spec.User, "why", stop.Why)
				stop.Targets = append(stop.Targets, model.JobRef{Job: j.ID, Task: model.NoTask})
			}
			if _, err := c.propose(ctx, stop); err != nil && ctx.Err() == nil {
				c.log.Warn("allocations of silent commands can't be ended; it is tried again", "jobs", len(list), "err", err)
			}
		}
		pause(ctx, wait)
	}
}

// askLeader asks the leader to cancel a job. An error means that no controller did.
func (c *Controller) askLeader(ctx context.Context, who *caller, rq *proto.CancelRequest) error {
	var err error
	if c.leading.Load() {
		_, err = c.cancel(ctx, who, rq)
	} else {
		body, eerr := proto.Encode(rq)
		if eerr != nil {
			return eerr
		}
		err = c.toLeader(ctx, who, proto.KindCancel, body, func(*rpc.Frame) error { return nil })
		if errors.Is(err, errHere) {
			_, err = c.cancel(ctx, who, rq)
		}
	}
	return err
}

// wait answers when the job has ended, or after proto.MaxWaitS.
func (c *Controller) wait(ctx context.Context, who *caller, rq *proto.WaitRequest) (*proto.WaitReply, error) {
	if c.waiting.Add(1) > maxWaiters {
		c.waiting.Add(-1)
		return nil, refuse(proto.CodeBusy,
			"%d commands wait for jobs already, the limit; ask with gqueue from time to time instead", maxWaiters)
	}
	defer c.waiting.Add(-1)
	until := time.NewTimer(proto.MaxWaitS * time.Second)
	defer until.Stop()
	for {
		changed := c.machine.Changed()
		v := c.machine.View()
		if j := v.JobOrTask(rq.Job); j != nil && !c.sees(v, who).job(j.Spec) {
			return nil, refuse(proto.CodeInvalidJob, "%d", rq.Job)
		}
		lines, said, more := c.saidTo(v, who, rq)
		if r, ok := outcome(v, rq.Job); !ok {
			return nil, refuse(proto.CodeInvalidJob, "%d", rq.Job)
		} else if r.Done || len(lines) > 0 {
			r.Words, r.Said = lines, said
			return r, nil
		}
		select {
		case <-more:
		case <-changed:
		case <-until.C:
			return &proto.WaitReply{Said: rq.Heard}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		pause(ctx, waitPace)
	}
}

// saidTo gives what is said to the command of a job that asks, and a channel that is closed when there may be more.
func (c *Controller) saidTo(v *state.View, who *caller, rq *proto.WaitRequest) ([]string, uint64, <-chan struct{}) {
	j := v.Job(rq.Job)
	if !rq.Hears || j == nil || j.Spec.UID != who.UID {
		return nil, rq.Heard, nil
	}
	return c.words.Since(rq.Job, rq.Heard)
}

// outcome gives the result of a job or a whole array that has ended.
func outcome(v *state.View, id model.JobID) (*proto.WaitReply, bool) {
	if a := v.Array(id); a != nil {
		r := &proto.WaitReply{Done: a.Done == a.Total, State: model.Completed, Code: a.MaxExit}
		if a.Failed > 0 {
			r.State = model.Failed
		}
		return r, true
	}
	j := v.Job(id)
	if j == nil {
		return nil, false
	}
	r := &proto.WaitReply{Done: j.State.Finished(), State: j.State}
	for _, o := range v.Components(id) {
		r.Done = r.Done && o.State.Finished()
	}
	if j.End != nil {
		r.Code, r.Signal = j.End.Exit.Code, j.End.Exit.Signal
	}
	return r, true
}
