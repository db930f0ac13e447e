package jobtext

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// TRESGPU precedes a kind of GPU binding in --tres-bind.
const TRESGPU = "gres/gpu:"

// ShowJob gives a job as scontrol show job does, at a time of the controller; rules are its partition's, nil if they
// are not known.
func ShowJob(j *model.Job, rules *model.AskRules, now model.Time, at *Times, details bool) *KeyValues {
	r := &KeyValues{}
	r.jobState(j, now, details)
	r.jobTimes(j, now, at)
	r.jobPlace(j, rules, details)
	r.jobSpec(j, rules)
	r.jobExtras(j)
	return r
}

// jobState writes the job's owner and state.
func (r *KeyValues) jobState(j *model.Job, now model.Time, details bool) {
	sp := j.Spec
	first := []string{KV("JobId", j.ID)}
	if j.ArrayID != 0 {
		first = append(first, KV("ArrayJobId", j.ArrayID))
		task := TasksText(j.Tasks)
		switch {
		case !j.IsArray():
			task = strconv.Itoa(int(j.Task))
		case j.Throttle > 0:
			task += "%" + strconv.Itoa(int(j.Throttle))
		}
		first = append(first, KV("ArrayTaskId", task))
		if j.Throttle > 0 {
			first = append(first, KV("ArrayTaskThrottle", j.Throttle))
		}
	}
	if j.Het != nil {
		first = append(first, KV("HetJobId", j.Het.ID), KV("HetJobOffset", j.Het.Offset))
	}
	r.line(append(first, KV("JobName", sp.Name))...)
	if j.Het != nil {
		r.line(KV("HetJobIdSet", j.Het.Set()))
	}
	r.line(KV("UserId", fmt.Sprintf("%s(%d)", sp.User, sp.UID)), KV("GroupId", fmt.Sprintf("%s(%d)", sp.Group, sp.GID)),
		KV("MCS_label", "N/A"))
	ranks := []string{KV("Priority", shownPriority(j)), KV("Nice", sp.Nice), KV("Account", orNull(sp.Account)),
		KV("QOS", orNull(sp.QOS))}
	if j.WCKeyID != 0 || strings.HasPrefix(sp.WCKey, model.PresetMark) { // as in Slurm, only where usage is kept by it
		ranks = append(ranks, KV("WCKey", sp.WCKey))
	}
	r.line(ranks...)
	reason := j.ReasonAt(now).String()
	if more := j.NotAvailText(); more != "" {
		reason += ",_" + strings.ReplaceAll(more, " ", "_")
	}
	r.line(KV("JobState", j.StateText()), KV("Reason", reason), KV("Dependency", orNull(depsText(j, now)))+failedNode(j))
	exit, derived := "0:0", "0:0"
	if x := j.LastExit(); x != nil {
		exit, derived = exitText(*x), exitText(x.Derived())
	}
	r.line(KV("Requeue", yesNum(sp.Requeue)), KV("Restarts", j.Restarts), KV("BatchFlag", yesNum(batchFlag(sp))),
		KV("Reboot", yesNum(sp.Extra().Reboot)), KV("ExitCode", exit))
	if details {
		r.line(KV("DerivedExitCode", derived))
	}
}

func (r *KeyValues) jobTimes(j *model.Job, now model.Time, at *Times) {
	sp := j.Spec
	r.line(KV("RunTime", walltime.Elapsed(j.ElapsedS(now))), KV("TimeLimit", limitText(j)), KV("TimeMin", timeMinText(sp)))
	r.line(KV("SubmitTime", at.Stamp(j.Submit, "Unknown")), KV("EligibleTime", at.Stamp(eligible(j), "Unknown")))
	accrue := j.AccrueTime()
	if j.Accrue == 0 {
		accrue = eligible(j)
	}
	r.line(KV("AccrueTime", at.Stamp(accrue, "Unknown")))
	start := begins(j, now)
	end := endOf(j, start, now)
	r.line(KV("StartTime", at.Stamp(start, "Unknown")), KV("EndTime", at.Stamp(end, "Unknown")),
		KV("Deadline", at.Stamp(sp.Deadline, "N/A")))
	if sp.Cron != nil {
		words := []string{KV("CrontabSpec", strconv.Quote(sp.Cron.Times))}
		if j.Recurs() {
			words = append([]string{KV("CronJob", "Yes")}, words...)
		}
		r.line(words...)
	}
	if j.Run != nil && j.Run.Recall != nil && j.State.HasResources() {
		r.line(KV("AskedFor", hostlist.Compress(j.Run.Recall.Nodes)), KV("AskedUntil", at.Stamp(j.Run.Recall.Due, "Unknown")),
			KV("AskedByJob", j.Run.Recall.For))
	}
	suspended, before := sleptAt(j)
	r.line(KV("SuspendTime", at.Stamp(suspended, "None")), KV("SecsPreSuspend", before),
		KV("LastSchedEval", at.Stamp(lastEval(j, now), "Unknown")), KV("Scheduler", "Main"))
}

// sleptAt gives, as Slurm, when a job was last suspended or resumed, and how long it had run until then, seconds.
func sleptAt(j *model.Job) (at model.Time, beforeS int64) {
	if j.Run == nil || j.Run.Turns == 0 {
		return 0, 0
	}
	return j.Run.SleepAt, max(0, (int64(j.Run.SleepAt-j.Run.Start)-j.Run.SleepMS)/1000)
}

// schedNodes gives the nodes that a waiting job is expected to get.
func schedNodes(j *model.Job) string {
	if j.Run != nil || j.End != nil || j.Expect == nil || j.Expect.Start == 0 {
		return ""
	}
	return hostlist.Compress(j.Expect.Nodes)
}

// jobPlace writes where the job runs or may run, and what it holds.
func (r *KeyValues) jobPlace(j *model.Job, rules *model.AskRules, details bool) {
	sp := j.Spec
	host := sp.Host
	if host == "" {
		host = "unknown"
	}
	part := j.Partition()
	if j.Run == nil {
		part = strings.Join(sp.Partitions, ",")
	}
	r.line(KV("Partition", part), KV("AllocNode:Sid", fmt.Sprintf("%s:%d", host, sp.SID)))
	r.line(KV("ReqNodeList", orNull(hostlist.Compress(sp.ReqNodes))),
		KV("ExcNodeList", orNull(hostlist.Compress(sp.ExcNodes))))
	var names []string
	if j.Run != nil {
		names = j.Run.Alloc.NodeNames()
	}
	where := []string{KV("NodeList", hostlist.Compress(names))}
	if nodes := schedNodes(j); nodes != "" {
		where = append(where, KV("SchedNodeList", nodes))
	}
	r.line(where...)
	if len(names) > 0 {
		r.line(KV("BatchHost", names[0]))
	}
	if f := sp.Stated().BatchNode; f != "" {
		r.line(KV("BatchFeatures", f))
	}
	asked, size := ask.Of(sp, rules), ask.Job(j, rules)
	num := strconv.Itoa(size.Nodes)
	if j.Run == nil && j.End == nil && sp.MaxNodes > 0 {
		num = fmt.Sprintf("%d-%d", asked.MinNodes, asked.MaxNodes)
	}
	sockets, cores, threads := hardware(sp)
	r.line(KV("NumNodes", num), KV("NumCPUs", size.CPUs), KV("NumTasks", size.Tasks),
		KV("CPUs/Task", max(1, sp.CPUsPerTask)), KV("ReqB:S:C:T", "0:0:"+cores+":"+threads))
	held := "(null)"
	if j.Run != nil && j.Run.Alloc != nil {
		held = tresText(j, rules)
	}
	r.line(KV("ReqTRES", askedText(j, rules)))
	r.line(KV("AllocTRES", held))
	perNode := "0"
	if sp.TasksPerNode > 0 {
		perNode = strconv.Itoa(int(sp.TasksPerNode))
	}
	m := sp.Extra()
	r.line(KV("Socks/Node", sockets), KV("NtasksPerN:B:S:C", perNode+":0:"+orAny(m.SaidPerSocket(), "*")+":"+
		orAny(m.TasksPerCore, "*")), KV("CoreSpec", "*"))
	if details && j.Run != nil {
		r.line(KV("JOB_GRES", orNull(jobGresText(j.Run.Alloc))))
		for i := range j.Run.Alloc.Nodes {
			na := &j.Run.Alloc.Nodes[i]
			r.line("  "+KV("Nodes", na.Node), KV("CPU_IDs", na.CPUs), KV("Mem", na.MemMiB), KV("GRES", gresIndexText(na.Gres)))
		}
	}
}

// jobSpec writes the job's request per node, and its script.
func (r *KeyValues) jobSpec(j *model.Job, rules *model.AskRules) {
	asked := ask.Of(j.Spec, rules)
	sp := j.Spec
	perCPU, mem := memoryOf(j, rules)
	memKey := "MinMemoryNode"
	if perCPU > 0 {
		memKey, mem = "MinMemoryCPU", perCPU
	}
	r.line(KV("MinCPUsNode", minCPUs(&asked)), KV(memKey, walltime.FormatMem(max(0, mem))),
		KV("MinTmpDiskNode", walltime.FormatMem(sp.TmpMiB)))
	r.line(KV("Features", orNull(sp.Features)), KV("DelayBoot", walltime.Elapsed(sp.Stated().DelayBootS)))
	if name := j.ReservationText(); name != "" {
		r.line(KV("Reservation", name))
	}
	r.line(KV("OverSubscribe", j.OverSubscribe()), KV("Contiguous", yesNum(sp.More != nil && sp.More.Contiguous)),
		KV("Licenses", orNull(licensesText(sp))), KV("LicensesAlloc", orNull(licensesHeld(j))),
		KV("Network", orNull(sp.Stated().Network)))
	command := orNull(sp.Command)
	if len(sp.Args) > 0 {
		command += " " + strings.Join(sp.Args, " ")
	}
	r.line(KV("Command", command))
	r.line(KV("SubmitLine", sp.Submit))
	r.line(KV("WorkDir", sp.WorkDir))
	for _, c := range [...][2]string{{"Comment", sp.Comment}, {"AdminComment", j.AdminText()},
		{"SystemComment", j.SystemText()}} {
		if c[1] != "" {
			r.line(KV(c[0], oneLine(c[1])))
		}
	}
	switch { // Slurm's spelling
	case sp.KillOnDep:
		r.line(KV("KillOInInvalidDependent", "Yes"))
	case sp.Extra().KeepOnDep:
		r.line(KV("KillOInInvalidDependent", "No"))
	}
	if sp.Extra().Spread {
		r.line(KV("SpreadJob", "Yes"))
	}
	if x := sp.Extra(); x.Switches > 0 {
		r.line(KV("Switches", fmt.Sprintf("%d@%s", x.Switches, walltime.Elapsed(max(0, x.SwitchWaitS)))))
	}
	out, errFile := j.OutputFiles()
	in := sp.StdIn
	if in == "" {
		in = "/dev/null"
	}
	if !batchFlag(sp) {
		return // its files are its srun's
	}
	r.line(KV("StdErr", errFile))
	r.line(KV("StdIn", in))
	r.line(KV("StdOut", out))
}

// jobExtras writes fields that most jobs don't have.
func (r *KeyValues) jobExtras(j *model.Job) {
	sp := j.Spec
	x := sp.Extra()
	r.jobStated(sp.Stated())
	if x.CPUsPerGPU > 0 {
		r.line(KV("CpusPerTres", perGPU(int64(x.CPUsPerGPU))))
	}
	if x.MemPerGPU > 0 {
		r.line(KV("MemPerTres", perGPU(x.MemPerGPU)))
	}
	for _, per := range [...]struct {
		key  string
		list []string
	}{{"TresPerSocket", gresTexts(sp.Extra().GPUsPerSocket)}, {"TresPerJob", tresPer(sp, model.PerJob)},
		{"TresPerNode", tresPer(sp, model.PerNode)}, {"TresPerTask", tresPer(sp, model.PerTask)}} {
		if len(per.list) > 0 {
			r.line(KV(per.key, strings.Join(per.list, ",")))
		}
	}
	if b := gpuBind(sp); b != "" {
		r.line(KV("TresBind", b))
	}
	if m := sp.Mail(); m != nil && m.Types != 0 {
		r.line(KV("MailUser", m.User), KV("MailType", m.Types.String()))
	}
	if x := sp.Extra().GPUIndex; !x.Empty() {
		r.line(KV("GpuIndex", x))
	}
	if j.Expect != nil && j.Expect.IdleS > 0 && j.State == model.Running {
		r.line(KV("GpuIdleTime", walltime.Elapsed(j.Expect.IdleS)))
	}
	if c := sp.Extra().Container; c != nil {
		r.line(KV("Container", c.Shown()))
	}
	if el := sp.Elastic(); el != nil {
		r.line(KV("Elastic", elasticText(sp)), KV("ElasticSignal", elasticSignal(el)), KV("ElasticGrace", elasticGrace(el)))
	}
	if n := sp.Extra().Segment; n > 0 {
		r.line(KV("SegmentSize", n))
	}
	r.line(KV("OOMKillStep", yesNum(sp.Extra().OOMKill)))
	if sp.Extra().NoKill {
		r.line(KV("KillOnNodeFail", "No"))
	}
	if sp.Extra().NeverIdle {
		r.line(KV("GpuIdle", "off"))
	}
	if sp.Extra().Expedite {
		r.line(KV("ExpeditedRequeue", "Yes"))
	}
	switch sp.Extra().GresBind {
	case model.BindEnforced:
		r.line(KV("GresEnforceBind", "Yes"))
	case model.BindDisabled:
		r.line(KV("GresEnforceBind", "No"))
	}
	if m := sp.Extra(); m.GPUMemMiB > 0 || m.GPUMemAuto {
		text := fmt.Sprintf("%dM", m.GPUMemMiB)
		if m.GPUMemAuto {
			text = "auto(" + text + ")" // of 0: nothing was known
		}
		r.line(KV("GpuMem", text))
	}
	if p := sp.Extra().Prefer; p != "" {
		r.line(KV("Prefer", p))
	}
	if sp.Extra().OOMRequeue {
		r.line(KV("RequeueOnOom", "Yes"), KV("GpuOoms", j.GPUOOMs))
	}
	if j.Why != "" {
		r.line(KV("Why", strconv.Quote(j.Why)))
	}
}

// jobStated writes the options that decide nothing, where they have a line of their own.
func (r *KeyValues) jobStated(x *model.Stated) {
	if x.BurstBuffer != "" {
		r.line(KV("BurstBuffer", x.BurstBuffer))
	}
	if low, high, governor := cpuFreq(x.CPUFreq); x.CPUFreq != "" {
		var words []string
		for _, w := range [...][2]string{{"CPU_min_freq", low}, {"CPU_max_freq", high}, {"Governor", governor}} {
			if w[1] != "" {
				words = append(words, KV(w[0], w[1]))
			}
		}
		r.line(words...)
	}
	if f := gpuFreq(x); f != "" {
		r.line(KV("TresFreq", f))
	}
}

// gpuBind gives how tasks are bound to GPUs: gres/gpu:closest; "": it was not said.
func gpuBind(sp *model.Spec) string {
	if b := sp.Extra().Bind; b != nil && b.GPU != "" {
		return TRESGPU + b.GPU
	}
	return ""
}

func gpuFreq(x *model.Stated) string {
	if x.GPUFreq == "" {
		return ""
	}
	return "gpu:" + x.GPUFreq
}

// cpuFreq takes LOW-HIGH:GOVERNOR apart; one speed alone is the highest, one governor alone the governor.
func cpuFreq(text string) (low, high, governor string) {
	span, governor, _ := strings.Cut(text, ":")
	if low, high, ok := strings.Cut(span, "-"); ok {
		return low, high, governor
	}
	if _, err := strconv.ParseUint(span, 10, 32); err == nil || strings.EqualFold(span, "low") ||
		strings.EqualFold(span, "medium") || strings.HasPrefix(strings.ToLower(span), "high") {
		return "", span, governor
	}
	return "", "", span
}

// eligible gives when a job became, or becomes, eligible.
func eligible(j *model.Job) model.Time {
	if j.Eligible == 0 && j.State == model.Pending && j.Begin != 0 && len(j.Deps) == 0 {
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

// minCPUs gives the fewest CPUs of each node; TasksPerNode may only be a limit, but is shown as a request.
func minCPUs(c *ask.Counts) int { return c.CPUsFor(max(c.PerNode, c.TasksPerNode), 0) }

// tresText gives the resources that a job holds or asks for: cpu=2,mem=4G,node=1,billing=2,gres/gpu=1.
func tresText(j *model.Job, rules *model.AskRules) string {
	if j.Run == nil || j.Run.Alloc == nil {
		return askedText(j, rules)
	}
	cpus, mem, gres := j.Run.Alloc.Totals()
	return tres(int64(cpus), mem, int64(len(j.Run.Alloc.Nodes)), gres, j.Run.Billing()) + licenseTRES(j.Run.Licenses)
}

// askedText gives the resources that a job asks for, in the same form.
func askedText(j *model.Job, rules *model.AskRules) string {
	d := ask.Asked(j.Spec, rules)
	return tres(int64(d.CPUs), d.MemMiB, int64(d.Nodes), d.Gres, d.Bill) + licenseTRES(d.Licenses)
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

// depsText gives a pending job's unfulfilled dependencies: afterok:12(unfulfilled).
func depsText(j *model.Job, now model.Time) string {
	var out []string
	for _, d := range slices.Concat(j.Deps, j.Delays(now)) {
		s := d.Kind.String()
		if d.Job != 0 {
			s += ":" + strconv.Itoa(int(d.Job))
			switch {
			case d.Task != model.NoTask:
				s += "_" + strconv.Itoa(int(d.Task))
			case d.Array:
				s += "_*"
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

// failedNode adds the node whose failure ended a job.
func failedNode(j *model.Job) string {
	if node := j.FailedNode(); node != "" {
		return " " + KV("FailedNode", node)
	}
	return ""
}

// elasticText gives the sizes of an elastic job as --elastic takes them; "" for other jobs.
func elasticText(sp *model.Spec) string {
	el := sp.Elastic()
	switch {
	case el == nil:
		return ""
	case el.GPUs > 0:
		return fmt.Sprintf("gpus:%d-%d", sp.MinNodes*el.GPUs, el.Max*el.GPUs)
	}
	return fmt.Sprintf("%d-%d", sp.MinNodes, el.Max)
}

func elasticSignal(el *model.Elastic) string {
	switch {
	case el.Signal == 0:
		return "NONE"
	case el.Batch:
		return "B:" + signalName(int64(el.Signal))
	}
	return signalName(int64(el.Signal))
}

func elasticGrace(el *model.Elastic) string {
	if el.GraceS == model.NotSet {
		return "default"
	}
	return strconv.FormatInt(max(0, el.GraceS), 10)
}
