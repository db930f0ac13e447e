package run

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/allocate"
	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/request"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// het.go reads command lines with several components, "a : b" or --het-group=0,1, and numbers their tasks through. Each
// component is a step in its own component of a heterogeneous job.

// groupInfix is in the names of the variables of one component.
const groupInfix = "_HET_GROUP_"

// line is grun's command line.
type line struct {
	*env.Env
	all    []*run
	taken  [model.MaxHet]bool // the groups that have a component
	before *run               // the component before this one
}

// read gives a run for each component, in order, at least one. Without any, rc is the exit code.
func (l *line) read() (all []*run, rc int) {
	words := l.Args
	var bare []*run // components without a command of their own: they run that of the next one
	for part, more := 0, true; more; part++ {
		first := &run{Env: l.Env}
		p := first.parser()
		operands, err := p.Args(words)
		cut := slices.Index(operands, ":")
		own, next := words, []string(nil)
		if more = cut >= 0; more {
			operands, next = operands[:cut], operands[cut+1:]
			own = words[:len(words)-len(next)-1]
		}
		var groups []int
		if err == nil {
			groups, err = l.groupsOf(p, part, more)
		}
		for i, group := range groups {
			if err != nil {
				break
			}
			r := first
			if i > 0 { // the same command again, in another group
				r = &run{Env: l.Env}
				p = r.parser()
				_, err = p.Args(own)
			}
			if err == nil {
				err = l.add(r, p, group)
			}
		}
		switch {
		case errors.Is(err, errListMPI):
			fmt.Fprintln(l.Stdout, errListMPI.Text)
			return nil, 0
		case err != nil:
			var bad *lineError
			var f env.Fatal
			if errors.As(err, &f) {
				return nil, l.Failed(l.Fatal(f.Text))
			}
			if errors.As(err, &bad) {
				l.Errorf("%s", bad.Error())
				return nil, l.Failed(1)
			}
			return nil, l.BadLine(p, err)
		}
		bare = append(bare, l.all[len(l.all)-len(groups):]...)
		if words = next; more && len(operands) == 0 {
			continue
		}
		for _, r := range bare {
			if err := r.settle(r.line, operands); err != nil {
				l.Errorf("%s", err.Error())
				return nil, l.Failed(1)
			}
		}
		bare = nil
	}
	if err := l.check(); err != nil {
		l.Errorf("%s", err.Error())
		return nil, l.Failed(1)
	}
	// Tasks are numbered in the order of the groups, whatever the order of the commands.
	slices.SortStableFunc(l.all, func(a, b *run) int { return cmp.Compare(a.group, b.group) })
	return l.all, 0
}

// lineError is a mistake that is told without a hint at --help.
type lineError struct{ error }

// noGroup is the group of a command with one component that names none.
const noGroup = -1

// groupsOf gives the groups in which a component's command runs: those of --het-group, or its place on the line.
func (l *line) groupsOf(p *getopt.Parser, part int, more bool) ([]int, error) {
	text, given := p.Value("het-group")
	switch {
	case !given && part == 0 && !more:
		return []int{noGroup}, nil
	case !given && part >= model.MaxHet:
		return nil, &lineError{fmt.Errorf("too many components, the limit is %d", model.MaxHet)}
	case !given:
		return []int{part}, nil
	}
	set, _, err := model.ParseTaskSet(text, model.MaxHet)
	if err != nil {
		return nil, &lineError{fmt.Errorf("Invalid --het-group specification: '%s'; components have the numbers 0 to %d",
			text, model.MaxHet-1)}
	}
	var out []int
	for g := range model.MaxHet {
		if set.Has(int32(g)) {
			out = append(out, g)
		}
	}
	return out, nil
}

// add takes a component in.
func (l *line) add(r *run, p *getopt.Parser, group int) error {
	if group >= 0 {
		if l.taken[group] {
			return env.Fatal{Text: fmt.Sprintf("Duplicate het groups in single srun not supported: --het-group=%d is "+
				"given to two components", group)}
		}
		l.taken[group] = true
	}
	r.line, r.group = p, group
	r.rq.Parent = proto.StepNone
	if l.before != nil {
		p.Inherit(l.before.line, request.Propagated)
	}
	lookup := r.hetLookup(r.nested())
	if r.Getenv("SLURM_JOB_ID") != "" {
		lookup = inJob(lookup)
	}
	if r.part = r.isPart(); r.part {
		lookup = ofPart(lookup)
	}
	if err := p.Env(lookup); err != nil {
		return err
	}
	if err := p.Apply(); err != nil {
		return err
	}
	switch {
	case p.Given("test-only").Source != getopt.NotGiven:
		r.job = "" // in a job, too, it is a job that is tested: nothing runs
	case l.before != nil:
		r.job = l.all[0].wholeJob
	}
	r.wholeJob = r.job
	if !r.quiet && r.job != "" {
		for _, n := range p.TypedNotes() { // variables are the job's, which has said so
			fmt.Fprintln(l.Stderr, n)
		}
	}
	if r.verbose > 0 && l.before == nil {
		l.DefinedOptions(p)
	}
	l.all, l.before = append(l.all, r), r
	return nil
}

// check refuses what several components can't have.
func (l *line) check() error {
	if len(l.all) == 1 {
		return nil
	}
	for i, r := range l.all {
		switch {
		case r.async:
			return errors.New("--async is for a step in one component: choose it with --het-group=N")
		case r.pty:
			return errors.New("--pty is for a step in one component: choose it with --het-group=N")
		case r.rq.Torch:
			return errors.New("--launcher=torch is for a step in one component: choose it with --het-group=N")
		case r.job == "" && r.group != i:
			return errors.New("--het-group names components of a job that runs; outside of a job, each component of the " +
				"command gets one of its own, in order")
		}
	}
	return nil
}

// hetLookup gives the variables of the component that was asked for in place of the first one's.
func (r *run) hetLookup(lookup func(string) (string, bool)) func(string) (string, bool) {
	if r.group < 0 || r.group == 0 && !strings.Contains(r.OwnJob(), "+") {
		return lookup
	}
	group := strconv.Itoa(r.group)
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

// isPart reports whether the component is one of several in a job that is not heterogeneous. Each is then a step of its
// own in that job, which takes no more than it asks for: a task on a node.
func (r *run) isPart() bool {
	return r.group >= 0 && r.line.Given("het-group").Source == getopt.NotGiven && r.Getenv("SLURM_JOB_ID") != "" &&
		r.Getenv("SLURM_HET_SIZE") == ""
}

// ofPart hides what the whole job asked for: a component has only what stands on the command line.
func ofPart(lookup func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, of := range [...]string{"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_CPUS_PER_GPU", "SLURM_MEM_", "SLURM_GPUS",
			"SLURM_TRES_PER_TASK"} {
			if strings.HasPrefix(name, of) {
				return "", false
			}
		}
		return lookup(name)
	}
}

// inJob hides the job's number of nodes, which is not the step's.
func inJob(lookup func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if name == "SLURM_JOB_NUM_NODES" || name == "SLURM_NNODES" {
			return "", false
		}
		return lookup(name)
	}
}

// intoGroup names the job of the component.
func (r *run) intoGroup() error {
	if r.job == "" || r.part && r.job == r.Getenv("SLURM_JOB_ID") { // a job of its own, or a part of one
		return nil
	}
	if r.group < 0 {
		if own := r.OwnJob(); strings.HasPrefix(own, r.job+"+") { // as its task's, and on the same nodes
			r.job = own
		}
		return nil
	}
	size, err := strconv.ParseUint(r.Getenv("SLURM_HET_SIZE"), 10, 16)
	if err != nil && r.Getenv("SLURM_JOB_ID") == r.job {
		size, err = 1, nil
	}
	if err == nil && uint64(r.group) >= size {
		return fmt.Errorf("Attempt to run a job step with het group value of %d, but the job allocation has maximum value "+
			"of %d", r.group, size-1)
	}
	if r.group > 0 {
		id, _, _ := strings.Cut(r.job, "+")
		r.job = id + "+" + strconv.Itoa(r.group)
	}
	return nil
}

// number numbers the tasks and nodes of all steps through, when their layouts are known.
func (s *steps) number() {
	if len(s.all) == 1 {
		return
	}
	var nodes []string
	var counts []int
	whole := proto.StepHet{Job: s.all[0].leads}
	for _, t := range s.all {
		h := whole
		t.het = &h
		h.FirstTask, h.FirstNode = whole.Tasks, whole.NumNodes
		for i := range t.layout {
			nodes = append(nodes, t.layout[i].Node)
			counts = append(counts, len(t.layout[i].Ranks))
		}
		whole.Tasks += int32(len(t.tasks))
		whole.NumNodes += int32(len(t.layout))
	}
	for _, t := range s.all {
		h := t.het
		h.Tasks, h.NumNodes = whole.Tasks, whole.NumNodes
		h.Nodes, h.Counts = hostlist.CompressInOrder(nodes), allocate.Counts(counts)
	}
}
