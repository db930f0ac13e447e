package model

import (
	"gbatch/internal/price"
	"gbatch/internal/wire"
)

// Config is everything in the configuration that changes a decision. It is replicated: one command replaces it whole.
// Addresses, paths and log levels are local to each daemon and are not here.
type Config struct {
	Cluster    string
	Nodes      []*NodeDef
	Partitions []*Partition
	Params     Params
	Accounts   []string // accounts that exist; empty: any name is an account
	Show       []KV     // every setting as `gcontrol show config` prints it
	Hash       string   // of the files it came from
	Licenses   []LicenseCount
	Switches   []*Switch // the tree of topology.conf in its order; empty: all nodes are alike
	// settings of cgroup.conf and gres.conf that gnoded reads only when it starts, by file: reconfigure compares them
	AtStart []KV
	Sets    []NodeSet // NodeSet lines

	Blocks *Blocks // in place of Switches; nil: none

	Topologies []*Topology // of topology.yaml, in its order, in place of Switches and Blocks; Networks gives what counts

	Future []*NodeDef // State=FUTURE: nodes that may come; partitions don't have them yet
}

// FutureNode gives the definition of a node that may come, or nil.
func (x *Config) FutureNode(name string) *NodeDef {
	for _, d := range x.Future {
		if d.Name == name {
			return d
		}
	}
	return nil
}

// HomeAccount gives the account of jobs that name none and whose user has no default account: DefaultAccount, else the
// first of Accounts, else "default".
func (x *Config) HomeAccount() string {
	switch {
	case x.Params.DefaultAccount != "":
		return x.Params.DefaultAccount
	case len(x.Accounts) > 0:
		return x.Accounts[0]
	}
	return "default"
}

func (x *Config) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, MaxName)
	wire.Ptrs(c, &x.Nodes, MaxList)
	wire.Ptrs(c, &x.Partitions, MaxList)
	wire.Struct(c, &x.Params)
	wire.Texts(c, &x.Accounts, MaxList, MaxName)
	wire.List(c, &x.Show, MaxFew)
	wire.Text(c, &x.Hash, MaxName)
	wire.List(c, &x.Licenses, MaxFew)
	wire.Ptrs(c, &x.Switches, MaxList)
	wire.List(c, &x.AtStart, MaxFew)
	wire.List(c, &x.Sets, MaxList)
	wire.Ptr(c, &x.Blocks)
	wire.Ptrs(c, &x.Topologies, MaxFew)
	wire.Ptrs(c, &x.Future, MaxList)
}

// NodeSet is a named set of nodes, for Nodes= of partitions: those named, and those with the feature.
type NodeSet struct {
	Name    string
	Feature string
	Nodes   []string
}

func (x *NodeSet) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Text(c, &x.Feature, MaxName)
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
}

// MaxLicenses bounds the kinds of licenses that a cluster has.
const MaxLicenses = 64

// Params are the cluster-wide settings that the state and the scheduler use. Spans are in seconds, memory in MiB.
type Params struct {
	KillWaitS       int64
	MinJobAgeS      int64
	NodeTimeoutS    int64
	HeartbeatS      int64
	MaxJobs         int32 // MaxJobCount
	MaxArraySize    int32
	JobRequeue      bool
	DefMemPerCPU    int64 // 0: a CPU's even share of its node's memory
	DefMemPerNode   int64
	MaxMemPerCPU    int64
	MaxMemPerNode   int64
	MemConsumed     bool   // SelectTypeParameters names memory
	WholeCores      bool   // CPUs are given out in whole cores
	EnforceLimits   string // EnforcePartLimits: NO, ANY or ALL
	ReturnToService int32
	QueueDepth      int32 // default_queue_depth: blocked jobs looked at per cycle and partition
	NeedAccount     bool  // AccountingStorageEnforce names associations: an unknown account is refused
	MaxScript       int32 // bytes
	DefaultAccount  string

	Priority    Priority
	HoldLimits  bool     // AccountingStorageEnforce names limits: limits of associations and QOS hold jobs
	EnforceQOS  bool     // ... qos: a job's QOS must be one of its association's
	EnforceSafe bool     // ... safe: a job starts only if its limit in minutes lets it end
	TrackTRES   []string // AccountingStorageTRES beyond cpu, mem, node and billing
	PrivateData []string // what users may not see of other users, in lower case
	UserTop     bool     // SchedulerParameters=enable_user_top
	Backfill    Backfill
	MaxStart    int32 // sched_max_job_start: jobs started in one pass; 0: no limit

	LLN          bool  // CR_LLN: the least loaded nodes first
	SwitchWaitS  int64 // max_switch_wait
	DefCPUPerGPU int32 // JobDefaults; 0: none
	DefMemPerGPU int64 // MiB
	Preempt      Preempt

	GPUMemMarginMiB int64 // of each GPU's memory, left to the driver (GpuMemSafetyMargin)
	Rules           NodeRules

	LimitStop     bool  // assoc_limit_stop: a job that a limit holds blocks its partition
	MaxArrayTasks int32 // max_array_tasks: most tasks of one array; 0: only MaxArraySize counts
	PartDepth     int32 // partition_job_depth, without backfill: jobs tried in one pass from each partition; 0: no limit

	MailProg   string // the program with which the leader sends mail; "": no mail is sent
	MailDomain string // mail domain of users who give no address; "": the mail program chooses

	GPUIdle GPUIdle // GpuIdlePolicy, for partitions that say nothing else

	AlertProgram string    // the leader runs it when nodes and GPUs fail and come back
	GPUSelect    GPUSelect // preference among GPUs that suit a job equally

	Ship   ShipRules
	Alerts AlertRules

	QueryRows int32 // QueryRateLimit: rows a second that one user may list; 0: the default, -1: no limit
	Certs     CertRules

	SlurmUID    uint32 // of SlurmUser, who has the rights of root; 0: it is root
	LoginRights Rights // the most that users have on login hosts

	ReconfigFlags []string // what reconfigure leaves of operators' changes: KeepPartInfo, KeepPartState

	SubmitHook SubmitHook
	Power      PowerRules

	Price   price.Table
	Elastic ElasticRules
	Cache   GPUCache

	ExpediteHoldS int64 // ExpediteHoldTime: how long nodes are kept for a job that was lost to another node; 0: not at all

	TopoOptional bool // TopologyParam: the topology counts only for jobs that ask for it
	Dragonfly    bool // likewise: a job that needs several leaf switches is spread over as many as it can

	JobEvents JobEvents

	KillInvalidDep bool  // DependencyParameters: jobs whose dependencies can't be fulfilled any more are cancelled
	MaxDepDepth    int32 // likewise: jobs tested for a circle of dependencies; 0: all

	MaxStored int64 // max_user_scripts_size: bytes of scripts and environments of one user's jobs; 0: any number

	FirstJob JobID // FirstJobId: submissions get at least this number

	ShellStep string // the options of the step in which galloc starts a shell on the job's first node; "": it runs here

	Exits ExitRules

	ResvOverS       int64  // ResvOverRun: seconds that jobs may run beyond the end of their reservation, or Unlimited
	LeadOn, LeadOff string // SlurmctldPrimaryOnProg and OffProg: run by the controller that begins or ceases to lead
	TrackWCKey      bool   // jobs get their user's default wckey, and usage is kept by wckeys
	EnforceWCKeys   bool   // AccountingStorageEnforce names wckeys: a job's must be one of its user's
	CompleteWaitS   int64  // CompleteWait: while jobs are COMPLETING for less, no others start; 0: they do
	CompleteParts   bool   // reduce_completing_frag: that holds only in partitions that share nodes with theirs
	ResvProlog      string // run by the leader when a reservation begins
	ResvEpilog      string // and when it ends
	Crontabs        bool   // ScronParameters=enable: users may have crontabs
	CronCancel      bool   // explicit_scancel: their jobs are cancelled only with --cron
	InactiveS       int64  // InactiveLimit: how long an allocation's command may not be heard of; 0: any time
	WholeSockets    bool   // CPUs are given out in whole sockets, where a partition says nothing else
	UserTriggers    bool   // allow_user_triggers: users other than root and SlurmUser may have triggers
	CyclicCores     bool   // cores are taken from a node's sockets in turn: CR_Core without CR_CORE_DEFAULT_DIST_BLOCK
	WholeNodes      bool   // SelectType=select/linear: jobs get all CPUs of their nodes
	OneTask         bool   // CR_ONE_TASK_PER_CORE: --ntasks-per-core=1 for jobs that say nothing else
	BindGres        bool   // ENFORCE_BINDING_GRES: likewise --gres-flags=enforce-binding
	RequeueDelayS   int64  // requeue_delay: how long a job waits that a user or its exit code has put back
}

func (x *Params) Wire(c *wire.C) {
	wire.Int(c, &x.KillWaitS)
	wire.Int(c, &x.MinJobAgeS)
	wire.Int(c, &x.NodeTimeoutS)
	wire.Int(c, &x.HeartbeatS)
	wire.Int(c, &x.MaxJobs)
	wire.Int(c, &x.MaxArraySize)
	wire.Bool(c, &x.JobRequeue)
	wire.Int(c, &x.DefMemPerCPU)
	wire.Int(c, &x.DefMemPerNode)
	wire.Int(c, &x.MaxMemPerCPU)
	wire.Int(c, &x.MaxMemPerNode)
	wire.Bool(c, &x.MemConsumed)
	wire.Bool(c, &x.WholeCores)
	wire.Text(c, &x.EnforceLimits, MaxText)
	wire.Int(c, &x.ReturnToService)
	wire.Int(c, &x.QueueDepth)
	wire.Bool(c, &x.NeedAccount)
	wire.Int(c, &x.MaxScript)
	wire.Text(c, &x.DefaultAccount, MaxName)
	wire.Struct(c, &x.Priority)
	wire.Bool(c, &x.HoldLimits)
	wire.Bool(c, &x.EnforceQOS)
	wire.Bool(c, &x.EnforceSafe)
	wire.Texts(c, &x.TrackTRES, MaxList, MaxName)
	wire.Texts(c, &x.PrivateData, MaxList, MaxName)
	wire.Bool(c, &x.UserTop)
	wire.Struct(c, &x.Backfill)
	wire.Int(c, &x.MaxStart)
	wire.Bool(c, &x.LLN)
	wire.Int(c, &x.SwitchWaitS)
	wire.Int(c, &x.DefCPUPerGPU)
	wire.Int(c, &x.DefMemPerGPU)
	wire.Struct(c, &x.Preempt)
	wire.Int(c, &x.GPUMemMarginMiB)
	wire.Struct(c, &x.Rules)
	wire.Bool(c, &x.LimitStop)
	wire.Int(c, &x.MaxArrayTasks)
	wire.Int(c, &x.PartDepth)
	wire.Text(c, &x.MailProg, MaxText)
	wire.Text(c, &x.MailDomain, MaxText)
	wire.Struct(c, &x.GPUIdle)
	wire.Text(c, &x.AlertProgram, MaxText)
	wire.Struct(c, &x.GPUSelect)
	wire.Struct(c, &x.Ship)
	wire.Struct(c, &x.Alerts)
	wire.Int(c, &x.QueryRows)
	wire.Struct(c, &x.Certs)
	wire.Int(c, &x.SlurmUID)
	wire.Int(c, &x.LoginRights)
	wire.Texts(c, &x.ReconfigFlags, MaxFew, MaxName)
	wire.Struct(c, &x.SubmitHook)
	wire.Struct(c, &x.Power)
	wire.Struct(c, &x.Price)
	wire.Struct(c, &x.Elastic)
	wire.Struct(c, &x.Cache)
	wire.Int(c, &x.ExpediteHoldS)
	wire.Bool(c, &x.TopoOptional)
	wire.Bool(c, &x.Dragonfly)
	wire.Struct(c, &x.JobEvents)
	wire.Bool(c, &x.KillInvalidDep)
	wire.Int(c, &x.MaxDepDepth)
	wire.Int(c, &x.MaxStored)
	wire.Int(c, &x.FirstJob)
	wire.Text(c, &x.ShellStep, MaxText)
	wire.Struct(c, &x.Exits)
	wire.Int(c, &x.ResvOverS)
	wire.Data(c, &x.LeadOn, MaxText)
	wire.Data(c, &x.LeadOff, MaxText)
	wire.Bool(c, &x.TrackWCKey)
	wire.Bool(c, &x.EnforceWCKeys)
	wire.Int(c, &x.CompleteWaitS)
	wire.Bool(c, &x.CompleteParts)
	wire.Data(c, &x.ResvProlog, MaxText)
	wire.Data(c, &x.ResvEpilog, MaxText)
	wire.Bool(c, &x.Crontabs)
	wire.Bool(c, &x.CronCancel)
	wire.Int(c, &x.InactiveS)
	wire.Bool(c, &x.WholeSockets)
	wire.Bool(c, &x.UserTriggers)
	wire.Bool(c, &x.CyclicCores)
	wire.Bool(c, &x.WholeNodes)
	wire.Bool(c, &x.OneTask)
	wire.Bool(c, &x.BindGres)
	wire.Int(c, &x.RequeueDelayS)
}

// JobEvents is the program that the leader runs when jobs start, end, are preempted and so on.
type JobEvents struct {
	Program  string   // JobEventProgram; "": there is none
	Kinds    []string // JobEventTypes: the events that it is told of; empty: all
	LimitS   int64    // JobEventTimeout
	Parallel int32    // JobEventParallel: how many run at once
}

// JobEventKinds are the events that it can be told of.
func JobEventKinds() []string {
	return []string{JobStart, JobEnd, JobRequeue, JobPreempt, JobSuspend, JobResume, JobResize}
}

// The events.
const (
	JobStart   = "start"   // it has its nodes, and begins
	JobEnd     = "end"     // it has ended for good
	JobRequeue = "requeue" // it is back in the queue
	JobPreempt = "preempt" // it is being ended or suspended for another job
	JobSuspend = "suspend"
	JobResume  = "resume"
	JobResize  = "resize" // it has other nodes than before
)

func (x *JobEvents) Wire(c *wire.C) {
	wire.Text(c, &x.Program, MaxText)
	wire.Texts(c, &x.Kinds, MaxFew, MaxName)
	wire.Int(c, &x.LimitS)
	wire.Int(c, &x.Parallel)
}

// GPUCache says how long GPUs are taken to have models loaded (--prefer=model:NAME). Old configurations have none.
type GPUCache struct {
	Tags  int32 // GpuCacheTags: the most models of a GPU; 0: none is remembered
	TimeS int64 // GpuCacheTagTime: after its last use, a model is forgotten
}

func (x *GPUCache) Wire(c *wire.C) {
	wire.Int(c, &x.Tags)
	wire.Int(c, &x.TimeS)
}

// ElasticRules are about jobs that grow into what is free (--elastic). Configurations of before have none: all 0.
type ElasticRules struct {
	GraceS int64 // ElasticGrace: from the question to the moment at which nodes are taken, for jobs that don't say it
	PauseS int64 // ElasticPause: a job whose size has changed does not grow for as long
}

func (x *ElasticRules) Wire(c *wire.C) {
	wire.Int(c, &x.GraceS)
	wire.Int(c, &x.PauseS)
}

// SubmitHook is the program that the leader shows each submission and each change of a job to before it is made.
type SubmitHook struct {
	Program  string // JobSubmitProgram; "": there is none
	User     string // JobSubmitUser, its login name or number; "": gctld's own, or nobody if that is root
	LimitS   int64  // JobSubmitTimeout
	Parallel int32  // JobSubmitParallel: how many run at once
	Pass     bool   // JobSubmitFailure=pass: what the program can't judge is taken as it is
	Operator bool   // JobSubmitRights=operator: what the program sets may be what only operators may set
}

func (x *SubmitHook) Wire(c *wire.C) {
	wire.Text(c, &x.Program, MaxText)
	wire.Text(c, &x.User, MaxName)
	wire.Int(c, &x.LimitS)
	wire.Int(c, &x.Parallel)
	wire.Bool(c, &x.Pass)
	wire.Bool(c, &x.Operator)
}

// ShipRules bound the accounting records that the controllers have. Configurations of before have none: all 0.
type ShipRules struct {
	MaxWaiting int64 // MaxDBDMsgs: records that wait for gdbd; 0: no bound

	// Records that gdbd has acknowledged are kept until one of these is exceeded, to send them again to a gdbd that was
	// restored. KeepRecords 0: none are.
	KeepRecords int64
	KeepBytes   int64
	KeepS       int64
}

func (x *ShipRules) Wire(c *wire.C) {
	wire.Int(c, &x.MaxWaiting)
	wire.Int(c, &x.KeepRecords)
	wire.Int(c, &x.KeepBytes)
	wire.Int(c, &x.KeepS)
}

// AlertRules say from when on troubles of daemons are told to AlertProgram; 0: never.
type AlertRules struct {
	LostS       int64 // a controller or gdbd that does not answer
	PassS       int64 // a pass of the scheduler that is not completed while jobs wait
	RecordsPct  int32 // of MaxWaiting: records that wait for gdbd
	DiskFreePct int32 // room on a controller's disk
	DiskSlowMS  int64 // a write of a controller's log
	CertDays    int32 // before a controller's certificate expires
}

func (x *AlertRules) Wire(c *wire.C) {
	wire.Int(c, &x.LostS)
	wire.Int(c, &x.PassS)
	wire.Int(c, &x.RecordsPct)
	wire.Int(c, &x.DiskFreePct)
	wire.Int(c, &x.DiskSlowMS)
	wire.Int(c, &x.CertDays)
}

// GPUSelect is GpuSelectPolicy with GpuScoreWeights.
type GPUSelect struct {
	Spread bool // spread over groups of near GPUs; otherwise use as few groups as possible
	First  bool // the cost counts before connections: topology is not in the list

	// The cost of a GPU with all memory in use, at full utilization, at 100 degrees, and that was busy just now. All 0:
	// cost does not count.
	Mem, Util, Temp, Idle int32

	FirstNode bool // a job gets the first node that holds it, whatever other jobs ask for
}

func (x *GPUSelect) Wire(c *wire.C) {
	wire.Bool(c, &x.Spread)
	wire.Bool(c, &x.First)
	wire.Int(c, &x.Mem)
	wire.Int(c, &x.Util)
	wire.Int(c, &x.Temp)
	wire.Int(c, &x.Idle)
	wire.Bool(c, &x.FirstNode)
}

// ByCost reports whether readings count.
func (g GPUSelect) ByCost() bool { return g.Mem|g.Util|g.Temp|g.Idle != 0 }

// GPUIdle says what happens to jobs whose GPUs are all idle, so many seconds after the last activity; 0: nothing.
type GPUIdle struct {
	WarnS   int64 // a line in their output
	CancelS int64
	Mail    bool // the warning is also sent by mail, even if the user asked for no mail
}

func (x *GPUIdle) Wire(c *wire.C) {
	wire.Int(c, &x.WarnS)
	wire.Int(c, &x.CancelS)
	wire.Bool(c, &x.Mail)
}

// Backfill is SchedulerType with the bf_ part of SchedulerParameters. Counts of 0 are no limit.
type Backfill struct {
	On             bool // SchedulerType=sched/backfill
	IntervalS      int64
	MaxTimeS       int64
	WindowS        int64
	ResolutionS    int64
	MaxTest        int32
	MaxStart       int32
	MaxPart        int32
	MaxUser        int32
	MaxUserPart    int32
	MaxAssoc       int32
	MaxArrayResv   int32
	MinAgeReserveS int64
	MinPrioReserve int64
	Continue       bool
	BusyNodes      bool
	MinIntervalUS  int64 // sched_min_interval: shortest time between two passes, microseconds
	DelayS         int64 // defer: submissions are planned within batch_sched_delay and not at once; 0: at once
}

func (x *Backfill) Wire(c *wire.C) {
	wire.Bool(c, &x.On)
	wire.Int(c, &x.IntervalS)
	wire.Int(c, &x.MaxTimeS)
	wire.Int(c, &x.WindowS)
	wire.Int(c, &x.ResolutionS)
	wire.Int(c, &x.MaxTest)
	wire.Int(c, &x.MaxStart)
	wire.Int(c, &x.MaxPart)
	wire.Int(c, &x.MaxUser)
	wire.Int(c, &x.MaxUserPart)
	wire.Int(c, &x.MaxAssoc)
	wire.Int(c, &x.MaxArrayResv)
	wire.Int(c, &x.MinAgeReserveS)
	wire.Int(c, &x.MinPrioReserve)
	wire.Bool(c, &x.Continue)
	wire.Bool(c, &x.BusyNodes)
	wire.Int(c, &x.MinIntervalUS)
	wire.Int(c, &x.DelayS)
}

// Expect is the scheduler's expectation for a pending job. It is computed for lists and never stored.
type Expect struct {
	Start Time // 0: not known
	Nodes []string

	// The partition's defaults, for what the job did not ask for.
	LimitS     int64 // seconds; 0: it asked
	MemPerCPU  int64 // MiB; 0: it asked, or there is no such default
	MemPerNode int64

	// its place in a partition's queue, the best of all its partitions, from 1; 0: not computed, or it does not wait
	// for its turn
	Position int32
	IdleS    int64 // of a running job: for how long all of its GPUs have been idle, seconds

	// Between these moments it starts if jobs run as long as their users' jobs did lately; 0: not known. Start is the
	// sure one: all jobs run to their limits.
	Early, Late Time
}

func (x *Expect) Wire(c *wire.C) {
	wire.Int(c, &x.Start)
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
	wire.Int(c, &x.LimitS)
	wire.Int(c, &x.MemPerCPU)
	wire.Int(c, &x.MemPerNode)
	wire.Int(c, &x.Position)
	wire.Int(c, &x.IdleS)
	wire.Int(c, &x.Early)
	wire.Int(c, &x.Late)
}

// TimeLimitS gives the job's time limit in seconds, Unlimited, or NotSet if the partition's limit would apply and is
// not known here.
func (j *Job) TimeLimitS() int64 {
	switch {
	case j.Run != nil:
		return j.Run.LimitS
	case j.Spec.LimitS == NotSet && j.Expect != nil && j.Expect.LimitS != 0:
		return j.Expect.LimitS
	}
	return j.Spec.LimitS
}

// Memory gives the memory that the job asks for per CPU or per node, MiB; its partition's default if it asked for none.
func (j *Job) Memory() (perCPU, perNode int64) {
	if s := j.Spec; s.MemPerCPU != 0 || s.MemPerNode != 0 || j.Expect == nil {
		return s.MemPerCPU, s.MemPerNode
	}
	return j.Expect.MemPerCPU, j.Expect.MemPerNode
}

// PrioFlags is PriorityFlags, a set. The numbers are stored: append only.
type PrioFlags uint32

// The flags. STRICT_QOS is gbatch's own: the QOS's class comes before every other factor.
const (
	PrioAccrueAlways PrioFlags = 1 << iota
	PrioCalculateRunning
	PrioIncrOnly
	PrioMaxTRES
	PrioNoFairTree
	PrioNoNormalAssoc
	PrioNoNormalPart
	PrioNoNormalQOS
	PrioNoNormalTRES
	PrioSizeRelative // SMALL_RELATIVE_TO_TIME
	PrioStrictQOS
	PrioMaxTRESGres
	PrioDepthOblivious
)

// Priority is how priorities are computed: Slurm's multifactor plugin. Spans are in seconds.
type Priority struct {
	Multifactor     bool // PriorityType=priority/multifactor; false: first come, first served
	HalfLifeS       int64
	CalcPeriodS     int64
	MaxAgeS         int64
	ResetPeriod     string // NONE NOW DAILY WEEKLY MONTHLY QUARTERLY YEARLY
	FavorSmall      bool
	Flags           PrioFlags
	WeightAge       int64
	WeightAssoc     int64
	WeightFairShare int64
	WeightJobSize   int64
	WeightPartition int64
	WeightQOS       int64
	WeightTRES      []TRESWeight
	Named           bool // PriorityType, a weight or a flag is in the configuration
}

func (x *Priority) Wire(c *wire.C) {
	wire.Bool(c, &x.Multifactor)
	wire.Int(c, &x.HalfLifeS)
	wire.Int(c, &x.CalcPeriodS)
	wire.Int(c, &x.MaxAgeS)
	wire.Text(c, &x.ResetPeriod, MaxName)
	wire.Bool(c, &x.FavorSmall)
	wire.Int(c, &x.Flags)
	wire.Int(c, &x.WeightAge)
	wire.Int(c, &x.WeightAssoc)
	wire.Int(c, &x.WeightFairShare)
	wire.Int(c, &x.WeightJobSize)
	wire.Int(c, &x.WeightPartition)
	wire.Int(c, &x.WeightQOS)
	wire.List(c, &x.WeightTRES, MaxFew)
	wire.Bool(c, &x.Named)
}

// Weighted reports whether any factor, or strict classes of QOS, counts. Otherwise priorities stay as they were at
// submission.
func (p *Priority) Weighted() bool {
	return p.Multifactor &&
		(p.WeightAge|p.WeightAssoc|p.WeightFairShare|p.WeightJobSize|p.WeightPartition|p.WeightQOS != 0 ||
			len(p.WeightTRES) > 0 || p.Flags&PrioStrictQOS != 0)
}

// Default reports whether the configuration leaves the order of jobs open: the cluster then uses the rules of package
// sched/policy.
func (p *Priority) Default() bool { return !p.Named && !p.Weighted() }

// InOrder reports whether jobs go in order of arrival (priority/basic).
func (p *Priority) InOrder() bool { return p.Named && !p.Multifactor }

// Partition is a named set of nodes with its limits.
type Partition struct {
	Name              string
	Nodes             []string
	Default           bool
	Hidden            bool
	State             PartState
	MaxTimeS          int64 // Unlimited or seconds
	DefTimeS          int64 // NotSet: MaxTimeS
	MinNodes          int32
	MaxNodes          int32 // 0: no limit
	DefMemPerCPU      int64
	DefMemPerNode     int64
	MaxMemPerCPU      int64
	MaxMemPerNode     int64
	MaxCPUsPerNode    int32
	PriorityTier      int32
	PriorityJobFactor int32
	AllowAccounts     []string
	DenyAccounts      []string
	AllowGroups       []string
	AllowQOS          []string
	DenyQOS           []string
	RootOnly          bool
	DisableRoot       bool
	ExclusiveUser     bool
	OverSubscribe     string       // NO, YES, FORCE, EXCLUSIVE as configured
	Show              []KV         // every key as `gcontrol show partition` prints it
	Billing           []TRESWeight // TRESBillingWeights; empty: CPUs
	QOS               string       // its limits hold in the partition, together with those of the job's own QOS
	LLN               bool         // the least loaded nodes first
	DefCPUPerGPU      int32        // JobDefaults; 0: the cluster's
	DefMemPerGPU      int64        // MiB
	GraceTimeS        int64        // grace time of jobs that are preempted here, with preempt/partition_prio
	PreemptMode       string       // OFF, CANCEL, REQUEUE or SUSPEND
	// how many jobs may share the same CPUs (OverSubscribe=YES:4 or FORCE:4); up to 1: jobs share no CPUs
	ShareMax    int32
	ShareForced bool     // all jobs share, also those without --oversubscribe
	ReqResv     bool     // only jobs in reservations run here
	GPUIdle     *GPUIdle // GpuIdlePolicy of its own; nil: the cluster's
	NodeCPUs    int32    // of its largest node; 0: not known

	Expr string // Nodes= as it was written, with ALL and names of sets; "": written before this was kept
	// Set and Made say what operators have changed since the configuration was read, which the next reconfigure undoes:
	// the keys that they set, and whether the partition is in no file.
	Set  []string
	Made bool

	Power *PartPower // nil: the cluster's

	// Headroom is ReservePercent, hundredths of a percent: the part of what is in service here (GPUs, or CPUs where there
	// are none) that only jobs that can be ended at once, and those of a QOS with the flag Headroom, may have; 0: none.
	Headroom int32
	Order    QueuePolicy // of the jobs that wait here

	Topology string // the topology that places its jobs; "": the default one

	OverTimeS int64 // OverTimeLimit: seconds that its jobs may run beyond their time limits, or Unlimited

	AllocNodes []string // hosts from which jobs may be submitted; nil: all
	Alternate  string   // the partition that takes its new jobs while it takes none itself; "": none

	CPUBind string // CpuBind: how tasks are bound whose command does not say it; "": the nodes or the cluster say it

	MaxCPUsPerSocket int32   // for all of its jobs together; 0: no limit
	CPUUnit          CPUUnit // what its jobs get CPUs in
	NodeSockets      int32   // the most that one of its nodes has; 0: not known
}

func (x *Partition) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
	wire.Bool(c, &x.Default)
	wire.Bool(c, &x.Hidden)
	wire.Int(c, &x.State)
	wire.Int(c, &x.MaxTimeS)
	wire.Int(c, &x.DefTimeS)
	wire.Int(c, &x.MinNodes)
	wire.Int(c, &x.MaxNodes)
	wire.Int(c, &x.DefMemPerCPU)
	wire.Int(c, &x.DefMemPerNode)
	wire.Int(c, &x.MaxMemPerCPU)
	wire.Int(c, &x.MaxMemPerNode)
	wire.Int(c, &x.MaxCPUsPerNode)
	wire.Int(c, &x.PriorityTier)
	wire.Int(c, &x.PriorityJobFactor)
	wire.Texts(c, &x.AllowAccounts, MaxList, MaxName)
	wire.Texts(c, &x.DenyAccounts, MaxList, MaxName)
	wire.Texts(c, &x.AllowGroups, MaxList, MaxName)
	wire.Texts(c, &x.AllowQOS, MaxList, MaxName)
	wire.Texts(c, &x.DenyQOS, MaxList, MaxName)
	wire.Bool(c, &x.RootOnly)
	wire.Bool(c, &x.DisableRoot)
	wire.Bool(c, &x.ExclusiveUser)
	wire.Text(c, &x.OverSubscribe, MaxName)
	wire.List(c, &x.Show, MaxFew)
	wire.List(c, &x.Billing, MaxFew)
	wire.Text(c, &x.QOS, MaxName)
	wire.Bool(c, &x.LLN)
	wire.Int(c, &x.DefCPUPerGPU)
	wire.Int(c, &x.DefMemPerGPU)
	wire.Int(c, &x.GraceTimeS)
	wire.Text(c, &x.PreemptMode, MaxName)
	wire.Int(c, &x.ShareMax)
	wire.Bool(c, &x.ShareForced)
	wire.Bool(c, &x.ReqResv)
	wire.Ptr(c, &x.GPUIdle)
	wire.Int(c, &x.NodeCPUs)
	wire.Text(c, &x.Expr, MaxText)
	wire.Texts(c, &x.Set, MaxFew, MaxName)
	wire.Bool(c, &x.Made)
	wire.Ptr(c, &x.Power)
	wire.Int(c, &x.Headroom)
	wire.Int(c, &x.Order)
	wire.Text(c, &x.Topology, MaxName)
	wire.Int(c, &x.OverTimeS)
	wire.Texts(c, &x.AllocNodes, MaxList, MaxName)
	wire.Text(c, &x.Alternate, MaxName)
	wire.Text(c, &x.CPUBind, MaxName)
	wire.Int(c, &x.MaxCPUsPerSocket)
	wire.Int(c, &x.CPUUnit)
	wire.Int(c, &x.NodeSockets)
}

// CPUUnit is what CPUs are given to a partition's jobs in. The numbers are stored: append only.
type CPUUnit uint8

// The units.
const (
	CPUUnitDefault CPUUnit = iota // the cluster's
	CPUUnitCore                   // CR_Core
	CPUUnitSocket                 // CR_Socket
)

// SocketsOf reports whether a partition's jobs get whole sockets. As in Slurm its own unit counts only where the
// cluster's is at least a core.
func (x *Params) SocketsOf(p *Partition) bool {
	return x.WholeCores && (p.CPUUnit == CPUUnitSocket || p.CPUUnit == CPUUnitDefault && x.WholeSockets)
}

// Closed reports whether the partition takes no further jobs.
func (x *Partition) Closed() bool { return x.State == PartDrain || x.State == PartInactive }

// QueuePolicy is the order of a partition's waiting jobs. The numbers are stored: append only.
type QueuePolicy uint8

// The policies.
const (
	OrderDefault   QueuePolicy = iota // that of the cluster
	OrderFIFO                         // of submission
	OrderPriority                     // by priority
	OrderFairShare                    // the user who has had least of their share first
	OrderCapacity                     // the account that has least of its guarantee first
)

var queuePolicies = [...]string{"default", "fifo", "priority", "fairshare", "capacity"}

// QueuePolicies gives the words for the policies, in order of their numbers.
func QueuePolicies() []string { return queuePolicies[:] }

// String gives the configuration's word.
func (q QueuePolicy) String() string {
	if int(q) < len(queuePolicies) {
		return queuePolicies[q]
	}
	return queuePolicies[OrderDefault]
}

// LimitS gives the time limit that a job gets here, seconds.
func (p *Partition) LimitS(sp *Spec) int64 {
	if sp.LimitS != NotSet {
		return sp.LimitS
	}
	return p.TimeS()
}

// TimeS gives the time limit of jobs that say none: DefaultTime, but no more than MaxTime, which may be lowered below
// it.
func (p *Partition) TimeS() int64 {
	switch {
	case p.DefTimeS != NotSet && p.MaxTimeS != NotSet:
		return min(p.DefTimeS, p.MaxTimeS)
	case p.DefTimeS != NotSet:
		return p.DefTimeS
	case p.MaxTimeS != NotSet:
		return p.MaxTimeS
	}
	return Unlimited
}

// Exclusive reports whether each job in the partition gets its nodes for itself (OverSubscribe=EXCLUSIVE).
func (p *Partition) Exclusive() bool { return equalFold(p.OverSubscribe, "EXCLUSIVE") }

// PartState says whether a partition takes and starts jobs. The numbers are stored: append only.
type PartState uint8

// The values, as in Slurm.
const (
	PartUp       PartState = iota
	PartDown               // takes jobs, starts none
	PartDrain              // takes none, starts the jobs that it has
	PartInactive           // neither
)

func (s PartState) String() string {
	switch s {
	case PartDown:
		return "DOWN"
	case PartDrain:
		return "DRAIN"
	case PartInactive:
		return "INACTIVE"
	}
	return "UP"
}

// Preempt says which jobs may preempt others, and how.
type Preempt struct {
	ByQOS       bool   // PreemptType=preempt/qos
	ByPartition bool   // preempt/partition_prio
	Mode        string // OFF, CANCEL, REQUEUE or SUSPEND
	Within      bool   // also within one QOS
	ExemptS     int64  // a job is safe until it has run that long
	MinExempt   uint32 // jobs of this priority or above are safe; 0: none
	Gang        bool   // jobs that share CPUs take turns
	SliceS      int64  // SchedulerTimeSlice: how long a turn takes
	StopGraceS  int64  // suspend_grace_time: between SIGTSTP and the freeze
	Youngest    bool   // preempt_youngest_first: the job that has run the shortest time ends first, whatever its class
	Strict      bool   // preempt_strict_order: the least important jobs end, even if more have to
}

func (x *Preempt) Wire(c *wire.C) {
	wire.Bool(c, &x.ByQOS)
	wire.Bool(c, &x.ByPartition)
	wire.Text(c, &x.Mode, MaxName)
	wire.Bool(c, &x.Within)
	wire.Int(c, &x.ExemptS)
	wire.Int(c, &x.MinExempt)
	wire.Bool(c, &x.Gang)
	wire.Int(c, &x.SliceS)
	wire.Int(c, &x.StopGraceS)
	wire.Bool(c, &x.Youngest)
	wire.Bool(c, &x.Strict)
}
