package ctld

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
	"gbatch/internal/state"
)

// record.go makes accounting records: a job or step at the moment when the event was queued. It also changes those of
// jobs that have ended.

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
		NoScript: sp.Extra().Interactive || j.Follows(), Container: sp.Extra().Container.Shown(),
		WCKey: sp.WCKey, WCKeyID: j.WCKeyID}
	switch { // as in Slurm
	case j.State == model.Suspended:
		r.Priority = 0
	case j.Run == nil && j.End == nil && !cfg.Params.Priority.Default():
		r.Priority = c.prio.order(v, c.now()).Of(v, j)
	}
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
	switch { // as in Slurm's accounting: it counts as running until it has ended, which the epilogs are no part of
	case j.HasEnded():
		e := j.Run.Over
		r.End, r.Exit, r.Unbegun = e.At, e.Exit, j.Run.Unbegun(&e.Exit)
		r.State, r.Reason = e.Exit.State()
		r.Exit.Worst = max(r.Exit.Worst, j.Run.Worst)
	case j.State == model.Completing:
		r.State = model.Running
	}
	if j.State.Finished() && j.Run == nil && r.LimitS == model.NotSet { // it keeps the limit with which it waited
		if p := v.Partition(j.Partition()); p != nil {
			r.LimitS = p.TimeS()
		}
	}
	if names := sp.ReservationNames(); len(names) > 0 {
		r.Reservation = names[0]
	}
	if j.Run != nil {
		r.Reservation = j.Run.Resv
		r.Start, r.LimitS, r.Partition = j.Run.SizedAt(), j.Run.LimitS, j.Run.Partition
		r.Earlier, r.Open = j.Run.Earlier(), j.State == model.Resizing
		if r.Size = j.Run.Sizes; r.Size > 0 {
			r.Eligible = r.Start // it waited before its first size only
		}
		if j.Run.Priority != 0 { // the one that it started with, also while an operator has suspended it
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
		r.End, r.Exit, r.CancelUID, r.Unbegun = j.End.At, j.End.Exit, j.End.UID, j.Unbegun()
	}
	if j.End != nil && j.Run == nil { // it never ran: what it waited for, and how
		r.Reason = j.ReasonAt(j.End.At)
		switch {
		case j.Hold != model.NotHeld:
			r.Priority = 0
		case !cfg.Params.Priority.Default():
			r.Priority = c.prio.order(v, c.now()).Of(v, j)
		}
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

// Bounds of a change of records: how many records, and the bytes of their entries in the trail, which are one command.
const (
	maxNoted      = 1000
	maxNotedBytes = 7 << 20 // of store.MaxCommandBytes
	notedEntry    = 400     // of an entry without what is set
	leastNoted    = 100     // of the text of an entry
)

// notedText gives the text of the entries that set something of n records: as much of it as goes into the log beside
// what is set. It reports false if that alone is too much.
func notedText(set []model.KV, n int) (text string, ok bool) {
	room := maxNotedBytes/max(n, 1) - notedEntry
	for _, kv := range set {
		room -= len(kv.Key) + len(kv.Value)
	}
	return cut(settings(set), max(room, 0)), room >= leastNoted
}

// noteRecords changes records of jobs that have ended, as gacctmgr modify job asks for. The changes are entries of the
// trail: they reach each gdbd in the order of the records, once, whether it answers now or not. Jobs that have not
// ended are changed in the queue, if no other jobs are named with them.
func (c *Controller) noteRecords(ctx context.Context, who *caller, rq *proto.UpdateJobRequest) (*proto.TargetsReply,
	error) {
	v := c.machine.View()
	set, err := c.notedWords(who, rq.Set)
	if err != nil {
		return nil, err
	}
	if rq.Records == nil || len(rq.Records.Jobs)+len(rq.Records.Users)+
		len(rq.Records.WCKeys) == 0 {
		return nil, refuse(proto.CodeBadRequest, "no job is named")
	}
	if len(rq.Records.Jobs) > proto.MaxTargets {
		return nil, refuse(proto.CodeBadRequest, "more than %d job ids in one request", proto.MaxTargets)
	}
	if inQueue(v, rq.Records, set) {
		return c.updateJob(ctx, who, &proto.UpdateJobRequest{Action: proto.ActUpdate, Targets: rq.Records.Jobs, Set: set})
	}
	records, err := c.recordsToNote(ctx, v, who, rq.Records)
	if err != nil {
		return nil, err
	}
	text, fits := notedText(set, len(records))
	if !fits {
		return nil, refuse(proto.CodeBadRequest, "%d jobs and %d bytes for each are too much at once; name fewer jobs",
			len(records), len(settings(set)))
	}
	reply := &proto.TargetsReply{}
	var deeds []*model.Audit
	for _, r := range records {
		t := (&model.Job{ID: r.Job, ArrayID: r.ArrayID, Task: r.Task, Het: r.Het}).Ref()
		x := proto.TargetResult{Ref: t}
		if r.End == 0 && !r.State.Finished() {
			x.Code = proto.CodePolicy
			x.Text = fmt.Sprintf("job %d has not ended; name it alone to change its comments in the queue", r.Job)
		} else {
			of, err := ofRecord(v, r, set)
			if err != nil {
				return nil, err
			}
			deeds = append(deeds, c.by(who).Noted(r, &t, text, of))
		}
		reply.Results = append(reply.Results, x)
	}
	if len(deeds) == 0 {
		return reply, nil
	}
	_, err = c.changes(ctx, keyOf(ctx), reply, nil, []state.Body{&state.Audits{List: deeds}})
	return reply, err
}

// ofRecord gives what is set of a record: with a wckey, its number too. Where usage is kept by wckeys, it has to be one
// of the user's.
func ofRecord(v *state.View, r *model.Record, set []model.KV) ([]model.KV, error) {
	i := slices.IndexFunc(set, func(kv model.KV) bool { return kv.Key == model.NotedWCKey })
	if i < 0 {
		return set, nil
	}
	id, w := uint32(0), v.WCKey(r.User, model.WCKeyName(set[i].Value))
	switch {
	case w != nil:
		id = w.ID
	case v.Config().Params.TrackWCKey:
		return nil, refuse(proto.CodeInvalidWCKey, "WCKey=%s is none of user %s, whose job %d is; gacctmgr add user %[2]s "+
			"wckeys=%[1]s makes it one", set[i].Value, r.User, r.Job)
	}
	return append(slices.Clip(set), model.KV{Key: model.NotedWCKeyID, Value: fmt.Sprint(id)}), nil
}

// notedWords checks what is to be changed of records. Comment, Extra, WCKey and DerivedExitCode are their owners'
// business, the rest that of operators.
func (c *Controller) notedWords(who *caller, list []model.KV) (set []model.KV, err error) {
	words := []string{model.NotedComment, model.NotedAdmin, model.NotedSystem, model.NotedExtra, model.NotedWCKey,
		model.NotedExitCode}
	for _, kv := range list {
		i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, kv.Key) })
		switch {
		case i < 0:
			return nil, refuse(proto.CodeBadRequest, "%s can't be changed of an ended job; %s can", kv.Key,
				strings.Join(words, ", "))
		case len(kv.Value) > proto.MaxFieldBytes:
			return nil, refuse(proto.CodeBadRequest, "%s is longer than %d bytes", words[i], proto.MaxFieldBytes)
		case (words[i] == model.NotedAdmin || words[i] == model.NotedSystem) && !c.operator(who):
			return nil, refuse(proto.CodeAccess, "%s is for operators; Comment and Extra are yours", words[i])
		case words[i] == model.NotedWCKey:
			if kv.Value = strings.ToLower(kv.Value); kv.Value == "" {
				return nil, refuse(proto.CodeInvalidWCKey, "a record's WCKey can't be set to nothing; name a key")
			}
			if err := model.CheckWCKey(model.WCKeyName(kv.Value)); err != nil {
				return nil, refuse(proto.CodeInvalidWCKey, "%v", err)
			}
		case words[i] == model.NotedExitCode:
			status, ok := model.StatusOf(kv.Value)
			if !ok {
				return nil, refuse(proto.CodeBadRequest, "DerivedExitCode=%s is no code:signal and no wait status",
					kv.Value)
			}
			x := model.Exit{Worst: status}.Derived()
			kv.Value = fmt.Sprintf("%d:%d", x.Code, x.Signal)
		}
		set = append(set, model.KV{Key: words[i], Value: kv.Value})
	}
	if len(set) == 0 {
		return nil, refuse(proto.CodeBadRequest, "nothing says what to change")
	}
	return set, nil
}

// inQueue reports whether all that is named are jobs that have not ended, and what is changed of them is in the queue.
func inQueue(v *state.View, rq *proto.AcctRequest, set []model.KV) bool {
	if len(rq.Jobs) == 0 || len(rq.Users)+len(rq.WCKeys) > 0 || rq.Start != 0 || rq.End != 0 {
		return false
	}
	for _, kv := range set {
		if kv.Key != model.NotedComment && kv.Key != model.NotedAdmin {
			return false
		}
	}
	return !slices.ContainsFunc(rq.Jobs, func(ref model.JobRef) bool {
		found := resolve(v, ref)
		return len(found) == 0 || slices.ContainsFunc(found, func(j *model.Job) bool { return j.State.Finished() })
	})
}

// recordsToNote asks gdbd for the records that are to be changed: of each job the last one. One that the caller may not
// change refuses all.
func (c *Controller) recordsToNote(ctx context.Context, v *state.View, who *caller, rq *proto.AcctRequest) (
	list []*model.Record, err error) {
	body, err := proto.Encode(&proto.AcctRequest{Jobs: rq.Jobs, Users: rq.Users, WCKeys: rq.WCKeys, Start: rq.Start,
		End: rq.End})
	if err != nil {
		return nil, err
	}
	sees := c.sees(v, who)
	err = c.query(ctx, proto.KindQuery, body, sees.records(func(part []byte) error {
		var chunk proto.RecordsChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		for _, r := range chunk.Records {
			switch {
			case r.Cluster != v.Config().Cluster || r.Step != nil:
				continue
			case r.UID != who.UID && !c.operator(who):
				return refuse(proto.CodeAccess, "job %d is another user's", r.Job)
			case len(list) == maxNoted:
				return refuse(proto.CodeBadRequest, "more than %d jobs are as the conditions say; name fewer", maxNoted)
			}
			list = append(list, r)
		}
		return nil
	}))
	if err == nil && len(list) == 0 {
		err = refuse(proto.CodeInvalidJob, "accounting has no such job")
	}
	return list, err
}
