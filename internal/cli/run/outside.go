package run

import (
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/allocate"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/request"
	"gbatch/internal/proto"
)

// submission turns grun's options into a job's, for the options that both have.
func (r *run) submission(s *request.Submission) error {
	table := s.Options(r.ReadDate)
	var args []string
	for _, g := range r.given {
		i := slices.IndexFunc(table, func(o getopt.Option) bool { return o.Name == g.name })
		if i < 0 || table[i].Refused != "" || slices.Contains(request.NotForAllocations, g.name) {
			continue
		}
		word := "--" + g.name
		if table[i].Arg != getopt.None && g.value != "" {
			word += "=" + g.value
		}
		args = append(args, word)
	}
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
	return p.Apply()
}

// outside gives grun's step a job of its own: it requests the step's resources and waits for them.
func (r *run) outside() (release func(rc int), rc int) {
	s := &request.Submission{}
	if err := r.submission(s); err != nil {
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
	return func(rc int) { a.Release(job.ID, rc) }, 0
}
