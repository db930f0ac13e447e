package run

import (
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/request"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/terminal"
)

// run holds the values of grun's options.
type run struct {
	*env.Env
	rq        proto.StepRequest
	in        string
	out       string
	err       string
	append    bool
	label     bool
	killBad   bool
	badSaid   bool  // --kill-on-bad-exit was given
	waitSaid  bool  // --wait was given
	waitS     int64 // after the end of the first task; 0: no limit
	interrupt bool  // --quit-on-interrupt
	passInt   bool  // --disable-status
	quiet     bool
	verbose   int
	multi     bool
	multiFile string
	job       string
	group     int         // the component of a heterogeneous job; noGroup: none was chosen
	whole     bool        // --whole
	part      bool        // one of several components in a job that is not heterogeneous
	wholeJob  string      // the job as it was named, without a component
	leads     model.JobID // the whole job's number, that of its first component
	line      *getopt.Parser
	chdir     string
	export    request.Submission // its export fields only
	limits    string
	limitsOn  bool // --propagate was given
	gpusPer   bool // --gpus-per-task was given
	pty       bool
	relative  int64 // nodes of the job to leave out
	immediate int64 // most seconds to wait for the job, or the step; 0: no limit

	mpi        string          // --mpi; "": the cluster's default
	x11        *uint8          // --x11: on which nodes; nil: on none
	noAllocate bool            // --no-allocate
	place      *model.Job      // the job, where grun has asked for one
	jobVars    func() []string // and its variables
	prolog     string          // programs that run here before and after the step
	epilog     string
	site       sitePrograms // what they are where the command does not say it
	send       *sending     // the file that the tasks take in; nil: they run a command
	bcast      bool         // --bcast
	compress   string
	async      bool // --async
	parsable   bool
	shell      bool             // --interactive
	elastic    bool             // --elastic, and this process follows the job's size
	background bool             // this process runs the step for a command that has ended
	numbered   func(step int32) // tells it the step's number
	cooked     terminal.Modes   // the terminal's original modes; zero: there is no terminal
	perTask    ask.PerTask
	clusters   []string
	given      []givenOption
}

// givenOption is an option as given, for the job that grun requests outside of one.
type givenOption struct{ name, value string }

// recorded makes each option's setter record its value.
func (r *run) recorded(table []getopt.Option) []getopt.Option {
	for i := range table {
		if set, name := table[i].Set, table[i].Name; set != nil {
			table[i].Set = func(v string) error {
				r.given = append(r.given, givenOption{name, v})
				return set(v)
			}
		}
	}
	return table
}

// The headings of grun's help.
const (
	groupStep  = "Parallel run options"
	groupNeeds = "Constraint options"
	groupBind  = "Affinity/Multi-core options"
	groupFiles = "Input, output, environment"
	groupHow   = "What grun does"
	groupJob   = "For the job that it asks for, outside of one"
)

func (r *run) options() []getopt.Option {
	contained := request.ContainerOptions(r.container)
	for i := range contained {
		switch contained[i].Name {
		case "container":
			contained[i].Env = "SRUN_CONTAINER SLURM_CONTAINER"
		case "container-id":
			contained[i].Env = "SRUN_CONTAINER_ID SLURM_CONTAINER_ID"
		}
	}
	return slices.Concat(r.stepOptions(), r.needOptions(), r.bindOptions(), r.fileOptions(), contained,
		r.commandOptions(), r.jobOptions(), r.foreignOptions())
}

// mem gives the setter of one of the memory options; the last one given counts.
func (r *run) mem(dst *int64) func(string) error {
	return func(v string) (err error) {
		n := &r.rq.Need
		n.MemPerNode, n.MemPerCPU, n.MemPerGPU = 0, 0, 0
		return request.Mem(dst)(v)
	}
}

// gres gives the setter of generic resources; it accepts none.
func (r *run) gres(name string, per model.GresPer) func(string) error {
	return request.Gres(&r.rq.Need.Gres, &r.rq.Need.NoGres, name, per)
}

// stepOptions describe the step.
func (r *run) stepOptions() []getopt.Option {
	R := getopt.Required
	return []getopt.Option{
		{Name: "job-name", Short: 'J', Arg: R, Metavar: "name", Group: groupStep,
			Help: "name of the step; the command's by default", Set: getopt.Text(&r.rq.Name)},
		{Name: "jobid", Arg: R, Metavar: "id", Group: groupStep, Env: "SLURM_JOB_ID SLURM_JOBID",
			Help: "the job to start a step in (default: the job that grun runs in)", Set: getopt.Text(&r.job)},
		{Name: "time", Short: 't', Arg: R, Metavar: "limit", Group: groupStep, Env: "SLURM_TIMELIMIT",
			Help: "time limit of the step", Set: request.Limit("time", func(sec int64) {
				if r.rq.LimitS = r.WholeMinutes(sec); sec >= model.Unlimited {
					r.rq.LimitS = 0
				}
			})},
		{Name: "multi-prog", Group: groupStep, Env: "SLURM_MULTI_PROG",
			Help: "the operand is a file with a command for each task", Set: getopt.Flag(&r.multi)},
	}
}

// needOptions set the step's share of the job's resources.
func (r *run) needOptions() []getopt.Option {
	n, b := &r.rq.Need, &r.rq.Bind
	R, perTask := getopt.Required, r.gres(model.GPUName, model.PerTask)
	return []getopt.Option{
		{Name: "ntasks", Short: 'n', Arg: R, Metavar: "n", Group: groupNeeds, Env: "SLURM_NTASKS SLURM_NPROCS",
			Help: "number of tasks", Set: request.Count(&n.Tasks)},
		{Name: "nodes", Short: 'N', Arg: R, Metavar: "n[-m]", Group: groupNeeds, Help: "number of nodes of the job",
			Env: "SLURM_JOB_NUM_NODES SLURM_NNODES",
			Set: request.Nodes(&n.MinNodes, &n.MaxNodes)},
		{Name: "ntasks-per-node", Aliases: []string{"tasks-per-node"}, Arg: R, Metavar: "n", Group: groupNeeds,
			Env:  "SLURM_NTASKS_PER_NODE",
			Help: "tasks on each node",
			Set:  request.Count(&n.TasksPerNode)},
		{Name: "ntasks-per-gpu", Arg: R, Metavar: "n", Group: groupNeeds, Env: "SLURM_NTASKS_PER_GPU",
			Help: "tasks for each GPU; each task sees only its own (--gpu-bind=single:n)", Set: func(v string) error {
				err := request.Count(&n.TasksPerGPU)(v)
				b.TasksPerGPU = n.TasksPerGPU
				return err
			}},
		{Name: "cpus-per-task", Short: 'c', Arg: R, Metavar: "n",
			Group: groupNeeds, Env: "SRUN_CPUS_PER_TASK SLURM_CPUS_PER_TASK",
			Help: "CPUs for each task; on the command line it implies --exact", Set: request.Count(&n.CPUsPerTask)},
		{Name: "cpus-per-gpu", Arg: R, Metavar: "n", Group: groupNeeds, Help: "CPUs for each GPU; implies --exact",
			Set: func(v string) error {
				n.Exact = true
				return request.Count(&n.CPUsPerGPU)(v)
			}},
		{Name: "exact", Group: groupNeeds, Env: "SLURM_EXACT",
			Help: "use only as many CPUs as the tasks need, not all CPUs of the nodes", Set: getopt.Flag(&n.Exact)},
		{Name: "exclusive", Arg: getopt.Optional, Metavar: "how", Group: groupNeeds, Env: "SLURM_EXCLUSIVE",
			Help: "same as --exact", Set: func(string) error { n.Exact = true; return nil }},
		{Name: "whole", Group: groupNeeds, Env: "SLURM_WHOLE",
			Help: "use all CPUs of the nodes, also with an option that implies --exact", Set: getopt.Flag(&r.whole)},
		{Name: "overlap", Group: groupNeeds, Env: "SLURM_OVERLAP",
			Help: "share CPUs, memory and GPUs with the job's other steps",
			Set:  getopt.Flag(&n.Overlap)},
		{Name: "external-launcher", Group: groupNeeds,
			Help: "the step starts another launcher's daemons (mpirun): as with --overlap and --whole, it has all of the " +
				"nodes' part of the job and takes nothing from other steps",
			Set: func(string) error { n.Overlap, r.whole = true, true; return nil }},
		{Name: "overcommit", Short: 'O', Group: groupNeeds, Env: "SLURM_OVERCOMMIT", Help: "allow more tasks than CPUs",
			Set: getopt.Flag(&n.Overcommit)},
		{Name: "resv-ports", Arg: getopt.Optional, Metavar: "n", Group: groupNeeds, Env: "SLURM_RESV_PORTS",
			Help: "hold this many ports of MpiParams on the step's nodes, in SLURM_STEP_RESV_PORTS (default: one more " +
				"than a node has tasks)", Set: r.setPorts},
		{Name: "gres", Arg: R, Metavar: "name[:type][:n],...", Group: groupNeeds, Env: "SLURM_STEP_GRES",
			Help: "generic resources on each node, or none (default: all of the job's)",
			Set:  r.gres("", model.PerNode)},
		{Name: "gpus", Short: 'G', Arg: R, Metavar: "[type:]n", Group: groupNeeds, Help: "GPUs for the whole step",
			Set: r.gres(model.GPUName, model.PerJob)},
		{Name: "gpus-per-node", Arg: R, Metavar: "[type:]n", Group: groupNeeds, Help: "GPUs on each node",
			Set: r.gres(model.GPUName, model.PerNode)},
		{Name: "gpus-per-task", Arg: R, Metavar: "[type:]n", Group: groupNeeds, Env: "SLURM_GPUS_PER_TASK",
			Help: "GPUs for each task; the task sees only these (--gpu-bind=per_task:n)", Set: func(v string) error {
				r.gpusPer = true
				return perTask(v)
			}},
		{Name: "tres-per-task", Arg: R, Metavar: "list", Group: groupNeeds, Env: "SLURM_TRES_PER_TASK",
			Help: "resources for each task: cpu=N and gres/NAME[:TYPE]=N, separated by commas",
			Set:  request.PerTask(&r.perTask)},
		{Name: "mem", Arg: R, Metavar: "size", Group: groupNeeds, Slot: "mem", Clash: request.MemClash,
			ClashEnv: request.MemClashEnv,
			Help:     "memory on each node, taken from the job's; by default steps share the job's memory",
			Set:      r.mem(&n.MemPerNode)},
		{Name: "mem-per-cpu", Arg: R, Metavar: "size", Group: groupNeeds, Slot: "mem", Clash: request.MemClash,
			ClashEnv: request.MemClashEnv, Help: "memory for each CPU",
			Set: r.mem(&n.MemPerCPU)},
		{Name: "mem-per-gpu", Arg: R, Metavar: "size", Group: groupNeeds, Slot: "mem", Clash: request.MemClash,
			ClashEnv: request.MemClashEnv, Help: "memory for each GPU",
			Set: r.mem(&n.MemPerGPU)},
		{Name: "nodelist", Short: 'w', Arg: R, Metavar: "nodes", Group: groupNeeds, Help: "nodes of the job to use",
			Set: request.Hosts(&n.Nodes)},
		{Name: "exclude", Short: 'x', Arg: R, Metavar: "nodes", Group: groupNeeds, Help: "nodes of the job not to use",
			Set: request.Hosts(&n.NotNodes)},
		{Name: "relative", Short: 'r', Arg: R, Metavar: "n", Group: groupNeeds,
			Help: "skip the first n nodes of the job",
			Set:  getopt.Number(&r.relative, 0, 1<<30)},
		{Name: "threads-per-core", Arg: R, Metavar: "n", Group: groupNeeds, Env: "SLURM_THREADS_PER_CORE",
			Help: "tasks use at most n threads of a core; on the command line it implies --exact",
			Set:  request.Count(&n.ThreadsCore)},
		{Name: "immediate", Short: 'I', Arg: getopt.Optional, Metavar: "seconds", Group: groupNeeds,
			Env:  "SLURM_IMMEDIATE",
			Help: "fail if there is no room for the step, or the job, within this many seconds (1)",
			Set:  r.setImmediate},
		{Name: "distribution", Short: 'm', Arg: R, Metavar: "how", Group: groupNeeds, Env: "SLURM_DISTRIBUTION",
			Help: "order of tasks over nodes: block, cyclic, plane=N, arbitrary (SLURM_HOSTFILE); then over sockets: " +
				":block, :cyclic, :fcyclic, and the same for their cores; ,pack fills one node after the other",
			Set: request.SetDistribution(n, b, r.Getenv("SLURM_DIST_PLANESIZE"))},
	}
}

// immediateOf gives how long a command waits: as its first component says that says it, as they begin together.
func immediateOf[T any](all []T, of func(T) int64) int64 {
	if i := slices.IndexFunc(all, func(x T) bool { return of(x) > 0 }); i >= 0 {
		return of(all[i])
	}
	return 0
}

func (r *run) setImmediate(v string) error {
	if v == "" {
		v = "1"
	}
	return getopt.Number(&r.immediate, 1, 1<<30)(v)
}

// bindOptions set the binding of tasks.
func (r *run) bindOptions() []getopt.Option {
	n, b := &r.rq.Need, &r.rq.Bind
	R := getopt.Required
	return []getopt.Option{
		{Name: "cpu-bind", Aliases: []string{"cpu_bind"}, Arg: R, Metavar: "how", Group: groupBind, Env: "SLURM_CPU_BIND",
			Help: "[verbose,] none, rank, cores, threads, sockets, ldoms, map_cpu:LIST or mask_cpu:LIST",
			Set:  request.SetCPUBind(b)},
		{Name: "gpu-bind", Arg: R, Metavar: "how", Group: groupBind, Slot: "gpu-bind", Env: "SLURM_GPU_BIND",
			Help: "which of the step's GPUs each task sees: closest, none, single:N, per_task:N, map_gpu:LIST, mask_gpu:LIST",
			Set:  request.SetGPUBind(b)},
		{Name: "tres-bind", Arg: R, Metavar: "how", Group: groupBind, Slot: "gpu-bind", Env: "SLURM_TRES_BIND",
			Help: "gres/gpu: followed by a value of --gpu-bind", Set: request.SetTRESBind(b)},
		{Name: "accel-bind", Arg: R, Metavar: "letters", Group: groupBind, Hidden: true, Env: "SLURM_ACCEL_BIND",
			Slot: "gpu-bind", Set: setAccelBind(b)},
		{Name: "mem-bind", Arg: R, Metavar: "how", Group: groupBind, Env: "SLURM_MEM_BIND",
			Help: "none, local, rank, map_mem:LIST, mask_mem:LIST, prefer", Set: request.SetMemBind(b)},
		{Name: "hint", Arg: R, Metavar: "how", Group: groupBind, Env: "SLURM_HINT",
			Rival: request.StepHintRival, YieldText: request.HintYields,
			Help: "compute_bound, memory_bound, multithread, nomultithread", Set: func(v string) error {
				h, err := request.ParseHint(v)
				switch h {
				case request.HintNoMultithread:
					b.OneThread = true
				case request.HintMultithread:
					b.OneThread, n.ThreadsCore = false, 0
				case request.HintCompute:
					b.CPU = proto.BindCores
				case request.HintMemory:
					b.CPU, b.Cores = proto.BindCores, proto.DistCyclic
				}
				return err
			}},
	}
}

// setAccelBind reads what was there before --gpu-bind: g is closest; m and n are of devices that gbatch doesn't know,
// v of a message.
func setAccelBind(b *proto.StepBind) func(string) error {
	return func(v string) error {
		if v == "" || strings.Trim(v, "gmnv") != "" {
			return &getopt.TextError{Text: "Invalid --accel-bind specification: '" + v + "'; use --gpu-bind"}
		}
		if strings.Contains(v, "g") {
			b.GPU = proto.BindClosest
		}
		return nil
	}
}

// fileOptions set input, output and environment.
func (r *run) fileOptions() []getopt.Option {
	R := getopt.Required
	return []getopt.Option{
		{Name: "input", Short: 'i', Arg: R, Metavar: "file", Group: groupFiles, Env: "SRUN_INPUT SLURM_STDINMODE",
			Help: "standard input of the tasks: a file (patterns with %t), a task's number, all, none",
			Set:  getopt.Text(&r.in)},
		{Name: "output", Short: 'o', Arg: R, Metavar: "file", Group: groupFiles, Env: "SRUN_OUTPUT SLURM_STDOUTMODE",
			Help: "standard output: a file (%j job, %s step, %t task, %N node, ...), a task's number, all, none",
			Set:  getopt.Text(&r.out)},
		{Name: "error", Short: 'e', Arg: R, Metavar: "file", Group: groupFiles, Env: "SRUN_ERROR SLURM_STDERRMODE",
			Help: "standard error; by default the file of the output, if that is a file", Set: getopt.Text(&r.err)},
		{Name: "open-mode", Arg: R, Metavar: "append|truncate", Group: groupFiles, Env: "SLURM_OPEN_MODE",
			Help: "append to an existing output file, or truncate it", Set: func(v string) error {
				if v == "" || !strings.HasPrefix("append", v) && !strings.HasPrefix("truncate", v) {
					return &getopt.TextError{Text: "Invalid --open-mode specification: '" + v + "'; write append or truncate"}
				}
				r.append = v[0] == 'a'
				return nil
			}},
		{Name: "label", Short: 'l', Group: groupFiles, Env: "SLURM_LABELIO",
			Help: "put the task's number before each line",
			Set:  getopt.Flag(&r.label)},
		{Name: "unbuffered", Short: 'u', Group: groupFiles, Env: "SLURM_UNBUFFEREDIO",
			Help: "accepted, without effect: output is never buffered", Set: func(string) error { return nil }},
		{Name: "pty", Group: groupFiles,
			Help: "run task 0 in a terminal like yours (grun --pty bash); other tasks read and write nothing",
			Set:  getopt.Flag(&r.pty)},
		{Name: "chdir", Aliases: []string{"workdir"}, Short: 'D', Arg: R, Metavar: "dir", Group: groupFiles,
			Env: "SLURM_WORKING_DIR SLURM_REMOTE_CWD", Help: "working directory of the tasks", Set: getopt.Text(&r.chdir)},
		{Name: "export", Arg: R, Metavar: "ALL|NONE|NAMES", Group: groupFiles, Env: "SRUN_EXPORT_ENV SLURM_EXPORT_ENV",
			Help: "variables for the tasks: ALL (default), NONE, or names and NAME=value; add ALL for all others",
			Set:  getopt.Text(&r.export.Export)},
		{Name: "propagate", Arg: getopt.Optional, Metavar: "limits", Group: groupFiles, Env: "SLURM_PROPAGATE",
			Help: "resource limits that the tasks inherit: ALL, NONE or names", Set: func(v string) error {
				r.limits, r.limitsOn = v, true
				_, err := request.ResourceLimits(v)
				return err
			}},
		{Name: "task-prolog", Arg: R, Metavar: "program", Group: groupFiles, Env: "SLURM_TASK_PROLOG",
			Help: "run this before each task; lines 'export NAME=value', 'unset NAME' and 'print TEXT' of its output apply",
			Set:  getopt.Text(&r.rq.Prolog)},
		{Name: "task-epilog", Arg: R, Metavar: "program", Group: groupFiles, Env: "SLURM_TASK_EPILOG",
			Help: "run this after each task", Set: getopt.Text(&r.rq.Epilog)},
	}
}

// commandOptions control grun itself.
func (r *run) commandOptions() []getopt.Option {
	R := getopt.Required
	return []getopt.Option{
		{Name: "prolog", Arg: R, Metavar: "program", Group: groupHow, Env: "SLURM_PROLOG",
			Help: "run this on grun's host before the step; if it fails, there is no step", Set: getopt.Text(&r.prolog)},
		{Name: "epilog", Arg: R, Metavar: "program", Group: groupHow, Env: "SLURM_EPILOG",
			Help: "like --prolog, after the step",
			Set:  getopt.Text(&r.epilog)},
		{Name: "kill-on-bad-exit", Short: 'K', Arg: getopt.Optional, Metavar: "0|1",
			Group: groupHow, Env: "SLURM_KILL_BAD_EXIT",
			Help: "end the step when a task fails",
			Set:  request.ZeroOne("kill-on-bad-exit", func(on bool) { r.killBad = on })},
		{Name: "oom-kill-step", Arg: getopt.Optional, Metavar: "0|1", Group: groupHow, Env: "SLURM_OOM_KILL_STEP",
			Help: "end the whole step when one of its processes is killed for lack of memory (default: the job's)",
			Set: request.ZeroOne("oom-kill-step", func(on bool) {
				if r.rq.OOMKill = -1; on {
					r.rq.OOMKill = 1
				}
			})},
		{Name: "no-kill", Short: 'k', Arg: getopt.Optional, Metavar: "off", Group: groupHow, Env: "SLURM_NO_KILL",
			Help: "go on without the tasks of nodes that fail",
			Set:  request.NoKill(&r.rq.NoKill)},
		{Name: "wait", Short: 'W', Arg: R, Metavar: "seconds", Group: groupHow, Env: "SLURM_WAIT",
			Help: "end the step this long after its first task has ended; 0: never", Set: getopt.Number(&r.waitS, 0,
				1<<30)},
		{Name: "quit-on-interrupt", Group: groupHow, Env: "SLURM_QUIT_ON_INTERRUPT",
			Help: "end the step at the first Ctrl-C",
			Set:  getopt.Flag(&r.interrupt)},
		{Name: "interactive", Group: groupHow,
			Help: "be the job's interactive step: one task on its first node, with all that the job has there, beside all " +
				"other steps (what galloc's InteractiveStepOptions use)", Set: getopt.Flag(&r.shell)},
		{Name: "disable-status", Short: 'X', Group: groupHow, Env: "SLURM_DISABLE_STATUS",
			Help: "pass the first Ctrl-C to the tasks instead of printing their states", Set: getopt.Flag(&r.passInt)},
		{Name: "preserve-env", Short: 'E', Group: groupHow, Env: "SLURM_PRESERVE_ENV",
			Help: "give the tasks the SLURM_JOB_NUM_NODES and SLURM_NTASKS that grun has", Set: getopt.Flag(&r.rq.KeepEnv)},
		{Name: "threads", Short: 'T', Arg: R, Metavar: "n", Group: groupHow, Env: "SLURM_THREADS",
			Help: "accepted, without effect: nodes pass a step on to each other", Set: request.Count(new(int32))},
		{Name: "quiet", Short: 'Q', Group: groupHow, Help: "print nothing about waiting and about tasks that end",
			Set: getopt.Flag(&r.quiet)},
		{Name: "verbose", Short: 'v', Group: groupHow, Env: "SLURM_DEBUG", Help: "print more",
			Set: getopt.Count(&r.verbose)},
		{Name: "mpi", Arg: R, Metavar: "type", Group: groupHow, Env: "SLURM_MPI_TYPE",
			Help: "how MPI programs find each other: pmix (Open MPI), pmi2 (MPICH and its kin; PMI-1 too), none, or list",
			Set:  r.setMPI},
		{Name: "x11", Arg: getopt.Optional, Metavar: "nodes", Group: groupHow,
			Help: "show the tasks' windows on your display: of those on all (as without a value), first or last node",
			Set:  r.setX11},
		{Name: "launcher", Arg: R, Metavar: "name", Group: groupHow,
			Help: "torch: give the tasks the variables of PyTorch's launcher (MASTER_ADDR, RANK, WORLD_SIZE...); or none",
			Set: func(v string) error {
				if r.rq.Torch = v == "torch"; !r.rq.Torch && v != "none" {
					return &getopt.TextError{Text: "Invalid --launcher specification: '" + v + "': write torch or none"}
				}
				return nil
			}},
		{Name: "async", Group: groupHow, Env: "SLURM_ASYNC",
			Help: "print 'Submitted step JOB.STEP' and end; the step runs on, or waits for its turn, with its output in the " +
				"command's file, or else in slurm-JOB.STEP.out", Set: getopt.Flag(&r.async)},
		{Name: "parsable", Group: groupHow, Help: "with --async: print only JOB.STEP", Set: getopt.Flag(&r.parsable)},
		{Name: "elastic", Group: groupHow,
			Help: "in the script of an elastic job: run the command on all its nodes; when they change it gets SIGTERM, and " +
				"begins again on the new ones once it has ended", Set: getopt.Flag(&r.elastic)},
		{Name: "bcast", Arg: getopt.Optional, Metavar: "file", Group: groupHow, Env: "SLURM_BCAST",
			Help: "send the program to the step's nodes and run the copies: to a file, or into a directory (dest/; default: " +
				"the working directory) as slurm_bcast_JOB.STEP_NODE", Set: r.setBcast},
		{Name: "compress", Arg: getopt.Optional, Metavar: "lz4|none", Group: groupHow, Env: "SLURM_COMPRESS",
			Help: "with --bcast: lz4 or none; accepted, without effect: the program goes as it is",
			Set:  setCompress(&r.compress)},
		{Name: "bcast-exclude", Arg: R, Metavar: "dir", Group: groupHow, Env: "SLURM_BCAST_EXCLUDE",
			Help: "accepted, without effect: no libraries are sent", Set: env.Ignored},
		{Name: "send-libs", Arg: getopt.Optional, Metavar: "how", Group: groupHow, Env: "SLURM_SEND_LIBS",
			Help: "with --bcast: no; libraries are not sent", Set: refuseLibs},
		{Name: "clusters", Short: 'M', Arg: R, Metavar: "name", Group: groupHow, Help: "this cluster's name, or all",
			Set: env.Clusters(&r.clusters)},
	}
}

// setPorts reads --resv-ports.
func (r *run) setPorts(v string) error {
	n := int64(0)
	if v != "" {
		if err := getopt.Number(&n, 0, 65535)(v); err != nil {
			return err
		}
	}
	r.rq.Ports = strconv.FormatInt(n, 10)
	return nil
}

// stepOf reads a step's number from the environment.
func stepOf(text string) (int32, bool) {
	n, err := strconv.ParseInt(text, 10, 32)
	return int32(n), err == nil && n >= 0
}
