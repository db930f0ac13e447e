package conf

import (
	"net"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/model/container"
	"gbatch/internal/price"
)

// Defaults that are gbatch's own.
const (
	DefaultSlurmctldPort  = 6817
	DefaultDbdPort        = 6819
	DefaultSocketDir      = "/run/gbatch"
	DefaultStateDir       = "/var/lib/gbatch/ctld"
	DefaultSpoolDir       = "/var/lib/gbatch/noded"
	DefaultDbdStateDir    = "/var/lib/gbatch/dbd"
	DefaultNodeTimeoutS   = 30
	DefaultHeartbeatS     = 10
	DefaultQueryRate      = 10000 // rows a second
	DefaultMaxScriptBytes = 4 << 20
	// DefaultMaxStoredBytes is max_user_scripts_size where it is not set.
	DefaultMaxStoredBytes = 1 << 30
	// MaxScriptBytesLimit is the largest max_script_size, as in Slurm.
	MaxScriptBytesLimit = 512 << 20
)

// Config is a whole configuration with every default filled in. Spans are in seconds (…S) unless the name says
// otherwise, memory is in MiB (…MiB). A span or count without limit is [model.Unlimited]; 0 means "not set" where 0
// would be no sensible value. A Config is not changed after Load.
type Config struct {
	Path  string   // the main file
	Files []string // every file that was read, in that order
	Hash  string   // hex SHA-256 of their names and contents

	ClusterName   string
	SlurmUser     string
	Controllers   []Controller // in the order of their SlurmctldHost lines; empty only where none was named
	SlurmctldPort int64
	SlurmdPort    int64 // 0: any free port

	// Places. The pid, socket and log files of daemons are local to each host.
	StateSaveLocation string // gctld
	SlurmdSpoolDir    string // gnoded; may hold %n and %h, see ExpandPath
	DbdStateLocation  string // gdbd
	LocalSocketDir    string // unix sockets for commands
	DataParser        string // the version of lists that a bare --json means; commands read it (package locate)
	PKIDir            string // certificates and keys
	TmpFS             string
	SlurmctldLogFile  string // "": standard error
	SlurmdLogFile     string // may hold %n and %h
	DbdLogFile        string
	SlurmctldDebug    string // quiet fatal error info verbose debug debug2 … debug5
	SlurmdDebug       string
	DbdDebug          string
	LogFormat         string // one of logfile.Formats

	// How fast controllers replace a leader that is lost, in milliseconds; 0: gctld's defaults.
	ControllerHeartbeatMS int64
	ControllerElectionMS  int64

	// Accounting. DbdAddr is host:port of gdbd, "" without accounting. Resend.MaxWaiting is MaxDBDMsgs as written; 0: it
	// follows from MaxJobCount and the number of nodes.
	Resend                model.ShipRules
	AccountingStorageType string
	AccountingStorageHost string
	AccountingStoragePort int64
	AccountingBackupHost  string // host or host:port
	DbdAddr               string
	DbdCopyAddr           string   // of its copy, AccountingStorageBackupHost; "": there is none
	AccountingStorageTRES []string // in the order given, such as gres/gpu
	Enforce               Enforce
	Accounts              []string // accounts that exist; empty: any name is one
	DefaultAccount        string
	TrackWCKey            bool
	Price                 price.Table // the Price lines and keys
	JobAcctGatherType     string
	SampleIntervalS       int64 // JobAcctGatherFrequency, of tasks; 0: only at the end

	// Jobs.
	FirstJobID, MaxJobID      int64
	MaxJobCount               int64
	MaxArraySize              int64 // indexes run from 0 to MaxArraySize-1
	MaxStepCount              int64
	MaxTasksPerNode           int64
	MinJobAgeS                int64
	InactiveLimitS            int64
	KillWaitS                 int64
	Elastic                   model.ElasticRules
	GPUCache                  model.GPUCache
	ExpediteHoldS             int64
	WaitTimeS                 int64
	KillOnBadExit             bool
	CompleteWaitS             int64
	OverTimeLimitS            int64 // Unlimited: limits aren't enforced
	BatchStartTimeoutS        int64
	JobRequeue                bool
	JobFileAppend             bool
	DisableRootJobs           bool
	EnforcePartLimits         string // NO, ANY or ALL
	PrivateData               []string
	DependencyParameters      []string
	Licenses                  []License
	Mem                       MemLimits
	JobDefaults               JobDefaults
	PropagateLimits           []string // "ALL", or names such as MEMLOCK
	PropagateLimitsExcept     []string // set instead of PropagateLimits
	JobContainerType          string   // job_container/none or job_container/tmpfs
	ContainerCachePath        string   // directory of images and containers; "": SlurmdSpoolDir
	ContainerRuntime          string   // which program runs bundles; "": oci.conf, or crun or runc
	ContainerCacheMiB         int64    // what images may take on a node; 0: no containers
	ContainerUserMiB          int64    // what one user's containers may write on a node; 0: no bound
	RaiseLimits               []string // "ALL", or names: the hard limits that a job may have above its node's
	PropagatePrioProcess      int64
	LaunchParameters          []string
	InteractiveStepOptions    string
	MpiDefault                string
	MpiPorts                  [2]int32 // MpiParams=ports=FIRST-LAST; zero: none
	MailProg, MailDomain      string
	JobSubmitProgram          string
	JobSubmitUser             string
	JobSubmitTimeoutS         int64
	JobSubmitParallel         int64
	JobSubmitFailure          string // refuse or pass
	JobSubmitRights           string // user or operator
	ScronParameters           []string
	JobEventProgram           string // run when jobs start, end, are preempted and so on
	JobEventTypes             []string
	JobEventTimeoutS          int64
	JobEventParallel          int64
	CliFilterProgram          string
	SrunProlog, SrunEpilog    string
	Prolog, Epilog            []string // paths or patterns, run on nodes as root
	PrologSlurmctld           []string
	EpilogSlurmctld           []string
	TaskProlog, TaskEpilog    string
	PrologFlags               []string
	PrologTimeoutS            int64 // 0: PrologEpilogTimeout
	EpilogTimeoutS            int64
	PrologEpilogTimeoutS      int64
	UnkillableStepTimeoutS    int64
	ReconfigFlags             []string
	RebootProgram             string
	ResumeTimeoutS            int64 // for nodes that reboot or are powered up
	Power                     model.PowerRules
	SuspendExcNodes           string // as it was written
	SlurmctldParameters       string // likewise
	UnkillableStepProgram     string
	HealthCheckProgram        string
	HealthCheckIntervalS      int64 // 0: never
	HealthCheckNodeState      []string
	LaunchRetries             int64 // failed launches after which a job is held
	RequeueExit               []int32
	RequeueExitHold           []int32
	MaxBatchRequeue           int64 // times that a job goes back for its exit codes before it is held
	LaunchBackoffS            int64 // wait before the second launch; doubles with each
	LaunchFailuresToDrain     int64 // of distinct jobs in a row; 0: a node is never drained for them
	SlurmdTimeoutS            int64
	NodeHeartbeatIntervalS    int64
	QueryRateLimit            int64 // rows a second; 0: no limit
	CertificateLifetimeS      int64
	LoginHosts                []string // names of login hosts; empty: any
	HTTP                      HTTP
	LoginRights               model.Rights
	ReturnToService           int64
	MessageTimeoutS           int64
	ProctrackType, TaskPlugin string
	TaskPluginParam           []string
	GpuIdlePolicy             model.GPUIdle
	NodeMetricsListen         string   // of gnoded's metrics: NONE, a port or HOST:PORT
	NodeMetricsNames          []string // dcgm, gpu, jobstats
	HpcJobMappingDir          string   // of files that say which jobs have which GPU; "": none
	GpuSampleIntervalS        int64    // between readings of a node's GPUs
	GpuRecoverProgram         string   // run on the node when a GPU breaks
	DefaultGpuBind            string   // binding of steps' tasks to GPUs if the command gives none
	PrimaryOnProg             string   // run by the controller that begins to lead
	PrimaryOffProg            string   // and by the one that ceases to
	ResvOverRunS              int64
	ResvProlog                string           // run by the leader when a reservation begins
	ResvEpilog                string           // and when it ends
	AlertProgram              string           // run when nodes, GPUs and daemons fail and come back
	Alerts                    model.AlertRules // AlertParameters
	GpuSelectPolicy           []string
	GpuScoreWeights           GPUScoreWeights
	GresHelper                string // the program that runs beside jobs with remote GPUs
	GresHelperTimeoutS        int64
	MigProgram                string // the program with which a node divides its GPUs
	GpuEnvStyle               string // index or uuid: how CUDA_VISIBLE_DEVICES and its like name GPUs
	GpuForeignUsePolicy       string // avoid, drain or ignore: GPUs in use by processes outside of jobs
	GpuForeignUsePct          int64  // part of a GPU's memory from which such use counts
	GPUMemMarginMiB           int64  // GpuMemSafetyMargin: of each GPU, left to the driver

	Select    Select
	Scheduler Scheduler
	Priority  Priority
	Preempt   Preempt

	GresTypes      []string
	TopologyPlugin string // topology/flat or topology/tree
	TopologyParam  []string

	Nodes      []NodeDef         // in the order of the file
	NodeSets   []model.NodeSet   // named in partitions only
	Partitions []PartitionDef    // in the order of the file
	Gres       Gres              // gres.conf
	Cgroup     Cgroup            // cgroup.conf
	Containers []Container       // job_container.conf
	Topology   Topology          // topology.conf
	Topologies []Topology        // topology.yaml, in its place
	OCI        container.Runtime // oci.conf
}

// Controller is a host that runs gctld.
type Controller struct {
	Name string // host name, as in SlurmctldHost
	Addr string // host:port to reach it at
}

// Enforce is AccountingStorageEnforce.
type Enforce struct {
	Associations, Limits, QOS, Safe, NoJobs, NoSteps, WCKeys bool
}

// License is a cluster-wide license of which Count exist.
type License struct {
	Name  string
	Count int64
}

// MemLimits are the memory defaults and limits of the cluster or of a
// partition; 0 is not set. At most one of each pair is set.
type MemLimits struct {
	DefPerCPUMiB, DefPerNodeMiB int64
	MaxPerCPUMiB, MaxPerNodeMiB int64
}

// JobDefaults are the CPUs and memory per GPU; 0 is not set.
type JobDefaults struct {
	DefCPUPerGPU    int64
	DefMemPerGPUMiB int64
}

// defaults is the configuration of an empty file.
func defaults() *Config {
	return &Config{
		SlurmUser:              "root",
		SlurmctldPort:          DefaultSlurmctldPort,
		StateSaveLocation:      DefaultStateDir,
		SlurmdSpoolDir:         DefaultSpoolDir,
		DbdStateLocation:       DefaultDbdStateDir,
		LocalSocketDir:         DefaultSocketDir,
		TmpFS:                  "/tmp",
		SlurmctldDebug:         "info",
		SlurmdDebug:            "info",
		DbdDebug:               "info",
		LogFormat:              "text",
		AccountingStoragePort:  DefaultDbdPort,
		JobAcctGatherType:      "jobacct_gather/cgroup",
		SampleIntervalS:        30,
		FirstJobID:             1,
		MaxJobID:               67043328, // 0x03ff0000, as in Slurm
		MaxJobCount:            10000,
		MaxArraySize:           1001,
		MaxStepCount:           40000,
		MaxTasksPerNode:        512,
		MinJobAgeS:             300,
		KillWaitS:              30,
		Elastic:                model.ElasticRules{GraceS: 30, PauseS: 60},
		GPUCache:               model.GPUCache{Tags: 2, TimeS: 3600},
		ExpediteHoldS:          600,
		BatchStartTimeoutS:     10,
		JobRequeue:             true,
		EnforcePartLimits:      "NO",
		PropagateLimits:        []string{"ALL"},
		JobContainerType:       containerNone,
		ContainerCacheMiB:      defaultContainerCacheMiB,
		ContainerUserMiB:       defaultContainerUserMiB,
		InteractiveStepOptions: "--interactive --preserve-env --pty $SHELL",
		MpiDefault:             "none",
		MailProg:               "/bin/mail",
		GresHelperTimeoutS:     10, JobEventTimeoutS: 60, JobEventParallel: 4,
		JobSubmitTimeoutS: 5, JobSubmitParallel: 8, JobSubmitFailure: "refuse", JobSubmitRights: "user",
		GpuSelectPolicy:        []string{"topology", "pack"},
		GpuScoreWeights:        defaultScoreWeights(),
		UnkillableStepTimeoutS: 60, ResumeTimeoutS: 60,
		Power:                  model.PowerRules{SuspendS: -1, SuspendTimeoutS: 30, SuspendRate: 60, ResumeRate: 300},
		HealthCheckNodeState:   []string{"ANY"},
		LaunchRetries:          3,
		MaxBatchRequeue:        model.DefaultBatchRequeue,
		LaunchBackoffS:         10,
		LaunchFailuresToDrain:  3,
		SlurmdTimeoutS:         DefaultNodeTimeoutS,
		NodeHeartbeatIntervalS: DefaultHeartbeatS,
		QueryRateLimit:         DefaultQueryRate,
		CertificateLifetimeS:   model.DefaultCertLifeS,
		HTTP:                   HTTP{TLS: "auto", Metrics: "metrics/openmetrics", MetricsSeries: defaultSeries},
		MessageTimeoutS:        10,
		ProctrackType:          "proctrack/cgroup",
		GpuSampleIntervalS:     5,
		MigProgram:             "/usr/bin/nvidia-smi",
		GpuEnvStyle:            "index",
		GpuForeignUsePolicy:    "avoid",
		GpuForeignUsePct:       20,
		GPUMemMarginMiB:        defaultGPUMargin,
		Resend:                 model.ShipRules{KeepRecords: 100_000, KeepBytes: 64 << 20, KeepS: 86400},
		Alerts: model.AlertRules{LostS: 10, PassS: 60, RecordsPct: 50, DiskFreePct: 5, DiskSlowMS: 1000,
			CertDays: 30},
		Price:          price.Table{Currency: "$", WarnPct: 80},
		TaskPlugin:     "task/cgroup,task/affinity",
		TopologyPlugin: topologyFlat,
		Select: Select{Type: "select/cons_tres", Params: []string{"CR_CORE_MEMORY"}, Unit: UnitCore,
			Memory: true},
		Scheduler: defaultScheduler(),
		Priority: Priority{
			Type: "priority/multifactor", DecayHalfLifeS: 7 * 86400, CalcPeriodS: 300, MaxAgeS: 7 * 86400,
			UsageResetPeriod: "NONE",
		},
		Preempt: Preempt{Type: "preempt/none", Mode: PreemptMode{Action: "OFF"}, SliceS: defaultSliceS,
			StopGraceS: defaultStopGraceS},
		Cgroup: defaultCgroup(),
	}
}

// Node returns a node's definition.
func (c *Config) Node(name string) (*NodeDef, bool) {
	for i := range c.Nodes {
		if c.Nodes[i].Name == name {
			return &c.Nodes[i], true
		}
	}
	return nil, false
}

// Partition returns a partition's definition.
func (c *Config) Partition(name string) (*PartitionDef, bool) {
	for i := range c.Partitions {
		if c.Partitions[i].Name == name {
			return &c.Partitions[i], true
		}
	}
	return nil, false
}

// Controller returns the controller of that name; where names differ only in
// their domain, the short name counts.
func (c *Config) Controller(name string) (Controller, bool) {
	for _, same := range []func(a, b string) bool{strings.EqualFold, sameShort} {
		for _, ctl := range c.Controllers {
			if same(ctl.Name, name) {
				return ctl, true
			}
		}
	}
	return Controller{}, false
}

func sameShort(a, b string) bool {
	if net.ParseIP(a) != nil || net.ParseIP(b) != nil {
		return false
	}
	a, _, _ = strings.Cut(a, ".")
	b, _, _ = strings.Cut(b, ".")
	return a != "" && strings.EqualFold(a, b)
}

// ExpandPath replaces %n (node name), %h (short host name) and %% in a path
// such as SlurmdSpoolDir.
func ExpandPath(pattern, node, host string) string {
	short, _, _ := strings.Cut(host, ".")
	return strings.NewReplacer("%n", node, "%h", short, "%%", "%").Replace(pattern)
}

// hostPort joins host and port; IPv6 addresses get brackets.
func hostPort(host string, port int64) string {
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.FormatInt(port, 10))
}

// showSeconds shows seconds as scontrol does for a setting: "30 sec", or a word.
func showSeconds(s int64) string {
	if s == model.Unlimited {
		return "UNLIMITED"
	}
	return strconv.FormatInt(s, 10) + " sec"
}
