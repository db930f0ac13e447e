package ctld

import (
	"context"
	"errors"
	"sort"
	"strings"

	"gbatch/ctld/alike"
	"gbatch/ctld/events"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
	"gbatch/internal/trail"
)

// choose finds the jobs of a list of references that the caller may change. It gives one result per reference and, for
// references without error, the targets for a command.
func (c *Controller) choose(v *state.View, who *caller, refs []model.JobRef,
	filter *proto.JobFilter) ([]proto.TargetResult, []model.JobRef, []int) {
	results := make([]proto.TargetResult, len(refs))
	var targets []model.JobRef
	var at []int
	sees := c.sees(v, who)
	for i, ref := range refs {
		results[i].Ref = ref
		found := resolve(v, ref)
		if len(found) == 0 {
			results[i].Code, results[i].Text = proto.CodeInvalidJob, proto.Text(proto.CodeInvalidJob)
			continue
		}
		var denied proto.Code
		var fits []*model.Job
		for _, j := range found {
			if denied == 0 && !c.mine(who, j) {
				denied = sees.barred(j)
			}
			if filter == nil || picked(filter, j) {
				fits = append(fits, j)
			}
		}
		switch {
		case denied != 0:
			results[i].Code, results[i].Text = denied, proto.Text(denied)
		case len(fits) == len(found):
			targets, at = append(targets, ref), append(at, i)
		case len(fits) == 0:
			results[i].Left = true
		default: // some tasks of an array match and others don't
			for _, j := range fits {
				targets, at = append(targets, only(j, ref)), append(at, i)
			}
		}
	}
	return results, targets, at
}

// only gives the target for one record of the records that ref names.
func only(j *model.Job, ref model.JobRef) model.JobRef {
	t := j.Ref()
	named := ref.Tasks
	if ref.Task != model.NoTask {
		named = model.TaskSet{{Lo: ref.Task, Hi: ref.Task, Step: 1}}
	}
	if j.IsArray() && len(named) > 0 {
		t.Tasks = j.Tasks.MinusSet(j.Tasks.MinusSet(named))
	}
	return t
}

// by names a caller in the trail.
func (c *Controller) by(who *caller) events.By { return events.By{UID: who.UID, User: c.nameOf(who)} }

// tells gives a context in which a change of jobs has its entries of the trail with it.
func (c *Controller) tells(ctx context.Context, who *caller, v *state.View, action proto.JobAction,
	targets []model.JobRef) context.Context {
	event, of := trail.TaskChanged, unended(v)
	if action == proto.ActRequeue || action == proto.ActRequeueHold {
		event, of = trail.TaskRequeuing, anyJob(v)
	}
	text := map[proto.JobAction]string{proto.ActRequeue: "requeue", proto.ActRequeueHold: "requeuehold",
		proto.ActHold: "hold", proto.ActUserHold: "uhold", proto.ActRelease: "release", proto.ActSuspend: "suspend",
		proto.ActResume: "resume", proto.ActTop: "top"}[action]
	return events.With(ctx, c.by(who).Jobs(event, text, targets, of))
}

// mayRelease gives those of the targets that who may release, and where they stand. One of which all tasks run and are
// not held is left out: that is no failure.
func (c *Controller) mayRelease(v *state.View, who *caller, results []proto.TargetResult, targets []model.JobRef,
	at []int) (keep []model.JobRef, keptAt []int) {
	for k, t := range targets {
		blocked := false
		found := resolve(v, t)
		free := len(found) > 0
		for _, j := range found {
			blocked = blocked || j.Hold == model.HeldByAdmin && !c.operator(who)
			free = free && j.Run != nil && !j.State.Finished() && j.Hold == model.NotHeld
		}
		switch {
		case free:
		case blocked:
			results[at[k]].Code, results[at[k]].Text = proto.CodeAccess,
				proto.Text(proto.CodeAccess)+": an administrator holds the job"
		default:
			keep, keptAt = append(keep, t), append(keptAt, at[k])
		}
	}
	return keep, keptAt
}

// ofNoCrontab gives the targets that may be changed: a crontab's jobs are what it says. They may only begin sooner,
// once.
func ofNoCrontab(v *state.View, set []model.KV, results []proto.TargetResult, targets []model.JobRef,
	at []int) (keep []model.JobRef, keptAt []int) {
	for k, t := range targets {
		j := anyJob(v)(t)
		if j == nil || !j.Recurs() || len(set) == 1 && strings.EqualFold(set[0].Key, "StartTime") {
			keep, keptAt = append(keep, t), append(keptAt, at[k])
			continue
		}
		results[at[k]].Code = proto.CodeCronModify
		results[at[k]].Text = proto.Sentence(proto.CodeCronModify, "change its entry with gcrontab -e; only StartTime can "+
			"be set here, for its next run")
	}
	return keep, keptAt
}

// anyJob gives the first job of a target, or nil.
func anyJob(v *state.View) func(model.JobRef) *model.Job {
	return func(t model.JobRef) *model.Job {
		for _, j := range resolve(v, t) {
			return j
		}
		return nil
	}
}

// unended gives the first job of a target that has not ended, or nil.
func unended(v *state.View) func(model.JobRef) *model.Job {
	return func(t model.JobRef) *model.Job {
		for _, j := range resolve(v, t) {
			if !j.State.Finished() {
				return j
			}
		}
		return nil
	}
}

// incomplete leaves out the targets whose jobs have all ended well.
func incomplete(v *state.View, targets []model.JobRef, at []int) (keep []model.JobRef, keptAt []int) {
	for k, t := range targets {
		for _, j := range resolve(v, t) {
			if j.State != model.Completed {
				keep, keptAt = append(keep, t), append(keptAt, at[k])
				break
			}
		}
	}
	return keep, keptAt
}

// requeueWords reads the words of requeue and requeuehold: only jobs that did not end well, and whether the job is
// shown as SPECIAL_EXIT.
func requeueWords(rq *proto.UpdateJobRequest) (only, special bool, err error) {
	for _, kv := range rq.Set {
		switch {
		case strings.EqualFold(kv.Key, "incomplete"):
			only = true
		case strings.EqualFold(kv.Key, "state") && strings.EqualFold(kv.Value, "SpecialExit"):
			special = true
		default:
			return false, false, refuse(proto.CodeBadRequest, "%s=%s: write Incomplete or State=SpecialExit", kv.Key, kv.Value)
		}
	}
	if special && rq.Action != proto.ActRequeueHold {
		return false, false, refuse(proto.CodeBadRequest, "State=SpecialExit holds the job: it goes with requeuehold")
	}
	return only, special, nil
}

// report turns the state's refusals into codes and sentences.
func (c *Controller) report(results []proto.TargetResult, at []int, each []state.Refusal) {
	for k, r := range each {
		code := proto.Code(0)
		switch r {
		case state.OK:
			continue
		case state.NoSuchJob:
			code = proto.CodeInvalidJob
		case state.AlreadyDone, state.StillEnding:
			code = proto.CodeAlreadyDone
		case state.NotPending:
			code = proto.CodeNotPending
		case state.CannotRequeue:
			code = proto.CodeRequeue
		case state.BadDependency:
			code = proto.CodeDependency
		case state.WholeHet:
			code = proto.CodeWholeHet
		case state.NotRunning, state.Outdated: // it has ended, or begun anew, since it was looked at
			code = proto.CodeAlreadyDone
		case state.NotFits: // the job that it was to expand has other nodes, or is in another partition
			code = proto.CodeNodeConfig
		case state.NoSuchNode:
			code = proto.CodeInvalidNode
		case state.Full:
			code = proto.CodePolicy
		default:
			code = proto.CodeInternal
		}
		results[at[k]].Code, results[at[k]].Text = code, proto.Text(code)
	}
}

// updateJob holds, releases, requeues and changes jobs.
func (c *Controller) updateJob(ctx context.Context, who *caller,
	rq *proto.UpdateJobRequest) (*proto.TargetsReply, error) {
	if rq.Action == proto.ActRecord {
		return c.noteRecords(ctx, who, rq)
	}
	v := c.machine.View()
	if len(rq.Targets) == 0 {
		return nil, refuse(proto.CodeBadRequest, "no job is named")
	}
	if err := checkRefs(v, rq.Targets); err != nil {
		return nil, err
	}
	refs := alike.Divide(v, rq.Targets, rq.Action)
	if len(refs) > proto.MaxTargets {
		return nil, refuse(proto.CodeBadRequest, "the tasks are %d groups that differ, and at most %d are changed at once: "+
			"name fewer tasks", len(refs), proto.MaxTargets)
	}
	results, targets, at := c.choose(v, who, refs, nil)
	if len(targets) == 0 {
		return &proto.TargetsReply{Results: results}, nil
	}
	reply := &proto.TargetsReply{Results: results}
	var res state.Result
	var err error
	switch rq.Action {
	case proto.ActRequeue, proto.ActRequeueHold:
		only, special, bad := requeueWords(rq)
		if bad != nil {
			return nil, bad
		}
		if only {
			targets, at = incomplete(v, targets, at)
		}
		targets, at = mayRequeue(v, results, targets, at)
		if len(targets) == 0 {
			return reply, nil
		}
		res, err = c.change(c.tells(ctx, who, v, rq.Action, targets), reply, at,
			&state.Stop{Targets: targets, Event: model.EvRequeue, Hold: rq.Action == proto.ActRequeueHold,
				Special: special, UID: who.UID})
	case proto.ActHold, proto.ActUserHold:
		hold := model.HeldByUser
		if rq.Action == proto.ActHold && c.operator(who) {
			hold = model.HeldByAdmin
		}
		res, err = c.change(c.tells(ctx, who, v, rq.Action, targets), reply, at,
			&state.Edit{Targets: targets, Set: []state.Field{state.SetHold, state.SetBegun}, Hold: hold})
	case proto.ActRelease:
		var keep []model.JobRef
		if keep, at = c.mayRelease(v, who, results, targets, at); len(keep) == 0 {
			return reply, nil
		}
		res, err = c.change(c.tells(ctx, who, v, rq.Action, keep), reply, at,
			&state.Edit{Targets: keep, Set: []state.Field{state.SetHold, state.SetBegun}, Hold: model.NotHeld})
	case proto.ActUpdate:
		targets, at = components(v, targets, at)
		return reply, c.updateEach(ctx, v, who, rq.Set, reply, targets, at)
	case proto.ActSuspend, proto.ActResume:
		if !c.operator(who) {
			for k := range results {
				results[k].Code, results[k].Text = proto.CodeAccess, proto.Text(proto.CodeAccess)
			}
			return reply, nil
		}
		res, err = c.change(c.tells(ctx, who, v, rq.Action, targets), reply, at,
			&state.Suspend{Targets: targets, Resume: rq.Action == proto.ActResume})
	case proto.ActNotify:
		if err := c.begin(ctx); err != nil {
			return nil, err
		}
		var t tells
		for k := range targets {
			results[at[k]].Code, results[at[k]].Text = t.notify(c, v, at[k], targets[k], rq.Set)
		}
		c.tellNodes(ctx, &t, results)
		c.finish(ctx, reply)
		return reply, nil
	case proto.ActStep:
		return reply, c.limitSteps(ctx, v, rq.Set, reply, targets, at)
	case proto.ActTop:
		for k := len(targets) - 1; k >= 0; k-- { // keep the order in which they were named
			key := stepKey(keyOf(ctx), at[k])
			if key != "" && c.machine.View().Answer(key) != nil {
				continue // it was made when the request came before
			}
			ctx := c.tells(ctx, who, v, rq.Action, targets[k:k+1])
			if results[at[k]].Code, results[at[k]].Text, err = c.top(ctx, key, who, targets[k]); err != nil {
				return nil, err
			}
		}
		return reply, nil
	default:
		return nil, refuse(proto.CodeBadRequest, "unknown action %d", rq.Action)
	}
	if err != nil {
		return nil, err
	}
	c.wordsFor(rq.Action)(results, at, res.Each)
	return reply, nil
}

// wordsFor gives what turns the state's refusals of an action into codes and sentences.
func (c *Controller) wordsFor(action proto.JobAction) func([]proto.TargetResult, []int, []state.Refusal) {
	switch action {
	case proto.ActSuspend:
		return suspended
	case proto.ActResume:
		return resumed
	case proto.ActHold, proto.ActUserHold, proto.ActRelease, proto.ActUpdate:
		return c.edited
	}
	return c.report
}

// edited is report for changes of what a job is: one that has ended is told in other words.
func (c *Controller) edited(results []proto.TargetResult, at []int, each []state.Refusal) {
	c.report(results, at, each)
	for k, r := range each {
		if x := &results[at[k]]; r == state.AlreadyDone {
			x.Code, x.Text = proto.CodeFinished, proto.Text(proto.CodeFinished)
		}
	}
}

// updateEach changes each of the jobs that an update names, some in each log entry. An update that names one job, which
// can't be changed, fails; otherwise the others are changed all the same.
//
// A change is made from the job's present facts (TimeLimit=+10) and replaces its whole specification, so one update
// waits until the one before it is in the facts: else two users' changes at the same moment become one.
func (c *Controller) updateEach(ctx context.Context, v *state.View, who *caller, set []model.KV,
	reply *proto.TargetsReply, targets []model.JobRef, at []int) error {
	if targets, at = ofNoCrontab(v, set, reply.Results, targets, at); len(targets) == 0 {
		return nil
	}
	wants, err := c.hookModify(ctx, v, who, set, reply, targets, at)
	if err != nil {
		return err
	}
	if err := c.awaitGifts(ctx, set, targets); err != nil {
		return err
	}
	select {
	case c.editing <- struct{}{}:
		defer func() { <-c.editing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	up := &updates{c: c, ctx: ctx, who: who, key: keyOf(ctx), results: reply.Results, targets: targets, at: at,
		wants: wants}
	for from := 0; from < len(reply.Results); {
		if from, err = up.next(c.machine.View(), from); err != nil {
			return err
		}
	}
	return nil
}

// updates is an update of several jobs under way.
type updates struct {
	c       *Controller
	ctx     context.Context
	who     *caller
	key     string // of the request
	results []proto.TargetResult
	targets []model.JobRef
	at      []int // their places in results
	wants   []wanted
}

// next changes the jobs whose results begin at from, as many as go into one log entry, and gives where the rest begins.
func (u *updates) next(v *state.View, from int) (end int, err error) {
	if old := u.made(v, from); old != nil {
		was, err := u.c.recallTargets(old, u.c.edited)
		if err != nil {
			return 0, err
		}
		return from + max(1, copy(u.results[from:], was.Results)), nil
	}
	var edits [][]byte
	var spots []int
	var deeds []*model.Audit
	k, bytes := sort.SearchInts(u.at, from), 0
	for end = from; end < min(from+updatesAtOne, len(u.results)); end++ {
		if end > from && u.made(v, end) != nil {
			break // the request came before, and this was made then
		}
		for ; k < len(u.at) && u.at[k] == end; k++ {
			if u.results[end].Code != 0 {
				continue // JobSubmitProgram refuses it
			}
			edit, deed, err := u.one(v, k)
			if err != nil {
				return 0, err
			}
			if edit == nil {
				continue
			}
			edits, spots, deeds = append(edits, edit), append(spots, end-from), append(deeds, deed...)
			bytes += len(edit)
			for _, a := range deed {
				bytes += deedBytes + len(a.Name) + len(a.Text)
			}
		}
		if bytes > updateBytes {
			end++
			break
		}
	}
	if len(edits) == 0 {
		return end, nil
	}
	part, step := &proto.TargetsReply{Results: u.results[from:end]}, u.key
	if end-from < len(u.results) {
		step = stepKey(u.key, from)
	}
	made, err := u.c.changesOf(events.With(u.ctx, deeds), step, part, spots, edits)
	if err != nil {
		return 0, err
	}
	for k, r := range made {
		u.c.edited(part.Results, spots[k:k+1], r.Each)
	}
	return end, nil
}

// made gives the answer of the step that begins at a result, if it was made when the request came before.
func (u *updates) made(v *state.View, from int) *state.Answer {
	if u.key == "" {
		return nil
	}
	return v.Answer(stepKey(u.key, from))
}

// one makes the command that changes a target, encoded, and its entries of the trail; no command: the target's result
// says why.
func (u *updates) one(v *state.View, k int) ([]byte, []*model.Audit, error) {
	var edit state.Body
	resize, err := u.c.resizing(v, u.targets[k], u.wants[k].set)
	if edit = resize; resize == nil && err == nil {
		edit, err = u.c.edit(v, u.who, u.targets[k], u.wants[k])
	}
	var data []byte
	if err == nil {
		data, err = u.c.encode(edit)
	}
	var why *rpc.Error
	switch {
	case err == nil:
		return data, u.c.by(u.who).Jobs(trail.TaskChanged, settings(u.wants[k].set), u.targets[k:k+1], anyJob(v)), nil
	case len(u.results) == 1 || !errors.As(err, &why):
		return nil, nil, err
	}
	u.results[u.at[k]].Code, u.results[u.at[k]].Text = why.Code, why.Text
	return nil, nil, nil
}

// suspended turns the state's refusals for gcontrol suspend and resume into Slurm's codes. A job that resumes later is
// no error; the text says so.
func suspended(results []proto.TargetResult, at []int, each []state.Refusal) {
	for k, r := range each {
		x := &results[at[k]]
		switch r {
		case state.OK:
			continue
		case state.WillResume:
			x.Text = "its CPUs are other jobs' now; it goes on as soon as they are free"
			continue
		case state.NoSuchJob:
			x.Code = proto.CodeInvalidJob
		case state.NotPending:
			x.Code = proto.CodeJobPending
		case state.AlreadyDone:
			x.Code = proto.CodeAlreadyDone
		case state.WholeHet:
			x.Code = proto.CodeWholeHet
		default:
			x.Code = proto.CodeRequeue // "Requested operation is presently disabled": it is starting, or is not suspended
		}
		x.Text = proto.Text(x.Code)
	}
}

// resumed is suspended for gcontrol resume: a job that runs is not suspended.
func resumed(results []proto.TargetResult, at []int, each []state.Refusal) {
	suspended(results, at, each)
	for k, r := range each {
		if x := &results[at[k]]; r == state.NotRunning {
			x.Code, x.Text = proto.CodeNotSuspended, proto.Text(proto.CodeNotSuspended)
		}
	}
}

// mayRequeue leaves out jobs that can't be requeued, and writes the reason into results: the submitter or JobRequeue=0
// forbids it, or the job is pending anyway.
func mayRequeue(v *state.View, results []proto.TargetResult, targets []model.JobRef, at []int) ([]model.JobRef, []int) {
	keep, keptAt := targets[:0:0], at[:0:0]
	for k, t := range targets {
		forbidden, waiting := true, true
		for _, j := range resolve(v, t) {
			forbidden = forbidden && !j.Spec.Requeue
			waiting = waiting && j.State == model.Pending
		}
		r := &results[at[k]]
		switch {
		case waiting:
			r.Code, r.Text = proto.CodeJobPending, proto.Text(proto.CodeJobPending)
		case forbidden:
			r.Code, r.Text = proto.CodeRequeue,
				proto.Text(proto.CodeRequeue)+
					": it was submitted with --no-requeue, or JobRequeue=0 is configured and it without --requeue,"
		default:
			keep, keptAt = append(keep, t), append(keptAt, at[k])
		}
	}
	return keep, keptAt
}
