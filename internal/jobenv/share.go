package jobenv

import (
	"fmt"

	"gbatch/internal/model"
)

// share.go describes shares of GPUs to their jobs: the job sees the GPU as if it were its own, and the variables of
// shard and mps give the size of its share. Several jobs may open the GPU's device file (units.go).

// mpsDir has the directories of MPS control daemons, one for each user and GPU; etc/examples/prolog-mps.sh makes them.
// It belongs to root, so that no user can block others.
const mpsDir = "/run/nvidia-mps"

// mpsDirs gives the directories of the MPS control daemon of one user on one GPU: its pipes and its logs.
func mpsDirs(uid uint32, gpu int32) (pipe, log string) {
	dir := fmt.Sprintf("%s/%d/gpu%d", mpsDir, uid, gpu)
	return dir + "/pipe", dir + "/log"
}

// sharedGPUs gives the GPUs whose shares a part of the node has: at most one.
func sharedGPUs(here *model.NodeAlloc) model.Bits {
	var gpus model.Bits
	for i := range here.Gres {
		if s := here.Gres[i].Share; s != nil {
			gpus = gpus.With(int(s.GPU))
		}
	}
	return gpus
}

// Shares sets the variables for the size of the job's share of a GPU; countGPUs names the GPU.
func Shares(v *Vars, uid uint32, here *model.NodeAlloc) { sharesOf(v, uid, here.Gres) }

func sharesOf(v *Vars, uid uint32, held []model.GresAlloc) {
	for i := range held {
		g := &held[i]
		if g.Share == nil {
			continue
		}
		k := model.ShareKindOf(g.Name)
		if k != nil && k.CountVar != "" {
			v.Num(k.CountVar, k.Amount(g.Index.Count()))
		}
		if k != nil && k.MPS {
			pipe, log := mpsDirs(uid, g.Share.GPU)
			v.Num("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", mpsPercent(g.Index.Count(), int(g.Share.Of)))
			v.Set("CUDA_MPS_PIPE_DIRECTORY", pipe)
			v.Set("CUDA_MPS_LOG_DIRECTORY", log)
		}
		return
	}
}

// mpsShare reports whether jobs with shares of a resource are clients of MPS.
func mpsShare(name string) bool {
	k := model.ShareKindOf(name)
	return k != nil && k.MPS
}

// mpsPercent converts units of mps to percent of a GPU: at least 1.
func mpsPercent(units, of int) int64 { return int64(max(1, units*100/max(1, of))) }

// showShared sets the variables by which runtimes find the GPU that a job shares. The MPS daemon has only this GPU, so
// for its clients it is the first one, whatever they may open.
func (e *Node) showShared(v *Vars, mine, open *model.NodeAlloc) {
	gpus := sharedGPUs(mine)
	if gpus.Empty() {
		return
	}
	for i := range mine.Gres {
		if g := &mine.Gres[i]; g.Share != nil && mpsShare(g.Name) && e.Units.uuidsOf(model.GPUName, gpus) == "" {
			for _, name := range e.Units.varsOf(model.GPUName) {
				v.Set(name, "0")
			}
			return
		}
	}
	e.Units.show(v, model.GPUName, gpus, sharedGPUs(open))
}
