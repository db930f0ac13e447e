package jobtext

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

func (r *JobRow) JSON(j *slurmjson.Writer, cluster string) {
	sp := r.Spec
	nodes, cpus := r.Size()
	j.Open("", '{')
	j.Str("account", sp.Account)
	j.Time("accrue_time", r.AccrueTime())
	j.Str("admin_comment", r.Comment)
	j.Str("allocating_node", sp.Host)
	if r.ArrayID != 0 {
		j.Count("array_job_id", int64(r.ArrayID))
		j.Count("array_max_tasks", int64(r.Throttle))
	} else {
		j.Unset("array_job_id")
		j.Unset("array_max_tasks")
	}
	if r.OneTask != model.NoTask {
		j.Count("array_task_id", int64(r.OneTask))
	} else {
		j.Unset("array_task_id")
	}
	j.Str("array_task_string", r.SomeTasks.String())
	j.Num("association_id", 0)
	j.Str("batch_features", "")
	j.Bool("batch_flag", true)
	j.Str("batch_host", strings.Replace(r.batchHost(), "n/a", "", 1))
	j.List("flags", nil)
	j.Str("cluster", cluster)
	j.Str("command", sp.Command)
	j.Str("comment", sp.Comment)
	j.Str("container", "")
	j.Bool("contiguous", sp.More != nil && sp.More.Contiguous)
	j.Unset("core_spec")
	j.Unset("cores_per_socket")
	j.Count("billable_tres", int64(cpus))
	j.Count("cpus_per_task", int64(max(1, sp.CPUsPerTask)))
	j.Str("current_working_directory", sp.WorkDir)
	j.Time("deadline", sp.Deadline)
	j.Count("delay_boot", 0)
	j.Str("dependency", depsText(r.Job))
	writeExitJSON(j, "derived_exit_code", nil)
	j.Time("eligible_time", eligible(r.Job))
	r.writeTimesJSON(j)
	j.Str("excluded_nodes", hostlist.Compress(sp.ExcNodes))
	var exit *model.Exit
	if r.End != nil {
		exit = &r.End.Exit
	}
	writeExitJSON(j, "exit_code", exit)
	j.Str("features", sp.Features)
	j.Num("group_id", int64(sp.GID))
	j.Str("group_name", sp.Group)
	j.Bool("hold", r.Hold != model.NotHeld)
	j.Num("job_id", int64(r.ID))
	r.writeResourcesJSON(j, cpus)
	j.Words("job_state", r.jsonStates(j.Old)...)
	j.Str("licenses", licensesText(sp))
	j.Count("max_cpus", int64(cpus))
	j.Count("max_nodes", int64(max(0, sp.MaxNodes)))
	j.Count("minimum_cpus_per_node", r.MinCPUs())
	j.Count("minimum_tmp_disk_per_node", sp.TmpMiB)
	if sp.MemPerCPU > 0 {
		j.Count("memory_per_cpu", sp.MemPerCPU)
		j.Unset("memory_per_node")
	} else {
		j.Unset("memory_per_cpu")
		j.Count("memory_per_node", r.MemMiB())
	}
	j.Str("name", sp.Name)
	j.Str("nodes", r.nodeList())
	j.Num("nice", int64(sp.Nice))
	j.Count("tasks_per_node", int64(sp.TasksPerNode))
	j.Count("cpus", int64(cpus))
	j.Count("node_count", int64(nodes))
	j.Count("tasks", int64(r.numTasks()))
	j.Str("partition", r.partition())
	j.Count("priority", int64(r.ShownPriority()))
	j.Str("qos", sp.QOS)
	j.Bool("reboot", false)
	j.Str("required_nodes", hostlist.Compress(sp.ReqNodes))
	j.Bool("requeue", sp.Requeue)
	j.Num("restart_cnt", int64(r.Restarts))
	j.Str("scheduled_nodes", "")
	j.List("shared", nil)
	out, errFile := r.OutputFiles()
	j.Str("standard_error", errFile)
	j.Str("standard_input", stdinOf(sp))
	j.Str("standard_output", out)
	j.Str("state_description", r.Why)
	j.Str("state_reason", r.Reason.String())
	j.Str("submit_line", sp.Submit)
	j.Unset("threads_per_core")
	j.Str("tres_per_job", gone(r.gres(model.PerJob)))
	j.Str("tres_per_node", gone(r.gres(model.PerNode)))
	j.Str("tres_per_task", gone(r.gres(model.PerTask)))
	asked := *r.Job
	asked.Run = nil
	j.Str("tres_req_str", tresText(&asked))
	held := ""
	if r.Run != nil {
		held = tresText(r.Job)
	}
	j.Str("tres_alloc_str", held)
	j.Num("user_id", int64(sp.UID))
	j.Str("user_name", sp.User)
	j.Str("wckey", "")
	j.Close('}')
}

// signalName gives a signal's name without SIG, or "" for none.
func signalName(n int64) string {
	return strings.TrimPrefix(unix.SignalName(unix.Signal(n)), "SIG")
}

func gone(s string) string {
	if s == "N/A" {
		return ""
	}
	return s
}

func (r *JobRow) writeTimesJSON(j *slurmjson.Writer) {
	var end, deadline model.Time
	if r.Run != nil {
		deadline = r.Run.Deadline()
	}
	if end = deadline; r.End != nil {
		end = r.End.At
	}
	j.Time("end_time", end)
	j.Time("last_sched_evaluation", 0)
	j.Time("preempt_time", 0)
	j.Time("pre_sus_time", 0)
	j.Time("resize_time", 0)
	j.Time("start_time", r.Begins())
	j.Time("submit_time", r.Submit)
	j.Time("suspend_time", 0)
	switch l := r.TimeLimitS(); {
	case l >= model.Unlimited:
		j.Maybe("time_limit", 0, j.Old, true)
	case l == model.NotSet:
		j.Unset("time_limit")
	default:
		j.Count("time_limit", (l+59)/60)
	}
	if m := r.Spec.More; m != nil && m.TimeMinS > 0 {
		j.Count("time_minimum", (m.TimeMinS+59)/60)
	} else {
		j.Unset("time_minimum")
	}
}

// jsonStates gives the base state with its flags behind it.
func (r *JobRow) jsonStates(old bool) []string {
	switch {
	case old:
		return []string{r.State.String()}
	case r.State == model.Completing, r.State == model.Configuring:
		return []string{"RUNNING", r.State.String()}
	}
	return []string{r.State.String()}
}

func writeExitJSON(j *slurmjson.Writer, name string, x *model.Exit) {
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

// writeResourcesJSON writes what the job holds; null while it waits.
func (r *JobRow) writeResourcesJSON(j *slurmjson.Writer, cpus int) {
	if r.Run == nil || r.Run.Alloc == nil {
		if j.Old {
			j.Open("job_resources", '{')
			j.Close('}')
		} else {
			j.Null("job_resources")
		}
		return
	}
	nodes := r.Run.Alloc.Nodes
	j.Open("job_resources", '{')
	if j.Old {
		j.Str("nodes", r.nodeList())
		j.Num("allocated_cpus", int64(cpus))
		j.Num("allocated_hosts", int64(len(nodes)))
		j.Open("allocated_nodes", '{')
		for i := range nodes {
			j.Open(strconv.Itoa(i), '{')
			j.Str("nodename", nodes[i].Node)
			j.Num("cpus", int64(nodes[i].CPUs.Count()))
			j.Num("memory", nodes[i].MemMiB)
			j.Close('}')
		}
		j.Close('}')
		j.Close('}')
		return
	}
	j.List("select_type", nil)
	j.Open("nodes", '{')
	j.Num("count", int64(len(nodes)))
	j.List("select_type", nil)
	j.Str("list", r.nodeList())
	j.Bool("whole", r.Spec.Exclusive)
	j.Open("allocation", '[')
	for i := range nodes {
		n := &nodes[i]
		j.Open("", '{')
		j.Num("index", int64(i))
		j.Str("name", n.Node)
		j.Open("cpus", '{')
		j.Num("count", int64(n.CPUs.Count()))
		j.Num("used", int64(n.CPUs.Count()))
		j.Close('}')
		j.Open("memory", '{')
		j.Num("used", 0)
		j.Num("allocated", n.MemMiB)
		j.Close('}')
		j.Str("gres", gresIndexText(n.Gres))
		j.Close('}')
	}
	j.Close(']')
	j.Close('}')
	j.Num("cpus", int64(cpus))
	j.Close('}')
}
