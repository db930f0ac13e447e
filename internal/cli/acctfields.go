package cli

import (
	"fmt"
	"strconv"

	"gbatch/internal/cli/format"
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

// aEmpty is a field without a meaning here.
func aEmpty(name string, width int) acctField { return aConst(name, width, "") }

// aCPU is CPU time in milliseconds.
func aCPU(name string, get func(r *acctRow) int64) acctField {
	return aText(name, 10, func(r *acctRow) string { return walltime.TotalCPU(get(r) * 1000) })
}

func acctLanguage() format.Language[acctRow] {
	fields := append(append(acctFieldsAToL(), acctFieldsMToR()...), acctFieldsSToW()...)
	return format.Language[acctRow]{Noun: "field", Fields: fields}
}

func acctFieldsAToL() []acctField {
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
		aStep("AveCPU", 10, func(r *acctRow) string { return walltime.Elapsed((r.Exit.UserMS + r.Exit.SysMS) / 1000) }),
		aStep("AveCPUFreq", 10, zero),
		aEmpty("AveDiskRead", 14), aEmpty("AveDiskWrite", 14), aEmpty("AvePages", 10),
		aStep("AveRSS", 10, func(r *acctRow) string { return r.rss(r.Exit.MaxRSSKB) }),
		aEmpty("AveVMSize", 10), aEmpty("BlockID", 16),
		aText("Cluster", 10, func(r *acctRow) string { return r.Cluster }),
		aJob("Comment", 14, func(r *acctRow) string { return r.Comment }),
		aJob("Constraints", 19, func(r *acctRow) string { return r.Constraints }),
		aConst("ConsumedEnergy", 14, "0"), aConst("ConsumedEnergyRaw", 17, "0"), aEmpty("Container", 19),
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
		{Name: "JobID", Width: 12, Left: true, Append: id(false)},
		{Name: "JobIDRaw", Width: 12, Left: true, Append: id(true)},
		aText("JobName", 10, func(r *acctRow) string {
			if r.batch {
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

func acctFieldsMToR() []acctField {
	host := func(r *acctRow) string { return r.batchHost() }
	zero := func(*acctRow) string { return "0" }
	freq := func(r *acctRow) string {
		if r.batch {
			return "0"
		}
		return "Unknown"
	}
	return []acctField{
		aEmpty("MaxDiskRead", 12), aEmpty("MaxDiskReadNode", 15), aEmpty("MaxDiskReadTask", 15),
		aEmpty("MaxDiskWrite", 12), aEmpty("MaxDiskWriteNode", 16), aEmpty("MaxDiskWriteTask", 16),
		aEmpty("MaxPages", 8), aEmpty("MaxPagesNode", 12), aEmpty("MaxPagesTask", 14),
		aStep("MaxRSS", 10, func(r *acctRow) string { return r.rss(r.Exit.MaxRSSKB) }),
		aStep("MaxRSSNode", 10, host), aStep("MaxRSSTask", 10, zero),
		aEmpty("MaxVMSize", 10), aEmpty("MaxVMSizeNode", 14), aEmpty("MaxVMSizeTask", 14), aEmpty("McsLabel", 12),
		aStep("MinCPU", 10, func(r *acctRow) string { return walltime.Elapsed((r.Exit.UserMS + r.Exit.SysMS) / 1000) }),
		aStep("MinCPUNode", 10, host), aStep("MinCPUTask", 10, zero),
		aNum("NCPUS", 10, (*acctRow).cpus),
		aNum("NNodes", 8, (*acctRow).nodes),
		aText("NodeList", 15, (*acctRow).nodeList),
		aText("NTasks", 8, func(r *acctRow) string {
			if r.batch {
				return "1"
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
		aEmpty("Reservation", 20), aEmpty("ReservationId", 8),
		aJob("Reserved", 10, func(r *acctRow) string { return walltime.Elapsed(r.plannedS()) }),
		aJobNum("Restarts", 8, func(r *acctRow) int64 { return int64(r.Restarts) }),
		aJob("ResvCPU", 10, func(r *acctRow) string { return walltime.Elapsed(r.plannedS() * r.reqCPUs()) }),
		aJobNum("ResvCPURAW", 10, func(r *acctRow) int64 { return r.plannedS() * r.reqCPUs() }),
	}
}

func acctFieldsSToW() []acctField {
	host := func(r *acctRow) string { h := r.batchHost(); return r.usageWith(h, h) }
	first := func(r *acctRow) string { return r.usageWith("0", "0") }
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
		aConst("Suspended", 10, "00:00:00"),
		aEmpty("SystemComment", 15),
		aCPU("SystemCPU", func(r *acctRow) int64 { return r.Exit.SysMS }),
		aJob("Timelimit", 10, func(r *acctRow) string { return r.timelimit(false) }),
		aJob("TimelimitRaw", 10, func(r *acctRow) string { return r.timelimit(true) }),
		aCPU("TotalCPU", func(r *acctRow) int64 { return r.Exit.UserMS + r.Exit.SysMS }),
		aStep("TRESUsageInAve", 14, (*acctRow).usage), aStep("TRESUsageInMax", 14, (*acctRow).usage),
		aStep("TRESUsageInMaxNode", 18, host), aStep("TRESUsageInMaxTask", 18, first),
		aStep("TRESUsageInMin", 14, (*acctRow).usage), aStep("TRESUsageInMinNode", 18, host),
		aStep("TRESUsageInMinTask", 18, first), aStep("TRESUsageInTot", 14, (*acctRow).usage),
		aEmpty("TRESUsageOutAve", 15), aEmpty("TRESUsageOutMax", 15), aEmpty("TRESUsageOutMaxNode", 19),
		aEmpty("TRESUsageOutMaxTask", 19), aEmpty("TRESUsageOutMin", 15), aEmpty("TRESUsageOutMinNode", 19),
		aEmpty("TRESUsageOutMinTask", 19), aEmpty("TRESUsageOutTot", 15),
		aJobNum("UID", 6, func(r *acctRow) int64 { return int64(r.UID) }),
		aJob("User", 9, func(r *acctRow) string { return r.User }),
		aCPU("UserCPU", func(r *acctRow) int64 { return r.Exit.UserMS }),
		aEmpty("WCKey", 10),
		aJob("WCKeyID", 10, func(*acctRow) string { return "0" }),
		aJob("WorkDir", 20, func(r *acctRow) string { return r.WorkDir }),
	}
}
