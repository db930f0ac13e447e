package jobtext

import (
	"strconv"
	"strings"

	"gbatch/internal/format"
	"gbatch/internal/outpath"
	"gbatch/internal/walltime"
)

// This file owns gacct's fields: sacct's names and widths. Their order decides which field a shortened name means: the
// first one that begins with it. Fields that gbatch does not measure are empty.

type RecordField = format.Field[RecordRow]

// aText is a field of every row.
func aText(name string, width int, get func(r *RecordRow) string) RecordField {
	return RecordField{Name: name, Width: width, Get: get}
}

// aJob is a field of the allocation; the batch step has none.
func aJob(name string, width int, get func(r *RecordRow) string) RecordField {
	return aText(name, width, func(r *RecordRow) string {
		if r.Batch {
			return ""
		}
		return get(r)
	})
}

// recordWhy says why a job did not complete, or why a step could not be run.
func recordWhy(r *RecordRow) string {
	switch {
	case r.OfStep != nil:
		return r.OfStep.Exit.Text
	case r.Batch:
		return ""
	}
	return r.EndText()
}

// aStep is a field of the batch step that is known once it has ended.
func aStep(name string, width int, get func(r *RecordRow) string) RecordField {
	return aText(name, width, func(r *RecordRow) string {
		if !r.Batch || !r.done() {
			return ""
		}
		return get(r)
	})
}

func aNum(name string, width int, get func(r *RecordRow) int64) RecordField {
	return RecordField{Name: name, Width: width, Whole: true,
		Append: func(b []byte, r *RecordRow) []byte { return strconv.AppendInt(b, get(r), 10) }}
}

// aJobNum is a number of the allocation.
func aJobNum(name string, width int, get func(r *RecordRow) int64) RecordField {
	f := aJob(name, width, func(r *RecordRow) string { return strconv.FormatInt(get(r), 10) })
	f.Whole = true
	return f
}

func aConst(name string, width int, value string) RecordField {
	return aText(name, width, func(*RecordRow) string { return value })
}

// aSpan is a duration in seconds of every row.
func aSpan(name string, width int, get func(r *RecordRow) int64) RecordField {
	return RecordField{Name: name, Width: width, Whole: true,
		Get: func(r *RecordRow) string { return walltime.Elapsed(get(r)) }}
}

// recordGPU is a field of GPUs, which the allocation shows too.
func recordGPU(f RecordField) RecordField {
	get := f.Get
	f.Get = func(r *RecordRow) string {
		if r.done() && !r.Batch {
			step := *r
			step.Batch = true
			return get(&step)
		}
		return get(r)
	}
	return f
}

// aEmpty is a field without a meaning here.
func aEmpty(name string, width int) RecordField { return aConst(name, width, "") }

// aCPU is CPU time in milliseconds.
func aCPU(name string, get func(r *RecordRow) int64) RecordField {
	return aText(name, 10, func(r *RecordRow) string { return walltime.TotalCPU(get(r) * 1000) })
}

func RecordLanguage() format.Language[RecordRow] {
	u := UsageFields((*RecordRow).used)
	fields := append(append(recordFieldsAToL(u), recordFieldsMToR(u)...), recordFieldsSToW(u)...)
	return format.Language[RecordRow]{Noun: "field", Fields: fields}
}

func recordFieldsAToL(u map[string]RecordField) []RecordField {
	id := func(raw bool) func(b []byte, r *RecordRow) []byte {
		return func(b []byte, r *RecordRow) []byte { return r.appendID(b, raw) }
	}
	zero := func(*RecordRow) string { return "0" }
	return []RecordField{
		aText("Account", 10, func(r *RecordRow) string { return r.Account }),
		aJob("AdminComment", 15, func(r *RecordRow) string { return r.AdminComment }),
		aNum("AllocCPUS", 10, (*RecordRow).cpus),
		aNum("AllocNodes", 10, func(r *RecordRow) int64 {
			if r.AllocCPUs == 0 {
				return 0
			}
			return r.nodes()
		}),
		aText("AllocTRES", 10, (*RecordRow).allocTRES),
		aText("AssocID", 7, func(r *RecordRow) string { return r.Numbers.OfAssoc(r.Account, r.User, r.Partition) }),
		u["AveCPU"],
		aStep("AveCPUFreq", 10, zero),
		u["AveDiskRead"], u["AveDiskWrite"], u["AvePages"], u["AveRSS"], u["AveVMSize"],
		aEmpty("BlockID", 16),
		aText("Cluster", 10, func(r *RecordRow) string { return r.Cluster }),
		aJob("Comment", 14, func(r *RecordRow) string { return r.Comment }),
		aJob("Constraints", 19, func(r *RecordRow) string { return r.Constraints }),
		aText("ConsumedEnergy", 14, func(r *RecordRow) string { return r.energy(joules) }),
		aText("ConsumedEnergyRaw", 17, func(r *RecordRow) string { return r.energy(plainCount) }),
		aText("Container", 19, func(r *RecordRow) string { return r.Container }),
		aSpan("CPUTime", 10, func(r *RecordRow) int64 { return r.cpus() * r.elapsedS() }),
		aNum("CPUTimeRAW", 10, func(r *RecordRow) int64 { return r.cpus() * r.elapsedS() }),
		aNum("DBIndex", 10, func(r *RecordRow) int64 { return int64(r.Seq) }),
		aJob("DerivedExitCode", 15, func(r *RecordRow) string { return exitText(r.Exit.Derived()) }),
		aSpan("Elapsed", 10, (*RecordRow).elapsedS),
		aNum("ElapsedRaw", 10, (*RecordRow).elapsedS),
		aText("Eligible", 19, func(r *RecordRow) string {
			if r.Batch {
				return r.stamp(r.Start)
			}
			return r.stamp(r.Eligible)
		}),
		aText("End", 19, func(r *RecordRow) string { return r.stamp(r.End) }),
		aText("ExitCode", 8, (*RecordRow).exitCode),
		aJob("Extra", 10, func(r *RecordRow) string { return r.Extra() }),
		aJob("FailedNode", 15, func(r *RecordRow) string { return r.FailedNode }),
		aJob("Flags", 19, (*RecordRow).Flags),
		aJobNum("GID", 6, func(r *RecordRow) int64 { return int64(r.GID) }),
		aJob("Group", 9, func(r *RecordRow) string { return r.Group }),
		recordGPU(u["GPUMemMax"]), recordGPU(u["GPUUtilAve"]), recordGPU(u["GPUUtilMax"]),
		{Name: "JobID", Width: 12, Left: true, Append: id(false)},
		{Name: "JobIDRaw", Width: 12, Left: true, Append: id(true)},
		aText("JobName", 10, func(r *RecordRow) string {
			if r.Batch && r.OfStep == nil {
				return "batch"
			}
			return r.Name
		}),
		aText("Layout", 9, func(r *RecordRow) string {
			switch {
			case r.OfStep != nil && r.OfStep.ID >= 0:
				return layoutOf(r.OfStep)
			case r.Batch:
				return "Unknown"
			}
			return ""
		}),
		aJob("Licenses", 10, (*RecordRow).licenses),
	}
}

func recordFieldsMToR(u map[string]RecordField) []RecordField {
	freq := func(r *RecordRow) string {
		if r.Batch && (r.OfStep == nil || r.OfStep.ID < 0) {
			return "0"
		}
		return "Unknown"
	}
	return []RecordField{
		u["MaxDiskRead"], u["MaxDiskReadNode"], u["MaxDiskReadTask"],
		u["MaxDiskWrite"], u["MaxDiskWriteNode"], u["MaxDiskWriteTask"],
		u["MaxPages"], u["MaxPagesNode"], u["MaxPagesTask"], u["MaxRSS"], u["MaxRSSNode"], u["MaxRSSTask"],
		u["MaxVMSize"], u["MaxVMSizeNode"], u["MaxVMSizeTask"], aEmpty("McsLabel", 12),
		u["MinCPU"], u["MinCPUNode"], u["MinCPUTask"],
		aNum("NCPUS", 10, (*RecordRow).cpus),
		aNum("NNodes", 8, (*RecordRow).nodes),
		aText("NodeList", 15, (*RecordRow).nodeList),
		aText("NTasks", 8, func(r *RecordRow) string {
			if r.Batch {
				return strconv.Itoa(int(r.tasks()))
			}
			return ""
		}),
		aJob("Partition", 10, func(r *RecordRow) string { return r.Partition }),
		aJob("Planned", 10, func(r *RecordRow) string { return walltime.Elapsed(r.plannedS()) }),
		aJob("PlannedCPU", 10, func(r *RecordRow) string { return walltime.Elapsed(r.plannedS() * r.reqCPUs()) }),
		aJobNum("PlannedCPURAW", 13, func(r *RecordRow) int64 { return r.plannedS() * r.reqCPUs() }),
		aJobNum("Priority", 10, func(r *RecordRow) int64 { return int64(r.Priority) }),
		aJob("QOS", 10, func(r *RecordRow) string { return r.QOS }),
		aJob("QOSRAW", 6, func(r *RecordRow) string { return r.Numbers.ofQOS(r.QOS) }),
		aJob("QOSREQ", 10, func(r *RecordRow) string { return r.QOS }),
		aJob("Reason", 22, (*RecordRow).WaitedFor),
		aText("ReqCPUFreq", 10, freq), aText("ReqCPUFreqGov", 13, freq), aText("ReqCPUFreqMax", 13, freq),
		aText("ReqCPUFreqMin", 13, freq),
		aNum("ReqCPUS", 8, func(r *RecordRow) int64 {
			if r.Batch {
				return r.cpus()
			}
			return r.reqCPUs()
		}),
		aJob("ReqMem", 10, func(r *RecordRow) string { _, mem, _ := r.asked(); return r.mem(mem) }),
		aNum("ReqNodes", 8, (*RecordRow).nodes),
		aJob("ReqTRES", 10, (*RecordRow).reqTRES),
		aJob("Reservation", 20, func(r *RecordRow) string { return r.Reservation }), aEmpty("ReservationId", 8),
		aJob("Reserved", 10, func(r *RecordRow) string { return walltime.Elapsed(r.plannedS()) }),
		aJobNum("Restarts", 8, func(r *RecordRow) int64 { return int64(r.Restarts) }),
		aJob("ResvCPU", 10, func(r *RecordRow) string { return walltime.Elapsed(r.plannedS() * r.reqCPUs()) }),
		aJobNum("ResvCPURAW", 10, func(r *RecordRow) int64 { return r.plannedS() * r.reqCPUs() }),
	}
}

func recordFieldsSToW(u map[string]RecordField) []RecordField {
	return []RecordField{
		aEmpty("SegmentSize", 11),
		aText("Start", 19, (*RecordRow).start),
		aText("State", 10, (*RecordRow).state),
		aJob("StdErr", 20, (*RecordRow).stdErr),
		aJob("StdIn", 20, (*RecordRow).stdIn),
		aJob("StdOut", 20, (*RecordRow).stdOut),
		aText("Submit", 19, func(r *RecordRow) string {
			if r.Batch {
				return r.stamp(r.Start)
			}
			return r.stamp(r.Submit)
		}),
		aText("SubmitLine", 20, func(r *RecordRow) string {
			if r.Batch && r.OfStep == nil {
				return ""
			}
			return r.SubmitLine
		}),
		aSpan("Suspended", 10, func(r *RecordRow) int64 { return r.suspendedS() }),
		aJob("SystemComment", 15, func(r *RecordRow) string { return r.SystemText() }),
		aCPU("SystemCPU", func(r *RecordRow) int64 { return r.Exit.SysMS }),
		aJob("Timelimit", 10, func(r *RecordRow) string { return r.timelimit(false) }),
		aJob("TimelimitRaw", 10, func(r *RecordRow) string { return r.timelimit(true) }),
		aCPU("TotalCPU", func(r *RecordRow) int64 { return r.Exit.UserMS + r.Exit.SysMS }),
		u["TRESUsageInAve"], u["TRESUsageInMax"], u["TRESUsageInMaxNode"], u["TRESUsageInMaxTask"],
		u["TRESUsageInMin"], u["TRESUsageInMinNode"], u["TRESUsageInMinTask"], u["TRESUsageInTot"],
		u["TRESUsageOutAve"], u["TRESUsageOutMax"], u["TRESUsageOutMaxNode"], u["TRESUsageOutMaxTask"],
		u["TRESUsageOutMin"], u["TRESUsageOutMinNode"], u["TRESUsageOutMinTask"], u["TRESUsageOutTot"],
		aJobNum("UID", 6, func(r *RecordRow) int64 { return int64(r.UID) }),
		aJob("User", 9, func(r *RecordRow) string { return r.User }),
		aCPU("UserCPU", func(r *RecordRow) int64 { return r.Exit.UserMS }),
		aJob("WCKey", 10, func(r *RecordRow) string { return r.WCKey }),
		aJobNum("WCKeyID", 10, func(r *RecordRow) int64 { return int64(r.WCKeyID) }),
		aJob("WorkDir", 20, func(r *RecordRow) string { return r.WorkDir }),
		aText("Why", 40, recordWhy),
	}
}

// stdIn, stdOut and stdErr give the files of a job's script as they were named, or the default ones; with
// --expand-patterns their whole names.
func (r *RecordRow) stdIn() string {
	if r.StdIn == "" && !r.NoScript {
		return r.asAsked("/dev/null")
	}
	return r.asAsked(r.StdIn)
}

func (r *RecordRow) stdOut() string { return r.asAsked(r.outPattern()) }

func (r *RecordRow) stdErr() string { return r.asAsked(r.StdErr) }

func (r *RecordRow) outPattern() string {
	switch {
	case r.StdOut != "" || r.NoScript:
		return r.StdOut
	case r.ArrayID != 0:
		return "slurm-%A_%a.out"
	}
	return "slurm-%j.out"
}

func (r *RecordRow) asAsked(pattern string) string {
	if r.Expand {
		return r.whole(pattern)
	}
	return pattern
}

// whole gives the name of the file that a pattern stands for.
func (r *RecordRow) whole(pattern string) string {
	if pattern == "" {
		return ""
	}
	first, _, _ := strings.Cut(r.batchHost(), ".")
	name := outpath.Expand(pattern, outpath.Values{JobID: uint32(r.Job), ArrayJob: uint32(r.ArrayID),
		Task: uint32(r.Task), JobName: r.Name, User: r.User, Node: first})
	if strings.HasPrefix(name, "/") || r.WorkDir == "" {
		return name
	}
	return r.WorkDir + "/" + name
}
