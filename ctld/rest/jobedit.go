package rest

import (
	"strconv"
	"strings"

	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// jobedit.go turns the change of a job into gcontrol's keys.

// updates are the members of a description that change a job, by gcontrol's keys. Every job has these.
var updates = [][2]string{{"account", "Account"}, {"name", "JobName"}, {"partition", "Partition"}, {"qos", "QOS"}}

// clearable are those that a job can be without: a text that is there and empty takes them away.
var clearable = [][2]string{{"admin_comment", "AdminComment"}, {"comment", "Comment"}, {"constraints", "Features"},
	{"dependency", "Dependency"}, {"licenses", "Licenses"}, {"mail_user", "MailUser"}, {"prefer", "Prefer"},
	{"reservation", "Reservation"}, {"tres_per_job", "TresPerJob"}, {"tres_per_node", "Gres"},
	{"tres_per_task", "TresPerTask"}, {"wckey", "WCKey"}, {"extra", "Extra"}}

// updateNumbers are members that are numbers, in MiB or plain.
var updateNumbers = [][2]string{{"cpus_per_task", "CPUsPerTask"}, {"tasks", "NumTasks"}, {"tasks_per_node",
	"TasksPerNode"},
	{"minimum_cpus_per_node", "MinCPUsNode"}, {"memory_per_node", "MinMemoryNode"}, {"memory_per_cpu", "MinMemoryCPU"},
	{"temporary_disk_per_node", "MinTmpDiskNode"}, {"priority", "Priority"}}

// updateSigned are those that may be below 0.
var updateSigned = [][2]string{{"nice", "Nice"}, {"site_factor", "SiteFactor"}}

// updateJob is POST job/{job_id}.
func updateJob(q *request) error {
	ref, err := jobRef(q.name)
	if err != nil {
		return err
	}
	b, err := q.body()
	if err != nil {
		return err
	}
	if inner := b.object("job"); inner != nil { // some clients send it as for a submission
		b = inner
	}
	var set keys
	for _, x := range updates {
		if v := b.str(x[0]); v != "" {
			set.add(x[1], v)
		}
	}
	for _, x := range clearable {
		if v, ok := b.text(x[0]); ok {
			set.add(x[1], v)
		}
	}
	if v := b.span("nodes"); v != "" {
		set.add("NumNodes", v)
	}
	for _, x := range updateNumbers {
		n := b.count
		if strings.HasPrefix(x[0], "memory_") {
			n = b.memory
		}
		if n := n(x[0]); n.set {
			set.add(x[1], strconv.FormatInt(n.int(), 10))
		}
	}
	for _, x := range updateSigned {
		if n := b.signed(x[0]); n.set {
			set.add(x[1], strconv.FormatInt(n.int(), 10))
		}
	}
	for _, x := range [][2]string{{"time_limit", "TimeLimit"}, {"time_minimum", "TimeMin"}} {
		if n := b.count(x[0]); n.set || n.infinite {
			set.add(x[1], span(n))
		}
	}
	set.moment("StartTime", b.moment("begin_time"))
	if d := b.moment("deadline"); d.set && d.v > 0 {
		set.moment("Deadline", d)
	}
	q.editNodes(b, ref, &set)
	for _, x := range [][2]string{{"required_nodes", "ReqNodeList"}, {"excluded_nodes", "ExcNodeList"}} {
		if list, ok := b.list(x[0]); ok {
			set.add(x[1], strings.Join(list, ","))
		}
	}
	if list, _ := b.list("mail_type"); len(list) > 0 {
		set.add("MailType", strings.Join(list, ","))
	}
	if is, given := b.boolean("contiguous"); given && is {
		set.add("Contiguous", "1")
	}
	if is, given := b.boolean("reboot"); given && is {
		set.add("Reboot", "1")
	}
	if is, given := b.boolean("requeue"); given {
		set.add("Requeue", map[bool]string{true: "1", false: "0"}[is])
	}
	action := proto.JobAction(0)
	if is, given := b.boolean("hold"); given {
		action = map[bool]proto.JobAction{true: proto.ActHold, false: proto.ActRelease}[is]
	}
	b.ignore("job_id", "step_id")
	if err := q.done(b); err != nil {
		return err
	}
	if b.top().err != nil {
		return b.top().err
	}
	var results []proto.TargetResult
	for _, rq := range []*proto.UpdateJobRequest{{Action: proto.ActUpdate, Set: set}, {Action: action}} {
		if rq.Action == 0 || rq.Action == proto.ActUpdate && len(set) == 0 {
			continue
		}
		rq.Targets = []model.JobRef{ref}
		var reply proto.TargetsReply
		if err := q.ask(proto.KindUpdateJob, rq, &reply); err != nil {
			return err
		}
		results = append(results, reply.Results...)
	}
	q.writeResults(results)
	return nil
}

// editNodes adds how many nodes the job is to have: what is not said of least and most stays.
func (q *request) editNodes(b *object, ref model.JobRef, set *keys) {
	least, most := b.count("minimum_nodes"), b.count("maximum_nodes")
	if !least.set && !most.set || b.span("nodes") != "" {
		return
	}
	lo, hi := least.int(), most.int()
	if j := q.facts.Job(ref.Job); j != nil && j.State == model.Pending {
		if !least.set {
			lo = int64(max(1, j.Spec.MinNodes))
		}
		if !most.set {
			hi = int64(j.Spec.MaxNodes)
		}
	}
	v := strconv.FormatInt(max(1, lo), 10)
	if hi > lo || !least.set {
		v += "-" + strconv.FormatInt(hi, 10)
	}
	set.add("NumNodes", v)
}

// writeResults writes what became of each job of an update.
func (q *request) writeResults(results []proto.TargetResult) {
	q.j.Open("results", '[')
	for i := range results {
		r := &results[i]
		number := proto.ErrorNumbers[r.Code]
		if r.Code != 0 {
			f := asFault(rpcError(r), q.op.id(q.ver))
			q.faults, number = append(q.faults, f), f.Number
		}
		q.j.Open("", '{')
		q.j.Num("job_id", int64(r.Ref.Job))
		q.j.Str("step_id", jobtext.RefText(r.Ref))
		q.j.Str("error", map[bool]string{true: "", false: proto.Text(r.Code)}[r.Code == 0])
		q.j.Num("error_code", int64(number))
		q.j.Str("why", r.Text)
		q.j.Close('}')
	}
	q.j.Close(']')
}
