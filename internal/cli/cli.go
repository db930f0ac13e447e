package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"gbatch/internal/cli/acct"
	"gbatch/internal/cli/complete"
	"gbatch/internal/cli/control"
	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/info"
	"gbatch/internal/cli/manage"
	"gbatch/internal/cli/queue"
	"gbatch/internal/cli/report"
	"gbatch/internal/cli/run"
	"gbatch/internal/cli/submit"
)

// command is one command under its two names.
type command struct {
	name  string // gqueue
	slurm string // squeue
	run   func(*env.Env) int
	about string // one line for gcli's own list
}

// commands lists every command. A function and not a variable: nothing is built at start that isn't asked for.
func commands() []command {
	return []command{
		{name: "gsubmit", slurm: "sbatch", run: submit.Gsubmit, about: "submit a batch script"},
		{name: "gqueue", slurm: "squeue", run: queue.Gqueue, about: "list jobs that wait and run"},
		{name: "gcancel", slurm: "scancel", run: queue.Gcancel, about: "end jobs, or send them a signal"},
		{name: "gacct", slurm: "sacct", run: acct.Gacct, about: "list jobs from accounting, ended ones too"},
		{name: "ginfo", slurm: "sinfo", run: info.Ginfo, about: "list partitions and nodes"},
		{name: "gcontrol", slurm: "scontrol", run: control.Gcontrol,
			about: "show and change jobs, nodes and the configuration"},
		{name: "gshare", slurm: "sshare", run: manage.Gshare, about: "list shares and usage"},
		{name: "grun", slurm: "srun", run: run.Grun, about: "run a command as tasks of a job"},
		{name: "galloc", slurm: "salloc", run: submit.Galloc,
			about: "get an allocation, and run a command or a shell with it"},
		{name: "gattach", slurm: "sattach", run: run.Gattach, about: "print what a running step writes"},
		{name: "gbcast", slurm: "sbcast", run: run.Gbcast, about: "send a file to the nodes of a job"},
		{name: "gprio", slurm: "sprio", run: manage.Gprio, about: "list the factors of priorities"},
		{name: "gacctmgr", slurm: "sacctmgr", run: manage.Gacctmgr, about: "manage accounts, users, associations and QOS"},
		{name: "gdiag", slurm: "sdiag", run: manage.Gdiag, about: "show the scheduler's statistics"},
		{name: "gstat", slurm: "sstat", run: acct.Gstat, about: "show what running jobs use now"},
		{name: "gseff", slurm: "seff", run: acct.Gseff, about: "tell how well a job used what it held"},
		{name: "greport", slurm: "sreport", run: report.Greport, about: "report usage over time"},
		{name: "gcrontab", slurm: "scrontab", run: submit.Gcrontab, about: "keep jobs that run at certain times"},
		{name: "gtrigger", slurm: "strigger", run: manage.Gtrigger, about: "run programs when jobs, nodes or daemons change"},
	}
}

// Main runs the command that env names and gives its exit code.
func Main(env *env.Env) int {
	if env.Program == "gcli" && len(env.Args) > 0 && env.Args[0] == "complete" {
		return completeLine(env)
	}
	for _, c := range commands() {
		if env.Program != c.name && env.Program != c.slurm { // no program has an empty name
			continue
		}
		return c.run(env)
	}
	fmt.Fprintf(env.Stderr, "%s: gcli is called by the names of gbatch's commands:\n\n", env.Program)
	for _, c := range commands() {
		fmt.Fprintf(env.Stderr, "  %-9s %-9s %s\n", c.name, c.slurm, c.about)
	}
	fmt.Fprintf(env.Stderr, "\nMake a link of that name to gcli, or run `make install`.\n")
	return 2
}

// completeLine answers a shell: complete SHELL COMMAND WORD... The command says which words it takes.
func completeLine(e *env.Env) int {
	if len(e.Args) < 3 || !slices.Contains(complete.Shells, e.Args[1]) {
		fmt.Fprintf(e.Stderr, "usage: gcli complete %s COMMAND WORD...; shells call it\n", strings.Join(complete.Shells, "|"))
		return 2
	}
	words := e.Args[3:]
	asked := *e
	asked.Program, asked.Args, asked.Stderr = filepath.Base(e.Args[2]), []string{getopt.Completing}, io.Discard
	asked.Complete = func(p *getopt.Parser) int { return complete.Run(&asked, p, words) }
	for _, c := range commands() {
		if c.name == asked.Program || c.slurm == asked.Program {
			return c.run(&asked)
		}
	}
	return 1
}
