package rest

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
	"gbatch/internal/walltime"
)

// records.go is slurmdb's jobs: gdbd's records, with the steps that run now, and changes of them as gacctmgr modify
// job makes them.

var recordFields = jobtext.RecordJSON()

// recordsWanted is what a request says of the records that it selects.
type recordsWanted struct {
	keep    func(*model.Record) bool // nil: all of them
	noSteps bool
	scripts map[model.JobID]string
}

// records writes the records that match.
func (q *request) records(rq *proto.AcctRequest, want recordsWanted) (n int, err error) {
	rq.Steps = !want.noSteps
	var live map[model.JobID][]proto.RunningStep
	if rq.Steps {
		live = q.liveSteps(rq)
	}
	view := &jobtext.RecordView{Times: jobtext.Times{Now: time.Now()}, TRES: q.facts.Config().TRES()}
	var job *model.Record
	var steps []*model.Record
	give := func() {
		if job == nil {
			return
		}
		if want.keep != nil && !want.keep(job) {
			job, steps = nil, nil
			return
		}
		if job.State.HasResources() {
			for i := range live[job.Job] {
				s := &live[job.Job][i]
				if s.Step.ID != proto.StepBatch && job.Lists(&s.Step) &&
					!slices.ContainsFunc(steps, func(r *model.Record) bool { return r.Step.ID == s.Step.ID }) {
					steps = append(steps, &model.Record{Job: job.Job, Attempt: job.Attempt, Step: &s.Step})
				}
			}
			slices.SortStableFunc(steps, func(x, y *model.Record) int { return cmp.Compare(x.Step.ID, y.Step.ID) })
		}
		row := &jobtext.RecordRow{Record: job, RecordView: view}
		slurmjson.Write(q.j, "", recordFields, &jobtext.RecordWithSteps{RecordRow: row,
			Script: rq.Steps && jobtext.HasBatch(job), Text: want.scripts[cmp.Or(job.ArrayID, job.Job)], Steps: steps})
		q.j.Flush(false)
		n++
		job, steps = nil, nil
	}
	q.j.Open("jobs", '[')
	err = q.stream(proto.KindAcct, rq, func(part []byte) error {
		var chunk proto.RecordsChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		if chunk.Note != "" {
			q.warn(chunk.Note)
		}
		for i, r := range chunk.Records {
			switch {
			case r.Step == nil:
				give()
				if job = r; r.AdminComment == "" && i < len(chunk.Summaries) {
					r.AdminComment = chunk.Summaries[i]
				}
			case job != nil && job.Job == r.Job && job.Attempt == r.Attempt:
				steps = append(steps, r)
			}
		}
		return q.ctx.Err()
	})
	give()
	q.j.Close(']')
	return n, err
}

// liveSteps gives the running steps of the jobs that are asked for. Without a leader there are none.
func (q *request) liveSteps(rq *proto.AcctRequest) map[model.JobID][]proto.RunningStep {
	out := map[model.JobID][]proto.RunningStep{}
	if q.facts.Leaderless {
		return out
	}
	err := q.together(proto.KindSteps, &proto.StepsRequest{Filter: proto.JobFilter{Jobs: rq.Jobs, Users: rq.Users,
		Names: rq.Names, Partitions: rq.Partitions, Accounts: rq.Accounts, QOS: rq.QOS},
		Ended: true}, func(part []byte) error {
		var chunk proto.StepsChunk
		err := proto.Decode(part, &chunk)
		for _, s := range chunk.Steps {
			out[s.Job] = append(out[s.Job], s)
		}
		return err
	})
	if err != nil {
		q.warn("steps that run now are missing: " + err.Error())
	}
	return out
}

// maxScripts is of how many jobs an answer has the scripts.
const maxScripts = 100

// scripts gives the scripts of jobs, as far as the controller knows them and the user may see them.
func (q *request) scripts(refs []model.JobRef) map[model.JobID]string {
	out := map[model.JobID]string{}
	if q.facts.Leaderless {
		return out
	}
	for _, ref := range refs {
		if _, has := out[ref.Job]; has {
			continue
		}
		if len(out) == maxScripts {
			q.warn(fmt.Sprintf("scripts are those of the first %d jobs", maxScripts))
			break
		}
		var r proto.ScriptReply
		_ = q.ask(proto.KindScript, &proto.ScriptRequest{Job: ref.Job}, &r) // without one the text is empty
		out[ref.Job] = string(r.Script)
	}
	return out
}

func dbJob(q *request) error {
	ref, err := jobRef(q.name)
	if err != nil {
		return err
	}
	n, err := q.records(&proto.AcctRequest{Jobs: []model.JobRef{ref}, Duplicates: true},
		recordsWanted{scripts: q.scripts([]model.JobRef{ref})})
	if err == nil && n == 0 {
		q.warn("Nothing found with query: there is no record of job " + q.name)
	}
	return err
}

// moment reads a moment as slurmrestd does: seconds since 1970, or what the commands take. Digits are seconds unless
// they are a day, MMDD or MMDDYY; 0 is no bound.
func (q *request) moment(name string) (t model.Time, given bool, err error) {
	text := q.get(name)
	if text == "" {
		return 0, false, nil
	}
	n, bad := strconv.ParseInt(text, 10, 64)
	day, err := walltime.ParsePastDate(text, time.UnixMilli(int64(q.facts.Now)))
	const longest = 1 << 40
	switch {
	case bad == nil && n >= 0 && n < longest && (err != nil || len(text) != len("MMDD") && len(text) != len("MMDDYY")):
		return model.Time(n * 1000), true, nil
	case err != nil:
		return 0, true, &fault{Number: errConversion, Detail: name + ": " + err.Error(), Status: http.StatusBadRequest}
	}
	return model.Time(day.UnixMilli()), true, nil
}

// The parameters of slurmdb's jobs, beside those that select records by a list.
const (
	duplicates = "show_duplicates"
	skipSteps  = "skip_steps"
	withScript = "show_batch_script"
)

// unpicked are Slurm's parameters that select records, and none here.
var unpicked = []string{"reservation", "reservation_id", "constraints", "reason", "groups", "exit_code", "association",
	"job_altered"}

// ways are the parameters that select jobs by how they were started, with the words of the field Flags.
var ways = [][2]string{{"scheduled_on_submit", "SchedSubmit"}, {"scheduled_by_main", "SchedMain"},
	{"scheduled_by_backfill", "SchedBackfill"}}

// recordFlags are the parameters by which Slurm tells that its own default, all runs of each job, is not wanted.
var recordFlags = []string{"scheduler_unset", "job_started", skipSteps, withScript,
	"disable_truncate_usage_time", "whole_hetjob", "disable_wait_for_result"}

func recordParams() []string {
	list := []string{"account", "job_name", "partition", "qos", "node", "state", "step", "job_id", "start_time",
		"end_time", "users", "user", "wckey", "cluster", duplicates, "~format"}
	for _, w := range ways {
		list = append(list, w[0])
	}
	return slices.Concat(list, recordFlags, unpicked)
}

// asDuplicates reports whether all runs of a job are wanted. As in Slurm they are, unless there are flags and this is
// none of them.
func (q *request) asDuplicates() bool {
	return q.flag(duplicates) || q.get(duplicates) == "" && !slices.ContainsFunc(recordFlags, q.flag) &&
		!slices.ContainsFunc(ways, func(w [2]string) bool { return q.flag(w[0]) })
}

// scheduled gives which jobs are wanted by how they were started.
func (q *request) scheduled() func(*model.Record) bool {
	var want []string
	for _, w := range ways {
		if q.flag(w[0]) {
			want = append(want, w[1])
		}
	}
	unset := q.flag("scheduler_unset")
	if len(want) == 0 && !unset {
		return nil
	}
	return func(r *model.Record) bool {
		has := strings.Split((&jobtext.RecordRow{Record: r}).Flags(), ",")
		return slices.ContainsFunc(want, func(w string) bool { return slices.Contains(has, w) }) ||
			unset && !slices.ContainsFunc(ways, func(w [2]string) bool { return slices.Contains(has, w[1]) })
	}
}

// dbJobs is GET slurmdb's jobs. As in Slurm, without a time and without jobs it is today's.
func dbJobs(q *request) error {
	rq := &proto.AcctRequest{Accounts: q.words("account"), Partitions: q.words("partition"), Names: q.words("job_name"),
		QOS: q.words("qos"), WCKeys: q.words("wckey"), Duplicates: q.asDuplicates(), Sizes: true}
	if err := q.ours(q.words("cluster")...); err != nil {
		return err
	}
	var err error
	if rq.Nodes, err = hosts(q.words("node")); err != nil {
		return err
	}
	if rq.Users, err = q.users(q.words("users", "user")); err != nil {
		return err
	}
	if rq.Jobs, err = jobRefs(q.words("step", "job_id")); err != nil {
		return err
	}
	if rq.States, err = parseStates(q.words("state")); err != nil {
		return err
	}
	var bound bool
	if rq.Start, bound, err = q.moment("start_time"); err != nil {
		return err
	}
	if rq.End, _, err = q.moment("end_time"); err != nil {
		return err
	}
	for _, name := range unpicked {
		if asks(q.get(name)) {
			return unsupported(name + " selects no records here; account, users, job_name, partition, qos, wckey, node, " +
				"state, start_time and end_time do")
		}
	}
	if !bound && len(rq.Jobs) == 0 {
		now := time.UnixMilli(int64(q.facts.Now))
		rq.Start = model.Time(time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location()).UnixMilli())
	}
	want := recordsWanted{keep: q.scheduled(), noSteps: q.flag(skipSteps)}
	if q.flag(withScript) {
		if len(rq.Jobs) == 0 {
			q.warn(withScript + "= gives the scripts of jobs that step= names")
		}
		want.scripts = q.scripts(rq.Jobs)
	}
	_, err = q.records(rq, want)
	return err
}

// recordChanges reads job_modify.
func recordChanges(o *object) (set keys, err error) {
	if o == nil {
		return nil, badChange("nothing says what to change: " + recordChangesText)
	}
	if c := o.object("comment"); c != nil {
		for _, x := range [][2]string{{"job", model.NotedComment}, {"administrator", model.NotedAdmin},
			{"system", model.NotedSystem}} {
			if v, ok := c.text(x[0]); ok {
				set.add(x[1], v)
			}
		}
	}
	if v, ok := o.text("extra"); ok {
		set.add(model.NotedExtra, v)
	}
	if v, ok := o.value("derived_exit_code"); ok && says(v) {
		if text, ok := exitCode(o.object("derived_exit_code")); ok {
			set.add(model.NotedExitCode, text)
		}
	}
	if v, ok := o.text("wckey"); ok && v != "" {
		set.add(model.NotedWCKey, v)
	}
	for _, x := range [][2]string{{"tres", "what a job had is a fact"}} {
		if v, ok := o.value(x[0]); ok && says(v) {
			return nil, unsupported(o.path + x[0] + ": " + x[1])
		}
	}
	if err := o.top().err; err != nil {
		return nil, err
	}
	if len(set) == 0 {
		return nil, badChange("nothing says what to change: " + recordChangesText)
	}
	return set, nil
}

// recordChangesText says what can be changed of a record.
const recordChangesText = "comment.job, comment.administrator, comment.system, derived_exit_code, extra, " +
	"wckey"

// exitCode reads a process_exit_code as code:signal; false: it says neither.
func exitCode(o *object) (string, bool) {
	if o == nil {
		return "", false
	}
	o.ignore("status")
	code, signal := o.number("return_code"), number{}
	if v, ok := o.value("signal"); ok && says(v) {
		if s := o.object("signal"); s != nil {
			s.ignore("name", "signal_id")
			signal = s.number("id")
			if !signal.set {
				signal = s.number("signal_id")
			}
		}
	}
	return fmt.Sprintf("%d:%d", code.int(), signal.int()), code.set || signal.set
}

// modifyRecords changes jobs' records, and lists whose.
func (q *request) modifyRecords(refs []model.JobRef, set []model.KV) error {
	if len(refs) == 0 {
		return &fault{Number: errBadJob, Text: proto.Text(proto.CodeInvalidJob), Detail: "job_id_list names no job"}
	}
	var reply proto.TargetsReply
	if err := q.ask(proto.KindUpdateJob, &proto.UpdateJobRequest{Action: proto.ActRecord, Set: set,
		Records: &proto.AcctRequest{Jobs: refs}}, &reply); err != nil {
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
	return q.modifyRecords([]model.JobRef{ref}, set)
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
