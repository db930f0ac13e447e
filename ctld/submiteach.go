package ctld

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"gbatch/ctld/crontab"
	"gbatch/internal/cron"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
	"gbatch/internal/trust"
	"gbatch/internal/userdb"
)

// submiteach.go takes many jobs at once: those of gsubmit --each, and the entries of a crontab.

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

// crontab gives a user's crontab.
func (c *Controller) crontab(ctx context.Context, who *caller, rq *proto.CrontabRequest) (*proto.CrontabReply, error) {
	v := c.machine.View()
	owner, err := c.crontabOf(ctx, v, who, proto.KindCrontab, rq.User)
	if err != nil {
		return nil, err
	}
	reply := &proto.CrontabReply{User: owner.User}
	t := v.Crontab(owner.UID)
	if t == nil && !v.Config().Params.Crontabs {
		return nil, noCrontabs()
	}
	if t != nil {
		reply.There, reply.Text, reply.Off, reply.Why = true, t.Text, t.Off, t.Why
	}
	return reply, nil
}

// crontabOf gives the user whose crontab a request is about, and refuses one that who has no right to.
func (c *Controller) crontabOf(ctx context.Context, v *state.View, who *caller, kind uint16, name string) (*caller,
	error) {
	if name == "" || name == who.User || name == strconv.FormatUint(uint64(who.UID), 10) {
		return who, nil
	}
	if !trust.May(c.class(who), kind).Covers(false, false) {
		return nil, refuse(proto.CodeAccess, "other users' crontabs are shown to operators, and changed by administrators")
	}
	u, err := c.people.Named(ctx, name)
	if id, bad := strconv.ParseUint(name, 10, 32); errors.Is(err, userdb.ErrUnknown) && bad == nil {
		u, err = c.people.User(ctx, uint32(id))
	}
	switch {
	case errors.Is(err, userdb.ErrUnknown):
		return nil, refuse(proto.CodeUser, "%s is unknown on controller %s: getent passwd finds no such user", name,
			c.opts.Name)
	case err != nil:
		return nil, refuse(proto.CodeBusy, "the user database of controller %s does not say who %s is: %v", c.opts.Name, name,
			err)
	case kind == proto.KindSetCrontab && who.UID != 0 && who.UID != u.UID && (u.UID == 0 || u.UID == c.opts.UID):
		return nil, refuse(proto.CodeAccess, "only root changes the crontabs of root and of SlurmUser for them")
	}
	owner := *who
	owner.UID, owner.GID, owner.Groups = u.UID, u.GID, notRoots(u.UID, u.Groups)
	owner.User, owner.Group = u.Name, c.people.Group(ctx, u.GID)
	return &owner, nil
}

func noCrontabs() error {
	return refuse(proto.CodeRequeue, "users have crontabs only with ScronParameters=enable in gbatch.conf")
}

// setCrontab replaces or removes a user's crontab: each entry is judged as a submission of its user's, and all jobs go
// into the log in one command. The answer tells of the entry that is refused.
func (c *Controller) setCrontab(ctx context.Context, who *caller,
	rq *proto.SetCrontabRequest) (*proto.SetCrontabReply, error) {
	v := c.machine.View()
	owner, err := c.crontabOf(ctx, v, who, proto.KindSetCrontab, rq.User)
	if err != nil {
		return nil, err
	}
	reply, cmd := &proto.SetCrontabReply{}, &state.Crontab{UID: owner.UID, By: who.UID, Remove: rq.Remove, Via: who.via}
	if !rq.Remove {
		if !v.Config().Params.Crontabs { // those that are there can be read and removed
			return nil, noCrontabs()
		}
		if err := crontab.CheckText(rq.Text); err != nil {
			return nil, refuse(proto.CodeBadRequest, "%v", err)
		}
		if len(rq.Jobs) > cron.MaxEntries {
			return nil, refuse(proto.CodeBadRequest, "a crontab has at most %d entries", cron.MaxEntries)
		}
		cmd.Text = rq.Text
	}
	lines, env := len(cron.Lines(string(cmd.Text))), map[string]bool{}
	for i := range rq.Jobs {
		job, notes, err := c.crontabJob(ctx, v, owner, &rq.Jobs[i], lines)
		var why *rpc.Error
		switch {
		case rq.Remove:
			return nil, refuse(proto.CodeBadRequest, "a crontab that is removed has no entries")
		case errors.As(err, &why) && rq.Jobs[i].Spec != nil && rq.Jobs[i].Spec.Cron != nil:
			at := rq.Jobs[i].Spec.Cron
			reply.Entry = model.Lines{First: at.First, Last: at.Last}
			reply.Code, reply.Refused = why.Code, why.Text
			return reply, nil
		case err != nil:
			return nil, err
		}
		if env[job.Env.Key] {
			job.Env.Data = nil // an entry before it brings it
		}
		env[job.Env.Key] = true
		cmd.Jobs = append(cmd.Jobs, *job)
		for _, n := range notes {
			reply.Notes = append(reply.Notes, fmt.Sprintf("line %d: %s", job.Spec.Cron.Last, n))
		}
	}
	res, err := c.change(ctx, reply, nil, cmd)
	switch {
	case err != nil:
		return nil, err
	case res.Refusal == state.Full:
		return nil, refuse(proto.CodePolicy, "all crontabs together have at most %d bytes", state.MaxCrontabBytes)
	case res.Refusal != state.OK && len(cmd.Jobs) > 0:
		return entryRefused(v, cmd, res)
	}
	return reply, nil
}

// entryRefused tells of the entry whose job the facts refuse, or why they refuse all of the crontab.
func entryRefused(v *state.View, cmd *state.Crontab, res state.Result) (*proto.SetCrontabReply, error) {
	sp := cmd.Jobs[max(0, min(len(res.Each), len(cmd.Jobs))-1)].Spec
	err := refusedBy(v, sp, res)
	var why *rpc.Error
	if len(res.Each) == 0 || !errors.As(err, &why) {
		return nil, err
	}
	return &proto.SetCrontabReply{Entry: model.Lines{First: sp.Cron.First, Last: sp.Cron.Last}, Code: why.Code,
		Refused: why.Text}, nil
}

// crontabJob makes the submission of an entry, with its first time.
func (c *Controller) crontabJob(ctx context.Context, v *state.View, owner *caller, entry *proto.SubmitRequest,
	lines int) (*state.Submit, []string, error) {
	if err := crontab.CheckJob(entry, lines); err != nil {
		return nil, nil, refuse(proto.CodeBadRequest, "%v", err)
	}
	rq := *entry
	rq.RequestID = ""
	by, hooked, said, err := c.hookSubmit(ctx, v, owner, &rq)
	if err != nil {
		return nil, nil, err
	}
	sp := *hooked.Spec
	sp.Cron, sp.Begin = entry.Spec.Cron, crontab.Next(entry.Spec.Cron, c.now())
	hooked.Spec = &sp
	if err := crontab.CheckJob(hooked, lines); err != nil {
		return nil, nil, hookFault(refuse(proto.CodeBadRequest, "%v", err))
	}
	times := sp.Cron
	sp.Cron = nil // only here a job may have it
	job, reply, err := c.prepare(v, *by, hooked)
	if err != nil {
		return nil, nil, err
	}
	job.Spec.Cron = times
	if err := fitsLength(job.Spec); err != nil {
		return nil, nil, err
	}
	return job, append(said, reply.Notes...), nil
}

// Jobs of crontabs that end together get their next times together; a proposal that failed is made again after a while.
const (
	cronPace  = 100 * time.Millisecond
	cronAgain = time.Second
)

// keepCrontabs sets the next times of crontabs' jobs.
func (c *Controller) keepCrontabs(ctx context.Context) {
	for pace := (pacer{gap: cronPace}); ctx.Err() == nil; {
		pace.wait(ctx)
		changed := c.machine.Changed()
		if err := c.setTimes(ctx, crontab.Due(c.machine.View(), c.now())); err != nil && ctx.Err() == nil {
			c.log.Warn("the next time of a crontab's job can't be set; it is tried again", "err", err)
			pause(ctx, cronAgain)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (c *Controller) setTimes(ctx context.Context, list []*state.Edit) error {
	for _, e := range list {
		if _, err := c.propose(ctx, e); err != nil {
			return fmt.Errorf("job %d, of %d: %w", e.Targets[0].Job, len(e.Targets), err)
		}
	}
	return nil
}
