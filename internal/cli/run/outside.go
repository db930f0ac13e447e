package run

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/allocate"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/request"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// submission turns grun's options into a job's, for the options that both have. They take effect with Apply.
func (r *run) submission(s *request.Submission) (*getopt.Parser, error) {
	table := s.Options(r.ReadDate)
	var args []string
	for _, g := range r.given {
		i := slices.IndexFunc(table, func(o getopt.Option) bool { return o.Name == g.name })
		if i < 0 || table[i].Refused != "" || request.IsContainer(g.name) ||
			g.name != "test-only" && slices.Contains(request.NotForAllocations, g.name) {
			continue
		}
		word := "--" + g.name
		if arg := table[i].Arg; arg == getopt.Required || arg != getopt.None && g.value != "" {
			word += "=" + g.value
		}
		args = append(args, word)
	}
	args = append(args, r.ranksAsJob()...)
	s.Spec.Name = r.rq.Name
	if len(r.rq.Argv) > 0 {
		s.Spec.Command = r.rq.Argv[0]
	}
	p := getopt.New(getopt.Config{Program: r.Program, Options: table, EnvPrefix: "SLURM",
		Failure: "Unable to allocate resources: "})
	if _, err := p.Args(args); err != nil {
		return nil, err
	}
	return p, p.Env(func(name string) (string, bool) { // variables that a job has set are no options
		if strings.HasPrefix(name, "SLURM_JOB") || name == "SLURM_WAIT" || strings.HasPrefix(name, "SLURM_CONTAINER") {
			return "", false
		}
		return r.Lookup(name)
	})
}

// submissions does that for all components, which the site's filter sees before.
func submissions(all []*run) ([]*request.Submission, error) {
	first := all[0]
	var subs []*request.Submission
	var parsers []*getopt.Parser
	for _, r := range all {
		s := &request.Submission{OfStep: true}
		p, err := r.submission(s)
		if err != nil {
			return nil, err
		}
		subs, parsers = append(subs, s), append(parsers, p)
	}
	if err := first.Filter("grun", parsers, first.rq.Argv); err != nil {
		fmt.Fprintln(first.Stderr, err)
		return nil, errFiltered
	}
	for i, p := range parsers {
		if !all[i].quiet {
			for _, n := range p.Notes() {
				fmt.Fprintln(first.Stderr, n)
			}
		}
		if err := p.Apply(); err != nil {
			return nil, err
		}
	}
	return subs, nil
}

// errFiltered is the error of a job that CliFilterProgram refuses, which has been told.
var errFiltered = errors.New("the job is refused")

// ranksAsJob gives the options by which a job has the nodes of --distribution=arbitrary, with room for their tasks.
func (r *run) ranksAsJob() []string {
	n := &r.rq.Need
	if len(n.Ranks) == 0 {
		return nil
	}
	tasks, most := map[string]int{}, 0
	var nodes []string
	for _, name := range n.Ranks {
		if tasks[name]++; tasks[name] == 1 {
			nodes = append(nodes, name)
		}
		most = max(most, tasks[name])
	}
	return []string{"--nodelist=" + strings.Join(nodes, ","), "--nodes=" + strconv.Itoa(len(nodes)),
		"--ntasks=" + strconv.Itoa(len(n.Ranks)), "--mincpus=" + strconv.Itoa(most*int(max(n.CPUsPerTask, 1)))}
}

// outside gives grun's steps a job of their own: it requests the steps' resources and waits for them. Without release
// there is no step, and rc is the exit code.
func outside(all []*run) (release func(rc int), rc int) {
	first := all[0]
	for _, r := range all {
		if r.line.Given("exclusive").Source == getopt.FromArgs && r.line.Given("cpus-per-task").Source != getopt.FromArgs {
			r.rq.Need.Exact = false // its nodes are exclusive
		}
	}
	subs, err := submissions(all)
	if err == nil && first.noAllocate {
		err = first.mayGoAlone()
	}
	if errors.Is(err, errFiltered) {
		return nil, 1
	}
	var option *getopt.Error
	if errors.As(err, &option) {
		return nil, first.BadLine(first.line, err)
	}
	if err != nil {
		first.Errorf("%s", err.Error())
		return nil, 1
	}
	a := &allocate.Allocation{Env: first.Env, Submission: subs[0], Rest: subs[1:], Quiet: first.quiet}
	a.Immediate = immediateOf(all, func(r *run) int64 { return r.immediate })
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	job, rc := a.Get(signals)
	signal.Stop(signals)
	if job == nil {
		return nil, rc
	}
	first.jobVars = func() []string { return a.Environment(job) }
	for i, r := range all {
		r.rq.Need.Tasks = max(r.rq.Need.Tasks, subs[i].Implied)
	}
	if len(all) == 1 {
		first.settleIn(job, strconv.FormatUint(uint64(job.ID), 10))
	} else if err := settleInAll(all, job, a); err != nil {
		first.Errorf("%s", err.Error())
		a.Release(job.ID, 1)
		return nil, 1
	}
	return func(rc int) { a.Release(job.ID, rc) }, 0
}

// settleIn makes the step one of a job that was got for it. --time is the job's: the step may go on as long as that.
func (r *run) settleIn(job *model.Job, name string) {
	r.rq.LimitS = 0
	r.job, r.rq.Parent = name, proto.StepNone
	r.fitTo(job)
}

// settleInAll gives each component its part of the heterogeneous job, and its tasks the variables of all.
func settleInAll(all []*run, job *model.Job, a *allocate.Allocation) error {
	parts := make([]*model.Job, len(all))
	for _, c := range a.Components {
		if c.Het != nil && int(c.Het.Offset) < len(parts) && c.Run != nil {
			parts[c.Het.Offset] = c
		}
	}
	if slices.Contains(parts, nil) {
		return fmt.Errorf("Job allocation %d has been revoked", job.ID)
	}
	var more []byte
	for _, entry := range a.OfComponents(parts[0]) {
		more = append(append(more, entry...), 0)
	}
	for i, r := range all {
		r.settleIn(parts[i], fmt.Sprintf("%d+%d", job.ID, i))
		if size := len(r.rq.Env) + len(more); size <= proto.MaxEnvBytes {
			r.rq.Env = append(slices.Clip(r.rq.Env), more...)
		}
	}
	return nil
}

// errNobody refuses --no-allocate to users.
var errNobody = errors.New("--no-allocate is for root; leave it out, and the step gets a job of its own on the nodes " +
	"of --nodelist")

// mayGoAlone checks --no-allocate. Its step gets a job too: nothing runs on a node that the controllers don't know.
func (r *run) mayGoAlone() error {
	switch {
	case os.Getuid() != 0:
		return errNobody
	case len(r.rq.Need.Nodes) == 0:
		return errors.New("--no-allocate needs --nodelist: the nodes to run on")
	}
	return nil
}

// fitTo makes the step use all of its job: the job was chosen by the options about nodes, and has as many nodes as it
// could get.
func (r *run) fitTo(job *model.Job) {
	n := &r.rq.Need
	got := int32(len(job.Run.Alloc.Nodes))
	n.NotNodes = nil
	if len(n.Ranks) == 0 {
		n.Nodes = nil
	}
	if n.MinNodes < n.MaxNodes {
		n.MinNodes, n.MaxNodes = min(got, n.MaxNodes), min(got, n.MaxNodes)
		if n.Tasks > 0 {
			n.MinNodes = min(n.MinNodes, n.Tasks)
		}
	}
	r.place = job
}
