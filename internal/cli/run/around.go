package run

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"gbatch/internal/cli/allocate"
	"gbatch/internal/hostlist"
)

// around.go runs --prolog and --epilog, or SrunProlog and SrunEpilog, on this host.

// around runs such a program with the command of the step and its arguments. context tells a program that is both which
// one it is.
func (t *talk) around(program, context string) error {
	if program == "" || program == "none" {
		return nil
	}
	cmd := exec.Command(program, t.rq.Argv...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = t.Dir, os.Stdin, os.Stdout, os.Stderr
	cmd.Env = merged(t.Environ, t.described(context))
	return cmd.Run()
}

// described gives the variables of the job, where grun has asked for it, and of the step.
func (t *talk) described(context string) []string {
	var out []string
	if t.jobVars != nil {
		out = t.jobVars()
	}
	nodes, counts, tasks := make([]string, len(t.layout)), make([]int, len(t.layout)), 0
	for i, n := range t.layout {
		nodes[i], counts[i] = n.Node, len(n.Ranks)
		tasks += len(n.Ranks)
	}
	list, perNode := hostlist.CompressInOrder(nodes), allocate.Counts(counts)
	var step []string
	set := func(name string, value any) { step = append(step, fmt.Sprintf("%s=%v", name, value)) }
	set("SLURM_JOB_ID", t.leads)
	set("SLURM_JOBID", t.leads)
	set("SLURM_STEP_ID", uint32(t.id))
	set("SLURM_STEPID", uint32(t.id))
	set("SLURM_STEP_NODELIST", list)
	set("SLURM_STEP_NUM_NODES", len(nodes))
	set("SLURM_STEP_NUM_TASKS", tasks)
	set("SLURM_STEP_TASKS_PER_NODE", perNode)
	set("SLURM_NNODES", len(nodes))
	set("SLURM_NTASKS", tasks)
	set("SLURM_NPROCS", tasks)
	set("SLURM_TASKS_PER_NODE", perNode)
	set("SLURM_SCRIPT_CONTEXT", context)
	return merged(out, step)
}

// merged gives an environment with more variables, which replace those of the same name.
func merged(base, more []string) []string {
	given := map[string]bool{}
	for _, entry := range more {
		name, _, _ := strings.Cut(entry, "=")
		given[name] = true
	}
	out := slices.DeleteFunc(slices.Clone(base), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return given[name]
	})
	return append(out, more...)
}
