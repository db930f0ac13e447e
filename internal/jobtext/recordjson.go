package jobtext

import (
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

func (r *RecordRow) JSON(j *slurmjson.Writer, batch bool, steps []*model.Record) {
	j.Open("", '{')
	j.Str("account", r.Account)
	j.Open("comment", '{')
	j.Str("administrator", r.AdminComment)
	j.Str("job", r.Comment)
	j.Str("system", "")
	j.Close('}')
	j.Num("allocation_nodes", int64(r.NumNodes))
	r.writeArrayJSON(j)
	j.Open("association", '{')
	j.Str("account", r.Account)
	j.Str("cluster", r.Cluster)
	j.Str("partition", "")
	j.Str("user", r.User)
	j.Num("id", 0)
	j.Close('}')
	j.Str("block", "")
	j.Str("cluster", r.Cluster)
	j.Str("constraints", r.Constraints)
	j.Str("container", "")
	var exit *model.Exit
	if r.End != 0 {
		exit = &r.Exit
	}
	writeAcctExitJSON(j, "derived_exit_code", &model.Exit{})
	r.writeTimeJSON(j, "time")
	writeAcctExitJSON(j, "exit_code", exit)
	j.List("flags", nil)
	j.Str("group", r.Group)
	j.Num("job_id", int64(r.Job))
	j.Str("name", r.Name)
	j.Str("licenses", "")
	j.Str("nodes", r.nodeList())
	j.Str("partition", r.Partition)
	j.Count("priority", int64(r.Priority))
	j.Str("qos", r.QOS)
	j.Open("required", '{')
	j.Num("CPUs", r.reqCPUs())
	j.Unset("memory_per_cpu")
	j.Count("memory_per_node", max(0, r.ReqMemMiB))
	j.Close('}')
	j.Str("kill_request_user", r.killer())
	j.Open("reservation", '{')
	j.Num("id", 0)
	j.Str("name", "")
	j.Close('}')
	j.Num("restart_cnt", int64(r.Restarts))
	r.writeStateJSON(j)
	j.Str("stderr", r.StdErr)
	j.Str("stdin", r.StdIn)
	j.Str("stdout", r.outputFile(r.StdOut))
	j.Open("steps", '[')
	if batch {
		RowOfBatch(r.Record, r.RecordView).writeStepJSON(j)
	}
	for _, s := range steps {
		RowOfStep(r.Record, s, r.RecordView).writeStepJSON(j)
	}
	j.Close(']')
	j.Str("submit_line", r.SubmitLine)
	r.writeTRESJSON(j)
	j.Str("used_gres", "")
	j.Str("user", r.User)
	j.Open("wckey", '{')
	j.Str("wckey", "")
	j.List("flags", nil)
	j.Close('}')
	j.Str("working_directory", r.WorkDir)
	j.Close('}')
}

func (r *RecordRow) killer() string {
	if r.State != model.Cancelled {
		return ""
	}
	return strconv.FormatUint(uint64(r.CancelUID), 10)
}

func (r *RecordRow) writeArrayJSON(j *slurmjson.Writer) {
	j.Open("array", '{')
	j.Num("job_id", int64(r.ArrayID))
	j.Open("limits", '{')
	j.Open("max", '{')
	j.Open("running", '{')
	j.Num("tasks", 0)
	j.Close('}')
	j.Close('}')
	j.Close('}')
	if r.ArrayID != 0 && r.Task != model.NoTask {
		j.Count("task_id", int64(r.Task))
	} else {
		j.Unset("task_id")
	}
	j.Str("task", r.TaskText)
	j.Close('}')
}

// writeStateJSON writes state.current, a word or a list.
func (r *RecordRow) writeStateJSON(j *slurmjson.Writer) {
	if r.Batch {
		j.Words("state", r.State.String())
		return
	}
	j.Open("state", '{')
	j.Words("current", r.State.String())
	j.Str("reason", r.Reason.String())
	j.Close('}')
}

func (r *RecordRow) writeTimeJSON(j *slurmjson.Writer, name string) {
	ms := func(name string, v int64) {
		j.Open(name, '{')
		j.Num("seconds", v/1000)
		j.Num("microseconds", v%1000*1000)
		j.Close('}')
	}
	j.Open(name, '{')
	j.Num("elapsed", r.elapsedS())
	if !r.Batch {
		j.Num("eligible", r.Eligible.Seconds())
	}
	if r.Batch && !j.Old {
		j.Time("end", r.End)
		j.Time("start", r.Start)
	} else {
		j.Num("end", r.End.Seconds())
		j.Num("start", r.Start.Seconds())
	}
	if !r.Batch {
		j.Num("submission", r.Submit.Seconds())
		j.Num("suspended", r.suspendedS())
	}
	ms("system", r.Exit.SysMS)
	if !r.Batch {
		switch {
		case r.LimitS >= model.Unlimited:
			j.Maybe("limit", 0, j.Old, true)
		case r.LimitS == model.NotSet:
			j.Unset("limit")
		default:
			j.Count("limit", (r.LimitS+59)/60)
		}
		j.Count("planned", r.plannedS())
	}
	ms("total", r.Exit.UserMS+r.Exit.SysMS)
	ms("user", r.Exit.UserMS)
	j.Close('}')
}

// writeAcctExitJSON writes an exit status. The old shape has it as an object too, with a word for status.
func writeAcctExitJSON(j *slurmjson.Writer, name string, x *model.Exit) {
	old := j.Old
	if !old {
		writeExit(j, name, x)
		return
	}
	if x == nil {
		x = &model.Exit{}
	}
	status := "SUCCESS"
	switch {
	case x.Signal != 0:
		status = "SIGNALED"
	case x.Code != 0:
		status = "ERROR"
	}
	j.Open(name, '{')
	j.Str("status", status)
	j.Num("return_code", int64(x.Code))
	if x.Signal != 0 {
		j.Open("signal", '{')
		j.Num("signal_id", int64(x.Signal))
		j.Str("name", signalName(int64(x.Signal)))
		j.Close('}')
	}
	j.Close('}')
}

func (r *RecordRow) writeStepJSON(j *slurmjson.Writer) {
	j.Open("", '{')
	r.writeTimeJSON(j, "time")
	writeAcctExitJSON(j, "exit_code", &r.Exit)
	j.Open("nodes", '{')
	nodes := []string{r.nodeList()}
	if r.OfStep != nil {
		nodes = r.OfStep.Nodes
	}
	j.Num("count", int64(len(nodes)))
	j.Str("range", r.nodeList())
	j.List("list", nodes)
	j.Close('}')
	j.Open("tasks", '{')
	j.Num("count", int64(r.tasks()))
	j.Close('}')
	j.Str("pid", "")
	r.writeStateJSON(j)
	j.Open("step", '{')
	if j.Old {
		j.Num("job_id", int64(r.Job))
		j.Str("id", strconv.FormatUint(uint64(r.Job), 10)+"."+r.StepName())
	} else {
		j.Str("id", strconv.FormatUint(uint64(r.Job), 10)+"."+r.StepName())
	}
	name := "batch"
	if r.OfStep != nil {
		name = r.OfStep.Name
	}
	j.Str("name", name)
	j.Close('}')
	j.Open("tres", '{')
	r.writeUsageJSON(j, "requested", inMeasures())
	r.writeUsageJSON(j, "consumed", outMeasures())
	r.writeAllocJSON(j)
	j.Close('}')
	j.Close('}')
}

// writeUsageJSON writes what a step was measured to use, in milliseconds, bytes, joules and percent: by the node with the
// most and that with the least, the mean of its tasks, and in all. Slurm has the TRESUsageIn fields under "requested".
func (r *RecordRow) writeUsageJSON(j *slurmjson.Writer, name string, list []measure) {
	j.Open(name, '{')
	u := r.used()
	write := func(name string, get func(m measure) (v int64, at *model.NodeUsage, known bool)) {
		j.Open(name, '[')
		for _, m := range list {
			if u == nil {
				break
			}
			v, at, known := get(m)
			if !known {
				continue
			}
			typ, sub, _ := strings.Cut(m.tres, "/")
			v *= max(m.unit, 1)
			j.Open("", '{')
			j.Str("type", typ)
			j.Str("name", sub)
			j.Num("id", m.id)
			j.Num("count", v)
			if at != nil {
				j.Str("node", at.Node)
				task := int64(0)
				if at.Tasks > 1 { // which of them is not known
					task = -1
				}
				j.Num("task", task)
			}
			j.Close('}')
		}
		j.Close(']')
	}
	write("max", func(m measure) (int64, *model.NodeUsage, bool) { v, at := u.most(m); return v, at, at != nil })
	write("min", func(m measure) (int64, *model.NodeUsage, bool) { v, at := u.least(m); return v, at, at != nil })
	write("average", func(m measure) (int64, *model.NodeUsage, bool) { v, ok := u.mean(m); return v, nil, ok })
	write("total", func(m measure) (int64, *model.NodeUsage, bool) { v, ok := u.total(m); return v, nil, ok })
	j.Close('}')
}

func (r *RecordRow) writeAllocJSON(j *slurmjson.Writer) {
	cpus := int64(0)
	if r.AllocCPUs > 0 {
		cpus = r.cpus()
	}
	j.TRESList("allocated", cpus, r.perNode(r.AllocMemMiB), r.nodes(), r.AllocGres)
}

func (r *RecordRow) writeTRESJSON(j *slurmjson.Writer) {
	j.Open("tres", '{')
	r.writeAllocJSON(j)
	n := int64(max(1, r.NumNodes))
	j.TRESList("requested", r.reqCPUs(), max(0, r.ReqMemMiB)*n, n, r.ReqGres)
	j.Close('}')
}
