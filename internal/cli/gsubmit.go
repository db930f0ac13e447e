package cli

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/script"
	"gbatch/internal/client"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// gsubmit submits a batch script: from a file, from standard input, or made of one command (--wrap). Options come from
// the command line, the environment and the script's #SBATCH lines, the former before the latter.
func gsubmit(e *env.Env) int {
	rc, err := submit(e)
	if err != nil {
		fmt.Fprintln(e.Stderr, err)
		return e.Failed(rc)
	}
	return rc
}

func submit(e *env.Env) (int, error) {
	s := &submission{}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(s.options(time.Now), getopt.HelpOptions('h')...),
		Order: getopt.StopAtOperand, EnvPrefix: "SBATCH", Operands: "[script [arguments...]]",
		About:    "Submit a batch script. Without a script it is read from standard input. Lines of the script that begin with #SBATCH or #GBATCH, before its first command, hold options too.",
		Epilogue: "Options may also be set in the environment (SBATCH_PARTITION, SBATCH_TIMELIMIT, ...): the command line is stronger than the environment, and that than the script."})
	operands, err := p.Args(e.Args)
	if err != nil {
		return e.Usage(p, err), nil
	}
	body, err := readScript(e, s, p, operands)
	if err != nil {
		return 1, err
	}
	if err := p.Env(e.Lookup); err != nil {
		return 1, err
	}
	if err := p.Apply(); err != nil {
		return 1, err
	}
	if !s.quiet {
		for _, n := range p.Notes() {
			fmt.Fprintln(e.Stderr, n)
		}
	}
	s.wishLogin()
	lines, err := eachLines(e, s)
	if err != nil {
		return 1, fmt.Errorf("%s: error: %w", e.Program, err)
	}
	rq, err := request(e, s, body)
	if err != nil {
		return 1, fmt.Errorf("%s: error: %w", e.Program, err)
	}
	c, err := e.Connect()
	if err != nil {
		return 1, fmt.Errorf("%s: error: Batch job submission failed: %s", e.Program, env.Text(err))
	}
	defer c.Close()
	if err := e.CheckClusters(c, s.clusters); err != nil {
		return 1, fmt.Errorf("%s: error: %s", e.Program, env.Text(err))
	}
	if s.each != "" && !s.testOnly {
		return submitEach(e, c, s, rq, lines)
	}
	var reply proto.SubmitReply
	if err := c.Call(proto.KindSubmit, rq, &reply); err != nil {
		return 1, refused(e, s, err, "")
	}
	notes(e, s, reply.Notes)
	if s.testOnly {
		fmt.Fprintf(e.Stderr, "%s: Job to start at %s using %d processors on nodes %s in partition %s\n", e.Program,
			time.UnixMilli(int64(reply.TestStart)).Format("2006-01-02T15:04:05"), reply.TestCPUs, reply.TestNodes, reply.TestPart)
		return 0, nil
	}
	submitted(e, s, reply.Job, reply.Cluster)
	if !s.wait {
		return 0, nil
	}
	if err := e.Flush(); err != nil { // who waits wants to see the id now
		return 1, err
	}
	return await(e, c, reply.Job)
}

// refused is the error of a submission that the controller did not take; where says which of several it was.
func refused(e *env.Env, s *submission, err error, where string) error {
	what := "Batch job submission failed: "
	if s.testOnly {
		what = "allocation failure: "
	}
	if env.Code(err) == proto.CodeScript {
		what = ""
	}
	return fmt.Errorf("%s: error: %s%s%s", e.Program, where, what, env.Text(err))
}

// notes shows the controller's sentences about a job that it took.
func notes(e *env.Env, s *submission, notes []string) {
	if s.quiet {
		return
	}
	for _, n := range notes {
		fmt.Fprintf(e.Stderr, "%s: %s\n", e.Program, n)
	}
}

// submitted says which job there is now.
func submitted(e *env.Env, s *submission, id model.JobID, cluster string) {
	switch {
	case s.parsable && len(s.clusters) > 0:
		fmt.Fprintf(e.Stdout, "%d;%s\n", id, cluster)
	case s.parsable:
		fmt.Fprintf(e.Stdout, "%d\n", id)
	case len(s.clusters) > 0 && !s.quiet:
		fmt.Fprintf(e.Stdout, "Submitted batch job %d on cluster %s\n", id, cluster)
	case !s.quiet:
		fmt.Fprintf(e.Stdout, "Submitted batch job %d\n", id)
	}
}

// await returns when the job has ended, with its exit code.
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

// readScript finds the script, checks it and feeds its directives to the parser.
func readScript(e *env.Env, s *submission, p *getopt.Parser, operands []string) ([]byte, error) {
	fail := func(format string, a ...any) error {
		return fmt.Errorf("%s: error: %s", e.Program, fmt.Sprintf(format, a...))
	}
	if wrap, ok := p.Value("wrap"); ok {
		if len(operands) > 0 {
			return nil, fail("Script arguments not permitted with --wrap option")
		}
		s.spec.Name = "wrap"
		return script.Wrap(wrap), nil
	}
	var data []byte
	var err error
	where := "stdin"
	each, _ := p.Value("each")
	switch {
	case len(operands) == 0 && each == "-":
		return nil, fail("--each=- reads the jobs' arguments from standard input, so the script can't come from there too: name it, or use --wrap")
	case len(operands) == 0:
		s.spec.Name = "sbatch"
		data, err = io.ReadAll(io.LimitReader(e.Stdin, maxScriptRead+1))
	default:
		where = operands[0]
		path := where
		if !strings.Contains(path, "/") {
			path = findScript(e, path)
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(e.Dir, path)
		}
		s.spec.Name = filepath.Base(path)
		s.spec.Command = path
		s.spec.Args = operands[1:]
		data, err = readLimited(path)
	}
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fail("Unable to open file %s: %v", where, err)
	}
	if err := script.Check(data, maxScriptRead); err != nil {
		return nil, errors.New(e.Program + ": error: " + strings.ReplaceAll(err.Error(), "\n", "\n"+e.Program+": error: "))
	}
	parsed, err := script.Parse(data)
	if err != nil {
		return nil, fail("%s %v", where, err)
	}
	for _, w := range parsed.Warnings {
		if !s.quiet {
			fmt.Fprintf(e.Stderr, "%s: warning: %s %s\n", e.Program, where, w)
		}
	}
	for _, d := range parsed.Directives {
		if d.Het {
			return nil, fail("%s line %d: heterogeneous jobs (hetjob) are not supported by gbatch yet; submit the parts as jobs of their own, joined with --dependency", where, d.Line)
		}
		if err := p.Directive(d.Args, fmt.Sprintf("%s line %d", where, d.Line)); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// maxScriptRead is more than any controller accepts (SchedulerParameters=max_script_size, 4 MiB by default).
const maxScriptRead = 64 << 20

func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return nil, errors.New("Is a directory")
	}
	return io.ReadAll(io.LimitReader(f, maxScriptRead+1))
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

// request turns what the options say into the message for the controller.
func request(e *env.Env, s *submission, body []byte) (*proto.SubmitRequest, error) {
	sp := &s.spec
	sp.WorkDir = e.Dir
	if s.chdir != "" {
		sp.WorkDir = s.chdir
		if !filepath.IsAbs(sp.WorkDir) {
			sp.WorkDir = filepath.Join(e.Dir, sp.WorkDir)
		}
		sp.WorkDir = filepath.Clean(sp.WorkDir)
	}
	sp.Append = s.openMode == "a"
	sp.Submit = e.Program
	for _, a := range e.Args {
		sp.Submit += " " + a
	}
	if len(sp.Submit) > proto.MaxFieldBytes {
		sp.Submit = sp.Submit[:proto.MaxFieldBytes]
	}
	old := unix.Umask(0)
	unix.Umask(old)
	sp.Umask = uint32(old)
	if sp.TasksPerNode > 0 && sp.Tasks > 0 && sp.MinNodes == 0 {
		sp.MinNodes = (sp.Tasks + sp.TasksPerNode - 1) / sp.TasksPerNode
		sp.MaxNodes = sp.MinNodes
	}
	if err := s.settle(); err != nil {
		return nil, err
	}
	var err error
	if sp.Limits, err = resourceLimits(s.limits); err != nil {
		return nil, err
	}
	env, err := jobEnvironment(e, s)
	if err != nil {
		return nil, err
	}
	var id [16]byte
	if _, err := unix.Getrandom(id[:], 0); err != nil {
		return nil, fmt.Errorf("draw a request id: %w", err)
	}
	return &proto.SubmitRequest{RequestID: hex.EncodeToString(id[:]), Spec: sp, Script: body, Env: env, TestOnly: s.testOnly}, nil
}

// jobEnvironment picks the variables that go with the job: NAME=value, each ended by a NUL.
func jobEnvironment(e *env.Env, s *submission) ([]byte, error) {
	var out []byte
	add := func(kv string) { out = append(append(out, kv...), 0) }
	if s.exportTo != "" {
		data, err := readLimited(s.exportTo)
		if err != nil {
			return nil, fmt.Errorf("--export-file=%s: %w", s.exportTo, err)
		}
		if len(data) > 0 && data[len(data)-1] != 0 {
			data = append(data, 0)
		}
		return data, nil
	}
	words := splitQuoted(s.export)
	all := s.export == ""
	var named []string
	for _, w := range words {
		switch {
		case strings.EqualFold(w, "ALL"):
			all = true
		case strings.EqualFold(w, "NIL"), strings.EqualFold(w, "NONE"):
		default:
			named = append(named, w)
		}
	}
	pick := func(kv string) bool {
		if all {
			return true
		}
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "SLURM_") {
			return true
		}
		switch name {
		case "HOME", "USER", "LOGNAME", "SHELL", "LANG":
			return s.userEnv == "" // the login shell sets them
		}
		for _, n := range named {
			if n == name {
				return true
			}
		}
		return false
	}
	path := all || s.userEnv != ""
	for _, kv := range e.Environ {
		if pick(kv) && !strings.HasPrefix(kv, "SLURM_SUBMIT_DIR=") && !strings.HasPrefix(kv, "SLURM_PRIO_PROCESS=") && !strings.HasPrefix(kv, "SLURM_GET_USER_ENV=") {
			path = path || strings.HasPrefix(kv, "PATH=")
			add(kv)
		}
	}
	if !path {
		add("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	for _, w := range named {
		if strings.Contains(w, "=") {
			add(w)
		}
	}
	if s.export != "" && !strings.EqualFold(s.export, "ALL") {
		add("SLURM_EXPORT_ENV=" + s.export)
	}
	if s.userEnv != "" {
		add("SLURM_GET_USER_ENV=" + s.userEnv)
	}
	// Of this submission, not of a job that it may come from.
	add("SLURM_SUBMIT_DIR=" + e.Dir)
	add("SLURM_PRIO_PROCESS=" + strconv.Itoa(niceness()))
	if len(out) > proto.MaxEnvBytes {
		return nil, fmt.Errorf("the environment is %d bytes long, the limit is %d; pass less with --export", len(out), proto.MaxEnvBytes)
	}
	return out, nil
}

// splitQuoted splits a comma list in which values may stand in quotes: ALL,A='x,y',B.
func splitQuoted(text string) []string {
	var out []string
	var word []byte
	quote := byte(0)
	for i := range len(text) {
		switch ch := text[i]; {
		case quote != 0 && ch == quote:
			quote = 0
		case quote == 0 && (ch == '\'' || ch == '"'):
			quote = ch
		case quote == 0 && ch == ',':
			out, word = append(out, string(word)), nil
		default:
			word = append(word, ch)
		}
	}
	if len(word) > 0 {
		out = append(out, string(word))
	}
	return out
}

// rlimitNames are Slurm's names for the resource limits that a job takes over.
func rlimitNames() []struct {
	name string
	num  int
} {
	return []struct {
		name string
		num  int
	}{{"CPU", unix.RLIMIT_CPU}, {"FSIZE", unix.RLIMIT_FSIZE}, {"DATA", unix.RLIMIT_DATA}, {"STACK", unix.RLIMIT_STACK},
		{"CORE", unix.RLIMIT_CORE}, {"RSS", unix.RLIMIT_RSS}, {"NPROC", unix.RLIMIT_NPROC}, {"NOFILE", unix.RLIMIT_NOFILE},
		{"MEMLOCK", unix.RLIMIT_MEMLOCK}, {"AS", unix.RLIMIT_AS}}
}

// resourceLimits reads this process's limits: all ("" or ALL), none (NONE), or the named ones.
func resourceLimits(which string) ([]model.RLimit, error) {
	if strings.EqualFold(which, "NONE") {
		return nil, nil
	}
	known := rlimitNames()
	wanted := map[string]bool{}
	if which != "" && !strings.EqualFold(which, "ALL") {
		for _, w := range env.SplitList(strings.ToUpper(which)) {
			found := false
			for _, k := range known {
				found = found || k.name == w
			}
			if !found {
				return nil, fmt.Errorf("'%s' is no resource limit; write ALL, NONE or some of CPU, FSIZE, DATA, STACK, CORE, RSS, NPROC, NOFILE, MEMLOCK, AS", w)
			}
			wanted[w] = true
		}
	}
	var out []model.RLimit
	for _, k := range known {
		if len(wanted) > 0 && !wanted[k.name] {
			continue
		}
		var r unix.Rlimit
		// Go raises this process's own NOFILE limit at start; the shell's is what the user means.
		pid := 0
		if k.num == unix.RLIMIT_NOFILE {
			pid = os.Getppid()
		}
		if err := unix.Prlimit(pid, k.num, nil, &r); err != nil {
			if err := unix.Getrlimit(k.num, &r); err != nil {
				return nil, fmt.Errorf("read the limit %s: %w", k.name, err)
			}
		}
		out = append(out, model.RLimit{Resource: uint32(k.num), Soft: r.Cur, Hard: r.Max})
	}
	return out, nil
}

// readNodeFile reads a hostlist from a file: one or several a line.
func readNodeFile(path string) ([]string, error) {
	data, err := readLimited(path)
	if err != nil {
		return nil, err
	}
	return hostlist.Expand(strings.Join(strings.Fields(string(data)), ","))
}

// niceness gives this process's own, -20 to 19; 0 where it can't be read.
func niceness() int {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return 0
	}
	return 20 - n // the system call never gives a negative number
}
