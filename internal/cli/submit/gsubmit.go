package submit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/request"
	"gbatch/internal/cli/script"
	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/plain"
	"gbatch/internal/proto"
)

// Gsubmit submits a batch script: from a file, from standard input, or made of one command (--wrap). Options come from
// the command line, the environment and the script's #SBATCH lines; the earlier sources override the later ones.
func Gsubmit(e *env.Env) int {
	rc, err := submit(e)
	if err != nil {
		fmt.Fprintln(e.Stderr, err)
		return e.Failed(rc)
	}
	return rc
}

func submit(e *env.Env) (int, error) {
	all := &components{e: e}
	s, p := all.add()
	operands, err := all.args(e.Args)
	if err != nil {
		return e.BadLine(p, err), nil
	}
	if v, _ := all.value("gres"); strings.EqualFold(v, "help") { // before a script is asked for
		return e.BadLine(p, env.ErrGresHelp), nil
	}
	body, err := readScript(e, all, operands)
	if err != nil {
		return badOptions(e, p, err)
	}
	if err := all.apply(operands); err != nil {
		return badOptions(e, p, err)
	}
	if !s.Quiet {
		for _, n := range p.Notes() {
			fmt.Fprintln(e.Stderr, n)
		}
	}
	if s.Verbose > 0 {
		e.DefinedOptions(p)
	}
	for _, one := range all.subs {
		one.WishLogin()
	}
	lines, err := eachLines(e, s)
	if err != nil {
		return 1, fmt.Errorf("%s: error: %w", e.Program, err)
	}
	rq, err := request.Whole(e, all.subs, body)
	if err != nil {
		return 1, fmt.Errorf("%s: error: %w", e.Program, err)
	}
	return send(e, s, rq, lines)
}

// badOptions ends a submission whose options are refused, wherever they stand, or that the site's filter refuses.
func badOptions(e *env.Env, p *getopt.Parser, err error) (int, error) {
	var option *getopt.Error
	if errors.As(err, &option) {
		return e.BadLine(p, err), nil
	}
	return 1, err
}

// components are the parts of a heterogeneous job, or the only one of any other job: each has its options.
type components struct {
	e       *env.Env
	subs    []*request.Submission
	parsers []*getopt.Parser
}

// add begins a component.
func (x *components) add() (*request.Submission, *getopt.Parser) {
	e, s := x.e, &request.Submission{}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(s.Options(e.ReadDate),
		getopt.HelpOptions('h')...),
		Order: getopt.StopAtOperand, EnvPrefix: "SBATCH", Failure: "Batch job submission failed: ",
		Operands: "executable [args...]", Syntax: "[OPTIONS...] [script [args...]]",
		OperandValues: getopt.Operands(getopt.Values{Kind: getopt.Files}),
		About: "Submit a batch script. Without a script it is read from standard input. Lines of the script that begin " +
			"with #SBATCH or #GBATCH, before its first command, hold options too.",
		Epilogue: "Options may also be set in the environment (SBATCH_PARTITION, SBATCH_TIMELIMIT, ...): the command line " +
			"is stronger than the environment, and that than the script. The components of a heterogeneous job are " +
			"separated by ' : ', or by lines with #SBATCH hetjob: gsubmit -n1 : -n64 -p gpu job.sh"})
	x.subs, x.parsers = append(x.subs, s), append(x.parsers, p)
	return s, p
}

// args reads the command line: the options of each component, and what is no option.
func (x *components) args(args []string) ([]string, error) {
	operands, err := x.parsers[0].Args(args)
	for err == nil && len(operands) > 0 && operands[0] == ":" {
		if len(x.subs) == model.MaxHet {
			return nil, fmt.Errorf("more than %d components", model.MaxHet)
		}
		_, p := x.add()
		operands, err = p.Args(operands[1:])
	}
	return operands, err
}

// value gives an option that may stand with any component.
func (x *components) value(name string) (string, bool) {
	for _, p := range x.parsers {
		if v, ok := p.Value(name); ok {
			return v, true
		}
	}
	return "", false
}

// apply reads the environment, and sets the options of all components.
func (x *components) apply(operands []string) error {
	for i, p := range x.parsers {
		if i > 0 {
			p.Inherit(x.parsers[i-1], request.Propagated)
			x.subs[i].Spec.Name, x.subs[i].Spec.Command, x.subs[i].Spec.Args = x.subs[0].Spec.Name, x.subs[0].Spec.Command,
				x.subs[0].Spec.Args
		}
		if err := p.Env(x.e.Lookup); err != nil {
			return err
		}
	}
	if err := x.e.Filter("gsubmit", x.parsers, operands); err != nil {
		return err
	}
	for _, p := range x.parsers {
		if err := p.Apply(); err != nil {
			return err
		}
	}
	return nil
}

// send submits the job, and waits for it with --wait.
func send(e *env.Env, s *request.Submission, rq *proto.SubmitRequest, lines []eachLine) (int, error) {
	if !s.Quiet {
		for _, text := range s.Remarks {
			fmt.Fprintf(e.Stderr, "%s: note: %s\n", e.Program, text)
		}
		for _, text := range slices.Concat(s.Warnings, missing(rq.Spec)) {
			fmt.Fprintf(e.Stderr, "%s: warning: %s\n", e.Program, text)
		}
	}
	c, err := e.Connect()
	if err != nil {
		return 1, fmt.Errorf("%s: error: Batch job submission failed: %s", e.Program, env.Text(err))
	}
	defer c.Close()
	if err := e.CheckClusters(c, s.Clusters); err != nil {
		return 1, fmt.Errorf("%s: error: %s", e.Program, env.Text(err))
	}
	if s.Each != "" && !s.TestOnly {
		return submitEach(e, c, s, rq, lines)
	}
	var reply proto.SubmitReply
	if err := env.Submit(c, rq, &reply); err != nil {
		return 1, refused(e, s, err, "")
	}
	notes(e, s, reply.Notes)
	if s.TestOnly {
		fmt.Fprintf(e.Stderr, "%s: %s\n", e.Program, request.ToStart(&reply))
		return 0, nil
	}
	submitted(e, s, reply.Job, reply.Cluster)
	if !s.Wait {
		return 0, nil
	}
	if err := e.Flush(); err != nil { // with --wait, print the id at once
		return 1, err
	}
	return await(e, c, reply.Job)
}

// refused is the error of a submission that the controller refused; where names the line of --each.
func refused(e *env.Env, s *request.Submission, err error, where string) error {
	e.Preamble(err, s.Spec.Partitions)
	what := "Batch job submission failed: "
	if s.TestOnly {
		what = "allocation failure: "
	}
	if env.Code(err) == proto.CodeScript {
		what = ""
	}
	return fmt.Errorf("%s: error: %s%s%s", e.Program, where, what, env.Text(err))
}

// notes prints the controller's notes about an accepted job.
func notes(e *env.Env, s *request.Submission, notes []string) {
	if s.Quiet {
		return
	}
	for _, n := range notes {
		fmt.Fprintf(e.Stderr, "%s: %s\n", e.Program, n)
	}
}

// submitted prints the new job's id.
func submitted(e *env.Env, s *request.Submission, id model.JobID, cluster string) {
	switch {
	case s.Parsable && len(s.Clusters) > 0:
		fmt.Fprintf(e.Stdout, "%d;%s\n", id, cluster)
	case s.Parsable:
		fmt.Fprintf(e.Stdout, "%d\n", id)
	case len(s.Clusters) > 0 && !s.Quiet:
		fmt.Fprintf(e.Stdout, "Submitted batch job %d on cluster %s\n", id, cluster)
	case !s.Quiet:
		fmt.Fprintf(e.Stdout, "Submitted batch job %d\n", id)
	}
}

// await waits for the end of the job and returns its exit code.
func await(e *env.Env, c *client.Client, id model.JobID) (int, error) {
	for {
		var r proto.WaitReply
		if err := c.Call(proto.KindWait, &proto.WaitRequest{Job: id}, &r); err != nil {
			return 1, fmt.Errorf("%s: error: waiting for job %d: %s", e.Program, id, env.Text(err))
		}
		if r.Done {
			rc := int(r.Code)
			if rc == 0 && r.State != model.Completed {
				rc = 1
			}
			return rc, nil
		}
	}
}

// readScript finds the script, checks it and passes its directives to the parser.
func readScript(e *env.Env, all *components, operands []string) ([]byte, error) {
	s := all.subs[0]
	fail := func(format string, a ...any) error {
		return fmt.Errorf("%s: error: %s", e.Program, fmt.Sprintf(format, a...))
	}
	if wrap, ok := all.value("wrap"); ok {
		if len(operands) > 0 {
			return nil, fail("Script arguments not permitted with --wrap option")
		}
		s.Spec.Name = "wrap"
		return script.Wrap(wrap), nil
	}
	var data []byte
	var err error
	where := "stdin"
	each, _ := all.value("each")
	switch {
	case len(operands) == 0 && each == "-":
		return nil,
			fail("--each=- reads the jobs' arguments from standard input, so the script can't come from there too: " +
				"name it, or use --wrap")
	case len(operands) == 0:
		s.Spec.Name = "sbatch"
		data, err = io.ReadAll(io.LimitReader(e.Stdin, request.MaxScriptRead+1))
	default:
		where = operands[0]
		path := where
		if !strings.Contains(path, "/") {
			path = findScript(e, path)
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(e.Dir, path)
		}
		s.Spec.Name = filepath.Base(path)
		s.Spec.Command = path
		s.Spec.Args = operands[1:]
		data, err = request.ReadLimited(path)
	}
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fail("Unable to open file %s: %v", where, err)
	}
	if err := script.Check(data, request.MaxScriptRead); err != nil {
		return nil, errors.New(e.Program + ": error: " + strings.ReplaceAll(err.Error(), "\n",
			"\n"+e.Program+": error: "))
	}
	parsed, err := script.Parse(data)
	if err != nil {
		return nil, fail("%s %v", where, err)
	}
	for _, w := range parsed.Warnings {
		if !s.Quiet {
			fmt.Fprintf(e.Stderr, "%s: warning: %s %s\n", e.Program, where, w)
		}
	}
	_, ignored := all.parsers[0].Value("ignore-pbs")
	ignored = ignored || slices.ContainsFunc(parsed.Directives,
		func(d script.Directive) bool { return slices.Contains(d.Args, "--ignore-pbs") })
	if !ignored && !getopt.Truth(e.Getenv("SBATCH_IGNORE_PBS")) {
		if text := parsed.ForeignWarning(); text != "" && !s.Quiet {
			fmt.Fprintf(e.Stderr, "%s: warning: %s: %s\n", e.Program, where, plain.Line(text))
		}
		for _, d := range parsed.Foreign {
			if err := all.parsers[0].Directive(d.Args, fmt.Sprintf("%s line %d", where, d.Line)); err != nil {
				return nil, err
			}
		}
	}
	at := 0
	for _, d := range parsed.Directives {
		if d.Het {
			if at++; at == model.MaxHet {
				return nil, fail("%s line %d: more than %d components", where, d.Line, model.MaxHet)
			}
			if at == len(all.subs) {
				all.add()
			}
		}
		if err := all.parsers[at].Directive(d.Args, fmt.Sprintf("%s line %d", where, d.Line)); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// findScript looks for a script in the working directory and then, as sbatch does, in PATH.
func findScript(e *env.Env, name string) string {
	if _, err := os.Stat(filepath.Join(e.Dir, name)); err == nil {
		return name
	}
	path, _ := e.Lookup("PATH")
	for _, dir := range filepath.SplitList(path) {
		full := filepath.Join(dir, name)
		if st, err := os.Stat(full); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return full
		}
	}
	return name
}
