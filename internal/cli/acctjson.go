package cli

import (
	"strconv"
	"strings"

	"gbatch/internal/client"
	"gbatch/internal/model"
)

// printJSON prints the records as sacct --json does.
func (a *account) printJSON(c *client.Client, view *acctView) error {
	var cluster string
	j := a.jsonFrame("jobs", a.json)
	err := a.each(c, func(r *model.Record, steps []*model.Record) error {
		cluster = r.Cluster
		(&acctRow{r, view, false, nil}).writeJSON(j, !a.allocations && hasBatch(r), steps)
		j.flush(false)
		return j.err
	})
	if err != nil {
		return err
	}
	return a.jsonFinish(j, cluster, model.Time(a.now.UnixMilli()))
}

func (r *acctRow) writeJSON(j *jsonText, batch bool, steps []*model.Record) {
	j.open("", '{')
	j.str("account", r.Account)
	j.open("comment", '{')
	j.str("administrator", r.AdminComment)
	j.str("job", r.Comment)
	j.str("system", "")
	j.close('}')
	j.num("allocation_nodes", int64(r.NumNodes))
	r.writeArrayJSON(j)
	j.open("association", '{')
	j.str("account", r.Account)
	j.str("cluster", r.Cluster)
	j.str("partition", "")
	j.str("user", r.User)
	j.num("id", 0)
	j.close('}')
	j.str("block", "")
	j.str("cluster", r.Cluster)
	j.str("constraints", r.Constraints)
	j.str("container", "")
	var exit *model.Exit
	if r.End != 0 {
		exit = &r.Exit
	}
	writeAcctExitJSON(j, "derived_exit_code", &model.Exit{})
	r.writeTimeJSON(j, "time")
	writeAcctExitJSON(j, "exit_code", exit)
	j.list("flags", nil)
	j.str("group", r.Group)
	j.num("job_id", int64(r.Job))
	j.str("name", r.Name)
	j.str("licenses", "")
	j.str("nodes", r.nodeList())
	j.str("partition", r.Partition)
	j.count("priority", int64(r.Priority))
	j.str("qos", r.QOS)
	j.open("required", '{')
	j.num("CPUs", r.reqCPUs())
	j.unset("memory_per_cpu")
	j.count("memory_per_node", max(0, r.ReqMemMiB))
	j.close('}')
	j.str("kill_request_user", r.killer())
	j.open("reservation", '{')
	j.num("id", 0)
	j.str("name", "")
	j.close('}')
	j.num("restart_cnt", int64(r.Restarts))
	r.writeStateJSON(j)
	j.str("stderr", r.StdErr)
	j.str("stdin", r.StdIn)
	j.str("stdout", r.outputFile(r.StdOut))
	j.open("steps", '[')
	if batch {
		batchRow(r.Record, r.acctView).writeStepJSON(j)
	}
	for _, s := range steps {
		stepRow(r.Record, s, r.acctView).writeStepJSON(j)
	}
	j.close(']')
	j.str("submit_line", r.SubmitLine)
	r.writeTRESJSON(j)
	j.str("used_gres", "")
	j.str("user", r.User)
	j.open("wckey", '{')
	j.str("wckey", "")
	j.list("flags", nil)
	j.close('}')
	j.str("working_directory", r.WorkDir)
	j.close('}')
}

func (r *acctRow) killer() string {
	if r.State != model.Cancelled {
		return ""
	}
	return strconv.FormatUint(uint64(r.CancelUID), 10)
}

func (r *acctRow) writeArrayJSON(j *jsonText) {
	j.open("array", '{')
	j.num("job_id", int64(r.ArrayID))
	j.open("limits", '{')
	j.open("max", '{')
	j.open("running", '{')
	j.num("tasks", 0)
	j.close('}')
	j.close('}')
	j.close('}')
	if r.ArrayID != 0 && r.Task != model.NoTask {
		j.count("task_id", int64(r.Task))
	} else {
		j.unset("task_id")
	}
	j.str("task", r.TaskText)
	j.close('}')
}

// writeStateJSON writes state.current, a word or a list.
func (r *acctRow) writeStateJSON(j *jsonText) {
	if r.batch {
		j.words("state", r.State.String())
		return
	}
	j.open("state", '{')
	j.words("current", r.State.String())
	j.str("reason", r.Reason.String())
	j.close('}')
}

func (r *acctRow) writeTimeJSON(j *jsonText, name string) {
	ms := func(name string, v int64) {
		j.open(name, '{')
		j.num("seconds", v/1000)
		j.num("microseconds", v%1000*1000)
		j.close('}')
	}
	j.open(name, '{')
	j.num("elapsed", r.elapsedS())
	if !r.batch {
		j.num("eligible", r.Eligible.Seconds())
	}
	if r.batch && !j.old {
		j.time("end", r.End)
		j.time("start", r.Start)
	} else {
		j.num("end", r.End.Seconds())
		j.num("start", r.Start.Seconds())
	}
	if !r.batch {
		j.num("submission", r.Submit.Seconds())
		j.num("suspended", r.suspendedS())
	}
	ms("system", r.Exit.SysMS)
	if !r.batch {
		switch {
		case r.LimitS >= model.Unlimited:
			j.maybe("limit", 0, j.old, true)
		case r.LimitS == model.NotSet:
			j.unset("limit")
		default:
			j.count("limit", (r.LimitS+59)/60)
		}
		j.count("planned", r.plannedS())
	}
	ms("total", r.Exit.UserMS+r.Exit.SysMS)
	ms("user", r.Exit.UserMS)
	j.close('}')
}

// writeAcctExitJSON writes an exit status. The old shape has it as an object too, with a word for status.
func writeAcctExitJSON(j *jsonText, name string, x *model.Exit) {
	old := j.old
	if !old {
		writeExitJSON(j, name, x)
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
	j.open(name, '{')
	j.str("status", status)
	j.num("return_code", int64(x.Code))
	if x.Signal != 0 {
		j.open("signal", '{')
		j.num("signal_id", int64(x.Signal))
		j.str("name", signalName(int64(x.Signal)))
		j.close('}')
	}
	j.close('}')
}

func (r *acctRow) writeStepJSON(j *jsonText) {
	j.open("", '{')
	r.writeTimeJSON(j, "time")
	writeAcctExitJSON(j, "exit_code", &r.Exit)
	j.open("nodes", '{')
	nodes := []string{r.nodeList()}
	if r.step != nil {
		nodes = r.step.Nodes
	}
	j.num("count", int64(len(nodes)))
	j.str("range", r.nodeList())
	j.list("list", nodes)
	j.close('}')
	j.open("tasks", '{')
	j.num("count", int64(r.tasks()))
	j.close('}')
	j.str("pid", "")
	r.writeStateJSON(j)
	j.open("step", '{')
	if j.old {
		j.num("job_id", int64(r.Job))
		j.str("id", strconv.FormatUint(uint64(r.Job), 10)+"."+r.stepName())
	} else {
		j.str("id", strconv.FormatUint(uint64(r.Job), 10)+"."+r.stepName())
	}
	name := "batch"
	if r.step != nil {
		name = r.step.Name
	}
	j.str("name", name)
	j.close('}')
	j.open("tres", '{')
	r.writeUsageJSON(j, "requested", inMeasures())
	r.writeUsageJSON(j, "consumed", outMeasures())
	r.writeAllocJSON(j)
	j.close('}')
	j.close('}')
}

// writeUsageJSON writes what a step was measured to use, in milliseconds, bytes, joules and percent: by the node with the
// most and that with the least, the mean of its tasks, and in all. Slurm has the TRESUsageIn fields under "requested".
func (r *acctRow) writeUsageJSON(j *jsonText, name string, list []measure) {
	j.open(name, '{')
	u := r.used()
	write := func(name string, get func(m measure) (v int64, at *model.NodeUsage, known bool)) {
		j.open(name, '[')
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
			j.open("", '{')
			j.str("type", typ)
			j.str("name", sub)
			j.num("id", m.id)
			j.num("count", v)
			if at != nil {
				j.str("node", at.Node)
				task := int64(0)
				if at.Tasks > 1 { // which of them is not known
					task = -1
				}
				j.num("task", task)
			}
			j.close('}')
		}
		j.close(']')
	}
	write("max", func(m measure) (int64, *model.NodeUsage, bool) { v, at := u.most(m); return v, at, at != nil })
	write("min", func(m measure) (int64, *model.NodeUsage, bool) { v, at := u.least(m); return v, at, at != nil })
	write("average", func(m measure) (int64, *model.NodeUsage, bool) { v, ok := u.mean(m); return v, nil, ok })
	write("total", func(m measure) (int64, *model.NodeUsage, bool) { v, ok := u.total(m); return v, nil, ok })
	j.close('}')
}

// tres writes one counted resource.
func (j *jsonText) tres(typ, name string, count, id int64) {
	j.open("", '{')
	j.str("type", typ)
	j.str("name", name)
	j.num("id", id)
	j.num("count", count)
	j.close('}')
}

// tresList writes resources with Slurm's fixed numbers; generic resources count from 1001 on.
func (j *jsonText) tresList(name string, cpus, mem, nodes int64, gres []model.GresCount) {
	j.open(name, '[')
	if cpus > 0 {
		j.tres("cpu", "", cpus, 1)
		j.tres("mem", "", mem, 2)
		j.tres("node", "", nodes, 4)
		j.tres("billing", "", cpus, 5)
		for i, g := range gres {
			n := g.Name
			if g.Type != "" {
				n += ":" + g.Type
			}
			j.tres("gres", n, g.Count, int64(1001+i))
		}
	}
	j.close(']')
}

func (r *acctRow) writeAllocJSON(j *jsonText) {
	cpus := int64(0)
	if r.AllocCPUs > 0 {
		cpus = r.cpus()
	}
	j.tresList("allocated", cpus, r.perNode(r.AllocMemMiB), r.nodes(), r.AllocGres)
}

func (r *acctRow) writeTRESJSON(j *jsonText) {
	j.open("tres", '{')
	r.writeAllocJSON(j)
	n := int64(max(1, r.NumNodes))
	j.tresList("requested", r.reqCPUs(), max(0, r.ReqMemMiB)*n, n, r.ReqGres)
	j.close('}')
}
