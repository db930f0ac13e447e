package ctld

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// shareGPUs validates requests for shared GPUs and GPU memory, and converts a part of a GPU into shares. It replaces
// sp.Gres and does not edit it.
func shareGPUs(v *state.View, sp *model.Spec) error {
	cfg := v.Config()
	sp.Gres = migAlias(cfg, sp.Gres)
	if err := ask.CheckShares(sp); err != nil {
		return refusedAsk(err)
	}
	for i := range sp.Gres {
		if g := &sp.Gres[i]; model.IsShare(g.Name) && g.Count > 0 {
			if err := shareFits(v, sp, g); err != nil {
				return err
			}
		}
	}
	if err := indexFits(v, sp); err != nil {
		return err
	}
	return gpuMemory(v, sp)
}

// indexFits checks that some node of the job's partitions has GPUs with the requested numbers.
func indexFits(v *state.View, sp *model.Spec) error {
	want := sp.Extra().GPUIndex
	if want.Empty() {
		return nil
	}
	for _, name := range sp.Partitions {
		p := v.Partition(name)
		if p == nil {
			continue
		}
		for _, node := range p.Nodes {
			def := v.NodeDef(node)
			if def == nil || len(sp.ReqNodes) > 0 && !slices.Contains(sp.ReqNodes, node) {
				continue
			}
			var has model.Bits
			for i := range def.Gres {
				if g := &def.Gres[i]; g.Name == model.GPUName {
					has = has.Or(model.UpTo(int(g.First + g.Count)).Minus(model.UpTo(int(g.First))).Minus(g.Off))
				}
			}
			if has.Contains(want) {
				return nil
			}
		}
	}
	where := "partition " + strings.Join(sp.Partitions, ",")
	if len(sp.ReqNodes) > 0 {
		where = "node " + strings.Join(sp.ReqNodes, ",")
		return refuse(proto.CodeInvalidGres,
			"--gpu-index=%s: %s has no GPUs with these numbers (they count from 0) for jobs; ginfo -G lists them", want, where)
	}
	return refuse(proto.CodeInvalidGres,
		"--gpu-index=%s: no node of %s has GPUs with these numbers (they count from 0); ginfo -G lists them", want, where)
}

// shareFits checks that some GPU of the job's partitions has the shares. For a part of a GPU it sets the count: the
// least number of shares on any GPU.
func shareFits(v *state.View, sp *model.Spec, g *model.GresReq) error {
	most, least, plain := int32(0), int32(0), false
	eachGres(v, sp, func(d *model.GresDef) {
		if d.Name != g.Name || g.Type != "" && !strings.EqualFold(d.Type, g.Type) {
			return
		}
		plain = plain || len(d.Over) == 0
		for _, s := range d.Over {
			most = max(most, s.Count)
			if n := model.ShareCount(g.Milli, s.Count); g.Milli > 0 && (least == 0 || n < least) {
				least = n
			}
		}
	})
	where := "partition " + strings.Join(sp.Partitions, ",")
	switch {
	case plain:
	case g.Milli > 0 && most == 0:
		return refuse(proto.CodeInvalidGres,
			"%s: no node of %s has its GPUs in shares (Gres=gpu:N,shard:M); ask for whole ones, such as --gpus=1",
			ask.GresText(g), where)
	case most == 0:
		if err := knownGres(v.Config(), *g); err != nil {
			return err
		}
		return refuse(proto.CodeInvalidGres, "%s: no node of %s has it; see ginfo -o '%%n %%G'", ask.GresText(g), where)
	case g.Milli > 0:
		g.Count = least
	case g.Count > most:
		return refuse(proto.CodeInvalidGres,
			"%s: a GPU in %s has %d at most, and all of a job's are of one GPU; ask for fewer, or for whole GPUs with --gpus",
			ask.GresText(g), where, most)
	}
	return nil
}

// eachGres calls f for every generic resource on nodes of a job's partitions.
func eachGres(v *state.View, sp *model.Spec, f func(*model.GresDef)) {
	for _, name := range sp.Partitions {
		p := v.Partition(name)
		if p == nil {
			continue
		}
		for _, node := range p.Nodes {
			if def := v.Made(node); def != nil {
				for i := range def.Gres {
					f(&def.Gres[i])
				}
			}
		}
	}
}

// gpuMemory validates --gpu-mem.
func gpuMemory(v *state.View, sp *model.Spec) error {
	want := sp.Extra().GPUMemMiB
	if want == 0 {
		return nil
	}
	margin, most, some := v.Config().Params.GPUMemMarginMiB, int64(0), false
	eachGres(v, sp, func(d *model.GresDef) {
		if d.Name == model.GPUName {
			some = some || d.MemMiB > 0
			most = max(most, d.MemMiB)
		}
	})
	where := "partition " + strings.Join(sp.Partitions, ",")
	switch {
	case !some:
		return refuse(proto.CodeInvalidGres, "--gpu-mem: the memory of the GPUs in %s is not known; nodes that ask the "+
			"driver report it, and gres.conf can say it (Name=gpu ... Memory=80G)", where)
	case want > most-margin:
		return refuse(proto.CodeInvalidGres, "--gpu-mem=%dM: the GPUs in %s have %dM at most, %dM of which are left to the "+
			"driver (GpuMemSafetyMargin); ask for %dM or less", want, where, most, margin, max(0, most-margin))
	}
	return nil
}

// autoGPUMem sets the memory of each GPU for --gpu-mem=auto: a fifth more than the user's last jobs of this name used,
// at most what the GPUs have. A job of which nothing is known gets any whole GPU.
func (c *Controller) autoGPUMem(v *state.View, sp *model.Spec, notes []string) ([]string, error) {
	more := sp.Extra()
	if !more.GPUMemAuto {
		return notes, nil
	}
	onGPU := func(g model.GresReq) bool { return g.Name == model.GPUName || model.IsShare(g.Name) }
	if !slices.ContainsFunc(sp.Gres, onGPU) && len(more.GPUsPerSocket) == 0 {
		return nil, refuse(proto.CodeBadRequest,
			"--gpu-mem needs GPUs: give --gpus, --gres=gpu:N or --gres=shard:N too")
	}
	most := int64(0)
	eachGres(v, sp, func(d *model.GresDef) {
		if d.Name == model.GPUName {
			most = max(most, d.MemMiB-v.Config().Params.GPUMemMarginMiB)
		}
	})
	more.GPUMemMiB = min(c.peaks.Of(v, sp.UID, sp.Name), most)
	sp.More = &more
	switch {
	case more.GPUMemMiB > 0:
		return notes, nil
	case slices.ContainsFunc(sp.Gres, func(g model.GresReq) bool { return model.IsShare(g.Name) }):
		return nil, refuse(proto.CodeInvalidGres, "--gpu-mem=auto: no job of yours with the name '%s' is known by what it "+
			"used of a GPU; say how much a part of a GPU must have: --gpu-mem=SIZE", sp.Name)
	}
	return append(notes, fmt.Sprintf("--gpu-mem=auto: no job of yours with the name '%s' is known by what it used of a "+
		"GPU; the job takes any GPU", sp.Name)), nil
}

// migAlias gives MIG instances the name that the nodes use: gpu:1g.10gb and mig:1g.10gb are the same.
func migAlias(cfg *model.Config, list []model.GresReq) []model.GresReq {
	list = slices.Clone(list)
	has := func(name, typ string) bool {
		return slices.ContainsFunc(cfg.Nodes, func(n *model.NodeDef) bool {
			return slices.ContainsFunc(n.Gres,
				func(d model.GresDef) bool { return d.Name == name && strings.EqualFold(d.Type, typ) })
		})
	}
	for i := range list {
		g := &list[i]
		other := map[string]string{"mig": model.GPUName, model.GPUName: "mig"}[g.Name]
		if other != "" && g.Type != "" && !has(g.Name, g.Type) && has(other, g.Type) {
			g.Name = other
		}
	}
	return list
}
