package rest

import (
	"strconv"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// recordedit.go changes what slurmdb knows of jobs, as gacctmgr modify job does.

// recordChanges reads job_modify.
func recordChanges(o *object) (set keys, err error) {
	if o == nil {
		return nil, badChange("nothing says what to change: comment.job, comment.administrator")
	}
	if c := o.object("comment"); c != nil {
		if v, ok := c.text("job"); ok {
			set.add("Comment", v)
		}
		if v, ok := c.text("administrator"); ok {
			set.add("AdminComment", v)
		}
		if c.str("system") != "" {
			return nil, unsupported(c.path + "system: the cluster writes none; use comment.administrator")
		}
	}
	for _, x := range [][2]string{{"derived_exit_code", "it is what the steps ended with; note another judgement in " +
		"comment.administrator"}, {"tres", "what a job had is a fact"}, {"wckey", "jobs have no wckeys here"},
		{"extra", "use comment.administrator"}} {
		if v, ok := o.value(x[0]); ok && says(v) {
			return nil, unsupported(o.path + x[0] + ": " + x[1])
		}
	}
	if err := o.top().err; err != nil {
		return nil, err
	}
	if len(set) == 0 {
		return nil, badChange("nothing says what to change: comment.job, comment.administrator")
	}
	return set, nil
}

// modifyRecords changes jobs' records, and lists whose.
func (q *request) modifyRecords(refs []proto.JobRef, set []model.KV) error {
	if len(refs) == 0 {
		return &fault{Number: errBadJob, Text: proto.Text(proto.CodeInvalidJob), Detail: "job_id_list names no job"}
	}
	var reply proto.TargetsReply
	if err := q.ask(proto.KindUpdateJob, &proto.UpdateJobRequest{Action: proto.ActUpdate, Targets: refs, Set: set},
		&reply); err != nil {
		return err
	}
	var done []string
	for i := range reply.Results {
		r := &reply.Results[i]
		if r.Code != 0 {
			q.faults = append(q.faults, asFault(rpcError(r), q.op.id(q.ver)))
			continue
		}
		done = append(done, strconv.FormatUint(uint64(r.Ref.Job), 10))
	}
	q.j.List("results", done)
	return nil
}

// postRecord is POST slurmdb's job/{job_id}.
func postRecord(q *request) error {
	ref, err := jobRef(q.name)
	if err != nil {
		return err
	}
	b, err := q.body()
	if err != nil {
		return err
	}
	set, err := recordChanges(b)
	if err == nil {
		err = q.done(b)
	}
	if err != nil {
		return err
	}
	return q.modifyRecords([]proto.JobRef{ref}, set)
}

// postRecords is POST slurmdb's jobs.
func postRecords(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	list, _ := b.list("job_id_list")
	refs, err := jobRefs(list)
	if err != nil {
		return err
	}
	set, err := recordChanges(b.object("job_rec"))
	if err == nil {
		err = q.done(b)
	}
	if err != nil {
		return err
	}
	return q.modifyRecords(refs, set)
}
