package submit

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/allocate"
	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/request"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/terminal"
)

// Galloc gets an allocation, runs a command or a shell here with variables that describe it, and releases it when the
// command ends.
func Galloc(e *env.Env) int {
	g := &allocCall{Env: e}
	g.s.Spec.Name = "interactive"
	p := g.parser(g.options())
	operands, err := p.Args(e.Args)
	all := []*getopt.Parser{p}
	for err == nil && len(operands) > 0 && operands[0] == ":" && len(g.rest) < model.MaxHet-1 {
		one := &request.Submission{}
		one.Spec.Name = g.s.Spec.Name
		next := g.parser(g.optionsOf(one))
		g.rest, all = append(g.rest, one), append(all, next)
		operands, err = next.Args(operands[1:])
	}
	for i := 0; err == nil && i < len(all); i++ {
		if i > 0 {
			all[i].Inherit(all[i-1], request.Propagated)
		}
		err = all[i].Env(e.Lookup)
	}
	if err == nil {
		if why := e.Filter("galloc", all, operands); why != nil {
			fmt.Fprintln(e.Stderr, why)
			return g.Failed(1)
		}
	}
	for i := 0; err == nil && i < len(all); i++ {
		err = all[i].Apply()
	}
	if err != nil {
		return e.BadLine(p, err)
	}
	if !g.s.Quiet {
		for _, n := range p.Notes() {
			fmt.Fprintln(e.Stderr, n)
		}
	}
	if g.s.Verbose > 0 {
		e.DefinedOptions(p)
	}
	a := &allocate.Allocation{Env: e, Submission: &g.s, Rest: g.rest, Quiet: g.s.Quiet, Immediate: g.immediate,
		Tell: "Granted job allocation %d", Keep: g.noShell}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	begin := time.Now()
	job, rc := a.Get(signals)
	signal.Stop(signals)
	if job == nil {
		return g.Failed(rc)
	}
	g.ring(time.Since(begin))
	if !g.s.Quiet {
		fmt.Fprintf(e.Stderr, "%s: Nodes %s are ready for job\n", e.Program,
			hostlist.CompressInOrder(job.Run.Alloc.NodeNames()))
	}
	if g.noShell {
		return 0
	}
	rc = g.run(job, operands, a)
	a.Release(job.ID, rc)
	return rc
}

// parser is for the options of one component.
func (g *allocCall) parser(options []getopt.Option) *getopt.Parser {
	e := g.Env
	return getopt.New(getopt.Config{Program: e.Program, Options: append(options, getopt.HelpOptions('h')...),
		Order:     getopt.StopAtOperand,
		EnvPrefix: "SALLOC", Failure: "Job submit/allocate failed: ", Operands: "[command [args...]]",
		OperandValues: env.CommandLine,
		About: "Get an allocation and run a command here, a shell without one, whose grun starts tasks on its nodes. " +
			"The allocation is given back when the command ends.",
		Epilogue: "Options may also be set in the environment (SALLOC_PARTITION, SALLOC_TIMELIMIT, ...). The components " +
			"of a heterogeneous job are separated by ' : '."})
}

// allocCall is one call of galloc.
type allocCall struct {
	*env.Env
	s         request.Submission
	rest      []*request.Submission // the other components of a heterogeneous job
	noShell   bool
	killWith  unix.Signal // signal to the command when the allocation is revoked; 0: only to a shell
	immediate int64       // most seconds to wait for the allocation; 0: no limit
	x11       string      // --x11: on which nodes steps have the display; "": on none
	bell      bellWish
}

// bellWish says when the terminal's bell rings.
type bellWish uint8

const (
	bellLate bellWish = iota // when the allocation took longer than bellAfter
	bellAlways
	bellNever
)

const bellAfter = 10 * time.Second

// ring rings the bell of the terminal that standard output is, for an allocation that took so long.
func (g *allocCall) ring(took time.Duration) {
	if g.bell == bellNever || g.bell == bellLate && took <= bellAfter {
		return
	}
	if _, err := terminal.ModesOf(1); err == nil {
		fmt.Fprint(os.Stdout, "\a")
	}
}

func (g *allocCall) options() []getopt.Option { return g.optionsOf(&g.s) }

// optionsOf gives the options of one component.
func (g *allocCall) optionsOf(s *request.Submission) []getopt.Option {
	out := slices.DeleteFunc(s.Options(g.ReadDate),
		func(o getopt.Option) bool { return slices.Contains(request.NotForAllocations, o.Name) })
	for i := range out {
		switch {
		case out[i].Name == "container" || out[i].Name == "container-id":
			out[i].Help = "steps that are started here: " + out[i].Help
		case request.IsContainer(out[i].Name) && out[i].Refused == "":
			out[i].Refused = "give it to grun: the shell runs here, and its steps run in containers"
		}
		if out[i].Group == "What gsubmit does" {
			out[i].Group = "What galloc does"
		}
	}
	const how = "What galloc does"
	return append(out,
		getopt.Option{Name: "no-shell", Group: how, Env: "_NO_SHELL",
			Help: "get the allocation, say its number, and leave it; gcancel ends it", Set: getopt.Flag(&g.noShell)},
		getopt.Option{Name: "immediate", Short: 'I', Arg: getopt.Optional, Metavar: "seconds", Group: how,
			Env:  "_IMMEDIATE",
			Help: "give up if there are no resources within this many seconds (1)", Set: func(v string) error {
				if v == "" {
					v = "1"
				}
				return getopt.Number(&g.immediate, 1, 1<<30)(v)
			}},
		getopt.Option{Name: "kill-command", Short: 'K', Arg: getopt.Optional, Metavar: "signal", Group: how,
			Env:  "_KILL_CMD",
			Help: "send the command this signal (TERM) when its allocation is taken away; a shell gets HUP",
			Set: func(v string) error {
				g.killWith = unix.SIGTERM
				if v == "" {
					return nil
				}
				n, err := env.ParseSignal(v)
				g.killWith = unix.Signal(n)
				return err
			}},
		getopt.Option{Name: "bell", Group: how, Env: "_BELL", Slot: "bell",
			Help: "ring the terminal's bell when the allocation is there (default: if that took over 10 seconds)",
			Set:  func(string) error { g.bell = bellAlways; return nil }},
		getopt.Option{Name: "no-bell", Group: how, Env: "_NO_BELL", Slot: "bell", Help: "never ring the bell",
			Set: func(string) error { g.bell = bellNever; return nil }},
		getopt.Option{Name: "x11", Arg: getopt.Optional, Metavar: "nodes", Group: how,
			Help: "give the steps of this allocation --x11, so that their windows are on your display", Set: g.setX11},
		getopt.Option{Name: "get-user-env", Arg: getopt.Optional,
			Refused: "the command has your environment: galloc bash -l reads the user's profile"},
		getopt.Option{Name: "chroot", Arg: getopt.Required, Refused: "chroot in the command"})
}

// run runs the command, and signals it when its allocation is revoked.
func (g *allocCall) run(job *model.Job, operands []string, a *allocate.Allocation) int {
	shell := len(operands) == 0
	if shell {
		operands = []string{cmp.Or(g.Getenv("SHELL"), "/bin/sh")}
	}
	cmd := exec.Command(operands[0], operands[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = os.Stdin, os.Stdout, os.Stderr, g.Dir
	if g.s.Chdir != "" {
		cmd.Dir = g.s.Chdir
	}
	cmd.Env = append(allocate.Inherited(g.Environ, g.Getenv("SLURM_STEP_ID") != "", job), a.Environment(job)...)
	cmd.Env = append(cmd.Env, containerOf(&g.s)...)
	if g.x11 != "" {
		cmd.Env = append(cmd.Env, request.X11Env+"="+g.x11)
	}
	if shell && a.ShellStep != "" {
		if err := g.asStep(cmd, a.ShellStep); err != nil {
			g.Errorf("InteractiveStepOptions=%s: %v", a.ShellStep, err)
			return 1
		}
	}
	// The terminal's signals are for the command, which shares its group with this process.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGTTOU, unix.SIGTTIN, unix.SIGTERM,
		unix.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		g.Errorf("Unable to exec command \"%s\": %v", operands[0], env.PlainExec(err))
		return 1
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case s := <-signals:
				if s == unix.SIGTERM || s == unix.SIGHUP { // sent to this process only
					_ = cmd.Process.Signal(s) // it may have ended
				}
			case <-done:
				return
			}
		}
	}()
	go func() {
		if !a.Watch(done) {
			return
		}
		fmt.Fprintf(g.Stderr, "%s: Job allocation %d has been revoked%s.\n", g.Program, job.ID, a.WhyRevoked(job.ID))
		switch {
		case g.killWith != 0:
			_ = cmd.Process.Signal(g.killWith) // as above
		case shell:
			_ = cmd.Process.Signal(unix.SIGHUP) // as above
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(interface{ Signal() unix.Signal }); ok {
			return 128 + int(ws.Signal())
		}
	}
	return 1
}

// asStep has the shell be grun's, with the options of InteractiveStepOptions: a step on the job's first node.
func (g *allocCall) asStep(cmd *exec.Cmd, options string) error {
	if g.Getenv("SHELL") == "" {
		cmd.Env = append(cmd.Env, "SHELL="+cmd.Args[0])
	}
	words := exec.Command("/bin/sh", "-c", `printf '%s\0' `+options)
	words.Env, words.Dir, words.Stderr = cmd.Env, cmd.Dir, g.Stderr
	text, err := words.Output()
	if err != nil {
		return err
	}
	name := "grun"
	if g.Program == "salloc" {
		name = "srun"
	}
	cmd.Path, cmd.Err = "/proc/self/exe", nil
	cmd.Args = append([]string{name}, strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")...)
	return nil
}

// setX11 reads --x11. It is grun that has the display, in each step.
func (g *allocCall) setX11(v string) error {
	g.x11 = cmp.Or(v, "all")
	_, err := request.ParseX11(v, g.Getenv)
	return err
}

// containerOf gives the variables by which grun runs the steps of an allocation in its container.
func containerOf(s *request.Submission) []string {
	w := s.More.Container
	if w == nil || w.Bundle == "" {
		return nil
	}
	out := []string{"SLURM_CONTAINER=" + w.Bundle}
	if w.Name != "" {
		out = append(out, "SLURM_CONTAINER_ID="+w.Name)
	}
	return out
}
