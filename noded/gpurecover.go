package noded

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gbatch/internal/model"
	"gbatch/noded/cgroup"
	"gbatch/noded/gpu"
	"gbatch/noded/gpuwatch"
	"gbatch/noded/hardware"
)

// gpurecover.go runs package gpuwatch for the node's GPUs, and GpuRecoverProgram for a GPU that fails.

// recoverTimeout is how long GpuRecoverProgram may take: a reset, or a reload of the driver.
const recoverTimeout = 10 * time.Minute

// recoverGPU runs GpuRecoverProgram for a GPU that has just failed. The GPU is out of service, and stays so until it is
// resumed: by an operator, or by the program itself if it could repair it.
func (n *Noded) recoverGPU(g *gpu.Reading, units []gpuwatch.Unit, fault string) {
	program := n.configured().GPURecover
	if program == "" {
		return
	}
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = fmt.Sprintf("%s:%d", u.Resource, u.Index)
	}
	env := []string{fmt.Sprintf("GBATCH_GPU_INDEX=%d", g.Index), "GBATCH_GPU_UUID=" + g.UUID,
		"GBATCH_GPU_FAULT=" + gpuwatch.OneLine(fault),
		"GBATCH_GPU_GRES=" + strings.Join(names, " "), "SLURM_SCRIPT_CONTEXT=gpu_recover"}
	n.stops.Do(func(ctx context.Context) {
		out, err := n.runLocal(ctx, program, recoverTimeout, env)
		if err != nil && ctx.Err() == nil {
			n.gpuHealth.Lost(g, fault, "GpuRecoverProgram: "+err.Error())
		}
		n.log.Info("GpuRecoverProgram has run", "gpu", g.Index, "uuid", g.UUID, "program", program, "err", err, "output", out)
	})
}

// watchHealth follows the node's GPUs, if there are any to follow.
func (n *Noded) watchHealth() {
	if n.inv.GPUs == nil || n.opts.Config == nil {
		return
	}
	r := n.configured()
	n.gpuHealth = gpuwatch.NewHealth(n.inv.Devices, hardware.Units(n.opts.look(), n.inv), n.foreignPolicy(r),
		float64(r.GPUForeignPct), n.log)
	n.gpuHealth.Ours, n.gpuHealth.Free = n.groups.root.Contains, n.sampler.free
	n.gpuHealth.Broken = n.recoverGPU
	n.gpuHealth.Begin(n.inv.Devices, n.now())
	n.gpus.Subscribe(n.gpuHealth.Round)
}

// foreignPolicy gives the policy for GPU processes outside of jobs.
func (n *Noded) foreignPolicy(r *model.NodeRules) string {
	if n.groups.root.Mode() == cgroup.None {
		return gpuwatch.Ignore // jobs' processes can't be told from others
	}
	return r.GPUForeign
}
