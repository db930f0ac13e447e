package noded

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gbatch/noded/gpu"
)

// recoverTimeout is how long GpuRecoverProgram may take: a reset, or a reload of the driver.
const recoverTimeout = 10 * time.Minute

// recoverGPU has GpuRecoverProgram look after a GPU that has just broken. It is out of service by then, and stays so
// until somebody resumes it: the program itself, if it could help.
func (n *Noded) recoverGPU(g *gpu.Reading, units []healthUnit, fault string) {
	program := n.configured().GPURecover
	if program == "" {
		return
	}
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = fmt.Sprintf("%s:%d", u.Resource, u.Index)
	}
	env := []string{fmt.Sprintf("GBATCH_GPU_INDEX=%d", g.Index), "GBATCH_GPU_UUID=" + g.UUID,
		"GBATCH_GPU_FAULT=" + oneLine(fault),
		"GBATCH_GPU_GRES=" + strings.Join(names, " "), "SLURM_SCRIPT_CONTEXT=gpu_recover"}
	n.stops.do(func(ctx context.Context) {
		out, err := n.runLocal(ctx, program, recoverTimeout, env)
		n.log.Info("GpuRecoverProgram has run", "gpu", g.Index, "uuid", g.UUID, "program", program, "err", err, "output", out)
	})
}
