package request

import (
	"slices"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// bind.go checks the layout and binding of tasks with grun's own parsers. The job's environment passes them on to grun
// (noded's describeBinding).

// bindOptions are the options about the binding of tasks.
func (s *Submission) bindOptions() []getopt.Option {
	R := getopt.Required
	return []getopt.Option{
		{Name: "gpu-bind", Arg: R, Metavar: "how", Group: groupBind, Slot: "gpu-bind", Env: "_GPU_BIND",
			Help: "which of a step's GPUs each task sees: closest, none, single:N, per_task:N, map_gpu:LIST, mask_gpu:LIST",
			Set:  s.bindWith(SetGPUBind, func(w *model.BindWish) *string { return &w.GPU })},
		{Name: "tres-bind", Arg: R, Metavar: "how", Group: groupBind, Slot: "gpu-bind", Env: "_TRES_BIND",
			Help: "gres/gpu: followed by a value of --gpu-bind", Set: s.tresBind},
		{Name: "cpu-bind", Arg: R, Metavar: "how", Group: groupBind, Env: "_CPU_BIND",
			Help: "which of a step's CPUs each task runs on: none, rank, cores, threads, sockets, ldoms, " +
				"map_cpu:LIST, mask_cpu:LIST",
			Set: s.bindWith(SetCPUBind, func(w *model.BindWish) *string { return &w.CPU })},
		{Name: "mem-bind", Arg: R, Metavar: "how", Group: groupBind, Env: "_MEM_BIND",
			Help: "where each task's memory is: [prefer,] none, local, rank, map_mem:LIST or mask_mem:LIST",
			Set:  s.bindWith(SetMemBind, func(w *model.BindWish) *string { return &w.Mem })},
		{Name: "distribution", Short: 'm', Arg: R, Metavar: "how", Group: groupBind, Env: "_DISTRIBUTION",
			Help: "order of tasks over nodes: block, cyclic, plane=N, arbitrary (SLURM_HOSTFILE); then over sockets: " +
				":block, :cyclic, :fcyclic", Set: s.distribution},
		{Name: "hint", Arg: R, Metavar: "how", Group: groupBind, Env: "_HINT SLURM_HINT",
			Help: "nomultithread, compute_bound: one thread of each core; memory_bound: a task on each socket too; " +
				"multithread: all threads", Set: s.hint, Rival: hintRival, YieldText: HintYields},
	}
}

// HintYields is said when --hint is left out.
const HintYields = "--hint is left out: --ntasks-per-core, --threads-per-core, -B and --cpu-bind (except verbose and " +
	"quiet) are mutually exclusive with it"

// hintRival reports whether an option of a job says what --hint is about.
func hintRival(name, _ string) bool {
	return name == "ntasks-per-core" || name == "threads-per-core" || name == "extra-node-info"
}

// StepHintRival is the same for grun, where the binding counts too.
func StepHintRival(name, value string) bool {
	return hintRival(name, value) ||
		name == "cpu-bind" && !slices.Contains([]string{"v", "verbose", "q", "quiet"}, strings.ToLower(value))
}

// bindWith gives the setter of an option. parse checks the value; the job keeps the text as written.
func (s *Submission) bindWith(parse func(*proto.StepBind) func(string) error,
	at func(*model.BindWish) *string) func(string) error {
	return func(v string) error {
		if err := parse(new(proto.StepBind))(v); err != nil {
			return err
		}
		*at(s.Binding()) = v
		return nil
	}
}

func (s *Submission) tresBind(v string) error {
	if err := SetTRESBind(new(proto.StepBind))(v); err != nil {
		return err
	}
	s.Binding().GPU = v[len(jobtext.TRESGPU):]
	return nil
}

func (s *Submission) distribution(v string) error {
	if err := SetDistribution(new(proto.StepNeed), new(proto.StepBind), "")(v); err != nil {
		return err
	}
	s.Binding().Dist = strings.ToLower(v)
	return nil
}

// hint reads how tasks use cores. Some values also change which nodes and CPUs the job needs.
func (s *Submission) hint(v string) error {
	h, err := ParseHint(v)
	if err != nil {
		return err
	}
	if h != HintMultithread {
		s.More.ThreadsPerCore = 1
	}
	if h == HintMemory {
		s.More.TasksPerSocket = 1
	}
	s.Binding().Hint = string(h)
	return nil
}

// hint is a value of --hint.
type hint string

const (
	HintCompute       hint = "compute_bound"
	HintMemory        hint = "memory_bound"
	HintMultithread   hint = "multithread"
	HintNoMultithread hint = "nomultithread"
)

const hintWays = `--hint=
    compute_bound    use all cores of each socket, one thread of each
    memory_bound     use one core of each socket
    multithread      use all threads of a core
    nomultithread    use one thread of each core
    help             print this
`

// ParseHint reads --hint.
func ParseHint(v string) (hint, error) {
	switch h := hint(strings.ToLower(v)); h {
	case "help":
		return "", &env.Ways{Text: hintWays}
	case HintCompute, HintMemory, HintMultithread, HintNoMultithread:
		return h, nil
	}
	return "", &getopt.TextError{
		Text: "Invalid --hint specification: '" + v + "'; write compute_bound, memory_bound, multithread or nomultithread"}
}
