package ctld

import (
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// needKeys lists the needs of a pending job that gcontrol update job can change, for its refusals.
const needKeys = "Features, Prefer, Gres (TresPerNode), TresPerJob, TresPerTask, Licenses, NumTasks, CPUsPerTask, " +
	"TasksPerNode, MinCPUsNode, MinMemoryNode, MinMemoryCPU, MinTmpDiskNode, Contiguous"

// editNeeds changes a job's needs of nodes; known is false if the key is not one of needKeys. place checks the result
// against the partitions.
func editNeeds(sp *model.Spec, key, value string) (known bool, err error) {
	count := func(to *int32) {
		var n int64
		if n, err = strconv.ParseInt(value, 10, 64); err != nil || n < 1 || n > maxPerGPU {
			err = fmt.Errorf("a whole number from 1 to %d is wanted", maxPerGPU)
			return
		}
		*to = int32(n)
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
		more.Licenses, more.AnyLicense, err = licensesIn(value)
	case "numtasks", "reqprocs":
		count(&sp.Tasks)
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
			err = fmt.Errorf("1 or 0 is wanted")
		}
	default:
		return false, nil
	}
	if err != nil {
		return true, refuse(proto.CodeBadRequest, "%s=%s: %v", key, value, err)
	}
	sp.More = &more
	return true, validNeeds(sp)
}

// withGres replaces the generic resources that are counted per node, job or task by those of a list such as gpu:2 or
// gres:gpu:a100:2; an empty list removes them.
func withGres(have []model.GresReq, more *model.Needs, per model.GresPer, list string) ([]model.GresReq, error) {
	if len(more.GresToo) > 0 {
		return nil, fmt.Errorf(
			"the job asks for them in several ways, which give its nodes or tasks too: cancel it and submit another")
	}
	var out []model.GresReq
	for _, g := range have {
		if g.Per != per {
			out = append(out, g)
		}
	}
	others := len(out)
	for word := range strings.SplitSeq(list, ",") {
		if word == "" {
			continue
		}
		parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(word, "gres:"), "gres/"), ":")
		g := model.GresReq{Name: parts[0], Count: 1, Per: per}
		rest := parts[1:]
		if n := len(rest); n > 0 {
			if k, err := strconv.ParseInt(rest[n-1], 10, 32); err == nil && k >= 0 {
				g.Count, rest = int32(k), rest[:n-1]
			}
		}
		switch {
		case g.Name == "" || len(rest) > 1 || len(rest) == 1 && rest[0] == "":
			return nil, fmt.Errorf("'%s': write NAME:NUMBER or NAME:TYPE:NUMBER, such as gpu:2 or gpu:a100:2", word)
		case len(rest) == 1:
			g.Type = rest[0]
		}
		for _, o := range out[:others] {
			if o.Name == g.Name {
				return nil, fmt.Errorf("the job asks for %s in another way already (gcontrol show job has it as TresPerNode, "+
					"TresPerJob or TresPerTask): change that", g.Name)
			}
		}
		if g.Count > 0 {
			out = append(out, g)
		}
	}
	return out, nil
}

// licensesIn reads name[:count] joined with , (all of them) or | (one of them).
func licensesIn(list string) (out []model.LicenseCount, either bool, err error) {
	either = strings.Contains(list, "|")
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '|' }) {
		name, number, counted := strings.Cut(word, ":")
		l := model.LicenseCount{Name: name, Count: 1}
		if counted {
			if l.Count, err = strconv.ParseInt(number, 10, 64); err != nil {
				return nil, false, fmt.Errorf("'%s': write NAME or NAME:COUNT, such as matlab:2", word)
			}
		}
		out = append(out, l)
	}
	return out, either, nil
}
