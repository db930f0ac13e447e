package cli

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/client"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// printJSON prints the jobs as squeue --json does, in the controller's order, as they come.
func (q *queue) printJSON(view *queueView) error {
	cluster, err := q.cluster()
	if err != nil {
		return err
	}
	j := q.jsonFrame("jobs", q.json)
	err = q.each(view, func(r *queueRow) {
		r.writeJSON(j, cluster)
		j.flush(false)
	})
	if err != nil {
		return err
	}
	if err := q.jsonFinish(j, cluster, view.at); err != nil {
		return complaint{err.Error()}
	}
	return nil
}

// cluster asks for the cluster's name.
func (e *Env) cluster() (string, error) {
	c, err := e.connect()
	if err != nil {
		return "", complaint{text(err)}
	}
	defer c.Close()
	return clusterName(c)
}

func clusterName(c *client.Client) (string, error) {
	var ping proto.PingReply
	err := c.Call(proto.KindPing, &proto.Empty{}, &ping)
	return ping.Cluster, err
}

func (r *queueRow) writeJSON(j *jsonText, cluster string) {
	sp := r.Spec
	nodes, cpus := r.size()
	j.open("", '{')
	j.str("account", sp.Account)
	j.time("accrue_time", r.AccrueTime())
	j.str("admin_comment", r.Comment)
	j.str("allocating_node", sp.Host)
	if r.ArrayID != 0 {
		j.count("array_job_id", int64(r.ArrayID))
		j.count("array_max_tasks", int64(r.Throttle))
	} else {
		j.unset("array_job_id")
		j.unset("array_max_tasks")
	}
	if r.task != model.NoTask {
		j.count("array_task_id", int64(r.task))
	} else {
		j.unset("array_task_id")
	}
	j.str("array_task_string", r.tasks.String())
	j.num("association_id", 0)
	j.str("batch_features", "")
	j.bool("batch_flag", true)
	j.str("batch_host", strings.Replace(r.batchHost(), "n/a", "", 1))
	j.list("flags", nil)
	j.str("cluster", cluster)
	j.str("command", sp.Command)
	j.str("comment", sp.Comment)
	j.str("container", "")
	j.bool("contiguous", sp.More != nil && sp.More.Contiguous)
	j.unset("core_spec")
	j.unset("cores_per_socket")
	j.count("billable_tres", int64(cpus))
	j.count("cpus_per_task", int64(max(1, sp.CPUsPerTask)))
	j.str("current_working_directory", sp.WorkDir)
	j.time("deadline", sp.Deadline)
	j.count("delay_boot", 0)
	j.str("dependency", depsText(r.Job))
	writeExitJSON(j, "derived_exit_code", nil)
	j.time("eligible_time", eligible(r.Job))
	r.writeTimesJSON(j)
	j.str("excluded_nodes", hostlist.Compress(sp.ExcNodes))
	var exit *model.Exit
	if r.End != nil {
		exit = &r.End.Exit
	}
	writeExitJSON(j, "exit_code", exit)
	j.str("features", sp.Features)
	j.num("group_id", int64(sp.GID))
	j.str("group_name", sp.Group)
	j.bool("hold", r.Hold != model.NotHeld)
	j.num("job_id", int64(r.ID))
	r.writeResourcesJSON(j, cpus)
	j.words("job_state", r.jsonStates(j.old)...)
	j.str("licenses", licensesText(sp))
	j.count("max_cpus", int64(cpus))
	j.count("max_nodes", int64(max(0, sp.MaxNodes)))
	j.count("minimum_cpus_per_node", r.minCPUs())
	j.count("minimum_tmp_disk_per_node", sp.TmpMiB)
	if sp.MemPerCPU > 0 {
		j.count("memory_per_cpu", sp.MemPerCPU)
		j.unset("memory_per_node")
	} else {
		j.unset("memory_per_cpu")
		j.count("memory_per_node", r.memory())
	}
	j.str("name", sp.Name)
	j.str("nodes", r.nodeList())
	j.num("nice", int64(sp.Nice))
	j.count("tasks_per_node", int64(sp.TasksPerNode))
	j.count("cpus", int64(cpus))
	j.count("node_count", int64(nodes))
	j.count("tasks", int64(r.numTasks()))
	j.str("partition", r.partition())
	j.count("priority", int64(r.priority()))
	j.str("qos", sp.QOS)
	j.bool("reboot", false)
	j.str("required_nodes", hostlist.Compress(sp.ReqNodes))
	j.bool("requeue", sp.Requeue)
	j.num("restart_cnt", int64(r.Restarts))
	j.str("scheduled_nodes", "")
	j.list("shared", nil)
	out, errFile := r.OutputFiles()
	j.str("standard_error", errFile)
	j.str("standard_input", stdinOf(sp))
	j.str("standard_output", out)
	j.str("state_description", r.Why)
	j.str("state_reason", r.Reason.String())
	j.str("submit_line", sp.Submit)
	j.unset("threads_per_core")
	j.str("tres_per_job", gone(r.gres(model.PerJob)))
	j.str("tres_per_node", gone(r.gres(model.PerNode)))
	j.str("tres_per_task", gone(r.gres(model.PerTask)))
	asked := *r.Job
	asked.Run = nil
	j.str("tres_req_str", tresText(&asked))
	held := ""
	if r.Run != nil {
		held = tresText(r.Job)
	}
	j.str("tres_alloc_str", held)
	j.num("user_id", int64(sp.UID))
	j.str("user_name", sp.User)
	j.str("wckey", "")
	j.close('}')
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

func (r *queueRow) writeTimesJSON(j *jsonText) {
	var end, deadline model.Time
	if r.Run != nil {
		deadline = r.Run.Deadline()
	}
	if end = deadline; r.End != nil {
		end = r.End.At
	}
	j.time("end_time", end)
	j.time("last_sched_evaluation", 0)
	j.time("preempt_time", 0)
	j.time("pre_sus_time", 0)
	j.time("resize_time", 0)
	j.time("start_time", r.begins())
	j.time("submit_time", r.Submit)
	j.time("suspend_time", 0)
	switch l := r.TimeLimitS(); {
	case l >= model.Unlimited:
		j.maybe("time_limit", 0, j.old, true)
	case l == model.NotSet:
		j.unset("time_limit")
	default:
		j.count("time_limit", (l+59)/60)
	}
	if m := r.Spec.More; m != nil && m.TimeMinS > 0 {
		j.count("time_minimum", (m.TimeMinS+59)/60)
	} else {
		j.unset("time_minimum")
	}
}

// jsonStates gives the base state with its flags behind it.
func (r *queueRow) jsonStates(old bool) []string {
	switch {
	case old:
		return []string{r.State.String()}
	case r.State == model.Completing, r.State == model.Configuring:
		return []string{"RUNNING", r.State.String()}
	}
	return []string{r.State.String()}
}

func writeExitJSON(j *jsonText, name string, x *model.Exit) {
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
	if j.old {
		j.num(name, code<<8|signal)
		return
	}
	j.open(name, '{')
	j.list("status", []string{status})
	j.maybe("return_code", code, x != nil, false)
	j.open("signal", '{')
	j.maybe("id", signal, signal != 0, false)
	j.str("name", signalName(signal))
	j.close('}')
	j.close('}')
}

// writeResourcesJSON writes what the job holds; null while it waits.
func (r *queueRow) writeResourcesJSON(j *jsonText, cpus int) {
	if r.Run == nil || r.Run.Alloc == nil {
		if j.old {
			j.open("job_resources", '{')
			j.close('}')
		} else {
			j.null("job_resources")
		}
		return
	}
	nodes := r.Run.Alloc.Nodes
	j.open("job_resources", '{')
	if j.old {
		j.str("nodes", r.nodeList())
		j.num("allocated_cpus", int64(cpus))
		j.num("allocated_hosts", int64(len(nodes)))
		j.open("allocated_nodes", '{')
		for i := range nodes {
			j.open(strconv.Itoa(i), '{')
			j.str("nodename", nodes[i].Node)
			j.num("cpus", int64(nodes[i].CPUs.Count()))
			j.num("memory", nodes[i].MemMiB)
			j.close('}')
		}
		j.close('}')
		j.close('}')
		return
	}
	j.list("select_type", nil)
	j.open("nodes", '{')
	j.num("count", int64(len(nodes)))
	j.list("select_type", nil)
	j.str("list", r.nodeList())
	j.bool("whole", r.Spec.Exclusive)
	j.open("allocation", '[')
	for i := range nodes {
		n := &nodes[i]
		j.open("", '{')
		j.num("index", int64(i))
		j.str("name", n.Node)
		j.open("cpus", '{')
		j.num("count", int64(n.CPUs.Count()))
		j.num("used", int64(n.CPUs.Count()))
		j.close('}')
		j.open("memory", '{')
		j.num("used", 0)
		j.num("allocated", n.MemMiB)
		j.close('}')
		j.str("gres", gresIndexText(n.Gres))
		j.close('}')
	}
	j.close(']')
	j.close('}')
	j.num("cpus", int64(cpus))
	j.close('}')
}
