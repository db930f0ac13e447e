package request

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// Submission is what gsubmit's options say. Command line, environment and #SBATCH lines write into it through one
// table.
type Submission struct {
	Spec     model.Spec
	wrap     string
	hasWrap  bool
	Export   string
	exportTo string // --export-file
	Parsable bool
	Wait     bool
	TestOnly bool
	Quiet    bool
	verbose  int
	Chdir    string
	openMode string
	limits   string // --propagate
	limitsOn bool

	More        model.Needs // becomes spec.More where it says anything
	mail        model.MailWish
	tasksPerGPU int32
	perTask     TresPerTask
	noKill      bool
	Clusters    []string
	Each        string // --each: a file with a line for each job
	userEnv     string // --get-user-env's value, 1 for none; "": not given
}

const later = "it comes with a later version; "

// Options gives gsubmit's table.
func (s *Submission) Options(now func() time.Time) []getopt.Option {
	sp := &s.Spec
	str := getopt.Text
	hosts := func(dst *[]string) func(string) error {
		return func(v string) error {
			names, err := hostlist.Expand(v)
			*dst = names
			return err
		}
	}
	count := func(dst *int32) func(string) error {
		return func(v string) error {
			n, err := walltime.ParseCount(v)
			if err != nil {
				return &getopt.NumberError{Value: v}
			}
			if n < 1 || n > 1<<30 {
				return &getopt.NumberError{Value: v, Why: "it must be at least 1"}
			}
			*dst = int32(n)
			return nil
		}
	}
	mem := func(dst *int64) func(string) error {
		return func(v string) (err error) { *dst, err = walltime.ParseMemMiB(v); return err }
	}
	gpus := func(per model.GresPer) func(string) error {
		return func(v string) error {
			reqs, err := ParseGres("gpu", v, per)
			sp.Gres = append(sp.Gres, reqs...)
			return err
		}
	}
	date := func(dst *model.Time) func(string) error {
		return func(v string) error {
			t, err := walltime.ParseDate(v, now())
			if err == nil {
				*dst = model.Time(t.UnixMilli())
			}
			return err
		}
	}
	const (
		gJob  = "The job"
		gRes  = "What it needs"
		gBind = "What its steps' tasks are bound to"
		gWhen = "When it runs"
		gIO   = "Input, output, environment"
		gHow  = "What gsubmit does"
	)
	R := getopt.Required
	return []getopt.Option{
		{Name: "job-name", Short: 'J', Arg: R, Metavar: "name", Group: gJob, Env: "_JOB_NAME",
			Help: "name of the job; the script's by default", Set: str(&sp.Name)},
		{Name: "account", Short: 'A', Arg: R, Metavar: "name", Group: gJob, Env: "_ACCOUNT", Help: "account to charge",
			Set: str(&sp.Account)},
		{Name: "partition", Short: 'p', Arg: R, Metavar: "names", Group: gJob, Env: "_PARTITION",
			Help: "partition; of several, the job uses the first with room",
			Set:  func(v string) error { sp.Partitions = env.SplitList(v); return nil }},
		{Name: "qos", Short: 'q', Arg: R, Metavar: "name", Group: gJob, Env: "_QOS", Help: "quality of service",
			Set: str(&sp.QOS)},
		{Name: "reservation", Arg: R, Metavar: "names", Group: gJob, Env: "_RESERVATION",
			Help: "run in this reservation; of several, in the first with room (see gcontrol show reservation)",
			Set:  str(&sp.Reservation)},
		{Name: "signal", Arg: R, Metavar: "[B:]sig[@sec]", Group: gWhen,
			Help: "send a signal to the steps (B: to the script) sec seconds before the time limit (60)",
			Set: func(v string) (err error) {
				sp.Warning, err = ParseWarning(v)
				return err
			}},
		{Name: "comment", Arg: R, Metavar: "text", Group: gJob, Help: "a comment that gqueue and gacct show",
			Set: str(&sp.Comment)},
		{Name: "array", Short: 'a', Arg: R, Metavar: "indexes", Group: gJob, Env: "_ARRAY_INX",
			Help: "submit an array: 0-15, 1,3,5 or 0-99%8 (at most 8 at once)", Set: func(v string) (err error) {
				if sp.Tasklist, sp.Throttle, err = model.ParseTaskSet(v, 1<<30); err != nil {
					return &getopt.TextError{
						Text: "Invalid job array specification: " + strings.TrimPrefix(err.Error(), model.ErrTaskSet.Error()+": ")}
				}
				sp.ArrayText = v
				return nil
			}},
		{Name: "requeue", Group: gJob, Slot: "requeue", Env: "_REQUEUE",
			Help: "requeue the job when its node fails",
			Set:  func(string) error { sp.Requeue, sp.NoRequeue = true, false; return nil }},
		{Name: "no-requeue", Group: gJob, Slot: "requeue", Env: "_NO_REQUEUE", Help: "never requeue the job",
			Set: func(string) error { sp.Requeue, sp.NoRequeue = false, true; return nil }},
		{Name: "nice", Arg: getopt.Optional, Metavar: "n", Group: gJob,
			Help: "lower the priority by n (100); operators may raise it with a negative n", Set: func(v string) error {
				if v == "" {
					v = "100"
				}
				return getopt.Number(&sp.Nice, -2147483645, 2147483645)(v)
			}},
		{Name: "priority", Arg: R, Metavar: "n", Group: gJob, Help: "set the priority (operators)",
			Set: func(v string) error {
				n, err := strconv.ParseUint(v, 10, 32)
				if err != nil || n > 1<<32-2 {
					return &getopt.NumberError{Value: v}
				}
				if n == 0 {
					sp.HoldReq = true
				}
				sp.PrioReq = uint32(n)
				return nil
			}},

		{Name: "nodes", Short: 'N', Arg: R, Metavar: "n[-m]", Group: gRes, Help: "number of nodes, or minimum and maximum",
			Set: func(v string) error {
				least, most, err := walltime.ParseCountRange(v)
				if err != nil || least < 1 || most > 1<<30 {
					return &getopt.TextError{Text: "Invalid node count specification: '" + v + "'; write N or LEAST-MOST"}
				}
				sp.MinNodes, sp.MaxNodes = int32(least), int32(most)
				return nil
			}},
		{Name: "ntasks", Short: 'n', Arg: R, Metavar: "n", Group: gRes, Help: "number of tasks", Set: count(&sp.Tasks)},
		{Name: "ntasks-per-node", Arg: R, Metavar: "n", Group: gRes, Help: "tasks on each node",
			Set: count(&sp.TasksPerNode)},
		{Name: "cpus-per-task", Short: 'c', Arg: R, Metavar: "n", Group: gRes, Help: "CPUs for each task",
			Set: count(&sp.CPUsPerTask)},
		{Name: "mincpus", Arg: R, Metavar: "n", Group: gRes, Help: "minimum number of CPUs on each node",
			Set: count(&sp.MinCPUs)},
		{Name: "mem", Arg: R, Metavar: "size", Group: gRes, Slot: "mem", Env: "_MEM_PER_NODE",
			Help: "memory on each node (MB, or with K, M, G, T); 0: all of it", Set: func(v string) error {
				if err := mem(&sp.MemPerNode)(v); err != nil {
					return err
				}
				if sp.MemPerCPU = 0; sp.MemPerNode == 0 {
					sp.MemPerNode = model.WholeMem
				}
				return s.noMemPerGPU()
			}},
		{Name: "mem-per-cpu", Arg: R, Metavar: "size", Group: gRes, Slot: "mem", Env: "_MEM_PER_CPU",
			Help: "memory for each CPU", Set: func(v string) error {
				sp.MemPerNode = 0
				if err := mem(&sp.MemPerCPU)(v); err != nil {
					return err
				}
				return s.noMemPerGPU()
			}},
		{Name: "tmp", Arg: R, Metavar: "size", Group: gRes, Help: "temporary disk space that a node must have",
			Set: mem(&sp.TmpMiB)},
		{Name: "gres", Arg: R, Metavar: "name[:type][:n],...", Group: gRes, Slot: "gres", Env: "_GRES",
			Help: "generic resources on each node: gpu:2, gpu:a100:4; shares of one GPU: shard:2, mps:50, gpu:0.5",
			Set: func(v string) error {
				reqs, err := ParseGres("", v, model.PerNode)
				sp.Gres = append(sp.Gres, reqs...)
				return err
			}},
		{Name: "gpus", Short: 'G', Arg: R, Metavar: "[type:]n", Group: gRes, Env: "_GPUS",
			Help: "GPUs for the whole job; 0.5: half of a shared GPU", Set: gpus(model.PerJob)},
		{Name: "gpus-per-node", Arg: R, Metavar: "[type:]n", Group: gRes, Env: "_GPUS_PER_NODE", Help: "GPUs on each node",
			Set: gpus(model.PerNode)},
		{Name: "gpus-per-socket", Arg: R, Metavar: "[type:]n", Group: gRes, Env: "_GPUS_PER_SOCKET",
			Help: "GPUs for each socket that the job uses on a node (--sockets-per-node)", Set: s.gpusPerSocket},
		{Name: "gpus-per-task", Arg: R, Metavar: "[type:]n", Group: gRes, Env: "_GPUS_PER_TASK", Help: "GPUs for each task",
			Set: gpus(model.PerTask)},
		{Name: "tres-per-task", Arg: R, Metavar: "list", Group: gRes, Env: "_TRES_PER_TASK",
			Help: "resources for each task: cpu=N and gres/NAME[:TYPE]=N, separated by commas", Set: s.perTask.Set},
		{Name: "gpu-mem", Arg: R, Metavar: "size", Group: gRes, Env: "_GPU_MEM",
			Help: "free memory that each GPU must have (MB, or with K, M, G, T)", Set: func(v string) error {
				n, err := walltime.ParseMemMiB(v)
				if err == nil {
					err = s.need(func(m *model.Needs) { m.GPUMemMiB = n })("")
				}
				return err
			}},
		{Name: "gpu-index", Arg: R, Metavar: "list", Group: gRes, Env: "_GPU_INDEX",
			Help: "use these GPUs of each node, numbered as in ginfo -G: 0,1 or 2-3; best with --nodelist",
			Set:  s.gpuIndex},
		{Name: "gpu-idle", Arg: R, Metavar: "on|off", Group: gRes, Env: "_GPU_IDLE",
			Help: "off: exempt the job from GpuIdlePolicy; its QOS must have Flags=GpuIdleOK", Set: s.gpuIdle},
		{Name: "constraint", Short: 'C', Arg: R, Metavar: "features", Group: gRes, Env: "_CONSTRAINT",
			Help: "features of the nodes: a&b, a|b, !a, (a|b)&c; [a|b]: the same one on all; a*2&b*4: 2 nodes with a, 4 with b",
			Set: func(v string) error {
				if _, err := model.ParseFeatures(v); err != nil {
					return &getopt.TextError{Text: "Invalid feature specification: " + err.Error()}
				}
				sp.Features = v
				return nil
			}},
		{Name: "prefer", Arg: R, Metavar: "features", Group: gRes, Env: "_PREFER",
			Help: "features that the job prefers, as in --constraint but without [ ] and *", Set: s.prefer},
		{Name: "nodelist", Short: 'w', Arg: R, Metavar: "nodes", Group: gRes, Help: "nodes that the job must have",
			Set: hosts(&sp.ReqNodes)},
		{Name: "nodefile", Short: 'F', Arg: R, Metavar: "file", Group: gRes, Help: "like --nodelist, but read from a file",
			Set: func(v string) error {
				names, err := readNodeFile(v)
				sp.ReqNodes = names
				return err
			}},
		{Name: "exclude", Short: 'x', Arg: R, Metavar: "nodes", Group: gRes, Help: "nodes that the job must not have",
			Set: hosts(&sp.ExcNodes)},
		{Name: "exclusive", Arg: getopt.Optional, Metavar: "how", Group: gRes, Env: "_EXCLUSIVE",
			Help: "whole nodes, shared with no other job; user: shared only with jobs of the same user", Set: s.exclusive},
		{Name: "contiguous", Group: gRes, Help: "nodes that are adjacent in the configuration",
			Set: s.need(func(m *model.Needs) { m.Contiguous = true })},
		{Name: "spread-job", Group: gRes, Env: "_SPREAD_JOB",
			Help: "spread the tasks evenly over as many nodes as possible, ignoring switches",
			Set:  s.need(func(m *model.Needs) { m.Spread = true })},
		{Name: "use-min-nodes", Group: gRes, Env: "_USE_MIN_NODES", Help: "use as few nodes of the --nodes range as possible",
			Set: s.need(func(m *model.Needs) { m.FewNodes = true })},
		{Name: "switches", Arg: R, Metavar: "n[@time]", Group: gRes, Env: "_REQ_SWITCH",
			Help: "nodes on at most n leaf switches; after this time (at most max_switch_wait) any nodes", Set: s.switches},
		{Name: "sockets-per-node", Arg: R, Metavar: "n", Group: gRes, Help: "sockets that a node must have",
			Set: s.needCount(func(m *model.Needs) *int32 { return &m.Sockets })},
		{Name: "cores-per-socket", Arg: R, Metavar: "n", Group: gRes, Help: "cores that each socket must have",
			Set: s.needCount(func(m *model.Needs) *int32 { return &m.CoresPerSocket })},
		{Name: "threads-per-core", Arg: R, Metavar: "n", Group: gRes, Env: "_THREADS_PER_CORE",
			Help: "threads that each core must have; tasks use at most as many",
			Set:  s.needCount(func(m *model.Needs) *int32 { return &m.ThreadsPerCore })},
		{Name: "extra-node-info", Short: 'B', Arg: R, Metavar: "s[:c[:t]]", Group: gRes,
			Help: "sockets, cores per socket and threads per core in one option; *: any number", Set: s.nodeInfo},
		{Name: "ntasks-per-socket", Arg: R, Metavar: "n", Group: gRes, Help: "at most n tasks on each socket",
			Set: s.needCount(func(m *model.Needs) *int32 { return &m.TasksPerSocket })},
		{Name: "ntasks-per-core", Arg: R, Metavar: "n", Group: gRes, Help: "at most n tasks on each core",
			Set: s.needCount(func(m *model.Needs) *int32 { return &m.TasksPerCore })},
		{Name: "ntasks-per-gpu", Arg: R, Metavar: "n", Group: gRes,
			Help: "tasks for each GPU of the job; with --ntasks it sets the number of GPUs", Set: count(&s.tasksPerGPU)},
		{Name: "cpus-per-gpu", Arg: R, Metavar: "n", Group: gRes, Env: "_CPUS_PER_GPU", Help: "CPUs for each GPU",
			Set: s.needCount(func(m *model.Needs) *int32 { return &m.CPUsPerGPU })},
		{Name: "mem-per-gpu", Arg: R, Metavar: "size", Group: gRes, Slot: "mem", Env: "_MEM_PER_GPU",
			Help: "memory for each GPU", Set: func(v string) error {
				n, err := walltime.ParseMemMiB(v)
				if err == nil {
					err = s.need(func(m *model.Needs) { m.MemPerGPU, sp.MemPerNode, sp.MemPerCPU = n, 0, 0 })("")
				}
				return err
			}},
		{Name: "acctg-freq", Arg: R, Metavar: "task=seconds", Group: gRes, Env: "_ACCTG_FREQ",
			Help: "seconds between samples of the job's use, as in task=10; 0: measure only at the end (default: " +
				"JobAcctGatherFrequency)", Set: s.sampling},
		{Name: "licenses", Short: 'L', Arg: R, Metavar: "name[:n],...", Group: gRes, Env: "_LICENSES",
			Help: "licenses: foo:2,bar asks for all of them, foo|bar for one of them", Set: s.licenses},
		{Name: "overcommit", Short: 'O', Group: gRes, Env: "_OVERCOMMIT",
			Help: "one CPU per node, whatever the number of tasks", Set: getopt.Flag(&sp.Overcommit)},

		{Name: "gpu-bind", Arg: R, Metavar: "how", Group: gBind, Slot: "gpu-bind", Env: "_GPU_BIND",
			Help: "which of a step's GPUs each task sees: closest, none, single:N, per_task:N, map_gpu:LIST, mask_gpu:LIST",
			Set:  s.bindWith(SetGPUBind, func(w *model.BindWish) *string { return &w.GPU })},
		{Name: "tres-bind", Arg: R, Metavar: "how", Group: gBind, Slot: "gpu-bind", Env: "_TRES_BIND",
			Help: "gres/gpu: followed by a value of --gpu-bind", Set: s.tresBind},
		{Name: "cpu-bind", Arg: R, Metavar: "how", Group: gBind, Env: "_CPU_BIND",
			Help: "which of a step's CPUs each task runs on: none, rank, cores, threads, sockets, ldoms, " +
				"map_cpu:LIST, mask_cpu:LIST", Set: s.bindWith(SetCPUBind, func(w *model.BindWish) *string { return &w.CPU })},
		{Name: "mem-bind", Arg: R, Metavar: "how", Group: gBind, Env: "_MEM_BIND",
			Help: "where each task's memory is: [prefer,] none, local, rank, map_mem:LIST or mask_mem:LIST",
			Set:  s.bindWith(SetMemBind, func(w *model.BindWish) *string { return &w.Mem })},
		{Name: "distribution", Short: 'm', Arg: R, Metavar: "how", Group: gBind, Env: "_DISTRIBUTION",
			Help: "order of tasks over nodes: block, cyclic, plane=N, arbitrary (SLURM_HOSTFILE); then over sockets: :block, " +
				":cyclic, :fcyclic", Set: s.distribution},
		{Name: "hint", Arg: R, Metavar: "how", Group: gBind, Env: "_HINT SLURM_HINT",
			Help: "nomultithread, compute_bound: one thread of each core; memory_bound: a task on each socket too; " +
				"multithread: all threads", Set: s.hint},

		{Name: "time", Short: 't', Arg: R, Metavar: "limit", Group: gWhen, Env: "_TIMELIMIT",
			Help: "time limit: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S or UNLIMITED", Set: func(v string) error {
				sec, unlimited, err := walltime.ParseLimit(v)
				if err != nil {
					return &getopt.TextError{Text: "Invalid --time specification: " + err.Error()}
				}
				if sp.LimitS = sec; unlimited {
					sp.LimitS = model.Unlimited
				}
				return nil
			}},
		{Name: "time-min", Arg: R, Metavar: "limit", Group: gWhen,
			Help: "lowest time limit that the job accepts if it can then start sooner", Set: func(v string) error {
				sec, unlimited, err := walltime.ParseLimit(v)
				switch {
				case err != nil:
					return &getopt.TextError{Text: "Invalid --time-min specification: " + err.Error()}
				case unlimited || sec <= 0:
					return &getopt.TextError{
						Text: "Invalid --time-min specification: '" + v + "'; write the least time that the job needs, such as 30:00"}
				}
				s.More.TimeMinS = sec
				return nil
			}},
		{Name: "deadline", Arg: R, Metavar: "time", Group: gWhen,
			Help: "end the job (DEADLINE) when it can no longer finish by this time: 18:00, 2026-12-24T18:00, now+2days",
			Set:  date(&sp.Deadline)},
		{Name: "begin", Short: 'b', Arg: R, Metavar: "time", Group: gWhen,
			Help: "earliest start: 16:00, now+1hour, 2026-12-24T18:00", Set: date(&sp.Begin)},
		{Name: "dependency", Short: 'd', Arg: R, Metavar: "conditions", Group: gWhen,
			Help: "start after other jobs: afterok:ID, afterany:ID, afternotok:ID, after:ID[+minutes], aftercorr:ID, " +
				"singleton; joined with , (all) or ? (any)", Set: func(v string) (err error) {
				if sp.Deps, sp.DepAny, err = model.ParseDeps(v); err != nil {
					return &getopt.TextError{Text: "Job dependency problem: " + err.Error()}
				}
				sp.DepText = v
				return nil
			}},
		{Name: "kill-on-invalid-dep", Arg: R, Metavar: "yes|no", Group: gWhen,
			Help: "cancel the job when its dependencies can no longer be met", Set: func(v string) error {
				yes, err := env.YesNo(v)
				sp.KillOnDep = yes
				return err
			}},
		{Name: "hold", Short: 'H', Group: gWhen, Help: "hold the job; gcontrol release releases it",
			Set: getopt.Flag(&sp.HoldReq)},

		{Name: "output", Short: 'o', Arg: R, Metavar: "file", Group: gIO, Env: "_OUTPUT",
			Help: "standard output; patterns: %j (job), %A_%a (array), %x (name), %u (user), %N (node)", Set: str(&sp.StdOut)},
		{Name: "error", Short: 'e', Arg: R, Metavar: "file", Group: gIO, Env: "_ERROR",
			Help: "standard error; by default the same file as the output", Set: str(&sp.StdErr)},
		{Name: "input", Short: 'i', Arg: R, Metavar: "file", Group: gIO, Env: "_INPUT",
			Help: "standard input; /dev/null by default", Set: str(&sp.StdIn)},
		{Name: "open-mode", Arg: R, Metavar: "append|truncate", Group: gIO, Env: "_OPEN_MODE",
			Help: "append to an existing output file, or truncate it", Set: func(v string) error {
				switch {
				case v != "" && strings.HasPrefix("append", v):
					s.openMode = "a"
				case v != "" && strings.HasPrefix("truncate", v):
					s.openMode = "t"
				default:
					return fmt.Errorf("'%s'; write append or truncate", v)
				}
				return nil
			}},
		{Name: "chdir", Aliases: []string{"workdir"}, Short: 'D', Arg: R, Metavar: "dir", Group: gIO, Env: "_CHDIR",
			Help: "working directory of the job", Set: str(&s.Chdir)},
		{Name: "export", Arg: R, Metavar: "ALL|NONE|NAMES", Group: gIO, Env: "_EXPORT",
			Help: "variables for the job: ALL (default), NONE, or names and NAME=value; add ALL for all others",
			Set:  str(&s.Export)},
		{Name: "export-file", Arg: R, Metavar: "file", Group: gIO, Env: "_EXPORT_FILE",
			Help: "read variables for the job from a file of NAME=value, each ended by a NUL", Set: str(&s.exportTo)},
		{Name: "propagate", Arg: getopt.Optional, Metavar: "limits", Group: gIO,
			Help: "resource limits that the job inherits: ALL, NONE or names (CORE, NOFILE, ...)", Set: func(v string) error {
				s.limits, s.limitsOn = v, true
				_, err := ResourceLimits(v)
				return err
			}},

		{Name: "wrap", Arg: R, Metavar: "command", Group: gHow, Help: "submit a command without a script", ArgsOnly: true,
			Set: func(v string) error { s.wrap, s.hasWrap = v, true; return nil }},
		{Name: "each", Arg: R, Metavar: "file|-", Group: gHow, Help: "a job for each line of the file (-: standard input): " +
			"its words are the script's arguments, with --wrap $1, $2, ...", ArgsOnly: true, Set: str(&s.Each)},
		{Name: "no-preempt", Group: gWhen,
			Help: "never preempt the job; its QOS must have Flags=NoPreempt",
			Set:  getopt.Flag(&s.More.NoPreempt)},
		{Name: "oversubscribe", Aliases: []string{"share"}, Short: 's', Group: gRes, Env: "_OVERSUBSCRIBE",
			Help: "let other jobs use the same CPUs, if the partition has OverSubscribe=YES",
			Set:  func(string) error { s.More.Share, s.Spec.Exclusive = true, false; return nil }},
		{Name: "parsable", Group: gHow, Help: "print only the job's id", Set: getopt.Flag(&s.Parsable)},
		{Name: "wait", Short: 'W', Group: gHow, Env: "_WAIT", Help: "return when the job has ended, with its exit code",
			Set: getopt.Flag(&s.Wait)},
		{Name: "test-only", Group: gHow, Help: "submit nothing; print whether, where and when the job could run",
			Set: getopt.Flag(&s.TestOnly)},
		{Name: "quiet", Short: 'Q', Group: gHow, Help: "print no notes", Set: getopt.Flag(&s.Quiet)},
		{Name: "verbose", Short: 'v', Group: gHow, Help: "print the options as understood", Set: getopt.Count(&s.verbose)},
		{Name: "ignore-pbs", Hidden: true, Note: "#PBS lines are never read", Set: getopt.Count(new(int))},

		{Name: "mail-type", Arg: R, Metavar: "types", Group: gHow, Env: "_MAIL_TYPE",
			Help: "send mail at BEGIN, END, FAIL, REQUEUE, ALL, TIME_LIMIT, TIME_LIMIT_50 (80, 90), INVALID_DEPEND, " +
				"STAGE_OUT, NONE; one mail for an array, with ARRAY_TASKS one for each task", Set: func(v string) error {
				types, err := model.ParseMailTypes(v)
				if err != nil {
					return &getopt.TextError{Text: "Invalid --mail-type specification: " + err.Error()}
				}
				if s.mail.Types |= types; types == 0 {
					s.mail.Types = 0 // NONE
				}
				return nil
			}},
		{Name: "mail-user", Arg: R, Metavar: "addresses", Group: gHow, Env: "_MAIL_USER",
			Help: "mail addresses, separated by commas (default: you)", Set: func(v string) error {
				v = strings.Join(env.SplitList(v), ",")
				if err := model.CheckMailUser(v); err != nil {
					return &getopt.TextError{Text: "Invalid --mail-user specification: " + err.Error()}
				}
				s.mail.User = v
				return nil
			}},
		{Name: "gpu-freq", Arg: R, Refused: "set clocks in the script with nvidia-smi, where you may"},
		{Name: "cpu-freq", Arg: R, Refused: "leave the clock to the node"},
		{Name: "gres-flags", Arg: R, Refused: later + "leave it out"},
		{Name: "get-user-env", Arg: getopt.Optional, Metavar: "seconds[L|S]", Group: gIO, Env: "_GET_USER_ENV",
			Help: "add the variables of your login shell on the node, which may take so many seconds (8); S: a plain shell",
			Set:  s.userEnvironment},
		{Name: "uid", Arg: R, Env: "", Metavar: "user", Group: gHow, Help: "only you; for another user use su or sudo",
			Set: env.Own("--uid", "submit as that user, with su or sudo", unix.Getuid, env.UIDOf)},
		{Name: "gid", Arg: R, Metavar: "group", Group: gHow, Help: "only your group; for another group, use newgrp or sg",
			Set: env.Own("--gid", "submit with that group, with newgrp or sg", unix.Getgid, env.GIDOf)},
		{Name: "no-kill", Short: 'k', Arg: getopt.Optional, Metavar: "off", Group: gWhen, Env: "_NO_KILL",
			Help: "accepted for jobs of one node, without effect; when a node fails, a job of several nodes ends or is " +
				"requeued (--requeue)", Set: func(v string) error {
				s.noKill = !strings.EqualFold(v, "off")
				return nil
			}},
		{Name: "wckey", Arg: R, Note: "usage is not kept by wckeys", Set: env.Ignored},
		{Name: "container", Arg: R, Refused: "start the container in the script"},
		{Name: "container-image", Arg: R, Refused: "start the container in the script"},
		{Name: "container-mounts", Arg: R, Refused: "start the container in the script"},
		{Name: "profile", Arg: R, Metavar: "none", Group: gRes, Env: "_PROFILE",
			Help: "only none; gstat and gacct show what a job uses", Set: func(v string) error {
				if !strings.EqualFold(v, "none") {
					return &getopt.TextError{Text: "--profile=" + v + " is not supported by gbatch: gstat shows what a running job " +
						"uses, gacct and gseff what it used (--acctg-freq says how often it is sampled)"}
				}
				return nil
			}},
		{Name: "power", Arg: R, Refused: "leave it out"},
		{Name: "reboot", Refused: "ask an operator to reboot the node"},
		{Name: "resv-ports", Arg: getopt.Optional, Refused: "let the program pick a free port"},
		{Name: "wait-all-nodes", Arg: R, Metavar: "0|1", Group: gWhen, Env: "_WAIT_ALL_NODES",
			Help: "accepted, without effect: a job starts when all its nodes are up", Set: func(v string) error {
				if v != "0" && v != "1" {
					return fmt.Errorf("'%s'; write 0 or 1", v)
				}
				return nil
			}},
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: R, Metavar: "name", Group: gHow,
			Env: "_CLUSTERS SLURM_CLUSTERS", Help: "this cluster's name, or all", Set: getopt.List(&s.Clusters)},
		{Name: "bb", Arg: R, Note: "there is no burst buffer", Set: env.Ignored},
		{Name: "bbf", Arg: R, Note: "there is no burst buffer", Set: env.Ignored},
		{Name: "mcs-label", Arg: R, Note: "there are no MCS labels", Set: env.Ignored},
		{Name: "network", Arg: R, Note: "there is no switch plugin", Set: env.Ignored},
		{Name: "core-spec", Short: 'S', Arg: R, Note: "cores are not set aside by jobs", Set: env.Ignored},
		{Name: "thread-spec", Arg: R, Note: "threads are not set aside by jobs", Set: env.Ignored},
		{Name: "cluster-constraint", Arg: R, Note: "there is one cluster", Set: env.Ignored},
		{Name: "segment", Arg: R, Note: "there is no block topology", Set: env.Ignored},
		{Name: "stepmgr", Note: "steps need no manager of their own", Set: env.Ignored},
		{Name: "delay-boot", Arg: R, Note: "nodes are not booted for jobs", Set: env.Ignored},
		{Name: "licences", Hidden: true, Arg: R, Refused: "use --licenses"},
	}
}

// maxGresWords bounds the words of one --gres value.
const maxGresWords = 64

// ParseGres reads name[:type][:count],... or, with a name given, [type:]count,... as --gpus has it.
func ParseGres(name, v string, per model.GresPer) ([]model.GresReq, error) {
	bad := func(word string) error {
		if name != "" {
			return &getopt.TextError{Text: "Invalid generic resource (gres) specification: '" + word +
				"'; write a number or TYPE:NUMBER, such as 2 or a100:2"}
		}
		return &getopt.TextError{Text: "Invalid generic resource (gres) specification: '" + word +
			"'; write NAME:NUMBER or NAME:TYPE:NUMBER, such as gpu:2 or gpu:a100:2"}
	}
	if v == "none" || v == "NONE" {
		return nil, nil
	}
	var out []model.GresReq
	for _, word := range env.SplitList(v) {
		if len(out) == maxGresWords {
			return nil, bad(word)
		}
		parts := strings.Split(strings.TrimPrefix(word, "gres/"), ":")
		if name != "" && parts[0] == name && len(parts) > 1 {
			parts = parts[1:] // --gpus=gpu:2
		}
		r := model.GresReq{Name: name, Count: 1, Per: per}
		if name == "" {
			r.Name, parts = parts[0], parts[1:]
		}
		if n := len(parts); n > 0 {
			if part, is, err := parsePart(parts[n-1]); is && r.Name == model.GPUName {
				if err != nil {
					return nil, err
				}
				r.Name, r.Milli, parts = "shard", part, parts[:n-1]
			} else if c, err := parseUnits(parts[n-1]); err == nil {
				r.Count, parts = c, parts[:n-1]
			} else if from, to, is := strings.Cut(parts[n-1], "-"); is && allDigits(from) && allDigits(to) {
				return nil, &getopt.TextError{Text: fmt.Sprintf("Invalid generic resource (gres) specification: '%s'; a range "+
					"(%s) is not possible, one number is: ask for the least that does, %s; a range of nodes is, as in -N%s "+
					"with --gpus-per-node",
					word, parts[n-1], from, parts[n-1])}
			} else if n > 1 {
				return nil, bad(word)
			}
		}
		switch len(parts) {
		case 0:
		case 1:
			r.Type = parts[0]
		default:
			return nil, bad(word)
		}
		if r.Name == "" || strings.ContainsAny(r.Name+r.Type, "=() ") || len(word) > 0 && word[len(word)-1] == ':' {
			return nil, bad(word)
		}
		if r.Count > 0 {
			out = append(out, r)
		}
	}
	return out, nil
}

func allDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// parseUnits reads a count of a resource, with K, M or G behind it (powers of 1024).
func parseUnits(t string) (int32, error) {
	factor := int64(1)
	if n := len(t); n > 1 && t[n-1]|0x20 == 'g' {
		t, factor = t[:n-1], 1<<30
	}
	n, err := walltime.ParseCount(t)
	if err != nil {
		return 0, err
	}
	if n > math.MaxInt32/factor {
		return 0, fmt.Errorf("out of range")
	}
	return int32(n * factor), nil
}

// NotForAllocations are options of gsubmit that make no sense without a script.
var NotForAllocations = []string{"array", "requeue", "no-requeue", "output", "error", "input", "open-mode", "export",
	"export-file", "wrap", "each", "parsable", "wait",
	"test-only", "ignore-pbs", "propagate", "get-user-env", "profile"}
