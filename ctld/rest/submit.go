package rest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
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
	{"mcs_label", "mcs-label"}, {"network", "network"}, {"burst_buffer", "bb"},
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
		if n := b.count(x[0]); n.set && n.v >= 1 {
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
	least, most, nodes := b.count("minimum_nodes"), b.count("maximum_nodes"), b.span("nodes")
	switch {
	case nodes != "":
		o.add("nodes", nodes)
	case least.set && least.v >= 1 && most.set && most.v > least.v:
		o.add("nodes", fmt.Sprintf("%d-%d", least.int(), most.int()))
	case least.set && least.v >= 1:
		o.add("nodes", strconv.FormatInt(least.int(), 10))
	case most.set && most.v >= 1:
		o.add("nodes", fmt.Sprintf("1-%d", most.int()))
	}
	if n := b.count("minimum_cpus"); n.set && n.v >= 1 && !b.has("tasks") {
		o.add("ntasks", strconv.FormatInt(n.int(), 10)) // as sbatch does, which sends both
	}
	b.ignore("maximum_cpus")
	for _, x := range [][2]string{{"memory_per_node", "mem"}, {"memory_per_cpu", "mem-per-cpu"}} {
		if n := b.memory(x[0]); n.set {
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
	if n := b.count("required_switches"); n.set && n.v >= 1 {
		v := strconv.FormatInt(n.int(), 10)
		if w := b.count("wait_for_switch"); w.set && w.v > 0 {
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
		if n := b.count(x[0]); n.infinite || n.set && n.v > 0 {
			o.add(x[1], span(n))
		}
	}
	for _, x := range [][2]string{{"begin_time", "begin"}, {"deadline", "deadline"}} {
		if n := b.moment(x[0]); n.set && n.v > 0 {
			o.add(x[1], ask.MomentText(model.Time(n.int()*1000)))
		}
	}
	b.ignore("end_time", "delay_boot")
	if s := b.str("kill_warning_signal"); s != "" {
		flags, _ := b.list("kill_warning_flags")
		has := func(flag string) bool {
			return slices.ContainsFunc(flags, func(f string) bool { return strings.EqualFold(f, flag) })
		}
		switch batch, yields := has("BATCH_JOB"), has("RESERVATION_JOB"); {
		case batch && yields:
			s = "RB:" + s
		case batch:
			s = "B:" + s
		case yields:
			s = "R:" + s
		}
		if d := b.count("kill_warning_delay"); d.set {
			s += "@" + strconv.FormatInt(d.int(), 10)
		}
		o.add("signal", s)
	}
	for _, name := range [...]string{"elastic", "elastic_signal", "elastic_grace"} { // gbatch's own
		if s := b.str(name); s != "" {
			o.add(strings.ReplaceAll(name, "_", "-"), s)
		}
	}
}

// refusedMembers are members of a description that mean something that is not done here, and what to do instead.
var refusedMembers = [][2]string{
	{"immediate", "a job waits until it can start; submit it with the flag TEST_NOW_ONLY to see when that is"},
	{"spank_environment", "there are no SPANK plugins here; use environment"},
	{"extra", "nodes are not chosen by it; use constraints"},
	{"reserve_ports", "let the program pick a free port"},
	{"x11", "use ssh -X to the node"},
	{"batch_features", "the script runs on the first node of the job; use constraints"},
	{"container_id", "containers are of jobs and steps, and have no numbers"},
	{"selinux_context", "jobs have the context of their node's daemon"},
	{"site_factor", "it is set for a job that is there: POST job/{job_id}, by operators"},
	{"power_flags", "leave it out"},
	{"crontab", "jobs come back by gcrontab"},
	{"cpu_binding_flags", "use cpu_binding, with its words"},
	{"memory_binding_type", "use memory_binding, with its words"},
}

// wishes reads what is left.
func wishes(b *object, o *options) error {
	if n := b.count("priority"); n.set {
		o.add("priority", strconv.FormatInt(n.int(), 10))
	}
	if n := b.signed("nice"); n.set && n.v != 0 {
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
	if n := b.count("oom_kill_step"); n.set {
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
		case "PREFER_MINIMUM_NODE_COUNT", "USE_MINIMUM_NODES":
			o.flag("use-min-nodes")
		case "EXPEDITED_REQUEUE":
			o.add("requeue", "expedite")
		case "TEST_NOW_ONLY", "EXTERNAL_JOB": // see submission
		case "TESTING_BACKFILL", "TESTING_WHOLE_NODE_BACKFILL", "SEND_JOB_ENVIRONMENT", "JOB_KILL_HURRY",
			"SKIP_TRES_STRING_ACCOUNTING", "SIBLING_CLUSTER_UPDATE_ONLY", "HETEROGENEOUS_JOB", "EXACT_TASK_COUNT_REQUESTED",
			"EXACT_CPU_COUNT_REQUESTED", "EXACT_MEMORY_REQUESTED", "ACCRUE_COUNT_CLEARED", "JOB_WAS_RUNNING",
			"USING_DEFAULT_ACCOUNT", "USING_DEFAULT_PARTITION", "USING_DEFAULT_QOS", "USING_DEFAULT_WCKEY", "DEPENDENT",
			"MAGNETIC", "PARTITION_ASSIGNED", "HAS_STATE_DIRECTORY", "BACKFILL_TEST",
			"BACKFILL_ATTEMPTED", "SCHEDULING_ATTEMPTED", "STEPMGR_ENABLED",
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
	for _, x := range refusedMembers {
		if v, ok := b.value(x[0]); ok && says(v) {
			return unsupported(b.path + x[0] + ": " + x[1])
		}
	}
	// Addresses of the client, what the cluster says of a job, and what this cluster does in any case.
	b.ignore("kill_on_node_fail", "allocation_node_list", "allocation_node_port", "hetjob_group", "step_id", "job_id",
		"wait_all_nodes", "admin_comment", "clusters")
	return nil
}
