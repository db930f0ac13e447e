package cli

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// record builds scontrol's key=value output: lines of words, or one line for all (-o).
type record struct {
	lines [][]string
}

// line begins a new line of words.
func (r *record) line(words ...string) { r.lines = append(r.lines, words) }

// text gives the record. Continuation lines are indented by three blanks, as tools expect.
func (r *record) text(oneLine bool) string {
	var b strings.Builder
	for i, words := range r.lines {
		switch {
		case i > 0 && oneLine:
			b.WriteByte(' ')
		case i > 0:
			b.WriteString("\n   ")
		}
		for k, w := range words {
			if k > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(w)
		}
	}
	b.WriteByte('\n')
	if !oneLine {
		b.WriteByte('\n')
	}
	return b.String()
}

// print writes a record to standard output; gcli's flush tells of errors.
func (c *control) print(r *record) { _, _ = io.WriteString(c.Stdout, r.text(c.oneLine)) }

// times gives how moments are written now.
func (c *control) times() *moments {
	return &moments{now: time.Now(), form: c.getenv("SLURM_TIME_FORMAT")}
}

func kv(key string, value any) string { return key + "=" + fmt.Sprint(value) }

func orNull(s string) string {
	if s == "" {
		return "(null)"
	}
	return s
}

// stamp gives a moment, or the word for none.
func (e *Env) stamp(t model.Time, none string) string {
	if t == 0 {
		return none
	}
	form, _ := e.Lookup("SLURM_TIME_FORMAT")
	return walltime.Timestamp(time.UnixMilli(int64(t)), time.Now(), form)
}

func yesNum(b bool) int {
	if b {
		return 1
	}
	return 0
}

// showJobs prints one job, several, or all.
func (c *control) showJobs(arg string) error {
	rq := &proto.JobsRequest{}
	if arg != "" {
		refs, err := parseJobRefs(arg)
		if err != nil {
			return plain{fmt.Errorf("slurm_load_jobs error: %w", err)}
		}
		rq.Filter.Jobs = refs
	}
	n := 0
	err := c.eachJob(rq, func(j *model.Job, now model.Time) {
		c.print(showJob(j, now, c.times(), c.details > 0))
		n++
	})
	switch {
	case err != nil:
		return plain{fmt.Errorf("slurm_load_jobs error: %s", text(err))}
	case n == 0 && arg == "":
		fmt.Fprintln(c.Stdout, "No jobs in the system")
	}
	return nil
}

// eachJob calls f for the jobs that fit, with the controller's time.
func (c *control) eachJob(rq *proto.JobsRequest, f func(j *model.Job, now model.Time)) error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	return cl.Stream(proto.KindJobs, rq, func(body []byte) error {
		var chunk proto.JobsChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		for _, j := range chunk.Jobs {
			f(j, chunk.Now)
		}
		return nil
	})
}

// showJob gives a job as scontrol show job does, at a time of the controller.
func showJob(j *model.Job, now model.Time, at *moments, details bool) *record {
	sp := j.Spec
	r := &record{}
	first := []string{kv("JobId", j.ID)}
	if j.ArrayID != 0 {
		first = append(first, kv("ArrayJobId", j.ArrayID))
		task := j.Tasks.String()
		switch {
		case !j.IsArray():
			task = strconv.Itoa(int(j.Task))
		case j.Throttle > 0:
			task += "%" + strconv.Itoa(int(j.Throttle))
		}
		first = append(first, kv("ArrayTaskId", task))
		if j.Throttle > 0 {
			first = append(first, kv("ArrayTaskThrottle", j.Throttle))
		}
	}
	r.line(append(first, kv("JobName", sp.Name))...)
	r.line(kv("UserId", fmt.Sprintf("%s(%d)", sp.User, sp.UID)), kv("GroupId", fmt.Sprintf("%s(%d)", sp.Group, sp.GID)), kv("MCS_label", "N/A"))
	prio := j.Priority
	if j.Hold != model.NotHeld {
		prio = 0
	}
	r.line(kv("Priority", prio), kv("Nice", sp.Nice), kv("Account", orNull(sp.Account)), kv("QOS", orNull(sp.QOS)))
	reason := j.Reason.String()
	if more := unavailable(j); more != "" {
		reason += ",_" + strings.ReplaceAll(more, " ", "_")
	}
	r.line(kv("JobState", j.State), kv("Reason", reason), kv("Dependency", orNull(depsText(j))))
	exit, derived := "0:0", "0:0"
	if j.End != nil {
		exit = fmt.Sprintf("%d:%d", j.End.Exit.Code, j.End.Exit.Signal)
	}
	r.line(kv("Requeue", yesNum(sp.Requeue)), kv("Restarts", j.Restarts), kv("BatchFlag", yesNum(!sp.Extra().Interactive)), kv("Reboot", 0), kv("ExitCode", exit))
	if details {
		r.line(kv("DerivedExitCode", derived))
	}
	r.line(kv("RunTime", walltime.Elapsed(j.ElapsedS(now))), kv("TimeLimit", limitText(j)), kv("TimeMin", timeMinText(sp)))
	r.line(kv("SubmitTime", at.stamp(j.Submit, "Unknown")), kv("EligibleTime", at.stamp(eligible(j), "Unknown")))
	accrue := j.AccrueTime()
	if j.Accrue == 0 {
		accrue = eligible(j)
	}
	r.line(kv("AccrueTime", at.stamp(accrue, "Unknown")))
	start, end := model.Time(0), model.Time(0)
	if j.Run != nil {
		start, end = j.Run.Start, j.Run.Deadline()
	} else if j.State == model.Pending && j.Begin > now {
		start = j.Begin
	}
	if j.End != nil {
		end = j.End.At
		if start == 0 {
			start = end
		}
	}
	r.line(kv("StartTime", at.stamp(start, "Unknown")), kv("EndTime", at.stamp(end, "Unknown")), kv("Deadline", at.stamp(sp.Deadline, "N/A")))
	suspended, before := model.Time(0), int64(0)
	if j.Run != nil && j.Run.Turns > 0 { // as Slurm: when it was last suspended or resumed, and how long it had run until then
		suspended = j.Run.SleepAt
		before = max(0, (int64(j.Run.SleepAt-j.Run.Start)-j.Run.SleepMS)/1000)
	}
	r.line(kv("SuspendTime", at.stamp(suspended, "None")), kv("SecsPreSuspend", before), kv("LastSchedEval", at.stamp(start, "Unknown")), kv("Scheduler", "Main"))
	host := sp.Host
	if host == "" {
		host = "unknown"
	}
	part := j.Partition()
	if j.Run == nil {
		part = strings.Join(sp.Partitions, ",")
	}
	r.line(kv("Partition", part), kv("AllocNode:Sid", host+":0"))
	r.line(kv("ReqNodeList", orNull(hostlist.Compress(sp.ReqNodes))), kv("ExcNodeList", orNull(hostlist.Compress(sp.ExcNodes))))
	var names []string
	if j.Run != nil {
		names = j.Run.Alloc.NodeNames()
	}
	r.line(kv("NodeList", hostlist.Compress(names)))
	if len(names) > 0 {
		r.line(kv("BatchHost", names[0]))
	}
	nodes, cpus, tasks := jobSize(j)
	num := strconv.Itoa(nodes)
	if j.Run == nil && sp.MaxNodes > sp.MinNodes {
		num = fmt.Sprintf("%d-%d", sp.MinNodes, sp.MaxNodes)
	}
	r.line(kv("NumNodes", num), kv("NumCPUs", cpus), kv("NumTasks", tasks), kv("CPUs/Task", max(1, sp.CPUsPerTask)), kv("ReqB:S:C:T", "0:0:*:*"))
	r.line(kv("TRES", tresText(j)))
	perNode := "0"
	if sp.TasksPerNode > 0 {
		perNode = strconv.Itoa(int(sp.TasksPerNode))
	}
	r.line(kv("Socks/Node", "*"), kv("NtasksPerN:B:S:C", perNode+":0:*:*"), kv("CoreSpec", "*"))
	if details && j.Run != nil {
		if text := jobGresText(j.Run.Alloc); text != "" {
			r.line(kv("JOB_GRES", text))
		}
		for i := range j.Run.Alloc.Nodes {
			na := &j.Run.Alloc.Nodes[i]
			r.line("  "+kv("Nodes", na.Node), kv("CPU_IDs", na.CPUs), kv("Mem", na.MemMiB), kv("GRES", gresIndexText(na.Gres)))
		}
	}
	perCPU, mem := j.Memory()
	memKey := "MinMemoryNode"
	if perCPU > 0 {
		memKey, mem = "MinMemoryCPU", perCPU
	}
	r.line(kv("MinCPUsNode", max(1, sp.MinCPUs, max(1, sp.TasksPerNode)*max(1, sp.CPUsPerTask))), kv(memKey, walltime.FormatMem(max(0, mem))), kv("MinTmpDiskNode", walltime.FormatMem(sp.TmpMiB)))
	r.line(kv("Features", orNull(sp.Features)), kv("DelayBoot", "00:00:00"))
	if sp.Reservation != "" {
		r.line(kv("Reservation", sp.Reservation))
	}
	r.line(kv("OverSubscribe", overSubscribe(j)), kv("Contiguous", yesNum(sp.More != nil && sp.More.Contiguous)), kv("Licenses", orNull(licensesText(sp))), kv("Network", "(null)"))
	command := orNull(sp.Command)
	if len(sp.Args) > 0 {
		command += " " + strings.Join(sp.Args, " ")
	}
	r.line(kv("Command", command))
	r.line(kv("SubmitLine", sp.Submit))
	r.line(kv("WorkDir", sp.WorkDir))
	if sp.Comment != "" {
		r.line(kv("Comment", sp.Comment))
	}
	if j.Comment != "" {
		r.line(kv("AdminComment", j.Comment))
	}
	out, errFile := j.OutputFiles()
	in := sp.StdIn
	if in == "" {
		in = "/dev/null"
	}
	r.line(kv("StdErr", errFile))
	r.line(kv("StdIn", in))
	r.line(kv("StdOut", out))
	r.line(kv("Power", ""))
	for _, g := range sp.Extra().GPUsPerSocket {
		r.line(kv("TresPerSocket", gresReqText(g)))
	}
	for _, g := range sp.AskedGres() {
		if g.Name == "gpu" && len(sp.Extra().GPUsPerSocket) > 0 {
			continue // said
		}
		key := map[model.GresPer]string{model.PerNode: "TresPerNode", model.PerJob: "TresPerJob", model.PerTask: "TresPerTask"}[g.Per]
		r.line(kv(key, gresReqText(g)))
	}
	if b := sp.Extra().Bind; b != nil && b.GPU != "" {
		r.line(kv("TresBind", tresGPU+b.GPU))
	}
	if m := sp.Mail(); m != nil {
		r.line(kv("MailUser", m.User), kv("MailType", m.Types.String()))
	}
	if x := sp.Extra().GPUIndex; !x.Empty() {
		r.line(kv("GpuIndex", x))
	}
	if j.Expect != nil && j.Expect.IdleS > 0 && j.State == model.Running {
		r.line(kv("GpuIdleTime", walltime.Elapsed(j.Expect.IdleS)))
	}
	if sp.Extra().NeverIdle {
		r.line(kv("GpuIdle", "off"))
	}
	if n := sp.Extra().GPUMemMiB; n > 0 {
		r.line(kv("GpuMem", fmt.Sprintf("%dM", n)))
	}
	if j.Why != "" {
		r.line(kv("Why", strconv.Quote(j.Why)))
	}
	return r
}

// eligible gives when a job became, or becomes, eligible.
func eligible(j *model.Job) model.Time {
	if j.Eligible == 0 && j.State == model.Pending && j.Begin != 0 && len(j.Deps) == 0 && j.Hold == model.NotHeld {
		return j.Begin
	}
	return j.Eligible
}

// limitText gives a job's time limit as scontrol shows it.
func limitText(j *model.Job) string {
	switch limit := j.TimeLimitS(); {
	case limit >= model.Unlimited:
		return "UNLIMITED"
	case limit == model.NotSet:
		return "Partition_Limit"
	default:
		return walltime.Elapsed(limit)
	}
}

// timeMinText gives --time-min.
func timeMinText(sp *model.Spec) string {
	if sp.More == nil || sp.More.TimeMinS == 0 {
		return "N/A"
	}
	return walltime.Elapsed(sp.More.TimeMinS)
}

// jobSize gives how many nodes, CPUs and tasks a job has, or asks for.
func jobSize(j *model.Job) (nodes, cpus, tasks int) {
	sp := j.Spec
	nodes = int(max(1, sp.MinNodes))
	tasks = int(sp.Tasks)
	if tasks == 0 {
		tasks = nodes * int(max(1, sp.TasksPerNode))
	}
	if j.Run != nil {
		c, _, _ := j.Run.Alloc.Totals()
		return len(j.Run.Alloc.Nodes), c, max(tasks, len(j.Run.Alloc.Nodes))
	}
	return nodes, max(tasks*int(max(1, sp.CPUsPerTask)), nodes*int(sp.MinCPUs)), tasks
}

// tresText gives what a job holds, or asks for: cpu=2,mem=4G,node=1,billing=2,gres/gpu=1.
func tresText(j *model.Job) string {
	nodes, cpus, tasks := jobSize(j)
	sp := j.Spec
	mem := int64(0)
	var gres []model.GresCount
	if j.Run != nil {
		_, mem, gres = j.Run.Alloc.Totals()
	} else {
		switch perCPU, perNode := j.Memory(); {
		case perCPU > 0:
			mem = perCPU * int64(cpus)
		case perNode > 0:
			mem = perNode * int64(nodes)
		}
		for _, g := range sp.Gres {
			n := int64(g.Count)
			switch g.Per {
			case model.PerNode:
				n *= int64(nodes)
			case model.PerTask:
				n *= int64(tasks)
			}
			gres = append(gres, model.GresCount{Name: g.Name, Type: g.Type, Count: n})
		}
	}
	return tres(int64(cpus), mem, int64(nodes), gres)
}

// tres builds Slurm's resource list. A typed resource is counted under its name and under its type.
func tres(cpus, memMiB, nodes int64, gres []model.GresCount) string {
	b := fmt.Sprintf("cpu=%d", cpus)
	if memMiB > 0 {
		b += ",mem=" + walltime.FormatMem(memMiB)
	}
	b += fmt.Sprintf(",node=%d,billing=%d", nodes, cpus)
	var names []string
	sum := map[string]int64{}
	for _, g := range gres {
		if sum[g.Name] == 0 {
			names = append(names, g.Name)
		}
		sum[g.Name] += g.Count
	}
	for _, n := range names {
		b += fmt.Sprintf(",gres/%s=%d", n, sum[n])
		for _, g := range gres {
			if g.Name == n && g.Type != "" {
				b += fmt.Sprintf(",gres/%s:%s=%d", n, g.Type, g.Count)
			}
		}
	}
	return b
}

// jobGresText gives what an allocation has of generic resources on all nodes: gpu:a100:4.
func jobGresText(a *model.Alloc) string {
	_, _, gres := a.Totals()
	var out []string
	for _, g := range gres {
		name := g.Name
		if g.Type != "" {
			name += ":" + g.Type
		}
		out = append(out, name+":"+strconv.FormatInt(g.Count, 10))
	}
	return strings.Join(out, ",")
}

// gresIndexText gives gpu:a100:2(IDX:0-1).
func gresIndexText(list []model.GresAlloc) string {
	var out []string
	for _, g := range list {
		s := g.Name
		if g.Type != "" {
			s += ":" + g.Type
		}
		idx := g.Index.String()
		if g.Share != nil {
			idx = strconv.Itoa(int(g.Share.GPU)) // of the GPU that they are shares of
		}
		out = append(out, fmt.Sprintf("%s:%d(IDX:%s)", s, g.Index.Count(), idx))
	}
	return strings.Join(out, ",")
}

func gresReqText(g model.GresReq) string {
	s := "gres:" + g.Name
	if g.Milli > 0 {
		s = "gres:" + model.GPUName
	}
	if g.Type != "" {
		s += ":" + g.Type
	}
	if g.Milli > 0 {
		return s + ":" + partText(g.Milli)
	}
	return s + ":" + strconv.Itoa(int(g.Count))
}

// depsText gives what a pending job still waits for: afterok:12(unfulfilled).
func depsText(j *model.Job) string {
	var out []string
	for _, d := range j.Deps {
		s := d.Kind.String()
		if d.Job != 0 {
			s += ":" + strconv.Itoa(int(d.Job))
			switch {
			case d.Task != model.NoTask:
				s += "_" + strconv.Itoa(int(d.Task))
			}
			if d.DelayS > 0 {
				s += "+" + strconv.Itoa(int(d.DelayS/60))
			}
		}
		if d.Failed {
			s += "(failed)"
		} else {
			s += "(unfulfilled)"
		}
		out = append(out, s)
	}
	sep := ","
	if j.Spec.DepAny {
		sep = "?"
	}
	return strings.Join(out, sep)
}

// writeScript writes a new file for its owner; one that is there is left alone.
func writeScript(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(0o600))
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		_ = f.Close() // the write's error is the one to tell
		return err
	}
	return f.Close()
}
