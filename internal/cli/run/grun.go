package run

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/request"
	"gbatch/internal/client"
	"gbatch/internal/conf/locate"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// Grun runs a command as a step of a job: the requested number of tasks, on the job's resources. The tasks get grun's
// own standard files and so write to the destination directly, unless output is labelled or input is shared. talk.go
// has the conversation with the node's daemon, files.go the files.
func Grun(e *env.Env) int {
	r := &run{Env: e}
	r.rq.Parent = proto.StepNone
	lookup := r.hetLookup(r.nested())
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(r.recorded(r.options()), getopt.HelpOptions('h')...),
		Order:     getopt.StopAtOperand,
		EnvPrefix: "SLURM", Operands: "command [arguments...]", OperandValues: env.CommandLine,
		About: "Run a command as tasks of a job: in a batch script or under galloc on the job's resources, with --jobid " +
			"in a running job of yours, and elsewhere in a job of its own.",
		Epilogue: "Options may also be set in the environment (SLURM_NTASKS, SLURM_OVERLAP, SLURM_GPU_BIND, ...); a batch " +
			"script can set them for all its steps."})
	operands, err := p.Parse(e.Args, lookup)
	if err != nil {
		if errors.Is(err, errListMPI) {
			fmt.Fprintln(e.Stderr, errListMPI.Text)
			return 0
		}
		return e.BadLine(p, err)
	}
	if !r.quiet && r.job != "" {
		for _, n := range p.Notes() {
			fmt.Fprintln(e.Stderr, n)
		}
	}
	if r.verbose > 0 {
		e.DefinedOptions(p)
	}
	if err := r.settle(p, operands); err != nil {
		e.Errorf("%s", err.Error())
		return r.Failed(1)
	}
	if err := r.OnCluster(r.clusters); err != nil {
		e.Errorf("%s", env.Text(err))
		return r.Failed(1)
	}
	release := func(int) {}
	if r.job == "" {
		if p.Given("exclusive").Source == getopt.FromArgs && p.Given("cpus-per-task").Source != getopt.FromArgs {
			r.rq.Need.Exact = false // its nodes are exclusive
		}
		var rc int
		if release, rc = r.outside(); release == nil && rc == 0 {
			return 0 // --test-only
		} else if release == nil {
			return r.Failed(rc)
		}
	}
	dir, node, err := r.find()
	if err != nil {
		e.Errorf("%s", env.Text(err))
		release(1)
		return r.Failed(1)
	}
	t := &talk{run: r, dir: dir, node: node}
	rc := t.main()
	release(rc)
	return rc
}

// nested detects a grun within a step. The new step shares its parent's resources, because it would otherwise wait for
// them forever. Variables that describe the parent are not options of the new step.
func (r *run) nested() func(string) (string, bool) {
	id, ok := stepOf(r.Getenv("SLURM_STEP_ID"))
	if !ok {
		return r.Lookup
	}
	r.rq.Parent = id
	return func(name string) (string, bool) {
		switch name {
		case "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_CPU_BIND",
			"SLURM_GPU_BIND", "SLURM_TRES_BIND",
			"SLURM_MEM_BIND", "SLURM_DISTRIBUTION", "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU":
			return "", false
		}
		return r.Lookup(name)
	}
}

// settle turns the options into the request.
func (r *run) settle(p *getopt.Parser, operands []string) error {
	if len(operands) == 0 {
		return errors.New("No command given to execute; write it behind the options")
	}
	if slices.Contains(operands, ":") {
		return errors.New(noHetStep + "; an argument : of the command goes through a shell, as in sh -c 'cmd :'")
	}
	if err := r.intoGroup(); err != nil {
		return err
	}
	r.badSaid, r.waitSaid = p.Given("kill-on-bad-exit").Source != getopt.NotGiven,
		p.Given("wait").Source != getopt.NotGiven
	typed := func(option string) bool { return p.Given(option).Source == getopt.FromArgs }
	for _, part := range [...]func() error{
		func() error { return r.settleTasks(typed) },
		func() error { return r.settleGres(typed) },
		func() error { return r.settlePlace(typed) },
		func() error { return r.settleProcess(operands) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// settleTasks computes the number of tasks: typed options override the job's environment.
func (r *run) settleTasks(typed func(string) bool) error {
	n := &r.rq.Need
	if _, set := r.Lookup("SRUN_CPUS_PER_TASK"); set || typed("cpus-per-task") {
		n.Exact, n.Fill = true, true
	}
	if typed("ntasks") && !typed("ntasks-per-node") {
		n.TasksPerNode = 0 // the job's
	}
	if !typed("ntasks") && (typed("ntasks-per-node") || typed("ntasks-per-gpu")) {
		n.Tasks = 0
	}
	if n.Tasks > 0 && !typed("ntasks-per-gpu") {
		n.TasksPerGPU = 0 // the job's: it sets the GPUs that tasks see, not their number
	}
	if n.Overlap && n.Exact && typed("exclusive") {
		return errors.New("--overlap and --exclusive exclude each other")
	}
	if n.Overcommit && !typed("overcommit") {
		n.Overcommit = n.Tasks > 0
	}
	return nil
}

// settleGres computes the CPUs and generic resources of the tasks, and the GPUs that each sees.
func (r *run) settleGres(typed func(string) bool) (err error) {
	n, bind := &r.rq.Need, &r.rq.Bind
	perTask := typed("tres-per-task")
	if !typed("gpus-per-task") && (perTask && r.perTask.Names(model.GPUName) || typed("gres") || typed("gpus") ||
		typed("gpus-per-node")) {
		n.Gres = slices.DeleteFunc(n.Gres, func(g model.GresReq) bool { return g.Per == model.PerTask })
		r.gpusPer = false
	}
	if c := r.perTask.CPUs; c > 0 && perTask && typed("cpus-per-task") && n.CPUsPerTask != c {
		return fmt.Errorf("--cpus-per-task=%d and --tres-per-task=cpu=%d say different things: give one of them",
			n.CPUsPerTask, c)
	} else if c > 0 && (perTask || n.CPUsPerTask == 0) {
		n.CPUsPerTask, n.Exact = c, n.Exact || perTask
	}
	if n.Gres, err = r.perTask.AddTo(n.Gres); err != nil {
		return err
	}
	r.gpusPer = r.gpusPer || r.perTask.Names(model.GPUName)
	if r.gpusPer && bind.GPU == proto.BindAuto {
		for _, g := range n.Gres {
			if g.Per == model.PerTask {
				bind.GPU, bind.GPUCount, bind.GPUImplied = proto.BindPerTask, g.Count, true
			}
		}
	}
	return nil
}

// settlePlace chooses the nodes of the job for the tasks, and whether they have a terminal.
func (r *run) settlePlace(typed func(string) bool) error {
	n := &r.rq.Need
	if n.Dist == proto.DistDefault && len(n.Nodes) == 0 && r.Getenv("SLURM_HOSTFILE") != "" {
		n.Dist = proto.DistArbitrary
	}
	if n.Dist == proto.DistArbitrary {
		if err := r.setRanks(typed("ntasks")); err != nil {
			return err
		}
	}
	if r.pty {
		if err := r.wantTerminal(); err != nil {
			return err
		}
	}
	if r.relative == 0 {
		return nil
	}
	nodes, err := hostlist.Expand(r.Getenv("SLURM_JOB_NODELIST"))
	switch {
	case r.job == "":
		return errors.New("--relative option invalid for job allocation request")
	case err != nil || len(nodes) <= int(r.relative):
		return fmt.Errorf("--relative=%d: the job has the nodes '%s'; name some with --nodelist", r.relative,
			r.Getenv("SLURM_JOB_NODELIST"))
	}
	n.NotNodes = append(n.NotNodes, nodes[:r.relative]...)
	return nil
}

// settleProcess sets the tasks' process attributes: command, directory, limits, environment.
func (r *run) settleProcess(operands []string) (err error) {
	rq := &r.rq
	rq.Dir = r.Dir
	rq.PID = int32(os.Getpid())
	rq.Host, _ = os.Hostname() // "" says that it isn't known
	if r.chdir != "" {
		if rq.Dir = r.chdir; !filepath.IsAbs(rq.Dir) {
			rq.Dir = filepath.Join(r.Dir, rq.Dir)
		}
	}
	if err := r.command(operands); err != nil {
		return err
	}
	for _, prog := range []*string{&rq.Prolog, &rq.Epilog} {
		if *prog != "" && *prog != "none" && !filepath.IsAbs(*prog) {
			*prog = filepath.Join(r.Dir, *prog)
		}
	}
	rq.Submit = r.Program
	for _, a := range r.Args {
		rq.Submit += " " + a
	}
	if len(rq.Submit) > proto.MaxFieldBytes {
		rq.Submit = rq.Submit[:proto.MaxFieldBytes]
	}
	old := unix.Umask(0)
	unix.Umask(old)
	rq.Umask = uint32(old)

	if rq.Limits, err = request.ResourceLimits(r.limits); err != nil {
		return err
	}
	if rq.Env, err = r.stepEnvironment(); err != nil {
		return err
	}
	var id [16]byte
	if _, err := unix.Getrandom(id[:], 0); err != nil {
		return fmt.Errorf("draw a request id: %w", err)
	}
	rq.RequestID = hex.EncodeToString(id[:])
	return nil
}

// command finds the programs that the tasks run.
func (r *run) command(operands []string) error {
	rq := &r.rq
	if r.multi {
		progs, err := r.readMulti(operands[0], operands[1:])
		if err != nil {
			return err
		}
		rq.Multi, r.multiFile = progs, operands[0]
		if rq.Name == "" {
			rq.Name = filepath.Base(operands[0])
		}
		return nil
	}
	rq.Argv, rq.Program = operands, r.program(operands[0])
	if rq.Name == "" {
		rq.Name = filepath.Base(operands[0])
	}
	return nil
}

// program finds a command as a shell does; a missing one fails later, at its start.
func (r *run) program(name string) string {
	if strings.Contains(name, "/") {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(r.rq.Dir, name)
	}
	for _, dir := range filepath.SplitList(r.Getenv("PATH")) {
		full := filepath.Join(dir, name)
		if !filepath.IsAbs(full) {
			full = filepath.Join(r.Dir, full)
		}
		if st, err := os.Stat(full); err == nil && st.Mode().IsRegular() && unix.Access(full, unix.X_OK) == nil {
			return full
		}
	}
	return filepath.Join(r.rq.Dir, name)
}

// maxMultiLines bounds the file of --multi-prog.
const maxMultiLines = 4096

// readMulti reads the file of --multi-prog: each line has the numbers of some tasks and their command.
func (r *run) readMulti(path string, rest []string) ([]proto.StepProgram, error) {
	if len(rest) > 0 {
		return nil, errors.New("--multi-prog takes one operand, the file that names the commands")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.Dir, path)
	}
	data, err := request.ReadLimited(path)
	if err != nil {
		return nil, fmt.Errorf("Could not open multi_prog config file %s: %w", path, reason(err))
	}
	data = []byte(strings.ReplaceAll(string(data), "\\\n", " "))
	var out []proto.StepProgram
	for i, line := range strings.Split(string(data), "\n") {
		words, err := shellWords(line)
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %w", path, i+1, err)
		}
		if len(words) == 0 {
			continue
		}
		if len(words) < 2 || len(out) == maxMultiLines {
			return nil, fmt.Errorf("%s line %d: write task numbers and a command, such as 1-3 ./worker %%t", path, i+1)
		}
		m := proto.StepProgram{Argv: words[1:], Program: r.program(words[1])}
		if words[0] == "*" {
			m.Ranks = model.TaskSet{{Lo: 0, Hi: proto.MaxStepTasks - 1, Step: 1}}
		} else if m.Ranks, _, err = model.ParseTaskSet(words[0], proto.MaxStepTasks); err != nil {
			return nil, fmt.Errorf("%s line %d: '%s' are no task numbers; write 0, 1-3, 4,6 or *", path, i+1, words[0])
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s names no command", path)
	}
	return out, nil
}

// shellWords splits a line into words; quotes keep blanks, # begins a comment.
func shellWords(line string) ([]string, error) {
	var out []string
	var word []byte
	in, quote := false, byte(0)
	for i := 0; i < len(line); i++ {
		switch ch := line[i]; {
		case quote != 0 && ch == quote:
			quote = 0
		case quote != 0:
			word = append(word, ch)
		case ch == '\'' || ch == '"':
			quote, in = ch, true
		case ch == '\\' && i+1 < len(line):
			i++
			word, in = append(word, line[i]), true
		case ch == ' ' || ch == '\t' || ch == '\r':
			if in {
				out = append(out, string(word))
			}
			word, in = nil, false
		case ch == '#' && !in:
			return out, nil
		default:
			word, in = append(word, ch), true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a %c is not closed", quote)
	}
	if in {
		out = append(out, string(word))
	}
	return out, nil
}

// setRanks gives each task its node, for --distribution=arbitrary. counted says that the user has given the number of
// tasks.
func (r *run) setRanks(counted bool) (err error) {
	n := &r.rq.Need
	if n.Ranks = n.Nodes; len(n.Ranks) == 0 {
		if n.Ranks, err = r.hostFile(); err != nil {
			return err
		}
	}
	switch {
	case !counted:
		n.Tasks = 0
	case int(n.Tasks) < len(n.Ranks):
		n.Ranks = n.Ranks[:n.Tasks]
	case int(n.Tasks) > len(n.Ranks):
		return fmt.Errorf("--distribution=arbitrary: %d tasks, and the list of nodes has %d", n.Tasks, len(n.Ranks))
	}
	n.Nodes = nil
	return nil
}

// hostFile reads SLURM_HOSTFILE for --distribution=arbitrary: the node of each task.
func (r *run) hostFile() ([]string, error) {
	path := r.Getenv("SLURM_HOSTFILE")
	if path == "" {
		return nil, errors.New(
			"--distribution=arbitrary needs the environment variable SLURM_HOSTFILE: a file with the node of each task")
	}
	data, err := request.ReadLimited(path)
	if err != nil {
		return nil, fmt.Errorf("SLURM_HOSTFILE: %w", err)
	}
	var out []string
	for _, word := range strings.Fields(strings.ReplaceAll(string(data), ",", " ")) {
		names, err := hostlist.Expand(word)
		if err != nil {
			return nil, fmt.Errorf("SLURM_HOSTFILE %s: %w", path, err)
		}
		if out = append(out, names...); len(out) > proto.MaxStepTasks {
			return nil, fmt.Errorf("SLURM_HOSTFILE %s names more than %d tasks", path, proto.MaxStepTasks)
		}
	}
	return out, nil
}

// stepEnvironment gives the tasks' variables.
func (r *run) stepEnvironment() ([]byte, error) {
	if e := r.export.Export; e == "" || strings.EqualFold(e, "ALL") {
		size := 0
		for _, kv := range r.Environ {
			size += len(kv) + 1
		}
		out := make([]byte, 0, size)
		for _, kv := range r.Environ {
			out = append(append(out, kv...), 0)
		}
		if len(out) > proto.MaxEnvBytes {
			return nil, fmt.Errorf("the environment is %d bytes long, the limit is %d; pass less with --export", len(out),
				proto.MaxEnvBytes)
		}
		return out, nil
	}
	r.export.ForStep = true
	return request.Environment(r.Env, &r.export)
}

// find gives the daemon to ask: that of the node with the job's batch script.
func (r *run) find() (dir, node string, err error) {
	base, _, _ := strings.Cut(r.job, ".")
	refs, err := env.ParseJobRefs(base)
	if err != nil || len(refs) != 1 {
		return "", "", fmt.Errorf("Invalid job id specified: %s", r.job)
	}
	if _, dir, err = locate.SocketDir(r.Getenv); err != nil {
		return "", "", err
	}
	own := r.Getenv("SLURM_JOB_ID") == base || r.Getenv("SLURM_JOBID") == base
	if nodes, err := hostlist.Expand(r.Getenv("SLURM_JOB_NODELIST")); own && err == nil && len(nodes) > 0 {
		r.rq.Job, node = refs[0].Job, nodes[0]
	} else {
		r.rq.Parent = proto.StepNone
		if r.rq.Job, node, err = r.lookUp(refs[0]); err != nil {
			return "", "", err
		}
	}
	r.rq.Node = node
	door, err := r.door(dir, node)
	return dir, door, err
}

// door gives the name of the daemon on this host to ask: the manager of the job's steps itself or, on another host, a
// daemon that passes the request on.
func (r *run) door(dir, node string) (string, error) {
	for _, name := range []string{node, r.Getenv("SLURMD_NODENAME")} {
		if _, err := os.Stat(filepath.Join(dir, proto.StepSocket(name))); name != "" && err == nil {
			return name, nil
		}
	}
	prefix := proto.StepSocket("")
	list, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range list {
		if name, ok := strings.CutPrefix(e.Name(), prefix); ok && e.Type()&fs.ModeSocket != 0 {
			return name, nil
		}
	}
	return "", fmt.Errorf("Unable to create step for job %d: node %s manages its steps, and no gnoded on this host can "+
		"ask it; run gnoded here (gnoded --login on a login host)", r.rq.Job, node)
}

// lookUp asks the controller where a job runs.
func (r *run) lookUp(ref proto.JobRef) (job model.JobID, node string, err error) {
	c, err := r.Connect()
	if err != nil {
		return 0, "", err
	}
	defer c.Close()
	var found *model.Job
	err = c.Stream(proto.KindJobs, &proto.JobsRequest{Filter: proto.JobFilter{Jobs: []proto.JobRef{ref}}},
		func(body []byte) error {
			var chunk proto.JobsChunk
			if err := c.Decode(body, &chunk); err != nil {
				return err
			}
			for _, j := range chunk.Jobs {
				if j.Run != nil && j.End == nil && (found == nil || j.Het == nil) { // of all components the first
					found = j
				}
			}
			return nil
		})
	switch {
	case err != nil:
		return 0, "", fmt.Errorf("Unable to confirm allocation for job %s: %s", r.job, env.Text(err))
	case found == nil:
		return 0, "", fmt.Errorf("Unable to create step for job %s: Job is not running; gqueue -j %[1]s shows its state",
			r.job)
	}
	return found.ID, found.Run.Alloc.Nodes[0].Node, nil
}

// dial connects to the node's daemon.
func (r *run) dial(dir, node string) (*client.Steps, error) { return client.DialSteps(dir, node) }
