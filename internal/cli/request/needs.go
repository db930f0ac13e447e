package request

import (
	"errors"
	"slices"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// needs.go has the options for a job's resources, and the setters of values that are more than a number.

// What is said where memory is asked for in two ways.
const (
	MemClash    = "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."
	MemClashEnv = "SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive."
)

// sizeOptions set the amount of resources.
func (s *Submission) sizeOptions() []getopt.Option {
	sp := &s.Spec
	R := getopt.Required
	return []getopt.Option{
		{Name: "nodes", Short: 'N', Arg: R, Metavar: "n[-m]", Group: groupNeeds,
			Help: "number of nodes, or minimum and maximum",
			Set:  Nodes(&sp.MinNodes, &sp.MaxNodes)},
		{Name: "elastic", Arg: R, Metavar: "min-max", Group: groupNeeds, Env: "_ELASTIC",
			Help: "from min to max nodes (gpus:min-max: GPUs of whole nodes): start with min, grow into what is left over, " +
				"give back what others need", Set: s.Elastic.Read},
		{Name: "elastic-signal", Arg: R, Metavar: "[B:]sig", Group: groupNeeds, Env: "_ELASTIC_SIGNAL",
			Help: "signal for the steps (B: for the script) of an elastic job when its nodes change or will (B:WINCH); NONE",
			Set:  s.elasticSignal},
		{Name: "elastic-grace", Arg: R, Metavar: "seconds", Group: groupNeeds, Env: "_ELASTIC_GRACE",
			Help: "how long an elastic job keeps nodes that it is asked for (default: ElasticGrace)", Set: s.elasticGrace},
		{Name: "ntasks", Short: 'n', Arg: R, Metavar: "n", Group: groupNeeds, Help: "number of tasks",
			Set: Count(&sp.Tasks)},
		{Name: "ntasks-per-node", Aliases: []string{"tasks-per-node"}, Arg: R, Metavar: "n", Group: groupNeeds,
			Help: "tasks on each node", Set: Count(&sp.TasksPerNode)},
		{Name: "cpus-per-task", Short: 'c', Arg: R, Metavar: "n", Group: groupNeeds, Help: "CPUs for each task",
			Set: Count(&sp.CPUsPerTask)},
		{Name: "mincpus", Arg: R, Metavar: "n", Group: groupNeeds, Help: "minimum number of CPUs on each node",
			Set: Count(&sp.MinCPUs)},
		{Name: "mem", Arg: R, Metavar: "size", Group: groupShare, Slot: "mem", Clash: MemClash,
			ClashEnv: MemClashEnv, Env: "_MEM_PER_NODE",
			Help: "memory on each node (MB, or with K, M, G, T); 0: all of it", Set: s.memPerNode},
		{Name: "mem-per-cpu", Arg: R, Metavar: "size", Group: groupShare, Slot: "mem", Clash: MemClash,
			ClashEnv: MemClashEnv, Env: "_MEM_PER_CPU",
			Help: "memory for each CPU", Set: s.memPerCPU},
		{Name: "tmp", Arg: R, Metavar: "size", Group: groupNeeds, Help: "temporary disk space that a node must have",
			Set: Mem(&sp.TmpMiB)},
	}
}

// gpuOptions request GPUs and other generic resources.
func (s *Submission) gpuOptions() []getopt.Option {
	sp := &s.Spec
	R := getopt.Required
	return []getopt.Option{
		{Name: "gres", Arg: R, Metavar: "name[:type][:n],...", Group: groupNeeds, Slot: "gres", Env: "_GRES",
			Help: "generic resources on each node: gpu:2, gpu:a100:4; shares of one GPU: shard:2, mps:50, gpu:0.5",
			Set:  Gres(&sp.Gres, nil, "", model.PerNode)},
		{Name: "gpus", Short: 'G', Arg: R, Metavar: "[type:]n", Group: groupNeeds, Env: "_GPUS",
			Help: "GPUs for the whole job; 0.5: half of a shared GPU",
			Set:  Gres(&sp.Gres, nil, model.GPUName, model.PerJob)},
		{Name: "gpus-per-node", Arg: R, Metavar: "[type:]n", Group: groupNeeds, Env: "_GPUS_PER_NODE",
			Help: "GPUs on each node",
			Set:  Gres(&sp.Gres, nil, model.GPUName, model.PerNode)},
		{Name: "gpus-per-socket", Arg: R, Metavar: "[type:]n", Group: groupNeeds, Env: "_GPUS_PER_SOCKET",
			Help: "GPUs for each socket that the job uses on a node (--sockets-per-node)", Set: s.gpusPerSocket},
		{Name: "gpus-per-task", Arg: R, Metavar: "[type:]n", Group: groupNeeds, Env: "_GPUS_PER_TASK",
			Help: "GPUs for each task",
			Set:  Gres(&sp.Gres, nil, model.GPUName, model.PerTask)},
		{Name: "tres-per-task", Arg: R, Metavar: "list", Group: groupNeeds, Env: "_TRES_PER_TASK",
			Help: "resources for each task: cpu=N and gres/NAME[:TYPE]=N, separated by commas", Set: PerTask(&s.PerTask)},
		{Name: "gpu-mem", Arg: R, Metavar: "size", Group: groupNeeds, Env: "_GPU_MEM",
			Help: "free memory that each GPU must have (MB, or with K, M, G, T), or auto: a fifth more than your last " +
				"jobs of this name used", Set: s.gpuMem},
		{Name: "gpu-index", Arg: R, Metavar: "list", Group: groupNeeds, Env: "_GPU_INDEX",
			Help: "use these GPUs of each node, numbered as in ginfo -G: 0,1 or 2-3; best with --nodelist",
			Set:  s.gpuIndex},
		{Name: "gpu-idle", Arg: R, Metavar: "on|off", Group: groupNeeds, Env: "_GPU_IDLE",
			Help: "off: exempt the job from GpuIdlePolicy; its QOS must have Flags=GpuIdleOK", Set: s.gpuIdle},
		{Name: "ntasks-per-gpu", Arg: R, Metavar: "n", Group: groupNeeds,
			Help: "tasks for each GPU of the job; with --ntasks it sets the number of GPUs", Set: Count(&s.TasksPerGPU)},
		{Name: "cpus-per-gpu", Arg: R, Metavar: "n", Group: groupNeeds, Env: "_CPUS_PER_GPU", Help: "CPUs for each GPU",
			Set: s.needCount(func(m *model.Needs) *int32 { return &m.CPUsPerGPU })},
		{Name: "mem-per-gpu", Arg: R, Metavar: "size", Group: groupNeeds, Slot: "mem", Clash: MemClash,
			ClashEnv: MemClashEnv, Env: "_MEM_PER_GPU",
			Help: "memory for each GPU", Set: s.memPerGPU},
		{Name: "gres-flags", Arg: R, Metavar: "flag", Group: groupNeeds, Env: "_GRES_FLAGS",
			Help: "enforce-binding: only CPUs near the job's GPUs (gres.conf's Cores); disable-binding: any CPUs; by " +
				"default near ones if they are free", Set: s.gresFlags},
	}
}

// nodeOptions restrict the nodes.
func (s *Submission) nodeOptions() []getopt.Option {
	sp := &s.Spec
	R := getopt.Required
	return []getopt.Option{
		{Name: "constraint", Short: 'C', Arg: R, Metavar: "features", Group: groupNeeds, Env: "_CONSTRAINT",
			Help: "features of the nodes: a&b, a|b, !a, (a|b)&c; [a|b]: the same one on all; a*2&b*4: 2 nodes with a, 4 " +
				"with b",
			Set: s.constraint},
		{Name: "prefer", Arg: R, Metavar: "features", Group: groupNeeds, Env: "_PREFER",
			Help: "features that the job prefers, as in --constraint but without [ ] and *; " +
				"model:NAME: GPUs that have it loaded", Set: s.prefer},
		{Name: "nodelist", Short: 'w', Arg: R, Metavar: "nodes", Group: groupNeeds, Help: "nodes that the job must have",
			Set: s.nodelist(Hosts)},
		{Name: "nodefile", Short: 'F', Arg: R, Metavar: "file", Group: groupNeeds,
			Help: "like --nodelist, but read from a file", Set: s.nodelist(fileHosts)},
		{Name: "exclude", Short: 'x', Arg: R, Metavar: "nodes", Group: groupNeeds,
			Help: "nodes that the job must not have",
			Set:  NodeSet(&sp.ExcNodes)},
		{Name: "exclusive", Arg: getopt.Optional, Metavar: "how", Group: groupShare, Env: "_EXCLUSIVE",
			Help: "whole nodes, shared with no other job; user: shared only with jobs of the same user", Set: s.exclusive},
		{Name: "segment", Arg: R, Metavar: "nodes", Group: groupNeeds, Env: "_SEGMENT_SIZE",
			Help: "divide the job into segments of so many nodes, each within one block (topology/block)",
			Set:  s.needCount(func(m *model.Needs) *int32 { return &m.Segment })},
		{Name: "consolidate-segments", Group: groupNeeds, Help: "all segments within one larger block",
			Set: s.segments(model.SegmentsTogether)},
		{Name: "spread-segments", Group: groupNeeds, Help: "each segment in a block of its own",
			Set: s.segments(model.SegmentsApart)},
		{Name: "contiguous", Group: groupNeeds, Help: "nodes that are adjacent in the configuration",
			Set: s.need(func(m *model.Needs) { m.Contiguous = true })},
		{Name: "reboot", Group: groupNeeds,
			Help: "reboot the job's nodes, which it then has for itself, before it begins (operators)",
			Set:  s.need(func(m *model.Needs) { m.Reboot = true })},
		{Name: "spread-job", Group: groupNeeds, Env: "_SPREAD_JOB",
			Help: "spread the tasks evenly over as many nodes as possible, ignoring switches",
			Set:  s.need(func(m *model.Needs) { m.Spread = true })},
		{Name: "use-min-nodes", Group: groupNeeds, Env: "_USE_MIN_NODES",
			Help: "use as few nodes of the --nodes range as possible",
			Set:  s.need(func(m *model.Needs) { m.FewNodes = true })},
		{Name: "switches", Arg: R, Metavar: "n[@time]", Group: groupNeeds, Env: "_REQ_SWITCH",
			Help: "nodes on at most n leaf switches; after this time (at most max_switch_wait) any nodes", Set: s.switches},
		{Env: "_WAIT4SWITCH", Arg: R, Hidden: true, Set: s.switchWait}, // of --switches without a time
		{Name: "sockets-per-node", Arg: R, Metavar: "n", Group: groupNeeds, Help: "sockets that a node must have",
			Set: s.needCount(func(m *model.Needs) *int32 { return &m.Sockets })},
		{Name: "cores-per-socket", Arg: R, Metavar: "n", Group: groupNeeds, Help: "cores that each socket must have",
			Set: s.needCount(func(m *model.Needs) *int32 { return &m.CoresPerSocket })},
		{Name: "threads-per-core", Arg: R, Metavar: "n", Group: groupNeeds, Env: "_THREADS_PER_CORE",
			Help: "threads that each core must have; tasks use at most as many",
			Set:  s.needCount(func(m *model.Needs) *int32 { return &m.ThreadsPerCore })},
		{Name: "extra-node-info", Short: 'B', Arg: R, Metavar: "s[:c[:t]]", Group: groupNeeds,
			Help: "sockets, cores per socket and threads per core in one option; *: any number", Set: s.nodeInfo},
		{Name: "ntasks-per-socket", Arg: R, Metavar: "n", Group: groupNeeds, Help: "at most n tasks on each socket",
			Set: s.needCount(func(m *model.Needs) *int32 { return &m.TasksPerSocket })},
		{Name: "ntasks-per-core", Arg: R, Metavar: "n", Group: groupNeeds, Help: "at most n tasks on each core",
			Set: s.needCount(func(m *model.Needs) *int32 { return &m.TasksPerCore })},
	}
}

// useOptions say how the job uses its resources.
func (s *Submission) useOptions() []getopt.Option {
	sp := &s.Spec
	R := getopt.Required
	return []getopt.Option{
		{Name: "acctg-freq", Arg: R, Metavar: "task=seconds", Group: groupNeeds, Env: "_ACCTG_FREQ",
			Help: "seconds between samples of the job's use, as in task=10; 0: measure only at the end (default: " +
				"JobAcctGatherFrequency)", Set: s.Sampling},
		{Name: "licenses", Short: 'L', Arg: R, Metavar: "name[:n],...", Group: groupNeeds, Env: "_LICENSES",
			Help: "licenses: foo:2,bar asks for all of them, foo|bar for one of them", Set: s.licenses},
		{Name: "oom-kill-step", Arg: getopt.Optional, Metavar: "0|1", Group: groupNeeds, Env: "_OOM_KILL_STEP",
			Help: "end the whole step when one of its processes is killed for lack of memory",
			Set:  ZeroOne("oom-kill-step", func(on bool) { s.More.OOMKill = on })},
		{Name: "overcommit", Short: 'O', Group: groupNeeds, Env: "_OVERCOMMIT",
			Help: "one CPU per node, whatever the number of tasks", Set: getopt.Flag(&sp.Overcommit)},
		{Name: "oversubscribe", Aliases: []string{"share"}, Short: 's', Group: groupShare, Env: "_OVERSUBSCRIBE",
			Help: "let other jobs use the same CPUs, if the partition has OverSubscribe=YES",
			Set:  func(string) error { s.More.Share, s.Spec.Exclusive = true, false; return nil }},
	}
}

// need gives the setter of an option without a value.
func (s *Submission) need(set func(*model.Needs)) func(string) error {
	return func(string) error { set(&s.More); return nil }
}

func (s *Submission) segments(wish model.SegmentWish) func(string) error {
	return func(string) error {
		if was := s.More.Segments; was != model.SegmentsAnywhere && was != wish {
			return errors.New("segments lie together or apart: give --consolidate-segments or --spread-segments")
		}
		s.More.Segments = wish
		return nil
	}
}

// gresFlags reads --gres-flags.
func (s *Submission) gresFlags(v string) error {
	bad := func(why string) error {
		return &getopt.TextError{Text: "Invalid --gres-flags specification: '" + v + "'; " + why}
	}
	s.More.GresBind = model.BindPreferred
	for _, word := range env.SplitList(v) {
		bind := model.BindPreferred
		switch strings.ToLower(word) {
		case "enforce-binding":
			bind = model.BindEnforced
		case "disable-binding":
			bind = model.BindDisabled
		case "multiple-tasks-per-sharing", "allow-task-sharing":
			continue // a job's shares are of one GPU on each node, and all its tasks may use it
		case "one-task-per-sharing":
			s.Remarks = append(s.Remarks,
				"--gres-flags=one-task-per-sharing has no effect in gbatch: a job's shares are of "+
					"one GPU on each node, and all its tasks may use it")
			continue
		default:
			return bad("write enforce-binding or disable-binding")
		}
		if s.More.GresBind != model.BindPreferred && s.More.GresBind != bind {
			return bad("enforce-binding and disable-binding exclude each other")
		}
		s.More.GresBind = bind
	}
	return nil
}

// ZeroOne gives the setter of an option that means 1 without a value.
func ZeroOne(option string, set func(on bool)) func(string) error {
	return func(v string) error {
		on, err := env.YesNo(v)
		if on = on || v == ""; err != nil && v != "" {
			return &getopt.TextError{Text: "Invalid --" + option + " specification: '" + v + "'; write 0 or 1"}
		}
		set(on)
		return nil
	}
}

// NoKill gives the setter of --no-kill. Variables have 1, too.
func NoKill(to *bool) func(string) error {
	return func(v string) error {
		switch strings.ToLower(v) {
		case "", "set", "1", "yes":
			*to = true
		case "off", "no", "0":
			*to = false
		default:
			return &getopt.TextError{Text: "Invalid --no-kill specification: '" + v + "'; write off, or nothing"}
		}
		return nil
	}
}

// needCount gives the setter of an option with a number of at least 1.
func (s *Submission) needCount(at func(*model.Needs) *int32) func(string) error {
	return func(v string) error {
		n, err := count(v, ask.MaxCount)
		if err == nil {
			*at(&s.More) = n
		}
		return err
	}
}

// Of memory per node, per CPU and per GPU the last one given counts.

func (s *Submission) memPerNode(v string) error {
	n, err := walltime.ParseMemMiB(v)
	if n == 0 {
		n = model.WholeMem
	}
	s.Spec.MemPerNode, s.Spec.MemPerCPU, s.More.MemPerGPU = n, 0, 0
	return err
}

func (s *Submission) memPerCPU(v string) error {
	n, err := walltime.ParseMemMiB(v)
	s.Spec.MemPerNode, s.Spec.MemPerCPU, s.More.MemPerGPU = 0, n, 0
	return err
}

func (s *Submission) memPerGPU(v string) error {
	n, err := walltime.ParseMemMiB(v)
	s.Spec.MemPerNode, s.Spec.MemPerCPU, s.More.MemPerGPU = 0, 0, n
	return err
}

func (s *Submission) gpuMem(v string) (err error) {
	if s.More.GPUMemAuto = v == "auto"; s.More.GPUMemAuto {
		s.More.GPUMemMiB = 0
		return nil
	}
	s.More.GPUMemMiB, err = walltime.ParseMemMiB(v)
	return err
}

func (s *Submission) constraint(v string) error {
	if _, err := model.ParseFeatures(v); err != nil {
		return &getopt.TextError{Text: "Invalid feature specification: " + err.Error()}
	}
	s.Spec.Features = model.FeatureText(v)
	return nil
}

func (s *Submission) prefer(v string) error {
	s.More.Prefer = model.FeatureText(v)
	return said(ask.CheckPrefer(v))
}

func (s *Submission) gpusPerSocket(v string) (err error) {
	s.More.GPUsPerSocket, err = ask.ParseGres(model.GPUName, v, model.PerNode)
	return said(err)
}

func (s *Submission) licenses(v string) (err error) {
	s.More.Licenses, s.More.AnyLicense, err = ask.ParseLicenses(v)
	return said(err)
}

func (s *Submission) exclusive(v string) error {
	switch v {
	case "", "exclusive":
		s.Spec.Exclusive, s.More.Share = true, false
	case "user":
		s.More.ExclusiveUser = true
	case "mcs":
		return &getopt.TextError{Text: "Invalid --exclusive specification: 'mcs': there are no MCS labels; use " +
			"--exclusive=user, or --exclusive alone for whole nodes"}
	default:
		return &getopt.TextError{
			Text: "Invalid --exclusive specification: '" + v + "'; write --exclusive or --exclusive=user"}
	}
	return nil
}

// Sampling reads --acctg-freq: seconds, or a comma list of kind=seconds. Only tasks have a sampling interval: the
// energy of GPUs is sampled with them, and networks and file systems are not sampled.
func (s *Submission) Sampling(v string) error {
	const most = 1 << 20 // seconds; a longer interval means no sampling
	s.Stated().Sampling = v
	if v == "" {
		return nil // the cluster's
	}
	for item := range strings.SplitSeq(v, ",") {
		kind, number, named := strings.Cut(item, "=")
		if !named {
			kind, number = "task", item
		}
		n, err := walltime.ParseCount(number)
		switch kind = strings.ToLower(kind); {
		case kind != "task" && kind != "energy" && kind != "network" && kind != "filesystem",
			err != nil || n > most:
			return &getopt.TextError{
				Text: "Invalid --acctg-freq specification: '" + v +
					"'; write seconds, such as 10 or task=10, or task=0 to measure at the end only"}
		case kind == "task" && n == 0:
			s.More.SampleS = -1
		case kind == "task":
			s.More.SampleS = int32(n)
		}
	}
	return nil
}

// switches reads n[@time].
func (s *Submission) switches(v string) error {
	count, wait, timed := strings.Cut(v, "@")
	if err := s.needCount(func(m *model.Needs) *int32 { return &m.Switches })(count); err != nil {
		return err
	}
	s.More.SwitchWaitS, s.waitSaid = model.NotSet, timed
	if !timed && s.waitNamed == "" {
		return nil
	}
	if !timed {
		wait = s.waitNamed
	}
	return s.waitForSwitches(wait)
}

// switchWait reads the variable that has the time of --switches where that names none.
func (s *Submission) switchWait(v string) error {
	s.waitNamed = v
	if s.More.Switches == 0 || s.waitSaid {
		return nil
	}
	return s.waitForSwitches(v)
}

// waitForSwitches sets how long a job waits for few switches.
func (s *Submission) waitForSwitches(v string) error {
	sec, unlimited, err := walltime.ParseLimit(v)
	switch {
	case err != nil:
		return &getopt.TextError{Text: "Invalid --switches specification: " + err.Error()}
	case unlimited:
		s.More.SwitchWaitS = model.Unlimited
	case sec == 0: // don't wait
		s.More.Switches = 0
	default:
		s.More.SwitchWaitS = sec
	}
	return nil
}

// nodeInfo reads sockets[:cores[:threads]], which may stand for a number of tasks too (layoutTasks).
func (s *Submission) nodeInfo(v string) error {
	parts := strings.Split(v, ":")
	at := []func(*model.Needs) *int32{
		func(m *model.Needs) *int32 { return &m.Sockets },
		func(m *model.Needs) *int32 { return &m.CoresPerSocket },
		func(m *model.Needs) *int32 { return &m.ThreadsPerCore },
	}
	if len(parts) > len(at) {
		return &getopt.TextError{Text: "Invalid --extra-node-info specification: '" + v +
			"'; write SOCKETS[:CORES[:THREADS]], such as 2:8 or *:8:2"}
	}
	for i, p := range parts {
		if p == "*" {
			continue
		}
		least, most, ranged := strings.Cut(p, "-")
		if ranged && s.needCount(at[i])(most) == nil {
			p = least // at least so many; Slurm takes no notice of the most
		}
		if s.needCount(at[i])(p) != nil {
			return &getopt.TextError{
				Text: "Invalid --extra-node-info specification: '" + v + "'; write SOCKETS[:CORES[:THREADS]], such as 2:8 or *:8:2"}
		}
	}
	s.layout = true
	return nil
}

// layoutTasks gives a job that asks for sockets, cores or threads of a fixed number of nodes a task for each of them,
// if it says nothing of tasks. grun's jobs have to ask for all three.
func (s *Submission) layoutTasks() {
	sp, n := &s.Spec, &s.More
	levels := [...]int32{n.Sockets, n.CoresPerSocket, n.ThreadsPerCore}
	fixed := (s.layout || sp.MinNodes > 0 || len(sp.ReqNodes) > 0) && (sp.MaxNodes == 0 || sp.MinNodes == sp.MaxNodes)
	some, all := slices.Max(levels[:]) > 0, slices.Min(levels[:]) > 0
	if sp.Tasks > 0 || sp.TasksPerNode > 0 || s.TasksPerGPU > 0 || !fixed || !some || s.OfStep && !all {
		return
	}
	tasks := int64(max(sp.MinNodes, int32(len(sp.ReqNodes)), 1))
	for _, count := range levels {
		tasks = min(tasks*int64(max(count, 1)), ask.MaxTasks)
	}
	sp.Tasks = int32(tasks)
	s.Implied = sp.Tasks
}
