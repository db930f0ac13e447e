package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/client"
	"gbatch/internal/conf/locate"
	"gbatch/internal/model"
	"gbatch/internal/rpc"
	"gbatch/internal/slurmjson"
	"gbatch/internal/version"
)

// Env is what a command sees of the world.
type Env struct {
	Program string   // the name it was called by, without directories
	Args    []string // behind the name
	Stdin   io.Reader
	Stdout  io.Writer // buffered by Main
	Stderr  io.Writer
	Lookup  func(string) (string, bool) // environment variables
	Environ []string                    // all of them
	Dir     string                      // working directory
	TTY     bool                        // standard output is a terminal
}

// command is one command under its two names.
type command struct {
	name  string // gqueue
	slurm string // squeue
	run   func(*Env) int
	about string // one line for gcli's own list
	why   string // for commands that aren't there yet: what to use instead
}

// commands lists every command. A function and not a variable: nothing is built at start that isn't asked for.
func commands() []command {
	return []command{
		{name: "gsubmit", slurm: "sbatch", run: gsubmit, about: "submit a batch script"},
		{name: "gqueue", slurm: "squeue", run: gqueue, about: "list jobs that wait and run"},
		{name: "gcancel", slurm: "scancel", run: gcancel, about: "end jobs, or send them a signal"},
		{name: "gacct", slurm: "sacct", run: gacct, about: "list jobs from accounting, ended ones too"},
		{name: "ginfo", slurm: "sinfo", run: ginfo, about: "list partitions and nodes"},
		{name: "gcontrol", slurm: "scontrol", run: gcontrol, about: "show and change jobs, nodes and the configuration"},
		{name: "gshare", slurm: "sshare", run: gshare, about: "list shares and usage"},
		{name: "grun", slurm: "srun", run: grun, about: "run a command as tasks of a job"},
		{name: "galloc", slurm: "salloc", run: galloc, about: "get an allocation, and run a command or a shell with it"},
		{name: "gprio", slurm: "sprio", run: gprio, about: "list the factors of priorities"},
		{name: "gacctmgr", slurm: "sacctmgr", run: gacctmgr, about: "manage accounts, users, associations and QOS"},
		{name: "gdiag", slurm: "sdiag", run: gdiag, about: "show the scheduler's statistics"},
		{name: "gstat", slurm: "sstat", run: gstat, about: "show what running jobs use now"},
		{name: "gseff", slurm: "seff", run: gseff, about: "tell how well a job used what it held"},
		{name: "greport", slurm: "sreport", about: "report usage", why: "gshare shows usage by account and user, gacct each job"},
	}
}

// Main runs the command that env names and gives its exit code.
func Main(env *Env) int {
	for _, c := range commands() {
		if env.Program != c.name && env.Program != c.slurm {
			continue
		}
		if c.run == nil {
			if len(env.Args) > 0 && (env.Args[0] == "-V" || env.Args[0] == "--version") {
				env.version()
				return 0
			}
			env.errorf("%s is not in this version of gbatch: %s", env.Program, c.why)
			return 1
		}
		return c.run(env)
	}
	fmt.Fprintf(env.Stderr, "%s: gcli is called by the names of gbatch's commands:\n\n", env.Program)
	for _, c := range commands() {
		if c.run != nil {
			fmt.Fprintf(env.Stderr, "  %-9s %-9s %s\n", c.name, c.slurm, c.about)
		}
	}
	fmt.Fprintf(env.Stderr, "\nMake a link of that name to gcli, or run `make install`.\n")
	return 2
}

// errorf prints "program: error: ...".
func (e *Env) errorf(format string, a ...any) {
	fmt.Fprintf(e.Stderr, "%s: error: %s\n", e.Program, fmt.Sprintf(format, a...))
}

// slurmName reports whether the command was called by its Slurm name.
func (e *Env) slurmName() bool { return !strings.HasPrefix(e.Program, "g") }

// version prints the one line of --version: Slurm's under a Slurm name, because tools parse it.
func (e *Env) version() {
	if e.slurmName() {
		fmt.Fprintf(e.Stdout, "slurm %s\n", version.Slurm)
		return
	}
	fmt.Fprintf(e.Stdout, "gbatch %s\n", version.Version)
}

// usage handles the error of a Parser: help, version or a complaint. It gives the exit code.
func (e *Env) usage(p *getopt.Parser, err error) int {
	switch {
	case errors.Is(err, getopt.ErrVersion):
		e.version()
		return 0
	case errors.Is(err, getopt.ErrHelp):
		fmt.Fprint(e.Stdout, p.Help())
		return 0
	case errors.Is(err, getopt.ErrUsage):
		fmt.Fprint(e.Stdout, p.Usage())
		return 0
	}
	fmt.Fprintln(e.Stderr, err)
	return 1
}

// badLine ends a command whose line salloc and srun refuse: with 255, and with 1 where a number is wrong.
func (e *Env) badLine(p *getopt.Parser, err error) int {
	rc := e.usage(p, err)
	var number *getopt.NumberError
	var wrong *getopt.Error
	switch {
	case rc == 0, errors.As(err, &number), errors.As(err, &wrong) && wrong.Option == "cpu-bind": // srun's exception
		return rc
	}
	return badLine
}

const badLine = 255

// failed is the exit code of a submission, an allocation or a step that never was: SLURM_EXIT_ERROR in place of 1.
func (e *Env) failed(rc int) int {
	if v, ok := e.Lookup("SLURM_EXIT_ERROR"); ok && rc == 1 {
		if n, err := strconv.Atoi(v); err == nil {
			return n
		}
	}
	return rc
}

// connect gives a client for the cluster that the environment names.
func (e *Env) connect() (*client.Client, error) {
	_, dir, err := locate.SocketDir(e.getenv)
	if err != nil {
		return nil, err
	}
	return client.New(dir), nil
}

func (e *Env) getenv(name string) string {
	v, _ := e.Lookup(name)
	return v
}

// jsonFrame begins a list of --json on standard output; jsonFinish ends it.
func (e *Env) jsonFrame(list, ver string) *slurmjson.Writer {
	return slurmjson.Begin(e.Stdout, list, ver)
}

func (e *Env) jsonFinish(j *slurmjson.Writer, cluster string, now model.Time) error {
	return j.Finish(append([]string{e.Program}, e.Args...), cluster, now)
}

func (e *Env) jsonTail(j *slurmjson.Writer, cluster string, now model.Time) error {
	return j.Tail(append([]string{e.Program}, e.Args...), cluster, now)
}

// text gives the sentence of an error from the cluster.
func text(err error) string {
	var r *rpc.Error
	if errors.As(err, &r) {
		return r.Text
	}
	return err.Error()
}

// code gives the code of an error from the cluster, or 0.
func code(err error) uint16 {
	var r *rpc.Error
	if errors.As(err, &r) {
		return r.Code
	}
	return 0
}
