package jobenv

import (
	"fmt"

	"gbatch/internal/model"
)

// share.go describes shares of GPUs to the jobs that hold them: the GPU itself is seen as if it were the job's, how
// much of it is in the variables of shard and mps. Its device file may be opened (units.go): several jobs have it open.

// mpsDir is where prologs keep the directories of MPS control daemons, one for each user and GPU: see
// etc/examples/prolog-mps.sh, which makes them. It is root's, so that nobody can put something in the way of others.
const mpsDir = "/run/nvidia-mps"

// mpsDirs gives the directories of the MPS control daemon of one user on one GPU: its pipes and its logs.
func mpsDirs(uid uint32, gpu int32) (pipe, log string) {
	dir := fmt.Sprintf("%s/%d/gpu%d", mpsDir, uid, gpu)
	return dir + "/pipe", dir + "/log"
}

// sharedGPUs gives the GPUs of whose shares a part of the node is made: one at most.
func sharedGPUs(here *model.NodeAlloc) model.Bits {
	var gpus model.Bits
	for i := range here.Gres {
		if s := here.Gres[i].Share; s != nil {
			gpus = gpus.With(int(s.GPU))
		}
	}
	return gpus
}

// Shares sets what says how much of a GPU is the job's; which one it is, countGPUs says.
func Shares(v *Vars, uid uint32, here *model.NodeAlloc) {
	for i := range here.Gres {
		g := &here.Gres[i]
		if g.Share == nil {
			continue
		}
		switch g.Name {
		case "shard":
			v.Num("SLURM_SHARDS_ON_NODE", int64(g.Index.Count()))
		case "mps":
			pipe, log := mpsDirs(uid, g.Share.GPU)
			v.Num("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", mpsPercent(g.Index.Count(), int(g.Share.Of)))
			v.Set("CUDA_MPS_PIPE_DIRECTORY", pipe)
			v.Set("CUDA_MPS_LOG_DIRECTORY", log)
		}
		return
	}
}

// mpsPercent gives what units of mps are of a GPU, in percent: 1 at least.
func mpsPercent(units, of int) int64 { return int64(max(1, units*100/max(1, of))) }

// showShared sets the variables by which runtimes find the GPU that a job shares. The daemon of MPS has this GPU alone,
// so its clients count it as the first, whatever they may open.
func (e *Node) showShared(v *Vars, mine, open *model.NodeAlloc) {
	gpus := sharedGPUs(mine)
	if gpus.Empty() {
		return
	}
	for i := range mine.Gres {
		if g := &mine.Gres[i]; g.Share != nil && g.Name == "mps" && e.Units.uuidsOf(model.GPUName, gpus) == "" {
			for _, name := range e.Units.varsOf(model.GPUName) {
				v.Set(name, "0")
			}
			return
		}
	}
	e.Units.show(v, model.GPUName, gpus, sharedGPUs(open))
}
