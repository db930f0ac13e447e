package ctld

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// needKeys lists the needs of a pending job that gcontrol update job can change, for its refusals.
const needKeys = "Features, Prefer, Gres (TresPerNode), TresPerJob, TresPerTask, Licenses, NumTasks, NumCPUs, " +
	"CPUsPerTask, TasksPerNode, MinCPUsNode, MinMemoryNode, MinMemoryCPU, MinTmpDiskNode, Contiguous"

// editNeeds changes a job's needs of nodes; known is false if the key is not one of needKeys. place checks the result
// against the partitions.
func editNeeds(sp *model.Spec, key, value string) (known bool, err error) {
	count := func(to *int32) {
		var n int32
		if n, err = ask.ParseCount(value, ask.MaxCount); err != nil {
			err = fmt.Errorf("write a whole number from 1 to %d", ask.MaxCount)
			return
		}
		*to = n
	}
	more := sp.Extra()
	switch strings.ToLower(key) {
	case "features":
		sp.Features = value
		_, err = model.ParseFeatures(value)
	case "prefer":
		more.Prefer = value
	case "gres", "trespernode":
		more.GPUsPerSocket = nil
		sp.Gres, err = withGres(sp.Gres, &more, model.PerNode, value)
	case "tresperjob":
		sp.Gres, err = withGres(sp.Gres, &more, model.PerJob, value)
	case "trespertask":
		sp.Gres, err = withGres(sp.Gres, &more, model.PerTask, value)
	case "licenses":
		more.Licenses, more.AnyLicense, err = ask.ParseLicenses(value)
	case "numtasks":
		count(&sp.Tasks)
	case "numcpus", "reqprocs": // tasks enough to have as many CPUs
		var cpus int32
		if count(&cpus); err == nil {
			per := max(1, sp.CPUsPerTask)
			sp.Tasks = (cpus + per - 1) / per
		}
	case "cpuspertask", "cpus/task":
		count(&sp.CPUsPerTask)
	case "taskspernode":
		count(&sp.TasksPerNode)
	case "mincpusnode":
		count(&sp.MinCPUs)
	case "minmemorynode":
		sp.MemPerNode, err = walltime.ParseMemMiB(value)
		sp.MemPerCPU, more.MemPerGPU = 0, 0
		if sp.MemPerNode == 0 {
			sp.MemPerNode = model.WholeMem
		}
	case "minmemorycpu":
		sp.MemPerCPU, err = walltime.ParseMemMiB(value)
		sp.MemPerNode, more.MemPerGPU = 0, 0
	case "mintmpdisknode":
		sp.TmpMiB, err = walltime.ParseMemMiB(value)
	case "contiguous":
		switch strings.ToLower(value) {
		case "1", "yes":
			more.Contiguous = true
		case "0", "no":
			more.Contiguous = false
		default:
			err = fmt.Errorf("write 1 or 0")
		}
	default:
		return false, nil
	}
	if err != nil {
		return true, refuse(proto.CodeBadRequest, "%s=%s: %v", key, value, err)
	}
	sp.More = &more
	return true, nil
}

// withGres replaces the generic resources that are counted per node, job or task by those of a list in the form of
// --gres; an empty list removes them.
func withGres(have []model.GresReq, more *model.Needs, per model.GresPer, list string) ([]model.GresReq, error) {
	if len(more.GresToo) > 0 {
		return nil, fmt.Errorf("the job asks for them in several ways, which give its nodes or tasks too: cancel it and " +
			"submit another")
	}
	add, err := ask.ParseGres("", list, per)
	if err != nil {
		return nil, err
	}
	var out []model.GresReq
	for _, g := range have {
		if g.Per != per {
			out = append(out, g)
		}
	}
	for _, g := range add {
		if slices.ContainsFunc(out, func(o model.GresReq) bool { return o.Name == g.Name }) {
			return nil, fmt.Errorf("the job asks for %s in another way already (gcontrol show job has it as TresPerNode, "+
				"TresPerJob or TresPerTask): change that", g.Name)
		}
	}
	return append(out, add...), nil
}
