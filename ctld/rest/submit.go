package rest

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/ask"
	jobrequest "gbatch/internal/cli/request"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// submit.go turns a job's description into gsubmit's options, which one table reads for all ways of submitting, and a
// change of a job into gcontrol's keys.

// texts are the members of job_desc_msg that are options of the same meaning.
var texts = [][2]string{{"account", "account"}, {"account_gather_frequency", "acctg-freq"}, {"array", "array"},
	{"comment", "comment"}, {"constraints", "constraint"}, {"dependency", "dependency"},
	{"distribution", "distribution"}, {"licenses", "licenses"}, {"mail_user", "mail-user"}, {"name", "job-name"},
	{"partition", "partition"}, {"prefer", "prefer"}, {"qos", "qos"}, {"reservation", "reservation"},
	{"standard_error", "error"}, {"standard_input", "input"}, {"standard_output", "output"}, {"tres_bind", "tres-bind"},
	{"wckey", "wckey"}, {"memory_binding", "mem-bind"}, {"cpu_binding", "cpu-bind"}, {"tres_freq", "gpu-freq"},
	{"nodes", "nodes"}, {"mcs_label", "mcs-label"}, {"network", "network"}, {"burst_buffer", "bb"},
	{"cpu_frequency", "cpu-freq"}, {"container", "container"}, {"cluster_constraint", "cluster-constraint"}}

// counts are members that are numbers; below 1 they say nothing.
var wholes = [][2]string{{"cpus_per_task", "cpus-per-task"}, {"tasks", "ntasks"}, {"tasks_per_node", "ntasks-per-node"},
	{"tasks_per_socket", "ntasks-per-socket"}, {"tasks_per_core", "ntasks-per-core"}, {"threads_per_core",
		"threads-per-core"},
	{"sockets_per_node", "sockets-per-node"}, {"minimum_cpus_per_node", "mincpus"}, {"temporary_disk_per_node", "tmp"},
	{"ntasks_per_tres", "ntasks-per-gpu"}, {"core_specification", "core-spec"}, {"thread_specification", "thread-spec"},
	{"segment_size", "segment"}}

// flags are members that are true or false.
var booleans = [][2]string{{"contiguous", "contiguous"}, {"hold", "hold"}, {"overcommit", "overcommit"}, {"reboot",
	"reboot"}}

// options gathers --NAME=VALUE words.
type options []string

func (o *options) add(name, value string) { *o = append(*o, "--"+name+"="+value) }
func (o *options) flag(name string)       { *o = append(*o, "--"+name) }

// describe reads a description.
func describe(b *object) (o options, err error) {
	for _, x := range texts {
		if v := b.str(x[0]); v != "" {
			o.add(x[1], v)
		}
	}
	for _, x := range wholes {
		if n := b.number(x[0]); n.set && n.v >= 1 {
			o.add(x[1], strconv.FormatInt(n.int(), 10))
		}
	}
	for _, x := range booleans {
		if is, _ := b.boolean(x[0]); is {
			o.flag(x[1])
		}
	}
	sizes(b, &o)
	moments(b, &o)
	if err := wishes(b, &o); err != nil {
		return nil, err
	}
	return o, b.top().err
}

// sizes reads how many nodes, how much memory, which GPUs.
func sizes(b *object, o *options) {
	least, most := b.number("minimum_nodes"), b.number("maximum_nodes")
	switch {
	case b.str("nodes") != "": // it was read with the texts
	case least.set && least.v >= 1 && most.set && most.v > least.v:
		o.add("nodes", fmt.Sprintf("%d-%d", least.int(), most.int()))
	case least.set && least.v >= 1:
		o.add("nodes", strconv.FormatInt(least.int(), 10))
	case most.set && most.v >= 1:
		o.add("nodes", fmt.Sprintf("1-%d", most.int()))
	}
	if n := b.number("minimum_cpus"); n.set && n.v >= 1 && !b.has("tasks") {
		o.add("ntasks", strconv.FormatInt(n.int(), 10)) // as sbatch does, which sends both
	}
	b.ignore("maximum_cpus")
	for _, x := range [][2]string{{"memory_per_node", "mem"}, {"memory_per_cpu", "mem-per-cpu"}} {
		if n := b.number(x[0]); n.set {
			o.add(x[1], strconv.FormatInt(n.int(), 10)+"M")
		}
	}
	for _, x := range []struct{ name, per string }{{"tres_per_job", "gpus"}, {"tres_per_node", "gres"},
		{"tres_per_socket", "gpus-per-socket"}, {"tres_per_task", "tres-per-task"}} {
		v := b.str(x.name)
		if v == "" {
			continue
		}
		if x.per == "tres-per-task" {
			o.add(x.per, v)
			continue
		}
		v = strings.ReplaceAll(v, "gres/", "")
		v = strings.ReplaceAll(v, "gres:", "")
		if x.per != "gres" {
			v = strings.TrimPrefix(strings.TrimPrefix(v, "gpu:"), "gpu=")
			if v == "gpu" {
				v = "1"
			}
		}
		o.add(x.per, strings.ReplaceAll(v, "=", ":"))
	}
	for _, x := range [][2]string{{"cpus_per_tres", "cpus-per-gpu"}, {"memory_per_tres", "mem-per-gpu"}} {
		if v := b.str(x[0]); v != "" {
			i := strings.LastIndexAny(v, ":=")
			o.add(x[1], v[i+1:])
		}
	}
	for _, x := range [][2]string{{"required_nodes", "nodelist"}, {"excluded_nodes", "exclude"}} {
		if list, ok := b.list(x[0]); ok && len(list) > 0 {
			o.add(x[1], strings.Join(list, ","))
		}
	}
	if n := b.number("required_switches"); n.set && n.v >= 1 {
		v := strconv.FormatInt(n.int(), 10)
		if w := b.number("wait_for_switch"); w.set && w.v > 0 {
			v += "@" + walltime.Elapsed(w.int())
		}
		o.add("switches", v)
	}
	b.ignore("wait_for_switch", "minimum_boards_per_node", "minimum_sockets_per_board", "tasks_per_board")
}

// span writes a limit given in minutes.
func span(n number) string {
	if n.infinite {
		return "UNLIMITED"
	}
	return strconv.FormatInt(n.int(), 10)
}

// moments reads when the job may run and for how long.
func moments(b *object, o *options) {
	for _, x := range [][2]string{{"time_limit", "time"}, {"time_minimum", "time-min"}} {
		if n := b.number(x[0]); n.infinite || n.set && n.v > 0 {
			o.add(x[1], span(n))
		}
	}
	for _, x := range [][2]string{{"begin_time", "begin"}, {"deadline", "deadline"}} {
		if n := b.number(x[0]); n.set && n.v > 0 {
			o.add(x[1], ask.MomentText(model.Time(n.int()*1000)))
		}
	}
	b.ignore("end_time", "delay_boot")
	if s := b.str("kill_warning_signal"); s != "" {
		if flags, _ := b.list("kill_warning_flags"); slices.ContainsFunc(flags, func(f string) bool {
			return strings.EqualFold(f, "BATCH_JOB")
		}) {
			s = "B:" + s
		}
		if d := b.number("kill_warning_delay"); d.set {
			s += "@" + strconv.FormatInt(d.int(), 10)
		}
		o.add("signal", s)
	}
}

// wishes reads what is left.
func wishes(b *object, o *options) error {
	if n := b.number("priority"); n.set {
		o.add("priority", strconv.FormatInt(n.int(), 10))
	}
	if n := b.number("nice"); n.set && n.v != 0 {
		o.add("nice", strconv.FormatInt(n.int(), 10))
	}
	if is, given := b.boolean("requeue"); given {
		o.flag(map[bool]string{true: "requeue", false: "no-requeue"}[is])
	}
	if list, ok := b.list("mail_type"); ok && len(list) > 0 {
		o.add("mail-type", strings.Join(list, ","))
	}
	if list, ok := b.list("profile"); ok && len(list) > 0 && !slices.Contains(list, "NOT_SET") {
		o.add("profile", strings.Join(list, ","))
	}
	if list, ok := b.list("open_mode"); ok && len(list) > 0 {
		o.add("open-mode", strings.ToLower(list[0]))
	}
	if n := b.number("oom_kill_step"); n.set {
		o.add("oom-kill-step", strconv.FormatInt(n.int(), 10))
	}
	shared, _ := b.list("shared")
	for _, s := range shared {
		switch strings.ToLower(s) {
		case "none", "exclusive":
			o.flag("exclusive")
		case "user":
			o.add("exclusive", "user")
		case "oversubscribe":
			o.flag("oversubscribe")
		case "":
		default:
			return unsupported("shared: '" + s + "' is not known here; none and oversubscribe are")
		}
	}
	list, _ := b.list("flags")
	for _, f := range list {
		switch strings.ToUpper(f) {
		case "KILL_INVALID_DEPENDENCY":
			o.add("kill-on-invalid-dep", "yes")
		case "NO_KILL_INVALID_DEPENDENCY":
			o.add("kill-on-invalid-dep", "no")
		case "GRES_ENFORCE_BINDING", "GRES_BINDING_ENFORCED", "ENFORCE_BINDING":
			o.add("gres-flags", "enforce-binding")
		case "GRES_DISABLE_BINDING", "GRES_BINDING_DISABLED":
			o.add("gres-flags", "disable-binding")
		case "SPREAD_JOB":
			o.flag("spread-job")
		case "USE_MINIMUM_NODES":
			o.flag("use-min-nodes")
		case "TEST_NOW_ONLY", "EXTERNAL_JOB": // see submission
		case "HAS_STATE_DIRECTORY", "BACKFILL_TEST", "BACKFILL_ATTEMPTED", "SCHEDULING_ATTEMPTED", "STEPMGR_ENABLED",
			"JOB_ACCRUE_TIME_RESET", "":
			// what the cluster says of jobs
		default:
			return unsupported("flags: '" + f + "' is not known here")
		}
	}
	is, given := b.boolean("kill_on_node_fail")
	if given && !is {
		o.flag("no-kill")
	}
	b.ignore("kill_on_node_fail", "immediate", "spank_environment", "extra", "allocation_node_list",
		"allocation_node_port",
		"cpu_binding_flags", "memory_binding_type", "hetjob_group", "site_factor", "step_id", "job_id", "reserve_ports",
		"x11", "x11_magic_cookie", "x11_target_host", "x11_target_port", "power_flags", "wait_all_nodes", "batch_features",
		"clusters", "container_id", "selinux_context", "admin_comment")
	return nil
}

// external is the script of a job whose processes are somebody else's: it holds the resources until it is ended.
const external = "#!/bin/sh\n# A job whose processes another system runs (EXTERNAL_JOB).\nexec sleep infinity\n"

// submission makes a submission of a description. script stands beside the description in older forms.
func (q *request) submission(b *object, script string) (*proto.SubmitRequest, error) {
	opts, err := describe(b)
	if err != nil {
		return nil, err
	}
	outside := hasFlag(b, "EXTERNAL_JOB")
	s, err := jobrequest.From(opts, func(v string) (model.Time, error) {
		t, ok := ask.ParseMoment(v)
		if !ok {
			return 0, fmt.Errorf("'%s' is no number of seconds since 1970", v)
		}
		return t, nil
	})
	if err != nil {
		return nil, &fault{Number: errUnexpected, Text: "Invalid job description", Detail: err.Error()}
	}
	sp := &s.Spec
	if v := b.str("script"); v != "" {
		script = v
	}
	env, given := b.list("environment")
	switch {
	case outside && script != "":
		return nil, &fault{Number: 2189, Text: "Invalid external job",
			Detail: "a job with the flag EXTERNAL_JOB has no script"}
	case outside:
		script = external
	case script == "":
		return nil, &fault{Number: errNoScript, Detail: "the job has no script", Status: http.StatusUnprocessableEntity}
	case !given || len(env) == 0:
		return nil, &fault{Number: errNoEnvironment,
			Detail: "environment needs at least one variable, such as PATH=/bin:/usr/bin"}
	}
	var vars []byte
	for _, kv := range env {
		if strings.ContainsRune(kv, 0) || !strings.Contains(kv, "=") {
			return nil, &fault{Number: errConversion, Detail: "environment: '" + kv + "' is not NAME=value",
				Status: http.StatusBadRequest}
		}
		vars = append(append(vars, kv...), 0)
	}
	sp.WorkDir = b.str("current_working_directory")
	if sp.WorkDir == "" {
		sp.WorkDir = "/tmp"
	} else {
		sp.WorkDir = path.Clean(sp.WorkDir)
	}
	if sp.Name == "" {
		sp.Name = "openapi"
	}
	sp.Args, _ = b.list("argv")
	if len(sp.Args) > 0 {
		sp.Command, sp.Args = sp.Args[0], sp.Args[1:]
	}
	if outside {
		if sp.More == nil {
			sp.More = &s.More
		}
		sp.More.Interactive, sp.StdOut, sp.Requeue, sp.NoRequeue = true, "/dev/null", false, true
	}
	sp.Umask = 0o022
	sp.Submit = "POST " + q.r.URL.Path
	sp.Submit = sp.Submit[:min(len(sp.Submit), proto.MaxFieldBytes)]
	if l := b.object("rlimits"); l != nil {
		l.m, l.read = map[string]any{}, map[string]bool{}
		q.warn("rlimits: jobs have their node's limits")
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	return &proto.SubmitRequest{RequestID: hex.EncodeToString(id[:]), Spec: sp, Script: []byte(script), Env: vars,
		TestOnly: hasFlag(b, "TEST_NOW_ONLY")}, b.top().err
}

func hasFlag(b *object, name string) bool {
	list, _ := b.list("flags")
	return slices.ContainsFunc(list, func(f string) bool { return strings.EqualFold(f, name) })
}

// as makes the request one of the user whom the description names, if the caller may name others.
func (q *request) as(b *object) error {
	user := b.str("user_id")
	group := b.str("group_id")
	if user == "" || user == q.who.User || user == strconv.FormatUint(uint64(q.who.UID), 10) {
		if group != "" && group != q.who.Group && group != strconv.FormatUint(uint64(q.who.GID), 10) {
			return unsupported("group_id: a job runs with its user's own group")
		}
		return nil
	}
	if !q.s.o.Cluster.Trusted(q.who) {
		return &fault{Number: 2168, Text: "Invalid user id", Detail: "user_id: a job is submitted for oneself",
			Status: http.StatusForbidden}
	}
	who, err := q.s.o.Cluster.User(q.ctx, user)
	if err != nil {
		return err
	}
	q.who = who
	return nil
}

func submitJob(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	script := b.str("script")
	job := b.object("job")
	if parts := b.objects("jobs"); len(parts) > 0 {
		if len(parts) > 1 || job != nil {
			return unsupported(jobrequest.NoHet("jobs"))
		}
		job = parts[0]
	}
	if job == nil {
		if b.err != nil {
			return b.err
		}
		return &fault{Number: 9002, Text: "Invalid job description", Detail: "the body has no job"}
	}
	if err := q.as(job); err != nil {
		return err
	}
	admin := job.str("admin_comment")
	rq, err := q.submission(job, script)
	if err != nil {
		return err
	}
	if err := q.done(b); err != nil {
		return err
	}
	var reply proto.SubmitReply
	if err := q.ask(proto.KindSubmit, rq, &reply); err != nil {
		return err
	}
	for _, n := range reply.Notes {
		q.warn(n)
	}
	if admin != "" {
		var done proto.TargetsReply
		if err := q.ask(proto.KindUpdateJob, &proto.UpdateJobRequest{Action: proto.ActUpdate,
			Targets: []proto.JobRef{{Job: reply.Job, Task: model.NoTask}},
			Set:     []model.KV{{Key: "AdminComment", Value: admin}}}, &done); err != nil {
			q.warn("admin_comment: " + err.Error())
		}
	}
	if rq.TestOnly {
		q.j.Str("job_submit_user_msg", fmt.Sprintf("Job to start at %s using %d processors on nodes %s in partition %s",
			time.UnixMilli(int64(reply.TestStart)).UTC().Format(time.RFC3339), reply.TestCPUs, reply.TestNodes,
			reply.TestPart))
		return nil
	}
	q.j.Num("job_id", int64(reply.Job))
	q.j.Str("step_id", "batch")
	q.j.Str("job_submit_user_msg", strings.Join(reply.Notes, "\n"))
	return nil
}

// updates are the members of a description that change a job, by gcontrol's keys.
var updates = [][2]string{{"account", "Account"}, {"admin_comment", "AdminComment"}, {"comment", "Comment"},
	{"constraints", "Features"}, {"dependency", "Dependency"}, {"licenses", "Licenses"}, {"mail_user", "MailUser"},
	{"name", "JobName"}, {"nodes", "NumNodes"}, {"partition", "Partition"}, {"prefer", "Prefer"}, {"qos", "QOS"},
	{"reservation", "Reservation"}, {"tres_per_job", "TresPerJob"}, {"tres_per_node", "Gres"},
	{"tres_per_task", "TresPerTask"}, {"wckey", "WCKey"}, {"extra", "Extra"}}

var updateNumbers = [][2]string{{"cpus_per_task", "CPUsPerTask"}, {"tasks", "NumTasks"}, {"tasks_per_node",
	"TasksPerNode"},
	{"minimum_cpus_per_node", "MinCPUsNode"}, {"memory_per_node", "MinMemoryNode"}, {"memory_per_cpu", "MinMemoryCPU"},
	{"temporary_disk_per_node", "MinTmpDiskNode"}, {"priority", "Priority"}, {"nice", "Nice"}, {"site_factor",
		"SiteFactor"}}

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
	for _, x := range updateNumbers {
		if n := b.number(x[0]); n.set {
			set.add(x[1], strconv.FormatInt(n.int(), 10))
		}
	}
	for _, x := range [][2]string{{"time_limit", "TimeLimit"}, {"time_minimum", "TimeMin"}} {
		if n := b.number(x[0]); n.set || n.infinite {
			set.add(x[1], span(n))
		}
	}
	set.moment("StartTime", b.number("begin_time"))
	if d := b.number("deadline"); d.set && d.v > 0 {
		set.moment("Deadline", d)
	}
	if least := b.number("minimum_nodes"); least.set && !b.has("nodes") {
		v := strconv.FormatInt(least.int(), 10)
		if most := b.number("maximum_nodes"); most.set && most.v > least.v {
			v += "-" + strconv.FormatInt(most.int(), 10)
		}
		set.add("NumNodes", v)
	}
	b.ignore("maximum_nodes")
	for _, x := range [][2]string{{"required_nodes", "ReqNodeList"}, {"excluded_nodes", "ExcNodeList"}, {"mail_type",
		"MailType"}} {
		if list, ok := b.list(x[0]); ok && len(list) > 0 {
			set.add(x[1], strings.Join(list, ","))
		}
	}
	if is, given := b.boolean("contiguous"); given && is {
		set.add("Contiguous", "1")
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
		rq.Targets = []proto.JobRef{ref}
		var reply proto.TargetsReply
		if err := q.ask(proto.KindUpdateJob, rq, &reply); err != nil {
			return err
		}
		results = append(results, reply.Results...)
	}
	q.writeResults(results)
	return nil
}

// writeResults writes what became of each job of an update.
func (q *request) writeResults(results []proto.TargetResult) {
	q.j.Open("results", '[')
	for i := range results {
		r := &results[i]
		number := codes[r.Code]
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
