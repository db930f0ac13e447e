package model

// Config is everything in the configuration that changes a decision. It is replicated: one command replaces it whole.
// Addresses, paths and log levels are local to each daemon and are not here.
//
//gbatch:codec
type Config struct {
	Cluster    string
	Nodes      []*NodeDef
	Partitions []*Partition
	Params     Params
	Accounts   []string // accounts that exist; empty: any name is one
	Show       []KV     // every setting as `gcontrol show config` prints it
	Hash       string   // of the files it came from
}

// Params are the cluster-wide settings that the state and the scheduler use. Spans are in seconds, memory in MiB.
//
//gbatch:codec
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
}

// Partition is a named set of nodes with its limits.
//
//gbatch:codec
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
	OverSubscribe     string // NO, YES, FORCE, EXCLUSIVE as configured
	Show              []KV   // every key as `gcontrol show partition` prints it
}

// Exclusive reports whether each job in the partition gets its nodes for itself (OverSubscribe=EXCLUSIVE).
func (p *Partition) Exclusive() bool { return equalFold(p.OverSubscribe, "EXCLUSIVE") }

// PartState is whether a partition takes and starts jobs. The numbers are stored: append only.
type PartState uint8

// The values, as in Slurm.
const (
	PartUp       PartState = iota
	PartDown               // takes jobs, starts none
	PartDrain              // takes none, starts those it has
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
