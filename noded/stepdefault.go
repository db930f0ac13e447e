package noded

import (
	"strconv"
	"strings"

	"gbatch/internal/proto"
)

// defaultBind binds a step's tasks to GPUs as DefaultGpuBind says, where its command doesn't. The configuration has checked the words.
func (n *Noded) defaultBind(b *proto.StepBind) {
	r := n.rules.Load()
	if r == nil || r.GPUBind == "" || b.TasksPerGPU > 0 || b.GPU != proto.BindAuto && !b.GPUImplied {
		return
	}
	how, count, _ := strings.Cut(r.GPUBind, ":")
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
