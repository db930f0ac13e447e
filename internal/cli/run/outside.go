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

// submission turns grun's options into a job's, for the options that both have.
func (r *run) submission(s *request.Submission) error {
	table := s.Options(r.ReadDate)
	var args []string
	for _, g := range r.given {
		i := slices.IndexFunc(table, func(o getopt.Option) bool { return o.Name == g.name })
		if i < 0 || table[i].Refused != "" || g.name != "test-only" && slices.Contains(request.NotForAllocations, g.name) {
			continue
		}
		word := "--" + g.name
		if table[i].Arg != getopt.None && g.value != "" {
			word += "=" + g.value
		}
		args = append(args, word)
	}
	args = append(args, r.ranksAsJob()...)
	s.Spec.Name = r.rq.Name
	p := getopt.New(getopt.Config{Program: r.Program, Options: table, EnvPrefix: "SLURM"})
	if _, err := p.Args(args); err != nil {
		return err
	}
	if err := p.Env(func(name string) (string, bool) { // variables that a job has set are no options
		if strings.HasPrefix(name, "SLURM_JOB") || name == "SLURM_WAIT" {
			return "", false
		}
		return r.Lookup(name)
	}); err != nil {
		return err
	}
	if err := r.Filter("grun", []*getopt.Parser{p}, r.rq.Argv); err != nil {
		fmt.Fprintln(r.Stderr, err)
		return errFiltered
	}
	if !r.quiet {
		for _, n := range p.Notes() {
			fmt.Fprintln(r.Stderr, n)
		}
	}
	return p.Apply()
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

// outside gives grun's step a job of its own: it requests the step's resources and waits for them. Without release
// there is no step, and rc is the exit code.
func (r *run) outside() (release func(rc int), rc int) {
	s := &request.Submission{}
	err := r.submission(s)
	if err == nil && r.noAllocate {
		err = r.mayGoAlone()
	}
	if errors.Is(err, errFiltered) {
		return nil, 1
	}
	if err != nil {
		r.Errorf("%s", err.Error())
		return nil, 1
	}
	a := &allocate.Allocation{Env: r.Env, Submission: s, Quiet: r.quiet}
	if r.rq.Immediate {
		a.Immediate = 1
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	job, rc := a.Get(signals)
	signal.Stop(signals)
	if job == nil {
		return nil, rc
	}
	r.job = strconv.FormatUint(uint64(job.ID), 10)
	r.rq.Parent = proto.StepNone
	r.fitTo(job)
	return func(rc int) { a.Release(job.ID, rc) }, 0
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
