package run

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// het.go runs a step in a component of a heterogeneous job.

// noHetStep refuses a step over several components.
const noHetStep = "steps over several components of a heterogeneous job (\" : \", --het-group=0,1) are not supported " +
	"by gbatch yet: start a grun for each component with --het-group=N and & behind it, and wait"

// groupInfix is in the names of the variables of one component.
const groupInfix = "_HET_GROUP_"

// wantedGroup finds --het-group on the command line: the variables of that component are options.
func (r *run) wantedGroup() string {
	for i, a := range r.Args {
		for _, name := range [...]string{"--het-group", "--pack-group"} {
			if v, ok := strings.CutPrefix(a, name+"="); ok {
				return v
			}
			if a == name && i+1 < len(r.Args) {
				return r.Args[i+1]
			}
		}
	}
	return ""
}

// hetLookup gives the variables of the component that was asked for in place of the first one's.
func (r *run) hetLookup(lookup func(string) (string, bool)) func(string) (string, bool) {
	group := r.wantedGroup()
	if n, err := strconv.Atoi(group); err != nil || n == 0 {
		return lookup
	}
	return func(name string) (string, bool) {
		if strings.HasPrefix(name, "SLURM_JOB") {
			return lookup(name)
		}
		if v, ok := lookup(name + groupInfix + group); ok {
			return v, true
		}
		if _, ofFirst := lookup(name + groupInfix + "0"); ofFirst {
			return "", false
		}
		return lookup(name)
	}
}

// intoGroup names the job of --het-group.
func (r *run) intoGroup() error {
	if r.group == "" {
		return nil
	}
	n, err := strconv.ParseUint(r.group, 10, 16)
	switch {
	case err != nil && strings.ContainsAny(r.group, ",-"):
		return errors.New(noHetStep)
	case err != nil || n >= model.MaxHet:
		return fmt.Errorf("Invalid --het-group specification: '%s'; components have the numbers 0 to %d", r.group,
			model.MaxHet-1)
	case r.job == "":
		return errors.New("--het-group is for steps of a heterogeneous job: use it in its script, under galloc, or with " +
			"--jobid")
	}
	if size, err := strconv.ParseUint(r.Getenv("SLURM_HET_SIZE"), 10, 16); err == nil && n >= size {
		return fmt.Errorf("Attempt to run a job step with het group value of %d, but the job allocation has maximum value "+
			"of %d", n, size-1)
	}
	if n > 0 {
		id, _, _ := strings.Cut(r.job, "+")
		r.job = id + "+" + r.group
	}
	return nil
}
