package proto

import "gbatch/internal/model"

// Steps are made by the daemon of the node that runs a job's batch script. A command talks to it over a socket of its own
// (StepSocket), because open files travel on it: see internal/client/steps.go for the conversation.

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
//
//gbatch:codec
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
}

// StepProgram is what some tasks of a step run.
//
//gbatch:codec
type StepProgram struct {
	Ranks   model.TaskSet
	Program string
	Argv    []string
}

// StepNeed is what a step asks for of its job's resources. Zero values were not given.
//
//gbatch:codec
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
//
//gbatch:codec
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
//
//gbatch:codec
type StepFiles struct {
	Files []StepFile // stdin, stdout, stderr
}

// StepFile is one of them.
//
//gbatch:codec
type StepFile struct {
	Mode    uint8
	Pattern string // FilePath: with %t and the like, absolute
	Append  bool
	Task    int32 // FileOne
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
//
//gbatch:codec
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
}

// StepNode is a step's part of one node.
//
//gbatch:codec
type StepNode struct {
	Node   string
	Index  int32 // of the node in the job's allocation
	CPUs   model.Bits
	MemMiB int64 // 0: the job's
	Gres   []model.GresAlloc
	Ranks  []int32 // of the tasks here, ascending
}

// StepJob is what names of output files can say of the job.
//
//gbatch:codec
type StepJob struct {
	Name    string
	User    string
	ArrayID model.JobID
	Task    int32
}

// StepSignal has a signal sent to all tasks; 0 ends the step.
//
//gbatch:codec
type StepSignal struct {
	Signal int32
	Text   string // said to the user by the daemon, when the step is ended
}

// Frames on a socket for steps: one of these before each message.
const (
	StepFrameRequest uint8 = iota + 1
	StepFrameFiles         // followed by the descriptors, MaxStepFDs with each byte
	StepFrameSignal
	StepFrameEvent
)
