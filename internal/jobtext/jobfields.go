package jobtext

import (
	"cmp"
	"strconv"
	"strings"

	"gbatch/internal/format"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
)

// This file owns gqueue's fields of a job: the letters of -o and the names of -O, with the headings of squeue 22.05. A
// field without meaning in gbatch shows what squeue shows for an unset value.

type JobField = format.Field[JobRow]

func qText(letter byte, name, heading string, get func(r *JobRow) string) JobField {
	return JobField{Letter: letter, Name: name, Heading: heading, Get: get}
}

// qOld gives a field the name that older versions had for it too: scripts still write it.
func qOld(name string, f JobField) JobField {
	f.Old = name
	return f
}

func qAdd(letter byte, name, heading string, add func(b []byte, r *JobRow) []byte) JobField {
	return JobField{Letter: letter, Name: name, Heading: heading, Append: add}
}

func qNum(letter byte, name, heading string, get func(r *JobRow) int64) JobField {
	return qAdd(letter, name, heading, func(b []byte, r *JobRow) []byte { return strconv.AppendInt(b, get(r), 10) })
}

func qTime(letter byte, name, heading string, get func(r *JobRow) model.Time) JobField {
	return qAdd(letter, name, heading, func(b []byte, r *JobRow) []byte { return r.Append(b, get(r), "N/A") })
}

// qUnset is a field without a meaning here.
func qUnset(letter byte, name, heading, value string) JobField {
	return qText(letter, name, heading, func(*JobRow) string { return value })
}

// JobLanguage is every field, those with a letter first.
func JobLanguage() format.Language[JobRow] {
	return format.Language[JobRow]{Noun: "job", Fields: append(append(jobLetters(), jobNames()...), jobUnset()...)}
}

func jobLetters() []JobField {
	return []JobField{
		qText('a', "Account", "ACCOUNT", func(r *JobRow) string { return orNull(r.Spec.Account) }),
		qOld("gres", qText('b', "tres-per-node", "TRES_PER_NODE",
			func(r *JobRow) string { return r.gres(model.PerNode) })),
		qNum('c', "MinCpus", "MIN_CPUS", (*JobRow).MinCPUs),
		qAdd('d', "MinTmpDisk", "MIN_TMP_DISK",
			func(b []byte, r *JobRow) []byte { return appendMem(b, r.Spec.TmpMiB, r.NoConvert) }),
		qAdd('e', "EndTime", "END_TIME", func(b []byte, r *JobRow) []byte { return r.appendEnds(b) }),
		qText('f', "Feature", "FEATURES", func(r *JobRow) string { return orNull(r.Spec.Features) }),
		qText('g', "GroupName", "GROUP", func(r *JobRow) string { return r.Spec.Group }),
		qText('h', "OverSubscribe", "OVER_SUBSCRIBE", func(r *JobRow) string { return r.OverSubscribe() }),
		qAdd('i', "JobArrayID", "JOBID", func(b []byte, r *JobRow) []byte { return r.appendID(b) }),
		qText('j', "Name", "NAME", func(r *JobRow) string { return r.Spec.Name }),
		qText('k', "Comment", "COMMENT", func(r *JobRow) string { return orNull(r.Spec.Comment) }),
		qAdd('l', "TimeLimit", "TIME_LIMIT", func(b []byte, r *JobRow) []byte { return r.appendSpan(b, 0) }),
		qAdd('m', "MinMemory", "MIN_MEMORY",
			func(b []byte, r *JobRow) []byte { return appendMem(b, r.MemMiB(), r.NoConvert) }),
		qText('n', "ReqNodes", "REQ_NODES", func(r *JobRow) string { return hostlist.CompressSorted(r.Spec.ReqNodes) }),
		qText('o', "Command", "COMMAND", func(r *JobRow) string { return orNull(r.Spec.Command) }),
		qAdd('p', "Priority", "PRIORITY", func(b []byte, r *JobRow) []byte {
			return strconv.AppendFloat(b, float64(r.ShownPriority())/(1<<32-1), 'f', 14, 64)
		}),
		qText('q', "QOS", "QOS", func(r *JobRow) string { return orNull(r.Spec.QOS) }),
		qText('r', "Reason", "REASON", func(r *JobRow) string { return r.ReasonAt(r.At).String() }),
		qUnset('s', "SelectJobInfo", "", ""),
		qText('t', "StateCompact", "ST", func(r *JobRow) string {
			if r.SpecialExit() {
				return "SE"
			}
			return r.State.Short()
		}),
		qText('u', "UserName", "USER", func(r *JobRow) string { return r.Spec.User }),
		qText('v', "Reservation", "RESERVATION", func(r *JobRow) string { return orNull(r.ReservationText()) }),
		qText('w', "WCKey", "WCKEY", func(r *JobRow) string { return orNull(r.Spec.WCKey) }),
		qText('x', "ExcNodes", "EXC_NODES", func(r *JobRow) string { return hostlist.CompressSorted(r.Spec.ExcNodes) }),
		qNum('y', "Nice", "NICE", func(r *JobRow) int64 { return int64(r.Spec.Nice) }),
		qText('z', "SCT", "S:C:T", func(r *JobRow) string { s, c, t := hardware(r.Spec); return s + ":" + c + ":" + t }),
		qNum('A', "JobID", "JOBID", func(r *JobRow) int64 { return int64(r.ID) }),
		qText('B', "BatchHost", "EXEC_HOST", (*JobRow).batchHost),
		qNum('C', "NumCPUs", "CPUS", func(r *JobRow) int64 { _, c := r.Size(); return int64(c) }),
		qNum('D', "NumNodes", "NODES", func(r *JobRow) int64 { n, _ := r.Size(); return int64(n) }),
		qText('E', "Dependency", "DEPENDENCY", func(r *JobRow) string { return orNull(depsText(r.Job, r.At)) }),
		qNum('F', "ArrayJobID", "ARRAY_JOB_ID", func(r *JobRow) int64 { return int64(r.ArrayOrID()) }),
		qNum('G', "GroupID", "GROUP", func(r *JobRow) int64 { return int64(r.Spec.GID) }),
		qText('H', "Sockets", "SOCKETS_PER_NODE", func(r *JobRow) string { s, _, _ := hardware(r.Spec); return s }),
		qText('I', "Cores", "CORES_PER_SOCKET", func(r *JobRow) string { _, c, _ := hardware(r.Spec); return c }),
		qText('J', "Threads", "THREADS_PER_CORE", func(r *JobRow) string { _, _, t := hardware(r.Spec); return t }),
		qAdd('K', "ArrayTaskID", "ARRAY_TASK_ID", func(b []byte, r *JobRow) []byte { return r.appendTaskID(b) }),
		qAdd('L', "TimeLeft", "TIME_LEFT", func(b []byte, r *JobRow) []byte { return r.appendSpan(b, r.ElapsedS(r.At)) }),
		qAdd('M', "TimeUsed", "TIME", func(b []byte, r *JobRow) []byte { return appendShort(b, r.ElapsedS(r.At)) }),
		{Letter: 'N', Name: "NodeList", Heading: "NODELIST", Whole: true, Get: (*JobRow).nodeList},
		qText('O', "Contiguous", "CONTIGUOUS",
			func(r *JobRow) string { return strconv.Itoa(yesNum(r.Spec.More != nil && r.Spec.More.Contiguous)) }),
		qText('P', "Partition", "PARTITION", (*JobRow).partition),
		qNum('Q', "PriorityLong", "PRIORITY", func(r *JobRow) int64 { return int64(r.ShownPriority()) }),
		{Letter: 'R', Name: "ReasonList", Heading: "NODELIST(REASON)", Whole: true,
			Cuts:   (*JobRow).showsReason,
			Append: func(b []byte, r *JobRow) []byte { return r.appendWhere(b) }},
		qTime('S', "StartTime", "START_TIME", (*JobRow).Begins),
		qText('T', "State", "STATE", func(r *JobRow) string { return r.StateText() }),
		qNum('U', "UserID", "UID", func(r *JobRow) int64 { return int64(r.Spec.UID) }),
		qTime('V', "SubmitTime", "SUBMIT_TIME", func(r *JobRow) model.Time { return r.Submit }),
		qText('W', "Licenses", "LICENSES", func(r *JobRow) string { return orNull(licensesText(r.Spec)) }),
		qUnset('X', "CoreSpec", "CORE_SPEC", "N/A"),
		{Letter: 'Y', Name: "SchedNodes", Heading: "SCHEDNODES", Whole: true, Get: func(r *JobRow) string {
			if r.Expect == nil || r.Expect.Start == 0 {
				return "(null)"
			}
			return hostlist.Compress(r.Expect.Nodes)
		}},
		qText('Z', "WorkDir", "WORK_DIR", func(r *JobRow) string { return orNull(r.Spec.WorkDir) }),
	}
}

// jobNames are the fields that have a name only and a value here.
func jobNames() []JobField {
	return []JobField{
		qTime(0, "AccrueTime", "ACCRUE_TIME", func(r *JobRow) model.Time { return r.AccrueTime() }),
		qText(0, "admin_comment", "ADMIN_COMMENT", func(r *JobRow) string { return orNull(r.AdminText()) }),
		qText(0, "AdminComment", "ADMIN_COMMENT", func(r *JobRow) string { return orNull(r.AdminText()) }),
		qText(0, "AllocNodes", "ALLOC_NODES", func(r *JobRow) string { return orNull(r.Spec.Host) }),
		qNum(0, "BatchFlag", "BATCH_FLAG", func(r *JobRow) int64 { return int64(yesNum(batchFlag(r.Spec))) }),
		qOld("cpuspertask", qNum(0, "cpus-per-task", "CPUS_PER_TASK",
			func(r *JobRow) int64 { return int64(max(1, r.Spec.CPUsPerTask)) })),
		qTime(0, "Deadline", "DEADLINE", func(r *JobRow) model.Time { return r.Spec.Deadline }),
		qTime(0, "EligibleTime", "ELIGIBLE_TIME", func(r *JobRow) model.Time { return eligible(r.Job) }),
		qNum(0, "exit_code", "EXIT_CODE", (*JobRow).exitStatus),
		qTime(0, "LastSchedEval", "LAST_SCHED_EVAL", func(r *JobRow) model.Time { return lastEval(r.Job, r.At) }),
		qText(0, "LikelyStart", "LIKELY_START", func(r *JobRow) string {
			if r.Expect == nil || r.Expect.Early == 0 {
				return "N/A"
			}
			return Likely(r.Expect.Early, r.Expect.Late, r.At)
		}),
		qNum(0, "MaxCPUs", "MAX_CPUS", func(r *JobRow) int64 { _, c := r.Size(); return int64(c) }),
		qNum(0, "MaxNodes", "MAX_NODES", (*JobRow).maxNodes),
		{Name: "Nodes", Heading: "NODES", Whole: true, Get: (*JobRow).nodeList},
		qNum(0, "NTPerNode", "NTASKS_PER_NODE", func(r *JobRow) int64 { return int64(r.Spec.TasksPerNode) }),
		qNum(0, "NumTasks", "TASKS", func(r *JobRow) int64 { return int64(r.numTasks()) }),
		qText(0, "Position", "POSITION", func(r *JobRow) string {
			if r.Expect == nil || r.Expect.Position == 0 {
				return "N/A"
			}
			return strconv.Itoa(int(r.Expect.Position))
		}),
		qNum(0, "PendingTime", "PENDING_TIME", (*JobRow).pendingS),
		qNum(0, "Requeue", "REQUEUE", func(r *JobRow) int64 { return int64(yesNum(r.Spec.Requeue)) }),
		qNum(0, "RestartCnt", "RESTART_COUNT", func(r *JobRow) int64 { return int64(r.Restarts) }),
		qText(0, "Shared", "OVER_SUBSCRIBE", func(r *JobRow) string { return r.OverSubscribe() }),
		qText(0, "STDERR", "STDERR", func(r *JobRow) string { _, e := r.outputs(); return e }),
		qText(0, "STDIN", "STDIN", func(r *JobRow) string { return stdinOf(r.Spec) }),
		qText(0, "STDOUT", "STDOUT", func(r *JobRow) string { o, _ := r.outputs(); return o }),
		qOld("tres", qText(0, "tres-alloc", "TRES_ALLOC",
			func(r *JobRow) string { return tresText(r.Job, r.askRules()) })),
		qText(0, "tres-per-job", "TRES_PER_JOB", func(r *JobRow) string { return r.gres(model.PerJob) }),
		qText(0, "tres-per-task", "TRES_PER_TASK", func(r *JobRow) string { return r.gres(model.PerTask) }),
	}
}

func jobUnset() []JobField {
	return []JobField{
		qNum(0, "AllocSID", "ALLOC_SID", func(r *JobRow) int64 { return int64(r.Spec.SID) }),
		qText(0, "AssocID", "ASSOC_ID",
			func(r *JobRow) string { return r.Numbers.OfAssoc(r.Spec.Account, r.Spec.User, r.Job.Partition()) }),
		qUnset(0, "BoardsPerNode", "BOARDS_PER_NODE", "0"),
		qText(0, "BurstBuffer", "BURST_BUFFER", func(r *JobRow) string { return orNull(r.Spec.Stated().BurstBuffer) }),
		qUnset(0, "BurstBufferState", "BURST_BUFFER_STATE", "(null)"),
		qUnset(0, "Cluster", "CLUSTER", "(null)"),
		qUnset(0, "ClusterFeature", "CLUSTER_FEATURES", "(null)"),
		qText(0, "Container", "CONTAINER", func(r *JobRow) string {
			return cmp.Or(r.Spec.Extra().Container.Shown(), "(null)")
		}),
		qUnset(0, "ContainerID", "CONTAINER_ID", "(null)"),
		qUnset(0, "CPUFreq", "CPUFREQ", "N/A"),
		qText(0, "cpus-per-tres", "CPUS_PER_TRES",
			func(r *JobRow) string { return perGPUOrNA(int64(r.Spec.Extra().CPUsPerGPU)) }),
		qAdd(0, "DelayBoot", "DELAY_BOOT",
			func(b []byte, r *JobRow) []byte { return appendShort(b, r.Spec.Stated().DelayBootS) }),
		qText(0, "Elastic", "ELASTIC", func(r *JobRow) string { return elasticText(r.Spec) }),
		qNum(0, "DerivedEC", "DERIVED_EC", (*JobRow).derivedStatus),
		qOld("packjobid", qHet("HetJobID", "HET_JOB_ID", func(h *model.Het) string { return strconv.Itoa(int(h.ID)) })),
		qOld("packjobidset", qHet("HetJobIDSet", "HET_JOB_ID_SET", (*model.Het).Set)),
		qOld("packjoboffset",
			qHet("HetJobOffset", "HET_JOB_OFFSET", func(h *model.Het) string { return strconv.Itoa(int(h.Offset)) })),
		qUnset(0, "MCSLabel", "MCSLABEL", "(null)"),
		qText(0, "mem-per-tres", "MEM_PER_TRES", func(r *JobRow) string { return perGPUOrNA(r.Spec.Extra().MemPerGPU) }),
		qAdd(0, "MinTime", "TIME_MIN", func(b []byte, r *JobRow) []byte {
			if r.Spec.More == nil {
				return appendShort(b, 0)
			}
			return appendShort(b, r.Spec.More.TimeMinS)
		}),
		qText(0, "Network", "NETWORK", func(r *JobRow) string { return orNull(r.Spec.Stated().Network) }),
		qUnset(0, "NTPerBoard", "NTASKS_PER_BOARD", "0"),
		qText(0, "NTPerCore", "NTASKS_PER_CORE", func(r *JobRow) string { return orAny(r.Spec.Extra().TasksPerCore, "N/A") }),
		qText(0, "NTPerSocket", "NTASKS_PER_SOCKET", func(r *JobRow) string {
			m := r.Spec.Extra()
			return orAny(m.SaidPerSocket(), "N/A")
		}),
		qUnset(0, "Origin", "ORIGIN", "NA"),
		qUnset(0, "OriginRaw", "ORIGIN_RAW", "NA"),
		qTime(0, "PreemptTime", "PREEMPT_TIME", (*JobRow).preemptedAt),
		qText(0, "Prefer", "PREFER", func(r *JobRow) string { return orNull(r.Spec.Extra().Prefer) }),
		qText(0, "Profile", "PROFILE", func(r *JobRow) string { return cmp.Or(r.Spec.Stated().Profile, "NotSet") }),
		qText(0, "Reboot", "REBOOT", func(r *JobRow) string { return strconv.Itoa(yesNum(r.Spec.Extra().Reboot)) }),
		qNum(0, "ReqSwitch", "REQ_SWITCH", func(r *JobRow) int64 { return int64(r.Spec.Extra().Switches) }),
		qTime(0, "ResizeTime", "RESIZE_TIME", (*JobRow).resizedAt),
		qUnset(0, "ResvPort", "RESV_PORTS", "N/A"),
		qUnset(0, "SiblingsActive", "ACTIVE_SIBLINGS", "NA"),
		qUnset(0, "SiblingsActiveRaw", "ACTIVE_SIBLINGS_RAW", "NA"),
		qUnset(0, "SiblingsViable", "VIABLE_SIBLINGS", "NA"),
		qUnset(0, "SiblingsViableRaw", "VIABLE_SIBLINGS_RAW", "NA"),
		qUnset(0, "SPerBoard", "SOCKETS_PER_BOARD", "0"),
		qUnset(0, "StepID", "STEPID", "N/A"),
		qUnset(0, "StepName", "STEP_NAME", "N/A"),
		qUnset(0, "StepState", "STEP_STATE", "N/A"),
		qText(0, "system_comment", "SYSTEM_COMMENT", func(r *JobRow) string { return orNull(r.SystemText()) }),
		qText(0, "tres-bind", "TRES_BIND", func(r *JobRow) string { return cmp.Or(gpuBind(r.Spec), "N/A") }),
		qText(0, "tres-freq", "TRES_FREQ", func(r *JobRow) string { return cmp.Or(gpuFreq(r.Spec.Stated()), "N/A") }),
		qText(0, "tres-per-socket", "TRES_PER_SOCKET", (*JobRow).gresPerSocket),
		qUnset(0, "tres-per-step", "TRES_PER_STEP", "N/A"),
		qAdd(0, "Wait4Switch", "WAIT4SWITCH",
			func(b []byte, r *JobRow) []byte { return appendShort(b, max(0, r.Spec.Extra().SwitchWaitS)) }),
	}
}

// qHet is a column of heterogeneous jobs.
func qHet(name, header string, text func(*model.Het) string) JobField {
	return qText(0, name, header, func(r *JobRow) string {
		if r.Het == nil {
			return "N/A"
		}
		return text(r.Het)
	})
}

func (r *JobRow) ArrayOrID() model.JobID {
	if r.ArrayID != 0 {
		return r.ArrayID
	}
	return r.ID
}

func stdinOf(sp *model.Spec) string {
	if sp.StdIn == "" {
		return "/dev/null"
	}
	return sp.StdIn
}

// gresPerSocket gives what the job asked for on each socket.
func (r *JobRow) gresPerSocket() string {
	return orNA(strings.Join(gresTexts(r.Spec.Extra().GPUsPerSocket), ","))
}
