package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/model/container"
	"gbatch/internal/wire"
)

// The daemon of the node that runs a job's batch script makes the job's steps. A command talks to it over a separate
// socket (StepSocket), because open files are passed over it: internal/client/steps.go has the conversation.

// StepSocket is the file name of a node's socket for steps, in LocalSocketDir.
func StepSocket(node string) string { return "steps-" + node }

// Limits of a step.
const (
	MaxStepTasks = 4096
	MaxStepArgs  = 65536
	// MaxStepFrame bounds a message on a socket for steps, bytes.
	MaxStepFrame = 8 << 20
	// MaxStepFDs is how many open files one message with files carries.
	MaxStepFDs = 128
)

// StepNone is the parent of a step that was not started from within another step.
const StepNone int32 = -1

// StepRequest asks for a step.
type StepRequest struct {
	RequestID string // the same again after a broken connection
	Job       model.JobID
	Parent    int32 // the step from within which it is started, or StepNone
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
	Immediate bool  // of commands of earlier versions: refuse rather than wait. Now they stop waiting themselves
	Prolog    string
	Epilog    string
	Need      StepNeed
	Bind      StepBind

	Node string // the first node of the job, which manages its steps; "": the node that gets the request

	Terminal *StepTerminal // terminal of task 0 (--pty); nil: none

	Had bool // it has already got a step before the connection broke, and wants no other

	Host string // name of the host on which the command runs
	PID  int32  // of the command

	OOMKill int32 // --oom-kill-step: 1 or, for 0, -1; 0: as the job says

	KeepEnv bool   // --preserve-env: the tasks get the command's SLURM_JOB_NUM_NODES and SLURM_NTASKS
	Addr    string // IP address of Host; "": unknown

	Torch  bool   // --launcher=torch: the tasks get the variables of PyTorch's launcher
	Master string // host:port for the first task of Torch; the step's manager chooses it

	Receive *StepReceive // the tasks, one on each node, take in a file; nil: they run the command
	Copied  string       // the tasks run the command's copy at this path, with %j, %s and %N; "": the command
	Attach  *StepAttach  // joins the running step Parent and makes none; nil: asks for a step
	Async   bool         // its command wants the step's number at once, also while the step waits

	Container *container.Wish // the tasks run in it; nil: in none

	// Ports is what --resv-ports holds on the step's nodes. The command says how many, 0 for one more than a
	// node has tasks; the step's manager makes of it which, as in 12000-12003. "": none
	Ports string

	OwnLimits bool // as in model.Spec

	Whole bool // it runs on all nodes that its job keeps, which change: the tasks see them as the job's

	Interactive bool // it is the job's StepInteractive: one task on the first node, which takes nothing from other steps

	// Parts is how many components the command has (grun a : b), Command its name if all are steps of this job, which
	// begin together. 0: the step is alone.
	Command string
	Parts   int32

	NoKill bool // --no-kill: it goes on without the tasks of nodes that are lost
}

func (x *StepRequest) Wire(c *wire.C) {
	wire.ID(c, &x.RequestID, model.MaxName)
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Parent)
	wire.Text(c, &x.Name, model.MaxName)
	wire.Derived(c, &x.Submit, model.MaxText)
	wire.Data(c, &x.Program, model.MaxText)
	wire.DataList(c, &x.Argv, model.MaxList, model.MaxText)
	wire.List(c, &x.Multi, model.MaxList)
	wire.Bytes(c, &x.Env, model.MaxFile)
	wire.Data(c, &x.Dir, model.MaxText)
	wire.Int(c, &x.Umask)
	wire.List(c, &x.Limits, model.MaxFew)
	wire.Int(c, &x.LimitS)
	wire.Bool(c, &x.Immediate)
	wire.Data(c, &x.Prolog, model.MaxText)
	wire.Data(c, &x.Epilog, model.MaxText)
	wire.Struct(c, &x.Need)
	wire.Struct(c, &x.Bind)
	wire.Text(c, &x.Node, model.MaxName)
	wire.Ptr(c, &x.Terminal)
	wire.Bool(c, &x.Had)
	wire.Text(c, &x.Host, model.MaxName)
	wire.Int(c, &x.PID)
	wire.Int(c, &x.OOMKill)
	wire.Bool(c, &x.KeepEnv)
	wire.Text(c, &x.Addr, model.MaxName)
	wire.Bool(c, &x.Torch)
	wire.Text(c, &x.Master, model.MaxName)
	wire.Ptr(c, &x.Receive)
	wire.Data(c, &x.Copied, model.MaxText)
	wire.Ptr(c, &x.Attach)
	wire.Bool(c, &x.Async)
	wire.Ptr(c, &x.Container)
	wire.Text(c, &x.Ports, model.MaxText)
	wire.Bool(c, &x.OwnLimits)
	wire.Bool(c, &x.Whole)
	wire.Bool(c, &x.Interactive)
	wire.ID(c, &x.Command, model.MaxName)
	wire.Int(c, &x.Parts)
	wire.Bool(c, &x.NoKill)
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

// StepProgram is the program of some tasks of a step.
type StepProgram struct {
	Ranks   model.TaskSet
	Program string
	Argv    []string
}

func (x *StepProgram) Wire(c *wire.C) {
	wire.List(c, &x.Ranks, model.MaxMany)
	wire.Data(c, &x.Program, model.MaxText)
	wire.DataList(c, &x.Argv, model.MaxList, model.MaxText)
}

// StepNeed is a step's request for resources of its job. Zero values were not given.
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
	Exact        bool     // only the requested CPUs, not all of the job's CPUs on its nodes
	Overlap      bool     // share with other steps
	Overcommit   bool
	ThreadsCore  int32 // most threads of a core that tasks use; 0: all
	Pack         bool  // --distribution=...,pack: fill a node before the next one is used
	Fill         bool  // --cpus-per-task without a number of tasks: as many tasks as the nodes' CPUs are for
	NoPack       bool  // --distribution=...,nopack: as without it, which the tasks' environment tells
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
	wire.Bool(c, &x.Pack)
	wire.Bool(c, &x.Fill)
	wire.Bool(c, &x.NoPack)
}

// Distributions of tasks over nodes, and over a node's cores.
const (
	DistDefault uint8 = iota
	DistBlock
	DistCyclic
	DistPlane
	DistArbitrary
	DistFCyclic
)

// StepBind is the binding of each task.
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

	TasksPerGPU int32 // --ntasks-per-gpu: number of tasks that see each GPU, unless GPU says otherwise; 0: all
	GPUImplied  bool  // GPU comes from --gpus-per-task: DefaultGpuBind replaces it
	Threads     uint8 // how tasks go to the threads of a socket's cores: DistBlock...

	CPUQuiet   bool  // the command wants no report, whatever the configuration says
	CPUDefault bool  // CPU comes from the configuration: nobody is told if it is not possible
	CPUElse    uint8 // for BindAuto: where the numbers of tasks and CPUs don't match
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
	wire.Int(c, &x.Threads)
	wire.Bool(c, &x.CPUQuiet)
	wire.Bool(c, &x.CPUDefault)
	wire.Int(c, &x.CPUElse)
}

// The kinds of binding. Not every kind makes sense for every resource.
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

// StepEventKind is the kind of a StepEvent.
type StepEventKind uint8

// The kinds.
const (
	StepWaits   StepEventKind = iota + 1 // Text: what holds the resources that it needs
	StepRefused                          // Text: why
	StepCreated                          // it has its resources; files are wanted
	StepNote                             // Text: a line for the user
	StepStarted                          // Task runs as PID
	StepExited                           // Task has ended
	StepDone                             // all tasks have ended and nothing is left of them
	StepLine                             // Text: a line for the user, printed as it is
	StepJoined                           // IO: somebody wants what the tasks write
	StepAway                             // Node can't be reached: what its relay says of its tasks' ends is wanted
	StepAdopted                          // the answer to StepAdopt; Text: where the process is now
)

// StepEvent is the daemon's message about a step.
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
	Use    *model.Exit // StepDone of a part: exit and usage
	IO     *StepIO     // StepJoined
	Lost   bool        // StepExited of a step with NoKill: the task was lost with its node
	Began  model.Time  // StepStarted, StepExited: when the task began; 0: not known, or it did not
	Ended  model.Time  // StepExited: when it ended; 0: not known
}

func (x *StepEvent) Wire(c *wire.C) {
	wire.Int(c, &x.Kind)
	wire.Int(c, &x.Step)
	wire.Lines(c, &x.Text, model.MaxText)
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
	wire.Ptr(c, &x.IO)
	wire.Bool(c, &x.Lost)
	wire.Int(c, &x.Began)
	wire.Int(c, &x.Ended)
}

// StepPart asks a node for its part of a step, or for the state of that part. The node answers with StepCreated if it
// waits for files, with StepRefused, and with events of the tasks.
type StepPart struct {
	Job     model.JobID
	Attempt uint32
	Step    int32
	Here    int32 // the node's index in Nodes
	Name    string
	At      model.Time
	Nodes   []StepNode
	Request *StepRequest // nil: only its state
	Version uint32       // Run.Version of the job's nodes that the step was laid out on
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
	wire.Int(c, &x.Version)
}

// Why a node refuses its part (StepEvent.Code).
const (
	PartRefused int32 = iota
	PartNotReady
	PartUnknown
)

// StepDoor precedes a request that another host's daemon passes on.
type StepDoor struct {
	UID uint32
}

func (x *StepDoor) Wire(c *wire.C) {
	wire.Int(c, &x.UID)
}

// PeersRequest asks for the addresses at which nodes' daemons reach each other.
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

// StepNode is a step's part on one node.
type StepNode struct {
	Node   string
	Index  int32 // index of the node in the job's allocation
	CPUs   model.Bits
	MemMiB int64 // 0: the job's
	Gres   []model.GresAlloc
	Ranks  []int32 // ranks of the tasks here, ascending
}

func (x *StepNode) Wire(c *wire.C) {
	wire.Text(c, &x.Node, model.MaxName)
	wire.Int(c, &x.Index)
	wire.Ints(c, &x.CPUs, model.MaxFew)
	wire.Int(c, &x.MemMiB)
	wire.List(c, &x.Gres, model.MaxFew)
	wire.Ints(c, &x.Ranks, model.MaxMany)
}

// StepJob has the job's data for patterns of output files.
type StepJob struct {
	Name    string
	User    string
	ArrayID model.JobID
	Task    int32

	KillBad bool  // KillOnBadExit of the cluster, for a command without the option
	WaitS   int64 // WaitTime, likewise, seconds

	KillWaitS int64 // KillWait of the cluster, seconds; 0 if it is not known

	MPI string // MpiDefault of the cluster, for a command without the option
}

func (x *StepJob) Wire(c *wire.C) {
	wire.Text(c, &x.Name, model.MaxName)
	wire.Text(c, &x.User, model.MaxName)
	wire.Int(c, &x.ArrayID)
	wire.Int(c, &x.Task)
	wire.Bool(c, &x.KillBad)
	wire.Int(c, &x.WaitS)
	wire.Int(c, &x.KillWaitS)
	wire.Text(c, &x.MPI, model.MaxName)
}

// StepSignal sends a signal to all tasks; 0 ends the step.
type StepSignal struct {
	Signal int32
	Text   string // the daemon prints it to the user when it ends the step
}

func (x *StepSignal) Wire(c *wire.C) {
	wire.Int(c, &x.Signal)
	wire.Lines(c, &x.Text, model.MaxText)
}

// StepWords says how tasks have ended whose node's daemon is away, as the node's relay has told the command.
type StepWords struct{ List []StepWord }

// StepAdopt asks for the process that has started the caller to be put into a job that the user has on this node, with
// all that it will start. Only root may ask. The answer is StepAdopted or StepRefused.
type StepAdopt struct{ UID uint32 }

func (x *StepAdopt) Wire(c *wire.C) { wire.Int(c, &x.UID) }

// StepWord is one task's end.
type StepWord struct{ Task, Code, Signal int32 }

func (x *StepWords) Wire(c *wire.C) { wire.List(c, &x.List, model.MaxList) }

func (x *StepWord) Wire(c *wire.C) {
	wire.Int(c, &x.Task)
	wire.Int(c, &x.Code)
	wire.Int(c, &x.Signal)
}

// Kinds of frames on a socket for steps: one precedes each message.
const (
	StepFrameRequest uint8 = iota + 1
	StepFrameFiles         // followed by the descriptors, MaxStepFDs with each byte
	StepFrameSignal
	StepFrameEvent
	StepFrameDoor   // StepDoor, then a request
	StepFramePart   // StepPart
	StepFrameForget // the step's manager has stored the end of the part
	StepFrameWords  // StepWords, after StepAway
	StepFrameAdopt  // StepAdopt
)
