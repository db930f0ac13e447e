package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Steps are made by the daemon of the node that runs a job's batch script. A command talks to it over a socket of its
// own (StepSocket), because open files travel on it: see internal/client/steps.go for the conversation.

// StepSocket is the file name of a node's socket for steps, in LocalSocketDir.
func StepSocket(node string) string { return "steps-" + node }

// Limits of a step.
const (
	MaxStepTasks = 4096
	MaxStepArgs  = 65536
	// MaxStepFrame bounds a message on a socket for steps, bytes.
	MaxStepFrame = 8 << 20
	// MaxStepFDs is how many open files one message with files brings along.
	MaxStepFDs = 128
)

// StepNone is the parent of a step that was not asked for from within another one.
const StepNone int32 = -1

// StepRequest asks for a step.
type StepRequest struct {
	RequestID string // the same again when the connection broke
	Job       model.JobID
	Parent    int32 // the step from within which it is asked for, or StepNone
	Name      string
	Submit    string // the whole command line
	Program   string // absolute
	Argv      []string
	Multi     []StepProgram // --multi-prog: for some ranks another program
	Env       []byte        // NAME=value, each ended by a NUL
	Dir       string
	Umask     uint32
	Limits    []model.RLimit
	LimitS    int64 // 0: the job's
	Immediate bool  // refuse rather than wait for other steps
	Prolog    string
	Epilog    string
	Need      StepNeed
	Bind      StepBind

	Node string // the first node of the job, which manages its steps; "": the one that is asked

	Terminal *StepTerminal // of task 0 (--pty); nil: tasks have none

	Had bool // it was given a step already, and wants no other: the connection broke

	Host string // where the command runs, as that machine is called
	PID  int32  // of the command
}

func (x *StepRequest) Wire(c *wire.C) {
	wire.Text(c, &x.RequestID, model.MaxName)
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Parent)
	wire.Text(c, &x.Name, model.MaxName)
	wire.Text(c, &x.Submit, model.MaxText)
	wire.Text(c, &x.Program, model.MaxText)
	wire.Texts(c, &x.Argv, model.MaxList, model.MaxText)
	wire.List(c, &x.Multi, model.MaxList)
	wire.Bytes(c, &x.Env, model.MaxFile)
	wire.Text(c, &x.Dir, model.MaxText)
	wire.Int(c, &x.Umask)
	wire.List(c, &x.Limits, model.MaxFew)
	wire.Int(c, &x.LimitS)
	wire.Bool(c, &x.Immediate)
	wire.Text(c, &x.Prolog, model.MaxText)
	wire.Text(c, &x.Epilog, model.MaxText)
	wire.Struct(c, &x.Need)
	wire.Struct(c, &x.Bind)
	wire.Text(c, &x.Node, model.MaxName)
	wire.Ptr(c, &x.Terminal)
	wire.Bool(c, &x.Had)
	wire.Text(c, &x.Host, model.MaxName)
	wire.Int(c, &x.PID)
}

// StepTerminal is the terminal that a step's first task gets. The other tasks read and write nothing.
type StepTerminal struct {
	Rows  int32
	Cols  int32
	Modes []uint32 // c_iflag, c_oflag, c_cflag, c_lflag; empty: the kernel's own
	Chars []byte   // c_cc
}

func (x *StepTerminal) Wire(c *wire.C) {
	wire.Int(c, &x.Rows)
	wire.Int(c, &x.Cols)
	wire.Ints(c, &x.Modes, model.MaxList)
	wire.Bytes(c, &x.Chars, model.MaxFile)
}

// StepProgram is what some tasks of a step run.
type StepProgram struct {
	Ranks   model.TaskSet
	Program string
	Argv    []string
}

func (x *StepProgram) Wire(c *wire.C) {
	wire.List(c, &x.Ranks, model.MaxMany)
	wire.Text(c, &x.Program, model.MaxText)
	wire.Texts(c, &x.Argv, model.MaxList, model.MaxText)
}

// StepNeed is what a step asks for of its job's resources. Zero values were not given.
type StepNeed struct {
	MinNodes     int32
	MaxNodes     int32
	Tasks        int32
	TasksPerNode int32
	CPUsPerTask  int32
	CPUsPerGPU   int32
	TasksPerGPU  int32
	MemPerNode   int64 // MiB
	MemPerCPU    int64
	MemPerGPU    int64
	Gres         []model.GresReq
	NoGres       bool     // --gres=none
	Nodes        []string // --nodelist
	NotNodes     []string // --exclude
	Ranks        []string // --distribution=arbitrary: the node of each task
	Dist         uint8    // how tasks go to nodes: DistBlock...
	Plane        int32    // with DistPlane
	Exact        bool     // only what is asked for, not all CPUs of its nodes
	Overlap      bool     // share with other steps
	Overcommit   bool
	ThreadsCore  int32 // most threads of a core that tasks use; 0: all
}

func (x *StepNeed) Wire(c *wire.C) {
	wire.Int(c, &x.MinNodes)
	wire.Int(c, &x.MaxNodes)
	wire.Int(c, &x.Tasks)
	wire.Int(c, &x.TasksPerNode)
	wire.Int(c, &x.CPUsPerTask)
	wire.Int(c, &x.CPUsPerGPU)
	wire.Int(c, &x.TasksPerGPU)
	wire.Int(c, &x.MemPerNode)
	wire.Int(c, &x.MemPerCPU)
	wire.Int(c, &x.MemPerGPU)
	wire.List(c, &x.Gres, model.MaxFew)
	wire.Bool(c, &x.NoGres)
	wire.Texts(c, &x.Nodes, model.MaxList, model.MaxName)
	wire.Texts(c, &x.NotNodes, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Ranks, model.MaxList, model.MaxText)
	wire.Int(c, &x.Dist)
	wire.Int(c, &x.Plane)
	wire.Bool(c, &x.Exact)
	wire.Bool(c, &x.Overlap)
	wire.Bool(c, &x.Overcommit)
	wire.Int(c, &x.ThreadsCore)
}

// How tasks are spread over nodes, and over a node's cores.
const (
	DistDefault uint8 = iota
	DistBlock
	DistCyclic
	DistPlane
	DistArbitrary
	DistFCyclic
)

// StepBind says what each task is bound to.
type StepBind struct {
	CPU        uint8 // BindAuto...
	CPUList    []string
	CPUVerbose bool
	GPU        uint8
	GPUCount   int32 // single:N, per_task:N
	GPUList    []string
	GPUVerbose bool
	Mem        uint8
	MemList    []string
	MemVerbose bool
	MemPrefer  bool
	Cores      uint8 // how tasks go to cores: DistBlock...
	OneThread  bool  // --hint=nomultithread

	TasksPerGPU int32 // --ntasks-per-gpu: so many tasks see each GPU, unless GPU says something else; 0: all
	GPUImplied  bool  // GPU follows from --gpus-per-task: DefaultGpuBind comes before it
}

func (x *StepBind) Wire(c *wire.C) {
	wire.Int(c, &x.CPU)
	wire.Texts(c, &x.CPUList, model.MaxList, model.MaxText)
	wire.Bool(c, &x.CPUVerbose)
	wire.Int(c, &x.GPU)
	wire.Int(c, &x.GPUCount)
	wire.Texts(c, &x.GPUList, model.MaxList, model.MaxText)
	wire.Bool(c, &x.GPUVerbose)
	wire.Int(c, &x.Mem)
	wire.Texts(c, &x.MemList, model.MaxList, model.MaxText)
	wire.Bool(c, &x.MemVerbose)
	wire.Bool(c, &x.MemPrefer)
	wire.Int(c, &x.Cores)
	wire.Bool(c, &x.OneThread)
	wire.Int(c, &x.TasksPerGPU)
	wire.Bool(c, &x.GPUImplied)
}

// The ways of binding. Not each makes sense for each resource.
const (
	BindAuto     uint8 = iota
	BindNone           // not at all
	BindRank           // CPU: the task's number
	BindThreads        // CPU
	BindCores          // CPU
	BindSockets        // CPU
	BindLdoms          // CPU
	BindMap            // CPU, GPU, memory: by list
	BindMask           // CPU, GPU, memory: by list of masks
	BindClosest        // GPU
	BindSingle         // GPU
	BindPerTask        // GPU
	BindLocal          // memory
	BindRankLdom       // CPU
)

// StepFiles says what the tasks' standard files are. It is the answer to StepCreated.
type StepFiles struct {
	Files []StepFile // stdin, stdout, stderr
	IO    *StepIO    // where tasks on other hosts get their files; nil: they need none
}

func (x *StepFiles) Wire(c *wire.C) {
	wire.List(c, &x.Files, model.MaxList)
	wire.Ptr(c, &x.IO)
}

// StepIO says where the command takes and gives what tasks on other hosts write and read (internal/stepio).
type StepIO struct {
	Host string // "": where the connection comes from on which this is said
	Port int32
	Key  []byte
}

func (x *StepIO) Wire(c *wire.C) {
	wire.Text(c, &x.Host, model.MaxName)
	wire.Int(c, &x.Port)
	wire.Bytes(c, &x.Key, model.MaxFile)
}

// StepFile is one of them.
type StepFile struct {
	Mode    uint8
	Pattern string // FilePath: with %t and the like, absolute
	Append  bool
	Task    int32 // FileOne
	FDs     int32 // how many open files follow for it: for tasks of the host that the command is on
}

func (x *StepFile) Wire(c *wire.C) {
	wire.Int(c, &x.Mode)
	wire.Text(c, &x.Pattern, model.MaxText)
	wire.Bool(c, &x.Append)
	wire.Int(c, &x.Task)
	wire.Int(c, &x.FDs)
}

// What a task's file is.
const (
	FileNull   uint8 = iota
	FilePath         // opened for each task
	FileShared       // one open file for all tasks
	FileEach         // an open file for each task
	FileOne          // an open file for one task, nothing for the others
)

// StepEventKind says what a StepEvent tells.
type StepEventKind uint8

// The kinds.
const (
	StepWaits   StepEventKind = iota + 1 // Text: what holds what it needs
	StepRefused                          // Text: why
	StepCreated                          // it has its resources; files are wanted
	StepNote                             // Text: a line for the user
	StepStarted                          // Task runs as PID
	StepExited                           // Task has ended
	StepDone                             // all have ended and nothing is left of them
	StepLine                             // Text: a line for the user, printed as it is
)

// StepEvent is what the daemon tells of a step.
type StepEvent struct {
	Kind   StepEventKind
	Step   int32
	Text   string
	Task   int32
	Node   string
	PID    int32
	Code   int32
	Signal int32
	Core   bool
	OOM    bool
	Layout []StepNode
	Job    *StepJob // StepCreated
	Cause  model.StopCause
	Direct string      // StepCreated: the node that takes open files for its tasks; "": none does
	Use    *model.Exit // StepDone of a part: what it used
}

func (x *StepEvent) Wire(c *wire.C) {
	wire.Int(c, &x.Kind)
	wire.Int(c, &x.Step)
	wire.Text(c, &x.Text, model.MaxText)
	wire.Int(c, &x.Task)
	wire.Text(c, &x.Node, model.MaxName)
	wire.Int(c, &x.PID)
	wire.Int(c, &x.Code)
	wire.Int(c, &x.Signal)
	wire.Bool(c, &x.Core)
	wire.Bool(c, &x.OOM)
	wire.List(c, &x.Layout, model.MaxList)
	wire.Ptr(c, &x.Job)
	wire.Int(c, &x.Cause)
	wire.Text(c, &x.Direct, model.MaxName)
	wire.Ptr(c, &x.Use)
}

// StepPart asks a node for its part of a step, or for word of it. The node answers with StepCreated where it waits for
// files, with StepRefused, and with what has happened to the tasks.
type StepPart struct {
	Job     model.JobID
	Attempt uint32
	Step    int32
	Here    int32 // the node's place in Nodes
	Name    string
	At      model.Time
	Nodes   []StepNode
	Request *StepRequest // nil: only word of it
}

func (x *StepPart) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.Step)
	wire.Int(c, &x.Here)
	wire.Text(c, &x.Name, model.MaxName)
	wire.Int(c, &x.At)
	wire.List(c, &x.Nodes, model.MaxList)
	wire.Ptr(c, &x.Request)
}

// Why a node refuses its part (StepEvent.Code).
const (
	PartRefused int32 = iota
	PartNotReady
	PartUnknown
)

// StepDoor comes before a request that another host's daemon passes on.
type StepDoor struct {
	UID uint32
}

func (x *StepDoor) Wire(c *wire.C) {
	wire.Int(c, &x.UID)
}

// PeersRequest asks where nodes' daemons answer each other.
type PeersRequest struct {
	Nodes []string
}

func (x *PeersRequest) Wire(c *wire.C) {
	wire.Texts(c, &x.Nodes, model.MaxList, model.MaxName)
}

// PeersReply has host:port for each node, "" for one that is not connected.
type PeersReply struct {
	Addrs []string
}

func (x *PeersReply) Wire(c *wire.C) {
	wire.Texts(c, &x.Addrs, model.MaxList, model.MaxText)
}

// StepNode is a step's part of one node.
type StepNode struct {
	Node   string
	Index  int32 // of the node in the job's allocation
	CPUs   model.Bits
	MemMiB int64 // 0: the job's
	Gres   []model.GresAlloc
	Ranks  []int32 // of the tasks here, ascending
}

func (x *StepNode) Wire(c *wire.C) {
	wire.Text(c, &x.Node, model.MaxName)
	wire.Int(c, &x.Index)
	wire.Ints(c, &x.CPUs, model.MaxFew)
	wire.Int(c, &x.MemMiB)
	wire.List(c, &x.Gres, model.MaxFew)
	wire.Ints(c, &x.Ranks, model.MaxMany)
}

// StepJob is what names of output files can say of the job.
type StepJob struct {
	Name    string
	User    string
	ArrayID model.JobID
	Task    int32

	KillBad bool  // KillOnBadExit of the cluster, for a command that was not told
	WaitS   int64 // WaitTime, likewise, seconds
}

func (x *StepJob) Wire(c *wire.C) {
	wire.Text(c, &x.Name, model.MaxName)
	wire.Text(c, &x.User, model.MaxName)
	wire.Int(c, &x.ArrayID)
	wire.Int(c, &x.Task)
	wire.Bool(c, &x.KillBad)
	wire.Int(c, &x.WaitS)
}

// StepSignal has a signal sent to all tasks; 0 ends the step.
type StepSignal struct {
	Signal int32
	Text   string // said to the user by the daemon, when the step is ended
}

func (x *StepSignal) Wire(c *wire.C) {
	wire.Int(c, &x.Signal)
	wire.Text(c, &x.Text, model.MaxText)
}

// Frames on a socket for steps: one of these before each message.
const (
	StepFrameRequest uint8 = iota + 1
	StepFrameFiles         // followed by the descriptors, MaxStepFDs with each byte
	StepFrameSignal
	StepFrameEvent
	StepFrameDoor   // StepDoor, then a request
	StepFramePart   // StepPart
	StepFrameForget // the step's manager has the end of the part written down
)
