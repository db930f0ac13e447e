package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Attempt keys one start of a job.
type Attempt struct {
	Job     model.JobID
	Attempt uint32
}

func (x *Attempt) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
}

// Hello opens a node's session. Known lists every attempt that the node runs, or has finished and not seen
// acknowledged: what is missing there was never launched here or is lost.
type Hello struct {
	Node    string
	Version string
	Hw      Hardware
	BootID  string
	BootAt  model.Time
	UpSince model.Time
	Known   []Attempt

	// Instance is the one that the node's attempts belong to (see Welcome), 0 if none yet: a leader of another one
	// takes Known for empty, because its job numbers mean other jobs.
	Instance uint64

	Now     model.Time // the node's clock
	Problem string     // what its own checks find; or ""

	PeerPort int32 // where it answers other nodes' daemons, 0: nowhere

	Leaving []Attempt // as in Heartbeat
}

func (x *Hello) Wire(c *wire.C) {
	wire.Text(c, &x.Node, model.MaxName)
	wire.Text(c, &x.Version, model.MaxName)
	wire.Struct(c, &x.Hw)
	wire.Text(c, &x.BootID, model.MaxName)
	wire.Int(c, &x.BootAt)
	wire.Int(c, &x.UpSince)
	wire.List(c, &x.Known, model.MaxMany)
	wire.Int(c, &x.Instance)
	wire.Int(c, &x.Now)
	wire.Text(c, &x.Problem, model.MaxText)
	wire.Int(c, &x.PeerPort)
	wire.List(c, &x.Leaving, model.MaxMany)
}

// Hardware is what a node finds on itself.
type Hardware struct {
	CPUs    int32
	Sockets int32
	Cores   int32 // per socket
	Threads int32 // per core
	MemMiB  int64
	TmpMiB  int64
	Gres    []model.GresDef
	OS      string
	Arch    string
	Virtual bool     // a stand-in: it takes the configuration's word for its hardware
	Notes   []string // what it can't enforce, for people
	// why it can't take jobs although it has as much as configured: its resources contradict gres.conf; or ""
	Problem string
	Units   []model.GresUnit
}

func (x *Hardware) Wire(c *wire.C) {
	wire.Int(c, &x.CPUs)
	wire.Int(c, &x.Sockets)
	wire.Int(c, &x.Cores)
	wire.Int(c, &x.Threads)
	wire.Int(c, &x.MemMiB)
	wire.Int(c, &x.TmpMiB)
	wire.List(c, &x.Gres, model.MaxFew)
	wire.Text(c, &x.OS, model.MaxName)
	wire.Text(c, &x.Arch, model.MaxName)
	wire.Bool(c, &x.Virtual)
	wire.Texts(c, &x.Notes, model.MaxList, model.MaxText)
	wire.Text(c, &x.Problem, model.MaxText)
	wire.List(c, &x.Units, model.MaxList)
}

// Welcome accepts a node. It refuses orders with a smaller Epoch from then on.
type Welcome struct {
	Cluster    string
	Epoch      uint64
	HeartbeatS int64
	KillWaitS  int64
	Def        *model.NodeDef

	// Instance tells apart the histories of controllers that share a cluster's name (see Put). A node that held
	// attempts of another one ends them and counts epochs from the start; 0 changes nothing.
	Instance uint64

	Rules *model.NodeRules

	Forget   []Attempt // the leader knows nothing of these; the first heartbeat already counts them among Leaving
	TimeoutS int64     // SlurmdTimeout: orders that answer an older heartbeat are not done; 0: nothing is too old
}

func (x *Welcome) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Int(c, &x.Epoch)
	wire.Int(c, &x.HeartbeatS)
	wire.Int(c, &x.KillWaitS)
	wire.Ptr(c, &x.Def)
	wire.Int(c, &x.Instance)
	wire.Ptr(c, &x.Rules)
	wire.List(c, &x.Forget, model.MaxMany)
	wire.Int(c, &x.TimeoutS)
}

// Orders is what the leader wants of a node: level-triggered, so every order may come again.
type Orders struct {
	Epoch  uint64
	Launch []*Launch
	Stop   []*Stop
	Forget []Attempt // the leader knows nothing of these: kill what is left and drop them

	Rules  *model.NodeRules // the configuration has changed
	Health bool             // run HealthCheckProgram
	Freeze []*Freeze        // what is wanted of attempts that are or have been suspended

	// Heard is the Now of the node's last word that the leader had when it sent this, 0 if none had one. A network, or a
	// stopped process, may hold orders back until the leader has given the node up and the job runs elsewhere.
	Heard model.Time

	TimeoutS int64 // beside Rules: as in Welcome
}

func (x *Orders) Wire(c *wire.C) {
	wire.Int(c, &x.Epoch)
	wire.Ptrs(c, &x.Launch, model.MaxMany)
	wire.Ptrs(c, &x.Stop, model.MaxMany)
	wire.List(c, &x.Forget, model.MaxMany)
	wire.Ptr(c, &x.Rules)
	wire.Bool(c, &x.Health)
	wire.Ptrs(c, &x.Freeze, model.MaxMany)
	wire.Int(c, &x.Heard)
	wire.Int(c, &x.TimeoutS)
}

// Launch starts a job's batch script. A node that has the attempt already does nothing and reports again.
type Launch struct {
	Job      model.JobID
	Attempt  uint32
	ArrayID  model.JobID
	Task     int32
	Array    ArrayShape
	Spec     *model.Spec
	Script   model.Blob
	Env      model.Blob
	Part     string
	LimitS   int64
	Start    model.Time
	Restarts uint32
	Alloc    *model.Alloc // of all nodes
	Node     int32        // this node's place in it
	Resv     string

	// Prepare asks only for what has to be done before the script: its control group and the prolog. ReportReady answers,
	// and the script, if it is this node's, comes with a later Launch. Without it the prolog runs first if it has not.
	Prepare bool
}

func (x *Launch) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.ArrayID)
	wire.Int(c, &x.Task)
	wire.Struct(c, &x.Array)
	wire.Ptr(c, &x.Spec)
	wire.Struct(c, &x.Script)
	wire.Struct(c, &x.Env)
	wire.Text(c, &x.Part, model.MaxName)
	wire.Int(c, &x.LimitS)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.Restarts)
	wire.Ptr(c, &x.Alloc)
	wire.Int(c, &x.Node)
	wire.Text(c, &x.Resv, model.MaxName)
	wire.Bool(c, &x.Prepare)
}

// ArrayShape is what SLURM_ARRAY_TASK_{COUNT,MIN,MAX,STEP} say: of the array as submitted.
type ArrayShape struct {
	Count int32
	Min   int32
	Max   int32
	Step  int32
}

func (x *ArrayShape) Wire(c *wire.C) {
	wire.Int(c, &x.Count)
	wire.Int(c, &x.Min)
	wire.Int(c, &x.Max)
	wire.Int(c, &x.Step)
}

// Stop ends an attempt's processes (Signal 0: SIGCONT and SIGTERM now, SIGKILL after KillWaitS) or, with Signal, only
// sends one. Line, if any, is written to the job's standard error first.
type Stop struct {
	Job       model.JobID
	Attempt   uint32
	Cause     model.StopCause
	Signal    int32
	Batch     bool // only the batch shell
	Full      bool // the batch shell and everything below it
	KillWaitS int64
	Line      string
	Once      bool // with Signal: the attempt gets it once, however often this is said

	Release bool // with Signal: the script's exit code is Code, whatever the signal makes of it
	Code    int32

	Tell bool // nothing is stopped: Line is for the user
}

func (x *Stop) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.Cause)
	wire.Int(c, &x.Signal)
	wire.Bool(c, &x.Batch)
	wire.Bool(c, &x.Full)
	wire.Int(c, &x.KillWaitS)
	wire.Text(c, &x.Line, model.MaxText)
	wire.Bool(c, &x.Once)
	wire.Bool(c, &x.Release)
	wire.Int(c, &x.Code)
	wire.Bool(c, &x.Tell)
}

// Freeze says that an attempt's processes shall stand still, or go on. One with a smaller Turn than was seen is
// outdated.
type Freeze struct {
	Job     model.JobID
	Attempt uint32
	Frozen  bool
	Turn    uint32
	GraceMS int64 // between SIGTSTP and the freeze
}

func (x *Freeze) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Bool(c, &x.Frozen)
	wire.Int(c, &x.Turn)
	wire.Int(c, &x.GraceMS)
}

// ReportKind is what a node reports of an attempt. The numbers are stored: append only.
type ReportKind uint8

// The kinds.
const (
	ReportStarted ReportKind = iota + 1
	ReportEnded
	ReportLaunchFailed
	ReportReady        // the prolog has run; asked for with Launch.Prepare
	ReportPrologFailed // Text says how; ReportEnded follows when the epilog has run
	ReportEnding       // the script has ended as Exit says, all its processes are gone, and the epilog runs
	ReportEpilogFailed // Text says how; ReportEnded follows
	ReportUnkillable   // Text says what survives SIGKILL; ReportEnded follows if it ever dies
)

// ReportStep says that a step has ended. Its number is apart from the others: the leader's facts have kinds of their
// own behind those.
const ReportStep ReportKind = 64

// Report is one thing that happened to an attempt. It is in the node's spool until it is acknowledged.
type Report struct {
	Seq     uint64 // of this node, strictly growing over restarts
	Kind    ReportKind
	Job     model.JobID
	Attempt uint32
	At      model.Time
	Exit    model.Exit  // ReportEnded
	Text    string      // why, of what went wrong
	Step    *model.Step // ReportStep
}

func (x *Report) Wire(c *wire.C) {
	wire.Int(c, &x.Seq)
	wire.Int(c, &x.Kind)
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.At)
	wire.Struct(c, &x.Exit)
	wire.Text(c, &x.Text, model.MaxText)
	wire.Ptr(c, &x.Step)
}

// Reports brings news from a node.
type Reports struct {
	Reports []*Report
}

func (x *Reports) Wire(c *wire.C) {
	wire.Ptrs(c, &x.Reports, model.MaxMany)
}

// ReportAck says which reports are in the replicated log: the node may forget them.
type ReportAck struct {
	Seqs []uint64
}

func (x *ReportAck) Wire(c *wire.C) {
	wire.Ints(c, &x.Seqs, model.MaxMany)
}

// Heartbeat tells that the node lives, and how it feels.
type Heartbeat struct {
	LoadMilli  int64
	FreeMemMiB int64
	Running    int32
	Problem    string // why the node should take no jobs, as its own checks and HealthCheckProgram say; or ""

	Units      []model.UnitTell // all that there is to say of GPUs that jobs should not get
	UnitsKnown bool             // the GPUs have been read since gnoded started
	Readings   []UnitReading    // at most MaxUnits
	Now        model.Time       // by the node's clock

	// Leaving is what the leader told the node to forget and of which something is still there, at most MaxLeaving by
	// number: until it is empty the node gets no work.
	Leaving []Attempt
	Held    []model.GPUHeld // memory of GPUs that others than jobs hold; at most model.MaxUnitTells
}

func (x *Heartbeat) Wire(c *wire.C) {
	wire.Int(c, &x.LoadMilli)
	wire.Int(c, &x.FreeMemMiB)
	wire.Int(c, &x.Running)
	wire.Text(c, &x.Problem, model.MaxText)
	wire.List(c, &x.Units, model.MaxFew)
	wire.Bool(c, &x.UnitsKnown)
	wire.List(c, &x.Readings, model.MaxList)
	wire.Int(c, &x.Now)
	wire.List(c, &x.Leaving, model.MaxMany)
	wire.List(c, &x.Held, model.MaxFew)
}

// MaxLeaving bounds Heartbeat.Leaving.
const MaxLeaving = 64

// MaxUnits bounds the units of one node that are told of one by one.
const MaxUnits = 256

// UnitReading is how one unit is. Numbers that are not known are -1.
type UnitReading struct {
	Name        string
	Index       int32
	UtilPct     int32
	MemUtilPct  int32
	MemUsedMiB  int64
	MemTotalMiB int64
	TempC       int32
	PowerMilliW int64
	XID         int32  // the last since gnoded began, 0: none
	Fault       string // the last fatal one since then, "" if none
	Lost        bool   // it no longer answers
	Processes   int32
}

func (x *UnitReading) Wire(c *wire.C) {
	wire.Text(c, &x.Name, model.MaxName)
	wire.Int(c, &x.Index)
	wire.Int(c, &x.UtilPct)
	wire.Int(c, &x.MemUtilPct)
	wire.Int(c, &x.MemUsedMiB)
	wire.Int(c, &x.MemTotalMiB)
	wire.Int(c, &x.TempC)
	wire.Int(c, &x.PowerMilliW)
	wire.Int(c, &x.XID)
	wire.Text(c, &x.Fault, model.MaxText)
	wire.Bool(c, &x.Lost)
	wire.Int(c, &x.Processes)
}
