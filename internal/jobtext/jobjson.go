package jobtext

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

// This file owns a job as squeue --json has it: each member once, for every version.

// JobFields is a job's object.
func JobFields() []slurmjson.Field[JobRow] {
	f := slurmjson.Of[JobRow]{}
	return []slurmjson.Field[JobRow]{
		f.Str("account", func(r *JobRow) string { return r.Spec.Account }),
		f.Time("accrue_time", func(r *JobRow) model.Time { return r.AccrueTime() }),
		f.Str("admin_comment", func(r *JobRow) string { return r.Comment }),
		f.Str("allocating_node", func(r *JobRow) string { return r.Spec.Host }),
		f.Maybe("array_job_id", func(r *JobRow) (int64, bool) { return int64(r.ArrayID), r.ArrayID != 0 }),
		f.Maybe("array_max_tasks", func(r *JobRow) (int64, bool) {
			if r.ArrayID == 0 {
				return 0, false
			}
			return int64(r.Throttle), true
		}),
		f.Maybe("array_task_id", func(r *JobRow) (int64, bool) {
			if r.OneTask == model.NoTask {
				return 0, false
			}
			return int64(r.OneTask), true
		}),
		f.Str("array_task_string", func(r *JobRow) string { return r.SomeTasks.String() }),
		f.NumIs("association_id", 0),
		f.StrIs("batch_features", ""),
		f.Bool("batch_flag", func(r *JobRow) bool { return batchFlag(r.Spec) }),
		f.Str("batch_host", func(r *JobRow) string { return gone(r.batchHost()) }),
		f.NoList("flags"),
		f.Str("cluster", func(r *JobRow) string { return r.Cluster }),
		f.Str("command", func(r *JobRow) string { return r.Spec.Command }),
		f.Str("comment", func(r *JobRow) string { return r.Spec.Comment }),
		f.StrIs("container", ""),
		f.Bool("contiguous", func(r *JobRow) bool { return r.Spec.Extra().Contiguous }),
		f.Missing("core_spec"),
		f.Missing("cores_per_socket"),
		f.Count("billable_tres", (*JobRow).numCPUs),
		f.Count("cpus_per_task", func(r *JobRow) int64 { return int64(max(1, r.Spec.CPUsPerTask)) }),
		f.Str("current_working_directory", func(r *JobRow) string { return r.Spec.WorkDir }),
		f.Time("deadline", func(r *JobRow) model.Time { return r.Spec.Deadline }),
		f.CountIs("delay_boot", 0),
		f.Str("dependency", func(r *JobRow) string { return depsText(r.Job) }),
		exitField("derived_exit_code", func(*JobRow) *model.Exit { return nil }),
		f.Time("eligible_time", func(r *JobRow) model.Time { return eligible(r.Job) }),
		f.Time("end_time", (*JobRow).endOrLimit),
		f.NoTime("last_sched_evaluation"),
		f.NoTime("preempt_time"),
		f.NoTime("pre_sus_time"),
		f.NoTime("resize_time"),
		f.Time("start_time", (*JobRow).Begins),
		f.Time("submit_time", func(r *JobRow) model.Time { return r.Submit }),
		f.NoTime("suspend_time"),
		f.Limit("time_limit", func(r *JobRow) (int64, bool, bool) { return minutes(r.TimeLimitS()) }),
		f.Maybe("time_minimum", func(r *JobRow) (int64, bool) {
			s := r.Spec.Extra().TimeMinS
			return (s + 59) / 60, s > 0
		}),
		f.Str("excluded_nodes", func(r *JobRow) string { return hostlist.Compress(r.Spec.ExcNodes) }),
		exitField("exit_code", func(r *JobRow) *model.Exit {
			if r.End == nil {
				return nil
			}
			return &r.End.Exit
		}),
		f.Str("features", func(r *JobRow) string { return r.Spec.Features }),
		f.Num("group_id", func(r *JobRow) int64 { return int64(r.Spec.GID) }),
		f.Str("group_name", func(r *JobRow) string { return r.Spec.Group }),
		f.Bool("hold", func(r *JobRow) bool { return r.Hold != model.NotHeld }),
		f.Num("job_id", func(r *JobRow) int64 { return int64(r.ID) }),
		f.Special("job_resources", nothingHeld).If(func(r *JobRow) bool { return !r.holds() }),
		f.Object("job_resources", resourceFieldsOld()...).Old().If((*JobRow).holds),
		f.Object("job_resources", resourceFields()...).New().If((*JobRow).holds),
		f.Words("job_state", func(r *JobRow) []string { return []string{r.State.String()} }).Old(),
		f.Words("job_state", (*JobRow).jsonStates).New(),
		f.Str("licenses", func(r *JobRow) string { return licensesText(r.Spec) }),
		f.Count("max_cpus", (*JobRow).numCPUs),
		f.Count("max_nodes", func(r *JobRow) int64 { return int64(max(0, r.Spec.MaxNodes)) }),
		f.Count("minimum_cpus_per_node", (*JobRow).MinCPUs),
		f.Count("minimum_tmp_disk_per_node", func(r *JobRow) int64 { return r.Spec.TmpMiB }),
		f.Maybe("memory_per_cpu", func(r *JobRow) (int64, bool) { return max(0, r.Spec.MemPerCPU), r.Spec.MemPerCPU > 0 }),
		f.Maybe("memory_per_node", func(r *JobRow) (int64, bool) {
			if r.Spec.MemPerCPU > 0 {
				return 0, false
			}
			return r.MemMiB(), true
		}),
		f.Str("name", func(r *JobRow) string { return r.Spec.Name }),
		f.Str("nodes", (*JobRow).nodeList),
		f.Num("nice", func(r *JobRow) int64 { return int64(r.Spec.Nice) }),
		f.Count("tasks_per_node", func(r *JobRow) int64 { return int64(r.Spec.TasksPerNode) }),
		f.Count("cpus", (*JobRow).numCPUs),
		f.Count("node_count", func(r *JobRow) int64 { n, _ := r.Size(); return int64(n) }),
		f.Count("tasks", func(r *JobRow) int64 { return int64(r.numTasks()) }),
		f.Str("partition", (*JobRow).partition),
		f.Count("priority", func(r *JobRow) int64 { return int64(r.ShownPriority()) }),
		f.Str("qos", func(r *JobRow) string { return r.Spec.QOS }),
		f.BoolIs("reboot", false),
		f.Str("required_nodes", func(r *JobRow) string { return hostlist.Compress(r.Spec.ReqNodes) }),
		f.Bool("requeue", func(r *JobRow) bool { return r.Spec.Requeue }),
		f.Num("restart_cnt", func(r *JobRow) int64 { return int64(r.Restarts) }),
		f.StrIs("scheduled_nodes", ""),
		f.NoList("shared"),
		f.Str("standard_error", func(r *JobRow) string { _, e := r.OutputFiles(); return e }),
		f.Str("standard_input", func(r *JobRow) string { return stdinOf(r.Spec) }),
		f.Str("standard_output", func(r *JobRow) string { o, _ := r.OutputFiles(); return o }),
		f.Str("state_description", func(r *JobRow) string { return r.Why }),
		f.Str("state_reason", func(r *JobRow) string { return r.Reason.String() }),
		f.Str("submit_line", func(r *JobRow) string { return r.Spec.Submit }),
		f.Missing("threads_per_core"),
		f.Str("tres_per_job", func(r *JobRow) string { return gone(r.gres(model.PerJob)) }),
		f.Str("tres_per_node", func(r *JobRow) string { return gone(r.gres(model.PerNode)) }),
		f.Str("tres_per_task", func(r *JobRow) string { return gone(r.gres(model.PerTask)) }),
		f.Str("tres_req_str", func(r *JobRow) string {
			asked := *r.Job
			asked.Run = nil
			return tresText(&asked)
		}),
		f.Str("tres_alloc_str", func(r *JobRow) string {
			if r.Run == nil {
				return ""
			}
			return tresText(r.Job)
		}),
		f.Num("user_id", func(r *JobRow) int64 { return int64(r.Spec.UID) }),
		f.Str("user_name", func(r *JobRow) string { return r.Spec.User }),
		f.StrIs("wckey", ""),
	}
}

// batchFlag reports whether a job has a script of its own, and not one that only holds an allocation.
func batchFlag(sp *model.Spec) bool { return !sp.Extra().Interactive }

// signalName gives a signal's name without SIG, or "" for none.
func signalName(n int64) string {
	return strings.TrimPrefix(unix.SignalName(unix.Signal(n)), "SIG")
}

// gone gives "" for the word that stands for no value.
func gone(s string) string {
	if s == "N/A" || s == "n/a" {
		return ""
	}
	return s
}

// minutes gives a limit in whole minutes.
func minutes(s int64) (v int64, set, infinite bool) {
	switch {
	case s >= model.Unlimited:
		return 0, false, true
	case s == model.NotSet:
		return 0, false, false
	}
	return (s + 59) / 60, true, false
}

func (r *JobRow) numCPUs() int64 { _, c := r.Size(); return int64(c) }

// endOrLimit gives when the job ended, or will by its time limit.
func (r *JobRow) endOrLimit() model.Time {
	switch {
	case r.End != nil:
		return r.End.At
	case r.Run != nil:
		return r.Run.Deadline()
	}
	return 0
}

// jsonStates gives the base state with its flags behind it.
func (r *JobRow) jsonStates() []string {
	if r.State == model.Completing || r.State == model.Configuring {
		return []string{"RUNNING", r.State.String()}
	}
	return []string{r.State.String()}
}

// exitField is an exit status: up to v0.0.39 a number, as wait(2) has it.
func exitField[T any](name string, of func(row *T) *model.Exit) slurmjson.Field[T] {
	return slurmjson.Of[T]{}.Special(name, func(w *slurmjson.Writer, name string, row *T) { writeExit(w, name, of(row)) })
}

func writeExit(j *slurmjson.Writer, name string, x *model.Exit) {
	var code, signal int64
	status := "SUCCESS"
	switch {
	case x == nil:
		status = "PENDING"
	case x.Signal != 0:
		code, signal, status = int64(x.Code), int64(x.Signal), "SIGNALED"
	case x.Code != 0:
		code, status = int64(x.Code), "ERROR"
	}
	if j.Old {
		j.Num(name, code<<8|signal)
		return
	}
	j.Open(name, '{')
	j.List("status", []string{status})
	j.Maybe("return_code", code, x != nil, false)
	j.Open("signal", '{')
	j.Maybe("id", signal, signal != 0, false)
	j.Str("name", signalName(signal))
	j.Close('}')
	j.Close('}')
}

// holds reports whether the job has nodes.
func (r *JobRow) holds() bool { return r.Run != nil && r.Run.Alloc != nil }

// nothingHeld is the resources of a job that waits: an empty object, or from v0.0.40 on null.
func nothingHeld(w *slurmjson.Writer, name string, _ *JobRow) {
	if !w.Old {
		w.Null(name)
		return
	}
	w.Open(name, '{')
	w.Close('}')
}

func resourceFieldsOld() []slurmjson.Field[JobRow] {
	f := slurmjson.Of[JobRow]{}
	n := slurmjson.Of[model.NodeAlloc]{}
	node := []slurmjson.Field[model.NodeAlloc]{
		n.Str("nodename", func(a *model.NodeAlloc) string { return a.Node }),
		n.Num("cpus", func(a *model.NodeAlloc) int64 { return int64(a.CPUs.Count()) }),
		n.Num("memory", func(a *model.NodeAlloc) int64 { return a.MemMiB }),
	}
	return []slurmjson.Field[JobRow]{
		f.Str("nodes", (*JobRow).nodeList),
		f.Num("allocated_cpus", (*JobRow).numCPUs),
		f.Num("allocated_hosts", (*JobRow).numHosts),
		f.Special("allocated_nodes", func(w *slurmjson.Writer, name string, r *JobRow) { // by their numbers
			w.Open(name, '{')
			for i := range r.Run.Alloc.Nodes {
				slurmjson.Write(w, strconv.Itoa(i), node, &r.Run.Alloc.Nodes[i])
			}
			w.Close('}')
		}),
	}
}

func (r *JobRow) numHosts() int64 { return int64(len(r.Run.Alloc.Nodes)) }

// numberedNode is a node of a job with its place among them.
type numberedNode struct {
	*model.NodeAlloc
	index int
}

func resourceFields() []slurmjson.Field[JobRow] {
	f := slurmjson.Of[JobRow]{}
	n := slurmjson.Of[numberedNode]{}
	cpus := func(a *numberedNode) int64 { return int64(a.CPUs.Count()) }
	each := func(r *JobRow, add func(*numberedNode)) {
		for i := range r.Run.Alloc.Nodes {
			add(&numberedNode{&r.Run.Alloc.Nodes[i], i})
		}
	}
	return []slurmjson.Field[JobRow]{
		f.NoList("select_type"),
		f.Object("nodes",
			f.Num("count", (*JobRow).numHosts),
			f.NoList("select_type"),
			f.Str("list", (*JobRow).nodeList),
			f.Bool("whole", func(r *JobRow) bool { return r.Spec.Exclusive }),
			slurmjson.ObjectsOf("allocation", each,
				n.Num("index", func(a *numberedNode) int64 { return int64(a.index) }),
				n.Str("name", func(a *numberedNode) string { return a.Node }),
				n.Object("cpus", n.Num("count", cpus), n.Num("used", cpus)),
				n.Object("memory", n.NumIs("used", 0), n.Num("allocated", func(a *numberedNode) int64 { return a.MemMiB })),
				n.Str("gres", func(a *numberedNode) string { return gresIndexText(a.Gres) }))),
		f.Num("cpus", (*JobRow).numCPUs),
	}
}
