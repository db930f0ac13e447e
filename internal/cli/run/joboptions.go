package run

import (
	"slices"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/request"
)

// joboptions.go has the options that describe a job. Outside of a job grun hands them to the job that it asks for
// (outside.go); in one, they have no effect on a step, and grun says so.

// jobOption is the row of an option that only a job has.
type jobOption struct {
	name  string
	short rune
	arg   getopt.Arg
	note  string // in a job
}

// jobVariables are those of options for which gsubmit has no variable, or one of another name.
var jobVariables = map[string]string{"dependency": "SLURM_DEPENDENCY", "ntasks-per-core": "SLURM_NTASKS_PER_CORE",
	"ntasks-per-socket": "SLURM_NTASKS_PER_SOCKET", "segment": "SRUN_SEGMENT_SIZE"}

const (
	same  = "a step runs where its job does"
	atOne = "a step begins at once"
)

var jobOnly = []jobOption{
	{"partition", 'p', getopt.Required, same},
	{"account", 'A', getopt.Required, same},
	{"qos", 'q', getopt.Required, same},
	{"comment", 0, getopt.Required, "comments are of jobs"},
	{"oversubscribe", 's', getopt.None, "--overlap shares with other steps"},
	{"constraint", 'C', getopt.Required, same},
	{"reservation", 0, getopt.Required, same},
	{"nice", 0, getopt.Optional, same},
	{"priority", 0, getopt.Required, same},
	{"profile", 0, getopt.Required, "gstat and gacct show what a step uses"},
	{"licenses", 'L', getopt.Required, same},
	{"time-min", 0, getopt.Required, same},
	{"deadline", 0, getopt.Required, same},
	{"begin", 'b', getopt.Required, atOne},
	{"dependency", 'd', getopt.Required, atOne + "; steps follow each other in the script"},
	{"hold", 'H', getopt.None, atOne},
	{"kill-on-invalid-dep", 0, getopt.Required, atOne},
	{"test-only", 0, getopt.None, ""}, // there is no step then
	{"mail-type", 0, getopt.Required, "mail is sent about jobs"},
	{"mail-user", 0, getopt.Required, "mail is sent about jobs"},
	{"mincpus", 0, getopt.Required, same},
	{"tmp", 0, getopt.Required, same},
	{"gpu-mem", 0, getopt.Required, same},
	{"gpu-idle", 0, getopt.Required, same},
	{"gpus-per-socket", 0, getopt.Required, "a step asks for --gpus or --gpus-per-node"},
	{"gres-flags", 0, getopt.Required, same},
	{"prefer", 0, getopt.Required, same},
	{"switches", 0, getopt.Required, same},
	{"contiguous", 0, getopt.None, same},
	{"reboot", 0, getopt.None, same},
	{"spread-job", 0, getopt.None, same},
	{"use-min-nodes", 0, getopt.None, same},
	{"sockets-per-node", 0, getopt.Required, same},
	{"cores-per-socket", 0, getopt.Required, same},
	{"extra-node-info", 'B', getopt.Required, same},
	{"ntasks-per-core", 0, getopt.Required, "a step's tasks are bound by --cpu-bind and --threads-per-core"},
	{"ntasks-per-socket", 0, getopt.Required, "a step's tasks are bound by --cpu-bind and --distribution"},
	{"no-preempt", 0, getopt.None, same},
	{"wait-all-nodes", 0, getopt.Required, "a job begins when all its nodes are up"},
	{"uid", 0, getopt.Required, same},
	{"gid", 0, getopt.Required, same},
	{"wckey", 0, getopt.Required, same},
	{"bb", 0, getopt.Required, "there is no burst buffer"},
	{"bbf", 0, getopt.Required, "there is no burst buffer"},
	{"mcs-label", 0, getopt.Required, request.NoMCSLabels},
	{"network", 0, getopt.Required, "there is no switch plugin"},
	{"core-spec", 'S', getopt.Required, "cores are not set aside by jobs"},
	{"thread-spec", 0, getopt.Required, "threads are not set aside by jobs"},
	{"cluster-constraint", 0, getopt.Required, "there is one cluster"},
	{"segment", 0, getopt.Required, same},
	{"consolidate-segments", 0, getopt.None, same},
	{"spread-segments", 0, getopt.None, same},
	{"stepmgr", 0, getopt.None, "steps need no manager of their own"},
	{"delay-boot", 0, getopt.Required, "nodes are not booted for jobs"},
	{"power", 0, getopt.Required, "power is not managed by jobs"},
}

// jobOptions are the options that grun hands to its job. The help has those that gsubmit's has, in the same words.
func (r *run) jobOptions() []getopt.Option {
	table := (&request.Submission{}).Options(r.ReadDate)
	var out []getopt.Option
	for _, o := range jobOnly {
		row := getopt.Option{Name: o.name, Short: o.short, Arg: o.arg, Hidden: true, Note: o.note,
			Env: jobVariables[o.name], Set: env.Ignored}
		i := slices.IndexFunc(table, func(of getopt.Option) bool { return of.Name == o.name })
		if i >= 0 && table[i].Help != "" && !table[i].Hidden {
			row.Hidden, row.NoteAside = false, true
			row.Metavar, row.Help, row.Group = table[i].Metavar, table[i].Help, groupJob
		}
		out = append(out, row)
	}
	sampling := &request.Submission{}
	return append(out,
		getopt.Option{Name: "acctg-freq", Arg: getopt.Required, Hidden: true, Env: "SLURM_ACCTG_FREQ",
			Note: "steps are measured like their jobs", Set: sampling.Sampling},
		getopt.Option{Name: "nodefile", Short: 'F', Arg: getopt.Required, Metavar: "file", Group: groupNeeds,
			Help: "like --nodelist, but read from a file", Set: request.FileSet(&r.rq.Need.Nodes)},
		getopt.Option{Name: "no-allocate", Short: 'Z', Hidden: true, Note: "the step is part of this job",
			Set: getopt.Flag(&r.noAllocate)},
		getopt.Option{Name: "cpu-freq", Arg: getopt.Required, Hidden: true, Env: "SLURM_CPU_FREQ_REQ",
			Note: request.NoCPUFreq, Set: request.CheckCPUFreq},
		getopt.Option{Name: "gpu-freq", Arg: getopt.Required, Hidden: true, Env: "SLURM_GPU_FREQ",
			Note: request.NoGPUFreq, Set: request.CheckGPUFreq})
}

// foreignOptions are options that have no effect, and refused ones.
func (r *run) foreignOptions() []getopt.Option {
	R := getopt.Required
	return []getopt.Option{
		{Name: "gpu-index", Arg: R, Refused: "the job has its GPUs; choose among them with --gpu-bind=map_gpu:LIST"},
		{Name: "slurmd-debug", Arg: R, Hidden: true, Note: "gnoded's log has what there is to say", Set: env.Ignored},
		{Name: "msg-timeout", Arg: R, Hidden: true, Note: "grun waits as long as its node's daemon lives",
			Set: env.Ignored},
		{Name: "signal", Arg: R, Hidden: true, Note: "a step is warned as its job is: gsubmit --signal",
			Set: func(v string) error {
				_, err := request.ParseWarning(v)
				return err
			}},
		{Name: "treewidth", Arg: R, Hidden: true, Note: "the step's first node tells the others itself",
			Set: env.Ignored},
		{Name: "wait-for-children", Refused: "let the command wait for what it starts: wait, in a shell"},
		{Name: "het-group", Aliases: []string{"pack-group"}, Arg: R, Metavar: "list", Group: groupStep,
			Help: "the components of the heterogeneous job in which the command runs: 1, 0,2 or 0-2 (default 0; of commands " +
				"separated by ' : ' the first is for component 0, the next for 1)", Set: env.Ignored},
	}
}
