package jobtext

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

// This file owns a job as squeue --json has it: each member once, for every version.

// JobJSON is a job's object.
func JobJSON() []slurmjson.Field[JobRow] {
	return slices.Concat(jobJSONToJobID(), jobJSONFromJobID(), jobMembers())
}

func jobJSONToJobID() []slurmjson.Field[JobRow] {
	return []slurmjson.Field[JobRow]{
		{Name: "account", Str: func(r *JobRow) string { return r.Spec.Account }},
		{Name: "accrue_time", Time: func(r *JobRow) model.Time { return r.AccrueTime() }},
		{Name: "admin_comment", Str: func(r *JobRow) string { return r.AdminText() }},
		{Name: "allocating_node", Str: func(r *JobRow) string { return r.Spec.Host }},
		{Name: "array_job_id", Count: func(r *JobRow) int64 { return int64(r.ArrayID) }},
		{Name: "array_max_tasks", Count: func(r *JobRow) int64 {
			if r.ArrayID == 0 {
				return 0
			}
			return int64(r.Throttle)
		}},
		{Name: "array_task_id", Num: func(r *JobRow) (int64, bool, bool) {
			if r.OneTask == model.NoTask {
				return 0, false, false
			}
			return int64(r.OneTask), true, false
		}},
		{Name: "array_task_string", Str: (*JobRow).tasksText},
		{Name: "association_id", Type: slurmjson.Integer},
		{Name: "batch_features", Str: func(r *JobRow) string { return r.Spec.Stated().BatchNode }},
		{Name: "batch_flag", Bool: func(r *JobRow) bool { return batchFlag(r.Spec) }},
		{Name: "batch_host", Str: func(r *JobRow) string { return gone(r.batchHost()) }},
		{Name: "flags", Since: newFlags, List: (*JobRow).jsonFlags},
		{Name: "flags", Until: oldFlags, List: (*JobRow).oldFlags},
		{Name: "cluster", Str: func(r *JobRow) string { return r.Cluster }},
		{Name: "command", Str: func(r *JobRow) string { return r.Spec.Command }},
		{Name: "comment", Str: func(r *JobRow) string { return r.Spec.Comment }},
		{Name: "container", Str: func(r *JobRow) string { return r.Spec.Extra().Container.Shown() }},
		{Name: "contiguous", Bool: func(r *JobRow) bool { return r.Spec.Extra().Contiguous }},
		{Name: "core_spec", Type: slurmjson.Integer},
		{Name: "cores_per_socket", Num: (*JobRow).coresPerSocket},
		{Name: "billable_tres", Num: func(r *JobRow) (int64, bool, bool) { return r.billing(), r.Run != nil, false }},
		{Name: "cpus_per_task", Count: func(r *JobRow) int64 { return int64(max(1, r.Spec.CPUsPerTask)) }},
		{Name: "current_working_directory", Str: func(r *JobRow) string { return r.Spec.WorkDir }},
		{Name: "deadline", Time: func(r *JobRow) model.Time { return r.Spec.Deadline }},
		{Name: "delay_boot", Count: func(r *JobRow) int64 { return r.Spec.Stated().DelayBootS }},
		{Name: "dependency", Str: func(r *JobRow) string { return depsText(r.Job, r.At) }},
		exitField("derived_exit_code", func(r *JobRow) *model.Exit {
			last := r.LastExit()
			if last == nil {
				return nil
			}
			x := last.Derived()
			return &x
		}),
		{Name: "eligible_time", Time: func(r *JobRow) model.Time { return eligible(r.Job) }},
		{Name: "end_time", Time: (*JobRow).endOrLimit},
		{Name: "last_sched_evaluation", Time: func(r *JobRow) model.Time {
			if r.Run == nil && r.End == nil {
				return 0 // all the time: rows of waiting jobs would differ in each answer
			}
			return lastEval(r.Job, r.At)
		}},
		{Name: "preempt_time", Time: (*JobRow).preemptedAt},
		{Name: "pre_sus_time", Time: func(r *JobRow) model.Time {
			_, before := sleptAt(r.Job)
			return model.Time(before * 1000)
		}},
		{Name: "resize_time", Time: (*JobRow).resizedAt},
		{Name: "start_time", Time: (*JobRow).Begins},
		{Name: "submit_time", Time: func(r *JobRow) model.Time { return r.Submit }},
		{Name: "suspend_time", Time: func(r *JobRow) model.Time {
			at, _ := sleptAt(r.Job)
			return at
		}},
		{Name: "time_limit", Num: func(r *JobRow) (int64, bool, bool) { return minutes(r.TimeLimitS()) }},
		{Name: "time_minimum", Count: func(r *JobRow) int64 { return (r.Spec.Extra().TimeMinS + 59) / 60 }},
		{Name: "excluded_nodes", Str: func(r *JobRow) string { return hostlist.Compress(r.Spec.ExcNodes) }},
		exitField("exit_code", func(r *JobRow) *model.Exit { return r.LastExit() }),
		{Name: "failed_node", Str: func(r *JobRow) string { return r.FailedNode() }, In: slurmjson.InNew},
		{Name: "features", Str: func(r *JobRow) string { return r.Spec.Features }},
		{Name: "group_id", Int: func(r *JobRow) int64 { return int64(r.Spec.GID) }},
		{Name: "group_name", Str: func(r *JobRow) string { return r.Spec.Group }},
		{Name: "het_job_id", Count: func(r *JobRow) int64 {
			if r.Het == nil {
				return 0
			}
			return int64(r.Het.ID)
		}},
		{Name: "het_job_id_set", Str: func(r *JobRow) string {
			if r.Het == nil {
				return ""
			}
			return r.Het.Set()
		}},
		{Name: "het_job_offset", Count: func(r *JobRow) int64 {
			if r.Het == nil {
				return 0
			}
			return int64(r.Het.Offset)
		}},
		{Name: "hold", Bool: func(r *JobRow) bool { return r.Hold != model.NotHeld }},
		{Name: "job_id", Int: func(r *JobRow) int64 { return int64(r.ID) }},
	}
}

func jobJSONFromJobID() []slurmjson.Field[JobRow] {
	return []slurmjson.Field[JobRow]{
		{Name: "job_resources", Put: nothingHeld, If: func(r *JobRow) bool { return !r.holds() }},
		{Name: "job_resources", Fields: resourceFieldsOld(), In: slurmjson.InOld, If: (*JobRow).holds},
		{Name: "job_resources", Fields: resourceFields(), In: slurmjson.InNew, Since: "v0.0.41",
			If: (*JobRow).holds},
		{Name: "job_state", Words: func(r *JobRow) []string { return []string{r.State.String()} }, In: slurmjson.InOld},
		{Name: "job_state", Words: (*JobRow).jsonStates, In: slurmjson.InNew},
		{Name: "licenses", Str: func(r *JobRow) string { return licensesText(r.Spec) }},
		{Name: "max_cpus", Type: slurmjson.Count},
		{Name: "max_nodes", Count: func(r *JobRow) int64 { return int64(max(0, r.Spec.MaxNodes)) }},
		{Name: "minimum_cpus_per_node", Count: (*JobRow).MinCPUs},
		{Name: "minimum_tmp_disk_per_node", Count: func(r *JobRow) int64 { return r.Spec.TmpMiB }},
		{Name: "memory_per_cpu", Num: func(r *JobRow) (int64, bool, bool) {
			perCPU, _ := memoryOf(r.Job, r.askRules())
			return max(0, perCPU), perCPU > 0, false
		}},
		{Name: "memory_per_node", Num: func(r *JobRow) (int64, bool, bool) {
			if perCPU, _ := memoryOf(r.Job, r.askRules()); perCPU > 0 {
				return 0, false, false
			}
			return r.MemMiB(), true, false
		}},
		{Name: "name", Str: func(r *JobRow) string { return r.Spec.Name }},
		{Name: "nodes", Str: (*JobRow).nodeList},
		{Name: "nice", Int: func(r *JobRow) int64 { return int64(r.Spec.Nice) }},
		{Name: "tasks_per_node", Count: func(r *JobRow) int64 { return int64(r.Spec.TasksPerNode) }},
		{Name: "cpus", Count: (*JobRow).numCPUs},
		{Name: "node_count", Count: func(r *JobRow) int64 { n, _ := r.Size(); return int64(n) }},
		{Name: "tasks", Count: func(r *JobRow) int64 { return int64(r.numTasks()) }},
		{Name: "partition", Str: (*JobRow).partition},
		{Name: "priority", Count: func(r *JobRow) int64 { return int64(r.ShownPriority()) }},
		{Name: "qos", Str: func(r *JobRow) string { return r.Spec.QOS }},
		{Name: "reboot", Bool: func(r *JobRow) bool { return r.Spec.Extra().Reboot }},
		{Name: "required_nodes", Str: func(r *JobRow) string { return hostlist.Compress(r.Spec.ReqNodes) }},
		{Name: "requeue", Bool: func(r *JobRow) bool { return r.Spec.Requeue }},
		{Name: "restart_cnt", Int: func(r *JobRow) int64 { return int64(r.Restarts) }},
		{Name: "scheduled_nodes", Str: func(r *JobRow) string { return schedNodes(r.Job) }},
		{Name: "shared", List: (*JobRow).shared},
		{Name: "standard_error", Str: func(r *JobRow) string { _, e := r.OutputFiles(); return e }},
		{Name: "standard_input", Str: func(r *JobRow) string { return stdinOf(r.Spec) }},
		{Name: "standard_output", Str: func(r *JobRow) string { o, _ := r.OutputFiles(); return o }},
		{Name: "state_description", Str: func(r *JobRow) string { return r.Why }},
		{Name: "state_reason", Str: func(r *JobRow) string { return r.ReasonAt(r.At).String() }},
		{Name: "submit_line", Str: func(r *JobRow) string { return r.Spec.Submit }},
		{Name: "threads_per_core", Num: (*JobRow).threadsPerCore},
		{Name: "tres_per_job", Str: func(r *JobRow) string { return gone(r.gres(model.PerJob)) }},
		{Name: "tres_per_node", Str: func(r *JobRow) string { return gone(r.gres(model.PerNode)) }},
		{Name: "tres_per_socket", Str: func(r *JobRow) string { return gone(r.gresPerSocket()) }},
		{Name: "tres_per_task", Str: func(r *JobRow) string { return gone(r.gres(model.PerTask)) }},
		{Name: "tres_req_str", Str: func(r *JobRow) string {
			return askedText(r.Job, r.askRules())
		}},
		{Name: "tres_alloc_str", Str: func(r *JobRow) string {
			if r.Run == nil {
				return ""
			}
			return tresText(r.Job, r.askRules())
		}},
		{Name: "user_id", Int: func(r *JobRow) int64 { return int64(r.Spec.UID) }},
		{Name: "user_name", Str: func(r *JobRow) string { return r.Spec.User }},
		{Name: "wckey", Str: func(r *JobRow) string { return r.Spec.WCKey }},
	}
}

// batchFlag reports whether a job has a batch script of its own, not one that only holds an allocation.
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

// threadsPerCore and coresPerSocket give the least hardware of a node that the job asked for.
func (r *JobRow) threadsPerCore() (int64, bool, bool) { return ifAny(r.Spec.Extra().ThreadsPerCore) }

func (r *JobRow) coresPerSocket() (int64, bool, bool) { return ifAny(r.Spec.Extra().CoresPerSocket) }

// ifAny gives a number of which 0 is none.
func ifAny(n int32) (v int64, set, infinite bool) { return int64(n), n > 0, false }

// resizedAt gives since when the job has had its present nodes; 0: it had no others.
func (r *JobRow) resizedAt() model.Time {
	if r.Run == nil {
		return 0
	}
	return r.Run.Sized
}

// preemptedAt gives when another job took the job's place; 0: none did.
func (r *JobRow) preemptedAt() model.Time {
	if r.Run == nil || r.Run.Stop != model.StopPreempt && r.Run.Stop != model.StopPreemptCancel {
		return 0
	}
	return r.Run.StopAt
}

func (r *JobRow) numCPUs() int64 { _, c := r.Size(); return int64(c) }

// AppendMoment appends what the members of a row have from the time of the answer (View.At): rows of equal jobs with
// equal moments are equal.
func (r *JobRow) AppendMoment(b []byte) []byte {
	b = append(b, r.ReasonAt(r.At).String()...)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Begins()))
	b = binary.BigEndian.AppendUint64(b, uint64(r.endOrLimit())) // that of a suspended job moves
	return append(b, depsText(r.Job, r.At)...)
}

// endOrLimit gives the job's end, or the moment at which its time limit ends it.
func (r *JobRow) endOrLimit() model.Time {
	if r.End == nil && r.Run == nil {
		return 0
	}
	return endOf(r.Job, r.Begins(), r.At)
}

// jsonFlags gives what the job asked for in Slurm's words.
func (r *JobRow) jsonFlags() []string {
	var flags []string
	switch r.Spec.Extra().GresBind {
	case model.BindEnforced:
		flags = append(flags, "GRES_BINDING_ENFORCED")
	case model.BindDisabled:
		flags = append(flags, "GRES_BINDING_DISABLED")
	}
	switch {
	case r.Spec.KillOnDep:
		flags = append(flags, "KILL_INVALID_DEPENDENCY")
	case r.Spec.Extra().KeepOnDep:
		flags = append(flags, "NO_KILL_INVALID_DEPENDENCY")
	}
	for _, x := range []struct {
		is   bool
		word string
	}{{r.Spec.Extra().Spread, "SPREAD_JOB"}, {r.Spec.Extra().FewNodes, "PREFER_MINIMUM_NODE_COUNT"},
		{r.Spec.Extra().Expedite, "EXPEDITED_REQUEUE"}, {r.Spec.Extra().External, "EXTERNAL_JOB"}} {
		if x.is {
			flags = append(flags, x.word)
		}
	}
	if r.Recurs() {
		flags = append(flags, "CRON_JOB")
	}
	return flags
}

// oldFlags is jsonFlags for versions that do not have all of its words, which strict clients refuse there.
func (r *JobRow) oldFlags() []string {
	return slices.DeleteFunc(r.jsonFlags(), func(word string) bool {
		return word == "EXPEDITED_REQUEUE" || word == "EXTERNAL_JOB"
	})
}

// shared gives with whom the job shares its nodes, if it says so.
func (r *JobRow) shared() []string {
	switch {
	case r.Spec.Exclusive:
		return []string{"none"}
	case r.Spec.Extra().ExclusiveUser:
		return []string{"user"}
	case r.Spec.Extra().Share:
		return []string{"oversubscribe"}
	}
	return nil
}

// cronTimes gives when a crontab's job is due.
func (r *JobRow) cronTimes() string {
	if r.Spec.Cron == nil {
		return ""
	}
	return r.Spec.Cron.Times
}

// jsonStates gives the base state followed by its flags.
func (r *JobRow) jsonStates() []string {
	if r.State == model.Completing || r.State == model.Configuring {
		return []string{"RUNNING", r.State.String()}
	}
	if r.Expediting() {
		return []string{r.State.String(), model.ExpeditingText}
	}
	if r.SpecialExit() {
		return []string{r.State.String(), model.SpecialExitText}
	}
	return []string{r.State.String()}
}

// exitField is an exit status: up to v0.0.39 a number, as wait(2) has it.
func exitField[T any](name string, of func(row *T) *model.Exit) slurmjson.Field[T] {
	return slurmjson.Field[T]{Name: name,
		Put: func(w *slurmjson.Writer, name string, row *T) { writeExit(w, name, of(row)) }}
}

// writeExit writes an exit status. What has not ended yet has Slurm's 0, and what a signal ended has no code.
func writeExit(j *slurmjson.Writer, name string, x *model.Exit) {
	var code, signal int64
	status := "SUCCESS"
	switch {
	case x == nil:
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
	if signal != 0 {
		j.Unset("return_code")
	} else {
		j.Count("return_code", code)
	}
	j.Open("signal", '{')
	j.Maybe("id", signal, signal != 0, false)
	j.Str("name", signalName(signal))
	j.Close('}')
	j.Close('}')
}

// holds reports whether the job has nodes.
func (r *JobRow) holds() bool { return r.Run != nil && r.Run.Alloc != nil }

// nothingHeld is the resources of a pending job: an empty object, or null from v0.0.40 on.
func nothingHeld(w *slurmjson.Writer, name string, _ *JobRow) {
	if !w.Old {
		w.Null(name)
		return
	}
	w.Open(name, '{')
	w.Close('}')
}

func resourceFieldsOld() []slurmjson.Field[JobRow] {
	node := []slurmjson.Field[model.NodeAlloc]{
		{Name: "nodename", Str: func(a *model.NodeAlloc) string { return a.Node }},
		{Name: "cpus", Int: func(a *model.NodeAlloc) int64 { return int64(a.CPUs.Count()) }},
		{Name: "memory", Int: func(a *model.NodeAlloc) int64 { return a.MemMiB }},
	}
	return []slurmjson.Field[JobRow]{
		{Name: "nodes", Str: (*JobRow).nodeList},
		{Name: "allocated_cpus", Int: (*JobRow).numCPUs},
		{Name: "allocated_hosts", Int: (*JobRow).numHosts},
		{Name: "allocated_nodes", Put: func(w *slurmjson.Writer, name string, r *JobRow) { // by their numbers
			w.Open(name, '{')
			for i := range r.Run.Alloc.Nodes {
				slurmjson.Write(w, strconv.Itoa(i), node, &r.Run.Alloc.Nodes[i])
			}
			w.Close('}')
		}},
	}
}

func (r *JobRow) numHosts() int64 { return int64(len(r.Run.Alloc.Nodes)) }

// numberedNode is a node of a job with its index.
type numberedNode struct {
	*model.NodeAlloc
	index int
}

func resourceFields() []slurmjson.Field[JobRow] {
	cpus := func(a *numberedNode) int64 { return int64(a.CPUs.Count()) }
	each := func(r *JobRow, add func(*numberedNode)) {
		for i := range r.Run.Alloc.Nodes {
			add(&numberedNode{&r.Run.Alloc.Nodes[i], i})
		}
	}
	return []slurmjson.Field[JobRow]{
		{Name: "select_type", Type: slurmjson.List},
		{Name: "nodes", Fields: []slurmjson.Field[JobRow]{
			{Name: "count", Int: (*JobRow).numHosts},
			{Name: "select_type", Type: slurmjson.List},
			{Name: "list", Str: (*JobRow).nodeList},
			{Name: "whole", Bool: func(r *JobRow) bool { return r.Spec.Exclusive }},
			slurmjson.ListOf("allocation", each, []slurmjson.Field[numberedNode]{
				{Name: "index", Int: func(a *numberedNode) int64 { return int64(a.index) }},
				{Name: "name", Str: func(a *numberedNode) string { return a.Node }},
				{Name: "cpus", Fields: []slurmjson.Field[numberedNode]{{Name: "count", Int: cpus}, {Name: "used", Int: cpus}}},
				{Name: "memory", Fields: []slurmjson.Field[numberedNode]{
					{Name: "used", Type: slurmjson.Integer},
					{Name: "allocated", Int: func(a *numberedNode) int64 { return a.MemMiB }},
				}},
				{Name: "sockets", Type: slurmjson.List}, // which cores of which sockets: gres and cpus say it here
				{Name: "gres", Str: func(a *numberedNode) string { return gresIndexText(a.Gres) }},
			}),
		}},
		{Name: "cpus", Int: (*JobRow).numCPUs},
		{Name: "threads_per_core", Num: (*JobRow).threadsPerCore},
	}
}
