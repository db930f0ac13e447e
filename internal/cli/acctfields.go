package cli

import (
	"fmt"
	"strconv"

	"gbatch/internal/format"
	"gbatch/internal/walltime"
)

// This file owns what gacct can show: sacct's names, in the order in which a shortened name means the first that begins
// so, with sacct's widths. What gbatch does not measure is empty.

type acctField = format.Field[acctRow]

// The default fields, and those of -b and -l.
const (
	acctFormat = "jobid,jobname,partition,account,alloccpus,state,exitcode"
	acctBrief  = "jobid,state,exitcode"
	acctLong   = "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask," +
		"averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed,state," +
		"exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,maxdiskreadnode," +
		"maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,alloctres," +
		"tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,tresusageinmin,tresusageinminnode," +
		"tresusageinmintask,tresusageintot,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutave,tresusageouttot"
)

// aText is a field of every row.
func aText(name string, width int, get func(r *acctRow) string) acctField {
	return acctField{Name: name, Width: width, Get: get}
}

// aJob is a field of the allocation; the batch step has none.
func aJob(name string, width int, get func(r *acctRow) string) acctField {
	return aText(name, width, func(r *acctRow) string {
		if r.batch {
			return ""
		}
		return get(r)
	})
}

// aStep is a field of the batch step that is known once it has ended.
func aStep(name string, width int, get func(r *acctRow) string) acctField {
	return aText(name, width, func(r *acctRow) string {
		if !r.batch || !r.done() {
			return ""
		}
		return get(r)
	})
}

func aNum(name string, width int, get func(r *acctRow) int64) acctField {
	return acctField{Name: name, Width: width, Whole: true, Append: func(b []byte, r *acctRow) []byte { return strconv.AppendInt(b, get(r), 10) }}
}

// aJobNum is a number of the allocation.
func aJobNum(name string, width int, get func(r *acctRow) int64) acctField {
	f := aJob(name, width, func(r *acctRow) string { return strconv.FormatInt(get(r), 10) })
	f.Whole = true
	return f
}

func aConst(name string, width int, value string) acctField {
	return aText(name, width, func(*acctRow) string { return value })
}

// aSpan is a duration in seconds of every row.
func aSpan(name string, width int, get func(r *acctRow) int64) acctField {
	return acctField{Name: name, Width: width, Whole: true, Get: func(r *acctRow) string { return walltime.Elapsed(get(r)) }}
}

// acctGPU is a field of GPUs, which the allocation shows too.
func acctGPU(f acctField) acctField {
	get := f.Get
	f.Get = func(r *acctRow) string {
		if r.done() && !r.batch {
			step := *r
			step.batch = true
			return get(&step)
		}
		return get(r)
	}
	return f
}

// aEmpty is a field without a meaning here.
func aEmpty(name string, width int) acctField { return aConst(name, width, "") }

// aCPU is CPU time in milliseconds.
func aCPU(name string, get func(r *acctRow) int64) acctField {
	return aText(name, 10, func(r *acctRow) string { return walltime.TotalCPU(get(r) * 1000) })
}

func acctLanguage() format.Language[acctRow] {
	u := useFields((*acctRow).used)
	fields := append(append(acctFieldsAToL(u), acctFieldsMToR(u)...), acctFieldsSToW(u)...)
	return format.Language[acctRow]{Noun: "field", Fields: fields}
}

func acctFieldsAToL(u map[string]acctField) []acctField {
	id := func(raw bool) func(b []byte, r *acctRow) []byte {
		return func(b []byte, r *acctRow) []byte { return r.appendID(b, raw) }
	}
	zero := func(*acctRow) string { return "0" }
	return []acctField{
		aText("Account", 10, func(r *acctRow) string { return r.Account }),
		aJob("AdminComment", 15, func(r *acctRow) string { return r.AdminComment }),
		aNum("AllocCPUS", 10, (*acctRow).cpus),
		aNum("AllocNodes", 10, func(r *acctRow) int64 {
			if r.AllocCPUs == 0 {
				return 0
			}
			return r.nodes()
		}),
		aText("AllocTRES", 10, (*acctRow).allocTRES),
		aConst("AssocID", 7, "0"),
		u["AveCPU"],
		aStep("AveCPUFreq", 10, zero),
		u["AveDiskRead"], u["AveDiskWrite"], u["AvePages"], u["AveRSS"], u["AveVMSize"],
		aEmpty("BlockID", 16),
		aText("Cluster", 10, func(r *acctRow) string { return r.Cluster }),
		aJob("Comment", 14, func(r *acctRow) string { return r.Comment }),
		aJob("Constraints", 19, func(r *acctRow) string { return r.Constraints }),
		aText("ConsumedEnergy", 14, func(r *acctRow) string { return joules(r.energyJ()) }),
		aNum("ConsumedEnergyRaw", 17, (*acctRow).energyJ), aEmpty("Container", 19),
		aSpan("CPUTime", 10, func(r *acctRow) int64 { return r.cpus() * r.elapsedS() }),
		aNum("CPUTimeRAW", 10, func(r *acctRow) int64 { return r.cpus() * r.elapsedS() }),
		aNum("DBIndex", 10, func(r *acctRow) int64 { return int64(r.Seq) }),
		aJob("DerivedExitCode", 15, func(*acctRow) string { return "0:0" }),
		aSpan("Elapsed", 10, (*acctRow).elapsedS),
		aNum("ElapsedRaw", 10, (*acctRow).elapsedS),
		aText("Eligible", 19, func(r *acctRow) string {
			if r.batch {
				return r.stamp(r.Start)
			}
			return r.stamp(r.Eligible)
		}),
		aText("End", 19, func(r *acctRow) string { return r.stamp(r.End) }),
		aText("ExitCode", 8, func(r *acctRow) string { return fmt.Sprintf("%d:%d", r.Exit.Code, r.Exit.Signal) }),
		aEmpty("Extra", 10), aEmpty("FailedNode", 15), aEmpty("Flags", 19),
		aJobNum("GID", 6, func(r *acctRow) int64 { return int64(r.GID) }),
		aJob("Group", 9, func(r *acctRow) string { return r.Group }),
		acctGPU(u["GPUMemMax"]), acctGPU(u["GPUUtilAve"]), acctGPU(u["GPUUtilMax"]),
		{Name: "JobID", Width: 12, Left: true, Append: id(false)},
		{Name: "JobIDRaw", Width: 12, Left: true, Append: id(true)},
		aText("JobName", 10, func(r *acctRow) string {
			if r.batch && r.step == nil {
				return "batch"
			}
			return r.Name
		}),
		aText("Layout", 9, func(r *acctRow) string {
			if r.batch {
				return "Unknown"
			}
			return ""
		}),
		aEmpty("Licenses", 10),
	}
}

func acctFieldsMToR(u map[string]acctField) []acctField {
	zero := func(*acctRow) string { return "0" }
	freq := func(r *acctRow) string {
		if r.batch {
			return "0"
		}
		return "Unknown"
	}
	return []acctField{
		u["MaxDiskRead"], u["MaxDiskReadNode"], u["MaxDiskReadTask"],
		u["MaxDiskWrite"], u["MaxDiskWriteNode"], u["MaxDiskWriteTask"],
		u["MaxPages"], u["MaxPagesNode"], u["MaxPagesTask"], u["MaxRSS"], u["MaxRSSNode"], u["MaxRSSTask"],
		u["MaxVMSize"], u["MaxVMSizeNode"], u["MaxVMSizeTask"], aEmpty("McsLabel", 12),
		u["MinCPU"], u["MinCPUNode"], u["MinCPUTask"],
		aNum("NCPUS", 10, (*acctRow).cpus),
		aNum("NNodes", 8, (*acctRow).nodes),
		aText("NodeList", 15, (*acctRow).nodeList),
		aText("NTasks", 8, func(r *acctRow) string {
			if r.batch {
				return strconv.Itoa(int(r.tasks()))
			}
			return ""
		}),
		aJob("Partition", 10, func(r *acctRow) string { return r.Partition }),
		aJob("Planned", 10, func(r *acctRow) string { return walltime.Elapsed(r.plannedS()) }),
		aJob("PlannedCPU", 10, func(r *acctRow) string { return walltime.Elapsed(r.plannedS() * r.reqCPUs()) }),
		aJobNum("PlannedCPURAW", 13, func(r *acctRow) int64 { return r.plannedS() * r.reqCPUs() }),
		aJobNum("Priority", 10, func(r *acctRow) int64 { return int64(r.Priority) }),
		aJob("QOS", 10, func(r *acctRow) string { return r.QOS }),
		aJob("QOSRAW", 6, zero),
		aJob("QOSREQ", 10, func(r *acctRow) string { return r.QOS }),
		aJob("Reason", 22, func(r *acctRow) string { return r.Reason.String() }),
		aText("ReqCPUFreq", 10, freq), aText("ReqCPUFreqGov", 13, freq), aText("ReqCPUFreqMax", 13, freq), aText("ReqCPUFreqMin", 13, freq),
		aNum("ReqCPUS", 8, func(r *acctRow) int64 {
			if r.batch {
				return r.cpus()
			}
			return r.reqCPUs()
		}),
		aJob("ReqMem", 10, func(r *acctRow) string { return r.mem(r.ReqMemMiB * int64(max(1, r.NumNodes))) }),
		aNum("ReqNodes", 8, (*acctRow).nodes),
		aJob("ReqTRES", 10, (*acctRow).reqTRES),
		aJob("Reservation", 20, func(r *acctRow) string { return r.Reservation }), aEmpty("ReservationId", 8),
		aJob("Reserved", 10, func(r *acctRow) string { return walltime.Elapsed(r.plannedS()) }),
		aJobNum("Restarts", 8, func(r *acctRow) int64 { return int64(r.Restarts) }),
		aJob("ResvCPU", 10, func(r *acctRow) string { return walltime.Elapsed(r.plannedS() * r.reqCPUs()) }),
		aJobNum("ResvCPURAW", 10, func(r *acctRow) int64 { return r.plannedS() * r.reqCPUs() }),
	}
}

func acctFieldsSToW(u map[string]acctField) []acctField {
	return []acctField{
		aEmpty("SegmentSize", 11),
		aText("Start", 19, func(r *acctRow) string { return r.stamp(r.Start) }),
		aText("State", 10, (*acctRow).state),
		aJob("StdErr", 20, func(r *acctRow) string { return r.StdErr }),
		aJob("StdIn", 20, func(r *acctRow) string { return r.StdIn }),
		aJob("StdOut", 20, func(r *acctRow) string { return r.outputFile(r.StdOut) }),
		aText("Submit", 19, func(r *acctRow) string {
			if r.batch {
				return r.stamp(r.Start)
			}
			return r.stamp(r.Submit)
		}),
		aJob("SubmitLine", 20, func(r *acctRow) string { return r.SubmitLine }),
		aSpan("Suspended", 10, func(r *acctRow) int64 { return r.suspendedS() }),
		aEmpty("SystemComment", 15),
		aCPU("SystemCPU", func(r *acctRow) int64 { return r.Exit.SysMS }),
		aJob("Timelimit", 10, func(r *acctRow) string { return r.timelimit(false) }),
		aJob("TimelimitRaw", 10, func(r *acctRow) string { return r.timelimit(true) }),
		aCPU("TotalCPU", func(r *acctRow) int64 { return r.Exit.UserMS + r.Exit.SysMS }),
		u["TRESUsageInAve"], u["TRESUsageInMax"], u["TRESUsageInMaxNode"], u["TRESUsageInMaxTask"],
		u["TRESUsageInMin"], u["TRESUsageInMinNode"], u["TRESUsageInMinTask"], u["TRESUsageInTot"],
		u["TRESUsageOutAve"], u["TRESUsageOutMax"], u["TRESUsageOutMaxNode"], u["TRESUsageOutMaxTask"],
		u["TRESUsageOutMin"], u["TRESUsageOutMinNode"], u["TRESUsageOutMinTask"], u["TRESUsageOutTot"],
		aJobNum("UID", 6, func(r *acctRow) int64 { return int64(r.UID) }),
		aJob("User", 9, func(r *acctRow) string { return r.User }),
		aCPU("UserCPU", func(r *acctRow) int64 { return r.Exit.UserMS }),
		aEmpty("WCKey", 10),
		aJob("WCKeyID", 10, func(*acctRow) string { return "0" }),
		aJob("WorkDir", 20, func(r *acctRow) string { return r.WorkDir }),
	}
}
