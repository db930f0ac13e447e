package run

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/request"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// Grun runs a command as a step of a job: the requested number of tasks, on the job's resources. The tasks get grun's
// own standard files and so write to the destination directly, unless output is labelled or input is shared. talk.go
// has the conversation with the node's daemon, files.go the files. With several components (het.go) each has a step.
func Grun(e *env.Env) int {
	l := &line{Env: e}
	all, rc := l.read()
	if all == nil {
		return rc
	}
	first := all[0]
	if first.async {
		if !first.background {
			return first.detach()
		}
		first.goOn()
	}
	if first.elastic && len(all) > 1 {
		e.Errorf("--elastic runs one command: leave out the others")
		return e.Failed(1)
	} else if first.elastic {
		return first.follow()
	}
	if err := e.OnCluster(first.clusters); err != nil {
		e.Errorf("%s", env.Text(err))
		return e.Failed(1)
	}
	release := func(int) {}
	if first.job == "" {
		if release, rc = outside(all); release == nil && rc == 0 {
			return 0 // --test-only
		} else if release == nil {
			return e.Failed(rc)
		}
	}
	s := &steps{Env: e, news: make(chan heard, 64)}
	for _, r := range all {
		dir, node, err := r.find()
		if err != nil {
			e.Errorf("%s", env.Text(err))
			release(1)
			return e.Failed(1)
		}
		s.all = append(s.all, &talk{run: r, steps: s, dir: dir, node: node, id: proto.StepNone})
	}
	first.prolog, first.epilog = cmp.Or(first.prolog, first.site.prolog), cmp.Or(first.epilog, first.site.epilog)
	rc = s.main()
	release(rc)
	return rc
}

// parser is for the options of one component.
func (r *run) parser() *getopt.Parser {
	return getopt.New(getopt.Config{Program: r.Program,
		Options: append(r.recorded(r.options()), getopt.HelpOptions('h')...), Order: getopt.StopAtOperand,
		EnvPrefix: "SLURM", Operands: "executable [args...]", OperandValues: env.CommandLine,
		Syntax: "[OPTIONS...] executable [args...] [: [options] executable...]",
		About: "Run a command as tasks of a job: in a batch script or under galloc on the job's resources, with --jobid " +
			"in a running job of yours, and elsewhere in a job of its own.",
		Epilogue: "Options may also be set in the environment (SLURM_NTASKS, SLURM_OVERLAP, SLURM_GPU_BIND, ...); a batch " +
			"script can set them for all its steps. Commands for several components of a heterogeneous job are separated " +
			"by ' : '."})
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
	if err := r.intoGroup(); err != nil {
		return err
	}
	if err := r.settleElastic(); err != nil {
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
	if r.shell {
		return r.settleShell()
	}
	if r.part {
		n.Exact = true
		if n.Tasks == 0 && n.MinNodes == 0 && n.TasksPerNode == 0 && n.TasksPerGPU == 0 {
			n.Tasks = 1
		}
	}
	if _, set := r.Lookup("SRUN_CPUS_PER_TASK"); set || typed("cpus-per-task") {
		n.Exact, n.Fill = true, true
	}
	n.Exact = n.Exact || typed("threads-per-core")
	if typed("ntasks") && !typed("ntasks-per-node") {
		n.TasksPerNode = 0 // the job's
	}
	if !typed("ntasks") && (typed("ntasks-per-node") || typed("ntasks-per-gpu")) {
		n.Tasks = 0
	}
	if n.Tasks > 0 && !typed("ntasks-per-gpu") {
		n.TasksPerGPU = 0 // the job's: it sets the GPUs that tasks see, not their number
	}
	fewer := request.FewerNodes(n.Tasks, &n.MinNodes, &n.MaxNodes)
	nodes := n.MaxNodes
	if nodes == 0 && r.group < 0 && r.job == r.OwnJob() {
		all, _ := strconv.ParseInt(r.Getenv("SLURM_JOB_NUM_NODES"), 10, 32) // 0: the node says what does not fit
		nodes = int32(all)
	}
	for _, text := range [...]string{fewer, request.TasksPerNode(n.Tasks, nodes, &n.TasksPerNode)} {
		if text != "" && r.job != "" && !r.quiet { // outside of a job the allocation says it
			fmt.Fprintf(r.Stderr, "%s: warning: %s\n", r.Program, text)
		}
	}
	if n.Overlap && n.Exact && typed("exclusive") {
		return errors.New("--overlap and --exclusive exclude each other")
	}
	if n.Overcommit && !typed("overcommit") {
		n.Overcommit = n.Tasks > 0
	}
	return nil
}

// settleShell makes the step the job's interactive one: gnoded gives it all of the job on the first node.
func (r *run) settleShell() error {
	switch {
	case r.job == "":
		return errors.New("--interactive is for a step of a job that runs: use it under galloc, or with --jobid")
	case r.async:
		return errors.New("--async and --interactive exclude each other")
	case r.part:
		return errors.New("--interactive is for a command that is alone, without ' : '")
	}
	r.rq.Interactive, r.rq.Name = true, cmp.Or(r.rq.Name, "interactive")
	r.rq.Need = proto.StepNeed{MinNodes: 1, MaxNodes: 1, Tasks: 1, Overlap: true}
	r.rq.Bind, r.relative = proto.StepBind{CPU: proto.BindNone}, 0
	return nil
}

// settleGres computes the CPUs and generic resources of the tasks, and the GPUs that each sees.
func (r *run) settleGres(typed func(string) bool) (err error) {
	if r.shell {
		return nil
	}
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
	if r.whole && (typed("exact") || typed("exclusive")) {
		return errors.New("--exact excludes --whole and --external-launcher: leave one of them out")
	}
	n.Exact = n.Exact && !r.whole
	n.NoGres = n.NoGres && len(n.Gres) == 0 // --gpus-per-node=0 undoes only what the job asked for on each node
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
	if typed("nodes") && n.Dist != proto.DistArbitrary {
		r.fewerNodes()
	}
	if r.pty {
		if err := r.wantTerminal(); err != nil {
			return err
		}
	}
	if r.relative == 0 {
		return nil
	}
	nodes := r.toldNodes()
	switch {
	case r.job == "":
		return errors.New("--relative option invalid for job allocation request")
	case len(nodes) <= int(r.relative):
		return fmt.Errorf("--relative=%d: the job has the nodes '%s'; name some with --nodelist", r.relative,
			hostlist.CompressInOrder(nodes))
	case int(r.relative)+int(n.MinNodes) > len(nodes) && typed("nodes"):
		return fmt.Errorf("--relative and --nodes option incompatible with count of allocated nodes (%d+%d>%d); "+
			"give --nodes=%d or fewer", r.relative, n.MinNodes, len(nodes), len(nodes)-int(r.relative))
	}
	n.NotNodes = append(n.NotNodes, nodes[:r.relative]...)
	return nil
}

// fewerNodes leaves out named nodes that are more than --nodes allows, and says so, as srun does.
func (r *run) fewerNodes() {
	n := &r.rq.Need
	if n.MaxNodes == 0 || len(n.Nodes) <= int(n.MaxNodes) {
		return
	}
	r.Errorf("Required nodelist includes more nodes than permitted by max-node count (%d > %d). Eliminating nodes from "+
		"the nodelist.", len(n.Nodes), n.MaxNodes)
	n.Nodes = n.Nodes[:n.MaxNodes]
	for i := range r.given {
		if r.given[i].name == "nodelist" { // the job that is requested for the step has no others either
			r.given[i].value = hostlist.CompressInOrder(n.Nodes)
		}
	}
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
	if err := rq.Container.Check(); err != nil {
		return err
	}
	if _, in := r.Lookup("SLURM_JOB_ID"); !in && rq.Name == "" {
		rq.Name = r.Getenv("SLURM_JOB_NAME") // in a job it is the job's
	}
	if err := r.command(operands); err != nil {
		return err
	}
	if _, test := r.Lookup("SLURM_TEST_EXEC"); test && !r.canExecute() {
		return fmt.Errorf("Can not execute %s", operands[0])
	}
	if err := r.settleBcast(); err != nil {
		return err
	}
	if err := r.settleAsync(); err != nil {
		return err
	}
	r.background = r.async && r.inBackground()
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
	rq.Umask = request.Umask(r.Env)
	rq.OwnLimits = r.limitsOn
	if rq.Limits, err = request.ResourceLimits(r.limits); err != nil {
		return err
	}
	if rq.Env, err = r.stepEnvironment(); err != nil {
		return err
	}
	rq.RequestID, err = newRequest()
	return err
}
