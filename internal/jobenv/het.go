package jobenv

import (
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// het.go describes heterogeneous jobs, as https://slurm.schedmd.com/heterogeneous_jobs.html has it: the variables of
// each component again, with its place behind their names.

// hetInfix is in the names of the variables of one component.
const hetInfix = "_HET_GROUP_"

// hetSize is the variable with the number of components.
const hetSize = "SLURM_HET_SIZE"

// IsHet reports whether a variable describes a heterogeneous job. The script has them, and so have its steps.
func IsHet(name string) bool {
	return name == hetSize || strings.HasPrefix(name, "SLURM_") && strings.Contains(name, hetInfix)
}

// describeHet sets the variables of all components; l is the first one's.
func describeHet(v *Vars, l *proto.Launch) {
	if l.Het == nil || l.Het.Offset != 0 {
		return
	}
	v.Num(hetSize, int64(l.Het.Size))
	group := func(of *proto.Launch, offset int32) {
		one := make(Vars, 0, 32)
		describeOne(&one, of)
		for _, entry := range one {
			name, value, _ := strings.Cut(entry, "=")
			v.Set(name+hetInfix+strconv.Itoa(int(offset)), value)
		}
	}
	group(l, 0)
	for i := range l.Others {
		o := &l.Others[i]
		if o.Spec == nil || o.Alloc == nil {
			continue
		}
		group(&proto.Launch{Job: o.Job, Task: model.NoTask, Spec: o.Spec, Part: o.Part, LimitS: o.LimitS, Start: o.Start,
			Alloc: o.Alloc, Resv: o.Resv}, o.Offset)
	}
}

// component sets the variables of the component that a step's tasks run in. They stand in for what the step's command
// does not know if it comes from outside of the job.
func component(v *Vars, l *proto.Launch) {
	v.Set(proto.ComponentVar, l.Het.Name())
	v.Num(hetSize, int64(l.Het.Size))
	suffix := hetInfix + strconv.Itoa(int(l.Het.Offset))
	v.Num("SLURM_JOB_ID"+suffix, int64(l.Job))
	v.Set("SLURM_JOB_NODELIST"+suffix, hostlist.CompressInOrder(l.Alloc.NodeNames()))
}

// ofComponent reports whether component sets a variable.
func ofComponent(name string, h *model.Het) bool {
	if h == nil {
		return false
	}
	suffix := hetInfix + strconv.Itoa(int(h.Offset))
	return name == hetSize || name == "SLURM_JOB_ID"+suffix || name == "SLURM_JOB_NODELIST"+suffix
}

// ofAll are a job's variables that describe all components in steps that run on several.
var ofAll = map[string]bool{"SLURM_JOB_NODELIST": true, "SLURM_JOB_NUM_NODES": true}

// stepOfAll sets the variables of a step that is one of several over the components of a job.
func stepOfAll(v *Vars, h *proto.StepHet, here int) {
	v.Set("SLURM_JOB_NODELIST", h.Nodes)
	v.Num("SLURM_JOB_NUM_NODES", int64(h.NumNodes))
	v.Set("SLURM_NODELIST", h.Nodes)
	v.Num("SLURM_NNODES", int64(h.NumNodes))
	v.Num("SLURM_NTASKS", int64(h.Tasks))
	v.Num("SLURM_NPROCS", int64(h.Tasks))
	v.Set("SLURM_TASKS_PER_NODE", h.Counts)
	v.Set("SLURM_STEP_NODELIST", h.Nodes)
	v.Num("SLURM_STEP_NUM_NODES", int64(h.NumNodes))
	v.Num("SLURM_STEP_NUM_TASKS", int64(h.Tasks))
	v.Set("SLURM_STEP_TASKS_PER_NODE", h.Counts)
	v.Num("SLURM_NODEID", int64(h.FirstNode)+int64(here))
}
