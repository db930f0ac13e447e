package model

import "gbatch/internal/wire"

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
}

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
}

// EachNode reports whether all nodes of a job have something to do for it, even nodes without its processes.
func (r *NodeRules) EachNode() bool { return len(r.Prolog) > 0 || len(r.Epilog) > 0 || r.Contain }
