package model

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model/container"
	"gbatch/internal/wire"
)

// Spec is a job's submission. All tasks of an array share it, and it is never edited: an update makes a new one. The
// daemon fills in the submitting user (UID, GID, Groups) from the socket's peer credentials; the command never does.
type Spec struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []uint32
	User   string // login name, or the UID in digits
	Group  string

	Account    string
	QOS        string
	Partitions []string // empty at submission: the default partition
	Comment    string

	// The script and environment are stored once per content: these are their keys (see Blob).
	Script  string
	Env     string
	Args    []string // arguments of the script
	Command string   // path of the script as users see it
	Submit  string   // the whole command line
	WorkDir string
	StdIn   string
	StdOut  string // patterns as the user wrote them, made absolute
	StdErr  string // "": the same as StdOut
	Limits  []RLimit
	Host    string // submit host

	MinNodes     int32
	MaxNodes     int32
	Tasks        int32 // 0: not given, one per node
	TasksPerNode int32 // 0: not given
	CPUsPerTask  int32 // 0: not given
	MinCPUs      int32 // --mincpus, per node
	MemPerNode   int64 // MiB; 0: not given; WholeMem: all of a node
	MemPerCPU    int64 // MiB; 0: not given
	TmpMiB       int64
	Gres         []GresReq
	Features     string // one feature, or several joined with &
	ReqNodes     []string
	ExcNodes     []string

	LimitS    int64 // time limit in seconds; NotSet: the partition's default; Unlimited
	Nice      int32
	PrioReq   uint32 // --priority, operators only; 0: not given
	Begin     Time
	Deadline  Time
	DepText   string
	Deps      []Dep
	ArrayText string
	Tasklist  TaskSet
	Throttle  int32

	// Small fields are together to save memory: a controller holds tens of thousands of Specs.
	Umask      uint32
	Append     bool // --open-mode=append
	Exclusive  bool
	HoldReq    bool
	Requeue    bool
	NoRequeue  bool // given on the command line; JobRequeue does not count then
	KillOnDep  bool // --kill-on-invalid-dep
	DepAny     bool // dependencies joined with "?": one is enough
	Overcommit bool

	More        *Needs // rare requests; nil: none
	Reservation string // "": none

	Warning *Warning // a signal before the time limit; nil: none

	From Origin // who has said whose job it is

	SID int32 // session of the submitting process on Host; 0: not known

	OwnLimits bool // its user has said which Limits it takes over (--propagate): NodeRules.Uninherited does not count
	OwnMode   bool // likewise for Append (--open-mode) and NodeRules.AppendFiles

	WCKey string // --wckey; with PresetMark: its user named none, and has this default. "": none

	Cron *Cron // the entry of its user's crontab that it is; nil: of none

	// the certificate of the host that spoke for the user who submitted it or changed it last; nil: a controller's kernel
	// said who that was, or it isn't known, or the user has released it since that was revoked
	Via *Cert
}

func (x *Spec) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Int(c, &x.UID)
	wire.Int(c, &x.GID)
	wire.Ints(c, &x.Groups, MaxList)
	wire.Text(c, &x.User, MaxName)
	wire.Text(c, &x.Group, MaxName)
	wire.Text(c, &x.Account, MaxName)
	wire.Text(c, &x.QOS, MaxName)
	wire.Texts(c, &x.Partitions, MaxList, MaxName)
	wire.Text(c, &x.Comment, MaxText)
	wire.Text(c, &x.Script, MaxName)
	wire.Text(c, &x.Env, MaxName)
	wire.DataList(c, &x.Args, MaxList, MaxText)
	wire.Text(c, &x.Command, MaxText)
	wire.Derived(c, &x.Submit, MaxText)
	wire.Text(c, &x.WorkDir, MaxText)
	wire.Text(c, &x.StdIn, MaxText)
	wire.Text(c, &x.StdOut, MaxText)
	wire.Text(c, &x.StdErr, MaxText)
	wire.List(c, &x.Limits, MaxFew)
	wire.Text(c, &x.Host, MaxName)
	wire.Int(c, &x.MinNodes)
	wire.Int(c, &x.MaxNodes)
	wire.Int(c, &x.Tasks)
	wire.Int(c, &x.TasksPerNode)
	wire.Int(c, &x.CPUsPerTask)
	wire.Int(c, &x.MinCPUs)
	wire.Int(c, &x.MemPerNode)
	wire.Int(c, &x.MemPerCPU)
	wire.Int(c, &x.TmpMiB)
	wire.List(c, &x.Gres, MaxFew)
	wire.Text(c, &x.Features, MaxText)
	wire.Texts(c, &x.ReqNodes, MaxList, MaxName)
	wire.Texts(c, &x.ExcNodes, MaxList, MaxName)
	wire.Int(c, &x.LimitS)
	wire.Int(c, &x.Nice)
	wire.Int(c, &x.PrioReq)
	wire.Int(c, &x.Begin)
	wire.Int(c, &x.Deadline)
	wire.Text(c, &x.DepText, MaxText)
	wire.List(c, &x.Deps, MaxList)
	wire.Text(c, &x.ArrayText, MaxText)
	wire.List(c, &x.Tasklist, MaxRanges)
	wire.Int(c, &x.Throttle)
	wire.Int(c, &x.Umask)
	wire.Bool(c, &x.Append)
	wire.Bool(c, &x.Exclusive)
	wire.Bool(c, &x.HoldReq)
	wire.Bool(c, &x.Requeue)
	wire.Bool(c, &x.NoRequeue)
	wire.Bool(c, &x.KillOnDep)
	wire.Bool(c, &x.DepAny)
	wire.Bool(c, &x.Overcommit)
	wire.Ptr(c, &x.More)
	wire.Text(c, &x.Reservation, MaxText)
	wire.Ptr(c, &x.Warning)
	wire.Int(c, &x.From)
	wire.Int(c, &x.SID)
	wire.Bool(c, &x.OwnLimits)
	wire.Bool(c, &x.OwnMode)
	wire.Text(c, &x.WCKey, MaxName)
	wire.Ptr(c, &x.Cron)
	wire.Ptr(c, &x.Via)
}

// MaxWarningS is the longest time before the limit, seconds, as in Slurm.
const MaxWarningS = 65535

// Warning is the signal that a job wants to get some time before its time limit (--signal).
type Warning struct {
	Signal  int32
	BeforeS int64 // seconds before the limit
	Batch   bool  // only for the batch shell; otherwise only for the steps
	Yields  bool  // R: it may run on reserved nodes, and gives way to the reservation's jobs; see Spec.YieldsTo
}

// MaxSignal is the largest number of a signal.
const MaxSignal = 64

// Check says what is wrong with a warning.
func (x *Warning) Check() error {
	if x.Signal < 1 || x.Signal > MaxSignal || x.BeforeS < 0 || x.BeforeS > MaxWarningS {
		return fmt.Errorf("signal %d, %d seconds before the limit; signals go from 1 to %d, seconds from 0 to %d", x.Signal,
			x.BeforeS, MaxSignal, MaxWarningS)
	}
	return nil
}

func (x *Warning) Wire(c *wire.C) {
	wire.Int(c, &x.Signal)
	wire.Int(c, &x.BeforeS)
	wire.Bool(c, &x.Batch)
	wire.Bool(c, &x.Yields)
}

// NoticeS gives how many seconds before it gives way to a reservation's job a job has to know it; -1: it does not give
// way.
func (s *Spec) NoticeS() int64 {
	if w := s.Warning; w != nil && w.Yields {
		return w.BeforeS
	}
	return -1
}

// YieldsTo reports whether a job that is not in a reservation may run on its nodes until one of its jobs needs them.
func (s *Spec) YieldsTo(r *Reservation) bool {
	return Yields(s.NoticeS(), r.DelayS)
}

// Yields reports whether jobs with a notice may have what a reservation with a MaxStartDelay lends.
func Yields(noticeS, delayS int64) bool { return delayS > 0 && noticeS >= 0 && noticeS <= delayS }

// Needs has requests that few jobs make. Like a Spec it is never edited.
type Needs struct {
	Prefer      string // features that are preferred, not required (--prefer)
	Licenses    []LicenseCount
	AnyLicense  bool  // licenses joined with |: one is enough
	Switches    int32 // most leaf switches, 0: any number
	SwitchWaitS int64 // how long to wait for so few switches, seconds; NotSet: max_switch_wait

	// Least hardware of a node; 0: not given.
	Sockets        int32
	CoresPerSocket int32
	ThreadsPerCore int32 // also the most threads of a core that tasks use

	TasksPerSocket int32 // most tasks on a socket; 0: no limit
	TasksPerCore   int32
	CPUsPerGPU     int32 // 0: not given
	MemPerGPU      int64 // MiB; 0: not given

	Contiguous    bool // consecutive nodes of the configuration
	Spread        bool // as many nodes as possible, tasks spread evenly (--spread-job)
	FewNodes      bool // as few nodes as hold the job (--use-min-nodes)
	ExclusiveUser bool // only jobs of the same user on its nodes (--exclusive=user)

	GPUMemMiB     int64     // memory that each GPU must have, or have left if it is shared (--gpu-mem); 0: not given
	TimeMinS      int64     // --time-min: least time limit, if a shorter one lets it start sooner, seconds; 0: not given
	GPUsPerSocket []GresReq // Count of each socket that the job uses (--gpus-per-socket); Per has no meaning
	Share         bool      // it may share its CPUs if the partition allows it (--oversubscribe)
	SampleS       int32     // --acctg-freq, seconds between samples; 0: not given, -1: at the end only
	Bind          *BindWish // for the job's steps; nil: nothing
	Interactive   bool      // made by galloc or grun: its script only holds the resources
	Mail          *MailWish // nil: no mail is wanted
	NoPreempt     bool      // it can't be preempted (--no-preempt); its QOS has to allow that

	// requests that repeat Gres in other words (--gpus together with --gpus-per-task): shown, but not counted
	GresToo   []GresReq
	GPUIndex  Bits // exactly these GPUs of each node, by the node's numbers (--gpu-index); Gres has their count
	NeverIdle bool // GpuIdlePolicy does not apply to it (--gpu-idle=off); its QOS has to allow that

	OOMKill  bool // a step ends as a whole when one of its processes is killed for lack of memory (--oom-kill-step)
	GresBind GresBinding

	Segment  int32       // nodes of a segment, which is never divided between blocks; 0: not given (--segment)
	Segments SegmentWish // how the segments lie to each other

	Container *container.Wish // the script runs in it; nil: in none
	Elastic   *Elastic        // nil: its number of nodes is its own

	GPUMemAuto bool    // GPUMemMiB is what jobs of its user and name used (--gpu-mem=auto); 0: nothing is known of them
	OOMRequeue bool    // it is requeued, with more, if it runs out of GPU memory (--requeue-on-oom)
	Expedite   bool    // lost with a node, it starts again before others (--requeue=expedite)
	KeepOnDep  bool    // DependencyParameters=kill_invalid_depend does not apply to it (--kill-on-invalid-dep=no)
	Stated     *Stated // what decides nothing; nil: nothing is said
	Attended   bool    // Interactive: its command says again and again that it is there (InactiveLimit)
	NoKill     bool    // it goes on without nodes that fail, as long as its first node is up (--no-kill)
	Reboot     bool    // its nodes are rebooted before it begins, and are its own (--reboot)
	External   bool    // its processes are another system's (EXTERNAL_JOB): nodes without a daemon will do
}

// Elastic lets a job have more nodes than it asks for while nobody else needs them (--elastic=MIN-MAX). It starts with
// MinNodes or more, and is asked to give back what it has beyond that.
type Elastic struct {
	Max    int32 // most nodes; the least number is Spec.MinNodes, which MaxNodes equals
	GPUs   int32 // of each node, if the user counted GPUs (--elastic=gpus:MIN-MAX); 0: nodes
	Signal int32 // when its nodes have changed, or will; 0: none
	Batch  bool  // the signal is for the batch script only; otherwise for the steps only
	GraceS int64 // from the question to the moment at which the nodes are taken, seconds; NotSet: ElasticGrace; NoGrace
}

// NoGrace in Elastic.GraceS: nodes are taken at once (--elastic-grace=0).
const NoGrace int64 = -1

func (x *Elastic) Wire(c *wire.C) {
	wire.Int(c, &x.Max)
	wire.Int(c, &x.GPUs)
	wire.Int(c, &x.Signal)
	wire.Bool(c, &x.Batch)
	wire.Int(c, &x.GraceS)
}

func (x *Needs) Wire(c *wire.C) {
	wire.Text(c, &x.Prefer, MaxText)
	wire.List(c, &x.Licenses, MaxFew)
	wire.Bool(c, &x.AnyLicense)
	wire.Int(c, &x.Switches)
	wire.Int(c, &x.SwitchWaitS)
	wire.Int(c, &x.Sockets)
	wire.Int(c, &x.CoresPerSocket)
	wire.Int(c, &x.ThreadsPerCore)
	wire.Int(c, &x.TasksPerSocket)
	wire.Int(c, &x.TasksPerCore)
	wire.Int(c, &x.CPUsPerGPU)
	wire.Int(c, &x.MemPerGPU)
	wire.Bool(c, &x.Contiguous)
	wire.Bool(c, &x.Spread)
	wire.Bool(c, &x.FewNodes)
	wire.Bool(c, &x.ExclusiveUser)
	wire.Int(c, &x.GPUMemMiB)
	wire.Int(c, &x.TimeMinS)
	wire.List(c, &x.GPUsPerSocket, MaxFew)
	wire.Bool(c, &x.Share)
	wire.Int(c, &x.SampleS)
	wire.Ptr(c, &x.Bind)
	wire.Bool(c, &x.Interactive)
	wire.Ptr(c, &x.Mail)
	wire.Bool(c, &x.NoPreempt)
	wire.List(c, &x.GresToo, MaxFew)
	wire.Ints(c, &x.GPUIndex, MaxFew)
	wire.Bool(c, &x.NeverIdle)
	wire.Bool(c, &x.OOMKill)
	wire.Int(c, &x.GresBind)
	wire.Int(c, &x.Segment)
	wire.Int(c, &x.Segments)
	wire.Ptr(c, &x.Container)
	wire.Ptr(c, &x.Elastic)
	wire.Bool(c, &x.GPUMemAuto)
	wire.Bool(c, &x.OOMRequeue)
	wire.Bool(c, &x.Expedite)
	wire.Bool(c, &x.KeepOnDep)
	wire.Ptr(c, &x.Stated)
	wire.Bool(c, &x.Attended)
	wire.Bool(c, &x.NoKill)
	wire.Bool(c, &x.Reboot)
	wire.Bool(c, &x.External)
}

// SegmentWish says how the segments of a job lie to each other.
type SegmentWish int8

// The wishes.
const (
	SegmentsAnywhere SegmentWish = iota
	SegmentsTogether             // all in one block of the higher levels (--consolidate-segments)
	SegmentsApart                // each in a base block of its own (--spread-segments)
)

// GresBinding says whether a job's CPUs have to be near its generic resources (--gres-flags).
type GresBinding int8

// The bindings.
const (
	BindPreferred GresBinding = iota // near ones if they are free
	BindEnforced                     // only near ones, and each unit near one of them
	BindDisabled                     // any
)

// SaidPerSocket gives --ntasks-per-socket as it was given: --hint=memory_bound also limits the tasks of a socket, and
// nothing shows it, as in Slurm.
func (n *Needs) SaidPerSocket() int32 {
	if n.Bind != nil && n.Bind.Hint == "memory_bound" {
		return 0
	}
	return n.TasksPerSocket
}

// BindWish has the options for layout and binding of the tasks of a job's steps, as the user wrote them: the job's
// environment passes them on to grun. "" is not given.
type BindWish struct {
	GPU  string // --gpu-bind
	CPU  string // --cpu-bind
	Mem  string // --mem-bind
	Dist string // --distribution
	Hint string // --hint

	TasksPerGPU int32 // --ntasks-per-gpu: number of a step's tasks that see each GPU

	Hosts string // with --distribution=arbitrary: the node of each task, if some have several; "": the nodes of the job
}

// BlockCores and CyclicCores are how --distribution wishes a node's cores to be chosen (see SocketDist).
const (
	BlockCores  = "block"  // from as few sockets as possible
	CyclicCores = "cyclic" // from all sockets in turn
)

// SocketDist gives how the job wishes the cores of a node to be chosen among its sockets: BlockCores, CyclicCores, or
// "" as the cluster does. The planes of --distribution=plane are blocks.
func (x *BindWish) SocketDist() string {
	if x == nil {
		return ""
	}
	dist, _, _ := strings.Cut(x.Dist, ",")
	parts := strings.Split(dist, ":")
	switch {
	case strings.HasPrefix(dist, "plane"):
		return BlockCores
	case len(parts) < 2:
		return ""
	case parts[1] == "block":
		return BlockCores
	case parts[1] == "cyclic" || parts[1] == "fcyclic":
		return CyclicCores
	}
	return ""
}

func (x *BindWish) Wire(c *wire.C) {
	wire.Text(c, &x.GPU, MaxText)
	wire.Text(c, &x.CPU, MaxText)
	wire.Text(c, &x.Mem, MaxText)
	wire.Text(c, &x.Dist, MaxText)
	wire.Text(c, &x.Hint, MaxText)
	wire.Int(c, &x.TasksPerGPU)
	wire.Text(c, &x.Hosts, MaxText)
}

// Stated has the values of options that gbatch takes and that decide nothing here: the job shows them, and its
// environment passes them on, as in Slurm. "" is not given.
type Stated struct {
	CPUFreq     string // --cpu-freq, in Slurm's spelling: Low-High:Performance
	GPUFreq     string // --gpu-freq
	Profile     string // --profile, in Slurm's spelling: None, Energy,Task
	Network     string // --network
	BurstBuffer string // --bb
	Sampling    string // --acctg-freq as written; Needs.SampleS counts
	BatchNode   string // --batch: all nodes of the job have these features
	DelayBootS  int64  // --delay-boot, seconds
}

func (x *Stated) Wire(c *wire.C) {
	wire.Text(c, &x.CPUFreq, MaxName)
	wire.Text(c, &x.GPUFreq, MaxName)
	wire.Text(c, &x.Profile, MaxName)
	wire.Text(c, &x.Network, MaxText)
	wire.Text(c, &x.BurstBuffer, MaxText)
	wire.Text(c, &x.Sampling, MaxText)
	wire.Text(c, &x.BatchNode, MaxText)
	wire.Int(c, &x.DelayBootS)
}

// Stated gives what is stated of s; never nil.
func (s *Spec) Stated() *Stated {
	if s.More == nil || s.More.Stated == nil {
		return &Stated{}
	}
	return s.More.Stated
}

// LicenseCount is a number of one license: what a job asks for, or what the cluster has.
type LicenseCount struct {
	Name  string
	Count int64
}

func (x *LicenseCount) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Int(c, &x.Count)
}

// AskedGres gives the generic resources as the user asked for them: Gres and GresToo.
func (s *Spec) AskedGres() []GresReq {
	if s.More == nil || len(s.More.GresToo) == 0 {
		return s.Gres
	}
	return append(slices.Clone(s.Gres), s.More.GresToo...)
}

// Extra gives the rare requests, or the zero Needs.
func (s *Spec) Extra() Needs {
	if s.More == nil {
		return Needs{}
	}
	return *s.More
}

// Stride gives how many nodes of a running job come and go together: those of a segment, of an elastic job that has
// segments. Then the first so many nodes of its allocation are a segment, the next ones too, and so on.
func (s *Spec) Stride() int {
	if s.More == nil || s.More.Elastic == nil {
		return 1
	}
	return max(1, int(s.More.Segment))
}

// Elastic gives how far the job may grow, nil if it may not.
func (s *Spec) Elastic() *Elastic {
	if s.More == nil {
		return nil
	}
	return s.More.Elastic
}

// LeastS gives the least time that the job accepts, seconds: --time-min or, without it, limitS.
func (s *Spec) LeastS(limitS int64) int64 {
	if s.More != nil && s.More.TimeMinS > 0 && s.More.TimeMinS < limitS {
		return s.More.TimeMinS
	}
	return limitS
}

// MaxGPUIndex bounds the numbers in Needs.GPUIndex.
const MaxGPUIndex = 1024

// WholeMem, in MemPerNode, asks for all memory of each node (--mem=0).
const WholeMem int64 = -1

// RLimit is one resource limit of the submitting process (setrlimit numbers; ^0 is unlimited).
type RLimit struct {
	Resource uint32
	Soft     uint64
	Hard     uint64
}

func (x *RLimit) Wire(c *wire.C) {
	wire.Int(c, &x.Resource)
	wire.Int(c, &x.Soft)
	wire.Int(c, &x.Hard)
}

// limitNames are the limits that a job can take over, by setrlimit's number: Slurm's.
var limitNames = [...]string{"CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS"}

// LimitNames gives the names of the limits that a job can take over; a name's index is setrlimit's number.
func LimitNames() []string { return limitNames[:] }

// Inherited gives the limits that a job or step takes over from where it was submitted, if its user has not said which:
// those whose bit of setrlimit's number is not in uninherited.
func Inherited(limits []RLimit, uninherited uint32) []RLimit {
	if uninherited == 0 {
		return limits
	}
	return slices.DeleteFunc(slices.Clone(limits), func(l RLimit) bool { return uninherited>>l.Resource&1 != 0 })
}

// CheckLimits refuses limits that no job can set, such as those of real-time priorities, and more than there are.
func CheckLimits(limits []RLimit) error {
	if len(limits) > len(limitNames) {
		return fmt.Errorf("%d resource limits: a job can set %d", len(limits), len(limitNames))
	}
	for _, l := range limits {
		if l.Resource >= uint32(len(limitNames)) {
			return fmt.Errorf("resource limit number %d: a job can set %s only", l.Resource, strings.Join(limitNames[:], ", "))
		}
	}
	return nil
}

// GresPer says whether a count of a generic resource is per node, job or task.
type GresPer uint8

// The numbers are stored: append only.
const (
	PerNode GresPer = iota // --gres, --gpus-per-node
	PerJob                 // --gpus
	PerTask                // --gpus-per-task
)

// GresReq asks for Count units of a generic resource such as gpu, of any type when Type is "".
type GresReq struct {
	Name  string
	Type  string
	Count int32
	Per   GresPer
	// thousandths of a GPU's shares, for a sharing resource (--gpus=0.5); if nodes differ, Count is the least number;
	// 0: Count is used
	Milli int32
}

func (x *GresReq) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Text(c, &x.Type, MaxName)
	wire.Int(c, &x.Count)
	wire.Int(c, &x.Per)
	wire.Int(c, &x.Milli)
}

// DepKind is a kind of dependency. The numbers are stored: append only.
type DepKind uint8

// The kinds, as in Slurm.
const (
	DepAfter DepKind = iota + 1
	DepAfterAny
	DepAfterOK
	DepAfterNotOK
	DepAfterCorr
	DepSingleton
	DepExpand // its nodes are for a running job
	numDepKinds
)

var depNames = [numDepKinds]string{DepAfter: "after", DepAfterAny: "afterany", DepAfterOK: "afterok",
	DepAfterNotOK: "afternotok", DepAfterCorr: "aftercorr", DepSingleton: "singleton",
	DepExpand: "expand"}

func (k DepKind) String() string {
	if k == 0 || k >= numDepKinds {
		return "unknown"
	}
	return depNames[k]
}

// ParseDepKind reads a kind's name. There are no burst buffers: what waits for their stage-out waits for the job's end.
func ParseDepKind(text string) (DepKind, bool) {
	if text == "afterburstbuffer" {
		return DepAfterAny, true
	}
	for k := DepAfter; k < numDepKinds; k++ {
		if text == depNames[k] {
			return k, true
		}
	}
	return 0, false
}

// Dep is one condition on another job.
type Dep struct {
	Kind   DepKind
	Job    JobID // 0 for singleton
	Task   int32 // one task of an array, or NoTask for the job or the whole array
	DelayS int64 // after:job+minutes, in seconds
	Failed bool  // it can never be fulfilled

	Why string // with Failed: what ended, and how: "job 12_3 ended FAILED"; "" if that is not known

	Array bool // Job is an array, as far as was known when the dependency was made; for what is shown
}

func (x *Dep) Wire(c *wire.C) {
	wire.Int(c, &x.Kind)
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Task)
	wire.Int(c, &x.DelayS)
	wire.Bool(c, &x.Failed)
	wire.Text(c, &x.Why, MaxText)
	wire.Bool(c, &x.Array)
}

// Blob is a script or an environment. Each content is stored once, with a count of the jobs that use it.
type Blob struct {
	Key    string // hex SHA-256 of the plain content
	Data   []byte // as stored: see Packed
	Size   int32  // plain size, bytes
	Packed bool   // Data is compressed (DEFLATE)
	Refs   int32
}

func (x *Blob) Wire(c *wire.C) {
	wire.Text(c, &x.Key, MaxName)
	wire.Bytes(c, &x.Data, MaxFile)
	wire.Int(c, &x.Size)
	wire.Bool(c, &x.Packed)
	wire.Int(c, &x.Refs)
}
