package steplayout

import (
	"strconv"
	"strings"

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
	return inSlurmsWords("Task count specification invalid: %d tasks on %d nodes, and MaxTasksPerNode is %d; ask for "+
		"more nodes (-N)", tasks, len(nodes), most)
}
