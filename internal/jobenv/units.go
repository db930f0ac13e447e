package jobenv

import (
	"slices"
	"strings"

	"gbatch/internal/model"
)

// units.go names a job's units for runtimes: CUDA_VISIBLE_DEVICES and the like. If the kernel lets a job open only its
// own units, a runtime numbers these from 0; otherwise it numbers all of the node's.

// The variables of each kind of runtime, and the flags of gres.conf that choose them for gpu.
var (
	gpuVars = [...]string{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"}
	envFlag = map[string]string{"nvidia_gpu_env": gpuVars[0], "amd_gpu_env": gpuVars[1], "opencl_env": gpuVars[2],
		"intel_gpu_env": gpuVars[3]}
	npuVars = [...]string{"ASCEND_RT_VISIBLE_DEVICES"}
	// see share.go
	mpsVars = [...]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"}
)

// takesUUID reports whether a variable's runtime accepts UUIDs.
func takesUUID(name string) bool { return name == gpuVars[0] || name == gpuVars[1] }

// Unit is one unit of a resource, by its number on the node.
type Unit struct {
	Resource string
	Index    int
}

// Units has the names of a node's units. The zero value and nil name every unit by its number on the node.
type Units struct {
	ByUUID   bool                // GpuEnvStyle=uuid
	Relative map[string]bool     // resources whose units only their job can open
	UUID     map[Unit]string     // UUIDs of units that have one
	Parent   map[int]int         // the GPU, by the driver's count, of each unit of mig
	Vars     map[string][]string // by resource; other resources have Slurm's variables
}

// Choose sets the variables of GPUs from the flags of gres.conf, or else from the detected kind.
func (v *Units) Choose(flags []string, detect string) {
	chosen, said := []string{}, false
	for _, flag := range flags {
		name, known := envFlag[flag]
		said = said || known || flag == "no_gpu_env"
		if known && !slices.Contains(chosen, name) {
			chosen = append(chosen, name)
		}
	}
	if v.Vars == nil {
		v.Vars = map[string][]string{}
	}
	switch {
	case said:
		v.Vars[model.GPUName] = chosen
	case detect == "nvml" || detect == "nvidia": // as in Slurm: what was detected says whose it is
		v.Vars[model.GPUName] = gpuVars[:1]
	}
}

// varsOf gives the variables of a resource.
func (v *Units) varsOf(resource string) []string {
	if resource == model.MIGName { // MIG instances of GPUs
		resource = model.GPUName
	}
	if v != nil {
		if vars, ok := v.Vars[resource]; ok {
			return vars
		}
	}
	switch resource {
	case model.GPUName:
		return gpuVars[:]
	case "npu":
		return npuVars[:]
	}
	return nil
}

// HiddenOn gives the variables of all resources that a node has. On a node without GPUs CUDA_VISIBLE_DEVICES is the
// user's own.
func (v *Units) HiddenOn(def *model.NodeDef) (names []string) {
	if def == nil {
		return nil
	}
	for i := range def.Gres {
		if g := &def.Gres[i]; g.Count > 0 && !model.IsRemote(g.Name, g.Type) &&
			!slices.ContainsFunc(def.Gres[:i], func(o model.GresDef) bool { return o.Name == g.Name }) {
			names = append(names, v.varsOf(g.Name)...)
			if mpsShare(g.Name) {
				names = append(names, mpsVars[:]...)
			}
		}
	}
	return names
}

// show sets a resource's variables to the units in mine, for a process whose control group allows those in open: all of
// a job's or a step's.
func (v *Units) show(to *Vars, resource string, mine, open model.Bits) {
	names := v.varsOf(resource)
	if len(names) == 0 || mine.Empty() {
		return
	}
	numbers := v.numbers(resource, mine, open)
	for _, name := range names {
		list := numbers
		if takesUUID(name) {
			if uuids := v.uuidsOf(resource, mine); uuids != "" {
				list = uuids
			}
		}
		to.Set(name, list)
	}
}

// numbers gives mine by a runtime's numbers.
func (v *Units) numbers(resource string, mine, open model.Bits) string {
	if v == nil || !v.Relative[resource] {
		return CommaList(mine)
	}
	return PlacesIn(open.Or(mine), mine)
}

// GPUsOf gives the GPUs of held resources by their numbers on the node, and the number of units. It includes GPUs with
// held MIG instances or shares, and no remote ones.
func (v *Units) GPUsOf(held []model.GresAlloc) (gpus model.Bits, units int) {
	for i := range held {
		g := &held[i]
		switch {
		case g.Share != nil:
			gpus = gpus.With(int(g.Share.GPU))
		case model.IsRemote(g.Name, g.Type):
		case g.Name == model.GPUName:
			gpus = gpus.Or(g.Index)
			units += g.Index.Count()
		case g.Name == model.MIGName && v != nil:
			units += g.Index.Count()
			g.Index.Each(func(k int) bool {
				if parent, ok := v.Parent[k]; ok {
					gpus = gpus.With(parent)
				}
				return true
			})
		}
	}
	return gpus, units
}

// countGPUs sets the variable with the GPUs' numbers, and their count.
func (v *Units) countGPUs(to *Vars, name string, held []model.GresAlloc) {
	gpus, units := v.GPUsOf(held)
	if !gpus.Empty() {
		to.Set(name, CommaList(gpus))
	}
	if units > 0 {
		to.Num("SLURM_GPUS_ON_NODE", int64(units))
	}
}

// uuidsOf names units by UUID if so configured, and MIG instances always, because only UUIDs work for them. "" means
// numbers.
func (v *Units) uuidsOf(resource string, mine model.Bits) string {
	if v == nil {
		return ""
	}
	var out []string
	complete := true
	mine.Each(func(i int) bool {
		id := v.UUID[Unit{resource, i}]
		complete = id != "" && (v.ByUUID || strings.HasPrefix(id, "MIG-"))
		out = append(out, id)
		return complete
	})
	if !complete {
		return ""
	}
	return strings.Join(out, ",")
}
