package jobtext

import (
	"strconv"
	"strings"

	"gbatch/internal/format"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// StatRow is one step.
type StatRow struct {
	*proto.StepStat
	View *StatView
}

// StatView has the data that the rows of one table share.
type StatView struct {
	NoConvert bool
}

func (r *StatRow) id() string {
	id := strconv.FormatUint(uint64(r.Job), 10)
	if r.ArrayID != 0 && r.Task != model.NoTask {
		id = strconv.FormatUint(uint64(r.ArrayID), 10) + "_" + strconv.FormatInt(int64(r.Task), 10)
	}
	return id + "." + StepName(r.Step)
}

func (r *StatRow) used() *UsageText { return &UsageText{Usage: r.Use, noConvert: r.View.NoConvert} }

func (r *StatRow) pids() string {
	var all []string
	for _, n := range r.Pids {
		for _, pid := range n.Pids {
			all = append(all, strconv.FormatInt(int64(pid), 10))
		}
	}
	return strings.Join(all, ",")
}

func StatLanguage() format.Language[StatRow] {
	u := UsageFields((*StatRow).used)
	plain := func(name string, width int, get func(r *StatRow) string) {
		u[name] = format.Field[StatRow]{Name: name, Width: width, Get: get}
	}
	plain("JobID", 12, (*StatRow).id)
	jobID := u["JobID"]
	jobID.Left = true
	u["JobID"] = jobID
	plain("Nodelist", 20, func(r *StatRow) string { return r.Nodes })
	plain("Pids", 20, (*StatRow).pids)
	for name, width := range map[string]int{"AveCPUFreq": 10, "ReqCPUFreq": 10, "ReqCPUFreqMin": 13, "ReqCPUFreqMax": 13,
		"ReqCPUFreqGov": 13} {
		plain(name, width, func(*StatRow) string { return "0" })
	}
	names := strings.Split(
		"AveCPU,AveCPUFreq,AveDiskRead,AveDiskWrite,AvePages,AveRSS,AveVMSize,ConsumedEnergy,ConsumedEnergyRaw,"+
			"GPUMemMax,GPUUtilAve,GPUUtilMax,JobID,MaxDiskRead,MaxDiskReadNode,MaxDiskReadTask,MaxDiskWrite,MaxDiskWriteNode,"+
			"MaxDiskWriteTask,"+
			"MaxPages,MaxPagesNode,MaxPagesTask,MaxRSS,MaxRSSNode,MaxRSSTask,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,MinCPU,"+
			"MinCPUNode,"+
			"MinCPUTask,Nodelist,NTasks,Pids,ReqCPUFreq,ReqCPUFreqMin,ReqCPUFreqMax,ReqCPUFreqGov,TRESUsageInAve,"+
			"TRESUsageInMax,"+
			"TRESUsageInMaxNode,TRESUsageInMaxTask,TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,"+
			"TRESUsageOutAve,"+
			"TRESUsageOutMax,TRESUsageOutMaxNode,TRESUsageOutMaxTask,TRESUsageOutMin,TRESUsageOutMinNode,TRESUsageOutMinTask,"+
			"TRESUsageOutTot", ",")
	lang := format.Language[StatRow]{Noun: "field"}
	for _, name := range names {
		lang.Fields = append(lang.Fields, u[name])
	}
	return lang
}
