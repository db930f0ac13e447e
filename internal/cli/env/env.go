package env

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/client"
	"gbatch/internal/conf/locate"
	"gbatch/internal/format"
	"gbatch/internal/model"
	"gbatch/internal/plain"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/slurmjson"
	"gbatch/internal/version"
	"gbatch/internal/walltime"
)

// Env is a command's environment: arguments, streams, variables.
type Env struct {
	Program string   // the name it was called by, without directories
	Args    []string // after the name
	Stdin   io.Reader
	Stdout  io.Writer // buffered by Main
	Stderr  io.Writer
	Lookup  func(string) (string, bool) // environment variables
	Environ []string                    // all of them
	Dir     string                      // working directory
	TTY     bool                        // standard output is a terminal

	// Complete answers a shell that completes the command's line; nil: nobody asks.
	Complete func(*getopt.Parser) int

	exact bool   // texts are printed in a form for every character
	yaml  bool   // lists are written as YAML
	old   string // the sentence about an answer that is not the present state

	socketDir string // LocalSocketDir, if it is known already
}

// Errorf prints "program: error: ...".
func (e *Env) Errorf(format string, a ...any) {
	fmt.Fprintf(e.Stderr, "%s: error: %s\n", e.Program, plain.Lines(fmt.Sprintf(format, a...)))
}

// Content prints the content of a user's file: as it is, but on a terminal without characters that would act on it.
func (e *Env) Content(data []byte) error {
	if e.TTY {
		data = []byte(plain.Lines(string(data)))
	}
	_, err := e.Stdout.Write(data)
	return err
}

// SlurmName reports whether the command was called by its Slurm name.
func (e *Env) SlurmName() bool { return !strings.HasPrefix(e.Program, "g") }

// WholeMinutes gives a time limit in seconds as the command counts it: under a Slurm name rounded up to whole minutes.
func (e *Env) WholeMinutes(sec int64) int64 {
	if !e.SlurmName() || sec <= 0 || sec >= model.Unlimited {
		return sec
	}
	return (sec + 59) / 60 * 60
}

// Version prints the one line of --version: Slurm's under a Slurm name, because tools parse it.
func (e *Env) Version() {
	if e.SlurmName() {
		fmt.Fprintf(e.Stdout, "slurm %s\n", version.Slurm)
		return
	}
	fmt.Fprintf(e.Stdout, "gbatch %s\n", version.Version)
}

// Usage handles the error of a Parser: help, version or a complaint. It gives the exit code.
func (e *Env) Usage(p *getopt.Parser, err error) int {
	switch {
	case errors.Is(err, getopt.ErrVersion):
		e.Version()
		return 0
	case errors.Is(err, getopt.ErrHelp):
		fmt.Fprint(e.Stdout, p.Help())
		return 0
	case errors.Is(err, getopt.ErrUsage):
		fmt.Fprint(e.Stdout, p.Usage())
		return 0
	case errors.Is(err, getopt.ErrComplete) && e.Complete != nil:
		return e.Complete(p)
	case errors.Is(err, errListVersions):
		fmt.Fprintln(e.Stderr, "Possible data_parser plugins:")
		for _, v := range slurmjson.Versions() {
			fmt.Fprintf(e.Stdout, "data_parser/%s\n", v)
		}
		return 0
	}
	fmt.Fprintln(e.Stderr, err)
	return 1
}

// BadLine ends a submission, an allocation or a step whose options are refused: with 255, as in Slurm. It is 1 where a
// number is wrong, and where Slurm's own check of the option is a later one.
func (e *Env) BadLine(p *getopt.Parser, err error) int {
	if errors.Is(err, ErrGresHelp) {
		return e.listGres()
	}
	var ways *Ways
	if errors.As(err, &ways) {
		fmt.Fprint(e.Stdout, ways.Text)
		return e.Failed(1)
	}
	rc := e.Usage(p, err)
	var number *getopt.NumberError
	var wrong *getopt.Error
	var text *getopt.TextError
	switch {
	case rc == 0, errors.As(err, &number), errors.As(err, &text) && text.Submission,
		errors.As(err, &wrong) && (wrong.Fatal || slices.Contains(checkedLater, wrong.Option)):
		return e.Failed(rc)
	}
	return BadLineCode
}

// checkedLater are the options whose wrong values end Slurm's commands with 1.
var checkedLater = []string{"array", "constraint", "cpu-bind", "dependency", "exclude", "extra-node-info", "gpus",
	"gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "het-group", "hint", "kill-on-bad-exit", "licenses",
	"mpi", "nodelist", "propagate"}

// BadLineCode is the exit code of sbatch, salloc and srun for options that they refuse.
const BadLineCode = 255

// Preamble prints what Slurm's controller says before the reason of a refused submission, because tools search for it.
func (e *Env) Preamble(err error, partitions []string) {
	switch proto.Code(Code(err)) {
	case proto.CodeInvalidPartition:
		if len(partitions) > 0 {
			e.Errorf("invalid partition specified: %s", plain.Line(unknownPartition(err, partitions)))
		}
	case proto.CodeNodeConfig:
		for _, why := range [...][2]string{{proto.TooMuchMemory, "Memory specification"},
			{proto.TooManyCPUs, "CPU count per node"}, {proto.NoSuchTmp, "Temporary disk specification"},
			{proto.NoSuchCores, "Socket, core and/or thread specification"}} {
			if strings.Contains(err.Error(), why[0]) {
				e.Errorf("%s can not be satisfied", why[1])
				return
			}
		}
	}
}

// unknownPartition is the partition that a refusal names, and all that were asked for where it names none of them.
func unknownPartition(err error, asked []string) string {
	for _, name := range asked {
		if strings.Contains(err.Error(), ": "+name+": ") {
			return name
		}
	}
	return strings.Join(asked, ",")
}

// DefinedOptions prints the options in force, as --verbose does in Slurm.
func (e *Env) DefinedOptions(p *getopt.Parser) {
	say := func(format string, a ...any) { fmt.Fprintf(e.Stderr, "%s: %s\n", e.Program, fmt.Sprintf(format, a...)) }
	const line = "--------------------"
	for _, text := range p.Yielded() {
		say("%s", text)
	}
	say("defined options")
	say("%s %s", line, line)
	for _, d := range p.Defined() {
		if d.Name == "time" || d.Name == "time-min" { // as gqueue writes it: 3 is 00:03:00
			if s, unlimited, err := walltime.ParseLimit(d.Value); err == nil && !unlimited {
				d.Value = walltime.Elapsed(s)
			}
		}
		say("%-20s: %s", d.Name, plain.Line(d.Value))
	}
	say("%s %s", line, line)
	say("end of defined options")
}

// ListVerbose prints the options of a list, as --verbose does in Slurm; level 0: none.
func (e *Env) ListVerbose(p *getopt.Parser, level int, every int32) {
	if level == 0 {
		return
	}
	for _, d := range p.Defined() {
		if d.Name != "verbose" && d.Name != "iterate" {
			fmt.Fprintf(e.Stdout, "%-11s = %s\n", d.Name, plain.Line(d.Value))
		}
	}
	fmt.Fprintf(e.Stdout, "%-11s = %d\n%-11s = %d\n", "iterate", every, "verbose", level)
}

// Failed is the exit code of a submission, an allocation or a step that failed: SLURM_EXIT_ERROR instead of 1.
func (e *Env) Failed(rc int) int {
	if rc == 1 {
		return e.code("SLURM_EXIT_ERROR", 1)
	}
	return rc
}

// TooLate is the exit code of an allocation or a step that did not come within --immediate: SLURM_EXIT_IMMEDIATE.
func (e *Env) TooLate() int { return e.code("SLURM_EXIT_IMMEDIATE", e.Failed(1)) }

// code gives the exit code that a variable has.
func (e *Env) code(name string, otherwise int) int {
	if n, err := strconv.Atoi(e.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// Connect gives a client for the cluster that the environment names.
func (e *Env) Connect() (*client.Client, error) {
	dir := e.socketDir
	if dir == "" {
		var err error
		if _, dir, err = locate.SocketDir(e.Getenv); err != nil {
			return nil, err
		}
	}
	c := client.New(dir)
	c.WhenOld(e.isOld)
	if e.exact {
		c.Exact()
	}
	return c, nil
}

// isOld says once that the cluster has no controller that leads, and how old the answers are.
func (e *Env) isOld(age time.Duration, from string) {
	if e.old == "" {
		e.old = fmt.Sprintf("no controller leads; this is what %s knew %s ago", from, age.Round(time.Second))
		fmt.Fprintf(e.Stderr, "%s: warning: %s\n", e.Program, e.old)
	}
}

func (e *Env) Getenv(name string) string {
	v, _ := e.Lookup(name)
	return v
}

// JSON is the option --json of a command that prints lists; help says of which. It sets the version.
func (e *Env) JSON(group, help string, ver *string) getopt.Option {
	return getopt.Option{Name: "json", Arg: getopt.Optional, Group: group, Metavar: "version",
		Help: help + "; v0.0.39 has states as words, " + slurmjson.Default + " (the default) as lists",
		Set:  func(v string) error { return e.listVersion(v, ver) }}
}

// YAML is the option --yaml beside --json: the same list, written in the other way.
func (e *Env) YAML(group string, ver *string) getopt.Option {
	return getopt.Option{Name: "yaml", Arg: getopt.Optional, Group: group, Metavar: "version", Help: "the same as YAML",
		Set: func(v string) error {
			e.yaml = true
			return e.listVersion(v, ver)
		}}
}

// errListVersions is not an error: --json=list or --yaml=list was given.
var errListVersions = errors.New("the versions of the lists were asked for")

// listVersion reads the value of --json. Clients that are made after it give texts exactly.
func (e *Env) listVersion(v string, ver *string) (err error) {
	if v == "list" {
		return errListVersions
	}
	e.exact = true
	if v == "" {
		v = locate.DataParser(e.Getenv)
	}
	*ver, err = slurmjson.ParseVersion(v)
	return err
}

// ListOut is where a list of --json or --yaml is written.
func (e *Env) ListOut() io.Writer {
	if e.yaml {
		return slurmjson.YAML(e.Stdout)
	}
	return e.Stdout
}

// JSONFrame begins a list of --json on standard output; JSONFinish ends it.
func (e *Env) JSONFrame(list, ver string) *slurmjson.Writer {
	return slurmjson.Begin(e.ListOut(), list, ver)
}

func (e *Env) JSONFinish(j *slurmjson.Writer, cluster string, now model.Time) error {
	j.Warning = strings.TrimSpace(e.old + " " + j.Warning)
	return j.Finish(append([]string{e.Program}, e.Args...), cluster, orThis(now))
}

// orThis gives this host's time for an answer that has none, as those of gdbd.
func orThis(now model.Time) model.Time {
	if now == 0 {
		return model.Time(time.Now().UnixMilli())
	}
	return now
}

func (e *Env) JSONTail(j *slurmjson.Writer, cluster string, now model.Time) error {
	j.Warning = e.old
	return j.Tail(append([]string{e.Program}, e.Args...), cluster, orThis(now))
}

// Text gives the sentence of an error from the cluster.
func Text(err error) string {
	var r *rpc.Error
	if errors.As(err, &r) {
		return r.Text
	}
	return err.Error()
}

// Code gives the code of an error from the cluster, or 0.
func Code(err error) uint16 {
	var r *rpc.Error
	if errors.As(err, &r) {
		return r.Code
	}
	return 0
}

// Fatal is an error that sacct prints as fatal.
type Fatal struct{ Text string }

func (f Fatal) Error() string { return f.Text }

// ErrHelpFormat is not an error: --helpformat was given.
var ErrHelpFormat = errors.New("the fields were asked for")

// Fatal prints "sacct: fatal: ..." as tools know it.
func (e *Env) Fatal(text string) int {
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(e.Stderr, "%s: fatal: %s\n", e.Program, line)
	}
	return 1
}

// PlainExec gives the reason why a command can't be run, without Go's own words.
func PlainExec(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		return e.Err
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Repeat calls a function once or, with every over 0, again after every that many seconds, until it fails or the output
// is closed.
func (e *Env) Repeat(every int32, once func() int) int {
	for {
		if rc := once(); rc != 0 || every == 0 {
			return rc
		}
		if f, ok := e.Stdout.(interface{ Flush() error }); ok {
			if err := f.Flush(); err != nil {
				return 1
			}
		}
		time.Sleep(time.Duration(every) * time.Second)
	}
}

// UnknownFields prints an UnknownError and gives nil; it returns any other error.
func (e *Env) UnknownFields(err error) error {
	var unknown *format.UnknownError
	if !errors.As(err, &unknown) {
		return err
	}
	for line := range strings.SplitSeq(unknown.Error(), "\n") {
		e.Errorf("%s", line)
	}
	return nil
}

// Complaint is an error that is the command's own, not the controller's.
type Complaint struct{ Text string }

func (c Complaint) Error() string { return c.Text }

// Flush writes out what has been printed so far.
func (e *Env) Flush() error {
	if f, ok := e.Stdout.(interface{ Flush() error }); ok {
		if err := f.Flush(); err != nil {
			return fmt.Errorf("%s: error: can't write the output: %w", e.Program, err)
		}
	}
	return nil
}

// Ignored is for options that are accepted with a note.
func Ignored(string) error { return nil }

// YesNo reads yes or no.
func YesNo(v string) (bool, error) {
	switch strings.ToLower(v) {
	case "yes", "y", "1", "true":
		return true, nil
	case "no", "n", "0", "false":
		return false, nil
	}
	return false, fmt.Errorf("'%s'; write yes or no", v)
}
