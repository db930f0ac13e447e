package steplayout

import (
	"cmp"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// Defaults binds a step's tasks to GPUs by DefaultGpuBind, if its command has no binding. The configuration has checked
// the value.
func Defaults(b *proto.StepBind, gpuBind string) {
	if gpuBind == "" || b.TasksPerGPU > 0 || b.GPU != proto.BindAuto && !b.GPUImplied {
		return
	}
	how, count, _ := strings.Cut(gpuBind, ":")
	k, err := strconv.Atoi(count)
	if err != nil {
		k = 1
	}
	switch b.GPUCount = int32(k); how {
	case "none":
		b.GPU = proto.BindNone
	case "closest":
		b.GPU = proto.BindClosest
	case "single":
		b.GPU = proto.BindSingle
	case "per_task":
		b.GPU = proto.BindPerTask
	}
}

// cpuWays are the words of CpuBind and TaskPluginParam.
var cpuWays = map[string]uint8{"none": proto.BindNone, "core": proto.BindCores, "cores": proto.BindCores,
	"socket": proto.BindSockets, "sockets": proto.BindSockets, "thread": proto.BindThreads, "threads": proto.BindThreads,
	"ldom": proto.BindLdoms}

// DefaultCPUs binds a step's tasks to CPUs as its nodes or its partition say (own), or as the cluster does, if its
// command has no binding.
func DefaultCPUs(b *proto.StepBind, own string, all *model.CPUBind) {
	b.CPUVerbose = b.CPUVerbose || all.Verbose && !b.CPUQuiet
	if b.CPU != proto.BindAuto || b.OneThread {
		return
	}
	if way, known := cpuWays[cmp.Or(own, all.How)]; known {
		b.CPU, b.CPUDefault = way, true
		return
	}
	b.CPUElse = cpuWays[all.Else]
}

// CheckTasks refuses a step with more tasks than MaxTasksPerNode allows its nodes together, as Slurm counts them; 0: no
// limit.
func CheckTasks(nodes []proto.StepNode, most int32) error {
	tasks := 0
	for i := range nodes {
		tasks += len(nodes[i].Ranks)
	}
	if most <= 0 || tasks <= int(most)*len(nodes) {
		return nil
	}
	return inSlurmsWords("Task count specification invalid: %d tasks are more than %d for each of the step's nodes "+
		"(MaxTasksPerNode); ask for more nodes (-N)", tasks, most)
}
