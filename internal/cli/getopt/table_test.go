package getopt

import (
	"fmt"
	"strings"
)

// request is what the test table writes into.
type request struct {
	array, account, begin, chdir, constraint, dep, errFile, export, gres, input, jobName  string
	mailType, mailUser, mem, nodes, output, partition, qos, reservation, signal, time     string
	exclude, nodelist, wrap, clusters, comment, exclusive, nice, ntasksPerGPU, gpus, prio string
	gpusPerNode, openMode, userEnv, container                                             string
	ntasks, cpus, perNode, verbose                                                        int
	hold, parsable, test, wait, overcommit                                                bool
	requeue                                                                               string
	switches                                                                              []string
}

// sbatchTable has sbatch's names and letters, enough of them for its prefixes to be ambiguous in the
// same places.
func sbatchTable(r *request) []Option {
	o := []Option{
		{Name: "array", Short: 'a', Arg: Required, Metavar: "indexes", Group: "Parallel run options",
			Help: "job array index values", Env: "_ARRAY_INX", Set: Text(&r.array)},
		{Name: "account", Short: 'A', Arg: Required, Metavar: "name", Help: "charge job to specified account",
			Env: "_ACCOUNT", Set: Text(&r.account), Group: "Parallel run options"},
		{Name: "bb", Arg: Required, Help: "burst buffer specifications", Note: "there are no burst buffers"},
		{Name: "begin", Short: 'b', Arg: Required, Metavar: "time", Help: "defer job until HH:MM MM/DD/YY",
			Set: Text(&r.begin)},
		{Name: "chdir", Short: 'D', Arg: Required, Metavar: "directory", Help: "set working directory for batch script",
			Set: Text(&r.chdir)},
		{Name: "clusters", Short: 'M', Aliases: []string{"cluster"}, Arg: Required, Metavar: "names",
			Help: "clusters to submit to", Env: "_CLUSTERS SLURM_CLUSTERS", Set: Text(&r.clusters)},
		{Name: "comment", Arg: Required, Help: "arbitrary comment", Set: Text(&r.comment)},
		{Name: "constraint", Short: 'C', Arg: Required, Metavar: "list", Help: "features the nodes must have",
			Set: Text(&r.constraint)},
		{Name: "container", Arg: Required, Help: "OCI bundle", Set: Text(&r.container)},
		{Name: "cpus-per-task", Short: 'c', Arg: Required, Metavar: "ncpus", Help: "number of cpus required per task",
			Set: Number(&r.cpus, 1, 4096)},
		{Name: "dependency", Short: 'd', Arg: Required, Metavar: "type:jobid[:time]",
			Help: "defer job until condition on jobid is satisfied", Set: Text(&r.dep)},
		{Name: "error", Short: 'e', Arg: Required, Metavar: "err", Help: "file for batch script's standard error",
			Set: Text(&r.errFile)},
		{Name: "exclude", Short: 'x', Arg: Required, Metavar: "hosts...", Help: "exclude a specific list of hosts",
			Set: Text(&r.exclude)},
		{Name: "exclusive", Arg: Optional, Metavar: "user", Help: "allocate nodes in exclusive mode", Env: "_EXCLUSIVE",
			Set: func(v string) error {
				if v == "" {
					v = "exclusive"
				}
				r.exclusive = v
				return nil
			}},
		{Name: "export", Arg: Required, Metavar: "names", Help: "environment variables to export", Set: Text(&r.export)},
		{Name: "export-file", Arg: Required, Refused: "export the variables in the script itself"},
		{Name: "get-user-env", Arg: Optional, Help: "load environment from local cluster", Set: Text(&r.userEnv)},
		{Name: "gpus", Short: 'G', Arg: Required, Metavar: "n", Help: "count of GPUs required for the job",
			Set: Text(&r.gpus)},
		{Name: "gpus-per-node", Arg: Required, Metavar: "n", Help: "number of GPUs required per allocated node",
			Set: Text(&r.gpusPerNode)},
		{Name: "gres", Arg: Required, Metavar: "list", Help: "required generic resources", Set: Text(&r.gres)},
		{Name: "hold", Short: 'H', Help: "submit job in held state", Set: Flag(&r.hold)},
		{Name: "include", Arg: Required, Hidden: true, Refused: "--nodelist names the hosts to use"},
		{Name: "input", Short: 'i', Arg: Required, Metavar: "in", Help: "file for batch script's standard input",
			Set: Text(&r.input)},
		{Name: "job-name", Short: 'J', Arg: Required, Metavar: "jobname", Help: "name of job", Env: "_JOB_NAME",
			Set: Text(&r.jobName)},
		{Name: "mail-type", Arg: Required, Help: "notify on state change", Set: Text(&r.mailType)},
		{Name: "mail-user", Arg: Required, Help: "who to send email notification for job state changes",
			Set: Text(&r.mailUser)},
		{Name: "mem", Arg: Required, Slot: "mem", Metavar: "MB", Help: "minimum amount of real memory", Set: Text(&r.mem)},
		{Name: "mem-per-cpu", Arg: Required, Slot: "mem", Metavar: "MB", Help: "real memory per allocated cpu",
			Set: Text(&r.mem)},
		{Name: "nice", Arg: Optional, Help: "decrease scheduling priority by value", Set: Text(&r.nice)},
		{Name: "no-kill", Short: 'k', Arg: Optional, Help: "do not kill job on node failure", Set: nil},
		{Name: "no-requeue", Slot: "requeue", Help: "do not permit the job to be requeued", Env: "_NO_REQUEUE",
			Set: Const(&r.requeue, "no")},
		{Name: "nodefile", Short: 'F', Arg: Required, Refused: "--nodelist takes a file name with a / in it"},
		{Name: "nodelist", Short: 'w', Arg: Required, Metavar: "hosts...", Help: "request a specific list of hosts",
			Set: Text(&r.nodelist)},
		{Name: "nodes", Short: 'N', Arg: Required, Metavar: "N", Help: "number of nodes on which to run (N = min[-max])",
			Set: Text(&r.nodes)},
		{Name: "ntasks", Short: 'n', Arg: Required, Help: "number of tasks to run", Set: Number(&r.ntasks, 1, 65536)},
		{Name: "ntasks-per-gpu", Arg: Required, Help: "number of tasks to invoke for each GPU", Set: Text(&r.ntasksPerGPU)},
		{Name: "ntasks-per-node", Aliases: []string{"tasks-per-node"}, Arg: Required, Metavar: "n",
			Help: "number of tasks to invoke on each node", Set: Number(&r.perNode, 1, 65536)},
		{Name: "open-mode", Arg: Required, Help: "append or truncate", Set: choice(&r.openMode, "append", "truncate")},
		{Name: "output", Short: 'o', Arg: Required, Metavar: "out", Help: "file for batch script's standard output",
			Set: Text(&r.output)},
		{Name: "overcommit", Short: 'O', Help: "overcommit resources", Set: Flag(&r.overcommit)},
		{Name: "parsable", Help: "outputs only the jobid and cluster name (if present), separated by semicolon, " +
			"only on successful submission", Set: Flag(&r.parsable)},
		{Name: "partition", Short: 'p', Arg: Required, Help: "partition requested", Env: "_PARTITION",
			Set: Text(&r.partition)},
		{Name: "priority", Arg: Required, Help: "set the priority of the job", Set: Text(&r.prio)},
		{Name: "qos", Short: 'q', Arg: Required, Help: "quality of service", Set: Text(&r.qos)},
		{Name: "requeue", Slot: "requeue", Help: "permit the job to be requeued", Env: "_REQUEUE",
			Set: Const(&r.requeue, "yes")},
		{Name: "reservation", Arg: Required, Help: "allocate resources from named reservation", Set: Text(&r.reservation)},
		{Name: "signal", Arg: Required, Metavar: "[R][B:]num[@time]", Help: "send signal when time limit within time seconds",
			Set: Text(&r.signal)},
		{Name: "switches", Arg: Required, Metavar: "max-switches{@max-time-to-wait}",
			Help: "optimum switches and max time to wait for optimum", Set: List(&r.switches)},
		{Name: "test-only", Help: "validate and say when it would start", Set: Flag(&r.test)},
		{Name: "time", Short: 't', Arg: Required, Metavar: "minutes", Help: "time limit", Env: "_TIMELIMIT",
			Set: func(v string) error {
				if v == "garbage" || v == "" {
					return errTime
				}
				r.time = v
				return nil
			}},
		{Name: "time-min", Arg: Required, Refused: "a shorter --time gets the job started sooner by backfill"},
		{Name: "verbose", Short: 'v', Help: "verbose mode (multiple -v's increase verbosity)", Set: Count(&r.verbose)},
		{Name: "wait", Short: 'W', Help: "wait for completion of submitted job", Set: Flag(&r.wait)},
		{Name: "wrap", Arg: Required, ArgsOnly: true, Metavar: "command",
			Help: "wrap command string in a sh script and submit", Set: Text(&r.wrap)},
	}
	return append(o, HelpOptions('h')...)
}

var errTime = &TextError{Text: "Invalid --time specification"}

func sbatch(r *request) *Parser {
	return New(Config{Program: "sbatch", Options: sbatchTable(r), Order: StopAtOperand, EnvPrefix: "SBATCH",
		Operands: "[script [args...]]"})
}

// choice stores the value where it is one of choices, apart from case; the stored spelling is the listed one.
func choice(dst *string, choices ...string) func(string) error {
	return func(v string) error {
		for _, c := range choices {
			if strings.EqualFold(c, v) {
				*dst = c
				return nil
			}
		}
		return fmt.Errorf("%q is none of %s", v, strings.Join(choices, ", "))
	}
}
