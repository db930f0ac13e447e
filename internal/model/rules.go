package model

import (
	"slices"

	"gbatch/internal/wire"
)

// ProgramLimitS is how long a program of Prolog, Epilog and similar settings may run without PrologEpilogTimeout,
// seconds: no program holds a job for ever.
const ProgramLimitS = 30 * 60

// NodeRules are the configuration of what nodes do around jobs: programs to run, times to wait, reactions to failures.
// The leader sends it to every node. Spans are in seconds; 0 means no limit unless a field says otherwise, but programs
// end after ProgramLimitS.
type NodeRules struct {
	Prolog         []string // absolute paths or patterns, run as root on every node of a job before it begins
	Epilog         []string // the same, after its last process
	PrologTimeoutS int64
	EpilogTimeoutS int64
	Serial         bool // PrologFlags=Serial: one such program at a time on a node
	NoHold         bool // PrologFlags=NoHold: the script doesn't wait for the prologs of other nodes
	// every node of a job makes the job's control group before the script begins, since steps may run on all of them
	Contain      bool
	ForceRequeue bool // PrologFlags=ForceRequeueOnFail: also jobs with --no-requeue
	NoHoldOnFail bool // SchedulerParameters=nohold_on_prolog_fail: requeued, and not held

	CtldProlog []string // PrologSlurmctld and EpilogSlurmctld: the same on the leader
	CtldEpilog []string

	UnkillableS       int64  // UnkillableStepTimeout: processes that survive SIGKILL for that long drain the node
	UnkillableProgram string // the program that then runs on the node
	BatchStartS       int64  // BatchStartTimeout: a script that could not start for that long counts as a failed launch

	HealthProgram   string
	HealthIntervalS int64    // 0: never
	HealthStates    []string // of HealthCheckNodeState, in upper case; empty: ANY

	LaunchRetries  int32 // failed launches after which a job is held; at least 1
	LaunchBackoffS int64 // wait before the second try; doubles with each try
	LaunchDrain    int32 // distinct jobs in a row that a node can't launch before it is drained; 0: never

	GPUBind string // DefaultGpuBind: for steps whose command gives none; "": as in Slurm

	// Settings that a node would otherwise read from its own file, which may have only addresses and certificates. A
	// leader of an older version does not send them: GPUForeign is empty then, and the node uses its file.
	TaskProlog, TaskEpilog string
	MaxSteps               int64  // MaxStepCount, 0: no limit
	KillBad                bool   // KillOnBadExit
	WaitS                  int64  // WaitTime
	SampleS                int64  // time between samples of a job; 0: only at its end
	KillWaitS              int64  // KillWait
	HeartbeatS             int64  // NodeHeartbeatInterval
	GPUSampleS             int64  // GpuSampleInterval
	GPURecover             string // GpuRecoverProgram
	GPUForeign             string // GpuForeignUsePolicy: "avoid", "drain" or "ignore"
	GPUForeignPct          int64  // GpuForeignUseThreshold
	GPUByUUID              bool   // GpuEnvStyle=uuid
	MIGProgram             string // MigProgram

	Reboot  string // RebootProgram; "": nodes are not rebooted
	RebootS int64  // ResumeTimeout: a node that is told to reboot is back by then

	GresHelper  string // the program that runs beside each job with remote GPUs; "": none
	GresHelperS int64  // GresHelperTimeout: its answer comes within that time

	// Uninherited has the bits, by setrlimit's number, of the resource limits that jobs and steps have from the node, and
	// not from where they were submitted, unless their users say otherwise (PropagateResourceLimits).
	Uninherited uint32
	AppendFiles bool // JobFileAppend: output files that are there are appended to, unless users say otherwise

	InJob bool // PrologFlags=RunInJob: prologs and epilogs run in their job's control group

	HideJobs bool // PrivateData=jobs: a job is as good as unknown to other users

	PrioProcess PrioMode // PropagatePrioProcess
	MaxTasks    int32    // MaxTasksPerNode, of one step; 0: no limit
	CPUBind     CPUBind  // TaskPluginParam
	X11         bool     // PrologFlags=X11: steps may have their users' displays
	MPI         string   // MpiDefault; "": a leader of an older version, and the node's own file counts

	FirstPort, LastPort int32 // MpiParams: the ports for --resv-ports; 0: there are none
}

// CPUBind says how tasks are bound to CPUs whose command has no --cpu-bind.
type CPUBind struct {
	How     string // "none", "cores", "sockets", "threads"; "": by the numbers of tasks and CPUs
	Else    string // autobind=: where the numbers don't match
	Verbose bool   // where tasks are bound is told
}

func (x *CPUBind) Wire(c *wire.C) {
	wire.Text(c, &x.How, MaxName)
	wire.Text(c, &x.Else, MaxName)
	wire.Bool(c, &x.Verbose)
}

// PrioMode says which nice value scripts and tasks have (PropagatePrioProcess).
type PrioMode int8

// The numbers are the key's.
const (
	PrioOfDaemon PrioMode = iota // that of the node's daemon
	PrioOfSubmit                 // that of the command that submitted them
	PrioNicer                    // the same, and above the daemon's
)

func (x *NodeRules) Wire(c *wire.C) {
	wire.DataList(c, &x.Prolog, MaxList, MaxText)
	wire.DataList(c, &x.Epilog, MaxList, MaxText)
	wire.Int(c, &x.PrologTimeoutS)
	wire.Int(c, &x.EpilogTimeoutS)
	wire.Bool(c, &x.Serial)
	wire.Bool(c, &x.NoHold)
	wire.Bool(c, &x.Contain)
	wire.Bool(c, &x.ForceRequeue)
	wire.Bool(c, &x.NoHoldOnFail)
	wire.DataList(c, &x.CtldProlog, MaxList, MaxText)
	wire.DataList(c, &x.CtldEpilog, MaxList, MaxText)
	wire.Int(c, &x.UnkillableS)
	wire.Data(c, &x.UnkillableProgram, MaxText)
	wire.Int(c, &x.BatchStartS)
	wire.Data(c, &x.HealthProgram, MaxText)
	wire.Int(c, &x.HealthIntervalS)
	wire.Texts(c, &x.HealthStates, MaxList, MaxName)
	wire.Int(c, &x.LaunchRetries)
	wire.Int(c, &x.LaunchBackoffS)
	wire.Int(c, &x.LaunchDrain)
	wire.Text(c, &x.GPUBind, MaxText)
	wire.Data(c, &x.TaskProlog, MaxText)
	wire.Data(c, &x.TaskEpilog, MaxText)
	wire.Int(c, &x.MaxSteps)
	wire.Bool(c, &x.KillBad)
	wire.Int(c, &x.WaitS)
	wire.Int(c, &x.SampleS)
	wire.Int(c, &x.KillWaitS)
	wire.Int(c, &x.HeartbeatS)
	wire.Int(c, &x.GPUSampleS)
	wire.Data(c, &x.GPURecover, MaxText)
	wire.Text(c, &x.GPUForeign, MaxText)
	wire.Int(c, &x.GPUForeignPct)
	wire.Bool(c, &x.GPUByUUID)
	wire.Data(c, &x.MIGProgram, MaxText)
	wire.Data(c, &x.Reboot, MaxText)
	wire.Int(c, &x.RebootS)
	wire.Data(c, &x.GresHelper, MaxText)
	wire.Int(c, &x.GresHelperS)
	wire.Int(c, &x.Uninherited)
	wire.Bool(c, &x.AppendFiles)
	wire.Bool(c, &x.InJob)
	wire.Bool(c, &x.HideJobs)
	wire.Int(c, &x.PrioProcess)
	wire.Int(c, &x.MaxTasks)
	wire.Struct(c, &x.CPUBind)
	wire.Bool(c, &x.X11)
	wire.Text(c, &x.MPI, MaxName)
	wire.Int(c, &x.FirstPort)
	wire.Int(c, &x.LastPort)
}

// EachNode reports whether all nodes of a job have something to do for it, even nodes without its processes.
func (r *NodeRules) EachNode(a *Alloc) bool {
	return len(r.Prolog) > 0 || len(r.Epilog) > 0 || r.Contain || r.GresHelper != "" && a.Remote()
}

// PowerRules say when nodes are powered down and up, and by which programs. The leader runs them.
type PowerRules struct {
	Suspend, Resume, ResumeFail string // SuspendProgram, ResumeProgram, ResumeFailProgram; "": none

	SuspendS        int64 // SuspendTime: a node that is idle so long is powered down; negative: never
	SuspendTimeoutS int64 // how long powering down takes at most
	ResumeTimeoutS  int64 // a node that is powered up registers within this time
	SuspendRate     int32 // nodes a minute; 0: no limit
	ResumeRate      int32

	Spare       []PowerSpare // SuspendExcNodes
	SpareParts  []string     // SuspendExcParts
	SpareStates []string     // SuspendExcStates, in upper case
	IdleAfter   bool         // idle_on_node_suspend: a node that was powered down is IDLE, whatever it was

	Scale PowerScale // of all nodes together

	Set []string // settings that operators have changed while the cluster ran
}

func (x *PowerRules) Wire(c *wire.C) {
	wire.Data(c, &x.Suspend, MaxText)
	wire.Data(c, &x.Resume, MaxText)
	wire.Data(c, &x.ResumeFail, MaxText)
	wire.Int(c, &x.SuspendS)
	wire.Int(c, &x.SuspendTimeoutS)
	wire.Int(c, &x.ResumeTimeoutS)
	wire.Int(c, &x.SuspendRate)
	wire.Int(c, &x.ResumeRate)
	wire.List(c, &x.Spare, MaxList)
	wire.Texts(c, &x.SpareParts, MaxList, MaxName)
	wire.Texts(c, &x.SpareStates, MaxFew, MaxName)
	wire.Bool(c, &x.IdleAfter)
	wire.Struct(c, &x.Scale)
	wire.Texts(c, &x.Set, MaxFew, MaxName)
}

// On reports whether nodes are powered down and up at all.
func (x *PowerRules) On() bool { return x.Suspend != "" && x.Resume != "" }

// PowerSpare is a set of nodes of which some are never powered down.
type PowerSpare struct {
	Nodes []string
	Count int32 // so many of those that are usable; 0: all
}

func (x *PowerSpare) Wire(c *wire.C) {
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
	wire.Int(c, &x.Count)
}

// PartPower is what a partition says about its nodes' power. Spans that it does not set are NotSet.
type PartPower struct {
	SuspendS        int64 // negative: never
	SuspendTimeoutS int64
	ResumeTimeoutS  int64
	OnIdle          bool // PowerDownOnIdle: a node that had a job is powered down as soon as it has none
	Scale           PowerScale
}

func (x *PartPower) Wire(c *wire.C) {
	wire.Int(c, &x.SuspendS)
	wire.Int(c, &x.SuspendTimeoutS)
	wire.Int(c, &x.ResumeTimeoutS)
	wire.Bool(c, &x.OnIdle)
	wire.Struct(c, &x.Scale)
}

// PowerScale says how many nodes are up beyond those that jobs have. The rule that wants most counts.
type PowerScale struct {
	Keep    []PowerKeep // PowerKeepIdle
	MaxUse  int32       // PowerMaxUse: most percent of the CPUs of nodes that are up that jobs have; 0: no rule
	PerJobs int32       // PowerJobsPerNode: one idle node for so many waiting jobs; 0: no rule
}

func (x *PowerScale) Wire(c *wire.C) {
	wire.List(c, &x.Keep, MaxFew)
	wire.Int(c, &x.MaxUse)
	wire.Int(c, &x.PerJobs)
}

// PowerKeep is a number of idle nodes that stay up, always or at some times of the week by the leader's local time.
type PowerKeep struct {
	Count   int32
	Percent int32 // of all nodes, besides Count
	Days    uint8 // 1: Sunday, 2: Monday, 4: Tuesday, ...; 0: all days
	From    int32 // minutes after midnight
	To      int32 // likewise; up to From: on the next day; both 0: the whole day
}

func (x *PowerKeep) Wire(c *wire.C) {
	wire.Int(c, &x.Count)
	wire.Int(c, &x.Percent)
	wire.Int(c, &x.Days)
	wire.Int(c, &x.From)
	wire.Int(c, &x.To)
}

// PowerSpan has the spans of a node's power, seconds.
type PowerSpan struct {
	SuspendS int64 // negative: it is never powered down for being idle
	DownS    int64 // SuspendTimeout
	UpS      int64 // ResumeTimeout
}

// longest takes over what a partition sets, if it is longer.
func (x *PowerSpan) longest(p *PartPower) {
	for _, s := range []struct {
		have *int64
		own  int64
	}{{&x.SuspendS, p.SuspendS}, {&x.DownS, p.SuspendTimeoutS}, {&x.UpS, p.ResumeTimeoutS}} {
		if s.own != NotSet && (*s.have == NotSet || s.own < 0 || *s.have >= 0 && s.own > *s.have) {
			*s.have = s.own
		}
	}
}

// or takes the cluster's spans for those that no partition sets.
func (x PowerSpan) or(r *PowerRules) PowerSpan {
	if x.SuspendS == NotSet {
		x.SuspendS = r.SuspendS
	}
	if x.DownS == NotSet {
		x.DownS = r.SuspendTimeoutS
	}
	if x.UpS == NotSet {
		x.UpS = r.ResumeTimeoutS
	}
	return x
}

var noSpan = PowerSpan{NotSet, NotSet, NotSet}

// PowerSpan gives the spans of one node's power: the longest that its partitions set, else the cluster's.
func (x *Config) PowerSpan(node string) PowerSpan {
	out := noSpan
	for _, p := range x.Partitions {
		if p.Power != nil && slices.Contains(p.Nodes, node) {
			out.longest(p.Power)
		}
	}
	return out.or(&x.Params.Power)
}

// PowerSpans gives the same for all nodes.
func (x *Config) PowerSpans() map[string]PowerSpan {
	out := make(map[string]PowerSpan, len(x.Nodes))
	for _, p := range x.Partitions {
		if p.Power == nil {
			continue
		}
		for _, name := range p.Nodes {
			span, ok := out[name]
			if !ok {
				span = noSpan
			}
			span.longest(p.Power)
			out[name] = span
		}
	}
	for _, d := range x.Nodes {
		span, ok := out[d.Name]
		if !ok {
			span = noSpan
		}
		out[d.Name] = span.or(&x.Params.Power)
	}
	return out
}

// AskRules are a partition's and the cluster's defaults and bounds for requests. Package ask computes a job's request
// from them and its Spec. Lists of jobs carry the rules, once for each partition.
type AskRules struct {
	Partition string
	QOS       string // the rules are for jobs of this QOS, which lifts limits of the partition; "": for all other jobs

	MinNodes      int32
	MaxNodes      int32 // 0: no limit
	DefMemPerCPU  int64 // MiB; 0: none. At most one of the two is set
	DefMemPerNode int64
	DefMemPerGPU  int64
	MaxMemPerCPU  int64 // MiB; 0: no limit
	MaxMemPerNode int64
	DefCPUPerGPU  int32        // 0: none
	Billing       []TRESWeight // TRESBillingWeights; empty: CPUs
	Flags         PrioFlags    // how Billing is summed
	NodeCPUs      int32        // the most that one node gives to a job; 0: not known
}

func (x *AskRules) Wire(c *wire.C) {
	wire.Text(c, &x.Partition, MaxName)
	wire.Text(c, &x.QOS, MaxName)
	wire.Int(c, &x.MinNodes)
	wire.Int(c, &x.MaxNodes)
	wire.Int(c, &x.DefMemPerCPU)
	wire.Int(c, &x.DefMemPerNode)
	wire.Int(c, &x.DefMemPerGPU)
	wire.Int(c, &x.MaxMemPerCPU)
	wire.Int(c, &x.MaxMemPerNode)
	wire.Int(c, &x.DefCPUPerGPU)
	wire.List(c, &x.Billing, MaxFew)
	wire.Int(c, &x.Flags)
	wire.Int(c, &x.NodeCPUs)
}

// ExitRules say which batch jobs go back into the queue because of their exit codes.
type ExitRules struct {
	Requeue []int32 // RequeueExit, in order
	Hold    []int32 // RequeueExitHold: held, in the state SPECIAL_EXIT
	Most    int32   // MaxBatchRequeue, -1 instead of 0; 0: DefaultBatchRequeue
}

// DefaultBatchRequeue is MaxBatchRequeue where the configuration doesn't say.
const DefaultBatchRequeue = 5

// MostTimes is how many times a job goes back for its exit codes before it is held.
func (x *ExitRules) MostTimes() uint32 {
	switch {
	case x.Most < 0:
		return 0
	case x.Most == 0:
		return DefaultBatchRequeue
	}
	return uint32(x.Most)
}

func (x *ExitRules) Wire(c *wire.C) {
	wire.Ints(c, &x.Requeue, MaxFew)
	wire.Ints(c, &x.Hold, MaxFew)
	wire.Int(c, &x.Most)
}
